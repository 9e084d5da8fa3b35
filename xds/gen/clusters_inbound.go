package gen

import (
	"cmp"
	"net/netip"
	"strings"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	meshconfig "istio.io/api/mesh/v1alpha1"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/pushcontext"
)

// Inbound clusters lead to the proxy's own workload. With a Sidecar that has ingress listeners there is one for each
// of these, else one for each port that the workload's services end at.

// inboundTraits: the proxy's address counts where an ingress listener leads to it.
const inboundTraits = TraitType | TraitInterception | TraitFamilies | TraitScope | TraitIP

// narrowInbound drops the address where none leads to it.
func narrowInbound(c Class) Class {
	for _, l := range ingressOf(c) {
		if e, ok := parseDefaultEndpoint(l.GetDefaultEndpoint()); ok && e.instance {
			return c
		}
	}
	c.IP = netip.Addr{}
	return c
}

// sidecarOf is the Sidecar in force for a class, nil if there is none.
func sidecarOf(c Class) *networking.Sidecar {
	if c.Scope == nil || c.Scope.Sidecar == nil {
		return nil
	}
	return c.Scope.Sidecar.Spec
}

// ingressOf are the ingress listeners that have clusters, each port once.
func ingressOf(c Class) []*networking.IstioIngressListener {
	if c.Type != Sidecar {
		return nil
	}
	var out []*networking.IstioIngressListener
	seen := map[uint32]bool{}
	for _, l := range sidecarOf(c).GetIngress() {
		if n := l.GetPort().GetNumber(); n > 0 && n <= 65535 && !seen[n] {
			seen[n] = true
			out = append(out, l)
		}
	}
	return out
}

func inboundNames(v *pushcontext.TargetsView, c Class) []string {
	var names []string
	if list := ingressOf(c); len(list) > 0 {
		for _, l := range list {
			names = append(names, inboundName(uint16(l.Port.Number)))
		}
		return names
	}
	if !c.intercepts() {
		return nil
	}
	for _, p := range inboundPorts(v) {
		names = append(names, inboundName(p.number))
	}
	return names
}

func inboundCluster(v *pushcontext.TargetsView, c Class, name string) *draft {
	number, ok := parseInbound(name)
	if !ok {
		return nil
	}
	if list := ingressOf(c); len(list) > 0 {
		for _, l := range list {
			if l.Port.Number == uint32(number) {
				return ingressCluster(v, c, l)
			}
		}
		return nil
	}
	if p, ok := inboundPortOf(v, number); ok && c.intercepts() {
		out := inboundBase(v.Mesh, c, p)
		if v.Mesh.Config.GetInboundTrafficPolicy().GetMode() == meshconfig.MeshConfig_InboundTrafficPolicy_LOCALHOST {
			staticCluster(out, defaultEndpoint{loopback: loopback4, port: number}.address(c))
		} else {
			originalDst(out)
			out.UpstreamBindConfig = inboundBind(c)
		}
		applyInboundProtocol(out, p.protocol)
		applyPool(out, v.Mesh, inboundPool(c, p, nil))
		return out
	}
	return nil
}

func inboundPortOf(v *pushcontext.TargetsView, number uint16) (inboundPort, bool) {
	for _, p := range inboundPorts(v) {
		if p.number == number {
			return p, true
		}
	}
	return inboundPort{number: number}, false
}

// inboundBase names the services behind a port, which may be none.
func inboundBase(m *pushcontext.MeshView, c Class, p inboundPort) *draft {
	out := baseCluster(m, inboundName(p.number))
	ref := statRef{port: p.number, target: p.number}
	if len(p.targets) > 0 {
		t := p.targets[0]
		ref = statRef{t.Host, t.Name, t.Namespace, t.PortName, "", t.Port, p.number}
		out.Metadata = serviceMetadata(p.services()...)
	} else if s := c.Scope.Sidecar.Source.Object; s.Name != "" { // a port that no service ends at is the Sidecar's own
		ref.host, ref.name, ref.namespace = s.Name+"."+s.Namespace, s.Name, s.Namespace
	}
	out.AltStatName = statName(m.Config.GetInboundClusterStatName(), ref)
	return out
}

// ingressCluster leads where an ingress listener says. Without original destination and without a default endpoint
// there is nowhere to go: the port would lead to itself.
func ingressCluster(v *pushcontext.TargetsView, c Class, l *networking.IstioIngressListener) *draft {
	p, _ := inboundPortOf(v, uint16(l.Port.Number))
	out := inboundBase(v.Mesh, c, p)
	e, ok := parseDefaultEndpoint(l.DefaultEndpoint)
	switch {
	case ok:
		staticCluster(out, e.address(c))
		if e.instance {
			out.UpstreamBindConfig = inboundBind(c)
		}
	case l.DefaultEndpoint == "" && c.intercepts():
		originalDst(out)
		out.UpstreamBindConfig = inboundBind(c)
	default:
		unreachable(out)
	}
	applyInboundProtocol(out, portProtocol(l.Port.Protocol))
	applyPool(out, v.Mesh, inboundPool(c, p, l))
	return out
}

// inboundPool limits what callers may ask of the workload together: as the ingress listener says, else the Sidecar, else
// the first service's rule.
func inboundPool(c Class, p inboundPort, l *networking.IstioIngressListener) *networking.ConnectionPoolSettings {
	pool := cmp.Or(l.GetConnectionPool(), sidecarOf(c).GetInboundConnectionPool())
	if pool == nil && len(p.targets) > 0 {
		pool = p.targets[0].Pool
	}
	return pool
}

func staticCluster(out *draft, a *corev3.Address) {
	out.ClusterDiscoveryType = &clusterv3.Cluster_Type{Type: clusterv3.Cluster_STATIC}
	out.LoadAssignment = &endpointv3.ClusterLoadAssignment{ClusterName: out.Name, Endpoints: []*endpointv3.LocalityLbEndpoints{{
		LbEndpoints: []*endpointv3.LbEndpoint{{HostIdentifier: &endpointv3.LbEndpoint_Endpoint{Endpoint: &endpointv3.Endpoint{Address: a}}}}}}}
}

// defaultEndpoint is where an ingress listener leads.
type defaultEndpoint struct {
	socket   string     // path of a unix socket
	loopback netip.Addr // of the family that is preferred
	instance bool       // the proxy's own address, of that family if it has one
	port     uint16
}

// parseDefaultEndpoint reads "127.0.0.1:PORT", "[::1]:PORT", "0.0.0.0:PORT", "[::]:PORT" or "unix:///PATH".
func parseDefaultEndpoint(s string) (defaultEndpoint, bool) {
	if path, ok := strings.CutPrefix(s, "unix://"); ok {
		return defaultEndpoint{socket: path}, path != "" && len(path) <= maxSocketPath
	}
	at, err := netip.ParseAddrPort(s)
	if err != nil || at.Port() == 0 {
		return defaultEndpoint{}, false
	}
	out := defaultEndpoint{loopback: at.Addr(), port: at.Port()}
	switch at.Addr() {
	case loopback4, loopback6:
	case netip.IPv4Unspecified():
		out.loopback, out.instance = loopback4, true
	case netip.IPv6Unspecified():
		out.loopback, out.instance = loopback6, true
	default:
		return defaultEndpoint{}, false
	}
	return out, true
}

var (
	loopback4 = netip.AddrFrom4([4]byte{127, 0, 0, 1})
	loopback6 = netip.IPv6Loopback()
)

// address is where a proxy of the class connects to: of the wanted family, if it has that.
func (e defaultEndpoint) address(c Class) *corev3.Address {
	to := e.loopback
	switch {
	case e.socket != "":
		return address(model.Addr{Host: "unix://" + e.socket})
	case e.instance && c.IP.IsValid() && c.IP.Unmap().Is4() == to.Is4():
		to = c.IP.Unmap()
	case !c.speaks(to) && to.Is4():
		to = loopback6
	case !c.speaks(to):
		to = loopback4
	}
	return socketAddress(to.String(), e.port)
}
