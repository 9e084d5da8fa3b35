package gen

import (
	"maps"
	"slices"

	accesslogv3 "github.com/envoyproxy/go-control-plane/envoy/config/accesslog/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	filev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/access_loggers/file/v3"
	celv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/access_loggers/filters/cel/v3"
	grpcv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/access_loggers/grpc/v3"
	otelv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/access_loggers/open_telemetry/v3"
	streamv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/access_loggers/stream/v3"
	commonv1 "go.opentelemetry.io/proto/otlp/common/v1"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
	meshconfig "istio.io/api/mesh/v1alpha1"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/pushcontext"
)

// kind is what a log has entries for.
type kind uint8

const (
	requests kind = iota
	connections
)

// accessLogs are what Telemetry asks for, else the mesh's default providers, else its accessLogFile; nothing by default.
func accessLogs(c Class, m *pushcontext.MeshView, d direction, k kind) (out []*accesslogv3.AccessLog) {
	for _, to := range loggingOf(c, m, d) {
		if to.disabled {
			continue
		}
		filter, ok := logFilter(to.filter)
		if !ok {
			continue
		}
		for _, l := range loggers(m, to.provider, k) {
			l.Filter = filter
			out = append(out, l)
		}
	}
	return out
}

// refusals are logs of the connections that a listener has no chain for, unless the mesh wants none.
func refusals(c Class, m *pushcontext.MeshView, d direction) []*accesslogv3.AccessLog {
	if m.Config.GetDisableEnvoyListenerLog() {
		return nil
	}
	out := accessLogs(c, m, d, connections)
	none := &accesslogv3.AccessLogFilter{FilterSpecifier: &accesslogv3.AccessLogFilter_ResponseFlagFilter{
		ResponseFlagFilter: &accesslogv3.ResponseFlagFilter{Flags: []string{"NR"}}}}
	for _, l := range out {
		if l.Filter == nil {
			l.Filter = none
			continue
		}
		l.Filter = &accesslogv3.AccessLogFilter{FilterSpecifier: &accesslogv3.AccessLogFilter_AndFilter{
			AndFilter: &accesslogv3.AndFilter{Filters: []*accesslogv3.AccessLogFilter{none, l.Filter}}}}
	}
	return out
}

// logFilter keeps entries for which an expression is true; false if Envoy would refuse the expression.
func logFilter(expression string) (*accesslogv3.AccessLogFilter, bool) {
	if expression == "" {
		return nil, true
	}
	if !model.ValidExpression(expression) {
		return nil, false
	}
	return filterBy(expression), true
}

func filterBy(expression string) *accesslogv3.AccessLogFilter {
	return &accesslogv3.AccessLogFilter{FilterSpecifier: &accesslogv3.AccessLogFilter_ExtensionFilter{ExtensionFilter: &accesslogv3.ExtensionFilter{
		Name:       "envoy.access_loggers.extension_filters.cel",
		ConfigType: &accesslogv3.ExtensionFilter_TypedConfig{TypedConfig: pack(&celv3.ExpressionFilter{Expression: expression})}}}}
}

// loggers are those of a provider, none if it is none for logs of the kind.
func loggers(m *pushcontext.MeshView, provider string, k kind) []*accesslogv3.AccessLog {
	if provider == legacyLog {
		return legacyLoggers(m.Config, k)
	}
	switch x := m.Provider(provider).GetProvider().(type) {
	case *meshconfig.MeshConfig_ExtensionProvider_EnvoyFileAccessLog:
		return fileLogger(x.EnvoyFileAccessLog.GetPath(), fileFormat(x.EnvoyFileAccessLog))
	case *meshconfig.MeshConfig_ExtensionProvider_EnvoyHttpAls:
		if p := x.EnvoyHttpAls; k == requests {
			return streamed(p.GetService(), p.GetPort(), p.GetLogName(), "http_envoy_accesslog", p.GetFilterStateObjectsToLog(), func(c *grpcv3.CommonGrpcAccessLogConfig) *accesslogv3.AccessLog {
				return logger("envoy.access_loggers.http_grpc", &grpcv3.HttpGrpcAccessLogConfig{CommonConfig: c, AdditionalRequestHeadersToLog: p.GetAdditionalRequestHeadersToLog(),
					AdditionalResponseHeadersToLog: p.GetAdditionalResponseHeadersToLog(), AdditionalResponseTrailersToLog: p.GetAdditionalResponseTrailersToLog()})
			})
		}
	case *meshconfig.MeshConfig_ExtensionProvider_EnvoyTcpAls:
		if p := x.EnvoyTcpAls; k == connections {
			return streamed(p.GetService(), p.GetPort(), p.GetLogName(), "tcp_envoy_accesslog", p.GetFilterStateObjectsToLog(), func(c *grpcv3.CommonGrpcAccessLogConfig) *accesslogv3.AccessLog {
				return logger("envoy.access_loggers.tcp_grpc", &grpcv3.TcpGrpcAccessLogConfig{CommonConfig: c})
			})
		}
	case *meshconfig.MeshConfig_ExtensionProvider_EnvoyOtelAls:
		p := x.EnvoyOtelAls
		return streamed(p.GetService(), p.GetPort(), p.GetLogName(), "otel_envoy_accesslog", nil, func(c *grpcv3.CommonGrpcAccessLogConfig) *accesslogv3.AccessLog {
			return logger("envoy.access_loggers.open_telemetry", telemetryLog(c, p.GetLogFormat()))
		})
	}
	return nil
}

// bootstrapLogService is the cluster that a proxy's bootstrap has where enableEnvoyAccessLogService is in force.
const bootstrapLogService = "envoy_accesslog_service"

// legacyLoggers are those of meshes without providers.
func legacyLoggers(c *meshconfig.MeshConfig, k kind) []*accesslogv3.AccessLog {
	out := fileLogger(c.GetAccessLogFile(), legacyFormat(c))
	if !c.GetEnableEnvoyAccessLogService() {
		return out
	}
	to := collector{cluster: bootstrapLogService}
	if k == connections {
		return append(out, logger("envoy.access_loggers.tcp_grpc", &grpcv3.TcpGrpcAccessLogConfig{CommonConfig: commonLog(to, "tcp_envoy_accesslog", nil)}))
	}
	return append(out, logger("envoy.access_loggers.http_grpc", &grpcv3.HttpGrpcAccessLogConfig{CommonConfig: commonLog(to, "http_envoy_accesslog", nil)}))
}

// streamed sends entries to a service by gRPC. Nothing is lost but the entries if there is no such service.
func streamed(service string, port uint32, name, otherwise string, state []string, make func(*grpcv3.CommonGrpcAccessLogConfig) *accesslogv3.AccessLog) []*accesslogv3.AccessLog {
	to, ok := providerService(service, port)
	if !ok {
		return nil
	}
	if name == "" {
		name = otherwise
	}
	return []*accesslogv3.AccessLog{make(commonLog(to, name, state))}
}

func commonLog(to collector, name string, state []string) *grpcv3.CommonGrpcAccessLogConfig {
	return &grpcv3.CommonGrpcAccessLogConfig{LogName: name, GrpcService: to.grpc(nil), TransportApiVersion: corev3.ApiVersion_V3, FilterStateObjectsToLog: state}
}

// telemetryLog has a format's labels as attributes and its text as the body.
func telemetryLog(c *grpcv3.CommonGrpcAccessLogConfig, f *meshconfig.MeshConfig_ExtensionProvider_EnvoyOpenTelemetryLogProvider_LogFormat) *otelv3.OpenTelemetryAccessLogConfig {
	//lint:ignore SA1019 older Envoys know no other
	out := &otelv3.OpenTelemetryAccessLogConfig{CommonConfig: c}
	text := f.GetText()
	if text == "" || !model.ValidFormat(text) {
		text = defaultText
	}
	out.Body = telemetryText(text)
	labels := usableFields(f.GetLabels()).GetFields()
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		if s, ok := labels[name].GetKind().(*structpb.Value_StringValue); ok {
			if out.Attributes == nil {
				out.Attributes = &commonv1.KeyValueList{}
			}
			out.Attributes.Values = append(out.Attributes.Values, &commonv1.KeyValue{Key: name, Value: telemetryText(s.StringValue)})
		}
	}
	return out
}

func telemetryText(s string) *commonv1.AnyValue {
	return &commonv1.AnyValue{Value: &commonv1.AnyValue_StringValue{StringValue: s}}
}

// standardOutput is the log file of an Envoy in a container.
const standardOutput = "/dev/stdout"

// fileLogger logs to a file, nothing without a path. The standard streams have loggers of their own, since opening them by
// path fails where they are sockets.
func fileLogger(path string, format *corev3.SubstitutionFormatString) []*accesslogv3.AccessLog {
	switch path {
	case "":
		return nil
	case standardOutput:
		out := &streamv3.StdoutAccessLog{AccessLogFormat: &streamv3.StdoutAccessLog_LogFormat{LogFormat: format}}
		return []*accesslogv3.AccessLog{logger("envoy.access_loggers.stdout", out)}
	case "/dev/stderr":
		out := &streamv3.StderrAccessLog{AccessLogFormat: &streamv3.StderrAccessLog_LogFormat{LogFormat: format}}
		return []*accesslogv3.AccessLog{logger("envoy.access_loggers.stderr", out)}
	default:
		out := &filev3.FileAccessLog{Path: path, AccessLogFormat: &filev3.FileAccessLog_LogFormat{LogFormat: format}}
		return []*accesslogv3.AccessLog{logger("envoy.access_loggers.file", out)}
	}
}

func logger(name string, config proto.Message) *accesslogv3.AccessLog {
	return &accesslogv3.AccessLog{Name: name, ConfigType: &accesslogv3.AccessLog_TypedConfig{TypedConfig: pack(config)}}
}

// fileFormat is that of a provider: text or fields.
func fileFormat(p *meshconfig.MeshConfig_ExtensionProvider_EnvoyFileAccessLogProvider) *corev3.SubstitutionFormatString {
	var out *corev3.SubstitutionFormatString
	if l := p.GetLogFormat().GetLabels(); l != nil {
		out = jsonFormat(l)
	} else {
		out = textFormat(p.GetLogFormat().GetText())
	}
	out.OmitEmptyValues = p.GetOmitEmptyValues()
	return out
}

// legacyFormat is the mesh's accessLogFormat: text, or a JSON object of field names and formats. A JSON format that can't be
// read falls back to the default fields.
func legacyFormat(c *meshconfig.MeshConfig) *corev3.SubstitutionFormatString {
	if c.GetAccessLogEncoding() != meshconfig.MeshConfig_JSON {
		return textFormat(c.GetAccessLogFormat())
	}
	fields := &structpb.Struct{}
	if err := protojson.Unmarshal([]byte(c.GetAccessLogFormat()), fields); err != nil {
		fields = nil
	}
	return jsonFormat(fields)
}

// defaultText is Istio's line, which tools know.
const defaultText = `[%START_TIME%] "%REQ(:METHOD)% %REQ(X-ENVOY-ORIGINAL-PATH?:PATH)% %PROTOCOL%" %RESPONSE_CODE% %RESPONSE_FLAGS% ` +
	`%RESPONSE_CODE_DETAILS% %CONNECTION_TERMINATION_DETAILS% "%UPSTREAM_TRANSPORT_FAILURE_REASON%" %BYTES_RECEIVED% %BYTES_SENT% %DURATION% ` +
	`%RESP(X-ENVOY-UPSTREAM-SERVICE-TIME)% "%REQ(X-FORWARDED-FOR)%" "%REQ(USER-AGENT)%" "%REQ(X-REQUEST-ID)%" "%REQ(:AUTHORITY)%" ` +
	`"%UPSTREAM_HOST%" %UPSTREAM_CLUSTER_RAW% %UPSTREAM_LOCAL_ADDRESS% %DOWNSTREAM_LOCAL_ADDRESS% %DOWNSTREAM_REMOTE_ADDRESS% ` +
	`%REQUESTED_SERVER_NAME% %ROUTE_NAME%`

// defaultFields are what is in that line.
func defaultFields() *structpb.Struct {
	fields := map[string]*structpb.Value{}
	for name, format := range map[string]string{
		"start_time": "%START_TIME%", "method": "%REQ(:METHOD)%", "path": "%REQ(X-ENVOY-ORIGINAL-PATH?:PATH)%",
		"protocol": "%PROTOCOL%", "response_code": "%RESPONSE_CODE%", "response_flags": "%RESPONSE_FLAGS%",
		"response_code_details": "%RESPONSE_CODE_DETAILS%", "connection_termination_details": "%CONNECTION_TERMINATION_DETAILS%",
		"upstream_service_time": "%RESP(X-ENVOY-UPSTREAM-SERVICE-TIME)%", "bytes_received": "%BYTES_RECEIVED%", "bytes_sent": "%BYTES_SENT%",
		"duration": "%DURATION%", "authority": "%REQ(:AUTHORITY)%", "request_id": "%REQ(X-REQUEST-ID)%",
		"user_agent": "%REQ(USER-AGENT)%", "x_forwarded_for": "%REQ(X-FORWARDED-FOR)%", "upstream_host": "%UPSTREAM_HOST%",
		"upstream_cluster": "%UPSTREAM_CLUSTER_RAW%", "upstream_local_address": "%UPSTREAM_LOCAL_ADDRESS%",
		"upstream_transport_failure_reason": "%UPSTREAM_TRANSPORT_FAILURE_REASON%",
		"downstream_local_address":          "%DOWNSTREAM_LOCAL_ADDRESS%", "downstream_remote_address": "%DOWNSTREAM_REMOTE_ADDRESS%",
		"requested_server_name": "%REQUESTED_SERVER_NAME%", "route_name": "%ROUTE_NAME%",
	} {
		fields[name] = stringValue(format)
	}
	return structOf(fields)
}
