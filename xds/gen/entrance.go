package gen

import (
	"math"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/pushcontext"
)

// spread is where the endpoints of a service are.
type spread struct {
	families bool // of both address families, behind one port
	networks bool // on some network
	gateways bool // on one that is entered through gateways
	several  bool // dialled at other addresses from other networks
}

func spreadOf(v *pushcontext.ServiceView) spread {
	return v.Derived().Do(pushcontext.MemoKey{Generator: memoSpread},
		func() any { return spreadAmong(v.Endpoints, v.Shape.Mesh) }).(spread)
}

// inlineSpread is spreadOf for the endpoints that are part of the definition.
func inlineSpread(s *pushcontext.ShapeView) spread {
	return s.Derived().Do(pushcontext.MemoKey{Generator: memoSpread},
		func() any { return spreadAmong(s.Inline, s.Mesh) }).(spread)
}

func spreadAmong(ports []pushcontext.PortEndpoints, mesh *pushcontext.MeshView) spread {
	var out spread
	for _, p := range ports {
		out.families = out.families || mixed(p.Localities)
		for _, l := range p.Localities {
			for _, e := range l.Endpoints {
				out.networks = out.networks || e.Network != ""
				out.several = out.several || e.Alternatives != nil
				out.gateways = out.gateways || e.Network != "" && mesh.HasGateway(e.Network)
			}
		}
	}
	return out
}

// traits are those that decide which of the endpoints a proxy can reach, and how.
func (x spread) traits() (t Traits) {
	if x.families {
		t |= TraitFamilies
	}
	if x.networks {
		t |= TraitNetworkView
	}
	if x.several {
		t |= TraitNetwork | TraitFamilies
	}
	if x.gateways {
		t |= TraitNetwork | TraitFamilies | TraitTLS
	}
	return t
}

// entrance is how a proxy enters another network to reach the endpoints of a member there.
type entrance struct {
	gateways []pushcontext.Gateway
	reason   model.Reason // why there are none
	detail   string
}

type entranceKey struct {
	network string
	cluster model.ClusterID
}

// gateways are those that lead to an endpoint of another network. A gateway routes by the server name
// of a mutual TLS connection, and knows nothing of its endpoints' health.
func (s *selector) gateways(e *model.Endpoint) ([]pushcontext.Gateway, model.Reason, string) {
	if s.shape.Resolution == model.Passthrough && s.class.intercepts() {
		return nil, model.ReasonNoGateway, "connections to the service go where the application sends them, which is never a gateway"
	}
	if why := s.plaintext(e); why != "" {
		return nil, model.ReasonNoMTLS, "network " + e.Network + " is entered through gateways, which route mutual TLS only: " + why
	}
	switch e.Health {
	case model.Unhealthy:
		return nil, model.ReasonUnready, "it would add weight to a gateway that cannot tell it is unready"
	case model.Draining:
		return nil, model.ReasonDraining, "it would add weight to a gateway that cannot tell it is draining"
	}
	k := entranceKey{e.Network, e.Addr.Cluster}
	in, known := s.entrances[k]
	if !known {
		in = s.entrance(k)
		s.entrances[k] = in
	}
	return in.gateways, in.reason, in.detail
}

// plaintext says why the proxy does not speak mutual TLS with the endpoint, "" if it does. A
// DestinationRule has the word, then what the endpoint speaks.
func (s *selector) plaintext(e *model.Endpoint) string {
	switch {
	case s.tls == tlsOff || s.tls == tlsOwn:
		return s.cleartext()
	case s.tls == tlsAuto && e.TLSMode != model.TLSIstio:
		return "its workload does not speak it (label security.istio.io/tlsMode)"
	case s.tls == tlsAuto && !speaksMutual(e):
		return demander(e) + " sets mode DISABLE for its port"
	case !s.class.ClientTLS.Complete():
		return noCertificate
	}
	return ""
}

// demander names who demands what of connections to an endpoint.
func demander(e *model.Endpoint) string {
	if s := e.MTLSSource; s != nil {
		return "PeerAuthentication " + s.Object.Namespace + "/" + s.Object.Name
	}
	return "a PeerAuthentication"
}

const noCertificate = "the proxy has no certificate for it (isthmus bootstrap --cert-chain --key --root-cert, or node metadata TLS_CLIENT_CERT_CHAIN, TLS_CLIENT_KEY, TLS_CLIENT_ROOT_CERT)"

// cleartext says why no connection to the service is one of mutual TLS.
func (s *selector) cleartext() string {
	switch t := s.rule.tls; {
	case t != nil:
		return nameOf(s.policy.rule) + " sets TLS mode " + t.GetMode().String()
	case s.shape.External:
		return "the service is outside of the mesh"
	}
	return "the mesh's enableAutoMtls is off"
}

// entrance finds the gateways that the proxy can dial: those of the member if it has any in the network.
// A proxy that resolves the service's names resolves those of gateways too.
func (s *selector) entrance(k entranceKey) entrance {
	all := s.networks.NetworkGateways(k.network, k.cluster, s.shape.Resolution.IsDNS())
	if len(all) == 0 {
		return entrance{reason: model.ReasonNoGateway, detail: "no gateway of network " + k.network + " has a usable address"}
	}
	var usable []pushcontext.Gateway
	for _, g := range all {
		if s.dials(g) {
			usable = append(usable, g)
		}
	}
	if len(usable) == 0 {
		return entrance{reason: model.ReasonIPFamily, detail: "no gateway of network " + k.network + " has an address of the proxy's family"}
	}
	return entrance{gateways: usable}
}

// dials reports whether a gateway has an address of the proxy's families, or may have.
func (s *selector) dials(g pushcontext.Gateway) bool {
	return !g.Addr.IsValid() || s.class.speaks(g.Addr.Addr())
}

// gatewayAddr is where a gateway is dialled.
func gatewayAddr(g pushcontext.Gateway) model.Addr {
	if g.Addr.IsValid() {
		return model.Addr{AddrPort: g.Addr}
	}
	return model.Addr{AddrPort: g.Addr, Host: g.Host}
}

// weightScale makes every endpoint's weight divisible by the number of gateways that it may be split
// over: the least common multiple of how many gateways the proxy can dial in each network that the
// service is on, and how many of each member there. Endpoints that are dialled directly are scaled too.
func (s *selector) weightScale() uint64 {
	counts := map[entranceKey]uint64{}
	named := s.shape.Resolution.IsDNS()
	for _, n := range s.networks {
		for _, g := range n.Gateways {
			if !g.Usable(named) || !s.dials(g) {
				continue
			}
			counts[entranceKey{network: n.Name}]++
			if g.Cluster != "" {
				counts[entranceKey{n.Name, g.Cluster}]++
			}
		}
	}
	scale := uint64(1)
	for _, n := range counts {
		scale = min(scale/gcd(scale, n)*n, math.MaxUint32)
	}
	return scale
}

func gcd(a, b uint64) uint64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}
