package gen

import (
	"net/netip"
	"slices"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/pushcontext"
)

// Ingress listeners of a Sidecar say which ports of the workload are served, in the place of those that services end at.
// Intercepted connections to them enter by virtualInbound; without interception each is a listener of its own.

// ingressPrefix starts the names of such listeners, which tells them from those for services.
const ingressPrefix = "inbound_"

// ownListener reports whether an ingress listener is bound to its port.
func ownListener(c Class, l *networking.IstioIngressListener) bool {
	return !c.intercepts() || l.CaptureMode == networking.CaptureMode_NONE
}

// ingressBind is where an ingress listener is: on all addresses, unless it says otherwise.
func ingressBind(c Class, l *networking.IstioIngressListener) (netip.Addr, bool) {
	if l.Bind == "" {
		if c.Bind.IsLoopback() {
			return c.Bind, true
		}
		return c.wildcard(), true
	}
	a, err := netip.ParseAddr(l.Bind)
	return a.Unmap(), err == nil && a.Zone() == "" && c.speaks(a)
}

func ingressName(c Class, l *networking.IstioIngressListener) (string, bool) {
	bind, ok := ingressBind(c, l)
	return ingressPrefix + listenerName(bind, uint16(l.Port.Number)), ok
}

// ingressListeners are the names of those that are bound.
func ingressListeners(v *pushcontext.TargetsView, c Class) (names []string) {
	for _, l := range ingressOf(c) {
		if name, ok := ingressName(c, l); ok && ownListener(c, l) && !reserved(v.Mesh, uint16(l.Port.Number)) {
			names = append(names, name)
		}
	}
	return names
}

// ingressAt reports whether one of these is at an address: Envoy refuses another there.
func ingressAt(m *pushcontext.MeshView, c Class, bind netip.Addr, port uint16) bool {
	return slices.ContainsFunc(ingressOf(c), func(l *networking.IstioIngressListener) bool {
		at, ok := ingressBind(c, l)
		return ok && uint16(l.Port.Number) == port && ownListener(c, l) && !reserved(m, port) && c.meet(at, bind)
	})
}

// meet reports whether listeners at two addresses have one in common: all of IPv4 is all of both families where the proxy has
// both.
func (c Class) meet(a, b netip.Addr) bool {
	return a == b || c.IPv4 && c.IPv6 && a.IsUnspecified() && b.IsUnspecified()
}

// ingressListener makes one of these, nil if there is none of the name.
func ingressListener(v *pushcontext.TargetsView, c Class, name string) *listenerv3.Listener {
	for _, l := range ingressOf(c) {
		if n, ok := ingressName(c, l); !ok || n != name || !ownListener(c, l) || reserved(v.Mesh, uint16(l.Port.Number)) {
			continue
		}
		bind, _ := ingressBind(c, l)
		b := &listenerBuilder{class: c, mesh: v.Mesh, bind: bind, port: uint16(l.Port.Number), direction: inbound}
		out := b.listener(name)
		out.BindToPort, out.TrafficDirection = nil, corev3.TrafficDirection_INBOUND
		out.AdditionalAddresses = otherFamily(c, bind, b.port)
		p := ingressPort(v, l)
		e := portEntry(p, v.Mesh)
		e.match = &listenerv3.FilterChainMatch{}
		out.FilterChains = b.inboundChains(e)
		told := slices.ContainsFunc(out.FilterChains, func(f *listenerv3.FilterChain) bool { return f.FilterChainMatch.TransportProtocol != "" })
		b.inspect(out, told, told && p.protocol.Sniffed())
		return out
	}
	return nil
}

// servedInbound are the ports that connections to the workload may be for.
func servedInbound(v *pushcontext.TargetsView, c Class) []inboundPort {
	list := ingressOf(c)
	if len(list) == 0 {
		return inboundPorts(v)
	}
	var out []inboundPort
	for _, l := range list {
		if !ownListener(c, l) {
			out = append(out, ingressPort(v, l))
		}
	}
	return out
}

// ingressPort is the port of an ingress listener. What services end there say whether mutual TLS is demanded.
func ingressPort(v *pushcontext.TargetsView, l *networking.IstioIngressListener) inboundPort {
	p, served := inboundPortOf(v, uint16(l.Port.Number))
	if !served {
		p.mtls = otherMTLS(v)
	}
	if p.protocol = portProtocol(l.Port.Protocol); p.protocol == model.ProtocolUDP {
		p.protocol = model.ProtocolTCP
	}
	if l.Tls == nil || l.Tls.Mode == networking.ServerTLSSettings_PASSTHROUGH || l.Tls.Mode == networking.ServerTLSSettings_AUTO_PASSTHROUGH {
		return p
	}
	switch p.tls = l.Tls; p.protocol { // what there is once TLS has ended
	case model.ProtocolHTTPS:
		p.protocol = model.ProtocolHTTP
	case model.ProtocolTLS:
		p.protocol = model.ProtocolTCP
	}
	return p
}

// ownTLS are the chains of an entry for clients of outside the mesh, which speak TLS as its settings say. They are in the
// place of those for cleartext and for other TLS.
func (b *listenerBuilder) ownTLS(e entry) []*listenerv3.FilterChain {
	if withoutFiles(e.tls, b.class) != "" {
		return []*listenerv3.FilterChain{b.tcp(e.name, e.match, blackHoleCluster)}
	}
	end := func(chain *listenerv3.FilterChain, http bool) *listenerv3.FilterChain {
		chain.TransportSocket = b.serverSocket(e.tls, http)
		return chain
	}
	if e.protocol.IsHTTP() {
		return []*listenerv3.FilterChain{end(b.inlineHTTP(e.name, e.match, e.protocol, e.table), true)}
	}
	return []*listenerv3.FilterChain{end(b.tcp(e.name, e.match, e.cluster), false)} // what TLS hides can't be detected
}

// isIngress reports whether a name is one of an ingress listener.
func isIngress(name string) bool {
	plain, ok := strings.CutPrefix(name, ingressPrefix)
	if ok {
		_, _, ok = parseListener(plain)
	}
	return ok
}
