package gen

import (
	accesslogv3 "github.com/envoyproxy/go-control-plane/envoy/config/accesslog/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	filev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/access_loggers/file/v3"
	streamv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/access_loggers/stream/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
	meshconfig "istio.io/api/mesh/v1alpha1"

	"github.com/isthmus-mesh/isthmus/pushcontext"
)

// accessLog is what the mesh's accessLogFile asks for; nothing by default. The standard streams have
// loggers of their own, since opening them by path fails where they are sockets.
func accessLog(m *pushcontext.MeshView) []*accesslogv3.AccessLog {
	format := logFormat(m.Config)
	switch path := m.Config.GetAccessLogFile(); path {
	case "":
		return nil
	case "/dev/stdout":
		out := &streamv3.StdoutAccessLog{}
		if format != nil {
			out.AccessLogFormat = &streamv3.StdoutAccessLog_LogFormat{LogFormat: format}
		}
		return logger("envoy.access_loggers.stdout", out)
	case "/dev/stderr":
		out := &streamv3.StderrAccessLog{}
		if format != nil {
			out.AccessLogFormat = &streamv3.StderrAccessLog_LogFormat{LogFormat: format}
		}
		return logger("envoy.access_loggers.stderr", out)
	default:
		out := &filev3.FileAccessLog{Path: path}
		if format != nil {
			out.AccessLogFormat = &filev3.FileAccessLog_LogFormat{LogFormat: format}
		}
		return logger("envoy.access_loggers.file", out)
	}
}

func logger(name string, config proto.Message) []*accesslogv3.AccessLog {
	return []*accesslogv3.AccessLog{{Name: name, ConfigType: &accesslogv3.AccessLog_TypedConfig{TypedConfig: pack(config)}}}
}

// logFormat is the mesh's accessLogFormat: text, or a JSON object of field names and formats. Nil is
// Envoy's own format. A JSON format that can't be read falls back to the default fields.
func logFormat(c *meshconfig.MeshConfig) *corev3.SubstitutionFormatString {
	if c.GetAccessLogEncoding() == meshconfig.MeshConfig_JSON {
		fields := &structpb.Struct{}
		if err := protojson.Unmarshal([]byte(c.GetAccessLogFormat()), fields); err != nil || len(fields.Fields) == 0 {
			fields = defaultFields()
		}
		return &corev3.SubstitutionFormatString{Format: &corev3.SubstitutionFormatString_JsonFormat{JsonFormat: fields}}
	}
	if c.GetAccessLogFormat() == "" {
		return nil
	}
	return &corev3.SubstitutionFormatString{Format: &corev3.SubstitutionFormatString_TextFormatSource{
		TextFormatSource: &corev3.DataSource{Specifier: &corev3.DataSource_InlineString{InlineString: c.GetAccessLogFormat()}}}}
}

func defaultFields() *structpb.Struct {
	fields := map[string]*structpb.Value{}
	for name, format := range map[string]string{
		"start_time": "%START_TIME%", "method": "%REQ(:METHOD)%", "path": "%REQ(X-ENVOY-ORIGINAL-PATH?:PATH)%",
		"protocol": "%PROTOCOL%", "response_code": "%RESPONSE_CODE%", "response_flags": "%RESPONSE_FLAGS%",
		"response_code_details": "%RESPONSE_CODE_DETAILS%", "bytes_received": "%BYTES_RECEIVED%", "bytes_sent": "%BYTES_SENT%",
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
