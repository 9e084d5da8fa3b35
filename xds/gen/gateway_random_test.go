package gen_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/pushcontext"
	"github.com/isthmus-mesh/isthmus/xds/gen"
)

var anyHosts = []string{"*", "a.example", "A.example.", "*.example", "b.example", "*x.example", "a*b", "", "*.local", "cart.shop.svc.cluster.local", "*.*", "x y", "1.2.3.4"}

// anyServer is one that validation may or may not let through.
func anyServer(r *rand.Rand) *networking.Server {
	s := server(pick[uint32](r, 80, 443, 443, 443, 443, 8080, []uint32{0, 70000, 15021}[r.IntN(3)]), pick(r, "HTTP", "HTTPS", "HTTPS", "HTTPS", "TLS", "TCP", "GRPC-Web", []string{"UDP", "", "Mongo"}[r.IntN(3)]))
	s.Port.Name = pick(r, "a", "b", "c", "d", "", "a:80", "a.b")
	s.Bind = pick(r, "", "", "", "", "", "", "0.0.0.0", []string{"10.0.0.1", "::1", "unix:///run/x", "unix://", "x"}[r.IntN(5)])
	for range r.IntN(3) {
		s.Hosts = append(s.Hosts, pick(r, anyHosts...))
	}
	if r.IntN(3) > 0 {
		s.Tls = tlsOf(networking.ServerTLSSettings_TLSmode(r.IntN(6)))
		s.Tls.HttpsRedirect = r.IntN(3) == 0
		if r.IntN(6) == 0 {
			s.Tls.CredentialName = "c"
		}
		s.Tls.CipherSuites = pick(r, nil, []string{"AES128-SHA", "NONE"}, []string{"DES-CBC3-SHA"})
		s.Tls.EcdhCurves = pick(r, nil, []string{"P-256", "x"})
		s.Tls.MinProtocolVersion, s.Tls.MaxProtocolVersion = networking.ServerTLSSettings_TLSProtocol(r.IntN(5)), networking.ServerTLSSettings_TLSProtocol(r.IntN(5))
	}
	return s
}

func anyGatewayRoutes(r *rand.Rand, i int) *pushcontext.VirtualService {
	gateway := pick(r, "istio-system/g0", "istio-system/g1")
	rules := pick(r, toCart, toDB, `tls: [{match: [{sniHosts: ['a.example', '*.example', '*']}], route: [{destination: {host: a}}]}, {match: [{sniHosts: ['a.example'], port: 443}], route: [{destination: {host: b}, weight: 0}]}]`,
		`http: [{match: [{uri: {prefix: /x}}, {uri: {regex: '('}}], redirect: {authority: b}}, {match: [{port: 80}], directResponse: {status: 200}}, {}]`, `tcp: [{match: [{port: 443}], route: [{destination: {host: a}, weight: 1}, {destination: {host: b}, weight: 2147483647}, {destination: {host: c}, weight: 2147483647}]}]`)
	v := routedTo(fmt.Sprint("v", i), gateway, "'"+pick(r, anyHosts...)+"', '"+pick(r, anyHosts...)+"'", rules)
	for j, h := range v.Hosts {
		v.Hosts[j] = strings.ToLower(h)
	}
	return v
}

func anyGatewayView(r *rand.Rand) *pushcontext.GatewaysView {
	var servers []*pushcontext.GatewayServer
	for i := range 2 {
		var list []*networking.Server
		for range r.IntN(9) {
			list = append(list, anyServer(r))
		}
		servers = join(servers, selecting(pick[model.Labels](r, nil, nil, model.Labels{"istio": "edge"}), gatewayOf(fmt.Sprint("g", i), list...)))
	}
	var routes []*pushcontext.VirtualService
	for i := range r.IntN(8) {
		routes = append(routes, anyGatewayRoutes(r, i))
	}
	return gatewaysView(newMesh(), servers, routes...)
}

// Whatever Gateways say, listeners and tables are such that Envoy takes them, and those that the verdicts name.
func TestAnyGatewaysAreTaken(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(3, 4))
	shared, matched, hosts := 0, 0, 0 // or else nothing would be tested
	for i := range 400 {
		v, c := anyGatewayView(r), edge(secured, withLabels(model.Labels{"istio": pick(r, "edge", "other")}), func(c *gen.Class) { c.IPv6 = r.IntN(2) == 0 })
		agree(t, v, c)
		for _, x := range append(build(t, gen.Listeners{}, v, c), build(t, gen.Routes{}, v, c)...) {
			switch m := decode(t, x).(type) {
			case *listenerv3.Listener:
				if err := m.ValidateAll(); err != nil || len(m.FilterChains) == 0 {
					t.Fatalf("%d: %v\n%s", i, err, text(t, m))
				}
				distinctChains(t, m)
				if m.FilterChainMatcher != nil {
					matched++
				} else if len(m.FilterChains) > 1 {
					shared++
				}
			case *routev3.RouteConfiguration:
				if err := m.ValidateAll(); err != nil {
					t.Fatalf("%d: %v\n%s", i, err, text(t, m))
				}
				distinctDomains(t, m)
				if len(m.VirtualHosts) > 1 {
					hosts++
				}
			}
		}
	}
	if shared < 10 || matched < 10 || hosts < 10 {
		t.Errorf("%d listeners with several chains, %d that a matcher chooses from, %d tables with several hosts", shared, matched, hosts)
	}
}

func distinctChains(t *testing.T, l *listenerv3.Listener) {
	t.Helper()
	seen := map[string]bool{}
	for _, f := range l.FilterChains {
		names := f.GetFilterChainMatch().GetServerNames()
		if l.FilterChainMatcher != nil {
			names = []string{f.Name}
		} else if len(names) == 0 {
			names = []string{""}
		}
		for _, n := range names {
			if seen[n] {
				t.Fatalf("two chains have %q:\n%s", n, text(t, l))
			}
			seen[n] = true
		}
	}
}

func distinctDomains(t *testing.T, m *routev3.RouteConfiguration) {
	t.Helper()
	seen := map[string]bool{}
	for _, h := range m.VirtualHosts {
		for _, d := range append([]string{"name " + h.Name}, h.Domains...) {
			if d = strings.ToLower(d); seen[d] {
				t.Fatalf("%q is there twice:\n%s", d, text(t, m))
			}
			seen[d] = true
		}
	}
}

// A stock Envoy takes them indeed.
func TestEnvoyAcceptsAnyGateways(t *testing.T) {
	t.Parallel()
	envoy := os.Getenv("ISTHMUS_ENVOY")
	if envoy == "" {
		t.Skip("ISTHMUS_ENVOY does not name an Envoy binary: the listeners are not validated by a real proxy here")
	}
	files := mounted(t)
	r := rand.New(rand.NewPCG(5, 6))
	for range 40 {
		v, c := anyGatewayView(r), edge(secured)
		b := &bootstrapv3.Bootstrap{
			Node:             &corev3.Node{Id: "test", Cluster: "test"},
			StaticResources:  &bootstrapv3.Bootstrap_StaticResources{Clusters: []*clusterv3.Cluster{staticCluster("xds")}},
			DynamicResources: &bootstrapv3.Bootstrap_DynamicResources{AdsConfig: adsConfig()},
		}
		all := append(build(t, gen.Listeners{}, v, c), build(t, gen.Routes{}, v, c)...)
		for _, x := range all {
			embed(t, b.StaticResources, decode(t, x))
		}
		if why := validated(t, envoy, files, b); why != "" {
			t.Errorf("%s\n%v", why, all)
		}
	}
}
