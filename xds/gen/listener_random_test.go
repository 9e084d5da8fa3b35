package gen_test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"testing"
	"time"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
	meshconfig "istio.io/api/mesh/v1alpha1"
	networking "istio.io/api/networking/v1alpha3"
	telemetryv1 "istio.io/api/telemetry/v1alpha1"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/pushcontext"
	"github.com/isthmus-mesh/isthmus/xds/gen"
)

var (
	anyBinds     = []string{"", "", "", "127.0.0.1", "0.0.0.0", "::", "::1", "10.0.0.1", "10.0.0.2", "10.0.0.9", "127.0.0.9", "unix:///run/x", "x", "fe80::1%eth0"}
	anyProtocols = []string{"HTTP", "HTTP", "TCP", "TLS", "HTTPS", "GRPC", "", "HTTP2", "MONGO", "UDP", "HTTP_PROXY", "GRPC-WEB"}
	anyPorts     = []uint32{80, 80, 443, 7000, 3306, 8080, 15006, 15021, 0, 70000}
)

func anyMode(r *rand.Rand) networking.CaptureMode { return networking.CaptureMode(r.IntN(3)) }

// anySidecar is one that validation may or may not let through.
func anySidecar(r *rand.Rand) *networking.Sidecar {
	s := &networking.Sidecar{}
	for range r.IntN(5) {
		l := ingress(pick(r, anyPorts...), pick(r, anyProtocols...), pick(r, "127.0.0.1:8081", "", "unix:///run/app", "0.0.0.0:81", "[::1]:82", "x"))
		l.Bind, l.CaptureMode = pick(r, anyBinds...), anyMode(r)
		if r.IntN(4) == 0 {
			l.Tls = tlsOf(networking.ServerTLSSettings_TLSmode(r.IntN(6)))
		}
		s.Ingress = append(s.Ingress, l)
	}
	for range r.IntN(5) {
		e := &networking.IstioEgressListener{Bind: pick(r, anyBinds...), CaptureMode: anyMode(r), Hosts: []string{pick(r, "*/*", "./*", "shop/*", "~/*", "shop/"+cartHost)}}
		if r.IntN(3) > 0 {
			e.Port = &networking.SidecarPort{Number: pick(r, anyPorts...), Protocol: pick(r, anyProtocols...), Name: "x"}
		}
		s.Egress = append(s.Egress, e)
	}
	if r.IntN(2) == 0 {
		s.OutboundTrafficPolicy = &networking.OutboundTrafficPolicy{Mode: networking.OutboundTrafficPolicy_Mode(r.IntN(2))}
		if r.IntN(3) == 0 {
			s.OutboundTrafficPolicy.EgressProxy = &networking.Destination{Host: cartHost, Port: &networking.PortSelector{Number: 80}}
		}
	}
	return s
}

func anyTelemetry(r *rand.Rand) *telemetryv1.Telemetry {
	out := &telemetryv1.Telemetry{}
	providers := func() (list []string) {
		for range r.IntN(3) {
			list = append(list, pick(r, "text", "fields", "http", "tcp", "otel-log", "otel", "otel-http", "prometheus", "nobody"))
		}
		return list
	}
	for range r.IntN(3) {
		out.AccessLogging = append(out.AccessLogging, logging(telemetryv1.WorkloadMode(r.IntN(3)), pick(r, "", "", "response.code >= 400", "nonsense(", "connection.mtls"), r.IntN(4) == 0, providers()...))
	}
	for range r.IntN(3) {
		t := &telemetryv1.Tracing{Providers: refs(providers()), Match: &telemetryv1.Tracing_TracingSelector{Mode: telemetryv1.WorkloadMode(r.IntN(3))}}
		if r.IntN(2) == 0 {
			t.RandomSamplingPercentage = wrapperspb.Double(pick(r, 0, 0.01, 50, 100, 200, -1))
		}
		out.Tracing = append(out.Tracing, t)
	}
	for range r.IntN(2) {
		out.Metrics = append(out.Metrics, &telemetryv1.Metrics{Providers: refs(providers()), ReportingInterval: durationpb.New(pick[time.Duration](r, 0, 1e9))})
	}
	return out
}

func anySettings(r *rand.Rand) *settings {
	return newMesh(everyProvider, func(m *settings) {
		c := m.Config
		c.ProxyListenPort, c.ProxyInboundListenPort = pick[int32](r, 0, 0, 15001, 80, -1), pick[int32](r, 0, 0, 15006, 8080, 70000)
		c.OutboundTrafficPolicy = &meshconfig.MeshConfig_OutboundTrafficPolicy{Mode: meshconfig.MeshConfig_OutboundTrafficPolicy_Mode(r.IntN(3))}
		c.InboundTrafficPolicy = &meshconfig.MeshConfig_InboundTrafficPolicy{Mode: meshconfig.MeshConfig_InboundTrafficPolicy_Mode(r.IntN(2))}
		c.ProtocolDetectionTimeout = pick(r, nil, durationpb.New(0), durationpb.New(1e9))
		c.AccessLogFile, c.AccessLogFormat = pick(r, "", "/dev/stdout"), pick(r, "", "%NOSUCH%", "%RESPONSE_CODE%\n", `{"a": "%REQ(:PATH)%"}`)
		c.AccessLogEncoding = meshconfig.MeshConfig_AccessLogEncoding(r.IntN(2))
		c.EnableTracing, c.EnableEnvoyAccessLogService = r.IntN(2) == 0, r.IntN(4) == 0
		c.PathNormalization = &meshconfig.MeshConfig_ProxyPathNormalization{Normalization: meshconfig.MeshConfig_ProxyPathNormalization_NormalizationType(r.IntN(5))}
		c.TlsDefaults = &meshconfig.MeshConfig_TLSConfig{EcdhCurves: pick(r, nil, []string{"P-256", "NONSENSE"}), CipherSuites: pick(r, nil, []string{"NONSENSE"}, []string{"ECDHE-RSA-AES128-GCM-SHA256"})}
		c.MeshMTLS = &meshconfig.MeshConfig_TLSConfig{MinProtocolVersion: meshconfig.MeshConfig_TLSConfig_TLSProtocol(r.IntN(3)), CipherSuites: pick(r, nil, []string{"NONSENSE"})}
		if r.IntN(2) == 0 {
			c.DefaultConfig = &meshconfig.ProxyConfig{Tracing: &meshconfig.Tracing{Sampling: pick(r, 0, 1.5, 100, 1000)}}
			if r.IntN(2) == 0 {
				c.DefaultConfig.GatewayTopology = &meshconfig.Topology{NumTrustedProxies: 2, ForwardClientCertDetails: meshconfig.ForwardClientCertDetails(r.IntN(6))}
			}
		}
		if r.IntN(3) == 0 {
			c.DefaultProviders = &meshconfig.MeshConfig_DefaultProviders{AccessLogging: []string{"text", "nobody"}, Tracing: []string{"otel"}}
		}
	})
}

// anyProxy is a sidecar of some kind under objects of some kind.
func anyProxy(t testing.TB, r *rand.Rand) scenario {
	rule := pushcontext.NewSidecarRule(model.Source{}, anySidecar(r))
	at := map[string]*pushcontext.ScopeSpace{"shop": {Sidecar: rule, Telemetry: &pushcontext.Telemetry{Spec: anyTelemetry(r)}}, "root": {Telemetry: &pushcontext.Telemetry{Spec: anyTelemetry(r)}}}
	c := sidecar("c1", "shop", pick(r, secured, certified, func(*gen.Class) {}), func(c *gen.Class) {
		c.Interception = pick(r, gen.InterceptRedirect, gen.InterceptTProxy, gen.InterceptNone, gen.InterceptNone)
		c.IPv6 = r.IntN(3) == 0
		c.IPv4 = !c.IPv6 || r.IntN(2) == 0
		if r.IntN(4) == 0 {
			c.Bind = netip.MustParseAddr("127.0.0.9")
		}
		c.Scope = pushcontext.NewScopes(nil, "root", at, nil).Of(pushcontext.ScopeKey{Namespace: "shop"})
		c.CapturesDNS = r.IntN(2) == 0
	})
	services := []svc{
		{host: cartHost, ns: "shop", ports: []model.Port{httpPort(80), httpPort(8080)}, vips: members("c1", "10.0.0.1")},
		{host: "db.shop.svc.cluster.local", ns: "shop", ports: []model.Port{tcpPort(3306), tcpPort(80)}, vips: members("c1", "10.0.0.2", "c1", "10.8.0.0/16")},
		{host: "any.shop.svc.cluster.local", ns: "shop", ports: []model.Port{autoPort(7000), autoPort(8080)}, vips: members("c1", "10.0.0.4")},
		{host: "own.example", ns: "shop", ports: []model.Port{tcpPort(7000)}, vips: members("c1", "10.0.0.9")},
		{host: "api.example", ns: "bank", ports: []model.Port{tlsPort(443)}},
	}
	return scenario{mesh: anySettings(r), class: c, services: append(services, streamServices(t)...)[:3+r.IntN(6)], only: []gen.Generator{gen.Listeners{}},
		targets: served(model.MTLSPermissive, model.MTLSStrict, model.MTLSDisabled)[:r.IntN(9)]}
}

// Whatever Sidecars, Telemetries and settings say, a proxy's listeners are such that Envoy takes them all: each has addresses of
// its own, and no two chains of one match the same.
func TestAnySidecarsAreTaken(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(7, 8))
	bound := 0 // or else nothing would be tested
	for i := range 1500 {
		s := anyProxy(t, r)
		names, at := map[string]bool{}, map[string]string{}
		for _, x := range s.resources(t) {
			l := decode(t, x).(*listenerv3.Listener)
			if err := l.ValidateAll(); err != nil {
				t.Fatalf("%d: %v\n%s", i, err, text(t, l))
			}
			if names[l.Name] {
				t.Fatalf("%d: two listeners are named %s", i, l.Name)
			}
			names[l.Name] = true
			if l.BindToPort == nil {
				bound++
			}
			for _, a := range addressesOf(l) {
				if other := at[a]; other != "" {
					t.Fatalf("%d: %s and %s are both at %s\n%s", i, other, l.Name, a, describe(s))
				}
				at[a] = l.Name
			}
			distinctMatches(t, l)
		}
	}
	if bound < 1000 {
		t.Errorf("%d listeners are bound", bound)
	}
}

func describe(s scenario) string {
	return fmt.Sprintf("interception %v, families %v %v\n%v", s.class.Interception, s.class.IPv4, s.class.IPv6, s.class.Scope.Sidecar.Spec)
}

func addressesOf(l *listenerv3.Listener) []string {
	out := []string{l.Address.String()}
	for _, a := range l.AdditionalAddresses {
		out = append(out, a.Address.String())
	}
	return out
}

// distinctMatches makes sure that each connection is one chain's.
func distinctMatches(t *testing.T, l *listenerv3.Listener) {
	t.Helper()
	seen := map[string]bool{}
	for _, f := range l.FilterChains {
		m := text(t, f.GetFilterChainMatch())
		if seen[m] && l.FilterChainMatcher == nil {
			t.Fatalf("two chains match the same:\n%s", text(t, l))
		}
		seen[m] = true
	}
}

// A stock Envoy takes them indeed.
func TestEnvoyAcceptsAnySidecars(t *testing.T) {
	t.Parallel()
	envoy := os.Getenv("ISTHMUS_ENVOY")
	if envoy == "" {
		t.Skip("ISTHMUS_ENVOY does not name an Envoy binary: the listeners are not validated by a real proxy here")
	}
	files := mounted(t)
	r := rand.New(rand.NewPCG(9, 10))
	for range 60 {
		s := anyProxy(t, r)
		b := &bootstrapv3.Bootstrap{
			Node:             &corev3.Node{Id: "test", Cluster: "test"},
			StaticResources:  &bootstrapv3.Bootstrap_StaticResources{Clusters: []*clusterv3.Cluster{staticCluster("xds")}},
			DynamicResources: &bootstrapv3.Bootstrap_DynamicResources{AdsConfig: adsConfig()},
		}
		for _, x := range s.resources(t) {
			embed(t, b.StaticResources, decode(t, x))
		}
		if why := validated(t, envoy, files, b); why != "" {
			t.Errorf("%s\n%s", why, describe(s))
		}
	}
}
