package gen_test

//lint:file-ignore SA1019 users still set deprecated fields

import (
	"fmt"
	"strings"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
	meshconfig "istio.io/api/mesh/v1alpha1"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/pushcontext"
	"github.com/isthmus-mesh/isthmus/xds/gen"
)

// clusterText is the one cluster of a service, without white space.
func clusterText(t *testing.T, s svc, m *settings, c gen.Class) string {
	t.Helper()
	return compact(t, build(t, gen.Clusters{}, s.shape(m), c)[0])
}

type policyCase struct {
	name   string
	mesh   func(*meshconfig.MeshConfig)
	port   model.Port
	edit   func(*pushcontext.ShapeView)
	policy *networking.TrafficPolicy
	class  func(*gen.Class)
	want   []string
	not    []string
}

func (c policyCase) run(t *testing.T) {
	t.Parallel()
	if c.mesh == nil {
		c.mesh = func(*meshconfig.MeshConfig) {}
	}
	if c.port == (model.Port{}) {
		c.port = httpPort(80)
	}
	if c.class == nil {
		c.class = func(*gen.Class) {}
	}
	s := cart()
	s.ports, s.edit = []model.Port{c.port}, c.edit
	got := clusterText(t, underRules(s, destination("shop", "r", c.policy)), newMesh(func(m *settings) { c.mesh(m.Config) }), sidecar("c1", "shop", c.class))
	for _, w := range c.want {
		if !strings.Contains(got, w) {
			t.Errorf("%s is missing in %s", w, got)
		}
	}
	for _, w := range c.not {
		if strings.Contains(got, w) {
			t.Errorf("%s is in %s", w, got)
		}
	}
}

// How endpoints are chosen.
func TestBalancers(t *testing.T) {
	t.Parallel()
	robin := func() *networking.LoadBalancerSettings { return simply(networking.LoadBalancerSettings_ROUND_ROBIN) }
	zones := &networking.LoadBalancerSettings{ZoneAwareLbSetting: &networking.ZoneAwareLoadBalancerSetting{}, LbPolicy: byUtilization(&networking.LoadBalancerSettings_BackendUtilizationLB{}).LbPolicy}
	for _, c := range []policyCase{
		{name: "none", policy: balanced(nil), want: []string{`"lbPolicy":"LEAST_REQUEST"`}, not: []string{"LbConfig\":{\"slow"}},
		{name: "LEAST_CONN", policy: balanced(simply(networking.LoadBalancerSettings_LEAST_CONN)), want: []string{`"lbPolicy":"LEAST_REQUEST"`}},
		{name: "PASSTHROUGH", policy: balanced(simply(networking.LoadBalancerSettings_PASSTHROUGH)), want: []string{`"type":"ORIGINAL_DST"`, `"lbPolicy":"CLUSTER_PROVIDED"`}, not: []string{"edsClusterConfig"}},
		{name: "PASSTHROUGH without interception", class: noInterception, policy: balanced(simply(networking.LoadBalancerSettings_PASSTHROUGH)), want: []string{`"type":"EDS"`, `"lbPolicy":"LEAST_REQUEST"`}},
		{name: "maglev", policy: balanced(hashed(maglev(1021))), want: []string{`"lbPolicy":"MAGLEV"`, `"tableSize":"1021"`}},
		{name: "maglev of Envoy's size", policy: balanced(hashed(maglev(0))), want: []string{`"lbPolicy":"MAGLEV"`}, not: []string{"tableSize"}},
		{name: "maglev of no prime size", policy: balanced(hashed(maglev(1022))), want: []string{`"lbPolicy":"MAGLEV"`}, not: []string{"tableSize"}},
		{name: "maglev too large", policy: balanced(hashed(maglev(5000077))), want: []string{`"lbPolicy":"MAGLEV"`}, not: []string{"tableSize"}},
		{name: "ring", policy: balanced(hashed(ringHash(16))), want: []string{`"lbPolicy":"RING_HASH"`, `"minimumRingSize":"16"`}},
		{name: "ring of Envoy's size", policy: balanced(hashed(ringHash(0))), want: []string{`"lbPolicy":"RING_HASH"`}, not: []string{"minimumRingSize"}},
		{name: "a hash has no warm-up", policy: balanced(warming(hashed(ringHash(0)), &networking.WarmupConfiguration{Duration: seconds(1)})), not: []string{"slowStart"}},
		{name: "warm-up", policy: balanced(warming(robin(), &networking.WarmupConfiguration{Duration: seconds(5)})),
			want: []string{`"roundRobinLbConfig":{"slowStartConfig":{"slowStartWindow":"5s","aggression":{"defaultValue":1`, `"minWeightPercent":{"value":10}`}},
		{name: "warm-up, tuned", policy: balanced(warming(robin(), &networking.WarmupConfiguration{Duration: seconds(5), MinimumPercent: wrapperspb.Double(0), Aggression: wrapperspb.Double(1.5)})),
			want: []string{`"aggression":{"defaultValue":1.5`, `"minWeightPercent":{}`}},
		{name: "warm-up, wrong", policy: balanced(warming(robin(), &networking.WarmupConfiguration{Duration: seconds(5), MinimumPercent: wrapperspb.Double(101), Aggression: wrapperspb.Double(0)})),
			want: []string{`"aggression":{"defaultValue":1,`, `"minWeightPercent":{"value":10}`}},
		{name: "warm-up of no time", policy: balanced(warming(robin(), &networking.WarmupConfiguration{})), not: []string{"slowStart", "LEAST_REQUEST"}},
		{name: "by utilization, in zones", policy: balanced(zones), want: []string{"client_side_weighted_round_robin", "least_request"}, not: []string{"zoneAwareLbConfig"}},
		{name: "persistent sessions", edit: func(s *pushcontext.ShapeView) { s.Persistent = true }, want: []string{`"overrideHostStatus":{"statuses":["HEALTHY","DRAINING","UNKNOWN","DEGRADED"]}`}},
		{name: "no persistent sessions", not: []string{"overrideHostStatus"}},
	} {
		t.Run(c.name, c.run)
	}
}

// Connection pools: whose is in force, and what Envoy would refuse.
func TestConnectionPools(t *testing.T) {
	t.Parallel()
	pooled := func(tcp *networking.ConnectionPoolSettings_TCPSettings, http *networking.ConnectionPoolSettings_HTTPSettings) *networking.TrafficPolicy {
		return &networking.TrafficPolicy{ConnectionPool: &networking.ConnectionPoolSettings{Tcp: tcp, Http: http}}
	}
	type tcp = networking.ConnectionPoolSettings_TCPSettings
	type http = networking.ConnectionPoolSettings_HTTPSettings
	type keepalive = networking.ConnectionPoolSettings_TCPSettings_TcpKeepalive
	type pings = networking.ConnectionPoolSettings_HTTPSettings_ConnectionKeepalive
	meshPool := func(c *meshconfig.MeshConfig) {
		c.DefaultTrafficPolicy = &meshconfig.MeshConfig_DefaultTrafficPolicy{ConnectionPool: pooled(&tcp{MaxConnections: 5}, &http{MaxRetries: 6}).ConnectionPool}
	}
	upgrade := func(c *meshconfig.MeshConfig) { c.H2UpgradePolicy = meshconfig.MeshConfig_UPGRADE }
	h2, downstream := `"explicitHttpConfig":{"http2ProtocolOptions"`, "useDownstreamProtocolConfig"
	for _, c := range []policyCase{
		{name: "of the mesh", mesh: meshPool, policy: &networking.TrafficPolicy{}, want: []string{`"maxConnections":5`, `"maxRetries":6`}},
		{name: "the rule's replaces it", mesh: meshPool, policy: pooled(nil, &http{MaxRetries: 7}), want: []string{`"maxConnections":4294967295`, `"maxRetries":7`}},
		{name: "keepalive of the rule and of the mesh", policy: pooled(&tcp{TcpKeepalive: &keepalive{Time: seconds(9)}}, nil),
			mesh: func(c *meshconfig.MeshConfig) { c.TcpKeepalive = &keepalive{Probes: 4, Time: seconds(5)} }, want: []string{`"tcpKeepalive":{"keepaliveProbes":4,"keepaliveTime":9}`}},
		{name: "keepalive of the system", policy: pooled(&tcp{TcpKeepalive: &keepalive{}}, nil), want: []string{`"tcpKeepalive":{}`}},
		{name: "connect timeout too short", policy: pooled(&tcp{ConnectTimeout: durationpb.New(1)}, nil), want: []string{`"connectTimeout":"10s"`}},
		{name: "idle timeout of TCP", policy: pooled(&tcp{IdleTimeout: seconds(3)}, nil), want: []string{`"idleTimeout":"3s"`}},
		{name: "idle timeout of HTTP goes before", policy: pooled(&tcp{IdleTimeout: seconds(3)}, &http{IdleTimeout: seconds(4)}), want: []string{`"idleTimeout":"4s"`}},
		{name: "no idle timeout", policy: pooled(&tcp{IdleTimeout: &durationpb.Duration{}}, nil), want: []string{`"idleTimeout":"0s"`}},
		{name: "negative limits", policy: pooled(&tcp{MaxConnections: -1, IdleTimeout: seconds(-1)}, &http{MaxRequestsPerConnection: -1}), want: []string{`"maxConnections":4294967295`}, not: []string{"idleTimeout", "maxRequestsPerConnection"}},
		{name: "upgrade", policy: pooled(nil, &http{H2UpgradePolicy: networking.ConnectionPoolSettings_HTTPSettings_UPGRADE}), want: []string{h2}},
		{name: "upgrade of any port", port: tcpPort(80), policy: pooled(nil, &http{H2UpgradePolicy: networking.ConnectionPoolSettings_HTTPSettings_UPGRADE}), want: []string{h2}},
		{name: "upgrade by the mesh", mesh: upgrade, policy: &networking.TrafficPolicy{}, want: []string{h2}},
		{name: "upgrade by the mesh of HTTP only", mesh: upgrade, port: autoPort(80), policy: &networking.TrafficPolicy{}, want: []string{downstream}, not: []string{h2}},
		{name: "no upgrade", mesh: upgrade, policy: pooled(nil, &http{H2UpgradePolicy: networking.ConnectionPoolSettings_HTTPSettings_DO_NOT_UPGRADE}), not: []string{h2}},
		{name: "the client's protocol", mesh: upgrade, policy: pooled(nil, &http{UseClientProtocol: true}), want: []string{downstream}, not: []string{h2}},
		{name: "pings", policy: pooled(nil, &http{H2UpgradePolicy: networking.ConnectionPoolSettings_HTTPSettings_UPGRADE, Http2KeepAlive: &pings{Interval: seconds(1), Timeout: seconds(2)}}),
			want: []string{`"connectionKeepalive":{"interval":"1s","timeout":"2s"}`}},
		{name: "pings without timeout", policy: pooled(nil, &http{H2UpgradePolicy: networking.ConnectionPoolSettings_HTTPSettings_UPGRADE, Http2KeepAlive: &pings{Interval: seconds(1)}}), not: []string{"connectionKeepalive"}},
		{name: "pings over HTTP/1.1", policy: pooled(nil, &http{Http2KeepAlive: &pings{Interval: seconds(1), Timeout: seconds(2)}}), not: []string{"connectionKeepalive"}},
		{name: "retry budget", policy: &networking.TrafficPolicy{RetryBudget: &networking.TrafficPolicy_RetryBudget{}}, want: []string{`"retryBudget":{"budgetPercent":{"value":20},"minRetryConcurrency":3}`}},
		{name: "retry budget of nothing", policy: &networking.TrafficPolicy{RetryBudget: &networking.TrafficPolicy_RetryBudget{Percent: wrapperspb.Double(0)}}, want: []string{`"budgetPercent":{}`}},
		{name: "retry budget out of range", policy: &networking.TrafficPolicy{RetryBudget: &networking.TrafficPolicy_RetryBudget{Percent: wrapperspb.Double(101)}}, want: []string{`"budgetPercent":{"value":20}`}},
	} {
		t.Run(c.name, c.run)
	}
}

// At the receiver a pool of the Sidecar goes before that of the service's rule.
func TestInboundPools(t *testing.T) {
	t.Parallel()
	limit := func(n int32) *networking.ConnectionPoolSettings {
		return &networking.ConnectionPoolSettings{Tcp: &networking.ConnectionPoolSettings_TCPSettings{MaxConnections: n}}
	}
	listener := ingress(8080, "HTTP", "")
	pooled := ingress(8080, "HTTP", "")
	pooled.ConnectionPool = limit(3)
	v := &pushcontext.TargetsView{Mesh: newMesh().MeshView, Targets: []pushcontext.Target{{Host: "a", Port: 80, Endpoint: 8080, Pool: limit(1)}, {Host: "b", Port: 80, Endpoint: 8080, Pool: limit(9)}}}
	for name, c := range map[string]struct {
		sidecar *networking.Sidecar
		want    uint32
	}{
		"of the rule":                    {nil, 1},
		"of the rule, at a listener":     {&networking.Sidecar{Ingress: []*networking.IstioIngressListener{listener}}, 1},
		"of the Sidecar":                 {&networking.Sidecar{InboundConnectionPool: limit(2)}, 2},
		"of the Sidecar, at a listener":  {&networking.Sidecar{InboundConnectionPool: limit(2), Ingress: []*networking.IstioIngressListener{listener}}, 2},
		"of the listener":                {&networking.Sidecar{InboundConnectionPool: limit(2), Ingress: []*networking.IstioIngressListener{pooled}}, 3},
		"of a Sidecar without any of it": {&networking.Sidecar{}, 1},
	} {
		class := sidecar("c1", "shop")
		if c.sidecar != nil {
			class = sidecar("c1", "shop", ingressScope(c.sidecar))
		}
		if got := clusterNamed(t, v, class, "inbound|8080||").CircuitBreakers.Thresholds[0].MaxConnections.GetValue(); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}

// The mesh may have workloads reached on their loopback address.
func TestInboundTrafficPolicy(t *testing.T) {
	t.Parallel()
	for want, mode := range map[string]meshconfig.MeshConfig_InboundTrafficPolicy_Mode{
		"ORIGINAL_DST 127.0.0.6 ": meshconfig.MeshConfig_InboundTrafficPolicy_PASSTHROUGH, "STATIC  ::1": meshconfig.MeshConfig_InboundTrafficPolicy_LOCALHOST,
	} {
		m := newMesh(func(m *settings) {
			m.Config.InboundTrafficPolicy = &meshconfig.MeshConfig_InboundTrafficPolicy{Mode: mode}
		})
		v := &pushcontext.TargetsView{Mesh: m.MeshView, Targets: []pushcontext.Target{{Host: "a", Port: 80, Endpoint: 8080}}}
		class := sidecar("c1", "shop", func(c *gen.Class) {
			c.IPv4, c.IPv6 = mode == meshconfig.MeshConfig_InboundTrafficPolicy_PASSTHROUGH, true
		})
		c := clusterNamed(t, v, class, "inbound|8080||")
		to := ""
		for _, l := range c.LoadAssignment.GetEndpoints() {
			to += l.LbEndpoints[0].GetEndpoint().Address.GetSocketAddress().Address
		}
		if got := fmt.Sprintf("%s %s %s", c.GetType(), c.UpstreamBindConfig.GetSourceAddress().GetAddress(), to); got != want {
			t.Errorf("%s: %q, want %q", mode, got, want)
		}
	}
}

// Connections to the addresses of a ServiceEntry are opened at its target port; those to pods, where they went.
func TestTargetPortOfOriginalDestination(t *testing.T) {
	t.Parallel()
	for want, s := range map[uint32]svc{
		8443: {host: "a.example", ns: "shop", ports: []model.Port{{Name: "tls", Number: 443, TargetPort: 8443, Protocol: model.ProtocolTLS}}, resolution: model.Passthrough},
		0:    {host: "a.shop.svc.cluster.local", ports: []model.Port{{Name: "tls", Number: 443, TargetPort: 8443, Protocol: model.ProtocolTLS}}, resolution: model.Passthrough},
	} {
		if got := cluster(t, s, newMesh(), sidecar("c1", "shop")).GetOriginalDstLbConfig().GetUpstreamPortOverride().GetValue(); got != want {
			t.Errorf("%s: %d, want %d", s.host, got, want)
		}
	}
}

// Settings of TLS that are not the mesh's own.
func TestTLSSettings(t *testing.T) {
	t.Parallel()
	entry := func(s *pushcontext.ShapeView) { s.Native, s.ServiceAccounts = false, []string{"known.example.com"} }
	service := func(s *pushcontext.ShapeView) { s.ServiceAccounts = []string{"known.example.com"} }
	tls := func(t *networking.ClientTLSSettings) *networking.TrafficPolicy {
		return &networking.TrafficPolicy{Tls: t}
	}
	verifying := func(sans ...string) *networking.ClientTLSSettings {
		return &networking.ClientTLSSettings{Mode: networking.ClientTLSSettings_SIMPLE, CaCertificates: "/ca", SubjectAltNames: sans}
	}
	revoking := verifying()
	revoking.CaCrl = "/crl"
	careless := verifying()
	careless.CaCrl, careless.InsecureSkipVerify = "/crl", wrapperspb.Bool(true)
	curves := func(c *meshconfig.MeshConfig) {
		c.TlsDefaults = &meshconfig.MeshConfig_TLSConfig{EcdhCurves: []string{"P-256"}, CipherSuites: []string{"ECDHE-RSA-AES128-GCM-SHA256"}}
	}
	for _, c := range []policyCase{
		{name: "names of a ServiceEntry", edit: entry, policy: tls(verifying()), want: []string{`"exact":"known.example.com"`}},
		{name: "names of the rule go before", edit: entry, policy: tls(verifying("own.example.com")), want: []string{`"exact":"own.example.com"`}, not: []string{"known"}},
		{name: "accounts of a service are no server's names", edit: service, policy: tls(verifying()), not: []string{"known"}},
		{name: "revocations", policy: tls(revoking), want: []string{`"crl":{"filename":"/crl"}`}},
		{name: "nothing is verified", policy: tls(careless), not: []string{"crl", "trustedCa", `"autoSanValidation"`}, want: []string{`"autoSni":true`}},
		{name: "curves and ciphers of the mesh", mesh: curves, policy: tls(verifying()), want: []string{`"ecdhCurves":["P-256"]`, `"cipherSuites":["ECDHE-RSA-AES128-GCM-SHA256"]`}},
		{name: "not for mutual TLS of the mesh", mesh: curves, class: secured, policy: inMode(networking.ClientTLSSettings_ISTIO_MUTUAL), not: []string{"ecdhCurves", "cipherSuites"}},
		{name: "CA by credential", policy: tls(&networking.ClientTLSSettings{Mode: networking.ClientTLSSettings_SIMPLE, CaCertificates: "/ca", CaCertCredentialName: "x"}), want: []string{`"type":"STATIC"`}, not: []string{"loadAssignment", "/ca"}},
		{name: "HTTP/2 is offered after an upgrade", policy: &networking.TrafficPolicy{Tls: verifying(), ConnectionPool: everyPool()}, want: []string{`"alpnProtocols":["h2"]`}},
		{name: "a closed cluster has no PROXY protocol", policy: &networking.TrafficPolicy{Tls: &networking.ClientTLSSettings{Mode: networking.ClientTLSSettings_MUTUAL}, ProxyProtocol: &networking.TrafficPolicy_ProxyProtocol{}},
			want: []string{`"type":"STATIC"`}, not: []string{"proxy_protocol"}},
		{name: "PROXY protocol", policy: &networking.TrafficPolicy{ProxyProtocol: &networking.TrafficPolicy_ProxyProtocol{Version: networking.TrafficPolicy_ProxyProtocol_V2}},
			want: []string{"upstream_proxy_protocol", `"version":"V2"`, "raw_buffer"}},
	} {
		t.Run(c.name, c.run)
	}
}

// The names of statistics.
func TestClusterStatNames(t *testing.T) {
	t.Parallel()
	all := "%SERVICE%,%SERVICE_NAME%,%SERVICE_FQDN%,%SERVICE_PORT%,%TARGET_PORT%,%SERVICE_PORT_NAME%,%SUBSET_NAME%"
	m := newMesh(func(m *settings) { m.Config.OutboundClusterStatName, m.Config.InboundClusterStatName = all, all })
	s := cart()
	s.ports[0].TargetPort = 8080
	got := clustersOf(t, underSubsets(s, "v1"), m, sidecar("c1", "shop"))
	v := &pushcontext.TargetsView{Mesh: m.MeshView, Targets: []pushcontext.Target{{Host: s.host, Namespace: "shop", Name: "cart", Port: 80, PortName: "http", Endpoint: 8080}}}
	inbound := clusterNamed(t, v, sidecar("c1", "shop"), "inbound|8080||")
	alone := clusterNamed(t, v, sidecar("c1", "shop", ingressScope(everyIngress())), "inbound|8090||")
	for name, x := range map[string]struct{ got, want string }{
		"port":    {got["outbound|80||"+s.host].AltStatName, "cart.shop,cart,cart.shop.svc.cluster.local,80,8080,http,"},
		"subset":  {got["outbound|80|v1|"+s.host].AltStatName, "cart.shop,cart,cart.shop.svc.cluster.local,80,8080,http,v1"},
		"inbound": {inbound.AltStatName, "cart.shop,cart,cart.shop.svc.cluster.local,80,8080,http,"},
		"ingress": {alone.AltStatName, "own.shop,own,own.shop,8090,8090,,"},
	} {
		if x.got != x.want {
			t.Errorf("%s: %q, want %q", name, x.got, x.want)
		}
	}
}

func clusterNamed(t *testing.T, v pushcontext.View, c gen.Class, name string) *clusterv3.Cluster {
	t.Helper()
	for _, r := range build(t, gen.Clusters{}, v, c) {
		if r.name == name {
			return decode(t, r).(*clusterv3.Cluster)
		}
	}
	t.Fatalf("no cluster %s", name)
	return nil
}

// Clusters say which rule they are of, for tools that explain them.
func TestClusterNamesItsRule(t *testing.T) {
	t.Parallel()
	all := clustersOf(t, underSubsets(cart(), "v1"), newMesh(), sidecar("c1", "shop"))
	var got []string
	for _, n := range []string{"outbound|80||cart.shop.svc.cluster.local", "outbound|80|v1|cart.shop.svc.cluster.local"} {
		f := all[n].Metadata.FilterMetadata["istio"].Fields
		got = append(got, fmt.Sprintf("%s %q", f["config"].GetStringValue(), f["subset"].GetStringValue()))
	}
	path := "/apis/networking.istio.io/v1/namespaces/shop/destination-rule/r"
	if d := cmp.Diff([]string{path + ` ""`, path + ` "v1"`}, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if f := cluster(t, cart(), newMesh(), sidecar("c1", "shop")).Metadata.FilterMetadata["istio"].Fields; f["config"] != nil {
		t.Errorf("without a rule: %v", f)
	}
}
