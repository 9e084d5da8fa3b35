package analysis

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/pushcontext"
)

// ruled gives the services that a DestinationRule's host stands for.
func (a *analysis) ruled(host string) (out []*pushcontext.ServiceView) {
	if !strings.HasPrefix(host, "*") {
		if h := a.host(host); h != nil {
			return h.Services
		}
		return nil
	}
	for name, h := range a.pc.Hosts() {
		if pushcontext.HostMatches(host, strings.ToLower(name)) {
			out = append(out, h.Services...)
		}
	}
	return out
}

func (a *analysis) destinationRules() {
	for _, c := range a.pc.Configs {
		spec, ok := c.Spec.(*networking.DestinationRule)
		if !ok || c.NotServed {
			continue
		}
		services := a.ruled(spec.Host)
		if len(services) == 0 {
			why, _ := a.absent(spec.Host, "the rule does nothing; mend the name, or add a Service or ServiceEntry")
			a.add(c.Source, model.Finding{Code: CodeUnknownHost, Severity: model.SeverityWarning, Field: "host", Message: fmt.Sprintf("no service has the host %s: %s%s", spec.Host, why, a.otherHost(spec.Host))})
			continue
		}
		a.ruledPorts(c, spec, services)
		a.strict(c, spec, services)
		for i, s := range spec.Subsets {
			if len(s.Labels) > 0 && !slices.ContainsFunc(services, func(v *pushcontext.ServiceView) bool { return hasEndpoint(v, s.Labels) }) {
				a.add(c.Source, model.Finding{Code: CodeEmptySubset, Severity: model.SeverityWarning, Field: fmt.Sprintf("subsets[%d].labels", i),
					Message: fmt.Sprintf("no endpoint of %s has these labels: requests to the subset %s fail with 503", spec.Host, s.Name)})
			}
		}
	}
}

// hasEndpoint reports whether some endpoint has the labels. Endpoints that the proxy resolves are not known.
func hasEndpoint(v *pushcontext.ServiceView, labels model.Labels) bool {
	if v.Shape.Resolution != model.ClientSideLB {
		return true
	}
	for _, p := range v.Endpoints {
		for _, l := range p.Localities {
			if slices.ContainsFunc(l.Endpoints, func(e *model.Endpoint) bool { return e.Labels.Matches(labels) }) {
				return true
			}
		}
	}
	return false
}

// gatewayPlace is where servers meet: a port of the same routers.
type gatewayPlace struct {
	selector, bind string
	port           uint32
}

// gateways tells of servers without routes, and of those that can't share a port with others of their own routers.
func (a *analysis) gateways() {
	if a.pc.Gateways == nil {
		return
	}
	a.passthrough()
	mayBind := sync.OnceValue(a.mayBind)
	first := map[gatewayPlace]*pushcontext.GatewayServer{}
	taken := map[gatewayPlace]map[string]*pushcontext.GatewayServer{} // hosts of servers with TLS
	for _, g := range a.pc.Gateways.Servers {
		field := fmt.Sprintf("servers[%d]", g.Index)
		if len(g.Bound) == 0 && !routesItself(g.Spec) {
			a.add(g.Source, model.Finding{Code: CodeNoRoutes, Severity: model.SeverityInfo, Field: field,
				Message: "no VirtualService has routes for it: requests are answered with 404, connections closed; bind one to " + g.Name() + mayBind()})
		}
		if n := g.Spec.GetPort().GetNumber(); a.proxysOwn(n) {
			a.add(g.Source, model.Finding{Code: CodePortConflict, Severity: model.SeverityError, Field: field + ".port",
				Message: fmt.Sprintf("port %d is the proxy's own, so the server is not served, but where the router's Service has another targetPort for it: use another port", n)})
		}
		at := gatewayPlace{labelsText(g.Selector), g.Spec.Bind, g.Spec.GetPort().GetNumber()}
		if speaks(g.Spec) == "TLS" {
			a.taken(g, field, taken, at)
		}
		other := first[at]
		if other == nil {
			first[at] = g
			continue
		}
		if x, y := speaks(other.Spec), speaks(g.Spec); x != y && other.Source.Object != g.Source.Object {
			a.add(g.Source, model.Finding{Code: CodePortConflict, Severity: model.SeverityError, Field: field + ".port",
				Message: fmt.Sprintf("%s speaks %s at port %d of the same routers, this one %s: it is not served; use another port", other.Source.Object, x, at.port, y)})
		}
	}
}

// mayBind names VirtualServices of which nothing is in force, for what has no routes: nothing is known of them but that an error
// keeps them from it.
func (a *analysis) mayBind() string {
	const most = 3
	var names []string
	for _, c := range a.pc.Configs {
		if c.Kind == model.ConfigVirtualService && c.Refused && c.Spec == nil {
			names = append(names, c.Namespace+"/"+c.Name)
		}
	}
	if len(names) == 0 {
		return ""
	}
	if slices.Sort(names); len(names) > most {
		names = append(names[:most], "…")
	}
	return ", or mend one that has an error and is not in force: " + strings.Join(names, ", ")
}

// proxysOwn reports whether proxies listen at a port for themselves: for intercepted connections, metrics and health.
func (a *analysis) proxysOwn(port uint32) bool {
	m := a.pc.Mesh.Config
	return slices.Contains([]uint32{uint32(cmp.Or(m.GetProxyListenPort(), 15001)), uint32(cmp.Or(m.GetProxyInboundListenPort(), 15006)), 15020, 15021, 15090}, port)
}

// passthrough tells of servers between networks that are too many.
func (a *analysis) passthrough() {
	for i, s := range a.pc.Mesh.AutoPassthrough {
		if i >= pushcontext.MaxAutoPassthrough {
			a.add(s.Source, model.Finding{Code: CodeTooManyServers, Severity: model.SeverityError, Field: "servers",
				Message: fmt.Sprintf("the mesh has %d older servers with AUTO_PASSTHROUGH, which is all that are served: the one at port %d is not; remove some", pushcontext.MaxAutoPassthrough, s.Port)})
		}
	}
}

// taken tells of a server with TLS of which another has a host already: connections are told apart by server name.
func (a *analysis) taken(g *pushcontext.GatewayServer, field string, hosts map[gatewayPlace]map[string]*pushcontext.GatewayServer, at gatewayPlace) {
	have := hosts[at]
	if have == nil {
		have = map[string]*pushcontext.GatewayServer{}
		hosts[at] = have
	}
	for _, h := range g.Hosts {
		if other := have[h.Host]; other != nil {
			a.add(g.Source, model.Finding{Code: CodeHostTaken, Severity: model.SeverityError, Field: field + ".hosts",
				Message: fmt.Sprintf("%s has the host %s at port %d of the same routers: this server is not served; leave the host to one of them", other.Source.Object, h.Host, at.port)})
			return
		}
	}
	for _, h := range g.Hosts {
		have[h.Host] = g
	}
}

// routesItself reports whether a server needs no VirtualService.
func routesItself(s *networking.Server) bool {
	return s.GetTls().GetMode() == networking.ServerTLSSettings_AUTO_PASSTHROUGH && s.Tls != nil || s.GetTls().GetHttpsRedirect()
}

// speaks is what connections to a server begin with.
func speaks(s *networking.Server) string {
	return model.Opening(s.GetPort().GetProtocol(), s.Tls != nil)
}

func labelsText(l model.Labels) string {
	out := make([]string, 0, len(l))
	for k, v := range l {
		out = append(out, k+"="+v)
	}
	slices.Sort(out)
	return strings.Join(out, ",")
}

// sidecars tells of imports that nothing is behind.
func (a *analysis) sidecars() {
	for _, c := range a.pc.Configs {
		spec, ok := c.Spec.(*networking.Sidecar)
		if !ok || c.NotServed {
			continue
		}
		a.ingress(c, spec)
		for i, e := range spec.Egress {
			for j, h := range e.Hosts {
				namespace, host, _ := strings.Cut(h, "/")
				if strings.HasPrefix(namespace, "~") || a.imports(c.Namespace, namespace, strings.ToLower(host)) {
					continue
				}
				why, _ := a.absent(host, fmt.Sprintf("no service or VirtualService that the namespace %s may see has such a host", c.Namespace))
				a.add(c.Source, model.Finding{Code: CodeNoImport, Severity: model.SeverityWarning, Field: fmt.Sprintf("egress[%d].hosts[%d]", i, j),
					Message: fmt.Sprintf("%q imports nothing: %s", h, why)})
			}
		}
	}
}

// ingress tells of listeners that take a port from the services that have it: proxies can't listen twice.
func (a *analysis) ingress(c *model.Config, spec *networking.Sidecar) {
	for i, l := range spec.Ingress {
		bind, err := netip.ParseAddr(l.Bind)
		all := l.Bind == "" || err == nil && bind.IsUnspecified()
		if n := uint16(l.GetPort().GetNumber()); all && l.CaptureMode == networking.CaptureMode_NONE && a.pc.Port(n) != nil {
			a.add(c.Source, model.Finding{Code: CodePortConflict, Severity: model.SeverityWarning, Field: fmt.Sprintf("ingress[%d]", i),
				Message: fmt.Sprintf("it takes port %d on all addresses, so workloads that it is for reach no service at this port through their proxies: set bind, or another port", n)})
		}
	}
}

// imports reports whether anything that workloads of a namespace may see is among what a Sidecar's host imports.
func (a *analysis) imports(own, namespace, host string) bool {
	if namespace == "." {
		namespace = own
	}
	if namespace == "*" && host == "*" {
		return true
	}
	for name, h := range a.pc.Hosts() {
		if pushcontext.HostMatches(host, strings.ToLower(name)) && slices.ContainsFunc(h.Services, func(s *pushcontext.ServiceView) bool {
			return (namespace == "*" || s.Shape.Key.Namespace == namespace) && s.Shape.Export.Includes(own)
		}) {
			return true
		}
	}
	return slices.ContainsFunc(a.pc.VirtualServices, func(v *pushcontext.VirtualService) bool {
		return (namespace == "*" || v.Namespace == namespace) && v.Export.Includes(own) && slices.ContainsFunc(v.Hosts, func(x string) bool {
			return pushcontext.HostMatches(host, x) || pushcontext.HostMatches(x, host)
		})
	})
}
