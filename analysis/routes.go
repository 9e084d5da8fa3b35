package analysis

import (
	"fmt"
	"slices"
	"strings"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/pushcontext"
)

func (a *analysis) virtualServices() {
	gates := map[string][]*pushcontext.GatewayServer{}
	if a.pc.Gateways != nil {
		for _, g := range a.pc.Gateways.Servers {
			gates[g.Name()] = append(gates[g.Name()], g)
		}
	}
	for _, v := range a.pc.VirtualServices {
		a.destinations(v)
		a.bound(v, gates)
		a.unclaimed(v)
	}
}

// unclaimed tells of hosts that no service has.
func (a *analysis) unclaimed(v *pushcontext.VirtualService) {
	if !v.Bound(pushcontext.MeshGateway) || len(v.Spec.GetHttp()) == 0 {
		return
	}
	for _, h := range v.Hosts {
		if !strings.HasPrefix(h, "*") && a.host(h) == nil {
			a.add(v.Source, model.Finding{Code: CodeUnclaimed, Severity: model.SeverityInfo, Field: "hosts",
				Message: fmt.Sprintf("no service has the host %s: sidecars serve it at port %d, and at the ports of other services that the VirtualService is for; add a ServiceEntry to give it ports", h, pushcontext.RoutedPort)})
		}
	}
}

// destination is one place to which a VirtualService sends.
type destination struct {
	field string
	to    *networking.Destination
}

func destinationsOf(s *networking.VirtualService) (out []destination) {
	for i, h := range s.Http {
		for j, d := range h.Route {
			out = append(out, destination{fmt.Sprintf("http[%d].route[%d].destination", i, j), d.Destination})
		}
		if h.Mirror != nil {
			out = append(out, destination{fmt.Sprintf("http[%d].mirror", i), h.Mirror})
		}
		for j, m := range h.Mirrors {
			out = append(out, destination{fmt.Sprintf("http[%d].mirrors[%d].destination", i, j), m.Destination})
		}
	}
	for i, t := range s.Tls {
		for j, d := range t.Route {
			out = append(out, destination{fmt.Sprintf("tls[%d].route[%d].destination", i, j), d.Destination})
		}
	}
	for i, t := range s.Tcp {
		for j, d := range t.Route {
			out = append(out, destination{fmt.Sprintf("tcp[%d].route[%d].destination", i, j), d.Destination})
		}
	}
	return out
}

// destinations tells of places that are not there: requests to them fail. A VirtualService that took the routes of
// delegates in has these at places of its own, so fields are those of the VirtualService as proxies see it.
func (a *analysis) destinations(v *pushcontext.VirtualService) {
	for _, d := range destinationsOf(v.Spec) {
		tell := func(code, format string, args ...any) {
			a.add(v.Source, model.Finding{Code: code, Severity: model.SeverityError, Field: d.field, Message: fmt.Sprintf(format, args...)})
		}
		host := d.to.GetHost()
		h := a.pc.Host(host)
		if h == nil {
			tell(CodeUnknownHost, "no service has the host %s: requests to it fail with 503; mend the name, or add a Service or ServiceEntry", host)
			continue
		}
		visible := slices.DeleteFunc(slices.Clone(h.Services), func(s *pushcontext.ServiceView) bool { return !s.Shape.Export.Includes(v.Namespace) })
		if len(visible) == 0 {
			tell(CodeNotExported, "the service %s is not exported to the namespace %s, whose requests to it fail with 503: add that to its exportTo", host, v.Namespace)
			continue
		}
		if where := unseen(v, visible); where != "" {
			a.add(v.Source, model.Finding{Code: CodeNotExported, Severity: model.SeverityWarning, Field: d.field,
				Message: fmt.Sprintf("the VirtualService is exported to %s, the service %s is not: requests from there fail with 503; add it to the service's exportTo, or limit that of the VirtualService", where, host)})
		}
		if n := uint16(d.to.GetPort().GetNumber()); n != 0 && !slices.ContainsFunc(visible, func(s *pushcontext.ServiceView) bool { _, ok := s.Shape.PortNumbered(n); return ok }) {
			tell(CodeUnknownPort, "the service %s has no port %d; its ports are %s", host, n, portsText(visible[0].Shape))
		}
		if name := d.to.GetSubset(); name != "" && !slices.ContainsFunc(visible, func(s *pushcontext.ServiceView) bool { return hasSubset(s.Shape, name) }) {
			tell(CodeUnknownSubset, "no DestinationRule for %s has a subset %s: requests to it fail with 503; add it there", host, name)
		}
	}
}

// unseen gives namespaces whose sidecars follow a VirtualService and see none of the services; "" for none.
func unseen(v *pushcontext.VirtualService, services []*pushcontext.ServiceView) string {
	sees := func(namespace string) bool {
		return slices.ContainsFunc(services, func(s *pushcontext.ServiceView) bool { return s.Shape.Export.Includes(namespace) })
	}
	switch public := func(s *pushcontext.ServiceView) bool { return s.Shape.Export.Public }; {
	case !v.Bound(pushcontext.MeshGateway), slices.ContainsFunc(services, public):
		return ""
	case v.Export.Public:
		return "all namespaces"
	}
	return strings.Join(slices.DeleteFunc(slices.Clone(v.Export.Namespaces), sees), ", ")
}

func portsText(s *pushcontext.ShapeView) string {
	var out []string
	for _, p := range s.Ports {
		out = append(out, fmt.Sprint(p.Number))
	}
	return strings.Join(out, ", ")
}

func hasSubset(s *pushcontext.ShapeView, name string) bool {
	return slices.ContainsFunc(s.Policies, func(p *pushcontext.DestinationPolicy) bool {
		return slices.ContainsFunc(p.Spec.Subsets, func(x *networking.Subset) bool { return x.GetName() == name })
	})
}

// bound tells of gateways that are not there, and of hosts that these do not serve.
func (a *analysis) bound(v *pushcontext.VirtualService, gates map[string][]*pushcontext.GatewayServer) {
	for _, name := range v.Gateways {
		if name == pushcontext.MeshGateway {
			continue
		}
		servers, there := gates[name]
		if !there {
			a.add(v.Source, model.Finding{Code: CodeUnknownGate, Severity: model.SeverityError, Field: "gateways",
				Message: fmt.Sprintf("there is no Gateway %s: mend the name, or add it", name)})
			continue
		}
		for _, host := range v.Hosts {
			if !slices.ContainsFunc(servers, func(g *pushcontext.GatewayServer) bool { return serves(g, v.Namespace, host) }) {
				a.add(v.Source, model.Finding{Code: CodeHostNotThere, Severity: model.SeverityWarning, Field: "hosts",
					Message: fmt.Sprintf("no server of the Gateway %s is for %s: add it to the hosts of a server, and see that it admits the namespace %s", name, host, v.Namespace)})
			}
		}
	}
}

func serves(g *pushcontext.GatewayServer, namespace, host string) bool {
	return slices.ContainsFunc(g.Hosts, func(h pushcontext.GatewayHost) bool {
		return (h.Namespace == "*" || h.Namespace == namespace) && (pushcontext.HostMatches(h.Host, host) || pushcontext.HostMatches(host, h.Host))
	})
}
