package gen

import (
	"slices"
	"strings"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/pushcontext"
)

// Routers that a Gateway with an AUTO_PASSTHROUGH server selects forward mutual TLS of other networks by
// its server name, which is the name of a cluster: bytes pass as they are, and identities are those of
// the workloads at both ends. Such a cluster holds endpoints that the router dials itself, never another
// gateway: so what came in by a gateway can't leave by one, and no connection goes in circles.

// Selecting says which of the mesh's AUTO_PASSTHROUGH servers select a router with the labels: bit i
// stands for server i.
func Selecting(m *pushcontext.MeshView, router model.Labels) (servers uint64) {
	for i, s := range m.AutoPassthrough {
		if i < pushcontext.MaxAutoPassthrough && (len(s.Selector) == 0 || router.Matches(s.Selector)) {
			servers |= 1 << i
		}
	}
	return servers
}

// passthroughTraits tell routers that forward a service from others.
func passthroughTraits(s *pushcontext.ShapeView) Traits {
	if len(s.Mesh.AutoPassthrough) == 0 || !forwardable(s) {
		return 0
	}
	return TraitPassthrough
}

// forwardable reports whether other networks may be let in to a service: it is of the mesh and for all
// of it, and a server name can stand for it. Server names are read in lower case.
func forwardable(s *pushcontext.ShapeView) bool {
	host := s.Key.Host
	return !s.External && s.Key.Cluster == "" && s.Resolution != model.DynamicDNS &&
		!strings.Contains(host, "*") && host == strings.ToLower(host) && len(passthroughName(65535, "", host)) <= maxServerName
}

// forwarded reports whether routers of the class forward to the service.
func forwarded(s *pushcontext.ShapeView, c Class) bool {
	if c.Passthrough == 0 || !forwardable(s) {
		return false
	}
	m := s.Mesh
	for i := range m.AutoPassthrough {
		a := &m.AutoPassthrough[i]
		if i < pushcontext.MaxAutoPassthrough && c.Passthrough&(1<<i) != 0 && a.Port != 0 && !reserved(m, a.Port) && admits(a, s.Key) {
			return true
		}
	}
	return false
}

// admits reports whether one of the server's hosts, "<host>" or "<namespace>/<host>", covers the service.
func admits(a *pushcontext.AutoPassthrough, k model.ServiceKey) bool {
	return slices.ContainsFunc(a.Hosts, func(h string) bool {
		namespace, host := splitHost(h)
		if namespace == "." {
			namespace = a.Namespace
		}
		if namespace != "*" && namespace != k.Namespace {
			return false
		}
		suffix, wild := strings.CutPrefix(host, "*")
		return host == k.Host || wild && strings.HasSuffix(k.Host, suffix)
	})
}

func splitHost(h string) (namespace, host string) {
	if namespace, host, ok := strings.Cut(h, "/"); ok {
		return namespace, strings.ToLower(host)
	}
	return "*", strings.ToLower(h)
}

// forwardingTraits tell routers that forward on a port from others.
func forwardingTraits(m *pushcontext.MeshView) Traits {
	if len(m.AutoPassthrough) == 0 {
		return 0
	}
	return TraitPassthrough | TraitGatewayPorts
}

// forwards reports whether routers of the class forward on the port: then services have no listener there, as two at one
// address would be refused.
func (c Class) forwards(m *pushcontext.MeshView, port uint16) bool {
	for i, a := range m.AutoPassthrough {
		if c.Type == Router && (i >= pushcontext.MaxAutoPassthrough || c.Passthrough&(1<<i) != 0) && len(a.Hosts) > 0 && c.targetPort(a.Port) == port {
			return true
		}
	}
	return false
}

func passthroughNames(s *pushcontext.ShapeView, c Class) []string {
	if !forwarded(s, c) {
		return nil
	}
	var names []string
	for _, d := range destinationsOf(s, c) {
		if d.forwardable() {
			names = append(names, d.serverName())
		}
	}
	return names
}

// forwardable reports whether a server name can stand for the subset, given that one can for the service.
func (d destination) forwardable() bool {
	name := d.serverName()
	return len(name) <= maxServerName && d.subset() == strings.ToLower(d.subset())
}

// forwardedNamed gives what routers of the class forward to by a server name.
func forwardedNamed(s *pushcontext.ShapeView, c Class, name string) (destination, bool) {
	d, ok := destinationNamed(s, c, name)
	return d, ok && forwarded(s, c) && d.forwardable()
}

func forwardingCluster(s *pushcontext.ShapeView, c Class, name string) *draft {
	d, ok := forwardedNamed(s, c, name)
	if !ok {
		return nil
	}
	out := baseCluster(s.Mesh, name)
	out.Metadata = d.metadata()
	if s.Resolution.IsDNS() {
		sel, _ := selectForwarded(inlineCandidates(d), c)
		dnsCluster(out, s, sel, c)
	} else {
		edsCluster(out)
	}
	applyTraffic(out, d, c)
	return out
}

// pushedPassthroughNames are the names of assignments: names that the router resolves itself are in the
// cluster.
func pushedPassthroughNames(s *pushcontext.ShapeView, c Class) []string {
	if s.Resolution.IsDNS() {
		return nil
	}
	return passthroughNames(s, c)
}

// passthroughAssignment holds the endpoints that a router forwards to.
func passthroughAssignment(v *pushcontext.ServiceView, c Class, name string) ([]byte, error) {
	d, ok := forwardedNamed(v.Shape, c, name)
	if !ok || v.Shape.Resolution.IsDNS() {
		return nil, errName(EndpointURL, name)
	}
	sel, _ := selectForwarded(candidatesOf(v, d), c)
	return marshal(assignment(name, sel))
}

// ExplainPassthrough is [ExplainEndpoints] of what a router forwards to for other networks; nil if it
// does not forward to the service.
func ExplainPassthrough(v *pushcontext.ServiceView, c Class, port model.Port) []Verdict {
	if !forwarded(v.Shape, c) {
		return nil
	}
	sel, refused := selectForwarded(candidatesOf(v, destinationOf(v.Shape, port, c)), c)
	return append(sel.verdicts, refused...)
}

// selectForwarded selects among the endpoints that take mutual TLS and are dialled by the router itself.
func selectForwarded(in candidates, c Class) (sel selection, refused []Verdict) {
	all := in.localities
	in.localities = nil
	for _, l := range all {
		var kept []*model.Endpoint
		for _, e := range l.Endpoints {
			if reason, detail := unforwardable(in, c, e); reason != "" {
				refused = append(refused, Verdict{Endpoint: e, Reason: reason, Detail: detail})
			} else {
				kept = append(kept, e)
			}
		}
		if len(kept) > 0 {
			in.localities = append(in.localities, pushcontext.LocalityEndpoints{Locality: l.Locality, Endpoints: kept})
		}
	}
	c.ClientTLS = TLSFiles{Chain: "-", Key: "-", Root: "-"} // the callers' own secure the connections
	return selectEndpoints(in, c), refused
}

// unforwardable says why a router does not forward to the endpoint. A DestinationRule that demands mutual
// TLS has the word, as it has for those who call.
func unforwardable(in candidates, c Class, e *model.Endpoint) (model.Reason, string) {
	m := in.shape.Mesh
	switch {
	case !speaksMutual(e) && in.secured() != tlsMutual:
		return model.ReasonNoMTLS, "a gateway forwards mutual TLS only"
	case e.Network != "" && e.Network != c.Network && m.HasGateway(e.Network):
		return model.ReasonOtherNetwork, "a gateway forwards to endpoints that it dials itself; network " + e.Network + " has gateways of its own"
	case isGateway(in, e):
		return model.ReasonOtherNetwork, "it is a gateway itself: connections would go in circles"
	}
	return "", ""
}

// isGateway reports whether an endpoint is itself where networks are entered: by a known gateway's
// address, or by a workload that an AUTO_PASSTHROUGH server selects on its port.
func isGateway(in candidates, e *model.Endpoint) bool {
	at := e.Addr.AddrPort
	for _, n := range in.networks {
		if slices.ContainsFunc(n.Gateways, func(g pushcontext.Gateway) bool { return g.Addr == at }) {
			return true
		}
	}
	return slices.ContainsFunc(in.shape.Mesh.AutoPassthrough, func(a pushcontext.AutoPassthrough) bool {
		return a.Port == at.Port() && (len(a.Selector) == 0 || e.Labels.Matches(a.Selector))
	})
}
