package consul

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	api "github.com/isthmus-mesh/isthmus/api/v1alpha1"
	"github.com/isthmus-mesh/isthmus/clusters/foreign"
)

// serviceOfServers is what Consul's servers register themselves as.
const serviceOfServers = "consul"

// Names that Consul gives what an operator has taken out of service: a check of the node, or of one of its services.
const (
	nodeMaintenance    = "_node_maintenance"
	serviceMaintenance = "_service_maintenance:"
)

// health is what all checks of an instance and of its node say together: the worst of them.
type health uint8

const (
	passing health = iota
	warning
	critical
	maintenance
)

// aggregate takes the worst of the checks. None means passing, and a status that is not known is no good one.
func aggregate(checks []check) (h health) {
	for _, c := range checks {
		one := critical
		switch {
		case c.CheckID == nodeMaintenance || strings.HasPrefix(c.CheckID, serviceMaintenance):
			one = maintenance
		case c.Status == "passing":
			one = passing
		case c.Status == "warning":
			one = warning
		}
		h = max(h, one)
	}
	return h
}

// converter makes services of what Consul says of them. It is pure.
type converter struct {
	shard model.ShardKey
	spec  *api.RegistrySpec
	tags  []string // that an instance must have, in lower case
	kinds []string // that are taken
	key   string   // what keys of services begin with
	dc    string
	host  string // suffix
}

func newConverter(shard model.ShardKey, spec *api.RegistrySpec, s scope, many bool, local string) *converter {
	c := &converter{shard: shard, spec: spec, kinds: []string{"", "typical"}, dc: cmp.Or(s.dc, local), host: s.suffix(local)}
	if s.peer != "" {
		c.dc = "" // what its instances say
	}
	for _, t := range spec.Consul.Tags {
		c.tags = append(c.tags, strings.ToLower(t))
	}
	c.kinds = append(c.kinds, spec.Consul.Kinds...)
	if prefix := s.String(); many && prefix != "" {
		c.key = prefix + "/"
	}
	return c
}

// service converts one; false if it has instances, and the settings take none of them.
func (c *converter) service(name string, in entries) (foreign.Service, bool) {
	out := foreign.Service{Key: c.key + foreign.KeyPart(name), Name: name, Suffix: c.host}
	for i := range in.list {
		e := &in.list[i]
		if !slices.Contains(c.kinds, e.Service.Kind) || !c.tagged(e.Service.Tags) {
			continue
		}
		if reason, why := unroutable(e); reason != "" {
			out.LeftOut = append(out.LeftOut, c.leftOut(out.Key, e, reason, why))
			continue
		}
		out.Instances = append(out.Instances, c.instance(e))
	}
	if in.bad > 0 {
		out.LeftOut = append(out.LeftOut, model.LeftOut{
			Addr: model.Addr{Cluster: c.shard.Cluster}, Reason: model.ReasonInvalid,
			Detail: fmt.Sprintf("%d of its instances can't be read", in.bad), Source: c.source(out.Key),
		})
	}
	slices.SortFunc(out.Instances, func(a, b foreign.Instance) int { return strings.Compare(a.ID, b.ID) })
	return out, len(out.Instances)+len(out.LeftOut) > 0 || len(in.list) == 0
}

// tagged reports whether an instance has all tags that it must have.
func (c *converter) tagged(tags []string) bool {
	for _, want := range c.tags {
		if !slices.ContainsFunc(tags, func(t string) bool { return strings.ToLower(t) == want }) {
			return false
		}
	}
	return true
}

// unroutable says why an instance can't be routed to, whatever its health.
func unroutable(e *entry) (reason model.Reason, why string) {
	switch {
	case e.Service.SocketPath != "":
		return model.ReasonWrongKind, "it listens on a socket of its machine"
	case e.Service.Connect.Native:
		return model.ReasonWrongKind, "it takes connections of Consul's own mesh only"
	case e.Service.Port < 0 || e.Service.Port > 65535:
		return model.ReasonInvalid, fmt.Sprintf("%d is not a port", e.Service.Port)
	case e.Service.Address == "" && e.Node.Address == "":
		return model.ReasonNoAddress, "neither the instance nor its node has an address"
	}
	return "", ""
}

func (c *converter) leftOut(key string, e *entry, reason model.Reason, why string) model.LeftOut {
	a := model.Addr{Cluster: c.shard.Cluster}
	host, number := address(e, c.spec.Consul.TaggedAddress)
	if ip, err := netip.ParseAddr(host); err == nil {
		a.AddrPort = netip.AddrPortFrom(ip, number)
	} else {
		a.Host, a.AddrPort = host, netip.AddrPortFrom(netip.Addr{}, number)
	}
	return model.LeftOut{Addr: a, Reason: reason, Detail: why, Source: c.source(key + "/" + instanceID(e))}
}

func (c *converter) source(name string) model.Source {
	return model.Source{Shard: c.shard, Object: model.ObjectKey{Kind: string(model.KindInstance), Namespace: c.spec.Namespace, Name: name}}
}

// instanceID is unique: Consul's own ids are so within a node.
func instanceID(e *entry) string {
	return foreign.KeyPart(e.Node.Node) + "/" + foreign.KeyPart(cmp.Or(e.Service.ID, e.Service.Service))
}

func (c *converter) instance(e *entry) foreign.Instance {
	i := foreign.Instance{
		ID: instanceID(e), Health: model.Healthy, Cluster: cmp.Or(e.Node.Datacenter, c.dc), Node: e.Node.Node,
		Metadata: metadata(&e.Service), Locality: c.locality(e),
	}
	i.Address, i.Port = address(e, c.spec.Consul.TaggedAddress)
	i.Alternatives = c.alternatives(e)
	i.Weight = 1
	w := e.Service.Weights
	if w != nil {
		i.Weight = float64(w.Passing)
	}
	switch aggregate(e.Checks) {
	case maintenance:
		i.Disabled = true
	case critical:
		i.Health = model.Unhealthy
	case warning:
		if c.spec.Health.Warning == "unhealthy" {
			i.Health = model.Unhealthy
		} else if w != nil {
			i.Weight = float64(w.Warning)
		}
	}
	for _, p := range e.Service.Ports {
		i.Ports = append(i.Ports, foreign.NamedPort{Name: p.Name, Port: number(p.Port), Protocol: portProtocol(p.Name, i.Metadata, c.spec.Ports.ProtocolKey)})
	}
	return i
}

// address is where an instance is dialled: as the tagged address of that name says, else at the service's own address, else at
// that of its node (as Consul's DNS answers do).
func address(e *entry, tag string) (host string, port uint16) {
	s, n := &e.Service, &e.Node
	port = number(s.Port)
	if t := s.TaggedAddresses[tag]; t.Address != "" {
		return t.Address, cmp.Or(number(t.Port), port)
	}
	return cmp.Or(s.Address, n.TaggedAddresses[tag], n.Address), port
}

// number is 0 for what is no port.
func number(port int) uint16 {
	if port < 0 || port > 65535 {
		return 0
	}
	return uint16(port)
}

// metadata are an instance's meta, and its tags: "key=value" and "key|value" as such a pair, others as "tag/" and the tag. Of a
// key that both have that of meta counts, of one that several tags have the first.
func metadata(s *instance) map[string]string {
	if len(s.Meta)+len(s.Tags) == 0 {
		return nil
	}
	out := make(map[string]string, len(s.Meta)+len(s.Tags))
	for _, t := range slices.Backward(s.Tags) {
		if cut := strings.IndexAny(t, "=|"); cut > 0 {
			out[t[:cut]] = t[cut+1:]
		} else {
			out["tag/"+t] = "true"
		}
	}
	maps.Copy(out, s.Meta)
	return out
}

// portProtocol is what is said of one of several ports: by "protocol-<port>", or by its name, which begins with the word for a
// protocol as names of Kubernetes' ports do. Else it is that of the instance.
func portProtocol(name string, metadata map[string]string, key string) string {
	if own := metadata[key+"-"+name]; own != "" {
		return own
	}
	word, _, _ := strings.Cut(strings.ToLower(name), "-")
	if _, known := model.ParseProtocol(word); known {
		return word
	}
	return ""
}

// locality is what the service says, then its node. The datacenter comes last, in the mapping.
func (c *converter) locality(e *entry) model.Locality {
	keys, own, of := c.spec.Locality, e.Service.Locality, e.Node.Locality
	if own == nil {
		own = &locality{}
	}
	if of == nil {
		of = &locality{}
	}
	meta := func(key string) string { return cmp.Or(e.Service.Meta[key], e.Node.Meta[key]) }
	return model.Locality{
		Region:  cmp.Or(own.Region, of.Region, meta(keys.RegionKey)),
		Zone:    cmp.Or(own.Zone, of.Zone, meta(keys.ZoneKey)),
		Subzone: meta(keys.SubzoneKey),
	}
}
