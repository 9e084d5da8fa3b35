package analysis

import (
	"fmt"
	"slices"
	"strings"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/pushcontext"
)

// outOfSight tells of a subset that only rules have which are not in force for those who follow the VirtualService. Sidecars are
// of its namespace and of those that it is exported to, routers of namespaces that are not known: it is enough if some
// would find the subset.
func (a *analysis) outOfSight(v *pushcontext.VirtualService, d destination, services []*pushcontext.ServiceView) {
	finds := func(namespace string) bool {
		return slices.ContainsFunc(services, func(s *pushcontext.ServiceView) bool { return inForce(s.Shape, namespace, d.to.Subset) })
	}
	if finds(v.Namespace) {
		return
	}
	others := append([]string{""}, v.Export.Namespaces...) // "" has no rules of its own
	if !v.Export.Public {
		others = others[1:]
	}
	for _, g := range v.Gateways {
		if namespace, _, ok := strings.Cut(g, "/"); ok {
			others = append(others, "", namespace)
		}
	}
	for _, s := range services {
		if v.Export.Includes(s.Shape.Key.Namespace) {
			others = append(others, s.Shape.Key.Namespace)
		}
	}
	mesh, severity := v.Bound(pushcontext.MeshGateway), d.at(model.SeverityError)
	switch some := slices.ContainsFunc(others, finds); {
	case some && !mesh:
		return
	case some || !mesh:
		severity = model.SeverityWarning
	}
	a.add(v.Source, model.Finding{Code: CodeUnknownSubset, Severity: severity, Field: d.field,
		Message: fmt.Sprintf("the subset %s of %s is in %s, which is not in force for the namespace %s: requests from there fail with 503; add the subset to a DestinationRule of that namespace or of the service's, exported to it",
			d.to.Subset, d.to.Host, ruleOf(services, d.to.Subset), v.Namespace)})
}

// inForce reports whether the rule in force for a namespace, for all or some of its workloads, has a subset.
func inForce(s *pushcontext.ShapeView, namespace, subset string) bool {
	all := func(model.Labels) bool { return true }
	for _, p := range []*pushcontext.DestinationPolicy{s.Policy(namespace), s.PolicyFor(namespace, all)} {
		if p != nil && namesSubset(p, subset) {
			return true
		}
	}
	return false
}

// ruleOf names a rule that has a subset.
func ruleOf(services []*pushcontext.ServiceView, subset string) string {
	for _, s := range services {
		if i := slices.IndexFunc(s.Shape.Policies, func(p *pushcontext.DestinationPolicy) bool { return namesSubset(p, subset) }); i >= 0 {
			return s.Shape.Policies[i].Source.Object.String()
		}
	}
	return ""
}

func namesSubset(p *pushcontext.DestinationPolicy, name string) bool {
	return slices.ContainsFunc(p.Spec.GetSubsets(), func(x *networking.Subset) bool { return x.GetName() == name })
}

// idle tells of rules for a protocol that no port of a host speaks: sidecars have no use for them.
func (a *analysis) idle(v *pushcontext.VirtualService) {
	if !v.Bound(pushcontext.MeshGateway) {
		return
	}
	severity := model.SeverityWarning
	if len(v.Gateways) > 1 {
		severity = model.SeverityInfo // at the others it is served
	}
	web := func(p model.Port) bool { return p.Protocol.IsHTTP() || p.Protocol.Sniffed() }
	stream := func(p model.Port) bool { return !p.Protocol.IsHTTP() && p.Protocol != model.ProtocolUDP }
	for _, rules := range []struct {
		field, instead string
		are            bool
		at             func(model.Port) bool
	}{
		{"http", "say that of a port with appProtocol or a name like http-web, or use tcp", len(v.Spec.GetHttp()) > 0, web},
		{"tls", "connections there are routed by http", len(v.Spec.GetTls()) > 0, stream},
		{"tcp", "connections there are routed by http", len(v.Spec.GetTcp()) > 0, stream},
	} {
		for _, h := range v.Hosts {
			if host := a.host(h); rules.are && host != nil && !a.anyPort(host.Services, rules.at) {
				a.add(v.Source, model.Finding{Code: CodeIneffective, Severity: severity, Field: rules.field,
					Message: fmt.Sprintf("no port of %s is for such rules (%s), so they do nothing in sidecars: %s", h, protocolsText(host.Services[0].Shape), rules.instead)})
			}
		}
	}
}

// anyPort reports whether something holds for a port of the services, or may: not all ports are known of another name for a service,
// and of what foreign registries have that were not read.
func (a *analysis) anyPort(services []*pushcontext.ServiceView, holds func(model.Port) bool) bool {
	return slices.ContainsFunc(services, func(s *pushcontext.ServiceView) bool {
		return s.Shape.Alias != "" || s.Shape.Federation != nil && a.offline || len(s.Shape.Ports) == 0 || slices.ContainsFunc(s.Shape.Ports, holds)
	})
}

func protocolsText(s *pushcontext.ShapeView) string {
	var out []string
	for _, p := range s.Ports {
		out = append(out, fmt.Sprintf("%d is %s", p.Number, p.Protocol))
	}
	return strings.Join(out, ", ")
}

// matchedPorts tells of matches by a gateway that the VirtualService is not bound to, and by a port that nothing has which it is for.
func (a *analysis) matchedPorts(v *pushcontext.VirtualService, gates map[string][]*pushcontext.GatewayServer) {
	tell := func(field string, port uint32, gateways []string) {
		bound := v.Gateways
		if len(gateways) > 0 {
			bound = slices.DeleteFunc(slices.Clone(gateways), func(g string) bool { return !v.Bound(g) })
		}
		if len(bound) == 0 {
			a.add(v.Source, model.Finding{Code: CodeIneffective, Severity: model.SeverityWarning, Field: field + ".gateways",
				Message: fmt.Sprintf("the VirtualService is not bound to %s, so the match is for no request: add that to its gateways", strings.Join(gateways, ", "))})
			return
		}
		if port != 0 && !slices.ContainsFunc(bound, func(g string) bool { return a.comesIn(v, gates, g, port) }) {
			a.add(v.Source, model.Finding{Code: CodeUnknownPort, Severity: model.SeverityWarning, Field: field + ".port",
				Message: fmt.Sprintf("nothing that the VirtualService is for has the port %d, so the match is for no request: mend the number, or leave it out", port)})
		}
	}
	for i, h := range v.Spec.GetHttp() {
		for j, m := range h.GetMatch() {
			tell(fmt.Sprintf("http[%d].match[%d]", i, j), m.GetPort(), m.GetGateways())
		}
	}
	for i, h := range v.Spec.GetTls() {
		for j, m := range h.GetMatch() {
			tell(fmt.Sprintf("tls[%d].match[%d]", i, j), m.GetPort(), m.GetGateways())
		}
	}
	for i, h := range v.Spec.GetTcp() {
		for j, m := range h.GetMatch() {
			tell(fmt.Sprintf("tcp[%d].match[%d]", i, j), m.GetPort(), m.GetGateways())
		}
	}
}

// comesIn reports whether requests for the VirtualService may come in at a port of a gateway, as far as that is known: of a Gateway
// that is not there, and of hosts that no service has, nothing is.
func (a *analysis) comesIn(v *pushcontext.VirtualService, gates map[string][]*pushcontext.GatewayServer, gateway string, port uint32) bool {
	if gateway != pushcontext.MeshGateway {
		servers, there := gates[gateway]
		return !there || slices.ContainsFunc(servers, func(g *pushcontext.GatewayServer) bool { return g.Spec.GetPort().GetNumber() == port })
	}
	has := func(p model.Port) bool { return uint32(p.Number) == port }
	return slices.ContainsFunc(v.Hosts, func(h string) bool {
		if strings.Contains(h, "*") {
			return a.pc.Port(uint16(port)) != nil
		}
		host := a.host(h)
		return host == nil || a.anyPort(host.Services, has)
	})
}

// ruledPorts tells of settings for ports that no service has which the rule is for.
func (a *analysis) ruledPorts(c *model.Config, spec *networking.DestinationRule, services []*pushcontext.ServiceView) {
	tell := func(field string, t *networking.TrafficPolicy) {
		for i, s := range t.GetPortLevelSettings() {
			n := s.GetPort().GetNumber()
			if n == 0 || a.anyPort(services, func(p model.Port) bool { return uint32(p.Number) == n }) {
				continue
			}
			a.add(c.Source, model.Finding{Code: CodeUnknownPort, Severity: model.SeverityWarning, Field: fmt.Sprintf("%s.portLevelSettings[%d].port", field, i),
				Message: fmt.Sprintf("%s has no port %d, so the settings do nothing; its ports are %s", spec.Host, n, portsText(services[0].Shape))})
		}
	}
	tell("trafficPolicy", spec.TrafficPolicy)
	for i, s := range spec.Subsets {
		tell(fmt.Sprintf("subsets[%d].trafficPolicy", i), s.GetTrafficPolicy())
	}
}
