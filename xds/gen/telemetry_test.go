package gen_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
	"istio.io/api/envoy/extensions/stats"
	meshconfig "istio.io/api/mesh/v1alpha1"
	telemetryv1 "istio.io/api/telemetry/v1alpha1"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/pushcontext"
	"github.com/isthmus-mesh/isthmus/xds/gen"
)

func logFields(pairs ...string) *structpb.Struct {
	out := &structpb.Struct{Fields: map[string]*structpb.Value{}}
	for i := 0; i < len(pairs); i += 2 {
		out.Fields[pairs[i]] = structpb.NewStringValue(pairs[i+1])
	}
	return out
}

// logging is an entry of a Telemetry object for access logs.
func logging(mode telemetryv1.WorkloadMode, filter string, off bool, providers ...string) *telemetryv1.AccessLogging {
	out := &telemetryv1.AccessLogging{Match: &telemetryv1.AccessLogging_LogSelector{Mode: mode}, Providers: refs(providers)}
	if filter != "" {
		out.Filter = &telemetryv1.AccessLogging_Filter{Expression: filter}
	}
	if off {
		out.Disabled = wrapperspb.Bool(true)
	}
	return out
}

func refs(names []string) (out []*telemetryv1.ProviderRef) {
	for _, n := range names {
		out = append(out, &telemetryv1.ProviderRef{Name: n})
	}
	return out
}

func everyTelemetry() []*telemetryv1.Telemetry {
	return []*telemetryv1.Telemetry{
		{AccessLogging: []*telemetryv1.AccessLogging{logging(0, "", false, "text", "fields", "http", "tcp", "otel-log")}, Tracing: []*telemetryv1.Tracing{{Providers: refs([]string{"otel"})}}},
		{AccessLogging: []*telemetryv1.AccessLogging{logging(telemetryv1.WorkloadMode_CLIENT, "response.code >= 400 && request.url_path.contains('x')", false)}, Tracing: []*telemetryv1.Tracing{{
			Match: &telemetryv1.Tracing_TracingSelector{Mode: telemetryv1.WorkloadMode_SERVER}, Providers: refs([]string{"otel-http"}), UseRequestIdForTraceSampling: wrapperspb.Bool(false), DisableContextPropagation: wrapperspb.Bool(true), RandomSamplingPercentage: wrapperspb.Double(50),
			CustomTags: map[string]*telemetryv1.Tracing_CustomTag{
				"l": {Type: &telemetryv1.Tracing_CustomTag_Literal{Literal: &telemetryv1.Tracing_Literal{Value: "v"}}}, "e": {Type: &telemetryv1.Tracing_CustomTag_Environment{Environment: &telemetryv1.Tracing_Environment{Name: "E", DefaultValue: "d"}}},
				"h": {Type: &telemetryv1.Tracing_CustomTag_Header{Header: &telemetryv1.Tracing_RequestHeader{Name: "x-h"}}}, "f": {Type: &telemetryv1.Tracing_CustomTag_Formatter{Formatter: &telemetryv1.Tracing_Formatter{Value: "%REQ(x-f)%"}}},
				"bad": {Type: &telemetryv1.Tracing_CustomTag_Formatter{Formatter: &telemetryv1.Tracing_Formatter{Value: "%NOSUCH%"}}},
			}}}},
	}
}

// Which providers log what, in each direction: "name" or "name if filter".
func TestAccessLogging(t *testing.T) {
	t.Parallel()
	const both, client, server = telemetryv1.WorkloadMode_CLIENT_AND_SERVER, telemetryv1.WorkloadMode_CLIENT, telemetryv1.WorkloadMode_SERVER
	named := func(list ...string) func(*settings) {
		return func(m *settings) {
			m.Config.DefaultProviders = &meshconfig.MeshConfig_DefaultProviders{AccessLogging: list}
			for _, n := range []string{"a", "b"} {
				m.Config.ExtensionProviders = append(m.Config.ExtensionProviders, &meshconfig.MeshConfig_ExtensionProvider{Name: n, Provider: &meshconfig.MeshConfig_ExtensionProvider_EnvoyFileAccessLog{
					EnvoyFileAccessLog: &meshconfig.MeshConfig_ExtensionProvider_EnvoyFileAccessLogProvider{Path: "/" + n}}})
			}
		}
	}
	file := func(m *settings) { named()(m); m.Config.AccessLogFile = "/legacy" }
	told := func(entries ...*telemetryv1.AccessLogging) *telemetryv1.Telemetry {
		return &telemetryv1.Telemetry{AccessLogging: entries}
	}
	for name, c := range map[string]struct {
		mesh      func(*settings)
		telemetry []*telemetryv1.Telemetry
		out, in   string
	}{
		"nothing":                           {named(), nil, "", ""},
		"the mesh's file":                   {file, nil, "legacy", "legacy"},
		"default providers":                 {named("b", "a", "b"), nil, "b a", "b a"},
		"default providers beside the file": {func(m *settings) { file(m); m.Config.DefaultProviders.AccessLogging = []string{"a"} }, nil, "a", "a"},
		"by name":                           {file, []*telemetryv1.Telemetry{told(logging(both, "", false, "a"))}, "a", "a"},
		"the narrower object counts":        {named("b"), []*telemetryv1.Telemetry{told(logging(both, "", false, "a")), told(logging(both, "", false, "b"))}, "b", "b"},
		"off":                               {named("a"), []*telemetryv1.Telemetry{told(logging(both, "", true))}, "", ""},
		"off at the server":                 {named("a"), []*telemetryv1.Telemetry{told(logging(server, "", true))}, "a", ""},
		"the mesh's file is off":            {file, []*telemetryv1.Telemetry{told(logging(client, "", true))}, "", "legacy"},
		"off above, on below":               {named("a"), []*telemetryv1.Telemetry{told(logging(both, "", true)), told(logging(both, "", false, "a"))}, "a", "a"},
		"one of several off":                {named("a", "b"), []*telemetryv1.Telemetry{told(logging(both, "", false, "a", "b"), logging(both, "", true, "b"))}, "a", "a"},
		"a filter":                          {named("a"), []*telemetryv1.Telemetry{told(logging(client, "response.code > 1", false))}, "a if response.code > 1", "a"},
		"a filter for the file":             {file, []*telemetryv1.Telemetry{told(logging(both, "response.code > 1", false))}, "legacy if response.code > 1", "legacy if response.code > 1"},
		"a filter that can't be read":       {named("a"), []*telemetryv1.Telemetry{told(logging(both, "response.code >", false))}, "", ""},
		"a provider that there is not":      {named("c"), nil, "", ""},
		"of the client only":                {named(), []*telemetryv1.Telemetry{told(logging(client, "", false, "a"), logging(server, "", false, "b"))}, "a", "b"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m, class := newMesh(c.mesh), sidecar("c1", "shop", telling(c.telemetry...))
			port := portView(5000, m, svc{host: "a.shop.svc.cluster.local", ports: []model.Port{tcpPort(5000)}, vips: members("c1", "10.0.0.1")})
			targets := &pushcontext.TargetsView{Mesh: m.MeshView, Targets: []pushcontext.Target{{Host: "a", Port: 80, Endpoint: 80, Protocol: model.ProtocolHTTP}}}
			for v, want := range map[pushcontext.View]string{port: c.out, targets: c.in} {
				for _, r := range build(t, gen.Listeners{}, v, class) {
					if got := logsOf(t, decode(t, r).(*listenerv3.Listener)); got != want {
						t.Errorf("%s: %q, want %q", r.name, got, want)
					}
				}
			}
		})
	}
}

// logsOf are the logs of the last chain.
func logsOf(t *testing.T, l *listenerv3.Listener) string {
	var out []string
	all := strings.ReplaceAll(text(t, l.FilterChains[len(l.FilterChains)-1]), "\n", "")
	for _, part := range strings.Split(all, `"name": "envoy.access_loggers.file"`)[1:] {
		_, path, _ := strings.Cut(part, `"path": "/`)
		path, _, _ = strings.Cut(path, `"`)
		if _, filter, ok := strings.Cut(part, `"expression": "`); ok {
			filter, _, _ = strings.Cut(filter, `"`)
			path += " if " + strings.ReplaceAll(filter, `\u003e`, ">")
		}
		out = append(out, path)
	}
	return strings.Join(out, " ")
}

// How requests are traced: the provider and the share of requests.
func TestTracing(t *testing.T) {
	t.Parallel()
	entry := func(mode telemetryv1.WorkloadMode, sampling float64, off bool, providers ...string) *telemetryv1.Telemetry {
		e := &telemetryv1.Tracing{Match: &telemetryv1.Tracing_TracingSelector{Mode: mode}, Providers: refs(providers)}
		if sampling >= 0 {
			e.RandomSamplingPercentage = wrapperspb.Double(sampling)
		}
		if off {
			e.DisableSpanReporting = wrapperspb.Bool(true)
		}
		return &telemetryv1.Telemetry{Tracing: []*telemetryv1.Tracing{e}}
	}
	for name, c := range map[string]struct {
		mesh      func(*settings)
		telemetry []*telemetryv1.Telemetry
		out, in   string
	}{
		"nothing":                      {everyProvider, nil, "", ""},
		"the bootstrap's":              {func(m *settings) { m.Config.EnableTracing = true }, nil, "- 1%", "- 1%"},
		"the bootstrap's, sampled":     {legacyTelemetry, nil, "- 12.5%", "- 12.5%"},
		"a default provider":           {func(m *settings) { everyProvider(m); defaultProviders(m) }, nil, "skywalking 1%", "skywalking 1%"},
		"by name":                      {everyProvider, []*telemetryv1.Telemetry{entry(0, 0, false, "otel")}, "opentelemetry 0%", "opentelemetry 0%"},
		"of the server only":           {everyProvider, []*telemetryv1.Telemetry{entry(telemetryv1.WorkloadMode_SERVER, 100, false, "otel")}, "", "opentelemetry 100%"},
		"off":                          {func(m *settings) { everyProvider(m); defaultProviders(m) }, []*telemetryv1.Telemetry{entry(telemetryv1.WorkloadMode_CLIENT, -1, true)}, "", "skywalking 1%"},
		"sampled below":                {everyProvider, []*telemetryv1.Telemetry{entry(0, 1, false, "otel"), entry(0, 20, false)}, "opentelemetry 20%", "opentelemetry 20%"},
		"a provider that there is not": {everyProvider, []*telemetryv1.Telemetry{entry(0, 1, false, "nosuch")}, "", ""},
		"a provider that only logs":    {everyProvider, []*telemetryv1.Telemetry{entry(0, 1, false, "text")}, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m, class := newMesh(c.mesh), sidecar("c1", "shop", telling(c.telemetry...))
			port := portView(80, m, svc{host: cartHost, ports: []model.Port{httpPort(80)}})
			targets := &pushcontext.TargetsView{Mesh: m.MeshView, Targets: []pushcontext.Target{{Host: "a", Port: 80, Endpoint: 80, Protocol: model.ProtocolHTTP}}}
			for v, want := range map[pushcontext.View]string{port: c.out, targets: c.in} {
				for _, r := range build(t, gen.Listeners{}, v, class) {
					if got := tracerText(t, decode(t, r).(*listenerv3.Listener)); got != want {
						t.Errorf("%s: %q, want %q", r.name, got, want)
					}
				}
			}
		})
	}
}

func tracerText(t *testing.T, l *listenerv3.Listener) string {
	t.Helper()
	for _, f := range l.FilterChains {
		m := managerOf(t, f)
		if m == nil {
			continue
		}
		if m.Tracing == nil {
			return ""
		}
		name := "-"
		if p := m.Tracing.Provider; p != nil {
			name = strings.TrimPrefix(p.Name, "envoy.tracers.")
		}
		return fmt.Sprintf("%s %v%%", name, m.Tracing.RandomSampling.Value)
	}
	return "no manager"
}

// managerOf gives the HTTP connection manager of a chain, nil if it has none.
func managerOf(t *testing.T, f *listenerv3.FilterChain) *hcmv3.HttpConnectionManager {
	t.Helper()
	m := &hcmv3.HttpConnectionManager{}
	for _, x := range f.Filters {
		if x.GetTypedConfig().MessageIs(m) {
			if err := x.GetTypedConfig().UnmarshalTo(m); err != nil {
				t.Fatal(err)
			}
			return m
		}
	}
	return nil
}

// What Istio's Envoy counts, as overrides have it. Stock Envoys have no such statistics.
func TestMetrics(t *testing.T) {
	t.Parallel()
	override := func(mode telemetryv1.WorkloadMode, metric telemetryv1.MetricSelector_IstioMetric, off bool, tags ...string) *telemetryv1.MetricsOverrides {
		o := &telemetryv1.MetricsOverrides{Match: &telemetryv1.MetricSelector{Mode: mode, MetricMatch: &telemetryv1.MetricSelector_Metric{Metric: metric}}, TagOverrides: map[string]*telemetryv1.MetricsOverrides_TagOverride{}}
		if off {
			o.Disabled = wrapperspb.Bool(true)
		}
		for _, x := range tags {
			tag, value, set := strings.Cut(x, "=")
			o.TagOverrides[tag] = &telemetryv1.MetricsOverrides_TagOverride{Value: value, Operation: telemetryv1.MetricsOverrides_TagOverride_REMOVE}
			if set {
				o.TagOverrides[tag].Operation = telemetryv1.MetricsOverrides_TagOverride_UPSERT
			}
		}
		return o
	}
	for name, c := range map[string]struct {
		overrides []*telemetryv1.MetricsOverrides
		out, in   string
	}{
		"none":         {nil, "{}", "{}"},
		"a tag":        {[]*telemetryv1.MetricsOverrides{override(0, telemetryv1.MetricSelector_REQUEST_COUNT, false, "x=request.host", "y", "bad=(")}, `{"metrics":[{"dimensions":{"x":"request.host"},"name":"requests_total","tagsToRemove":["y"]}]}`, "same"},
		"one off":      {[]*telemetryv1.MetricsOverrides{override(telemetryv1.WorkloadMode_CLIENT, telemetryv1.MetricSelector_TCP_SENT_BYTES, true)}, `{"metrics":[{"name":"tcp_sent_bytes_total","drop":true}]}`, "{}"},
		"all off":      {[]*telemetryv1.MetricsOverrides{override(telemetryv1.WorkloadMode_SERVER, 0, true)}, "{}", ""},
		"set, removed": {[]*telemetryv1.MetricsOverrides{override(0, telemetryv1.MetricSelector_REQUEST_SIZE, false, "x=1"), override(0, telemetryv1.MetricSelector_REQUEST_SIZE, false, "x")}, `{"metrics":[{"name":"request_bytes","tagsToRemove":["x"]}]}`, "same"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			class := sidecar("c1", "shop", telling(&telemetryv1.Telemetry{Metrics: []*telemetryv1.Metrics{{Overrides: c.overrides}}}), func(c *gen.Class) { c.Extensions = gen.ExtIstioStats })
			if c.in == "same" {
				c.in = c.out
			}
			m := newMesh()
			port := portView(5000, m, svc{host: "a.shop.svc.cluster.local", ports: []model.Port{tcpPort(5000)}, vips: members("c1", "10.0.0.1")})
			targets := &pushcontext.TargetsView{Mesh: m.MeshView, Targets: []pushcontext.Target{{Host: "a", Port: 80, Endpoint: 80, Protocol: model.ProtocolTCP}}}
			for v, want := range map[pushcontext.View]string{port: c.out, targets: c.in} {
				for _, r := range build(t, gen.Listeners{}, v, class) {
					if got := statisticsOf(t, decode(t, r).(*listenerv3.Listener)); got != want {
						t.Errorf("%s: %s, want %s", r.name, got, want)
					}
				}
			}
		})
	}
}

// Only where Prometheus is among the providers of metrics something is counted, and only what is said of it counts.
func TestMetricProviders(t *testing.T) {
	t.Parallel()
	entry := func(off bool, providers ...string) *telemetryv1.Telemetry {
		m := &telemetryv1.Metrics{Providers: refs(providers)}
		if off {
			m.Overrides = []*telemetryv1.MetricsOverrides{{Disabled: wrapperspb.Bool(true)}}
		}
		return &telemetryv1.Telemetry{Metrics: []*telemetryv1.Metrics{m}}
	}
	for name, c := range map[string]struct {
		defaults  []string
		telemetry []*telemetryv1.Telemetry
		want      string
	}{
		"nothing said":               {nil, nil, "{}"},
		"the mesh's":                 {[]string{"prometheus"}, nil, "{}"},
		"another of the mesh":        {[]string{"stack"}, nil, ""},
		"own":                        {[]string{"stack"}, []*telemetryv1.Telemetry{entry(false, "prometheus")}, "{}"},
		"own other":                  {nil, []*telemetryv1.Telemetry{entry(false, "stack")}, ""},
		"another is off":             {[]string{"prometheus"}, []*telemetryv1.Telemetry{{Metrics: append(entry(false, "prometheus").Metrics, entry(true, "stack").Metrics...)}}, "{}"},
		"off":                        {[]string{"prometheus"}, []*telemetryv1.Telemetry{entry(true)}, ""},
		"the narrower object counts": {nil, []*telemetryv1.Telemetry{entry(false, "stack"), entry(false, "prometheus")}, "{}"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMesh(func(m *settings) {
				m.Config.DefaultProviders = &meshconfig.MeshConfig_DefaultProviders{Metrics: c.defaults}
				m.Config.ExtensionProviders = []*meshconfig.MeshConfig_ExtensionProvider{{Name: "stack", Provider: &meshconfig.MeshConfig_ExtensionProvider_Stackdriver{}}}
			})
			class := sidecar("c1", "shop", telling(c.telemetry...), func(c *gen.Class) { c.Extensions = gen.ExtIstioStats })
			port := portView(5000, m, svc{host: "a.shop.svc.cluster.local", ports: []model.Port{tcpPort(5000)}, vips: members("c1", "10.0.0.1")})
			for _, r := range build(t, gen.Listeners{}, port, class) {
				if got := statisticsOf(t, decode(t, r).(*listenerv3.Listener)); got != c.want {
					t.Errorf("%s, want %s", got, c.want)
				}
			}
		})
	}
}

// statisticsOf is the configuration of the filter in the first chain, "" without one.
func statisticsOf(t *testing.T, l *listenerv3.Listener) string {
	t.Helper()
	for _, f := range l.FilterChains[0].Filters {
		if f.Name == "istio.stats" {
			s := &stats.PluginConfig{}
			if err := f.GetTypedConfig().UnmarshalTo(s); err != nil {
				t.Fatal(err)
			}
			return strings.Join(strings.Fields(text(t, s)), "")
		}
	}
	return ""
}

// Telemetry is for routers too, and listeners of equal plans differ by it.
func TestTelemetryOfRouters(t *testing.T) {
	t.Parallel()
	named := func(m *settings) {
		m.Config.ExtensionProviders = []*meshconfig.MeshConfig_ExtensionProvider{{Name: "a", Provider: &meshconfig.MeshConfig_ExtensionProvider_EnvoyFileAccessLog{
			EnvoyFileAccessLog: &meshconfig.MeshConfig_ExtensionProvider_EnvoyFileAccessLogProvider{Path: "/logged"}}}}
	}
	told := telling(&telemetryv1.Telemetry{AccessLogging: []*telemetryv1.AccessLogging{logging(telemetryv1.WorkloadMode_CLIENT, "", false, "a")}})
	m := newMesh(named)
	servers := bound(m, join(gatewayOf("web", httpServer(80, "*")), streamGateways()), streamGatewayRoutes()...)
	v := gatewaysView(m, servers)
	g := gen.Listeners{}
	for _, c := range []struct {
		class gen.Class
		want  bool
	}{{edge(), false}, {edge(told), true}} {
		kept := g.Narrow(v, c.class.Keep(g.Traits(v)))
		names := g.Names(v, kept)
		if len(names) == 0 {
			t.Fatal("no listeners")
		}
		for _, n := range names {
			whole, err := g.Build(v, c.class, n)
			less, err2 := g.Build(v, kept, n)
			if err != nil || err2 != nil || !bytes.Equal(whole, less) {
				t.Errorf("%s depends on more than %+v (%v, %v)", n, kept, err, err2)
			}
			if got := strings.Contains(string(less), "/logged"); got != c.want {
				t.Errorf("%s: logs: %v, want %v", n, got, c.want)
			}
		}
	}
}

// Connections that a listener has no chain for are logged too, unless the mesh wants that not.
func TestLogsOfRefusedConnections(t *testing.T) {
	t.Parallel()
	filtered := telling(&telemetryv1.Telemetry{AccessLogging: []*telemetryv1.AccessLogging{logging(0, "connection.mtls", false)}})
	for _, c := range []struct {
		off   bool
		class gen.Class
		want  string
	}{
		{false, sidecar("c1", "shop"), `"flags":["NR"]`}, {true, sidecar("c1", "shop"), "[]"}, {false, sidecar("c1", "shop", filtered), `"andFilter":{"filters":[{"responseFlagFilter":{"flags":["NR"]}},{"extensionFilter"`},
	} {
		m := newMesh(func(m *settings) { m.Config.AccessLogFile, m.Config.DisableEnvoyListenerLog = "/logged", c.off })
		for _, v := range []pushcontext.View{m.MeshView, &pushcontext.TargetsView{Mesh: m.MeshView}} {
			for _, r := range build(t, gen.Listeners{}, v, c.class) {
				got := "[]"
				for _, l := range decode(t, r).(*listenerv3.Listener).AccessLog {
					got = strings.Join(strings.Fields(text(t, l)), "")
				}
				if !strings.Contains(got, c.want) {
					t.Errorf("%s: %s, want %s", r.name, got, c.want)
				}
			}
		}
	}
}
