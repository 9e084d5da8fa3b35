package gen_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	xdsmatcherv3 "github.com/cncf/xds/go/xds/type/matcher/v3"
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	"github.com/google/go-cmp/cmp"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/pushcontext"
	"github.com/isthmus-mesh/isthmus/xds/gen"
)

func TestSelecting(t *testing.T) {
	t.Parallel()
	m := newMesh(crossing)
	m.AutoPassthrough = append(m.AutoPassthrough, pushcontext.AutoPassthrough{Port: 1}) // selects all
	for _, c := range []struct {
		labels model.Labels
		want   uint64
	}{
		{nil, 8}, {model.Labels{"istio": "eastwestgateway"}, 11}, {model.Labels{"app": "other", "x": "y"}, 12}, {model.Labels{"app": "x"}, 8},
	} {
		if got := gen.Selecting(m.MeshView, c.labels); got != c.want {
			t.Errorf("%v: %b, want %b", c.labels, got, c.want)
		}
	}
	for range 100 {
		m.AutoPassthrough = append(m.AutoPassthrough, pushcontext.AutoPassthrough{Port: 1})
	}
	if got := gen.Selecting(m.MeshView, nil); got != 1<<64-1-7 {
		t.Errorf("of very many: %x", got)
	}
}

func forwardedNames(t testing.TB, g gen.Generator, v pushcontext.View, c gen.Class) []string {
	t.Helper()
	return slices.DeleteFunc(names(t, g, v, c), func(n string) bool { return !strings.HasPrefix(n, "outbound_.") })
}

// Which services routers forward to, as the hosts of the servers that select them say.
func TestForwardedServices(t *testing.T) {
	t.Parallel()
	cart := svc{host: "cart.shop.svc.cluster.local", ports: []model.Port{httpPort(80), {Name: "dns", Number: 53, Protocol: model.ProtocolUDP}}}
	edited := func(f func(*pushcontext.ShapeView)) svc { s := cart; s.edit = f; return s }
	hosted := func(h string) svc { s := cart; s.host, s.ns = h, "shop"; return s }
	for name, c := range map[string]struct {
		servers uint64
		hosts   string
		svc     svc
		want    string
	}{
		"by suffix":           {1, "*.local", cart, "outbound_.80_._.cart.shop.svc.cluster.local"},
		"all":                 {1, "*", cart, "outbound_.80_._.cart.shop.svc.cluster.local"},
		"any case":            {1, "*.LOCAL", cart, "outbound_.80_._.cart.shop.svc.cluster.local"},
		"one":                 {1, "cart.shop.svc.cluster.local", cart, "outbound_.80_._.cart.shop.svc.cluster.local"},
		"another":             {1, "art.shop.svc.cluster.local", cart, ""},
		"other suffix":        {1, "*.example", cart, ""},
		"of a namespace":      {1, "shop/*", cart, "outbound_.80_._.cart.shop.svc.cluster.local"},
		"of another":          {1, "pay/*", cart, ""},
		"of the own":          {1, "./*", cart, ""},
		"of any":              {1, "*/*.local", cart, "outbound_.80_._.cart.shop.svc.cluster.local"},
		"router not meant":    {0, "*", cart, ""},
		"server not meant":    {2, "*", cart, ""},
		"headless":            {1, "*", svc{host: cart.host, ports: cart.ports, resolution: model.Passthrough}, "outbound_.80_._.cart.shop.svc.cluster.local"},
		"by name":             {1, "*", svc{host: cart.host, ports: cart.ports, resolution: model.DNSLB}, "outbound_.80_._.cart.shop.svc.cluster.local"},
		"by the request's":    {1, "*", svc{host: cart.host, ports: cart.ports, resolution: model.DynamicDNS}, ""},
		"outside":             {1, "*", edited(func(s *pushcontext.ShapeView) { s.External = true }), ""},
		"of one member":       {1, "*", edited(func(s *pushcontext.ShapeView) { s.Key.Cluster = "c1" }), ""},
		"wildcard":            {1, "*", hosted("*.example.com"), ""},
		"capitals":            {1, "*", hosted("Cart.example.com"), ""},
		"too long":            {1, "*", hosted(strings.Repeat("long.", 47) + "example.com"), ""},
		"port of the proxy's": {4, "*", cart, ""},
	} {
		m := newMesh(func(m *settings) {
			m.AutoPassthrough = []pushcontext.AutoPassthrough{{Namespace: "istio-system", Port: 15443, Hosts: []string{c.hosts}}, {Port: 0, Hosts: []string{"*"}},
				{Port: 15021, Hosts: []string{"*"}}}
		})
		v := c.svc.view(m)
		r := router("c1", "istio-system", forwarding(c.servers))
		clusters := forwardedNames(t, gen.Clusters{}, v.Shape, r)
		if got := strings.Join(clusters, " "); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
		if c.svc.resolution.IsDNS() {
			clusters = nil // their endpoints are in the cluster
		}
		if got := forwardedNames(t, gen.Endpoints{}, v, r); !slices.Equal(clusters, got) {
			t.Errorf("%s: clusters %v, endpoints %v", name, clusters, got)
		}
	}
}

// A router forwards to endpoints that take mutual TLS and that it dials itself, so that what came in by
// a gateway never leaves by one.
func TestForwardedEndpoints(t *testing.T) {
	t.Parallel()
	m := newMesh(crossing)
	s := svc{host: "cart.shop.svc.cluster.local", ports: []model.Port{httpPort(80)}, endpoints: []*model.Endpoint{
		ep("c2", "http", "10.2.0.1:8080", mtls, network("n2")),
		ep("c3", "http", "10.2.0.2:8080", mtls, network("n2"), demanding(model.MTLSStrict), weight(2)),
		ep("c2", "http", "10.2.0.3:8080", network("n2")),
		ep("c2", "http", "10.2.0.4:8080", mtls, network("n2"), demanding(model.MTLSDisabled)),
		ep("c2", "http", "10.2.0.5:8080", mtls, network("n2"), health(model.Unhealthy)),
		ep("c2", "http", "10.2.0.6:15443", mtls, network("n2"), func(e *model.Endpoint) { e.Labels = model.Labels{"istio": "eastwestgateway"} }),
		ep("c2", "http", "192.0.2.1:15443", mtls, network("n2")),
		ep("c2", "http", "10.2.0.7:8080", mtls, network("n2"), health(model.Terminating)),
		ep("c1", "http", "10.1.0.1:8080", mtls, network("n3")),
		ep("c1", "http", "10.1.0.2:8080", mtls, network("n1")),
		ep("c1", "http", "10.1.0.3:8080", mtls),
	}}
	v := s.view(m)
	// It has no certificates itself, and needs none: those of both ends are what counts.
	r := router("c2", "istio-system", forwarding(1), func(c *gen.Class) { c.Network = "n2" })
	var got *endpointv3.ClusterLoadAssignment
	for _, x := range build(t, gen.Endpoints{}, v, r) {
		if strings.HasPrefix(x.name, "outbound_.") {
			got = decode(t, x).(*endpointv3.ClusterLoadAssignment)
		}
	}
	// Weights are scaled like all of a mesh with several networks.
	want := []string{"p0  w=36: 10.1.0.2:8080*6 10.1.0.3:8080*6 10.2.0.1:8080*6 10.2.0.2:8080*12 10.2.0.5:8080*6!"}
	if d := cmp.Diff(want, assignmentText(got)); d != "" {
		t.Error(d)
	}
	if name := got.ClusterName; name != "outbound_.80_._.cart.shop.svc.cluster.local" {
		t.Errorf("named %s", name)
	}
	verdicts := gen.ExplainPassthrough(v, r, s.ports[0])
	if d := cmp.Diff(map[string]model.Reason{
		"10.2.0.3:8080": model.ReasonNoMTLS, "10.2.0.4:8080": model.ReasonNoMTLS, "10.2.0.6:15443": model.ReasonOtherNetwork,
		"192.0.2.1:15443": model.ReasonOtherNetwork, "10.2.0.7:8080": model.ReasonTerminating, "10.1.0.1:8080": model.ReasonOtherNetwork,
	}, reasons(verdicts)); d != "" {
		t.Error(d)
	}
	if len(verdicts) != len(s.endpoints) {
		t.Errorf("%d verdicts for %d endpoints", len(verdicts), len(s.endpoints))
	}
	for _, x := range verdicts {
		if len(x.Gateways) > 0 {
			t.Errorf("%v is entered through %v", x.Endpoint.Addr, x.Gateways)
		}
	}
	if x := gen.ExplainPassthrough(v, router("c2", "istio-system"), s.ports[0]); x != nil {
		t.Errorf("a router that does not forward: %v", x)
	}
}

// A DestinationRule that demands mutual TLS is believed by those who call, so it is by those who forward;
// one that the router has no certificates for demands nothing of it.
func TestForwardedByRule(t *testing.T) {
	t.Parallel()
	for mode, want := range map[networking.ClientTLSSettings_TLSmode]int{networking.ClientTLSSettings_ISTIO_MUTUAL: 2, networking.ClientTLSSettings_DISABLE: 1} {
		s := cart(ep("c2", "http", "10.2.0.1:8080", mtls), ep("c2", "http", "10.2.0.2:8080"))
		s.edit = ruled(tlsMode(mode))
		sent := slices.DeleteFunc(gen.ExplainPassthrough(s.view(newMesh(crossing)), router("c2", "istio-system", forwarding(1)), s.ports[0]), func(v gen.Verdict) bool { return !v.Sent })
		if len(sent) != want {
			t.Errorf("%s: forwards to %d, want %d", mode, len(sent), want)
		}
	}
}

// A router resolves names itself, of endpoints on its own network.
func TestForwardedByName(t *testing.T) {
	t.Parallel()
	s := svc{host: "vm.example.com", ns: "shop", ports: []model.Port{httpPort(80)}, resolution: model.DNSLB, inline: []*model.Endpoint{
		ep("c2", "http", "a.example.com:80", mtls, network("n2")), ep("c2", "http", "b.example.com:80", network("n2")), ep("c3", "http", "c.example.com:80", mtls, network("n3"))}}
	for _, x := range build(t, gen.Clusters{}, s.shape(newMesh(crossing)), router("c2", "istio-system", forwarding(1), func(c *gen.Class) { c.Network = "n2" })) {
		c := decode(t, x).(*clusterv3.Cluster)
		if !strings.HasPrefix(c.Name, "outbound_.") {
			continue
		}
		got := assignmentText(c.LoadAssignment)
		if c.GetType() != clusterv3.Cluster_STRICT_DNS || len(got) != 1 || strings.Count(got[0], "example.com") != 1 || !strings.Contains(got[0], "a.example.com:80") || c.TransportSocketMatches != nil {
			t.Errorf("%v %v", got, c)
		}
		return
	}
	t.Error("it is not forwarded to")
}

// Whatever a client says, a forwarding cluster secures nothing and speaks no HTTP: bytes pass.
func TestForwardingCluster(t *testing.T) {
	t.Parallel()
	v := secureServices()[0].shape(newMesh(crossing))
	for _, r := range build(t, gen.Clusters{}, v, router("c1", "istio-system", secured, forwarding(1))) {
		c := decode(t, r).(*clusterv3.Cluster)
		forwards := strings.HasPrefix(c.Name, "outbound_.")
		bare := c.TransportSocket == nil && c.TransportSocketMatches == nil && c.TypedExtensionProtocolOptions == nil
		if forwards != bare || c.GetType() != clusterv3.Cluster_EDS || forwards && c.EdsClusterConfig.ServiceName != c.Name {
			t.Errorf("%s: %v", c.Name, c)
		}
	}
}

// matches evaluates the matcher of a forwarding listener for a server name, of a client that speaks Istio's protocols if istio.
func matches(t testing.TB, p *xdsmatcherv3.Matcher_MatcherList_Predicate, name string, istio bool) bool {
	t.Helper()
	has := func(p *xdsmatcherv3.Matcher_MatcherList_Predicate) bool { return matches(t, p, name, istio) }
	switch {
	case p.GetAndMatcher() != nil:
		return !slices.ContainsFunc(p.GetAndMatcher().Predicate, func(p *xdsmatcherv3.Matcher_MatcherList_Predicate) bool { return !has(p) })
	case p.GetOrMatcher() != nil:
		if len(p.GetOrMatcher().Predicate) < 2 {
			t.Error("Envoy refuses a list of one")
		}
		return slices.ContainsFunc(p.GetOrMatcher().Predicate, has)
	}
	v := p.GetSinglePredicate().GetValueMatch()
	if p.GetSinglePredicate().Input.Name == "envoy.matching.inputs.application_protocol" {
		name = "'h2','http/1.1'"
		if istio {
			name = "'istio','h2'"
		}
	}
	return v.GetPrefix() != "" && strings.HasPrefix(name, v.GetPrefix()) || v.GetSuffix() != "" && strings.HasSuffix(name, v.GetSuffix()) ||
		v.GetContains() != "" && strings.Contains(name, v.GetContains()) || v.GetExact() != "" && name == v.GetExact()
}

// chosen gives the name of the chain that a listener's matcher chooses, "" for none.
func chosen(t testing.TB, l *listenerv3.Listener, name string, istio bool) string {
	t.Helper()
	for _, m := range l.FilterChainMatcher.GetMatcherList().Matchers {
		if matches(t, m.Predicate, name, istio) {
			return m.OnMatch.GetAction().Name
		}
	}
	return l.FilterChainMatcher.GetOnNoMatch().GetAction().GetName()
}

func TestForwardingListener(t *testing.T) {
	t.Parallel()
	m := newMesh(crossing)
	m.AutoPassthrough[0].Hosts = []string{"*.local"}
	listen := func(servers uint64, edits ...func(*gen.Class)) map[string]*listenerv3.Listener {
		out := map[string]*listenerv3.Listener{}
		class := router("c1", "istio-system", append(edits, forwarding(servers))...)
		for _, r := range build(t, gen.Listeners{}, gatewaysView(m, forwardingServers(m)), class) {
			out[r.name] = decode(t, r).(*listenerv3.Listener)
		}
		return out
	}
	all := listen(5)
	if len(all) != 2 || all["gateway_0.0.0.0_15443"] == nil || all["gateway_0.0.0.0_16443"] == nil {
		t.Fatalf("%v", all)
	}
	for name, want := range map[string]bool{
		"outbound_.80_._.cart.shop.svc.cluster.local": true, "outbound_.80_.v1_.cart.shop.svc.cluster.local": true, "outbound_.80_._.a.example": false, "": false,
		// A client must not get at clusters that are not for forwarding.
		"outbound|80||cart.shop.svc.cluster.local": false, "BlackHoleCluster": false, "isthmus.local": false,
	} {
		l := all["gateway_0.0.0.0_15443"]
		if got := chosen(t, l, name, true); (got != "") != want {
			t.Errorf("%q passes: %q", name, got)
		}
		if got := chosen(t, l, name, false); got != "" {
			t.Errorf("%q passes from outside the mesh", name)
		}
	}
	everything := all["gateway_0.0.0.0_16443"]
	if chosen(t, everything, "outbound_.80_._.a.example", true) == "" || chosen(t, everything, "a.example", true) != "" {
		t.Errorf("for all hosts: %v", everything)
	}
	m.AutoPassthrough[2].Hosts = nil // Envoy refuses a list of no names
	if l := listen(4); len(l) != 0 {
		t.Errorf("for no hosts: %v", l)
	}
	if l := listen(0); len(l) != 0 {
		t.Errorf("a router that is not meant listens: %v", l)
	}
	if l := listen(3); len(l) != 1 {
		t.Errorf("servers that share a port: %v", l)
	}
	both := listen(1, func(c *gen.Class) { c.IPv6 = true })["gateway_0.0.0.0_15443"]
	if len(both.GetAdditionalAddresses()) != 1 || !both.GetBindToPort().GetValue() && both.GetBindToPort() != nil {
		t.Errorf("of both families: %v", both)
	}
}

// Where a router forwards, services have no listener: two at one address would be refused.
func TestForwardingHasThePortForItself(t *testing.T) {
	t.Parallel()
	s := svc{host: "gw.shop.svc.cluster.local", ports: []model.Port{tcpPort(15443), tcpPort(16443)}, vips: members("c1", "10.0.0.1")}
	m := newMesh(crossing)
	for ports, taken := range map[string]uint16{"": 15443, "15443:16443": 16443} {
		r := router("c1", "a", forwarding(1), func(c *gen.Class) { c.GatewayPorts, c.ExposeServices = ports, true })
		for _, port := range []uint16{15443, 16443} {
			v, free := portView(port, m, s), port != taken
			if got := names(t, gen.Listeners{}, v, r); (len(got) == 1) != free {
				t.Errorf("%d, forwarding on %d: %v", port, taken, got)
			}
			if b, _ := (gen.Listeners{}).Build(v, r, fmt.Sprintf("0.0.0.0_%d", port)); (b != nil) != free {
				t.Errorf("the listener of %d, forwarding on %d, is built: %v", port, taken, b != nil)
			}
		}
	}
	if got := names(t, gen.Listeners{}, portView(15443, m, s), sidecar("c1", "a")); len(got) == 0 {
		t.Error("sidecars don't listen where routers forward")
	}
}

// A router for which Gateways only let other networks in goes on exposing services.
func TestConfigured(t *testing.T) {
	t.Parallel()
	m := newMesh(crossing)
	labels := model.Labels{"istio": "eastwest"}
	auto, web := selecting(labels, forwardingServers(m)), selecting(labels, gatewayOf("web", httpServer(80, "*")))
	for _, tt := range []struct {
		name    string
		servers []*pushcontext.GatewayServer
		router  model.Labels
		want    bool
	}{
		{"none", nil, labels, false},
		{"AUTO_PASSTHROUGH only", auto, labels, false},
		{"HTTP beside it", join(auto, web), labels, true},
		{"for others", join(auto, web), model.Labels{"istio": "ingress"}, false},
	} {
		if got := gen.Configured(gatewaysView(m, tt.servers), tt.router); got != tt.want {
			t.Errorf("%s: %v", tt.name, got)
		}
	}
	if gen.Configured(nil, labels) {
		t.Error("no Gateways at all configure routers")
	}
}
