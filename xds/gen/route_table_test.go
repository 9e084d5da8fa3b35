package gen_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"github.com/google/go-cmp/cmp"
	meshconfig "istio.io/api/mesh/v1alpha1"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/pushcontext"
	"github.com/isthmus-mesh/isthmus/xds/gen"
)

// leadsTo tells, for each virtual host of a table, where its routes lead.
func leadsTo(m *routev3.RouteConfiguration) map[string]string {
	out := map[string]string{}
	for _, h := range m.VirtualHosts {
		var all []string
		for _, r := range h.Routes {
			all = append(all, leads(r))
		}
		out[h.Name] = strings.Join(all, " ")
	}
	return out
}

func leads(r *routev3.Route) string {
	switch {
	case r.GetRedirect() != nil:
		return "→" + r.GetRedirect().GetPathRedirect()
	case r.GetDirectResponse() != nil:
		return fmt.Sprint(r.GetDirectResponse().Status)
	}
	return strings.TrimSuffix(r.GetRoute().GetCluster(), ".shop.svc.cluster.local")
}

// answers is a VirtualService whose only route tells that it was met.
func answers(t testing.TB, name string, hosts []string, edits ...func(*pushcontext.VirtualService)) *pushcontext.VirtualService {
	t.Helper()
	v := virtualService(t, name, "http: [{redirect: {uri: "+name+"}}]", edits...)
	v.Hosts = hosts
	return v
}

func exportedTo(namespaces ...string) func(*pushcontext.VirtualService) {
	return func(v *pushcontext.VirtualService) { v.Export = pushcontext.Export{Namespaces: namespaces} }
}

func inNamespace(n string) func(*pushcontext.VirtualService) {
	return func(v *pushcontext.VirtualService) { v.Namespace = n }
}

// unclaimed adds VirtualServices, oldest first, that no service of the port knows of.
func unclaimed(v *pushcontext.PortView, list ...*pushcontext.VirtualService) *pushcontext.PortView {
	v.Routes = append(v.Routes, list...)
	return v
}

// sidecarScope is the scope of a Sidecar whose egress listeners import hosts of namespaces.
func sidecarScope(policy *networking.OutboundTrafficPolicy, egress ...pushcontext.Egress) func(*gen.Class) {
	return func(c *gen.Class) {
		c.Scope = &pushcontext.Scope{Sidecar: &pushcontext.Sidecar{Spec: &networking.Sidecar{OutboundTrafficPolicy: policy}, Egress: egress}}
	}
}

func egress(port uint32, namespaces ...string) pushcontext.Egress {
	var e pushcontext.Egress
	if port != 0 {
		e.Port = &networking.SidecarPort{Number: port}
	}
	for _, n := range namespaces {
		e.Imports = append(e.Imports, pushcontext.Import{Namespace: n, Host: "*"})
	}
	return e
}

// importing is an egress listener that imports one host.
func importing(namespace, host string) pushcontext.Egress {
	return pushcontext.Egress{Imports: []pushcontext.Import{{Namespace: namespace, Host: host}}}
}

func TestVirtualServiceInForce(t *testing.T) {
	t.Parallel()
	host := []string{cartHost}
	private := answers(t, "private", host, exportedTo("shop"))
	elsewhere := answers(t, "elsewhere", host, inNamespace("elsewhere"))
	public := answers(t, "public", host)
	v := portView(80, newMesh(), cartService(routedBy(private, elsewhere, public)))
	for _, c := range []struct {
		name  string
		class gen.Class
		want  string
	}{
		{"its own namespace", sidecar("c1", "shop"), "→private"},
		{"another namespace", sidecar("c1", "other"), "→elsewhere"},
		{"a Sidecar that imports one namespace", sidecar("c1", "other", sidecarScope(nil, egress(0, "shop"))), "→public"},
		{"a Sidecar with a listener for the port", sidecar("c1", "other", sidecarScope(nil, egress(0, "shop"), egress(80, "elsewhere", "shop"))), "→elsewhere"},
		{"a Sidecar with a listener for another port", sidecar("c1", "other", sidecarScope(nil, egress(81, "elsewhere"), egress(0, "shop"))), "→public"},
		{"a Sidecar that imports the host", sidecar("c1", "other", sidecarScope(nil, importing("shop", cartHost))), "→public"},
		{"a router", router("c1", "shop"), "outbound|80||cart"},
	} {
		if got := leadsTo(routeTable(t, v, c.class))[cartHost+":80"]; got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

// Of VirtualServices with one host, the oldest that says something about HTTP at the port to the proxy is in force; one for a
// pattern is not, where one has the very host.
func TestOlderRulesForOthersLeaveRoom(t *testing.T) {
	t.Parallel()
	spec := func(name, http string) *pushcontext.VirtualService {
		v := virtualService(t, name, http)
		v.Hosts = []string{cartHost}
		return v
	}
	stream := spec("stream", "tcp: [{route: [{destination: {host: a}}]}]")
	port := spec("port", "http: [{match: [{port: 81}], redirect: {uri: /port}}]")
	db := spec("db", "http: [{match: [{sourceLabels: {app: db}}], redirect: {uri: /db}}]")
	all, late := answers(t, "all", []string{cartHost}), answers(t, "late", []string{cartHost})
	pattern := answers(t, "pattern", []string{"*.shop.svc.cluster.local"})
	for name, c := range map[string]struct {
		list []*pushcontext.VirtualService
		app  string
		want string
	}{
		"the next":           {[]*pushcontext.VirtualService{stream, port, db, all, late}, "web", "→all"},
		"one for the proxy":  {[]*pushcontext.VirtualService{stream, port, db, all, late}, "db", "→/db"},
		"none":               {[]*pushcontext.VirtualService{stream, port}, "web", "outbound|80||cart"},
		"none but a pattern": {[]*pushcontext.VirtualService{stream, pattern}, "web", "outbound|80||cart"},
		"a pattern":          {[]*pushcontext.VirtualService{pattern, all}, "web", "→pattern"},
	} {
		v := portView(80, newMesh(), cartService(routedBy(c.list...)))
		if got := leadsTo(routeTable(t, v, sidecar("c1", "shop", withLabels(model.Labels{"app": c.app}))))[cartHost+":80"]; got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// A VirtualService that says nothing about HTTP at a port to a proxy leaves the service as it is; one whose rules no
// request can match does not.
func TestRulesForOthersLeaveTheDefault(t *testing.T) {
	t.Parallel()
	for spec, want := range map[string]string{
		"http: [{match: [{port: 81}], redirect: {uri: /a}}]":                                                  "outbound|80||cart",
		"http: [{match: [{gateways: [a/b]}], redirect: {uri: /a}}]":                                           "outbound|80||cart",
		"http: [{match: [{sourceLabels: {app: other}}], redirect: {uri: /a}}]":                                "outbound|80||cart",
		"http: [{match: [{sourceNamespace: other}], redirect: {uri: /a}}]":                                    "outbound|80||cart",
		"tcp: [{route: [{destination: {host: a}}]}]":                                                          "outbound|80||cart",
		"http: [{match: [{headers: {'@request.auth.claims.a': {exact: b}}}], redirect: {uri: /a}}]":           "",
		"http: [{match: [{uri: {regex: '('}}, {port: 81}], redirect: {uri: /a}}]":                             "",
		"http: [{match: [{uri: {exact: /a}}], redirect: {uri: /a}}, {match: [{port: 81}], route: [{}]}]":      "→/a",
		"http: [{match: [{sourceLabels: {app: web}, sourceNamespace: shop, port: 80}], redirect: {uri: /a}}]": "→/a",
	} {
		v := portView(80, newMesh(), cartService(routedBy(virtualService(t, "x", spec))))
		m := routeTable(t, v, sidecar("c1", "shop", withLabels(model.Labels{"app": "web", "x": "y"})))
		if got := leadsTo(m)[cartHost+":80"]; got != want {
			t.Errorf("%s: %q, want %q", spec, got, want)
		}
	}
}

// At port 80, hosts that no service has are in the table. A domain is in one virtual host only: a service's own host goes
// before a VirtualService's, this before other names of services, and the older VirtualService before others.
func TestHostsOfNoService(t *testing.T) {
	t.Parallel()
	v := unclaimed(portView(80, newMesh(), cartService(nil), svc{host: "own.example", ns: "shop", ports: []model.Port{httpPort(80)}}),
		answers(t, "older", []string{"a.example", "*.test", "*.example", "cart.shop", "10.0.0.1", "a b"}),
		answers(t, "newer", []string{"A.example", "b.example.", "own.example", "*"}),
		answers(t, "private", []string{"p.example"}, exportedTo("other")),
	)
	m := routeTable(t, v, sidecar("c1", "shop"))
	checkTable(t, m)
	want := map[string]string{
		cartHost + ":80": "outbound|80||cart", "own.example:80": "outbound|80||own.example", "a.example:80": "→older", "*.test:80": "→older",
		"cart.shop:80": "→older", "10.0.0.1:80": "→older", "b.example.:80": "→newer", "allow_any": "PassthroughCluster",
	}
	if d := cmp.Diff(want, leadsTo(m)); d != "" {
		t.Error(d)
	}
	if got := virtualHostNamed(m, cartHost+":80").Domains; slices.Contains(got, "cart.shop") || slices.Contains(got, "10.0.0.1") {
		t.Errorf("the service has domains that are hosts of a VirtualService: %v", got)
	}
	if d := cmp.Diff([]string{"a.example", "a.example."}, virtualHostNamed(m, "a.example:80").Domains); d != "" {
		t.Error(d)
	}
	other := leadsTo(routeTable(t, v, sidecar("c1", "other", sidecarScope(nil, importing("shop", cartHost)))))
	if _, ok := other["*.test:80"]; ok || other["A.example:80"] != "→newer" {
		t.Errorf("a Sidecar that imports a VirtualService for all hosts, and not the older one, has %v", other)
	}
	if _, ok := leadsTo(routeTable(t, v, router("c1", "shop")))["a.example:80"]; ok {
		t.Error("a router has routes of sidecars")
	}
}

// What has an address beside a service, a VirtualService or an older service, takes none of the service's names.
func TestNamesBesideAddresses(t *testing.T) {
	t.Parallel()
	names := []string{cartHost, cartHost + ".", "cart", "cart.shop.svc", "cart.shop"}
	older := svc{host: "older.example", age: 1, ports: []model.Port{httpPort(80)}, vips: members("c1", "10.0.0.1")}
	for name, c := range map[string]struct {
		view *pushcontext.PortView
		want []string
	}{
		"another address of a VirtualService": {unclaimed(portView(80, newMesh(), cartService(nil)), answers(t, "v", []string{"10.1.2.3"})), append(slices.Clone(names), "10.0.0.1")},
		"its address of a VirtualService":     {unclaimed(portView(80, newMesh(), cartService(nil)), answers(t, "v", []string{"10.0.0.1"})), names},
		"its address of an older service":     {portView(80, newMesh(), older, cartService(nil)), names},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := routeTable(t, c.view, sidecar("c1", "shop"))
			checkTable(t, m)
			if d := cmp.Diff(c.want, virtualHostNamed(m, cartHost+":80").Domains); d != "" {
				t.Error(d)
			}
		})
	}
}

// A host of a VirtualService is a virtual host of its own where the proxy sees no service with it, and a pattern where it sees
// none that the pattern stands for: at port 80, and at ports of services that the VirtualService is for.
func TestHostsBesideServices(t *testing.T) {
	t.Parallel()
	const port = 8080
	cart := func(edits ...func(*pushcontext.ShapeView)) svc {
		return svc{host: cartHost, ns: "shop", ports: []model.Port{httpPort(port)}, edit: func(s *pushcontext.ShapeView) {
			for _, e := range edits {
				e(s)
			}
		}}
	}
	by := func(v *pushcontext.VirtualService) func(*pushcontext.ShapeView) { return routedBy(v) }
	only := func(namespace string) func(*pushcontext.ShapeView) {
		return func(s *pushcontext.ShapeView) { s.Export = pushcontext.Export{Namespaces: []string{namespace}} }
	}
	narrow, older := answers(t, "narrow", []string{cartHost}), answers(t, "older", []string{"x.example"})
	for name, c := range map[string]struct {
		hosts    []string
		services func(v *pushcontext.VirtualService) []svc
		at       uint16
		want     string // hosts that are
	}{
		"at port 80":                    {[]string{"x.example"}, nil, 80, "x.example"},
		"elsewhere":                     {[]string{"x.example"}, nil, port, ""},
		"beside a service":              {[]string{cartHost, "x.example", "*.test"}, func(v *pushcontext.VirtualService) []svc { return []svc{cart(by(v))} }, port, "*.test x.example"},
		"beside a service of a pattern": {[]string{"*.shop.svc.cluster.local", "x.example"}, func(v *pushcontext.VirtualService) []svc { return []svc{cart(by(v))} }, port, "x.example"},
		"beside a service of another's": {[]string{"*.shop.svc.cluster.local", "x.example"}, func(v *pushcontext.VirtualService) []svc { return []svc{cart(routedBy(narrow, v))} }, port, ""},
		"beside a service that is not HTTP": {[]string{cartHost, "x.example"}, func(v *pushcontext.VirtualService) []svc {
			return []svc{{host: cartHost, ns: "shop", ports: []model.Port{tcpPort(port)}, edit: by(v)}, {host: "web.example", ns: "shop", ports: []model.Port{httpPort(port)}}}
		}, port, ""},
		"a service of another port": {[]string{cartHost}, func(v *pushcontext.VirtualService) []svc { return []svc{cart(by(v))} }, 80, cartHost},
		"a service that is hidden": {[]string{"b.example", "*.example"}, func(v *pushcontext.VirtualService) []svc {
			return []svc{{host: "b.example", ns: "shop", ports: []model.Port{httpPort(80)}, edit: func(s *pushcontext.ShapeView) { only("other")(s); by(v)(s) }}}
		}, 80, "*.example b.example"},
		"a service that is seen": {[]string{"b.example", "*.example"}, func(v *pushcontext.VirtualService) []svc {
			return []svc{{host: "b.example", ns: "shop", ports: []model.Port{httpPort(80)}, edit: func(s *pushcontext.ShapeView) { only("shop")(s); by(v)(s) }}}
		}, 80, ""},
		"a service of a narrower pattern": {[]string{"*.example"}, func(v *pushcontext.VirtualService) []svc {
			return []svc{{host: "*.b.example", ns: "shop", ports: []model.Port{httpPort(80)}, edit: by(v)}}
		}, 80, ""},
		"all":           {[]string{"*"}, nil, 80, ""},
		"an older rule": {[]string{"x.example", "y.example"}, nil, 80, "y.example"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v := answers(t, "v", c.hosts)
			services := []svc{{host: "other.test.example.net", ns: "shop", ports: []model.Port{httpPort(c.at)}}}
			if c.services != nil {
				services = append(services, c.services(v)...)
			}
			p := portView(c.at, newMesh(), services...)
			if c.at == 80 {
				routes := []*pushcontext.VirtualService{v}
				if name == "an older rule" {
					routes = []*pushcontext.VirtualService{older, v}
				}
				p = unclaimed(p, routes...)
			}
			m := &routev3.RouteConfiguration{}
			for _, r := range build(t, gen.Routes{}, p, sidecar("c1", "shop")) {
				m = decode(t, r).(*routev3.RouteConfiguration)
			}
			checkTable(t, m)
			var got []string
			for host, to := range leadsTo(m) {
				name, _, _ := strings.Cut(host, ":")
				if slices.Contains(c.hosts, name) && to == "→v" && !slices.ContainsFunc(p.Services, func(s *pushcontext.ShapeView) bool {
					return s.Key.Host == name && s.Visible("c1", "shop") && hasPort(s, c.at)
				}) {
					got = append(got, name)
				}
			}
			slices.Sort(got)
			if d := cmp.Diff(c.want, strings.Join(got, " ")); d != "" {
				t.Error(d)
			}
		})
	}
}

// A service to which only routes lead is imported at the ports that they send to.
func TestServicesOfRoutesAreImportedAtTheirPorts(t *testing.T) {
	t.Parallel()
	v := &pushcontext.VirtualService{Namespace: "x", Hosts: []string{"a.x"}, Export: pushcontext.Export{Public: true},
		Destinations: []pushcontext.Destination{{Host: cartHost, Port: 80}, {Host: "all.example"}}}
	spaces := map[string]*pushcontext.ScopeSpace{"client": {Sidecar: pushcontext.NewSidecarRule(model.Source{}, &networking.Sidecar{Egress: []*networking.IstioEgressListener{{Hosts: []string{"x/*"}}}})}}
	scope := pushcontext.NewScopes(nil, "root", spaces, []*pushcontext.VirtualService{v}).Of(pushcontext.ScopeKey{Namespace: "client"})
	for port, want := range map[uint16][]string{80: {cartHost, "all.example"}, 8080: {"all.example"}} {
		list := []svc{}
		for _, h := range []string{cartHost, "all.example"} {
			list = append(list, svc{host: h, ns: "shop", ports: []model.Port{httpPort(80), httpPort(8080)}})
		}
		var got []string
		for _, r := range build(t, gen.Routes{}, portView(port, newMesh(), list...), sidecar("c1", "client", func(c *gen.Class) { c.Scope = scope })) {
			for _, h := range decode(t, r).(*routev3.RouteConfiguration).VirtualHosts {
				if name, _, _ := strings.Cut(h.Name, ":"); name != "allow_any" {
					got = append(got, name)
				}
			}
		}
		slices.Sort(got)
		slices.Sort(want)
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("at port %d: %s", port, d)
		}
	}
}

func hasPort(s *pushcontext.ShapeView, n uint16) bool {
	_, ok := s.PortNumbered(n)
	return ok
}

// A service's host may have capitals, hosts of VirtualServices have none.
func TestHostsWithCapitals(t *testing.T) {
	t.Parallel()
	v := answers(t, "v", []string{"pay.default-group.nacos", "*.nacos"})
	newer := answers(t, "newer", []string{"pay.default-group.nacos"})
	p := unclaimed(portView(80, newMesh(), svc{host: "pay.DEFAULT-GROUP.nacos", ns: "shop", ports: []model.Port{httpPort(80)}, edit: routedBy(v, newer)}), v, newer)
	m := routeTable(t, p, sidecar("c1", "shop"))
	checkTable(t, m)
	if d := cmp.Diff(map[string]string{"pay.DEFAULT-GROUP.nacos:80": "→v", "allow_any": "PassthroughCluster"}, leadsTo(m)); d != "" {
		t.Error(d)
	}
}

func TestUnknownHosts(t *testing.T) {
	t.Parallel()
	registryOnly := newMesh(func(m *settings) {
		m.Config.OutboundTrafficPolicy = &meshconfig.MeshConfig_OutboundTrafficPolicy{Mode: meshconfig.MeshConfig_OutboundTrafficPolicy_REGISTRY_ONLY}
	})
	policy := func(m networking.OutboundTrafficPolicy_Mode, proxy string) func(*gen.Class) {
		p := &networking.OutboundTrafficPolicy{Mode: m}
		if proxy != "" {
			p.EgressProxy = &networking.Destination{Host: proxy, Subset: "v1", Port: &networking.PortSelector{Number: 8080}}
		}
		return sidecarScope(p, egress(0, "*"))
	}
	allow, only := networking.OutboundTrafficPolicy_ALLOW_ANY, networking.OutboundTrafficPolicy_REGISTRY_ONLY
	for _, c := range []struct {
		mesh  *settings
		class gen.Class
		want  map[string]string
	}{
		{newMesh(), sidecar("c1", "a"), map[string]string{"allow_any": "PassthroughCluster"}},
		{registryOnly, sidecar("c1", "a"), map[string]string{"block_all": "502"}},
		{registryOnly, sidecar("c1", "a", policy(allow, "")), map[string]string{"allow_any": "PassthroughCluster"}},
		{newMesh(), sidecar("c1", "a", policy(only, "proxy.example")), map[string]string{"block_all": "502"}},
		{registryOnly, sidecar("c1", "a", policy(allow, "proxy.example")), map[string]string{"allow_any": "outbound|8080|v1|proxy.example"}},
		{newMesh(), sidecar("c1", "a", noInterception), map[string]string{"block_all": "502"}},
		{newMesh(), sidecar("c1", "a", noInterception, policy(allow, "proxy.example")), map[string]string{"allow_any": "outbound|8080|v1|proxy.example"}},
		{newMesh(), sidecar("c1", "a", sidecarScope(nil, egress(0, "*"))), map[string]string{"allow_any": "PassthroughCluster"}},
		{newMesh(), router("c1", "a"), map[string]string{}},
	} {
		got := leadsTo(routeTable(t, portView(80, c.mesh, cartService(nil)), c.class))
		delete(got, cartHost+":80")
		if d := cmp.Diff(c.want, got); d != "" {
			t.Error(d)
		}
	}
}

// An ExternalName service is another name of a service: requests take that one's routes, unless it has its own.
func TestAliasTakesTheRoutesOfItsService(t *testing.T) {
	t.Parallel()
	alias := func(own ...*pushcontext.VirtualService) svc {
		return svc{host: "alias.shop.svc.cluster.local", ports: []model.Port{httpPort(80)}, resolution: model.DNSLB, edit: func(s *pushcontext.ShapeView) {
			s.Alias, s.VirtualServices = cartHost, own
		}}
	}
	cartRoutes, own := answers(t, "cart", []string{cartHost}), answers(t, "own", []string{"alias.shop.svc.cluster.local"})
	forOthers := virtualService(t, "x", "http: [{match: [{port: 81}], redirect: {uri: /a}}]")
	for _, c := range []struct {
		services []svc
		want     string
	}{
		{[]svc{alias(), cartService(nil)}, "outbound|80||cart"},
		{[]svc{alias(), cartService(routedBy(cartRoutes))}, "→cart"},
		{[]svc{alias(own), cartService(routedBy(cartRoutes))}, "→own"},
		{[]svc{alias(forOthers), cartService(routedBy(cartRoutes))}, "→cart"},
		{[]svc{alias()}, "outbound|80||alias"},
	} {
		if got := leadsTo(routeTable(t, portView(80, newMesh(), c.services...), sidecar("c1", "shop")))["alias.shop.svc.cluster.local:80"]; got != c.want {
			t.Errorf("%s, want %s", got, c.want)
		}
	}
}

// hashRule is a DestinationRule that chooses endpoints by a header.
func hashRule(namespace, header string, selector model.Labels) *pushcontext.DestinationPolicy {
	return &pushcontext.DestinationPolicy{Namespace: namespace, Host: cartHost, Export: pushcontext.Export{Public: true}, Selector: selector,
		Spec: &networking.DestinationRule{Host: cartHost, TrafficPolicy: &networking.TrafficPolicy{LoadBalancer: &networking.LoadBalancerSettings{
			LbPolicy: &networking.LoadBalancerSettings_ConsistentHash{ConsistentHash: &networking.LoadBalancerSettings_ConsistentHashLB{
				HashKey: &networking.LoadBalancerSettings_ConsistentHashLB_HttpHeaderName{HttpHeaderName: header}}}}}}}
}

// What a DestinationRule has endpoints chosen by is hashed, by the rule in force for each proxy; a retry does not look
// for another endpoint then.
func TestRoutesHashByRuleInForce(t *testing.T) {
	t.Parallel()
	rules := []*pushcontext.DestinationPolicy{hashRule("other", "x-picked", model.Labels{"app": "web"}), hashRule("shop", "x-shop", nil), hashRule("other", "x-other", nil)}
	weighted := virtualService(t, "w", "http: [{route: [{destination: {host: "+cartHost+"}, weight: 1}, {destination: {host: "+cartHost+", port: {number: 81}}, weight: 1}, {destination: {host: x}, weight: 1}]}]",
		func(v *pushcontext.VirtualService) {
			v.Policies = map[string]*pushcontext.DestinationPolicies{cartHost: {Namespace: "shop", Policies: rules}}
		})
	for _, routes := range [][]*pushcontext.VirtualService{nil, {weighted}} {
		s := cartService(func(s *pushcontext.ShapeView) { s.Policies, s.VirtualServices = rules, routes })
		v := portView(80, newMesh(), s)
		for _, c := range []struct {
			class gen.Class
			want  string
		}{
			{sidecar("c1", "shop"), "x-shop"}, {sidecar("c1", "third"), "x-shop"}, {sidecar("c1", "other"), "x-other"},
			{sidecar("c1", "other", withLabels(model.Labels{"app": "web"})), "x-picked"},
			{sidecar("c1", "shop", withLabels(model.Labels{"app": "web"})), "x-shop"},
		} {
			c.class = gen.Routes{}.Narrow(v, c.class.Keep(gen.Routes{}.Traits(v)))
			a := virtualHostNamed(routeTable(t, v, c.class), cartHost+":80").Routes[0].GetRoute()
			if len(a.HashPolicy) != 1 || a.HashPolicy[0].GetHeader().GetHeaderName() != c.want {
				t.Errorf("%v: hashes %v, want %s", c.class.Namespace, a.HashPolicy, c.want)
			}
			if len(a.RetryPolicy.RetryHostPredicate) != 0 {
				t.Error("a retry looks for another endpoint, but the hash gives the same")
			}
		}
	}
}

// The routes of a service whose protocol is detected are in a table of its own.
func TestOwnTableHasRoutes(t *testing.T) {
	t.Parallel()
	s := cartService(routedBy(answers(t, "v", []string{cartHost}, exportedTo("shop"))))
	s.ports = []model.Port{autoPort(80)}
	v := portView(80, newMesh(), s)
	for namespace, want := range map[string]string{"shop": "→v", "other": "outbound|80||cart"} {
		for _, r := range build(t, gen.Routes{}, v, sidecar("c1", namespace)) {
			if m := decode(t, r).(*routev3.RouteConfiguration); m.Name == cartHost+":80" && leadsTo(m)[cartHost+":80"] != want {
				t.Errorf("%s: %v", namespace, leadsTo(m))
			}
		}
	}
}

// A Sidecar's egress listener for a port says which services are reached there; one for all ports says nothing of it.
func TestEgressListenerForAPort(t *testing.T) {
	t.Parallel()
	two := []model.Port{httpPort(80), httpPort(81)}
	all := []svc{{host: "a.example", ns: "a", ports: two}, {host: "b.example", ns: "b", ports: two}, {host: "c.example", ns: "c", ports: two}}
	class := sidecar("c1", "x", sidecarScope(nil, egress(80, "a"), egress(0, "b")))
	for port, want := range map[uint16][]string{80: {"a.example:80"}, 81: {"b.example:81"}} {
		var got []string
		for h := range domains(t, portView(port, newMesh(), all...), class) {
			got = append(got, h)
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("port %d:\n%s", port, d)
		}
	}
}

// Services of a listener for HTTP are found by host, whatever their own protocol is.
func TestEgressListenerForHTTP(t *testing.T) {
	t.Parallel()
	v := portView(80, newMesh(), svc{host: "tcp.example", ns: "a", ports: []model.Port{tcpPort(80)}}, svc{host: "b.example", ns: "a", ports: []model.Port{httpPort(80)}})
	for protocol, want := range map[string]string{"HTTP": "outbound|80||tcp.example", "TCP": "", "": ""} {
		e := egress(80, "a")
		e.Port.Protocol = protocol
		m := map[string]string{}
		for _, r := range build(t, gen.Routes{}, v, sidecar("c1", "x", sidecarScope(nil, e))) {
			m = leadsTo(decode(t, r).(*routev3.RouteConfiguration))
		}
		if got := m["tcp.example:80"]; got != want {
			t.Errorf("%q: %q, want %q", protocol, got, want)
		}
	}
}
