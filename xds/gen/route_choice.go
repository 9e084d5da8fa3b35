package gen

import (
	"iter"
	"slices"
	"strings"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/isthmus-mesh/isthmus/pushcontext"
)

// virtualServiceFor gives the VirtualService in force for HTTP requests of a class to a service at a port: the first that the
// namespace may use and the Sidecar imports there. Of several with the very host, those that say nothing of such requests
// leave them to the next, as with Istio. Nil if there is none.
func virtualServiceFor(s *pushcontext.ShapeView, c Class, port uint16) (first *pushcontext.VirtualService) {
	several := len(s.VirtualServices) > 1 && !strings.HasPrefix(s.Key.Host, "*")
	for _, v := range s.VirtualServices {
		if !v.Export.Includes(c.Namespace) || !importsRoute(c.Scope, v, port) {
			continue
		}
		if first == nil {
			first = v
		}
		if !several || !slices.Contains(v.Hosts, strings.ToLower(s.Key.Host)) {
			break
		}
		if routeKeyOf(v, c).applies(port) {
			return v
		}
	}
	return first
}

// importsRoute reports whether an egress listener for the port imports a VirtualService.
func importsRoute(s *pushcontext.Scope, v *pushcontext.VirtualService, port uint16) bool {
	return s == nil || s.Sidecar == nil || anyEgress(s.Sidecar, port, func(e *pushcontext.Egress) bool { return e.AdmitsRoute(v) })
}

// importedAt reports whether a service that is imported is so at a port: where a Sidecar names the service, a listener
// for the port does, if there is one. A service to which only routes lead is imported at the ports that they send to.
func importedAt(s *pushcontext.Scope, shape *pushcontext.ShapeView, port uint16) bool {
	if s == nil || s.Sidecar == nil {
		return true
	}
	return anyEgress(s.Sidecar, port, func(e *pushcontext.Egress) bool { return e.Admits(shape) }) ||
		s.LeadsTo(shape, port) && !slices.ContainsFunc(s.Sidecar.Egress, func(e pushcontext.Egress) bool { return e.Admits(shape) })
}

// anyEgress reports whether something holds for an egress listener that decides about a port.
func anyEgress(s *pushcontext.Sidecar, port uint16, holds func(*pushcontext.Egress) bool) bool {
	for e := range egressOf(s, port) {
		if holds(e) {
			return true
		}
	}
	return false
}

// egressOf are the egress listeners of a Sidecar that decide about a port: those for this port, else those for all.
func egressOf(s *pushcontext.Sidecar, port uint16) iter.Seq[*pushcontext.Egress] {
	own := slices.ContainsFunc(s.Egress, func(e pushcontext.Egress) bool { return e.Port.GetNumber() == uint32(port) })
	return func(yield func(*pushcontext.Egress) bool) {
		for i := range s.Egress {
			e := &s.Egress[i]
			if (own && e.Port.GetNumber() == uint32(port) || !own && e.Port == nil) && !yield(e) {
				return
			}
		}
	}
}

// egressAt is egressOf as a list.
func egressAt(s *pushcontext.Sidecar, port uint16) (out []pushcontext.Egress) {
	for e := range egressOf(s, port) {
		out = append(out, *e)
	}
	return out
}

// egressHTTP are the egress listeners for a port that say that they are for HTTP.
func egressHTTP(s *pushcontext.Scope, port uint16) []pushcontext.Egress {
	if s == nil || s.Sidecar == nil {
		return nil
	}
	return slices.DeleteFunc(egressAt(s.Sidecar, port), func(e pushcontext.Egress) bool {
		return e.Port == nil || !portProtocol(e.Port.Protocol).IsHTTP()
	})
}

// unknownTraffic gives the cluster for what is for no service known to a proxy, as its Sidecar has it, else the
// mesh; false if it is refused.
func unknownTraffic(c Class, m *pushcontext.MeshView) (cluster string, ok bool) {
	p := sidecarPolicy(c.Scope)
	switch {
	case p == nil:
		return passthroughCluster, allowAny(m)
	case p.Mode == networking.OutboundTrafficPolicy_REGISTRY_ONLY:
		return "", false
	case p.EgressProxy.GetHost() != "":
		x := routeContext{}
		return x.cluster(p.EgressProxy), true
	}
	return passthroughCluster, true
}

func sidecarPolicy(s *pushcontext.Scope) *networking.OutboundTrafficPolicy {
	if s == nil || s.Sidecar == nil {
		return nil
	}
	return s.Sidecar.Spec.GetOutboundTrafficPolicy()
}

// routeKey is what the HTTP routes of a service or host depend on beside itself and the port.
type routeKey struct {
	service   *pushcontext.VirtualService // in force; nil if there is none
	namespace string                      // of the proxy, if the VirtualService looks at it
	labels    Labels                      // of the proxy, those that the VirtualService looks at
	rule      *pushcontext.DestinationPolicy
}

// routesFor gives what decides about a service's routes for a class. The DestinationRule does if it may choose
// endpoints by a hash.
func routesFor(s *pushcontext.ShapeView, c Class, port uint16) routeKey {
	var k routeKey
	if c.Type == Sidecar {
		k = routeKeyOf(virtualServiceFor(s, c, port), c)
	}
	if len(s.Policies) > 0 && scopeOf(s).hashes {
		k.rule = inForce(s, c)
	}
	return k
}

// routeKeyOf reduces a class to what the routes of a VirtualService, which may be nil, depend on.
func routeKeyOf(v *pushcontext.VirtualService, c Class) routeKey {
	k := routeKey{service: v}
	if v == nil {
		return k
	}
	from := sourcesOf(v)
	if k.labels = c.Labels.Only(from.labels); from.namespace {
		k.namespace = c.Namespace
	}
	return k
}

// context is where the routes of sidecars are.
func (k routeKey) context(port uint16, m *pushcontext.MeshView) *routeContext {
	return &routeContext{gateway: pushcontext.MeshGateway, port: port, namespace: k.namespace, labels: k.labels, mesh: m}
}

// applies reports whether the VirtualService says anything about requests at the port.
func (k routeKey) applies(port uint16) bool {
	return k.service != nil && k.context(port, nil).rulesFor(k.service)
}

// routes are those of the VirtualService; false if it says nothing about requests at the port.
func (k routeKey) routes(port uint16, m *pushcontext.MeshView) (list []*routev3.Route, applies bool) {
	if k.service == nil {
		return nil, false
	}
	return httpRoutes(k.service, k.context(port, m))
}
