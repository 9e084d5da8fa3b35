package gen

import (
	"net/netip"
	"slices"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/pushcontext"
)

// An egress listener of a Sidecar that has a port, a bind address or no capture is a listener of its own, for all services
// that it imports. At its port there are no others.

// site is such a listener at one port.
type site struct {
	egress   pushcontext.Egress
	bind     netip.Addr
	bound    bool // the application connects to it; else intercepted connections come to it by their destination
	http     bool // HTTP is routed by host
	services []placed
}

// sitesOf are those of the Sidecar in force at a port, each address once; none if services are served at their own
// addresses.
func sitesOf(c Class, port uint16) (out []site) {
	if c.Type != Sidecar || c.Scope == nil || c.Scope.Sidecar == nil {
		return nil
	}
	for _, e := range egressAt(c.Scope.Sidecar, port) {
		s := site{egress: e, bound: !c.intercepts() || e.Capture == networking.CaptureMode_NONE}
		if e.Port == nil && e.Bind == "" && s.bound == !c.intercepts() {
			continue
		}
		var ok bool
		if s.bind, ok = s.address(c); ok && !slices.ContainsFunc(out, func(o site) bool { return c.meet(o.bind, s.bind) }) {
			out = append(out, s)
		}
	}
	return out
}

// address is where the listener is; false if it is not an address that the proxy has.
func (s *site) address(c Class) (netip.Addr, bool) {
	switch {
	case s.egress.Bind != "":
		a, err := netip.ParseAddr(s.egress.Bind)
		return a.Unmap(), err == nil && a.Zone() == "" && c.speaks(a)
	case s.bound:
		return c.loopback(), true
	}
	return c.wildcard(), true
}

// place puts the services of a port into the sites that import them.
func (p *portPlan) place(v *pushcontext.PortView, c Class) {
	p.http = false
	for i := range p.sites {
		s := &p.sites[i]
		if s.proxies() {
			continue
		}
		if e := s.egress.Port; e != nil {
			protocol := portProtocol(e.Protocol)
			s.http = protocol.IsHTTP() || protocol.Sniffed()
		}
		for shape, port := range visible(v, c) {
			if s.egress.Admits(shape) {
				s.add(shape, port)
			}
		}
		p.http = p.http || s.http
	}
}

// add takes a service in. The listener's protocol, if it states one, is that of all services.
func (s *site) add(shape *pushcontext.ShapeView, port model.Port) {
	if e := s.egress.Port; e != nil {
		port.Protocol = portProtocol(e.Protocol)
	} else {
		s.http = s.http || port.Protocol.IsHTTP() || port.Protocol.Sniffed()
	}
	if !port.Protocol.IsHTTP() && shape.Alias == "" && !silentPort(shape, port) {
		s.services = append(s.services, placed{shape: shape, port: port})
	}
}

// empty reports whether the listener would serve nothing. An HTTP proxy is not made here.
func (s *site) empty() bool { return s.proxies() || !s.http && len(s.services) == 0 }

// site gives that of an address, nil if there is none.
func (p *portPlan) site(bind netip.Addr) *site {
	for i := range p.sites {
		if s := &p.sites[i]; s.bind == bind && !s.empty() {
			return s
		}
	}
	return nil
}

// onSite serves what the Sidecar imports there.
func (b *listenerBuilder) onSite(s *site) *listenerv3.Listener {
	l := b.listener(b.name())
	l.AdditionalAddresses = otherFamily(b.class, b.bind, b.port)
	rest := b.unknown()
	if s.bound {
		l.BindToPort, rest = nil, ""
	}
	var rules []chainRule
	for i := range s.services {
		rules = append(rules, b.rulesOf(&s.services[i], nil, true)...)
	}
	table := ""
	if s.http {
		table = sharedRoute(b.class, b.port)
	}
	b.fill(l, rules, table, rest)
	return l
}
