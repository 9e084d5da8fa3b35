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
		a.idle(v)
		a.matchedPorts(v, gates)
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
	idle  bool // it has no weight beside others, so nothing is sent there yet
}

// at is how bad it is that a destination can't be used: no request fails while none is sent there.
func (d destination) at(s model.Severity) model.Severity {
	if d.idle {
		return min(s, model.SeverityWarning)
	}
	return s
}

func destinationsOf(s *networking.VirtualService) (out []destination) {
	for i, h := range s.Http {
		for j, d := range h.Route {
			out = append(out, destination{fmt.Sprintf("http[%d].route[%d].destination", i, j), d.Destination, d.Weight == 0 && len(h.Route) > 1})
		}
		if h.Mirror != nil {
			out = append(out, destination{fmt.Sprintf("http[%d].mirror", i), h.Mirror, h.MirrorPercentage != nil && h.MirrorPercentage.Value == 0})
		}
		for j, m := range h.Mirrors {
			out = append(out, destination{fmt.Sprintf("http[%d].mirrors[%d].destination", i, j), m.Destination, m.Percentage != nil && m.Percentage.Value == 0})
		}
	}
	streams := func(kind string, i int, list []*networking.RouteDestination) {
		for j, d := range list {
			out = append(out, destination{fmt.Sprintf("%s[%d].route[%d].destination", kind, i, j), d.Destination, d.Weight == 0 && len(list) > 1})
		}
	}
	for i, t := range s.Tls {
		streams("tls", i, t.Route)
	}
	for i, t := range s.Tcp {
		streams("tcp", i, t.Route)
	}
	return out
}

// destinations tells of places that are not there: requests to them fail. A VirtualService that took the routes of
// delegates in has these at places of its own, so fields are those of the VirtualService as proxies see it.
func (a *analysis) destinations(v *pushcontext.VirtualService) {
	for _, d := range destinationsOf(v.Spec) {
		tell := func(code, format string, args ...any) {
			a.add(v.Source, model.Finding{Code: code, Severity: d.at(model.SeverityError), Field: d.field, Message: fmt.Sprintf(format, args...)})
		}
		host := d.to.GetHost()
		h := a.pc.Host(host)
		if h == nil {
			why, severity := a.absent(host, "requests to it fail with 503; mend the name, or add a Service or ServiceEntry")
			a.add(v.Source, model.Finding{Code: CodeUnknownHost, Severity: d.at(severity), Field: d.field, Message: fmt.Sprintf("no service has the host %s: %s%s", host, why, a.otherHost(host))})
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
			tell(CodeUnknownSubset, "no DestinationRule for %s has a subset %s: requests to it fail with 503; add it there%s", host, name, otherSubset(name, visible))
		} else if name != "" {
			a.outOfSight(v, d, visible)
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
	return slices.ContainsFunc(s.Policies, func(p *pushcontext.DestinationPolicy) bool { return namesSubset(p, name) })
}

// bound tells of gateways that are not there, and of hosts that these do not serve.
func (a *analysis) bound(v *pushcontext.VirtualService, gates map[string][]*pushcontext.GatewayServer) {
	for _, name := range v.Gateways {
		if name == pushcontext.MeshGateway {
			continue
		}
		servers, there := gates[name]
		if !there {
			message := fmt.Sprintf("there is no Gateway %s: mend the name, or add it%s", name, otherGateway(name, gates))
			if a.refused(model.ConfigGateway, name) {
				message = fmt.Sprintf("the Gateway %s has an error and is not in force: mend it", name)
			}
			a.add(v.Source, model.Finding{Code: CodeUnknownGate, Severity: model.SeverityError, Field: "gateways", Message: message})
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

// refused reports whether an object, "namespace/name", is there and not in force.
func (a *analysis) refused(kind, name string) bool {
	return slices.ContainsFunc(a.objectsNamed(kind, name), func(c *model.Config) bool { return c.Refused })
}

// objectsNamed gives the objects of a name, "namespace/name": one for each member that has it.
func (a *analysis) objectsNamed(kind, name string) []*model.Config {
	if a.byName == nil {
		a.byName = map[string][]*model.Config{}
		for _, c := range a.pc.Configs {
			key := c.Kind + "/" + c.Namespace + "/" + c.Name
			a.byName[key] = append(a.byName[key], c)
		}
	}
	return a.byName[kind+"/"+name]
}

// delegate tells of a route whose requests are delegated to a VirtualService that can't be used for them.
func (a *analysis) delegate(c pushcontext.Conflict) {
	name := c.Winner.Object.Namespace + "/" + c.Winner.Object.Name
	there := a.objectsNamed(model.ConfigVirtualService, name)
	hosts := slices.ContainsFunc(there, func(v *model.Config) bool {
		spec, ok := v.Spec.(*networking.VirtualService)
		return ok && len(spec.Hosts) > 0
	})
	code, why := CodeUnknownDelegate, fmt.Sprintf("there is no VirtualService %s: mend the name, or add it, without hosts", name)
	switch {
	case a.refused(model.ConfigVirtualService, name):
		why = fmt.Sprintf("the VirtualService %s has an error and is not in force: mend it", name)
	case hosts:
		why = fmt.Sprintf("the VirtualService %s has hosts, so it can't be delegated to: remove them, or delegate to another", name)
	case len(there) > 0:
		code, why = CodeNotExported, fmt.Sprintf("the VirtualService %s is not exported to the namespace %s: add that to its exportTo", name, c.Loser.Object.Namespace)
	}
	a.add(c.Loser, model.Finding{Code: code, Severity: model.SeverityError, Field: c.At, Message: why + "; until then the route is left out, and its requests go to later routes or fail with 404"})
}

func serves(g *pushcontext.GatewayServer, namespace, host string) bool {
	return slices.ContainsFunc(g.Hosts, func(h pushcontext.GatewayHost) bool {
		return (h.Namespace == "*" || h.Namespace == namespace) && (pushcontext.HostMatches(h.Host, host) || pushcontext.HostMatches(host, h.Host))
	})
}
