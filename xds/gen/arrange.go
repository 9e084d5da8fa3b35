package gen

import (
	"iter"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/pushcontext"
)

// Numbers of the values that generators derive from views for themselves (see pushcontext.MemoKey).
// They are clear of those under which finished resources are kept.
const (
	memoSummary  uint8 = 200 + iota // on a PortView: *portSummary
	memoPlans                       // on a PortView: *planCache
	memoHosts                       // on a ShapeView: *hostCache
	memoParts                       // on a ShapeView: *partCache
	memoSpread                      // on a ServiceView and a ShapeView: spread
	memoTwins                       // on a ServiceView and a ShapeView: bool
	memoScope                       // on a ShapeView: scope
	memoVirtual                     // on a PortView: *hostParts
	memoNames                       // on a NamesView: []*HostView, on a ShapeView: *nameCache
	memoSubsets                     // on a ServiceView and a ShapeView: subsets
	memoSources                     // on a VirtualService: *sources
	memoRouting                     // on a PortView: *portRouting
	memoForeign                     // on a VirtualService: *unclaimedCache
	memoStreams                     // on a ShapeView and a PortView: *sources
	memoBeside                      // on a PortView: []*VirtualService
	memoNumbered                    // on a PortsView: *allPorts
	memoProxied                     // on a PortView: *proxiedCache
)

// portSummary is what decides the class traits of a port's resources.
type portSummary struct {
	shared    bool     // several services claim one host
	private   bool     // some service is not for every namespace
	local     bool     // some service is known to one member only
	addressed bool     // some service has addresses of one member
	direct    bool     // some service is reached by its endpoints' own addresses
	short     bool     // some host has short names
	plain     bool     // every service is plain HTTP
	http      bool     // some service may be HTTP, or hosts are there without a service
	grpcWeb   bool     // some service speaks gRPC-Web
	addrs     *addrSet // of all services, in all members
}

func summaryOf(v *pushcontext.PortView) *portSummary {
	return v.Derived().Do(pushcontext.MemoKey{Generator: memoSummary}, func() any { return summarise(v) }).(*portSummary)
}

func summarise(v *pushcontext.PortView) *portSummary {
	out := &portSummary{plain: true, http: len(v.Services) == 0 || len(v.Routes) > 0, shared: len(v.Claims) > 0}
	for _, rivals := range v.Claims {
		for _, s := range rivals {
			out.scope(s)
		}
	}
	addrs := 0
	for _, s := range v.Services {
		out.scope(s)
		out.addressed = out.addressed || len(s.Addresses) > 0 && !s.MeshAddresses
		out.direct = out.direct || len(s.Inline) > 0 && s.Resolution == model.Passthrough
		known := hostsOf(s)
		addrs += len(known.addrs)
		out.short = out.short || known.name != (kubeName{})
		p, ok := servedPort(s, v.Number)
		out.plain = out.plain && (!ok || p.Protocol.IsHTTP())
		out.http = out.http || !ok || p.Protocol.IsHTTP() || p.Protocol.Sniffed()
		out.grpcWeb = out.grpcWeb || ok && p.Protocol == model.ProtocolGRPCWeb
	}
	out.addrs = newAddrSet(addrs)
	for _, s := range v.Services {
		for _, a := range hostsOf(s).addrs {
			out.addrs.add(a)
		}
	}
	return out
}

// scope notes to whom a service means anything.
func (p *portSummary) scope(s *pushcontext.ShapeView) {
	p.private = p.private || !s.Export.Public
	p.local = p.local || s.Key.Cluster != ""
}

// addressesOf are all addresses that may mean the service to some proxy.
func addressesOf(s *pushcontext.ShapeView) []netip.Addr {
	var out []netip.Addr
	for _, list := range s.Addresses {
		for _, x := range list {
			if single(x) && !slices.Contains(out, x.Addr()) {
				out = append(out, x.Addr())
			}
		}
	}
	if x, ok := literal(s); ok && !slices.Contains(out, x) {
		out = append(out, x)
	}
	return out
}

// literal gives the address that a service has as its host name.
func literal(s *pushcontext.ShapeView) (netip.Addr, bool) {
	host := s.Key.Host
	if host == "" || host[0] < '0' || host[0] > '9' {
		return netip.Addr{}, false // as no address begins
	}
	x, err := netip.ParseAddr(strings.TrimSuffix(host, "."))
	return x, err == nil
}

// traits are those that decide which services a proxy sees, and at which addresses.
func (p *portSummary) traits() Traits {
	t := TraitType | TraitInterception | TraitFamilies | TraitScope
	if p.private || p.shared {
		t |= TraitNamespace
	}
	if p.local || p.addressed {
		t |= TraitCluster
	}
	return t
}

// placed is a service on one port as a class of proxies sees it.
type placed struct {
	shape     *pushcontext.ShapeView
	port      model.Port
	member    model.ClusterID // whose addresses hold for the proxy
	addresses []netip.Prefix
	hidden    bool // addresses of another member that mean something else to the proxy
}

// arrangement is what a class of proxies sees on one port.
type arrangement struct {
	services []placed           // oldest first
	addrs    *addrSet           // of all services, visible or not
	claims   map[netip.Addr]int // which service a contested address means
}

// arrange picks the visible services of a port, one for each host, and gives each address to one.
func arrange(v *pushcontext.PortView, c Class) *arrangement {
	a := &arrangement{services: make([]placed, 0, len(v.Services)), addrs: summaryOf(v).addrs, claims: map[netip.Addr]int{}}
	for s, p := range visible(v, c) {
		a.services = append(a.services, placed{shape: s, port: p})
	}
	a.claim(c)
	return a
}

// visible yields the services that a class of proxies sees on a port, oldest first, one for each host.
func visible(v *pushcontext.PortView, c Class) iter.Seq2[*pushcontext.ShapeView, model.Port] {
	return func(yield func(*pushcontext.ShapeView, model.Port) bool) {
		r := c.reader()
		winners := winnersOf(v, r)
		for _, s := range v.Services {
			if !r.Sees(s) || !importedAt(c.Scope, s, v.Number) {
				continue
			}
			if len(winners) > 0 {
				if w, shared := winners[s.Key.Host]; shared && w != s {
					continue
				}
			}
			if p, ok := servedPort(s, v.Number); ok && !yield(s, p) {
				return
			}
		}
	}
}

// reader is how a class looks at views.
func (c Class) reader() *pushcontext.Reader {
	return &pushcontext.Reader{Cluster: c.Cluster, Namespace: c.Namespace, Scope: c.Scope}
}

// winnersOf gives the service that each contested host means to the class, whatever its ports:
// clusters and endpoints are those of the same one.
func winnersOf(v *pushcontext.PortView, r *pushcontext.Reader) map[string]*pushcontext.ShapeView {
	if len(v.Claims) == 0 {
		return nil
	}
	out := make(map[string]*pushcontext.ShapeView, len(v.Claims))
	for host := range v.Claims {
		out[host] = v.Means(host, r)
	}
	return out
}

// claim gives addresses to services: those that hold in the proxy's own member first, in order. An
// address of another member is used only if it is free here, since members may reuse ranges.
func (a *arrangement) claim(c Class) {
	var remote []int
	for i := range a.services {
		p := &a.services[i]
		if x, ok := literal(p.shape); ok {
			a.give(x, i)
		}
		if p.shape.AutoAddresses && !c.CapturesDNS {
			continue
		}
		own := false
		p.member, own = memberFor(p.shape, c.Cluster)
		p.addresses = p.shape.Addresses[p.member]
		if !own {
			remote = append(remote, i)
			continue
		}
		a.take(i)
	}
	for _, i := range remote {
		p := &a.services[i]
		if slices.ContainsFunc(p.addresses, a.taken) {
			p.addresses, p.hidden = nil, true
			continue
		}
		a.take(i)
	}
}

func (a *arrangement) take(i int) {
	for _, x := range a.services[i].addresses {
		if single(x) {
			a.give(x.Addr(), i)
		}
	}
}

func (a *arrangement) give(x netip.Addr, i int) {
	if !a.addrs.contested(x) {
		return
	}
	if _, taken := a.claims[x]; !taken {
		a.claims[x] = i
	}
}

func (a *arrangement) taken(x netip.Prefix) bool {
	if !a.addrs.contested(x.Addr()) {
		return false
	}
	_, taken := a.claims[x.Addr()]
	return taken
}

// owns reports whether an address of service i means that service.
func (a *arrangement) owns(i int, x netip.Addr) bool {
	return !a.addrs.contested(x) || a.claims[x] == i
}

// memberFor gives the member whose addresses of the service a proxy uses, and whether they hold where
// the proxy is: its own member's, else those of the definition in force, else of the first by name.
func memberFor(s *pushcontext.ShapeView, cluster model.ClusterID) (member model.ClusterID, own bool) {
	if len(s.Addresses[cluster]) > 0 || len(s.Addresses) == 0 {
		return cluster, true
	}
	for _, x := range s.Contributions {
		if m := x.Source.Shard.Cluster; x.Won && len(s.Addresses[m]) > 0 {
			return m, s.MeshAddresses
		}
	}
	return slices.Min(slices.Collect(maps.Keys(s.Addresses))), s.MeshAddresses
}

// single reports whether the prefix is one address that can be listened on.
func single(p netip.Prefix) bool {
	return p.IsSingleIP() && !p.Addr().IsUnspecified()
}

// vips are the addresses that mean service i to the proxy, in its families.
func (a *arrangement) vips(i int, c Class) []netip.Addr {
	var out []netip.Addr
	for _, x := range a.services[i].addresses {
		if single(x) && a.owns(i, x.Addr()) && c.speaks(x.Addr()) {
			out = append(out, x.Addr())
		}
	}
	return out
}

// ranges are the service's address ranges in the proxy's families.
func (p *placed) ranges(c Class) []netip.Prefix {
	var out []netip.Prefix
	for _, x := range p.addresses {
		if !x.IsSingleIP() && x.IsValid() && c.speaks(x.Addr()) {
			out = append(out, x.Masked())
		}
	}
	return out
}

// addressless reports whether the service has no address in any member, or none that the proxy's workload learns of: then
// its port alone tells it apart.
func (p *placed) addressless() bool {
	if p.shape.AutoAddresses {
		return len(p.addresses) == 0
	}
	for _, list := range p.shape.Addresses {
		for _, x := range list {
			if !x.Addr().IsUnspecified() || !x.IsSingleIP() && x.Bits() > 0 {
				return false
			}
		}
	}
	return true
}

// headless reports whether the service is reached at its endpoints' own addresses.
func (p *placed) headless() bool {
	return p.shape.Native && p.shape.Resolution == model.Passthrough
}
