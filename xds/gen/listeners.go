package gen

import (
	"maps"
	"net/netip"
	"slices"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/pushcontext"
)

// Listeners makes LDS resources. A sidecar with interception has one listener for all HTTP hosts of
// a port, one for each address of a service that is not plain HTTP, and the two virtual ones that
// intercepted connections enter by; without interception it has one on its loopback address for each
// port. So has a router on every address, if it is told to expose services; else it listens only where
// AUTO_PASSTHROUGH servers tell it to forward.
type Listeners struct{}

// TypeURL implements Generator.
func (Listeners) TypeURL() string { return ListenerURL }

// Kinds implements Generator.
func (Listeners) Kinds() []pushcontext.ViewKind {
	return []pushcontext.ViewKind{pushcontext.ViewPort, pushcontext.ViewTargets, pushcontext.ViewGateways, pushcontext.ViewMesh}
}

// Key implements Generator.
func (Listeners) Key(name string) (pushcontext.ViewKey, bool) {
	switch name {
	case virtualOutbound:
		return pushcontext.ViewKey{Kind: pushcontext.ViewMesh}, true
	case virtualInbound:
		return pushcontext.ViewKey{Kind: pushcontext.ViewTargets}, true
	}
	if isIngress(name) {
		return pushcontext.ViewKey{Kind: pushcontext.ViewTargets}, true
	}
	if isHTTPProxy(name) {
		return pushcontext.ViewKey{Kind: pushcontext.ViewMesh}, true
	}
	if strings.HasPrefix(name, gatewayListenerPrefix) {
		return pushcontext.ViewKey{Kind: pushcontext.ViewGateways}, true
	}
	_, port, ok := parseListener(name)
	return pushcontext.ViewKey{Kind: pushcontext.ViewPort, Port: port}, ok
}

// Traits implements Generator.
func (Listeners) Traits(v pushcontext.View) Traits {
	switch v := v.(type) {
	case *pushcontext.PortView:
		s := summaryOf(v)
		t := s.traits() | portStreams(v).traits() | TraitExtensions | forwardingTraits(v.Mesh)
		if s.http {
			t |= spanTraits(v.Mesh)
		}
		if s.direct {
			t |= TraitIP | TraitNetworkView
			if v.Mesh.MultiNetwork() {
				t |= TraitNetwork
			}
		}
		return t
	case *pushcontext.TargetsView:
		return TraitType | TraitInterception | TraitFamilies | TraitExtensions | TraitTLS | TraitScope | spanTraits(v.Mesh)
	case *pushcontext.MeshView:
		return TraitType | TraitInterception | TraitFamilies | TraitExtensions | TraitScope | spanTraits(v)
	case *pushcontext.GatewaysView:
		return planTraits | TraitExtensions | TraitScope | spanTraits(v.Mesh)
	}
	return 0
}

// Names implements Generator.
func (Listeners) Names(v pushcontext.View, c Class) []string {
	switch v := v.(type) {
	case *pushcontext.PortView:
		return portListeners(v, c)
	case *pushcontext.TargetsView:
		names := ingressListeners(v, c)
		if c.intercepts() {
			return append(names, virtualInbound)
		}
		return names
	case *pushcontext.MeshView:
		names := httpProxyListeners(v, c)
		if c.intercepts() {
			names = append(names, virtualOutbound)
		}
		return names
	case *pushcontext.GatewaysView:
		return routerPlanOf(v, c).listenerNames()
	}
	return nil
}

// portListeners are the names of those for the services of a port, at addresses that the Sidecar's own listeners and HTTP proxies
// leave.
func portListeners(v *pushcontext.PortView, c Class) []string {
	return slices.DeleteFunc(allPortListeners(v, c), func(name string) bool {
		bind, _, _ := parseListener(name)
		return ingressAt(v.Mesh, c, bind, v.Number) || httpProxyAt(v.Mesh, c, bind, v.Number)
	})
}

func allPortListeners(v *pushcontext.PortView, c Class) []string {
	p := planOf(v, c)
	if len(p.sites) > 0 {
		return siteListeners(p, v)
	}
	if !c.intercepts() {
		if p.wildcardNeeded() && !reserved(v.Mesh, v.Number) && !c.forwards(v.Mesh, v.Number) {
			return []string{listenerName(c.bind(), v.Number)}
		}
		return nil
	}
	var names []string
	if p.wildcardNeeded() && !reserved(v.Mesh, v.Number) {
		names = append(names, listenerName(c.wildcard(), v.Number))
	}
	for _, a := range p.addrs {
		names = append(names, listenerName(a, v.Number))
	}
	for _, a := range slices.SortedFunc(maps.Keys(p.endpointAddrs(c, v.Mesh)), netip.Addr.Compare) {
		if a != c.IP { // a workload that calls itself is not proxied
			names = append(names, listenerName(a, v.Number))
		}
	}
	return names
}

func siteListeners(p *portPlan, v *pushcontext.PortView) (names []string) {
	for i := range p.sites {
		if s := &p.sites[i]; !s.empty() && !reserved(v.Mesh, v.Number) {
			names = append(names, listenerName(s.bind, v.Number))
		}
	}
	return names
}

// reserved reports whether a port on all addresses belongs to the proxy itself: its two virtual
// listeners, merged metrics, health and its own metrics.
func reserved(m *pushcontext.MeshView, port uint16) bool {
	switch port {
	case outboundListenPort(m), inboundListenPort(m), 15020, 15021, 15090:
		return true
	}
	return false
}

// Build implements Generator.
func (Listeners) Build(v pushcontext.View, c Class, name string) ([]byte, error) {
	var out *listenerv3.Listener
	switch v := v.(type) {
	case *pushcontext.PortView:
		return portListener(v, c, name)
	case *pushcontext.TargetsView:
		switch {
		case name == virtualInbound && c.intercepts():
			out = inboundListener(v, c)
		case isIngress(name):
			out = ingressListener(v, c, name)
		}
	case *pushcontext.MeshView:
		switch {
		case name == virtualOutbound && c.intercepts():
			out = outboundListener(v, c)
		case isHTTPProxy(name):
			out = httpProxyListener(v, c, name)
		}
	case *pushcontext.GatewaysView:
		return gatewayListenerOf(v, c, name)
	default:
		return nil, errView(ListenerURL, v)
	}
	if out == nil {
		return nil, errName(ListenerURL, name)
	}
	return marshal(out)
}

func portListener(v *pushcontext.PortView, c Class, name string) ([]byte, error) {
	bind, port, ok := parseListener(name)
	if !ok || port != v.Number || ingressAt(v.Mesh, c, bind, port) || httpProxyAt(v.Mesh, c, bind, port) {
		return nil, errName(ListenerURL, name)
	}
	b := &listenerBuilder{class: c, mesh: v.Mesh, bind: bind, port: port}
	p := planOf(v, c)
	if p.grpcWeb {
		b.protocol = model.ProtocolGRPCWeb
	}
	if s := p.site(bind); s != nil && !reserved(v.Mesh, port) {
		return marshal(b.onSite(s))
	}
	all := p.wildcardNeeded() && !reserved(v.Mesh, port)
	switch {
	case all && !c.intercepts() && bind == c.bind() && !c.forwards(v.Mesh, port):
		return marshal(b.whole(p))
	case all && c.intercepts() && bind == c.wildcard():
		return marshal(b.wildcard(p))
	}
	if s := p.at(bind, c, v.Mesh); s != nil {
		k := partKey{port: port, bind: bind, class: streamSources(s.shape).narrow(c, partTraits), protocol: b.protocol}
		return part(s.shape, k, func() ([]byte, error) { return marshal(b.address(s)) })
	}
	return nil, errName(ListenerURL, name)
}

// at gives the service that has a listener of its own on the address, nil if none has.
func (p *portPlan) at(a netip.Addr, c Class, m *pushcontext.MeshView) *placed {
	if n, ok := p.byAddr[a]; ok {
		return &p.services[n]
	}
	if n, ok := p.endpointAddrs(c, m)[a]; ok && a != c.IP {
		return &p.services[n]
	}
	return nil
}

// outboundListener is where intercepted connections of the workload enter. They go on to the listener
// of their original destination; those without one are passed through or refused, as the mesh says.
func outboundListener(m *pushcontext.MeshView, c Class) *listenerv3.Listener {
	b := &listenerBuilder{class: c, mesh: m, bind: c.wildcard(), port: outboundListenPort(m)}
	l := b.listener(virtualOutbound)
	l.BindToPort, l.UseOriginalDst, l.Transparent = nil, yes(), transparent(c)
	l.AdditionalAddresses = otherFamily(c, b.bind, b.port)
	l.FilterChains = []*listenerv3.FilterChain{
		b.tcp("virtualOutbound-blackhole", toPort(b.port), blackHoleCluster),
		b.tcp("virtualOutbound-catchall-tcp", nil, b.unknown()),
	}
	l.TrafficDirection = corev3.TrafficDirection_OUTBOUND
	balanced(l, c.Tuning.BalanceOutbound)
	return l
}

func transparent(c Class) *wrapperBool {
	if c.Interception == InterceptTProxy {
		return yes()
	}
	return nil
}

// otherFamily is the second address of a listener on all addresses of a proxy that has both families.
func otherFamily(c Class, bind netip.Addr, port uint16) []*listenerv3.AdditionalAddress {
	if bind != netip.IPv4Unspecified() || !c.IPv4 || !c.IPv6 {
		return nil
	}
	return []*listenerv3.AdditionalAddress{{Address: socketAddress("::", port)}}
}

func toPort(port uint16) *listenerv3.FilterChainMatch {
	return &listenerv3.FilterChainMatch{DestinationPort: u32(uint32(port))}
}
