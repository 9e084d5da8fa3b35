package gen

import (
	"net/netip"
	"slices"
	"sync"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/pushcontext"
)

// portPlan says which listeners and route tables a class of proxies has for one port.
type portPlan struct {
	http     bool               // HTTP is routed by host
	wildHTTP bool               // on the wildcard listener, too
	grpcWeb  bool               // some of it is gRPC-Web
	byAddr   map[netip.Addr]int // services with a listener of their own
	addrs    []netip.Addr       // keys of byAddr, sorted
	wild     []int              // services told apart by port, range or server name, oldest first
	headless []int              // services with a listener for each endpoint
	byHost   map[string]int     // services whose protocol is detected, with a route table of their own
	hosts    []string           // keys of byHost, in order of age
	services []placed           // what the numbers refer to: services that are not plain HTTP
	ranges   [][]netip.Prefix   // address ranges, for each of services
	sites    []site             // listeners that the Sidecar asks for

	mu     sync.Mutex
	direct map[reach]map[netip.Addr]int // endpointAddrs, guarded by mu
}

// planCache keeps the plans of one PortView.
type planCache struct {
	mu    sync.Mutex
	plans map[Class]*portPlan // guarded by mu
}

// planOf gives the plan for a class. Finding one resource of thousands must not mean arranging
// thousands of services each time.
func planOf(v *pushcontext.PortView, c Class) *portPlan {
	c = c.Keep(summaryOf(v).traits())
	cache := v.Derived().Do(pushcontext.MemoKey{Generator: memoPlans},
		func() any { return &planCache{plans: map[Class]*portPlan{}} }).(*planCache)
	cache.mu.Lock()
	p := cache.plans[c]
	cache.mu.Unlock()
	if p != nil {
		return p
	}
	p = makePlan(v, c)
	cache.mu.Lock()
	cache.plans[c] = p
	cache.mu.Unlock()
	return p
}

func makePlan(v *pushcontext.PortView, c Class) *portPlan {
	p := &portPlan{byAddr: map[netip.Addr]int{}, byHost: map[string]int{}, direct: map[reach]map[netip.Addr]int{}}
	if c.silent() {
		return p
	}
	sum := summaryOf(v)
	for _, port := range visible(v, c) {
		p.http = p.http || port.Protocol.IsHTTP()
		p.grpcWeb = p.grpcWeb || port.Protocol == model.ProtocolGRPCWeb
		if p.http && p.grpcWeb == sum.grpcWeb {
			break
		}
	}
	if p.sites = sitesOf(c, v.Number); len(p.sites) > 0 {
		p.place(v, c)
		return p
	}
	if p.wildHTTP = p.http; sum.plain {
		return p
	}
	a := arrange(v, c)
	for i := range a.services {
		s := &a.services[i]
		protocol := s.port.Protocol
		switch {
		case protocol.IsHTTP(): // routed by host
		case s.shape.Alias != "" || silentPort(s.shape, s.port):
		case !c.intercepts():
			p.detect(protocol)
			p.wild = append(p.wild, p.add(s, nil))
		default:
			p.intercepted(s, a.vips(i, c), s.ranges(c))
		}
	}
	slices.SortFunc(p.addrs, netip.Addr.Compare)
	return p
}

// detect takes account of a service on the wildcard listener: what turns out to be HTTP is routed by host.
func (p *portPlan) detect(protocol model.Protocol) {
	if protocol.Sniffed() {
		p.http, p.wildHTTP = true, true
	}
}

func (p *portPlan) add(s *placed, ranges []netip.Prefix) int {
	p.services, p.ranges = append(p.services, *s), append(p.ranges, ranges)
	return len(p.services) - 1
}

// intercepted places a service that is told apart by original destination.
func (p *portPlan) intercepted(s *placed, vips []netip.Addr, ranges []netip.Prefix) {
	n := p.add(s, ranges)
	own := true
	switch {
	case len(vips)+len(ranges) > 0:
		for _, a := range vips {
			p.byAddr[a] = n
			p.addrs = append(p.addrs, a)
		}
		if len(ranges) > 0 {
			p.wild = append(p.wild, n)
		}
	case s.headless():
		p.headless = append(p.headless, n)
	case s.addressless() && !s.hidden:
		p.wild = append(p.wild, n)
		p.detect(s.port.Protocol)
		own = false
	default:
		return // its addresses mean another service here, or are of another family
	}
	if own && s.port.Protocol.Sniffed() {
		p.byHost[s.shape.Key.Host] = n
		p.hosts = append(p.hosts, s.shape.Key.Host)
	}
}

// endpointAddrs are the addresses of headless services that get a listener, and whose they are: those
// that can be reached directly and belong to no service already.
func (p *portPlan) endpointAddrs(c Class, mesh *pushcontext.MeshView) map[netip.Addr]int {
	if len(p.headless) == 0 {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	k := reach{c.Network, c.NetworkView}
	out, ok := p.direct[k]
	if !ok {
		out = p.directAddrs(c, mesh)
		p.direct[k] = out
	}
	return out
}

// reach says which networks a proxy is in and asks for.
type reach struct{ network, view string }

func (p *portPlan) directAddrs(c Class, mesh *pushcontext.MeshView) map[netip.Addr]int {
	out := map[netip.Addr]int{}
	for _, n := range p.headless {
		s := &p.services[n]
		for _, l := range inlineEndpoints(s.shape, s.port) {
			for _, e := range l.Endpoints {
				a := e.Addr.AddrPort.Addr()
				_, taken := p.byAddr[a]
				_, twice := out[a]
				if !taken && !twice && directly(e, s, c, mesh) {
					out[a] = n
				}
			}
		}
	}
	return out
}

func directly(e *model.Endpoint, s *placed, c Class, mesh *pushcontext.MeshView) bool {
	a := e.Addr.AddrPort.Addr()
	switch {
	case !a.IsValid() || a.IsUnspecified() || a.Zone() != "" || !c.speaks(a):
		return false
	case e.Health == model.Terminating || e.Health == model.Draining && !s.shape.Persistent:
		return false
	case s.shape.Key.Cluster != "" && e.Addr.Cluster != c.Cluster:
		return false
	case !c.asksFor(e.Network):
		return false
	}
	return e.Network == "" || e.Network == c.Network || !mesh.HasGateway(e.Network)
}

// wildcardNeeded reports whether the plan has a listener for all addresses of the port.
func (p *portPlan) wildcardNeeded() bool { return p.wildHTTP || len(p.wild) > 0 }
