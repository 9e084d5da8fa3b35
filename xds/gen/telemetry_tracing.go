package gen

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	tracev3 "github.com/envoyproxy/go-control-plane/envoy/config/trace/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	uuidv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/request_id/uuid/v3"
	detectorsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/tracers/opentelemetry/resource_detectors/v3"
	tracingv3 "github.com/envoyproxy/go-control-plane/envoy/type/tracing/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	meshconfig "istio.io/api/mesh/v1alpha1"
	telemetryv1 "istio.io/api/telemetry/v1alpha1"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/pushcontext"
)

// traced is what Telemetry says of traces in one direction.
type traced struct {
	provider string // "" for none
	disabled bool
	sampling *float64 // percent; nil for the mesh's
	tags     map[string]*telemetryv1.Tracing_CustomTag
	silent   bool  // requests are sent on without the trace's headers
	own      bool  // the share of requests is chosen without regard to their ids
	named    *bool // spans have Istio's tags; nil for what the proxy's settings say
}

// tracedOf gives false if neither Telemetry nor default providers say anything.
func tracedOf(c Class, m *pushcontext.MeshView, d direction) (traced, bool) {
	var out traced
	said := false
	if names := m.Config.GetDefaultProviders().GetTracing(); len(names) > 0 {
		out.provider, said = names[0], true
	}
	if c.Scope == nil {
		return out, said
	}
	for _, t := range c.Scope.Telemetry {
		for _, e := range t.Spec.GetTracing() {
			if said = true; forDirection(e.GetMatch().GetMode(), d) {
				out.read(e)
			}
		}
	}
	return out, said
}

// read lays an entry over what was said before.
func (t *traced) read(e *telemetryv1.Tracing) {
	if names := refNames(e.Providers); len(names) > 0 {
		t.provider = names[0]
	}
	if e.DisableSpanReporting != nil {
		t.disabled = e.DisableSpanReporting.Value
	}
	if e.RandomSamplingPercentage != nil {
		t.sampling = &e.RandomSamplingPercentage.Value
	}
	if len(e.CustomTags) > 0 {
		t.tags = e.CustomTags
	}
	if e.DisableContextPropagation != nil {
		t.silent = e.DisableContextPropagation.Value
	}
	if e.EnableIstioTags != nil {
		t.named = &e.EnableIstioTags.Value
	}
	if e.UseRequestIdForTraceSampling != nil {
		t.own = !e.UseRequestIdForTraceSampling.Value
	}
}

// applyTracing says how requests are traced, if they are. With MeshConfig.enableTracing alone the tracer is that of the
// proxy's bootstrap.
func applyTracing(to *hcmv3.HttpConnectionManager, c Class, m *pushcontext.MeshView, d direction) {
	t, said := tracedOf(c, m, d)
	if to.Tracing = tracing(t, said, c, m); to.Tracing == nil {
		return
	}
	if to.Tracing.NoContextPropagation = t.silent; t.own {
		to.RequestIdExtension = &hcmv3.RequestIDExtension{TypedConfig: pack(&uuidv3.UuidRequestIdConfig{UseRequestIdForTraceSampling: no()})}
	}
}

func tracing(t traced, said bool, c Class, m *pushcontext.MeshView) *hcmv3.HttpConnectionManager_Tracing {
	own := c.proxySettings(m).GetTracing()
	out := &hcmv3.HttpConnectionManager_Tracing{ClientSampling: &typev3.Percent{Value: 100}, OverallSampling: &typev3.Percent{Value: 100}}
	if n := own.GetMaxPathTagLength(); n > 0 {
		out.MaxPathTagLength = u32(n)
	}
	sampling := own.GetSampling()
	if sampling <= 0 || sampling > 100 {
		sampling = 1
	}
	switch {
	case !said && !m.Config.GetEnableTracing() || t.disabled:
		return nil
	case !said:
		out.CustomTags = meshTags(own.GetCustomTags())
	default:
		p := m.Provider(t.provider)
		if out.Provider = tracer(p, c.Spans.name(c.proxySettings(m).GetTracingServiceName())); out.Provider == nil {
			return nil
		}
		if n := maxTagLength(p); n > 0 {
			out.MaxPathTagLength = u32(n)
		}
		if t.sampling != nil && *t.sampling >= 0 && *t.sampling <= 100 {
			sampling = *t.sampling
		}
		if out.CustomTags = customTags(t.tags); t.tags == nil {
			out.CustomTags = meshTags(own.GetCustomTags())
		}
	}
	if t.tagged(own) {
		out.CustomTags = c.Spans.withOwn(out.CustomTags)
	}
	out.RandomSampling = &typev3.Percent{Value: sampling}
	return out
}

// tagged reports whether spans have Istio's tags, as they do unless somebody says otherwise.
func (t traced) tagged(own *meshconfig.Tracing) bool {
	if t.named != nil {
		return *t.named
	}
	said := own.GetEnableIstioTags()
	return said == nil || said.Value
}

// tracer is a tracer that stock Envoys have, and that doesn't have the listener refused where its service is missing; nil
// for any other. The name is that of the service in spans.
func tracer(p *meshconfig.MeshConfig_ExtensionProvider, name string) *tracev3.Tracing_Http {
	switch x := p.GetProvider().(type) {
	case *meshconfig.MeshConfig_ExtensionProvider_Opentelemetry:
		return openTelemetry(x.Opentelemetry, name)
	case *meshconfig.MeshConfig_ExtensionProvider_Skywalking:
		to, ok := providerService(x.Skywalking.GetService(), x.Skywalking.GetPort())
		if !ok {
			return nil
		}
		out := &tracev3.SkyWalkingConfig{GrpcService: to.grpc(nil)}
		if token := x.Skywalking.GetAccessToken(); token != "" {
			out.ClientConfig = &tracev3.ClientConfig{BackendTokenSpecifier: &tracev3.ClientConfig_BackendToken{BackendToken: token}}
		}
		return tracerOf("envoy.tracers.skywalking", out)
	}
	return nil
}

func tracerOf(name string, config proto.Message) *tracev3.Tracing_Http {
	return &tracev3.Tracing_Http{Name: name, ConfigType: &tracev3.Tracing_Http_TypedConfig{TypedConfig: pack(config)}}
}

// openTelemetry sends spans by gRPC, or by HTTP if the provider says so.
func openTelemetry(p *meshconfig.MeshConfig_ExtensionProvider_OpenTelemetryTracingProvider, name string) *tracev3.Tracing_Http {
	to, ok := providerService(p.GetService(), p.GetPort())
	if !ok {
		return nil
	}
	out := &tracev3.OpenTelemetryConfig{ServiceName: name}
	if h := p.GetHttp(); h != nil {
		out.HttpService = to.http(h)
	} else {
		out.GrpcService = to.grpc(p.GetGrpc())
	}
	add := func(name string, config proto.Message) {
		out.ResourceDetectors = append(out.ResourceDetectors, &corev3.TypedExtensionConfig{
			Name: "envoy.tracers.opentelemetry.resource_detectors." + name, TypedConfig: pack(config)})
	}
	if p.GetResourceDetectors().GetEnvironment() != nil {
		add("environment", &detectorsv3.EnvironmentResourceDetectorConfig{})
	}
	if p.GetResourceDetectors().GetDynatrace() != nil {
		add("dynatrace", &detectorsv3.DynatraceResourceDetectorConfig{})
	}
	return tracerOf("envoy.tracers.opentelemetry", out)
}

func maxTagLength(p *meshconfig.MeshConfig_ExtensionProvider) uint32 {
	return p.GetOpentelemetry().GetMaxTagLength()
}

// customTags are sorted by name. What Envoy would refuse is left out.
func customTags(tags map[string]*telemetryv1.Tracing_CustomTag) (out []*tracingv3.CustomTag) {
	for _, name := range slices.Sorted(maps.Keys(tags)) {
		t := &tracingv3.CustomTag{Tag: name}
		switch x := tags[name].GetType().(type) {
		case *telemetryv1.Tracing_CustomTag_Literal:
			t.Type = literalTag(x.Literal.GetValue())
		case *telemetryv1.Tracing_CustomTag_Environment:
			t.Type = environmentTag(x.Environment.GetName(), x.Environment.GetDefaultValue())
		case *telemetryv1.Tracing_CustomTag_Header:
			t.Type = headerTag(x.Header.GetName(), x.Header.GetDefaultValue())
		case *telemetryv1.Tracing_CustomTag_Formatter:
			if model.ValidFormat(x.Formatter.GetValue()) {
				t.Type = &tracingv3.CustomTag_Value{Value: x.Formatter.GetValue()}
			}
		}
		if t.Type != nil && t.Validate() == nil {
			out = append(out, t)
		}
	}
	return out
}

// meshTags are those of MeshConfig.defaultConfig.
func meshTags(tags map[string]*meshconfig.Tracing_CustomTag) (out []*tracingv3.CustomTag) {
	for _, name := range slices.Sorted(maps.Keys(tags)) {
		t := &tracingv3.CustomTag{Tag: name}
		switch x := tags[name].GetType().(type) {
		case *meshconfig.Tracing_CustomTag_Literal:
			t.Type = literalTag(x.Literal.GetValue())
		case *meshconfig.Tracing_CustomTag_Environment:
			t.Type = environmentTag(x.Environment.GetName(), x.Environment.GetDefaultValue())
		case *meshconfig.Tracing_CustomTag_Header:
			t.Type = headerTag(x.Header.GetName(), x.Header.GetDefaultValue())
		}
		if t.Type != nil && t.Validate() == nil {
			out = append(out, t)
		}
	}
	return out
}

func literalTag(value string) *tracingv3.CustomTag_Literal_ {
	return &tracingv3.CustomTag_Literal_{Literal: &tracingv3.CustomTag_Literal{Value: value}}
}

func environmentTag(name, otherwise string) *tracingv3.CustomTag_Environment_ {
	return &tracingv3.CustomTag_Environment_{Environment: &tracingv3.CustomTag_Environment{Name: name, DefaultValue: otherwise}}
}

func headerTag(name, otherwise string) *tracingv3.CustomTag_RequestHeader {
	return &tracingv3.CustomTag_RequestHeader{RequestHeader: &tracingv3.CustomTag_Header{Name: name, DefaultValue: otherwise}}
}

// defaultExport is how long a collector may take to answer.
const defaultExport = 10 * time.Second

// collector is the service of an extension provider.
type collector struct{ host, cluster string }

// providerService reads "host" or "namespace/host". The host is one, whatever the namespace.
func providerService(service string, port uint32) (collector, bool) {
	_, host, ok := strings.Cut(service, "/")
	if !ok {
		host = service
	}
	host = canonical(host)
	if host == "" || strings.ContainsAny(host, "|*") || !headerText(host) || port == 0 || port > 65535 {
		return collector{}, false
	}
	return collector{host, outboundName(uint16(port), host)}, true
}

// grpc is a service called by gRPC. Metadata that Envoy would refuse is left out.
func (to collector) grpc(g *meshconfig.MeshConfig_ExtensionProvider_GrpcService) *corev3.GrpcService {
	out := &corev3.GrpcService{Timeout: positive(g.GetTimeout()), TargetSpecifier: &corev3.GrpcService_EnvoyGrpc_{
		EnvoyGrpc: &corev3.GrpcService_EnvoyGrpc{ClusterName: to.cluster, Authority: to.host}}}
	for _, h := range providerHeaders(g.GetInitialMetadata()) {
		out.InitialMetadata = append(out.InitialMetadata, h.Header)
	}
	return out
}

func (to collector) http(h *meshconfig.MeshConfig_ExtensionProvider_HttpService) *corev3.HttpService {
	path := "/" + strings.TrimPrefix(h.GetPath(), "/")
	return &corev3.HttpService{
		HttpUri: &corev3.HttpUri{Uri: "http://" + to.host + path, HttpUpstreamType: &corev3.HttpUri_Cluster{Cluster: to.cluster},
			Timeout: cmp.Or(positive(h.GetTimeout()), durationpb.New(defaultExport))},
		RequestHeadersToAdd: providerHeaders(h.GetHeaders()),
	}
}

// providerHeaders are headers of calls to a provider. A value of the environment is the proxy's own.
func providerHeaders(list []*meshconfig.MeshConfig_ExtensionProvider_HttpHeader) (out []*corev3.HeaderValueOption) {
	for _, h := range list {
		value := h.GetValue()
		if env := h.GetEnvName(); env != "" {
			value = "%ENVIRONMENT(" + env + ")%"
		} else {
			value = strings.ReplaceAll(value, "%", "%%")
		}
		o := &corev3.HeaderValueOption{Header: &corev3.HeaderValue{Key: h.GetName(), Value: value}, AppendAction: corev3.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD}
		if settableHeader(h.GetName()) && o.Validate() == nil && model.ValidFormat(value) {
			out = append(out, o)
		}
	}
	return out
}

// settableHeader reports whether Envoy lets a header be set: not those of HTTP/2's own.
func settableHeader(name string) bool {
	return headerText(name) && !strings.HasPrefix(name, ":") && !strings.EqualFold(name, "host") && strconv.Quote(name) == `"`+name+`"`
}
