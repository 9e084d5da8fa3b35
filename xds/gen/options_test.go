package gen_test

import (
	"slices"
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

// compact is a resource's text without white space.
func compact(t testing.TB, r resource) string {
	t.Helper()
	return strings.Join(strings.Fields(text(t, decode(t, r))), "")
}

// TestMeshSettings: each setting of the mesh shows in some resource of one HTTP service.
func TestMeshSettings(t *testing.T) {
	t.Parallel()
	encode := func(e meshconfig.MeshConfig_AccessLogEncoding, file, format string) func(*meshconfig.MeshConfig) {
		return func(c *meshconfig.MeshConfig) {
			c.AccessLogFile, c.AccessLogEncoding, c.AccessLogFormat = file, e, format
		}
	}
	normal := func(n meshconfig.MeshConfig_ProxyPathNormalization_NormalizationType) func(*meshconfig.MeshConfig) {
		return func(c *meshconfig.MeshConfig) {
			c.PathNormalization = &meshconfig.MeshConfig_ProxyPathNormalization{Normalization: n}
		}
	}
	policy := func(p *meshconfig.MeshConfig_DefaultTrafficPolicy) func(*meshconfig.MeshConfig) {
		return func(c *meshconfig.MeshConfig) { c.DefaultTrafficPolicy = p }
	}
	tcp := func(s *networking.ConnectionPoolSettings_TCPSettings) func(*meshconfig.MeshConfig) {
		return policy(&meshconfig.MeshConfig_DefaultTrafficPolicy{ConnectionPool: &networking.ConnectionPoolSettings{Tcp: s}})
	}
	outlier := func(o *networking.OutlierDetection) func(*meshconfig.MeshConfig) {
		return policy(&meshconfig.MeshConfig_DefaultTrafficPolicy{OutlierDetection: o})
	}
	for _, c := range []struct {
		name string
		edit func(*meshconfig.MeshConfig)
		want []string
		not  []string
	}{
		{"none", func(*meshconfig.MeshConfig) {}, []string{`"normalizePath":true`, `"connectTimeout":"10s"`, `"numRetries":2`, `"healthyPanicThreshold":{}`}, []string{"accessLog", "outlierDetection", "mergeSlashes", "tcpKeepalive"}},
		{"stdout, Istio's format", encode(meshconfig.MeshConfig_TEXT, "/dev/stdout", ""), []string{"StdoutAccessLog", `%CONNECTION_TERMINATION_DETAILS%\"%UPSTREAM_TRANSPORT_FAILURE_REASON%\"`, `%ROUTE_NAME%\n"`}, nil},
		{"stdout, format that Envoy would refuse", encode(meshconfig.MeshConfig_TEXT, "/dev/stdout", "%NOSUCH%"), []string{"StdoutAccessLog", `%REQUESTED_SERVER_NAME%%ROUTE_NAME%\n"`}, []string{"NOSUCH"}},
		{"stdout, own format", encode(meshconfig.MeshConfig_TEXT, "/dev/stdout", "%PROTOCOL%"), []string{"StdoutAccessLog", `"inlineString":"%PROTOCOL%\n"`}, nil},
		{"stderr, JSON", encode(meshconfig.MeshConfig_JSON, "/dev/stderr", `{"p":"%PROTOCOL%"}`), []string{"StderrAccessLog", `"jsonFormat":{"p":"%PROTOCOL%"}`}, nil},
		{"file, JSON that can't be read", encode(meshconfig.MeshConfig_JSON, "/var/log/a", `{`), []string{"FileAccessLog", `"path":"/var/log/a"`, `"authority":"%REQ(:AUTHORITY)%"`}, nil},
		{"no normalization", normal(meshconfig.MeshConfig_ProxyPathNormalization_NONE), []string{`"normalizePath":false`}, nil},
		{"merge slashes", normal(meshconfig.MeshConfig_ProxyPathNormalization_MERGE_SLASHES), []string{`"mergeSlashes":true`}, []string{"UNESCAPE"}},
		{"connect timeout", func(c *meshconfig.MeshConfig) { c.ConnectTimeout = durationpb.New(3e9) }, []string{`"connectTimeout":"3s"`}, nil},
		{"connect timeout of the pool", tcp(&networking.ConnectionPoolSettings_TCPSettings{ConnectTimeout: durationpb.New(4e9)}), []string{`"connectTimeout":"4s"`}, nil},
		{"keepalive of the pool", tcp(&networking.ConnectionPoolSettings_TCPSettings{TcpKeepalive: &networking.ConnectionPoolSettings_TCPSettings_TcpKeepalive{Probes: 7}}),
			[]string{`"tcpKeepalive":{"keepaliveProbes":7}`}, nil},
		{"gateway errors", outlier(&networking.OutlierDetection{ConsecutiveGatewayErrors: wrapperspb.UInt32(4), Consecutive_5XxErrors: wrapperspb.UInt32(0)}),
			[]string{`"consecutiveGatewayFailure":4`, `"enforcingConsecutiveGatewayFailure":100`, `"enforcingConsecutive5xx":0`, `"enforcingSuccessRate":0`}, nil},
		{"local errors", outlier(&networking.OutlierDetection{SplitExternalLocalOriginErrors: true, ConsecutiveLocalOriginFailures: wrapperspb.UInt32(6)}),
			[]string{`"consecutiveLocalOriginFailure":6`, `"enforcingConsecutiveLocalOriginFailure":100`, `"enforcingLocalOriginSuccessRate":0`}, nil},
		{"panic threshold", outlier(&networking.OutlierDetection{MinHealthPercent: 30}), []string{`"healthyPanicThreshold":{"value":30}`}, nil},
		{"no retries", func(c *meshconfig.MeshConfig) { c.DefaultHttpRetryPolicy = &networking.HTTPRetry{} }, nil, []string{"connect-failure"}},
		{"statistics", func(c *meshconfig.MeshConfig) { c.OutboundClusterStatName = "%SERVICE_NAME%.%SERVICE_FQDN%" }, []string{`"altStatName":"cart.cart.shop.svc.cluster.local"`}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			m := newMesh(func(m *settings) { c.edit(m.Config) })
			s := cart(ep("c1", "http", "10.0.0.1:80"))
			var all strings.Builder
			for _, r := range (scenario{mesh: m, class: sidecar("c1", "shop"), services: []svc{s}}).resources(t) {
				all.WriteString(compact(t, r))
			}
			for _, w := range c.want {
				if !strings.Contains(all.String(), w) {
					t.Errorf("%s is missing", w)
				}
			}
			for _, w := range c.not {
				if strings.Contains(all.String(), w) {
					t.Errorf("%s is there", w)
				}
			}
		})
	}
}

// Services that share a port of the workload and disagree on its protocol are all served.
func TestInboundPortOfTwoServices(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		a, b model.Protocol
		want []string // chains of the port
	}{
		{model.ProtocolHTTP, model.ProtocolHTTP, []string{"inbound|8080||"}},
		{model.ProtocolHTTP, model.ProtocolGRPC, []string{"inbound|8080||"}},
		{model.ProtocolTCP, model.ProtocolTLS, []string{"inbound|8080||"}},
		{model.ProtocolHTTP, model.ProtocolTCP, []string{"inbound|8080||http", "inbound|8080||"}},
		{model.ProtocolUDP, model.ProtocolTCP, []string{"inbound|8080||"}},
		{model.ProtocolUDP, model.ProtocolUDP, nil},
	} {
		v := &pushcontext.TargetsView{Mesh: newMesh().MeshView, Targets: []pushcontext.Target{
			{Host: "a", Port: 80, Protocol: c.a, Endpoint: 8080}, {Host: "b", Port: 81, Protocol: c.b, Endpoint: 8080}}}
		body := compact(t, build(t, gen.Listeners{}, v, sidecar("c1", "a"))[0])
		var got []string
		for _, n := range []string{"inbound|8080||http", "inbound|8080||"} {
			if strings.Contains(body, `}],"name":"`+n+`"}`) {
				got = append(got, n)
			}
		}
		if d := cmp.Diff(c.want, got); d != "" {
			t.Errorf("%s and %s:\n%s", c.a, c.b, d)
		}
		clusters := names(t, gen.Clusters{}, v, sidecar("c1", "a"))
		if (len(clusters) == 1) != (c.want != nil) {
			t.Errorf("%s and %s: clusters %v", c.a, c.b, clusters)
		}
	}
}

func TestEndpointMetadata(t *testing.T) {
	t.Parallel()
	labels := func(l model.Labels) func(*model.Endpoint) { return func(e *model.Endpoint) { e.Labels = l } }
	for _, c := range []struct {
		labels model.Labels
		want   string
	}{
		{nil, "w;shop;w;;c1"},
		{model.Labels{"app": "cart", "version": "v2"}, "w;shop;cart;v2;c1"},
		{model.Labels{"app": "x", "app.kubernetes.io/name": "cart", "version": "latest"}, "w;shop;cart;;c1"},
		{model.Labels{"service.istio.io/canonical-name": "c", "service.istio.io/canonical-revision": "r", "app": "x"}, "w;shop;c;r;c1"},
	} {
		a := assigned(t, cart(ep("c1", "http", "10.0.0.1:80", labels(c.labels))).view(newMesh()), sidecar("c1", "shop"))
		meta := a.Endpoints[0].LbEndpoints[0].Metadata.FilterMetadata
		if got := meta["istio"].Fields["workload"].GetStringValue(); got != c.want {
			t.Errorf("%v: %s, want %s", c.labels, got, c.want)
		}
		if _, ok := meta["envoy.transport_socket_match"]; ok {
			t.Error("a plaintext endpoint is marked for mutual TLS")
		}
	}
}

// A proxy whose member has no address of a service uses that of the definition in force.
func TestRemoteAddressIsTheWinners(t *testing.T) {
	t.Parallel()
	from := func(won string) func(*pushcontext.ShapeView) {
		return func(s *pushcontext.ShapeView) {
			for _, c := range []model.ClusterID{"c1", "c2"} {
				s.Contributions = append(s.Contributions, pushcontext.Contribution{
					Source: model.Source{Shard: model.ShardKey{Cluster: c}}, Won: string(c) == won})
			}
		}
	}
	for won, want := range map[string]string{"c1": "10.0.0.1_5000", "c2": "10.0.0.2_5000", "": "10.0.0.1_5000"} {
		s := svc{host: "a.a.svc.cluster.local", ports: []model.Port{tcpPort(5000)}, vips: members("c1", "10.0.0.1", "c2", "10.0.0.2"), edit: from(won)}
		if d := cmp.Diff([]string{want}, names(t, gen.Listeners{}, portView(5000, newMesh(), s), sidecar("c3", "a"))); d != "" {
			t.Errorf("won by %q:\n%s", won, d)
		}
	}
}

// A LOGICAL_DNS cluster has one endpoint: Envoy refuses more.
func TestLogicalDNSHasOneEndpoint(t *testing.T) {
	t.Parallel()
	s := svc{host: "a.example", ns: "a", ports: []model.Port{httpPort(80)}, resolution: model.DNSRoundRobin,
		inline: []*model.Endpoint{ep("c1", "http", "b.example:80", weight(5)), ep("c1", "http", "c.example:80"), ep("c1", "http", "a.example:80", at("r1"))}}
	m := decode(t, build(t, gen.Clusters{}, s.shape(newMesh()), sidecar("c1", "a"))[0]).(*clusterv3.Cluster)
	if d := cmp.Diff([]string{"p0  w=5: b.example:80*5"}, assignmentText(m.LoadAssignment)); d != "" {
		t.Error(d)
	}
	if m.WaitForWarmOnInit.GetValue() {
		t.Error("the proxy's start waits for a resolver")
	}
}

func TestVerdictAsLeftOut(t *testing.T) {
	t.Parallel()
	e := ep("c2", "http", "10.0.0.1:80", network("n2"))
	vs := gen.ExplainEndpoints(cart(e).view(newMesh(twoNetworks)), sidecar("c1", "shop"), httpPort(80))
	want := model.LeftOut{Addr: e.Addr, Port: "http", Reason: model.ReasonNoMTLS, Detail: vs[0].Detail, Source: *e.Source}
	if got := vs[0].LeftOut(); got != want || !strings.Contains(got.Detail, "n2") {
		t.Errorf("%+v", got)
	}
	e.Source = nil
	if got := vs[0].LeftOut(); got.Source != (model.Source{}) {
		t.Errorf("%+v", got)
	}
	dns := svc{host: "a.example", ns: "a", ports: []model.Port{httpPort(80)}, resolution: model.DNSLB, inline: []*model.Endpoint{ep("c1", "http", "a.example:80")}}
	if vs := gen.ExplainEndpoints(dns.view(newMesh()), sidecar("c1", "a"), httpPort(80)); len(vs) != 1 || !vs[0].Sent {
		t.Errorf("endpoints of a DNS service: %+v", vs)
	}
	if vs := gen.ExplainEndpoints(dns.view(newMesh()), sidecar("c1", "a"), tcpPort(81)); len(vs) != 0 {
		t.Errorf("a port without endpoints: %+v", vs)
	}
}

func TestGeneratorsRefuseForeignViews(t *testing.T) {
	t.Parallel()
	v := cart().view(newMesh())
	for _, g := range gen.All() {
		for _, view := range []pushcontext.View{v, v.Shape, portView(80, newMesh()), &pushcontext.TargetsView{Mesh: newMesh().MeshView}, newMesh()} {
			if slices.Contains(g.Kinds(), kindOf(view)) {
				continue
			}
			if _, err := g.Build(view, gen.Class{}, "80"); err == nil || g.Names(view, gen.Class{}) != nil || g.Traits(view) != 0 {
				t.Errorf("%T makes something of a %T", g, view)
			}
		}
	}
}
