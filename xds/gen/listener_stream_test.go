package gen_test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	tcpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"
	"google.golang.org/protobuf/types/known/durationpb"
	meshconfig "istio.io/api/mesh/v1alpha1"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/pushcontext"
	"github.com/isthmus-mesh/isthmus/xds/evaluate"
	"github.com/isthmus-mesh/isthmus/xds/gen"
)

// streams tells where connections go that a class of proxies opens at a port.
type streams struct {
	testing.TB
	config *evaluate.Config
}

func streamsAt(t testing.TB, v *pushcontext.PortView, c gen.Class) streams {
	t.Helper()
	s := streams{t, evaluate.New()}
	for _, view := range []pushcontext.View{v, v.Mesh} {
		for _, r := range build(t, gen.Listeners{}, view, c) {
			if err := s.config.Add(decode(t, r)); err != nil {
				t.Fatal(err)
			}
		}
	}
	return s
}

// to gives the clusters of a connection, without what all of them have in common, or what becomes of it otherwise.
func (s streams) to(destination, serverName string) string {
	s.Helper()
	r := s.config.Evaluate(evaluate.Request{Destination: netip.MustParseAddrPort(destination), Protocol: evaluate.TCP, TLS: serverName != "", ServerName: serverName})
	var out []string
	for _, c := range r.Clusters {
		name := strings.TrimSuffix(strings.TrimPrefix(c.Cluster, "outbound|"), ".shop.svc.cluster.local")
		if len(r.Clusters) > 1 {
			name += fmt.Sprintf("*%v", c.Percent)
		}
		out = append(out, name)
	}
	if len(out) == 0 {
		return string(r.Kind)
	}
	return strings.Join(out, " ")
}

func tlsPort(n uint16) model.Port {
	return model.Port{Name: "tls", Number: n, Protocol: model.ProtocolTLS}
}

// routed is a service with one VirtualService.
func routed(t testing.TB, host string, p model.Port, vips map[model.ClusterID][]string, specs ...string) svc {
	return svc{host: host, ns: "shop", ports: []model.Port{p}, vips: vips, edit: func(s *pushcontext.ShapeView) {
		for i, spec := range specs {
			s.VirtualServices = append(s.VirtualServices, virtualService(t, fmt.Sprint("v", i), spec))
		}
	}}
}

type streamCase struct{ to, name, want string }

func TestStreamRoutes(t *testing.T) {
	t.Parallel()
	const to = "route: [{destination: {host: %s.shop.svc.cluster.local, port: {number: %d}}}]"
	dest := func(host string, port int) string { return fmt.Sprintf(to, host, port) }
	for name, c := range map[string]struct {
		port     model.Port
		addr     string
		specs    []string
		unlisted []string // VirtualServices for hosts of no service
		class    []func(*gen.Class)
		cases    []streamCase
	}{
		"TCP": {port: tcpPort(5000), addr: "10.0.0.1", specs: []string{"tcp: [{" + dest("b", 6000) + "}]"}, cases: []streamCase{{"10.0.0.1:5000", "", "6000||b"}}},
		"weights": {port: tcpPort(5000), addr: "10.0.0.1", specs: []string{
			"tcp: [{route: [{destination: {host: a.shop.svc.cluster.local, subset: v1}, weight: 3}, {destination: {host: b.shop.svc.cluster.local}, weight: 1}, {destination: {host: c}, weight: 0}]}]"},
			cases: []streamCase{{"10.0.0.1:5000", "", "5000|v1|a*75 5000||b*25"}}},
		"nothing has a weight": {port: tcpPort(5000), addr: "10.0.0.1", specs: []string{"tcp: [{route: [{destination: {host: a}}, {destination: {host: b}}]}]"},
			cases: []streamCase{{"10.0.0.1:5000", "", "BlackHoleCluster"}}},
		"ranges": {port: tcpPort(5000), addr: "10.0.0.0/8", specs: []string{"tcp: [{match: [{destinationSubnets: [10.1.0.0/16, 10.2.0.1]}], " + dest("b", 1) + "}, {match: [{port: 5001}], " + dest("c", 1) + "}]"},
			cases: []streamCase{{"10.1.2.3:5000", "", "1||b"}, {"10.2.0.1:5000", "", "1||b"}, {"10.2.0.2:5000", "", "5000||a"}, {"11.0.0.1:5000", "", "PassthroughCluster"}}},
		"sources": {port: tcpPort(5000), addr: "10.0.0.1", class: []func(*gen.Class){withLabels(model.Labels{"app": "web"})}, specs: []string{
			"tcp: [{match: [{sourceLabels: {app: db}}], " + dest("b", 1) + "}, {match: [{sourceNamespace: other}], " + dest("b", 2) + "}, {match: [{gateways: [x/y]}], " + dest("b", 3) +
				"}, {match: [{sourceLabels: {app: web}, gateways: [mesh], sourceNamespace: shop, port: 5000}], " + dest("b", 4) + "}, {" + dest("b", 5) + "}]"},
			cases: []streamCase{{"10.0.0.1:5000", "", "4||b"}}},
		"no TLS routes where the protocol is TCP": {port: tcpPort(5000), addr: "10.0.0.1", specs: []string{"tls: [{match: [{sniHosts: [x.example]}], " + dest("b", 1) + "}]"},
			cases: []streamCase{{"10.0.0.1:5000", "x.example", "5000||a"}}},
		"TLS": {port: tlsPort(443), addr: "10.0.0.1", specs: []string{"tls: [{match: [{sniHosts: [x.example, '*.y.example']}, {sniHosts: [z.example]}], " + dest("b", 1) + "}, {match: [{sniHosts: [X.example]}], " + dest("c", 1) + "}]"},
			cases: []streamCase{{"10.0.0.1:443", "x.example", "1||b"}, {"10.0.0.1:443", "a.y.example", "1||b"}, {"10.0.0.1:443", "y.example", "PassthroughCluster"}, {"10.0.0.1:443", "z.example", "1||b"}, {"10.0.0.1:443", "", "PassthroughCluster"}}},
		"the first rule for a name counts": {port: tlsPort(443), addr: "10.0.0.1", specs: []string{"tls: [{match: [{sniHosts: [x.example]}], " + dest("b", 1) + "}]", "tls: [{match: [{sniHosts: [x.example, y.example]}], " + dest("c", 1) + "}]"},
			cases: []streamCase{{"10.0.0.1:443", "x.example", "1||b"}, {"10.0.0.1:443", "y.example", "1||c"}}},
		"rules of several kinds in several objects": {port: tcpPort(5000), addr: "10.0.0.1", specs: []string{"http: [{" + dest("b", 1) + "}]", "tcp: [{" + dest("c", 1) + "}]"},
			cases: []streamCase{{"10.0.0.1:5000", "", "1||c"}}},
		"without an address": {port: tlsPort(443), specs: []string{"tls: [{match: [{sniHosts: [a.example]}], " + dest("b", 1) + "}]"},
			cases: []streamCase{{"9.9.9.9:443", "a.example", "1||b"}, {"9.9.9.9:443", "b.example", "PassthroughCluster"}}},
		"without an address or routes": {port: tlsPort(443), cases: []streamCase{{"9.9.9.9:443", "a.shop.svc.cluster.local", "443||a"}, {"9.9.9.9:443", "b.example", "PassthroughCluster"}}},
		"all names":                    {port: tlsPort(443), addr: "10.0.0.1", specs: []string{"tls: [{match: [{sniHosts: ['*']}], " + dest("b", 1) + "}]"}, cases: []streamCase{{"10.0.0.1:443", "any.example", "1||b"}}},
		"hosts of no service": {port: tlsPort(443), addr: "10.0.0.1", unlisted: []string{"{hosts: [x.example], tls: [{match: [{sniHosts: [x.example]}], " + dest("b", 1) + "}]}"},
			cases: []streamCase{{"9.9.9.9:443", "x.example", "PassthroughCluster"}, {"10.0.0.1:443", "y.example", "443||a"}}},
		"a protocol that is detected": {port: autoPort(5000), addr: "10.0.0.1", specs: []string{"tcp: [{" + dest("b", 1) + "}]"}, cases: []streamCase{{"10.0.0.1:5000", "", "1||b"}}},
		"without interception":        {port: tlsPort(443), addr: "10.0.0.1", class: []func(*gen.Class){noInterception}, specs: []string{"tls: [{match: [{sniHosts: [x.example]}], " + dest("b", 1) + "}]"}, cases: []streamCase{{"127.0.0.1:443", "x.example", "1||b"}, {"127.0.0.1:443", "y.example", "closed"}}},
		"a router":                    {port: tcpPort(5000), addr: "10.0.0.1", class: []func(*gen.Class){func(c *gen.Class) { c.Type, c.ExposeServices = gen.Router, true }}, specs: []string{"tcp: [{" + dest("b", 1) + "}]"}, cases: []streamCase{{"10.0.0.1:5000", "", "5000||a"}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			vips := map[model.ClusterID][]string{}
			if c.addr != "" {
				vips = members("c1", c.addr)
			}
			v := portView(c.port.Number, newMesh(), routed(t, "a.shop.svc.cluster.local", c.port, vips, c.specs...))
			for _, spec := range c.unlisted {
				v = unclaimed(v, virtualService(t, "u", spec))
			}
			s := streamsAt(t, v, sidecar("c1", "shop", c.class...))
			for _, x := range c.cases {
				if got := s.to(x.to, x.name); got != x.want {
					t.Errorf("%s to %s: %q, want %q", x.name, x.to, got, x.want)
				}
			}
		})
	}
}

// A chain for a narrow range and one server name does not hide what a wider range has for others: Envoy looks at the range
// first, and does not come back.
func TestNarrowRangeHidesNoWiderOne(t *testing.T) {
	t.Parallel()
	list := []svc{
		routed(t, "wide.example", tlsPort(443), members("c1", "10.0.0.0/8")), routed(t, "narrow.example", tlsPort(443), members("c1", "10.1.0.0/16")),
		routed(t, "*.any.example", tlsPort(443), nil), {host: "web.example", ns: "shop", ports: []model.Port{httpPort(443)}},
	}
	s := streamsAt(t, portView(443, newMesh(), list...), sidecar("c1", "shop"))
	for _, c := range []streamCase{
		{"10.1.0.1:443", "narrow.example", "443||narrow.example"}, {"10.1.0.1:443", "wide.example", "443||wide.example"}, {"10.2.0.1:443", "wide.example", "443||wide.example"},
		{"10.2.0.1:443", "narrow.example", "PassthroughCluster"}, {"10.1.0.1:443", "x.any.example", "443||*.any.example"}, {"9.9.9.9:443", "x.any.example", "443||*.any.example"},
		{"10.1.0.1:443", "", "PassthroughCluster"},
	} {
		if got := s.to(c.to, c.name); got != c.want {
			t.Errorf("%s to %s: %q, want %q", c.name, c.to, got, c.want)
		}
	}
	r := s.config.Evaluate(evaluate.Request{Destination: netip.MustParseAddrPort("10.1.0.1:443"), Authority: "web.example"})
	if len(r.Steps) == 0 || !strings.Contains(fmt.Sprint(r.Steps), "ranges-http") {
		t.Errorf("HTTP in a range: %+v", r)
	}
}

// wideAndNarrow is a random port of services with ranges and TLS routes.
type wideAndNarrow struct {
	*rand.Rand
	rules []naiveRule
}

// naiveRule is one match, in the order in which they count.
type naiveRule struct {
	at      netip.Prefix // invalid: everywhere
	name    string       // "" for all
	cluster string
}

func (w *wideAndNarrow) view(t testing.TB) *pushcontext.PortView {
	ranges := []string{"10.0.0.0/8", "10.1.0.0/16", "10.1.1.0/24", "10.1.1.1/32", "10.2.0.0/16", "0.0.0.0/0"}
	names := []string{"a.example", "b.example", "*.example", "*.a.example", "x.a.example", "*"}
	var list []svc
	for i := range 1 + w.IntN(4) {
		host := fmt.Sprintf("s%d.shop.svc.cluster.local", i)
		var rules []string
		for n := range 1 + w.IntN(3) {
			var at, sni []string
			for range w.IntN(3) {
				at = append(at, ranges[w.IntN(len(ranges))])
			}
			for range 1 + w.IntN(2) {
				sni = append(sni, "'"+names[w.IntN(len(names))]+"'")
			}
			rules = append(rules, fmt.Sprintf("{match: [{sniHosts: [%s], destinationSubnets: [%s]}], route: [{destination: {host: %s, port: {number: %d}}}]}", strings.Join(sni, ", "), strings.Join(at, ", "), host, n+1))
			w.add(at, sni, fmt.Sprintf("%d||s%d", n+1, i))
		}
		s := routed(t, host, tlsPort(443), nil, "tls: ["+strings.Join(rules, ", ")+"]")
		s.age = 10 - i
		list = append(list, s)
	}
	return portView(443, newMesh(), list...)
}

func (w *wideAndNarrow) add(ranges, names []string, cluster string) {
	if len(ranges) == 0 {
		ranges = []string{""}
	}
	if slices.Contains(names, "'*'") {
		names = []string{"''"}
	}
	for _, r := range ranges {
		at, _ := netip.ParsePrefix(r)
		if at.Bits() == 0 {
			at = netip.Prefix{} // to Envoy, all addresses are no range
		}
		for _, n := range names {
			w.rules = append(w.rules, naiveRule{at, strings.Trim(n, "'"), cluster})
		}
	}
}

// to looks at ranges from narrow to wide, and in each at names from specific to general.
func (w *wideAndNarrow) to(ip netip.Addr, name string) string {
	best, found := naiveRule{}, false
	better := func(r naiveRule) bool {
		bits := func(r naiveRule) int {
			if !r.at.IsValid() {
				return -1
			}
			return r.at.Bits()
		}
		specific := func(n string) int {
			if strings.HasPrefix(n, "*") {
				return len(n)
			}
			return 100 * len(n)
		}
		if bits(r) != bits(best) {
			return bits(r) > bits(best)
		}
		return specific(r.name) > specific(best.name)
	}
	for _, r := range w.rules {
		if r.at.IsValid() && !r.at.Contains(ip) || r.name != "" && r.name != name && !(strings.HasPrefix(r.name, "*.") && strings.HasSuffix(name, r.name[1:])) {
			continue
		}
		if !found || better(r) {
			best, found = r, true
		}
	}
	if !found {
		return "PassthroughCluster"
	}
	return best.cluster
}

func TestRangesAndNames(t *testing.T) {
	t.Parallel()
	met := map[bool]int{}
	for seed := range uint64(400) {
		w := &wideAndNarrow{Rand: rand.New(rand.NewPCG(seed, 7))}
		s := streamsAt(t, w.view(t), sidecar("c1", "shop"))
		for _, ip := range []string{"10.1.1.1", "10.1.1.2", "10.1.2.1", "10.3.0.1", "10.2.0.1", "11.0.0.1"} {
			for _, name := range []string{"a.example", "b.example", "x.a.example", "y.a.example", "c.example", "other.test"} {
				want := w.to(netip.MustParseAddr(ip), name)
				met[want == "PassthroughCluster"]++
				if got := s.to(ip+":443", name); got != want {
					t.Fatalf("seed %d: %s to %s goes to %q, want %q: %+v", seed, name, ip, got, want, w.rules)
				}
			}
		}
	}
	if met[true] < 100 || met[false] < 100 {
		t.Errorf("%v: the test says little", met)
	}
}

// What DestinationRules say of connections is in the TCP proxies that send them, with what else the destination decides.
func TestStreamPolicies(t *testing.T) {
	t.Parallel()
	pooled := &networking.TrafficPolicy{
		ConnectionPool: &networking.ConnectionPoolSettings{Tcp: &networking.ConnectionPoolSettings_TCPSettings{IdleTimeout: durationpb.New(5e9)}},
		LoadBalancer: &networking.LoadBalancerSettings{LbPolicy: &networking.LoadBalancerSettings_ConsistentHash{ConsistentHash: &networking.LoadBalancerSettings_ConsistentHashLB{
			HashKey: &networking.LoadBalancerSettings_ConsistentHashLB_UseSourceIp{UseSourceIp: true}}}},
		Tunnel: &networking.TrafficPolicy_TunnelSettings{TargetHost: "x.example", TargetPort: 443},
	}
	own := underRules(routed(t, "a.shop.svc.cluster.local", tcpPort(5000), members("c1", "10.0.0.1")), destination("shop", "r", pooled))
	byRoute := own
	byRoute.edit = func(s *pushcontext.ShapeView) {
		s.Policies = []*pushcontext.DestinationPolicy{destination("shop", "r", pooled)}
		s.VirtualServices = []*pushcontext.VirtualService{virtualService(t, "v", "tcp: [{route: [{destination: {host: a.shop.svc.cluster.local}}]}]")}
	}
	elsewhere := routed(t, "a.shop.svc.cluster.local", tcpPort(5000), members("c1", "10.0.0.1"))
	elsewhere.edit = func(s *pushcontext.ShapeView) {
		v := virtualService(t, "v", "tcp: [{route: [{destination: {host: proxy.shop.svc.cluster.local, port: {number: 3128}}}]}]")
		v.Policies = map[string]*pushcontext.DestinationPolicies{"proxy.shop.svc.cluster.local": {Namespace: "shop", Policies: []*pushcontext.DestinationPolicy{destination("shop", "r", pooled)}}}
		s.VirtualServices = []*pushcontext.VirtualService{v}
	}
	for name, c := range map[string]struct {
		s    svc
		want string
	}{
		"the service's own": {own, "5s 1  "}, "by a route": {byRoute, "5s 1 x.example:443 /apis/networking.istio.io/v1/namespaces/shop/virtual-service/v"},
		"of another service": {elsewhere, "5s 1 x.example:443 /apis/networking.istio.io/v1/namespaces/shop/virtual-service/v"},
	} {
		for _, r := range build(t, gen.Listeners{}, portView(5000, newMesh(), c.s), sidecar("c1", "shop")) {
			chain := decode(t, r).(*listenerv3.Listener).FilterChains[0]
			p := &tcpv3.TcpProxy{}
			if err := chain.Filters[0].GetTypedConfig().UnmarshalTo(p); err != nil {
				t.Fatal(err)
			}
			config := chain.Metadata.GetFilterMetadata()["istio"].GetFields()["config"].GetStringValue()
			if got := fmt.Sprintf("%v %d %s %s", p.IdleTimeout.AsDuration(), len(p.HashPolicy), p.TunnelingConfig.GetHostname(), config); got != c.want {
				t.Errorf("%s: %q, want %q", name, got, c.want)
			}
		}
	}
}

// The host of the server name is resolved where a service says so; a connection without one has nowhere to go.
func TestDynamicDNSListeners(t *testing.T) {
	t.Parallel()
	any := svc{host: "*.example.com", ns: "shop", resolution: model.DynamicDNS, ports: []model.Port{tlsPort(443), tcpPort(5000), httpPort(80)}}
	var got []string
	for _, port := range []uint16{80, 443, 5000} {
		for _, r := range build(t, gen.Listeners{}, portView(port, newMesh(), any), sidecar("c1", "shop")) {
			got = append(got, r.name)
			if resolves := strings.Contains(text(t, decode(t, r)), "sni_dynamic_forward_proxy"); resolves != (port == 443) {
				t.Errorf("%s resolves server names: %v", r.name, resolves)
			}
		}
	}
	if fmt.Sprint(got) != "[0.0.0.0_80 0.0.0.0_443]" {
		t.Error(got)
	}
	s := streamsAt(t, portView(443, newMesh(), any), sidecar("c1", "shop"))
	if a, b := s.to("9.9.9.9:443", "x.example.com"), s.to("9.9.9.9:443", "other.test"); a != "443||*.example.com" || b != "PassthroughCluster" {
		t.Error(a, b)
	}
}

// Where unknown connections go, the Sidecar says before the mesh does.
func TestUnknownConnections(t *testing.T) {
	t.Parallel()
	policy := func(mode networking.OutboundTrafficPolicy_Mode, to string) *networking.OutboundTrafficPolicy {
		out := &networking.OutboundTrafficPolicy{Mode: mode}
		if to != "" {
			out.EgressProxy = &networking.Destination{Host: to, Port: &networking.PortSelector{Number: 8443}}
		}
		return out
	}
	all := pushcontext.Egress{Imports: []pushcontext.Import{{Namespace: "*", Host: "*"}}}
	for _, c := range []struct {
		closed bool
		own    *networking.OutboundTrafficPolicy
		want   string
	}{
		{false, nil, "PassthroughCluster"}, {true, nil, "BlackHoleCluster"},
		{true, policy(networking.OutboundTrafficPolicy_ALLOW_ANY, ""), "PassthroughCluster"}, {false, policy(networking.OutboundTrafficPolicy_REGISTRY_ONLY, ""), "BlackHoleCluster"},
		{false, policy(networking.OutboundTrafficPolicy_ALLOW_ANY, "egress.shop.svc.cluster.local"), "8443||egress"},
	} {
		m := newMesh(func(m *settings) {
			if c.closed {
				m.Config.OutboundTrafficPolicy = &meshconfig.MeshConfig_OutboundTrafficPolicy{Mode: meshconfig.MeshConfig_OutboundTrafficPolicy_REGISTRY_ONLY}
			}
		})
		class := sidecar("c1", "shop")
		if c.own != nil {
			sidecarScope(c.own, all)(&class)
		}
		v := portView(443, m, routed(t, "a.example", tlsPort(443), nil))
		s := streamsAt(t, v, class)
		if a, b := s.to("9.9.9.9:443", "other.test"), s.to("9.9.9.9:9999", ""); a != c.want || b != c.want {
			t.Errorf("%+v: %s, %s", c, a, b)
		}
	}
}
