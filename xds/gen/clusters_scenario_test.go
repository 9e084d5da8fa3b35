package gen_test

//lint:file-ignore SA1019 users still set deprecated fields

import (
	"fmt"
	"net/netip"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/pushcontext"
	"github.com/isthmus-mesh/isthmus/xds/gen"
)

// balanced makes a policy with a balancer.
func balanced(b *networking.LoadBalancerSettings) *networking.TrafficPolicy {
	return &networking.TrafficPolicy{LoadBalancer: b}
}

func simply(s networking.LoadBalancerSettings_SimpleLB) *networking.LoadBalancerSettings {
	return &networking.LoadBalancerSettings{LbPolicy: &networking.LoadBalancerSettings_Simple{Simple: s}}
}

type consistentHash = networking.LoadBalancerSettings_ConsistentHashLB

func hashed(h *consistentHash) *networking.LoadBalancerSettings {
	return &networking.LoadBalancerSettings{LbPolicy: &networking.LoadBalancerSettings_ConsistentHash{ConsistentHash: h}}
}

func maglev(size uint64) *consistentHash {
	return &consistentHash{HashKey: &networking.LoadBalancerSettings_ConsistentHashLB_UseSourceIp{UseSourceIp: true},
		HashAlgorithm: &networking.LoadBalancerSettings_ConsistentHashLB_Maglev{Maglev: &networking.LoadBalancerSettings_ConsistentHashLB_MagLev{TableSize: size}}}
}

func ringHash(size uint64) *consistentHash {
	return &consistentHash{HashKey: &networking.LoadBalancerSettings_ConsistentHashLB_HttpHeaderName{HttpHeaderName: "x-user"},
		HashAlgorithm: &networking.LoadBalancerSettings_ConsistentHashLB_RingHash_{RingHash: &networking.LoadBalancerSettings_ConsistentHashLB_RingHash{MinimumRingSize: size}}}
}

func byUtilization(u *networking.LoadBalancerSettings_BackendUtilizationLB) *networking.LoadBalancerSettings {
	return &networking.LoadBalancerSettings{LbPolicy: &networking.LoadBalancerSettings_BackendUtilization{BackendUtilization: u}}
}

func warming(b *networking.LoadBalancerSettings, w *networking.WarmupConfiguration) *networking.LoadBalancerSettings {
	b.Warmup = w
	return b
}

// everyPool sets every field of a connection pool.
func everyPool() *networking.ConnectionPoolSettings {
	return &networking.ConnectionPoolSettings{
		Tcp: &networking.ConnectionPoolSettings_TCPSettings{MaxConnections: 11, ConnectTimeout: seconds(12), MaxConnectionDuration: seconds(13), IdleTimeout: seconds(14),
			TcpKeepalive: &networking.ConnectionPoolSettings_TCPSettings_TcpKeepalive{Probes: 15, Time: seconds(16), Interval: seconds(17)}},
		Http: &networking.ConnectionPoolSettings_HTTPSettings{Http1MaxPendingRequests: 18, Http2MaxRequests: 19, MaxRequestsPerConnection: 20, MaxRetries: 21, IdleTimeout: seconds(22),
			H2UpgradePolicy: networking.ConnectionPoolSettings_HTTPSettings_UPGRADE, MaxConcurrentStreams: 23,
			Http2KeepAlive: &networking.ConnectionPoolSettings_HTTPSettings_ConnectionKeepalive{Interval: seconds(24), Timeout: seconds(25)}},
	}
}

// ingressScope is that of a workload with a Sidecar.
func ingressScope(s *networking.Sidecar) func(*gen.Class) {
	return func(c *gen.Class) {
		c.Scope = &pushcontext.Scope{Sidecar: &pushcontext.Sidecar{Spec: s, Egress: []pushcontext.Egress{{Imports: []pushcontext.Import{{Namespace: "*", Host: "*"}}}},
			Source: model.Source{Object: model.ObjectKey{Kind: "Sidecar", Namespace: "shop", Name: "own"}}}}
	}
}

func ingress(port uint32, protocol, to string) *networking.IstioIngressListener {
	return &networking.IstioIngressListener{Port: &networking.SidecarPort{Number: port, Protocol: protocol, Name: protocol}, DefaultEndpoint: to}
}

func everyIngress() *networking.Sidecar {
	pooled := ingress(9000, "TCP", "127.0.0.1:9001")
	pooled.ConnectionPool = everyPool()
	return &networking.Sidecar{
		InboundConnectionPool: &networking.ConnectionPoolSettings{Tcp: &networking.ConnectionPoolSettings_TCPSettings{MaxConnections: 7}},
		Ingress: []*networking.IstioIngressListener{
			ingress(8080, "HTTP", "127.0.0.1:8081"), ingress(8090, "GRPC", "[::1]:8091"), ingress(8100, "", "0.0.0.0:8101"), ingress(8110, "TCP", "[::]:8111"),
			ingress(8120, "HTTP", "unix:///var/run/app.sock"), ingress(8130, "TCP", ""), ingress(8140, "TCP", "10.0.0.1:80"), ingress(8080, "TCP", "127.0.0.1:1"), pooled,
		},
	}
}

// clusterScenarios are those of DestinationRules and Sidecars, of which only clusters and their endpoints are looked at.
func clusterScenarios() []scenario {
	only := []gen.Generator{gen.Clusters{}, gen.Endpoints{}}
	services := func(p model.Port, policies map[string]*networking.TrafficPolicy) (out []svc) {
		for name, policy := range policies {
			s := svc{host: name + ".shop.svc.cluster.local", ports: []model.Port{p}, endpoints: []*model.Endpoint{ep("c1", p.Name, "10.0.0.1:80", mtls, version("v1"))}}
			out = append(out, underRules(s, destination("shop", name, policy)))
		}
		return out
	}
	tls := func(t *networking.ClientTLSSettings) *networking.TrafficPolicy {
		return &networking.TrafficPolicy{Tls: t}
	}
	proxied := func(p *networking.TrafficPolicy, v networking.TrafficPolicy_ProxyProtocol_VERSION) *networking.TrafficPolicy {
		p.ProxyProtocol = &networking.TrafficPolicy_ProxyProtocol{Version: v}
		return p
	}
	pool := func(h *networking.ConnectionPoolSettings_HTTPSettings) *networking.TrafficPolicy {
		return &networking.TrafficPolicy{ConnectionPool: &networking.ConnectionPoolSettings{Http: h}}
	}
	weighted := byUtilization(&networking.LoadBalancerSettings_BackendUtilizationLB{ErrorUtilizationPenaltyPercent: 150, MetricNamesForComputingUtilization: []string{"named_metrics.q"},
		WeightStabilizationPeriod: seconds(1), WeightExpirationPeriod: seconds(2), WeightUpdatePeriod: seconds(3)})
	weighted.LocalityLbSetting = &localitySetting{Distribute: []*networking.LocalityLoadBalancerSetting_Distribute{{From: "*", To: map[string]uint32{"*": 100}}}}
	ca := "/etc/certs/root-cert.pem"
	return []scenario{
		{name: "subsets", mesh: newMesh(crossing), only: only, class: sidecar("c1", "shop", secured, onNetwork("n1")), services: divideds()},
		{name: "subsets-sni-dnat", mesh: newMesh(crossing), only: only, class: sidecar("c2", "istio-system", forwarding(3), onNetwork("n2")), services: divideds()[:1]},
		{name: "balancers", mesh: newMesh(), only: only, class: sidecar("c1", "shop", secured), services: services(httpPort(80), map[string]*networking.TrafficPolicy{
			"random": balanced(simply(networking.LoadBalancerSettings_RANDOM)), "robin": balanced(simply(networking.LoadBalancerSettings_ROUND_ROBIN)),
			"least": balanced(simply(networking.LoadBalancerSettings_LEAST_REQUEST)), "conn": balanced(simply(networking.LoadBalancerSettings_LEAST_CONN)),
			"direct": balanced(simply(networking.LoadBalancerSettings_PASSTHROUGH)), "maglev": balanced(hashed(maglev(65537))), "odd-maglev": balanced(hashed(maglev(100))),
			"ring": balanced(hashed(ringHash(2048))), "big-ring": balanced(hashed(ringHash(1 << 40))), "old-ring": balanced(hashed(&consistentHash{MinimumRingSize: 77})),
			"warm-robin": balanced(warming(simply(networking.LoadBalancerSettings_ROUND_ROBIN), &networking.WarmupConfiguration{Duration: seconds(60)})),
			"warm-least": balanced(warming(&networking.LoadBalancerSettings{}, &networking.WarmupConfiguration{Duration: seconds(30), MinimumPercent: wrapperspb.Double(5), Aggression: wrapperspb.Double(2)})),
			"old-warm":   balanced(&networking.LoadBalancerSettings{WarmupDurationSecs: seconds(10)}), "load": balanced(warming(byUtilization(&networking.LoadBalancerSettings_BackendUtilizationLB{}), &networking.WarmupConfiguration{Duration: seconds(9)})),
			"load-weighted": balanced(weighted),
		})},
		{name: "pools", mesh: newMesh(tuned), only: only, class: sidecar("c1", "shop", secured), services: append(services(httpPort(80), map[string]*networking.TrafficPolicy{
			"every": {ConnectionPool: everyPool(), RetryBudget: &networking.TrafficPolicy_RetryBudget{}}, "client": pool(&networking.ConnectionPoolSettings_HTTPSettings{UseClientProtocol: true, MaxConcurrentStreams: 5,
				H2UpgradePolicy: networking.ConnectionPoolSettings_HTTPSettings_UPGRADE}),
			"budget": {RetryBudget: &networking.TrafficPolicy_RetryBudget{Percent: wrapperspb.Double(12.5), MinRetryConcurrency: 4, BudgetInterval: seconds(5)}},
			"never":  pool(&networking.ConnectionPoolSettings_HTTPSettings{IdleTimeout: &durationpb.Duration{}}),
		}), services(tcpPort(90), map[string]*networking.TrafficPolicy{"tcp": {ConnectionPool: everyPool()}})...)},
		{name: "tls-settings", mesh: newMesh(), only: only, class: sidecar("c1", "shop", secured), services: services(httpPort(80), map[string]*networking.TrafficPolicy{
			"proxied": proxied(&networking.TrafficPolicy{}, networking.TrafficPolicy_ProxyProtocol_V1), "proxied-plain": proxied(inMode(networking.ClientTLSSettings_DISABLE), networking.TrafficPolicy_ProxyProtocol_V2),
			"proxied-mutual": proxied(inMode(networking.ClientTLSSettings_ISTIO_MUTUAL), networking.TrafficPolicy_ProxyProtocol_V2),
			"proxied-simple": proxied(tls(simpleTLS), networking.TrafficPolicy_ProxyProtocol_V1), "revoked": tls(&networking.ClientTLSSettings{Mode: networking.ClientTLSSettings_SIMPLE, CaCertificates: ca, CaCrl: ca}),
			"upgraded": {Tls: simpleTLS, ConnectionPool: everyPool()}, "named-ca": tls(&networking.ClientTLSSettings{Mode: networking.ClientTLSSettings_SIMPLE, CaCertCredentialName: "x"}),
		})},
		{name: "dynamic-dns", mesh: newMesh(tuned), only: only, class: sidecar("c1", "shop", secured, func(c *gen.Class) { c.IPv6 = true }), services: []svc{
			underSubsets(svc{host: "*.example.com", ns: "shop", ports: []model.Port{httpPort(80), {Name: "tls", Number: 443, Protocol: model.ProtocolTLS}}, resolution: model.DynamicDNS,
				edit: func(s *pushcontext.ShapeView) { s.External = true }}, "v1"),
			underRules(svc{host: "*.example.org", ns: "shop", ports: []model.Port{httpPort(80)}, resolution: model.DynamicDNS}, destination("shop", "r", tls(&networking.ClientTLSSettings{
				Mode: networking.ClientTLSSettings_SIMPLE, CaCertificates: ca}))),
			underRules(svc{host: "*.example.net", ns: "shop", ports: []model.Port{httpPort(80)}, resolution: model.DynamicDNS}, destination("shop", "r", balanced(hashed(ringHash(5)))))}},
		{name: "ingress", mesh: newMesh(), only: only, class: sidecar("c1", "shop", ingressScope(everyIngress()), func(c *gen.Class) { c.IP = netip.MustParseAddr("10.1.0.9") }), targets: []pushcontext.Target{
			{Host: "cart.shop.svc.cluster.local", Namespace: "shop", Name: "cart", Port: 80, PortName: "http", Protocol: model.ProtocolHTTP, Endpoint: 8080}}},
		{name: "ingress-none", mesh: newMesh(), only: only, class: sidecar("c1", "shop", ingressScope(everyIngress()), noInterception)},
	}
}

// divideds are services with subsets, of every resolution.
func divideds() []svc {
	var out []svc
	ports := []model.Port{httpPort(80), {Name: "grpc", Number: 90, Protocol: model.ProtocolGRPC}}
	for i, r := range []model.Resolution{model.ClientSideLB, model.Passthrough, model.DNSLB, model.DNSRoundRobin} {
		var es []*model.Endpoint
		for k, v := range []string{"v1", "v1", "v2"} {
			addr := fmt.Sprintf("10.2.%d.%d:80", i, k)
			if r.IsDNS() {
				addr = fmt.Sprintf("vm%d.example.com:80", k)
			}
			es = append(es, ep("c2", "http", addr, version(v), mtls, network("n2"), workload(fmt.Sprint(k))))
		}
		s := svc{host: fmt.Sprintf("s%d.shop.svc.cluster.local", i), ports: ports, resolution: r, endpoints: es}
		if r != model.ClientSideLB {
			s.inline = es
		}
		policy := &networking.TrafficPolicy{ConnectionPool: everyPool(), PortLevelSettings: forPort(90, inMode(networking.ClientTLSSettings_DISABLE)).PortLevelSettings}
		out = append(out, underRules(s, divided(policy, subsetOf("v1", balanced(hashed(ringHash(512))), "version=v1"), subsetOf("v2", forPort(80, balanced(simply(networking.LoadBalancerSettings_PASSTHROUGH))), "version=v2"),
			subsetOf("none", nil, "version=v3"))))
	}
	return out
}
