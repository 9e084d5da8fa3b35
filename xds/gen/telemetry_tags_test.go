package gen_test

import (
	"bytes"
	"strings"
	"testing"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	tracev3 "github.com/envoyproxy/go-control-plane/envoy/config/trace/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"
	meshconfig "istio.io/api/mesh/v1alpha1"
	telemetryv1 "istio.io/api/telemetry/v1alpha1"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/pushcontext"
	"github.com/isthmus-mesh/isthmus/xds/gen"
)

// web is a workload that spans are of.
func web(c *gen.Class) {
	c.Spans = gen.NewSpanTags(model.Labels{"app": "web", "version": "v2"}, "web-7", "mesh-1", "shop", "c1")
}

// tagsOf are the tags of spans in the first chain for HTTP: "name=value …", "" for none.
func tagsOf(t *testing.T, l *listenerv3.Listener) string {
	t.Helper()
	for _, chain := range l.FilterChains {
		var out []string
		m := managerOf(t, chain)
		for _, tag := range m.GetTracing().GetCustomTags() {
			out = append(out, strings.TrimPrefix(tag.Tag, "istio.")+"="+tag.GetLiteral().GetValue())
		}
		if m != nil {
			return strings.Join(out, " ")
		}
	}
	return "no chain is for HTTP"
}

// Spans say whose they are, unless the Telemetry of the workload or else the settings of its proxy say otherwise.
func TestIstioTags(t *testing.T) {
	t.Parallel()
	const all, server = "canonical_revision=v2 canonical_service=web cluster_id=c1 mesh_id=mesh-1 namespace=shop", telemetryv1.WorkloadMode_SERVER
	told := func(mode telemetryv1.WorkloadMode, on bool) func(*gen.Class) {
		return telling(&telemetryv1.Telemetry{Tracing: []*telemetryv1.Tracing{
			{Providers: refs([]string{"otel"})}, {Match: &telemetryv1.Tracing_TracingSelector{Mode: mode}, EnableIstioTags: wrapperspb.Bool(on)}}})
	}
	traced := func(m *settings) {
		m.Config.EnableTracing = true
		m.Config.ExtensionProviders = []*meshconfig.MeshConfig_ExtensionProvider{{Name: "otel", Provider: &meshconfig.MeshConfig_ExtensionProvider_Opentelemetry{
			Opentelemetry: &meshconfig.MeshConfig_ExtensionProvider_OpenTelemetryTracingProvider{Service: "otel.shop.svc.cluster.local", Port: 4317}}}}
	}
	off := &meshconfig.ProxyConfig{Tracing: &meshconfig.Tracing{EnableIstioTags: wrapperspb.Bool(false)}}
	meshOff := func(m *settings) { m.Config.DefaultConfig = off }
	own := &telemetryv1.Telemetry{Tracing: []*telemetryv1.Tracing{{Providers: refs([]string{"otel"}), CustomTags: map[string]*telemetryv1.Tracing_CustomTag{
		"istio.namespace": {Type: &telemetryv1.Tracing_CustomTag_Literal{Literal: &telemetryv1.Tracing_Literal{Value: "mine"}}},
		"z":               {Type: &telemetryv1.Tracing_CustomTag_Literal{Literal: &telemetryv1.Tracing_Literal{Value: "last"}}}}}}}
	for name, c := range map[string]struct {
		mesh    func(*settings)
		class   []func(*gen.Class)
		out, in string
	}{
		"by default":               {nil, []func(*gen.Class){web}, all, all},
		"of nothing known":         {nil, []func(*gen.Class){func(c *gen.Class) { c.Spans = gen.SpanTags{} }}, strings.NewReplacer("v2", "latest", "=web", "=unknown", "c1", "unknown", "mesh-1", "unknown", "shop", "default").Replace(all), "same"},
		"the workload is known":    {nil, []func(*gen.Class){func(c *gen.Class) { c.Spans = gen.NewSpanTags(nil, "web", "mesh-1", "shop", "c1") }}, strings.ReplaceAll(all, "v2", "latest"), "same"},
		"off in the mesh":          {meshOff, []func(*gen.Class){web}, "", ""},
		"off at the proxy":         {nil, []func(*gen.Class){web, func(c *gen.Class) { c.Tuning.Own = gen.NewProxySettings(off) }}, "", ""},
		"off at the server":        {nil, []func(*gen.Class){web, told(server, false)}, all, ""},
		"on for the workload":      {meshOff, []func(*gen.Class){web, told(0, true)}, all, all},
		"a tag of the same name":   {nil, []func(*gen.Class){web, telling(own)}, strings.ReplaceAll(all, "shop", "mine") + " z=last", "same"},
		"without traces":           {func(m *settings) { m.Config.EnableTracing, m.Config.ExtensionProviders = false, nil }, []func(*gen.Class){web}, "", ""},
		"traces are off elsewhere": {nil, []func(*gen.Class){web, telling(&telemetryv1.Telemetry{Tracing: []*telemetryv1.Tracing{{DisableSpanReporting: wrapperspb.Bool(true)}}})}, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMesh(traced)
			if c.mesh != nil {
				m = newMesh(traced, c.mesh)
			}
			if c.in == "same" {
				c.in = c.out
			}
			targets := &pushcontext.TargetsView{Mesh: m.MeshView, Targets: []pushcontext.Target{{Host: "a", Port: 80, Endpoint: 80, Protocol: model.ProtocolHTTP}}}
			outward := portView(80, m, svc{host: cartHost, ports: []model.Port{httpPort(80)}})
			for v, want := range map[pushcontext.View]string{outward: c.out, targets: c.in} {
				checkTags(t, v, sidecar("c1", "shop", c.class...), want)
			}
			checkTags(t, gatewaysView(m, gatewayOf("a", httpServer(80, "*"))), edge(c.class...), c.out)
		})
	}
}

// checkTags builds the listeners of a view for a class, and for what is left of the class.
func checkTags(t *testing.T, v pushcontext.View, class gen.Class, want string) {
	t.Helper()
	g := gen.Listeners{}
	kept := g.Narrow(v, class.Keep(g.Traits(v)))
	names := g.Names(v, kept)
	if len(names) == 0 {
		t.Fatal("no listeners")
	}
	for _, r := range build(t, g, v, class) {
		if got := tagsOf(t, decode(t, r).(*listenerv3.Listener)); got != want {
			t.Errorf("%s: tags %q, want %q", r.name, got, want)
		}
	}
	for _, n := range names {
		whole, err := g.Build(v, class, n)
		less, err2 := g.Build(v, kept, n)
		if err != nil || err2 != nil || !bytes.Equal(whole, less) {
			t.Errorf("%s depends on more than %+v (%v, %v)", n, kept, err, err2)
		}
	}
}

// Workloads share listeners where nothing is traced, and those of ports that have no HTTP.
func TestTagsSplitOnlyWhatTraces(t *testing.T) {
	t.Parallel()
	traced := func(m *settings) { m.Config.EnableTracing = true }
	web, db := sidecar("c1", "shop", web), sidecar("c1", "shop")
	for name, c := range map[string]struct {
		mesh *settings
		port model.Port
		want bool
	}{
		"HTTP":              {newMesh(traced), httpPort(80), true},
		"sniffed":           {newMesh(traced), model.Port{Number: 80, Protocol: model.ProtocolUnknown}, true},
		"TCP":               {newMesh(traced), tcpPort(80), false},
		"nothing is traced": {newMesh(), httpPort(80), false},
	} {
		v := portView(80, c.mesh, svc{host: cartHost, ports: []model.Port{c.port}, vips: members("c1", "10.0.0.1")})
		g := gen.Listeners{}
		if got := g.Narrow(v, web.Keep(g.Traits(v))) != g.Narrow(v, db.Keep(g.Traits(v))); got != c.want {
			t.Errorf("%s: told apart: %v, want %v", name, got, c.want)
		}
	}
}

// Spans are of the service that the workload is of, in its namespace unless the proxy's settings say otherwise.
func TestServiceOfSpans(t *testing.T) {
	t.Parallel()
	named := func(how meshconfig.ProxyConfig_TracingServiceName) *meshconfig.ProxyConfig {
		return &meshconfig.ProxyConfig{ClusterName: &meshconfig.ProxyConfig_TracingServiceName_{TracingServiceName: how}}
	}
	for name, c := range map[string]struct {
		settings *meshconfig.ProxyConfig
		spans    gen.SpanTags
		want     string
	}{
		"by default":      {nil, gen.SpanTags{Service: "web", Namespace: "shop"}, "web.shop"},
		"in a namespace":  {named(meshconfig.ProxyConfig_CANONICAL_NAME_AND_NAMESPACE), gen.SpanTags{Service: "web", Namespace: "shop"}, "web.shop"},
		"the name only":   {named(meshconfig.ProxyConfig_CANONICAL_NAME_ONLY), gen.SpanTags{Service: "web", Namespace: "shop"}, "web"},
		"not known":       {nil, gen.SpanTags{Namespace: "shop"}, ""},
		"of no namespace": {nil, gen.SpanTags{Service: "web"}, "web"},
	} {
		for _, own := range []bool{false, true} {
			m := newMesh(everyProvider, func(m *settings) {
				if m.Config.DefaultProviders = (&meshconfig.MeshConfig_DefaultProviders{Tracing: []string{"otel"}}); !own {
					m.Config.DefaultConfig = c.settings
				}
			})
			class := sidecar("c1", "shop", func(k *gen.Class) {
				if k.Spans = c.spans; own && c.settings != nil {
					k.Tuning.Own = gen.NewProxySettings(c.settings)
				}
			})
			v := portView(80, m, svc{host: cartHost, ports: []model.Port{httpPort(80)}})
			l := decode(t, build(t, gen.Listeners{}, v, class)[0]).(*listenerv3.Listener)
			x := &tracev3.OpenTelemetryConfig{}
			if err := managerOf(t, l.FilterChains[0]).GetTracing().GetProvider().GetTypedConfig().UnmarshalTo(x); err != nil || x.ServiceName != c.want {
				t.Errorf("%s: %q, want %q (%v)", name, x.ServiceName, c.want, err)
			}
		}
	}
}
