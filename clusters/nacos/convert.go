package nacos

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/clusters/foreign"
)

// What a bridge that writes other registries' services into Nacos marks its instances with. They are read at their source.
const (
	echoKey   = "register-resource"
	echoValue = "mcp-bridge"
)

// naming is what names of hosts need.
type naming struct {
	shard      model.ShardKey
	home       string            // the namespace in the mesh
	namespaces map[string]string // what namespaces are called, by id
	honour     bool              // the protection threshold
}

// convert gives the service that an answer tells of. ok is false if all its instances are echoes of other registries: it is no service of this one.
func (n naming) convert(name serviceName, info *serviceInfo) (out foreign.Service, ok bool) {
	out = foreign.Service{
		Key: name.String(), Name: name.name,
		Suffix: name.group + "." + cmp.Or(n.namespaces[name.namespace], name.namespace) + ".nacos",
	}
	echoes, bad := 0, 0
	for i := range info.Hosts {
		switch h := &info.Hosts[i]; {
		case h.Metadata[echoKey] == echoValue:
			echoes++
		case h.unreadable:
			bad++
		default:
			out.Instances = append(out.Instances, n.instance(h, info.Protected))
		}
	}
	if bad > 0 {
		out.LeftOut = []model.LeftOut{{
			Addr: model.Addr{Cluster: n.shard.Cluster}, Reason: model.ReasonInvalid, Detail: fmt.Sprintf("%d of its instances can't be read", bad),
			Source: model.Source{Shard: n.shard, Object: model.ObjectKey{Kind: string(model.KindInstance), Namespace: n.home, Name: out.Key}},
		}}
	}
	return out, echoes == 0 || echoes < len(info.Hosts)
}

// instance makes an instance. Where the server says that all are healthy since too few are, nothing is known of this one's own health.
func (n naming) instance(h *instance, protected bool) foreign.Instance {
	out := foreign.Instance{
		ID: cmp.Or(h.ID, fmt.Sprintf("%s#%d#%s", h.IP, h.Port, h.Cluster)), Address: h.IP,
		Weight: weight(h.Weight), Disabled: !h.Enabled, Cluster: h.Cluster, Metadata: h.Metadata,
	}
	if h.Port > 0 && h.Port <= math.MaxUint16 {
		out.Port = uint16(h.Port)
	}
	if out.Health = model.Unhealthy; h.Healthy && (!protected || n.honour) {
		out.Health = model.Healthy
	}
	return out
}

// weight is that of an instance; what is no weight is none.
func weight(w float64) float64 {
	if !(w > 0) || math.IsInf(w, 0) {
		return 0
	}
	return w
}

// sameInfo reports whether two answers say the same of a service, in whatever order. An instance may be there twice: two clients may register it.
func sameInfo(a, b *serviceInfo) bool {
	if a == nil || b == nil || a.Protected != b.Protected || len(a.Hosts) != len(b.Hosts) {
		return a == b
	}
	return slices.EqualFunc(a.ordered(), b.ordered(), func(x, y *instance) bool { return x.compare(y) == 0 && maps.Equal(x.Metadata, y.Metadata) })
}

func (s *serviceInfo) ordered() []*instance {
	out := make([]*instance, len(s.Hosts))
	for i := range s.Hosts {
		out[i] = &s.Hosts[i]
	}
	slices.SortFunc(out, (*instance).compare)
	return out
}

// compare orders instances by all that is compared, but for metadata.
func (h *instance) compare(o *instance) int {
	return cmp.Or(
		strings.Compare(h.ID, o.ID), strings.Compare(h.IP, o.IP), cmp.Compare(h.Port, o.Port), strings.Compare(h.Cluster, o.Cluster),
		cmp.Compare(h.Weight, o.Weight), compareBools(h.Healthy, o.Healthy), compareBools(h.Enabled, o.Enabled), compareBools(h.unreadable, o.unreadable),
	)
}

func compareBools(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}
