package aggregate_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/google/go-cmp/cmp"
	networking "istio.io/api/networking/v1alpha3"
	telemetry "istio.io/api/telemetry/v1alpha1"
	selectors "istio.io/api/type/v1beta1"

	"github.com/isthmus-mesh/isthmus/aggregate"
	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/pushcontext"
)

// routing makes a row of a kind that says where requests go.
func (w *world) routing(k model.ShardKey) *model.Config {
	c := &model.Config{Namespace: []string{"ns", "ns", "other", "istio-system"}[w.pick(4)], Name: w.name(), Created: time.Unix(int64(w.pick(4)), 0), NotServed: w.pick(12) == 0}
	switch w.pick(6) {
	case 0:
		c.Kind, c.Spec = model.ConfigSidecar, w.sidecar()
	case 1:
		c.Kind, c.Spec = model.ConfigTelemetry, w.telemetry()
	default:
		c.Kind, c.Spec = model.ConfigVirtualService, w.virtualService()
	}
	c.Source = w.source(k, c.Kind, c.Name)
	c.Source.Object.Namespace = c.Namespace
	return c
}

// virtualService is one with hosts, or a delegate.
func (w *world) virtualService() *networking.VirtualService {
	v := &networking.VirtualService{
		ExportTo: [][]string{nil, {"."}, {"*"}, {"ns"}}[w.pick(4)],
		Gateways: [][]string{nil, nil, {"mesh"}, {"s1"}, {"ns/s0", "mesh"}, {"s2.istio-system.svc.cluster.local"}}[w.pick(6)],
	}
	if w.pick(3) > 0 {
		for range 1 + w.pick(2) {
			v.Hosts = append(v.Hosts, w.routedHost())
		}
	}
	for range w.pick(3) {
		v.Http = append(v.Http, w.httpRoute())
	}
	if w.pick(3) == 0 {
		v.Tcp = []*networking.TCPRoute{{Route: []*networking.RouteDestination{{Destination: w.destination()}}}}
	}
	return v
}

func (w *world) routedHost() string {
	return []string{w.name(), host(w.name()), "*.ns.svc.cluster.local", "*.local", "a.example", "B.example.", "*.example", "*wrong"}[w.pick(8)]
}

func (w *world) destination() *networking.Destination {
	d := &networking.Destination{Host: []string{w.name(), host(w.name()), "a.example"}[w.pick(3)]}
	if w.pick(3) == 0 {
		d.Port = &networking.PortSelector{Number: 80}
	}
	return d
}

func (w *world) httpRoute() *networking.HTTPRoute {
	h := &networking.HTTPRoute{Name: w.name()}
	for range w.pick(2) {
		h.Match = append(h.Match, &networking.HTTPMatchRequest{
			Uri: &networking.StringMatch{MatchType: &networking.StringMatch_Prefix{Prefix: "/" + strings.Repeat("a", w.pick(3))}},
		})
	}
	if w.pick(3) == 0 {
		h.Delegate = &networking.Delegate{Name: w.name(), Namespace: []string{"", "ns", "other"}[w.pick(3)]}
		return h
	}
	h.Route = []*networking.HTTPRouteDestination{{Destination: w.destination()}}
	if w.pick(4) == 0 {
		h.Mirror = w.destination()
	}
	return h
}

func (w *world) sidecar() *networking.Sidecar {
	s := &networking.Sidecar{}
	if w.pick(2) == 0 {
		s.WorkloadSelector = &networking.WorkloadSelector{Labels: w.labels()}
	}
	for range w.pick(3) {
		e := &networking.IstioEgressListener{}
		for range 1 + w.pick(2) {
			e.Hosts = append(e.Hosts, []string{"./*", "*/" + host(w.name()), "ns/*", "~/*", "other/*.local", "*/*.example", "istio-system/*"}[w.pick(7)])
		}
		s.Egress = append(s.Egress, e)
	}
	return s
}

func (w *world) telemetry() *telemetry.Telemetry {
	t := &telemetry.Telemetry{AccessLogging: []*telemetry.AccessLogging{{Providers: []*telemetry.ProviderRef{{Name: w.name()}}}}}
	if w.pick(2) == 0 {
		t.Selector = &selectors.WorkloadSelector{MatchLabels: w.labels()}
	}
	return t
}

// address gives a service addresses, or has it ask for some; or makes it another name.
func (w *world) address(s *model.Service) {
	switch w.pick(6) {
	case 0:
		s.AutoAddress = s.Source.Object.Kind == "ServiceEntry"
		if w.pick(2) == 0 {
			s.Automatic = []netip.Addr{netip.MustParseAddr(fmt.Sprint("240.240.0.", 1+w.pick(3)))}
		}
	case 1:
		s.Addresses = []netip.Prefix{netip.MustParsePrefix([]string{"240.240.0.1/32", "240.240.0.0/24", "10.1.0.1/32"}[w.pick(3)])}
	case 2:
		s.AliasOf = host(w.name())
	}
}

// scopeKeys are some workloads.
func scopeKeys() (out []pushcontext.ScopeKey) {
	for _, ns := range []string{"ns", "other", "istio-system", "empty"} {
		for _, l := range []model.Labels{nil, {"app": "a0", "v": "v0"}, {"app": "a1", "v": "v1"}, {"app": "a2", "v": "v0"}} {
			out = append(out, pushcontext.ScopeKey{Namespace: ns, Labels: l})
		}
	}
	return out
}

// checkRouting compares what the snapshot says of routes and scopes.
func (w *world) checkRouting(seed uint64, pc *pushcontext.PushContext, want aggregate.Rebuilt) {
	w.t.Helper()
	d := cmp.Diff(routesText(want.VirtualServices), routesText(pc.VirtualServices)) +
		cmp.Diff(gatewaysText(want.Gateways), gatewaysText(pc.Gateways))
	for _, k := range scopeKeys() {
		d += cmp.Diff(scopeText(want.Scopes.Of(k), want.Services), scopeText(pc.ScopeOf(k), want.Services))
	}
	if d != "" {
		w.t.Fatalf("seed %d: %s", seed, d)
	}
	for _, s := range want.Services {
		for _, p := range s.Shape.Ports {
			if got := routesText(pc.Port(p.Number).Routes); !slices.Equal(got, routesBeside(want, p.Number)) {
				w.t.Fatalf("seed %d: port %d has the routes %q", seed, p.Number, got)
			}
		}
	}
	if g := pc.Gateways; g != nil && g.Mesh != pc.Mesh {
		w.t.Fatalf("seed %d: the Gateways were made under other settings", seed)
	}
}

func routeText(v *pushcontext.VirtualService) string {
	var from []string
	for _, s := range v.Delegates {
		from = append(from, s.Object.String())
	}
	return fmt.Sprint(v.Source.Shard, v.Source.Object, from, v.Created.Unix(), v.Hosts, v.Gateways, v.Export, v.Destinations, len(v.Policies), v.Spec)
}

func routesText(list []*pushcontext.VirtualService) []string {
	out := []string{}
	for _, v := range list {
		out = append(out, routeText(v))
	}
	return out
}

// routesBeside are those that hold for hosts of no service at a port.
func routesBeside(want aggregate.Rebuilt, port uint16) []string {
	out := []string{}
	for _, v := range want.VirtualServices {
		if port == pushcontext.RoutedPort && v.Bound(pushcontext.MeshGateway) && len(v.Spec.Http) > 0 {
			out = append(out, routeText(v))
		}
	}
	return out
}

func gatewaysText(g *pushcontext.GatewaysView) []string {
	out := []string{}
	if g == nil {
		return out
	}
	for _, s := range g.Servers {
		out = append(out, fmt.Sprint(s.Source.Shard, s.Name(), s.Index, s.Created.Unix(), s.Selector, s.Hosts, s.Spec, routesText(s.Bound)))
	}
	return append(out, g.Labels...)
}

func scopeText(s *pushcontext.Scope, services []*pushcontext.ServiceView) []string {
	out := []string{}
	if s == nil {
		return out
	}
	if s.Sidecar != nil {
		out = append(out, fmt.Sprint(s.Sidecar.Source.Shard, s.Sidecar.Source.Object, s.Sidecar.Egress))
	}
	for _, t := range s.Telemetry {
		out = append(out, fmt.Sprint(t.Source.Shard, t.Source.Object, t.Spec))
	}
	for _, v := range services {
		if s.Imports(v.Shape) {
			out = append(out, "imports "+v.Shape.Key.String())
		}
	}
	return out
}

// follower knows what a reader knows that looks only at what deltas name.
type follower struct {
	scopes   map[string]*pushcontext.Scope
	ports    map[uint16]*pushcontext.PortView
	gateways *pushcontext.GatewaysView
}

func newFollower() *follower {
	return &follower{scopes: map[string]*pushcontext.Scope{}, ports: map[uint16]*pushcontext.PortView{}}
}

func (f *follower) follow(pc *pushcontext.PushContext, d *pushcontext.Delta) {
	for _, k := range scopeKeys() {
		if d.Scoped(k.Namespace) {
			f.scopes[fmt.Sprint(k)] = pc.ScopeOf(k)
		}
	}
	for _, n := range d.Ports {
		f.ports[n] = pc.Port(n)
	}
	if d.Gateways || d.Mesh {
		f.gateways = pc.Gateways
	}
}

// lags says what is not as the snapshot has it; "" if all is.
func (f *follower) lags(pc *pushcontext.PushContext) string {
	for _, k := range scopeKeys() {
		if f.scopes[fmt.Sprint(k)] != pc.ScopeOf(k) {
			return fmt.Sprintf("scopes of %v", k)
		}
	}
	for n, v := range f.ports {
		if v != pc.Port(n) {
			return fmt.Sprintf("port %d", n)
		}
	}
	if f.gateways != pc.Gateways {
		return "Gateways"
	}
	return ""
}
