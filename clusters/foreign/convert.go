package foreign

import (
	"cmp"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strings"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	api "github.com/isthmus-mesh/isthmus/api/v1alpha1"
)

// The kinds of objects in explanations.
const (
	kindService  = "Service"
	kindAlias    = "Alias" // of no object: it tells the row of a service's other name from that of the service
	kindInstance = string(model.KindInstance)
)

// Bounds on the labels of one instance. What exceeds them is dropped.
const (
	maxLabels     = 128
	maxLabelKey   = 317 // as in Kubernetes: a prefix and a name
	maxLabelValue = 1024
)

// resolved are the addresses of DNS names, of those that have been looked up.
type resolved map[string][]netip.Addr

// converter makes rows. It is pure: equal input gives equal rows.
type converter struct {
	shard model.ShardKey
	spec  api.RegistrySpec
	ports map[string]api.ServicePort // by host in lower case
}

func newConverter(o Options) converter {
	c := converter{shard: o.Shard, spec: o.Spec, ports: map[string]api.ServicePort{}}
	for _, s := range o.Spec.Ports.Services {
		c.ports[strings.ToLower(s.Host)] = s
	}
	return c
}

// converted is what became of a service.
type converted struct {
	rows    map[model.RowKey]model.Object
	ports   []model.Port
	problem string // what is wrong with the service, a sentence; "" if nothing
}

// holders are the keys of the services that have a service's host and its other name, if several would have the same.
type holders struct{ host, alias string }

// rows makes the rows of a service. Its ports are those that it had if no instance says any. stamp is the revision and time.
func (c *converter) rows(s Service, ports []model.Port, r resolved, by holders, stamp model.Source) (out converted) {
	host := c.host(s)
	why := invalidHost(host)
	if by.host != s.Key {
		why = fmt.Sprintf("its host %s is that of %s: rename one of them, or use the naming mode %s", host, by.host, api.NamingDNS)
	}
	if why != "" {
		return converted{ports: ports, problem: "the service is left out: " + why}
	}
	p := c.choosePorts(s, ports)
	out = converted{rows: map[model.RowKey]model.Object{}, ports: p.ports}
	source := c.source(kindService, s.Key, stamp)
	row := &model.Service{
		Host: host, Namespace: c.spec.Namespace, Name: s.Name, Ports: p.ports, AutoAddress: true, ExportTo: c.spec.ExportTo,
		Created: s.Created, Source: source,
	}
	out.add(source.Object.String(), row)
	taken := ""
	switch alias := c.alias(s); {
	case alias != "" && by.alias != s.Key:
		taken = fmt.Sprintf("its other name %s is left out: it is that of %s", alias, by.alias)
	case alias != "":
		a := *row
		a.Host, a.AliasOf = alias, host
		out.add(c.object(kindAlias, s.Key).String(), &a)
	}
	e, faults := c.endpoints(s, host, p, r, source)
	out.problem = sentences(p.problem, taken, faults)
	out.add(source.Object.String(), e)
	for i := range s.Instances {
		if w := c.workload(s, &s.Instances[i], r, stamp); w != nil {
			out.add(w.Source.Object.String(), w)
		}
	}
	return out
}

func (c *converted) add(key string, o model.Object) {
	c.rows[model.RowKey{Kind: o.RowKind(), Key: key}] = o
}

func (c *converter) object(kind, name string) model.ObjectKey {
	return model.ObjectKey{Kind: kind, Namespace: c.spec.Namespace, Name: name}
}

func (c *converter) source(kind, name string, stamp model.Source) model.Source {
	return model.Source{Shard: c.shard, Object: c.object(kind, name), Revision: stamp.Revision, Time: stamp.Time}
}

func instanceName(s Service, i *Instance) string { return s.Key + "/" + i.ID }

// endpoints makes the one row of a service's instances, and tells what is wrong with their addresses.
func (c *converter) endpoints(s Service, host string, p chosenPorts, r resolved, src model.Source) (row *model.Endpoints, faults string) {
	row = &model.Endpoints{Host: host, Namespace: c.spec.Namespace, LeftOut: slices.Clone(s.LeftOut), Source: src}
	b := endpointsBuilder{converter: c, row: row, source: &src, seen: map[dialled]struct{}{}, resolved: r}
	instances := byID(s.Instances)
	for _, i := range instances {
		for _, l := range p.of(i) {
			b.add(s, i, l)
		}
	}
	return row, b.addressFaults(instances)
}

// byID gives the instances in an order that does not depend on the registry's.
func byID(in []Instance) []*Instance {
	out := make([]*Instance, len(in))
	for i := range in {
		out[i] = &in[i]
	}
	slices.SortFunc(out, func(a, b *Instance) int {
		return cmp.Or(strings.Compare(a.ID, b.ID), strings.Compare(a.Address, b.Address), cmp.Compare(a.Port, b.Port))
	})
	return out
}

type dialled struct {
	addr netip.AddrPort
	port string
}

type endpointsBuilder struct {
	*converter
	row      *model.Endpoints
	source   *model.Source
	seen     map[dialled]struct{}
	resolved resolved
}

// add makes endpoints of one instance's port, or says why there are none.
func (b *endpointsBuilder) add(s Service, i *Instance, l listening) {
	addrs, why := b.addresses(i)
	switch {
	case l.why != "":
		b.leaveOut(i, l, model.ReasonInvalid, l.why)
	case i.Disabled:
		b.leaveOut(i, l, model.ReasonDisabled, "")
	case i.Weight <= 0:
		b.leaveOut(i, l, model.ReasonZeroWeight, "")
	case why != "":
		b.leaveOut(i, l, model.ReasonInvalid, why)
	default:
		for n, a := range addrs {
			b.dial(s, i, l, netip.AddrPortFrom(a, l.number), b.alternatives(i, l, n))
		}
	}
}

func (b *endpointsBuilder) dial(s Service, i *Instance, l listening, at netip.AddrPort, other *model.Alternatives) {
	if _, again := b.seen[dialled{at, l.port}]; again {
		b.leaveOut(i, l, model.ReasonDuplicate, "another instance of the service has this address and port")
		return
	}
	b.seen[dialled{at, l.port}] = struct{}{}
	health := i.Health
	if b.spec.Health.Ignore {
		health = model.Healthy
	}
	labels := labelsOf(i.Metadata)
	b.row.Endpoints = append(b.row.Endpoints, model.Endpoint{
		Addr: model.Addr{Cluster: b.shard.Cluster, AddrPort: at}, PortName: l.port, Health: health, Weight: b.weight(i),
		Labels: labels, Locality: b.locality(i), Network: b.spec.Network, Alternatives: other, TLSMode: tlsMode(labels), Node: i.Node,
		Workload: b.object(kindInstance, instanceName(s, i)), Source: b.source,
	})
}

// weight is that of an instance that takes traffic, to a hundredth and never nothing; 0, which is unset, if all are equal.
func (c *converter) weight(i *Instance) float64 {
	if c.spec.Weights.Ignore {
		return 0
	}
	return min(max(math.Round(i.Weight*100), 1), 100<<20) / 100
}

func (b *endpointsBuilder) leaveOut(i *Instance, l listening, why model.Reason, detail string) {
	addr := model.Addr{Cluster: b.shard.Cluster, Host: i.Address, AddrPort: netip.AddrPortFrom(netip.Addr{}, l.number)}
	if a, ok := parseIP(i.Address); ok {
		addr.Host, addr.AddrPort = "", netip.AddrPortFrom(a, l.number)
	}
	b.row.LeftOut = append(b.row.LeftOut, model.LeftOut{Addr: addr, Port: l.port, Reason: why, Detail: detail, Source: *b.source})
}

// known are the addresses of an instance, or why there are none.
func (b *endpointsBuilder) known(i *Instance) (addrs []netip.Addr, why string) {
	name, isName := dnsName(i.Address)
	if !isName {
		a, ok := parseIP(i.Address)
		switch {
		case i.Address == "":
			return nil, "the instance has no address"
		case !ok:
			return nil, "its address is neither an IP address nor a DNS name"
		}
		return []netip.Addr{a.Unmap().WithZone("")}, ""
	}
	addrs, known := b.resolved[name]
	switch {
	case !known:
		return nil, "its DNS name has not been resolved yet"
	case len(addrs) == 0:
		return nil, "its DNS name has no address"
	}
	return addrs, ""
}

// workload is an instance as selectors see it; nil if it takes no traffic, or has no address yet.
func (c *converter) workload(s Service, i *Instance, r resolved, stamp model.Source) *model.Workload {
	if i.Disabled || i.Weight <= 0 {
		return nil
	}
	b := endpointsBuilder{converter: c, resolved: r}
	addrs, _ := b.addresses(i)
	if len(addrs) == 0 {
		return nil
	}
	labels := labelsOf(i.Metadata)
	w := &model.Workload{
		Kind: model.KindInstance, Namespace: c.spec.Namespace, Name: instanceName(s, i), Labels: labels,
		Address: model.Addr{Cluster: c.shard.Cluster, AddrPort: netip.AddrPortFrom(addrs[0], 0)}, Alternatives: b.alternatives(i, listening{}, 0),
		Network: c.spec.Network, Locality: c.locality(i), TLSMode: tlsMode(labels), Health: i.Health, Weight: c.weight(i), Node: i.Node,
		Source: c.source(kindInstance, instanceName(s, i), stamp),
	}
	if c.spec.Health.Ignore {
		w.Health = model.Healthy
	}
	for _, l := range listeningOf(c, c.host(s), i) {
		if w.Ports == nil {
			w.Ports = map[string]uint16{}
		}
		w.Ports[l.port] = l.number
	}
	return w
}

// labelsOf are an instance's metadata within bounds, in full otherwise: foreign registries know no syntax of labels.
func labelsOf(metadata map[string]string) model.Labels {
	if len(metadata) == 0 {
		return nil
	}
	keys := make([]string, 0, len(metadata))
	for k, v := range metadata {
		if k != "" && len(k) <= maxLabelKey && len(v) <= maxLabelValue {
			keys = append(keys, k)
		}
	}
	slices.Sort(keys)
	out := make(model.Labels, len(keys))
	for _, k := range keys[:min(len(keys), maxLabels)] {
		out[k] = metadata[k]
	}
	return out
}

// tlsMode is that of Istio's label, for instances with a sidecar of the mesh.
func tlsMode(labels model.Labels) string {
	if labels["security.istio.io/tlsMode"] == model.TLSIstio {
		return model.TLSIstio
	}
	return ""
}

// locality is what the instance says of itself, and where that says nothing what the spec does.
func (c *converter) locality(i *Instance) model.Locality {
	l, m := c.spec.Locality, i.Metadata
	own := model.Locality{
		Region:  cmp.Or(i.Locality.Region, m[l.RegionKey], m["topology.kubernetes.io/region"]),
		Zone:    cmp.Or(i.Locality.Zone, m[l.ZoneKey], m["topology.kubernetes.io/zone"]),
		Subzone: cmp.Or(i.Locality.Subzone, m[l.SubzoneKey], m["topology.istio.io/subzone"]),
	}
	given := model.ParseLocality(cmp.Or(l.Clusters[i.Cluster], l.Datacenters[i.Cluster], l.Default))
	if given == (model.Locality{}) && c.spec.Provider == api.Consul {
		given.Region = i.Cluster
	}
	own.Region = cmp.Or(own.Region, given.Region)
	if own.Region == given.Region && own.Zone == "" {
		own.Zone = given.Zone
	}
	if own.Region == given.Region && own.Zone == given.Zone && own.Subzone == "" {
		own.Subzone = given.Subzone
	}
	return own
}
