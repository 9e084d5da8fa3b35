package gen_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/durationpb"
	meshconfig "istio.io/api/mesh/v1alpha1"
	networking "istio.io/api/networking/v1alpha3"
	telemetryv1 "istio.io/api/telemetry/v1alpha1"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/pushcontext"
	"github.com/isthmus-mesh/isthmus/test/golden"
	"github.com/isthmus-mesh/isthmus/xds/gen"
)

// listenerScenarios are those of which only listeners are looked at.
func listenerScenarios(t testing.TB) []scenario {
	only := []gen.Generator{gen.Listeners{}}
	cart, db := httpPort(80), tcpPort(3306)
	services := []svc{
		{host: cartHost, ports: []model.Port{cart}, vips: members("c1", "10.0.0.1")},
		{host: "db.shop.svc.cluster.local", ports: []model.Port{db}, vips: members("c1", "10.0.0.2")},
		{host: "old.shop.svc.cluster.local", ports: []model.Port{db}, vips: members("c1", "10.0.0.3"), age: 9},
		{host: "api.example", ns: "shop", ports: []model.Port{tlsPort(443)}},
		{host: "any.shop.svc.cluster.local", ports: []model.Port{autoPort(7000)}, vips: members("c1", "10.0.0.4")},
	}
	targets := served(model.MTLSPermissive, model.MTLSStrict, model.MTLSDisabled)
	return []scenario{
		{name: "streams", only: only, mesh: newMesh(), class: sidecar("c1", "shop"), services: streamServices(t)},
		{name: "hostile", only: only, mesh: newMesh(), class: sidecar("c1", "shop"), services: hostileStreams(t)},
		{name: "egress", only: only, mesh: newMesh(), class: sidecar("c1", "shop", everyEgress), services: services},
		{name: "egress-none", only: only, mesh: newMesh(), class: sidecar("c1", "shop", everyEgress, noInterception), services: services},
		{name: "ingress", only: only, mesh: newMesh(), class: sidecar("c1", "shop", secured, ingressScope(tlsIngress(0))), targets: targets},
		{name: "ingress-none", only: only, mesh: newMesh(), class: sidecar("c1", "shop", noInterception, ingressScope(tlsIngress(0))), targets: targets},
		{name: "ingress-bound", only: only, mesh: newMesh(), class: sidecar("c1", "shop", secured, ingressScope(tlsIngress(networking.CaptureMode_NONE))), targets: targets},
		{name: "telemetry", only: only, mesh: newMesh(everyProvider), class: sidecar("c1", "shop", web, telling(everyTelemetry()...)), services: services[:2], targets: targets[:1]},
		{name: "tuned", only: only, mesh: newMesh(func(m *settings) {
			m.Config.DefaultInboundHttpRetryPolicy = &networking.HTTPRetry{Attempts: 5, RetryOn: "reset"}
		}), class: sidecar("c1", "shop", func(c *gen.Class) {
			c.Tuning = gen.Tuning{Idle: time.Minute, BalanceInbound: true, BalanceOutbound: true}
		}), services: services[:2], targets: targets[:1]},
		{name: "telemetry-defaults", only: only, mesh: newMesh(everyProvider, defaultProviders), class: sidecar("c1", "shop"), services: services[:2], targets: targets[:1]},
		{name: "telemetry-legacy", only: only, mesh: newMesh(legacyTelemetry), class: sidecar("c1", "shop"), services: services[:2], targets: targets[:1]},
	}
}

func streamServices(t testing.TB) []svc {
	return []svc{
		routed(t, "db.shop.svc.cluster.local", tcpPort(3306), members("c1", "10.0.0.2", "c1", "10.8.0.0/16"),
			"tcp: [{match: [{destinationSubnets: [10.8.1.0/24]}], route: [{destination: {host: db.shop.svc.cluster.local, subset: v1}, weight: 1}, {destination: {host: db.shop.svc.cluster.local, subset: v2}, weight: 3}]}]"),
		routed(t, "wide.example", tlsPort(443), members("c1", "10.0.0.0/8")), routed(t, "narrow.example", tlsPort(443), members("c1", "10.1.0.0/16")),
		routed(t, "routed.example", tlsPort(443), nil, "tls: [{match: [{sniHosts: [routed.example, '*.routed.example']}, {sniHosts: [x.example], destinationSubnets: [10.1.2.0/24, 10.9.9.9]}], route: [{destination: {host: b.example}}]}]"),
		routed(t, "auto.shop.svc.cluster.local", autoPort(7000), members("c1", "10.0.0.7", "c1", "10.7.0.0/16"), "tcp: [{match: [{destinationSubnets: [10.7.1.0/24]}], route: [{destination: {host: b.example}}]}]"),
		{host: "*.dynamic.example", ns: "shop", resolution: model.DynamicDNS, ports: []model.Port{{Name: "https", Number: 443, Protocol: model.ProtocolHTTPS}}},
		{host: "web.example", ns: "shop", ports: []model.Port{httpPort(443)}},
	}
}

// hostileStreams have what validation of objects would refuse, or what Envoy is known to refuse.
func hostileStreams(t testing.TB) (out []svc) {
	for i, spec := range []string{
		`tls: [{match: [{sniHosts: ["", "*", "*x.example", "a*b", "**", "*.*.example", ".example", "*.", "UP.Example.", "a b", "é"]}], route: [{destination: {host: a}}]}]`,
		`tls: [{match: [{sniHosts: [a.example, a.example, A.example]}, {sniHosts: ["a.example."]}, {}], route: [{destination: {host: "a|b"}}]}, {match: [], route: []}, {}]`,
		`tls: [{match: [{sniHosts: [b.example], destinationSubnets: ["", x, 10.0.0.0/99, 10.1.2.3/8, 10.0.0.0/8, "::ffff:10.0.0.0/104", "fe80::1%eth0", "::/0", 0.0.0.0/0]}], route: [{}]}]`,
		`tls: [{match: [{sniHosts: [c.example]}], route: [{destination: {host: a}, weight: 2147483647}, {destination: {host: a}, weight: 2147483647}, {destination: {host: b, subset: "x|y"}, weight: 2147483647}, {weight: -1}]}]`,
	} {
		out = append(out, routed(t, fmt.Sprintf("s%d.shop.svc.cluster.local", i), tlsPort(443), nil, spec))
	}
	for i, spec := range []string{
		`tcp: [{match: [{destinationSubnets: [10.0.0.0/8, 10.9.9.9/8]}, {destinationSubnets: [nonsense]}], route: [{destination: {host: ""}}]}, {match: [{destinationSubnets: [nonsense]}]}, {}]`,
		`tcp: [{match: [{port: 99999}], route: [{destination: {host: a}}]}, {match: [{}], route: [{destination: {host: a, port: {number: 99999}}}]}]`,
	} {
		out = append(out, routed(t, fmt.Sprintf("t%d.shop.svc.cluster.local", i), tcpPort(5000), members("c1", fmt.Sprintf("10.0.0.%d", i+1)), spec))
	}
	return out
}

func everyEgress(c *gen.Class) {
	all := []pushcontext.Import{{Namespace: "*", Host: "*"}}
	at := func(n uint32, protocol, bind string, mode networking.CaptureMode) pushcontext.Egress {
		return pushcontext.Egress{Port: &networking.SidecarPort{Number: n, Protocol: protocol}, Bind: bind, Capture: mode, Imports: all}
	}
	sidecarScope(nil, at(80, "HTTP", "", 0), at(3306, "TCP", "127.0.0.5", networking.CaptureMode_NONE), at(3306, "MYSQL", "", 0), at(443, "TLS", "10.0.0.99", 0), at(443, "TLS", "unix:///x", 0),
		pushcontext.Egress{Bind: "127.0.0.6", Capture: networking.CaptureMode_NONE, Imports: all})(c)
}

// tlsIngress has listeners that end TLS with files, in some mode of capture.
func tlsIngress(mode networking.CaptureMode) *networking.Sidecar {
	tls := func(port uint32, protocol string, mode networking.ServerTLSSettings_TLSmode, edits ...func(*networking.ServerTLSSettings)) *networking.IstioIngressListener {
		l := ingress(port, protocol, "127.0.0.1:8081")
		l.Tls = &networking.ServerTLSSettings{Mode: mode, ServerCertificate: "/etc/certs/cert-chain.pem", PrivateKey: "/etc/certs/key.pem", CaCertificates: "/etc/certs/root-cert.pem"}
		for _, e := range edits {
			e(l.Tls)
		}
		return l
	}
	s := everyIngress()
	s.Ingress = append(s.Ingress, tls(8443, "HTTPS", networking.ServerTLSSettings_SIMPLE), tls(8444, "TLS", networking.ServerTLSSettings_MUTUAL),
		tls(8445, "HTTPS", networking.ServerTLSSettings_SIMPLE, func(s *networking.ServerTLSSettings) { s.CredentialName, s.ServerCertificate = "x", "" }),
		tls(8446, "TLS", networking.ServerTLSSettings_PASSTHROUGH))
	for _, l := range s.Ingress {
		l.CaptureMode = mode
	}
	s.Ingress[0].Bind = "127.0.0.8"
	return s
}

// telling is the scope of workloads that Telemetry objects are for.
func telling(list ...*telemetryv1.Telemetry) func(*gen.Class) {
	return func(c *gen.Class) {
		c.Scope = &pushcontext.Scope{}
		for _, t := range list {
			c.Scope.Telemetry = append(c.Scope.Telemetry, &pushcontext.Telemetry{Spec: t})
		}
	}
}

// The goldens of listeners, in testdata/listeners.
func TestListenerGoldens(t *testing.T) {
	t.Parallel()
	for _, s := range listenerScenarios(t) {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			var got bytes.Buffer
			for _, r := range s.resources(t) {
				fmt.Fprintf(&got, "# %s\n%s\n", r.name, text(t, decode(t, r)))
			}
			golden.Compare(t, filepath.Join("testdata", "listeners", s.name+".golden"), got.String())
		})
	}
}

// A stock Envoy takes the listeners of every scenario, whether the clusters of providers are there or not.
func TestEnvoyAcceptsListeners(t *testing.T) {
	t.Parallel()
	envoy := os.Getenv("ISTHMUS_ENVOY")
	if envoy == "" {
		t.Skip("ISTHMUS_ENVOY does not name an Envoy binary: the listeners are not validated by a real proxy here")
	}
	files := mounted(t)
	for _, s := range listenerScenarios(t) {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			b := &bootstrapv3.Bootstrap{
				Node:             &corev3.Node{Id: "test", Cluster: "test"},
				StaticResources:  &bootstrapv3.Bootstrap_StaticResources{Clusters: []*clusterv3.Cluster{staticCluster("xds")}},
				DynamicResources: &bootstrapv3.Bootstrap_DynamicResources{AdsConfig: adsConfig()},
			}
			for _, r := range s.resources(t) {
				embed(t, b.StaticResources, decode(t, r))
			}
			if why := validated(t, envoy, files, b); why != "" {
				t.Error(why)
			}
		})
	}
}

// validated gives what Envoy says against a bootstrap.
func validated(t *testing.T, envoy string, files *strings.Replacer, b *bootstrapv3.Bootstrap) string {
	t.Helper()
	raw, err := protojson.Marshal(b)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "bootstrap.json")
	if err := os.WriteFile(path, []byte(files.Replace(string(raw))), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), envoy, "--mode", "validate", "-c", path, "-l", "warning", "--disable-hot-restart").CombinedOutput()
	if err != nil {
		return fmt.Sprintf("%v\n%s", err, out)
	}
	return ""
}

// Listeners depend on nothing of a class but what the generator declares and keeps of it: scopes, labels and namespaces
// too.
func TestListenersDependOnDeclaredTraitsOnly(t *testing.T) {
	t.Parallel()
	rnd := rand.New(rand.NewPCG(3, 4))
	g := gen.Listeners{}
	shared := 0
	for _, s := range append(listenerScenarios(t), streamWorlds(t)...) {
		for _, v := range s.views() {
			if kind := kindOf(v); kind != pushcontext.ViewPort && kind != pushcontext.ViewTargets && kind != pushcontext.ViewMesh {
				continue
			}
			classes := map[gen.Class]bool{}
			for range 60 {
				c := scopedClass(rnd, s.class)
				kept := g.Narrow(v, c.Keep(g.Traits(v)))
				if classes[kept] {
					shared++
				}
				classes[kept] = true
				full, less := g.Names(v, c), g.Names(v, kept)
				if fmt.Sprint(full) != fmt.Sprint(less) {
					t.Fatalf("%s: %T: names %v, of the kept class %v", s.name, v, full, less)
				}
				for _, n := range full {
					a, err := g.Build(v, c, n)
					b, err2 := g.Build(v, kept, n)
					if err != nil || err2 != nil || !bytes.Equal(a, b) {
						t.Fatalf("%s: %s depends on more than %+v (%v, %v)", s.name, n, kept, err, err2)
					}
				}
			}
		}
	}
	if shared == 0 {
		t.Error("no two classes share anything")
	}
}

// streamWorlds have rules that tell proxies apart by all that there is.
func streamWorlds(t testing.TB) []scenario {
	hashedBySource := &networking.TrafficPolicy{LoadBalancer: &networking.LoadBalancerSettings{LbPolicy: &networking.LoadBalancerSettings_ConsistentHash{
		ConsistentHash: &networking.LoadBalancerSettings_ConsistentHashLB{HashKey: &networking.LoadBalancerSettings_ConsistentHashLB_UseSourceIp{UseSourceIp: true}}}}}
	selected := destination("other", "s", &networking.TrafficPolicy{}) // says nothing of connections, to some
	selected.Selector = model.Labels{"tier": "x"}
	private := func(s *pushcontext.ShapeView) {
		s.VirtualServices = append(s.VirtualServices, virtualService(t, "p", "tcp: [{match: [{sourceLabels: {app: x}}, {sourceNamespace: other}], route: [{destination: {host: b}}]}]", exportedTo("other", "shop")))
		s.Policies = append(s.Policies, selected, destination("other", "r", hashedBySource), destination("shop", "r", hashedBySource))
	}
	sourced := routed(t, "a.shop.svc.cluster.local", tlsPort(443), members("c1", "10.0.0.1"), "tls: [{match: [{sniHosts: [a], sourceLabels: {app: x}}], route: [{destination: {host: b}}]}, {match: [{sniHosts: [a], sourceNamespace: other}], route: [{destination: {host: c}}]}]")
	aliased := svc{host: "z.shop.svc.cluster.local", ports: []model.Port{tlsPort(443)}, edit: func(s *pushcontext.ShapeView) {
		s.Aliases = []pushcontext.Alias{{Host: "alias.other.svc.cluster.local", Namespace: "other", Export: pushcontext.Export{Namespaces: []string{"other"}}}}
	}}
	pooled := func(s *pushcontext.ShapeView) {
		s.Policies = append(s.Policies, destination("other", "r", &networking.TrafficPolicy{ConnectionPool: &networking.ConnectionPoolSettings{}}))
	}
	idle := func(m *settings) {
		m.Config.DefaultTrafficPolicy = &meshconfig.MeshConfig_DefaultTrafficPolicy{ConnectionPool: &networking.ConnectionPoolSettings{
			Tcp: &networking.ConnectionPoolSettings_TCPSettings{IdleTimeout: durationpb.New(time.Minute)}}}
	}
	return []scenario{{name: "idle", mesh: newMesh(idle), class: sidecar("c1", "shop"), services: []svc{
		{host: "db.shop.svc.cluster.local", ports: []model.Port{tcpPort(5000)}, vips: members("c1", "10.0.0.2"), edit: pooled}}}, {name: "sources", mesh: newMesh(), class: sidecar("c1", "shop"), services: []svc{sourced, aliased,
		{host: "db.shop.svc.cluster.local", ports: []model.Port{tcpPort(5000)}, vips: members("c1", "10.0.0.2"), edit: private}}}}
}

// scopedClass is a random class; half of them with the scope of another.
func scopedClass(r *rand.Rand, of gen.Class) gen.Class {
	c := randomClass(r)
	c.Labels = gen.NewLabels(model.Labels{"app": pick(r, "x", "y"), "tier": pick(r, "x", "y"), "pod": pick(r, "1", "2", "3")})
	c.Tuning = pick(r, gen.Tuning{}, gen.Tuning{Idle: 1, BalanceInbound: true}, gen.Tuning{Idle: -1, BalanceOutbound: true})
	if c.Type == gen.Sidecar && r.IntN(2) == 0 {
		c.Scope = of.Scope
	}
	return c
}

func everyProvider(m *settings) {
	add := func(name string, p *meshconfig.MeshConfig_ExtensionProvider) {
		p.Name = name
		m.Config.ExtensionProviders = append(m.Config.ExtensionProviders, p)
	}
	type provider = meshconfig.MeshConfig_ExtensionProvider
	const host = "telemetry.istio-system.svc.cluster.local"
	header := func(name, value string) *meshconfig.MeshConfig_ExtensionProvider_HttpHeader {
		return &meshconfig.MeshConfig_ExtensionProvider_HttpHeader{Name: name, HeaderValue: &meshconfig.MeshConfig_ExtensionProvider_HttpHeader_Value{Value: value}}
	}
	add("text", &provider{Provider: &meshconfig.MeshConfig_ExtensionProvider_EnvoyFileAccessLog{EnvoyFileAccessLog: &meshconfig.MeshConfig_ExtensionProvider_EnvoyFileAccessLogProvider{Path: "/dev/stdout",
		LogFormat: &meshconfig.MeshConfig_ExtensionProvider_EnvoyFileAccessLogProvider_LogFormat{LogFormat: &meshconfig.MeshConfig_ExtensionProvider_EnvoyFileAccessLogProvider_LogFormat_Text{Text: "%REQ_WITHOUT_QUERY(:PATH)% %RESPONSE_CODE%"}}}}})
	add("fields", &provider{Provider: &meshconfig.MeshConfig_ExtensionProvider_EnvoyFileAccessLog{EnvoyFileAccessLog: &meshconfig.MeshConfig_ExtensionProvider_EnvoyFileAccessLogProvider{Path: "/dev/stderr", OmitEmptyValues: true,
		LogFormat: &meshconfig.MeshConfig_ExtensionProvider_EnvoyFileAccessLogProvider_LogFormat{LogFormat: &meshconfig.MeshConfig_ExtensionProvider_EnvoyFileAccessLogProvider_LogFormat_Labels{Labels: logFields("code", "%RESPONSE_CODE%", "bad", "%NOSUCH%")}}}}})
	add("http", &provider{Provider: &meshconfig.MeshConfig_ExtensionProvider_EnvoyHttpAls{EnvoyHttpAls: &meshconfig.MeshConfig_ExtensionProvider_EnvoyHttpGrpcV3LogProvider{Service: "istio-system/" + host, Port: 9000, AdditionalRequestHeadersToLog: []string{"x-a"}, FilterStateObjectsToLog: []string{"s"}}}})
	add("tcp", &provider{Provider: &meshconfig.MeshConfig_ExtensionProvider_EnvoyTcpAls{EnvoyTcpAls: &meshconfig.MeshConfig_ExtensionProvider_EnvoyTcpGrpcV3LogProvider{Service: host, Port: 9000, LogName: "mine"}}})
	add("otel-log", &provider{Provider: &meshconfig.MeshConfig_ExtensionProvider_EnvoyOtelAls{EnvoyOtelAls: &meshconfig.MeshConfig_ExtensionProvider_EnvoyOpenTelemetryLogProvider{Service: host, Port: 4317,
		LogFormat: &meshconfig.MeshConfig_ExtensionProvider_EnvoyOpenTelemetryLogProvider_LogFormat{Labels: logFields("code", "%RESPONSE_CODE%")}}}})
	add("otel", &provider{Provider: &meshconfig.MeshConfig_ExtensionProvider_Opentelemetry{Opentelemetry: &meshconfig.MeshConfig_ExtensionProvider_OpenTelemetryTracingProvider{Service: host, Port: 4317, MaxTagLength: 99,
		Grpc: &meshconfig.MeshConfig_ExtensionProvider_GrpcService{InitialMetadata: []*meshconfig.MeshConfig_ExtensionProvider_HttpHeader{header("x-key", "v")}}}}})
	add("otel-http", &provider{Provider: &meshconfig.MeshConfig_ExtensionProvider_Opentelemetry{Opentelemetry: &meshconfig.MeshConfig_ExtensionProvider_OpenTelemetryTracingProvider{Service: host, Port: 4318,
		Http:              &meshconfig.MeshConfig_ExtensionProvider_HttpService{Path: "v1/traces", Headers: []*meshconfig.MeshConfig_ExtensionProvider_HttpHeader{header("x-key", "100%"), header("host", "bad"), {Name: "x-env", HeaderValue: &meshconfig.MeshConfig_ExtensionProvider_HttpHeader_EnvName{EnvName: "TOKEN"}}}},
		ResourceDetectors: &meshconfig.MeshConfig_ExtensionProvider_ResourceDetectors{Environment: &meshconfig.MeshConfig_ExtensionProvider_ResourceDetectors_EnvironmentResourceDetector{}, Dynatrace: &meshconfig.MeshConfig_ExtensionProvider_ResourceDetectors_DynatraceResourceDetector{}}}}})
	add("skywalking", &provider{Provider: &meshconfig.MeshConfig_ExtensionProvider_Skywalking{Skywalking: &meshconfig.MeshConfig_ExtensionProvider_SkyWalkingTracingProvider{Service: host, Port: 11800, AccessToken: "t"}}})
}

func defaultProviders(m *settings) {
	m.Config.DefaultProviders = &meshconfig.MeshConfig_DefaultProviders{AccessLogging: []string{"envoy", "http", "tcp", "nosuch"}, Tracing: []string{"skywalking"}}
}

func legacyTelemetry(m *settings) {
	m.Config.EnableTracing, m.Config.EnableEnvoyAccessLogService, m.Config.AccessLogFile = true, true, "/dev/stdout"
	m.Config.AccessLogFormat = "%NOSUCH%"
	m.Config.DefaultConfig = &meshconfig.ProxyConfig{Tracing: &meshconfig.Tracing{Sampling: 12.5, MaxPathTagLength: 77, CustomTags: map[string]*meshconfig.Tracing_CustomTag{
		"a": {Type: &meshconfig.Tracing_CustomTag_Literal{Literal: &meshconfig.Tracing_Literal{Value: "x"}}}, "b": {Type: &meshconfig.Tracing_CustomTag_Environment{Environment: &meshconfig.Tracing_Environment{Name: "B"}}},
		"c": {Type: &meshconfig.Tracing_CustomTag_Header{Header: &meshconfig.Tracing_RequestHeader{Name: "x-c", DefaultValue: "d"}}}, "empty": {}}}}
}
