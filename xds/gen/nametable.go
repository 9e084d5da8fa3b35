package gen

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"sync"

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
	return (&nameBook{class: c}).encode(n), nil
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
	class Class
	pods  map[string]*nameEntry // of one service
}

// sortedHosts gives the hosts of all services in order, worked out once for all classes.
func sortedHosts(v *pushcontext.NamesView) []*pushcontext.HostView {
	return v.Derived().Do(pushcontext.MemoKey{Generator: memoNames}, func() any {
		var out []*pushcontext.HostView
		for host, h := range v.Hosts() {
			if host != "*" {
				out = append(out, h)
			}
		}
		slices.SortFunc(out, func(a, b *pushcontext.HostView) int { return cmp.Compare(a.Host, b.Host) })
		return out
	}).([]*pushcontext.HostView)
}

// encode writes the message, service by service in the order of their hosts, so that equal tables are equal
// bytes.
func (t *nameBook) encode(v *pushcontext.NamesView) []byte {
	var out []byte
	r := t.class.reader()
	var all []*pushcontext.ServiceView
	foreign := false
	for _, h := range sortedHosts(v) {
		s := h.Resolve(r)
		if s == nil || s.Shape.Resolution == model.DynamicDNS || s.Shape.Resolution == model.Passthrough && !s.Shape.Native {
			continue // these leave addresses as they are
		}
		_, own := memberFor(s.Shape, t.class.Cluster)
		foreign = foreign || !own
		all = append(all, s)
	}
	var taken map[netip.Addr]struct{} // addresses that mean something in the proxy's own member
	if foreign {
		taken = t.ownAddresses(all)
	}
	for _, s := range all {
		if s.Shape.Resolution == model.Passthrough {
			out = t.headless(out, s)
		} else {
			out = t.virtual(out, s.Shape, taken)
		}
	}
	return out
}

func (t *nameBook) ownAddresses(all []*pushcontext.ServiceView) map[netip.Addr]struct{} {
	out := map[netip.Addr]struct{}{}
	for _, s := range all {
		if member, own := memberFor(s.Shape, t.class.Cluster); own {
			for _, p := range s.Shape.Addresses[member] {
				out[p.Addr()] = struct{}{}
			}
		}
	}
	return out
}

// virtual adds a service with virtual addresses. Those of another member count only if they mean nothing else
// in the proxy's own, since members may reuse ranges.
func (t *nameBook) virtual(b []byte, s *pushcontext.ShapeView, taken map[netip.Addr]struct{}) []byte {
	member, own := memberFor(s, t.class.Cluster)
	if !own {
		for _, p := range s.Addresses[member] {
			if _, ok := taken[p.Addr()]; ok && single(p) {
				return b
			}
		}
	}
	return append(b, encodedName(s, nameKey{member, t.class.speaks(netip.IPv4Unspecified()), t.class.speaks(netip.IPv6Unspecified())})...)
}

// nameKey is what the entry of a service with virtual addresses depends on beside the service.
type nameKey struct {
	member model.ClusterID
	v4, v6 bool
}

// nameCache keeps the encoded entries of one service.
type nameCache struct {
	mu    sync.Mutex
	bytes map[nameKey][]byte // guarded by mu
}

// encodedName gives the entry of a service, nothing if it has no address.
func encodedName(s *pushcontext.ShapeView, k nameKey) []byte {
	c := s.Derived().Do(pushcontext.MemoKey{Generator: memoNames}, func() any { return &nameCache{bytes: map[nameKey][]byte{}} }).(*nameCache)
	c.mu.Lock()
	defer c.mu.Unlock()
	b, ok := c.bytes[k]
	if ok {
		return b
	}
	e := entryOf(s)
	for _, p := range s.Addresses[k.member] {
		if a := p.Addr(); single(p) && (a.Is4() && k.v4 || a.Is6() && k.v6) && !slices.Contains(e.addrs, a) {
			e.addrs = append(e.addrs, a)
		}
	}
	b = e.encode(nil)
	c.bytes[k] = b
	return b
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
func (t *nameBook) headless(b []byte, s *pushcontext.ServiceView) []byte {
	whole := entryOf(s.Shape)
	t.pods = map[string]*nameEntry{}
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
	b = whole.encode(b)
	for _, host := range slices.Sorted(maps.Keys(t.pods)) {
		b = t.pods[host].encode(b)
	}
	return b
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
	old := t.pods[host]
	switch {
	case old == nil, own && !old.own:
		n := &nameEntry{host: host, addrs: []netip.Addr{a}, native: true, namespace: service.namespace, own: own}
		if service.short != "" {
			n.short = e.Hostname + "." + service.short
		}
		t.pods[host] = n
	case own == old.own && !slices.Contains(old.addrs, a) && own: // its other address family
		old.addrs = append(old.addrs, a)
	}
}

// Field numbers of NameTable, of an entry of its map, and of NameInfo.
const (
	namesTable                                          protowire.Number = 1
	entryKey, entryValue                                protowire.Number = 1, 2
	infoIPs, infoRegistry, infoShortname, infoNamespace protowire.Number = 1, 2, 3, 4
)

// encode appends the entry as a field of the table, nothing if it has no address.
func (e *nameEntry) encode(b []byte) []byte {
	if len(e.addrs) == 0 {
		return b
	}
	var info []byte
	for _, a := range e.addrs {
		info = appendText(info, infoIPs, a.String())
	}
	registry := "External"
	if e.native {
		registry = "Kubernetes"
	}
	info = appendText(info, infoRegistry, registry)
	info = appendText(info, infoShortname, e.short)
	info = appendText(info, infoNamespace, e.namespace)
	entry := appendText(nil, entryKey, e.host)
	entry = protowire.AppendBytes(protowire.AppendTag(entry, entryValue, protowire.BytesType), info)
	return protowire.AppendBytes(protowire.AppendTag(b, namesTable, protowire.BytesType), entry)
}

func appendText(b []byte, n protowire.Number, s string) []byte {
	if s == "" {
		return b
	}
	return protowire.AppendString(protowire.AppendTag(b, n, protowire.BytesType), s)
}
