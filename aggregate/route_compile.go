package aggregate

import (
	"maps"
	"slices"
	"strings"

	networking "istio.io/api/networking/v1alpha3"

	"google.golang.org/protobuf/proto"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/pushcontext"
)

// compileRoute makes a VirtualService of an object with hosts. If it says what the old one says, its pointer is
// kept.
func compileRoute(c *model.Config, delegates map[string]*model.Config, src routeSources, old *route) *route {
	spec := proto.Clone(c.Spec.(*networking.VirtualService)).(*networking.VirtualService)
	r := &route{from: []*model.Config{c}, ports: map[string]uint16{}, meant: map[string]string{}, VirtualService: &pushcontext.VirtualService{
		Source: c.Source, Namespace: c.Namespace, Created: c.Created, Spec: spec,
		Hosts:    routeHosts(spec.Hosts, c.Namespace, src.view.DomainSuffix),
		Gateways: gatewayNames(spec.Gateways, c.Namespace),
		Export:   pushcontext.NewExport(spec.ExportTo, src.view.Config.DefaultVirtualServiceExportTo, c.Namespace),
	}}
	complete(spec, c.Namespace, src.view.DomainSuffix)
	r.delegate(delegates, src.mesh)
	r.fill(src)
	r.Policies = routePolicies(spec, src)
	if old != nil && sameRoute(old.VirtualService, r.VirtualService) {
		r.VirtualService = old.VirtualService
	}
	return r
}

// routeHosts are the hosts of a VirtualService in the form that indexes have.
func routeHosts(hosts []string, namespace, suffix string) (out []string) {
	for _, h := range hosts {
		if h, ok := ruleHost(strings.ToLower(strings.TrimSuffix(h, ".")), namespace, suffix); ok && !slices.Contains(out, h) {
			out = append(out, h)
		}
	}
	return out
}

// gatewayNames are the gateways that a VirtualService is bound to; without any, all sidecars.
func gatewayNames(gateways []string, namespace string) []string {
	if len(gateways) == 0 {
		return []string{pushcontext.MeshGateway}
	}
	out := make([]string, 0, len(gateways))
	for _, g := range gateways {
		out = append(out, gatewayName(g, namespace))
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// gatewayName completes the name of a Gateway: "name" and "./name" are in the namespace of who says so; the
// older form "name.namespace.svc.suffix" is read too.
func gatewayName(g, namespace string) string {
	if g == pushcontext.MeshGateway {
		return g
	}
	if space, name, ok := strings.Cut(g, "/"); ok {
		if space == "." {
			space = namespace
		}
		return space + "/" + name
	}
	if name, rest, ok := strings.Cut(g, "."); ok {
		space, _, _ := strings.Cut(rest, ".")
		return space + "/" + name
	}
	return namespace + "/" + g
}

// complete makes the names in the routes of an object complete.
func complete(spec *networking.VirtualService, namespace, suffix string) {
	for _, d := range destinationsOf(spec) {
		d.Host = strings.ToLower(strings.TrimSuffix(d.Host, "."))
		if host, ok := ruleHost(d.Host, namespace, suffix); ok {
			d.Host = host
		}
	}
	names := func(list []string) {
		for i, g := range list {
			list[i] = gatewayName(g, namespace)
		}
	}
	for _, h := range spec.Http {
		for _, m := range h.GetMatch() {
			names(m.GetGateways())
		}
	}
	for _, t := range spec.Tls {
		for _, m := range t.GetMatch() {
			names(m.GetGateways())
		}
	}
	for _, t := range spec.Tcp {
		for _, m := range t.GetMatch() {
			names(m.GetGateways())
		}
	}
}

// destinationsOf are all destinations of an object's routes.
func destinationsOf(spec *networking.VirtualService) (out []*networking.Destination) {
	for _, h := range spec.Http {
		out = append(out, httpDestinations(h)...)
	}
	for _, t := range spec.Tls {
		for _, r := range t.GetRoute() {
			out = append(out, r.GetDestination())
		}
	}
	for _, t := range spec.Tcp {
		for _, r := range t.GetRoute() {
			out = append(out, r.GetDestination())
		}
	}
	return slices.DeleteFunc(out, func(d *networking.Destination) bool { return d == nil })
}

func httpDestinations(h *networking.HTTPRoute) (out []*networking.Destination) {
	for _, r := range h.GetRoute() {
		out = append(out, r.GetDestination())
	}
	out = append(out, h.GetMirror())
	for _, m := range h.GetMirrors() {
		out = append(out, m.GetDestination())
	}
	return out
}

// fill gives destinations the service that their host stands for, and those without a port that of their service, if
// this has one port only. It notes what was read.
func (r *route) fill(src routeSources) {
	hosts, all := map[string]struct{}{}, map[pushcontext.Destination]struct{}{}
	for _, to := range destinationsOf(r.Spec) {
		if _, read := hosts[to.Host]; !read { // else it may be what another stands for
			at := src.meant(to.Host)
			r.meant[to.Host], to.Host = at, at
		}
		hosts[to.Host] = struct{}{}
		if to.Port.GetNumber() == 0 {
			n := src.directory.port(to.Host)
			if r.ports[to.Host] = n; n != 0 {
				to.Port = &networking.PortSelector{Number: uint32(n)}
			}
		}
		all[pushcontext.Destination{Host: to.Host, Port: uint16(to.Port.GetNumber())}] = struct{}{}
	}
	r.Destinations = slices.SortedFunc(maps.Keys(all), pushcontext.Destination.Compare)
}

// routePolicies gives the rules for destinations of HTTP routes that are hashed to, and for those of other routes of which a rule
// says something of connections.
func routePolicies(spec *networking.VirtualService, src routeSources) map[string]*pushcontext.DestinationPolicies {
	out := map[string]*pushcontext.DestinationPolicies{}
	steering := func(p *pushcontext.DestinationPolicy) bool { return p.Steers(src.view) }
	add := func(d *networking.Destination, tells func(*pushcontext.DestinationPolicy) bool) {
		if p := src.rules.telling(d.GetHost(), src.directory, tells); p != nil {
			out[d.GetHost()] = p
		}
	}
	for _, h := range spec.Http {
		for _, r := range h.GetRoute() {
			add(r.GetDestination(), (*pushcontext.DestinationPolicy).Hashes)
		}
	}
	for _, t := range spec.Tls {
		for _, r := range t.GetRoute() {
			add(r.GetDestination(), steering)
		}
	}
	for _, t := range spec.Tcp {
		for _, r := range t.GetRoute() {
			add(r.GetDestination(), steering)
		}
	}
	if len(out) == 0 {
		return nil
	}
	return out
}
