package gen

import (
	"cmp"
	"net/netip"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/pushcontext"
)

// NameTable makes the one NDS resource: the addresses behind host names, by which the agent beside a sidecar
// answers its workload's DNS queries (istio.networking.nds.v1.NameTable). The agent completes short names
// itself. A name stands for the service's virtual addresses as the proxy sees them or, for a headless Service,
// for its endpoints in the proxy's network; pods of these that have a host name are there by that, too.
type NameTable struct{}

// nameTable is the name of the resource; clients don't look at it.
const nameTable = "nametable"

// TypeURL implements Generator.
func (NameTable) TypeURL() string { return NameTableURL }

// Kinds implements Generator.
func (NameTable) Kinds() []pushcontext.ViewKind {
	return []pushcontext.ViewKind{pushcontext.ViewNames}
}

// Key implements Generator.
func (NameTable) Key(name string) (pushcontext.ViewKey, bool) {
	return pushcontext.ViewKey{Kind: pushcontext.ViewNames}, name == nameTable
}

// Traits implements Generator.
func (NameTable) Traits(v pushcontext.View) Traits {
	if _, ok := v.(*pushcontext.NamesView); !ok {
		return 0
	}
	return TraitType | TraitCluster | TraitNetwork | TraitNamespace | TraitFamilies | TraitScope
}

// Names implements Generator.
func (NameTable) Names(v pushcontext.View, c Class) []string {
	if _, ok := v.(*pushcontext.NamesView); !ok || c.Type == Router {
		return nil
	}
	return []string{nameTable}
}

// Build implements Generator.
func (NameTable) Build(v pushcontext.View, c Class, name string) ([]byte, error) {
	n, ok := v.(*pushcontext.NamesView)
	if !ok {
		return nil, errView(NameTableURL, v)
	}
	if name != nameTable || c.Type == Router {
		return nil, errName(NameTableURL, name)
	}
	t := nameBook{class: c, taken: map[netip.Addr]string{}, entries: map[string]*nameEntry{}}
	t.add(n)
	return t.encode(), nil
}

// nameEntry is a NameInfo.
type nameEntry struct {
	host      string
	addrs     []netip.Addr
	native    bool   // defined by Kubernetes
	short     string // short name and namespace, of native ones
	namespace string
	own       bool // it is the proxy's own member's
}

// nameBook collects the table of one class.
type nameBook struct {
	class   Class
	taken   map[netip.Addr]string // addresses that mean something in the proxy's own member, and what
	entries map[string]*nameEntry
}

func (t *nameBook) add(v *pushcontext.NamesView) {
	var all, remote []*pushcontext.ServiceView
	r := t.class.reader()
	for host, h := range v.Hosts() {
		if s := h.Resolve(r); s != nil && host != "*" && s.Shape.Resolution != model.DynamicDNS {
			all = append(all, s)
		}
	}
	slices.SortFunc(all, func(a, b *pushcontext.ServiceView) int { return cmp.Compare(a.Shape.Key.Host, b.Shape.Key.Host) })
	for _, s := range all {
		switch _, own := memberFor(s.Shape, t.class.Cluster); {
		case s.Shape.Resolution == model.Passthrough && s.Shape.Native:
			t.headless(s)
		case s.Shape.Resolution == model.Passthrough: // a ServiceEntry that leaves the address as it is
		case own:
			t.virtual(s.Shape, true)
		default:
			remote = append(remote, s)
		}
	}
	for _, s := range remote {
		t.virtual(s.Shape, false)
	}
}

// virtual adds a service with virtual addresses. Those of another member count only if they mean nothing
// else here, since members may reuse ranges.
func (t *nameBook) virtual(s *pushcontext.ShapeView, own bool) {
	member, _ := memberFor(s, t.class.Cluster)
	e := entryOf(s)
	for _, p := range s.Addresses[member] {
		if !single(p) {
			continue
		}
		a := p.Addr()
		by, taken := t.taken[a]
		switch {
		case own && !taken:
			t.taken[a] = s.Key.Host
		case !own && taken && by != s.Key.Host:
			return
		}
		if t.class.speaks(a) && !slices.Contains(e.addrs, a) {
			e.addrs = append(e.addrs, a)
		}
	}
	t.put(e)
}

func entryOf(s *pushcontext.ShapeView) *nameEntry {
	e := &nameEntry{host: s.Key.Host, native: s.Native}
	if s.Native && kubeNamed(s) {
		e.short, e.namespace = s.Name, s.Key.Namespace
	}
	return e
}

// kubeNamed reports whether the agent may shorten the service's name: it may not for a name that is the same in
// all clusters, whose short forms mean the cluster's own service.
func kubeNamed(s *pushcontext.ShapeView) bool {
	return shortNames(s.Key.Host, s.Mesh.DomainSuffix) != (kubeName{})
}

// headless adds a Service by the addresses of its endpoints, and each pod that has a host name of its own.
func (t *nameBook) headless(s *pushcontext.ServiceView) {
	whole := entryOf(s.Shape)
	for _, p := range s.Endpoints {
		for _, l := range p.Localities {
			for _, e := range l.Endpoints {
				if !t.reached(s.Shape, e) {
					continue
				}
				a := e.Addr.AddrPort.Addr().Unmap()
				if !slices.Contains(whole.addrs, a) {
					whole.addrs = append(whole.addrs, a)
				}
				t.pod(whole, e, a)
			}
		}
	}
	slices.SortFunc(whole.addrs, netip.Addr.Compare)
	t.put(whole)
}

// reached reports whether a headless service's name stands for an endpoint: what is dialed is its own address,
// so it must be healthy, unless the service says otherwise, and in the proxy's network.
func (t *nameBook) reached(s *pushcontext.ShapeView, e *model.Endpoint) bool {
	a := e.Addr.AddrPort.Addr()
	switch {
	case e.Addr.Host != "" || !a.IsValid() || a.IsUnspecified() || a.Zone() != "" || !t.class.speaks(a):
		return false
	case e.Health != model.Healthy && !s.PublishNotReady || e.Health == model.Terminating:
		return false
	case s.Key.Cluster != "" && e.Addr.Cluster != t.class.Cluster:
		return false
	}
	return e.Network == "" || t.class.Network == "" || e.Network == t.class.Network
}

// pod adds "<host name of the pod>.<service>". Of pods of one name in several members, that of the proxy's own
// counts, or else the first.
func (t *nameBook) pod(service *nameEntry, e *model.Endpoint, a netip.Addr) {
	if e.Hostname == "" {
		return
	}
	host, own := e.Hostname+"."+service.host, e.Addr.Cluster == t.class.Cluster
	old := t.entries[host]
	switch {
	case old == nil, own && !old.own:
		n := &nameEntry{host: host, addrs: []netip.Addr{a}, native: true, namespace: service.namespace, own: own}
		if service.short != "" {
			n.short = e.Hostname + "." + service.short
		}
		t.entries[host] = n
	case own == old.own && !slices.Contains(old.addrs, a) && own: // its other address family
		old.addrs = append(old.addrs, a)
	}
}

func (t *nameBook) put(e *nameEntry) {
	if len(e.addrs) > 0 {
		t.entries[e.host] = e
	}
}

// Field numbers of NameTable, of an entry of its map, and of NameInfo.
const (
	namesTable                                          protowire.Number = 1
	entryKey, entryValue                                protowire.Number = 1, 2
	infoIPs, infoRegistry, infoShortname, infoNamespace protowire.Number = 1, 2, 3, 4
)

// encode writes the message: entries by host, so that equal tables are equal bytes.
func (t *nameBook) encode() []byte {
	hosts := make([]string, 0, len(t.entries))
	for h := range t.entries {
		hosts = append(hosts, h)
	}
	slices.Sort(hosts)
	var out, entry, info []byte
	for _, h := range hosts {
		info = t.entries[h].encode(info[:0])
		entry = protowire.AppendTag(entry[:0], entryKey, protowire.BytesType)
		entry = protowire.AppendString(entry, h)
		entry = protowire.AppendTag(entry, entryValue, protowire.BytesType)
		entry = protowire.AppendBytes(entry, info)
		out = protowire.AppendTag(out, namesTable, protowire.BytesType)
		out = protowire.AppendBytes(out, entry)
	}
	return out
}

func (e *nameEntry) encode(b []byte) []byte {
	field := func(n protowire.Number, s string) {
		if s != "" {
			b = protowire.AppendTag(b, n, protowire.BytesType)
			b = protowire.AppendString(b, s)
		}
	}
	for _, a := range e.addrs {
		field(infoIPs, a.String())
	}
	registry := "External"
	if e.native {
		registry = "Kubernetes"
	}
	field(infoRegistry, registry)
	field(infoShortname, e.short)
	field(infoNamespace, e.namespace)
	return b
}
