package gen

import (
	"regexp"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	withoutqueryv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/formatter/req_without_query/v3"
	"google.golang.org/protobuf/types/known/structpb"
)

// Envoy refuses a listener for one command in the format of a log or a tag that it does not know.

// logCommands take no parameters, and mean nothing before a request or connection is over.
var logCommands = set(`UPSTREAM_HOST_NAME UPSTREAM_HOST_NAME_WITHOUT_PORT UPSTREAM_CONNECTION_ID UPSTREAM_TLS_CIPHER
	UPSTREAM_TLS_VERSION UPSTREAM_TLS_SESSION_ID UPSTREAM_PEER_ISSUER UPSTREAM_PEER_SUBJECT UPSTREAM_PEER_CERT
	UPSTREAM_PEER_URI_SAN UPSTREAM_PEER_DNS_SAN UPSTREAM_LOCAL_URI_SAN UPSTREAM_LOCAL_DNS_SAN
	UPSTREAM_WIRE_BYTES_SENT UPSTREAM_WIRE_BYTES_RECEIVED UPSTREAM_HEADER_BYTES_SENT UPSTREAM_HEADER_BYTES_RECEIVED
	UPSTREAM_CONNECTION_POOL_READY_DURATION DOWNSTREAM_WIRE_BYTES_SENT DOWNSTREAM_WIRE_BYTES_RECEIVED
	DOWNSTREAM_HEADER_BYTES_SENT DOWNSTREAM_HEADER_BYTES_RECEIVED DOWNSTREAM_TRANSPORT_FAILURE_REASON
	DOWNSTREAM_HANDSHAKE_DURATION ROUNDTRIP_DURATION RESPONSE_HEADERS_BYTES RESPONSE_TRAILERS_BYTES LOCAL_REPLY_BODY
	ACCESS_LOG_TYPE SPAN_ID TLS_JA3_FINGERPRINT TLS_JA4_FINGERPRINT CUSTOM_FLAGS`)

// withoutQuery is a command that Envoy has as an extension: the header without what follows a question mark.
const withoutQuery = "REQ_WITHOUT_QUERY"

var duration = regexp.MustCompile(`^[A-Z_]+:[A-Z_]+:(ms|us|ns)$`)

// logForms are commands with parameters.
var logForms = map[string]commandForm{withoutQuery: {headerName, true}, "COMMON_DURATION": {duration, false}, "EMIT_TIME": {timeFormat, false}}

// formats reports whether Envoy knows all commands of a format.
func formats(v string) bool {
	for _, m := range command.FindAllStringSubmatchIndex(v, -1) {
		if !validCommand(v, m) && !validLogCommand(v, m) {
			return false
		}
	}
	return true
}

func validLogCommand(v string, m []int) bool {
	if m[2] < 0 {
		return false
	}
	name := v[m[2]:m[3]]
	if m[4] < 0 {
		_, plain := logCommands[name]
		return plain && m[6] < 0
	}
	form, known := logForms[name]
	return known && form.parameters.MatchString(v[m[4]:m[5]]) && (form.length || m[6] < 0)
}

// textFormat writes a line for each entry: Istio's without a format, or with one that Envoy would refuse.
func textFormat(text string) *corev3.SubstitutionFormatString {
	if text == "" || !formats(text) {
		text = defaultText
	}
	if !strings.HasSuffix(text, "\n") {
		text += "\n"
	}
	return withFormatters(&corev3.SubstitutionFormatString{Format: &corev3.SubstitutionFormatString_TextFormatSource{
		TextFormatSource: &corev3.DataSource{Specifier: &corev3.DataSource_InlineString{InlineString: text}}}}, text)
}

// jsonFormat writes fields, those of Istio's line if there are none. Fields that Envoy would refuse are left out.
func jsonFormat(fields *structpb.Struct) *corev3.SubstitutionFormatString {
	kept := usableFields(fields)
	if kept == nil {
		kept = defaultFields()
	}
	return withFormatters(&corev3.SubstitutionFormatString{Format: &corev3.SubstitutionFormatString_JsonFormat{JsonFormat: kept}}, kept.String())
}

func withFormatters(f *corev3.SubstitutionFormatString, text string) *corev3.SubstitutionFormatString {
	if strings.Contains(text, "%"+withoutQuery+"(") {
		f.Formatters = append(f.Formatters, &corev3.TypedExtensionConfig{
			Name: "envoy.formatter.req_without_query", TypedConfig: pack(&withoutqueryv3.ReqWithoutQuery{})})
	}
	return f
}

// usableFields gives nil if nothing is left.
func usableFields(s *structpb.Struct) *structpb.Struct {
	out := map[string]*structpb.Value{}
	for name, v := range s.GetFields() {
		if v = usableField(v); v != nil {
			out[name] = v
		}
	}
	if len(out) == 0 {
		return nil
	}
	return structOf(out)
}

func usableField(v *structpb.Value) *structpb.Value {
	switch x := v.GetKind().(type) {
	case *structpb.Value_StringValue:
		if formats(x.StringValue) {
			return v
		}
	case *structpb.Value_StructValue:
		if s := usableFields(x.StructValue); s != nil {
			return structpb.NewStructValue(s)
		}
	case *structpb.Value_NumberValue, *structpb.Value_BoolValue, *structpb.Value_NullValue:
		return v
	case *structpb.Value_ListValue:
		list := &structpb.ListValue{}
		for _, e := range x.ListValue.GetValues() {
			if e = usableField(e); e != nil {
				list.Values = append(list.Values, e)
			}
		}
		return structpb.NewListValue(list)
	}
	return nil
}
