package model

import (
	"regexp"
	"slices"
	"strings"
)

// Envoy refuses a listener for one command of its substitution format that it does not know.

// command finds what a percent sign in a format starts: another one, or a command with parameters and length.
var command = regexp.MustCompile(`%(?:%|([A-Z][A-Z0-9_]*)(?:\(([^()]*)\))?(:[0-9]{1,4})?%)?`)

// commandForm says what follows the name of a command.
type commandForm struct {
	parameters *regexp.Regexp // nil for none
	length     bool           // may be limited
}

var (
	headerName  = regexp.MustCompile("^:?[0-9A-Za-z!#$&'*+.^_`|~-]+(\\?:?[0-9A-Za-z!#$&'*+.^_`|~-]+)?$")
	anyText     = regexp.MustCompile(`^[^%]+$`)
	timeFormat  = regexp.MustCompile(`^[ -~]*$`)
	stateKey    = regexp.MustCompile(`^[^%:]+(:PLAIN|:TYPED)?$`)
	grpcStatus  = regexp.MustCompile(`^(CAMEL_STRING|SNAKE_STRING|NUMBER)?$`)
	metadataKey = regexp.MustCompile(`^(DYNAMIC|CLUSTER|ROUTE|UPSTREAM_HOST):[^%]+$`)
)

// commands are those of Envoy that take parameters.
var commands = map[string]commandForm{
	"REQ":               {headerName, true},
	"RESP":              {headerName, true},
	"TRAILER":           {headerName, true},
	"DYNAMIC_METADATA":  {anyText, true},
	"CLUSTER_METADATA":  {anyText, true},
	"UPSTREAM_METADATA": {anyText, false},
	"METADATA":          {metadataKey, false},
	"FILTER_STATE":      {stateKey, true},
	"ENVIRONMENT":       {anyText, true},
	"QUERY_PARAM":       {anyText, true},
	"PER_REQUEST_STATE": {anyText, false},
	"START_TIME":        {timeFormat, false},
	"GRPC_STATUS":       {grpcStatus, false},
}

// plainCommands are those that take none.
var plainCommands = words(`REQUEST_HEADERS_BYTES BYTES_RECEIVED PROTOCOL UPSTREAM_PROTOCOL RESPONSE_CODE
	RESPONSE_CODE_DETAILS CONNECTION_TERMINATION_DETAILS BYTES_SENT DURATION REQUEST_DURATION REQUEST_TX_DURATION
	RESPONSE_DURATION RESPONSE_TX_DURATION RESPONSE_FLAGS RESPONSE_FLAGS_LONG UPSTREAM_HOST UPSTREAM_CLUSTER
	UPSTREAM_CLUSTER_RAW UPSTREAM_LOCAL_ADDRESS UPSTREAM_LOCAL_ADDRESS_WITHOUT_PORT UPSTREAM_LOCAL_PORT
	UPSTREAM_REMOTE_ADDRESS UPSTREAM_REMOTE_ADDRESS_WITHOUT_PORT UPSTREAM_REMOTE_PORT
	UPSTREAM_REQUEST_ATTEMPT_COUNT UPSTREAM_TRANSPORT_FAILURE_REASON DOWNSTREAM_REMOTE_ADDRESS
	DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT DOWNSTREAM_REMOTE_PORT DOWNSTREAM_DIRECT_REMOTE_ADDRESS
	DOWNSTREAM_DIRECT_REMOTE_ADDRESS_WITHOUT_PORT DOWNSTREAM_DIRECT_REMOTE_PORT DOWNSTREAM_LOCAL_ADDRESS
	DOWNSTREAM_LOCAL_ADDRESS_WITHOUT_PORT DOWNSTREAM_LOCAL_PORT CONNECTION_ID REQUESTED_SERVER_NAME ROUTE_NAME
	VIRTUAL_CLUSTER_NAME HOSTNAME FILTER_CHAIN_NAME STREAM_ID UNIQUE_ID TRACE_ID DOWNSTREAM_PEER_URI_SAN
	DOWNSTREAM_PEER_DNS_SAN DOWNSTREAM_PEER_SUBJECT DOWNSTREAM_PEER_ISSUER DOWNSTREAM_PEER_SERIAL
	DOWNSTREAM_PEER_FINGERPRINT_1 DOWNSTREAM_PEER_FINGERPRINT_256 DOWNSTREAM_PEER_CERT DOWNSTREAM_PEER_CERT_V_START
	DOWNSTREAM_PEER_CERT_V_END DOWNSTREAM_LOCAL_URI_SAN DOWNSTREAM_LOCAL_DNS_SAN DOWNSTREAM_LOCAL_SUBJECT
	DOWNSTREAM_TLS_SESSION_ID DOWNSTREAM_TLS_CIPHER DOWNSTREAM_TLS_VERSION START_TIME GRPC_STATUS
	GRPC_STATUS_NUMBER`)

func words(text string) map[string]struct{} {
	out := map[string]struct{}{}
	for w := range strings.FieldsSeq(text) {
		out[w] = struct{}{}
	}
	return out
}

// logCommands take no parameters, and mean nothing before a request or connection is over.
var logCommands = words(`UPSTREAM_HOST_NAME UPSTREAM_HOST_NAME_WITHOUT_PORT UPSTREAM_CONNECTION_ID UPSTREAM_TLS_CIPHER
	UPSTREAM_TLS_VERSION UPSTREAM_TLS_SESSION_ID UPSTREAM_PEER_ISSUER UPSTREAM_PEER_SUBJECT UPSTREAM_PEER_CERT
	UPSTREAM_PEER_URI_SAN UPSTREAM_PEER_DNS_SAN UPSTREAM_LOCAL_URI_SAN UPSTREAM_LOCAL_DNS_SAN
	UPSTREAM_WIRE_BYTES_SENT UPSTREAM_WIRE_BYTES_RECEIVED UPSTREAM_HEADER_BYTES_SENT UPSTREAM_HEADER_BYTES_RECEIVED
	UPSTREAM_CONNECTION_POOL_READY_DURATION DOWNSTREAM_WIRE_BYTES_SENT DOWNSTREAM_WIRE_BYTES_RECEIVED
	DOWNSTREAM_HEADER_BYTES_SENT DOWNSTREAM_HEADER_BYTES_RECEIVED DOWNSTREAM_TRANSPORT_FAILURE_REASON
	DOWNSTREAM_HANDSHAKE_DURATION ROUNDTRIP_DURATION RESPONSE_HEADERS_BYTES RESPONSE_TRAILERS_BYTES LOCAL_REPLY_BODY
	ACCESS_LOG_TYPE SPAN_ID TLS_JA3_FINGERPRINT TLS_JA4_FINGERPRINT CUSTOM_FLAGS`)

// WithoutQuery is a command that Envoy has as an extension: the header without what follows a question mark. Logs and tags have it.
const WithoutQuery = "REQ_WITHOUT_QUERY"

var duration = regexp.MustCompile(`^[A-Z_]+:[A-Z_]+:(ms|us|ns)$`)

// logForms are commands with parameters.
var logForms = map[string]commandForm{WithoutQuery: {headerName, true}, "COMMON_DURATION": {duration, false}, "EMIT_TIME": {timeFormat, false}}

// PlainCommands gives the commands that take no parameters, sorted.
func PlainCommands() []string {
	return slices.Sorted(func(yield func(string) bool) {
		for _, list := range []map[string]struct{}{plainCommands, logCommands} {
			for name := range list {
				if !yield(name) {
					return
				}
			}
		}
	})
}

// ValidFormat reports whether Envoy knows all commands of the format of a log or a tag.
func ValidFormat(s string) bool { return UnknownCommand(s) == "" }

// UnknownCommand gives the first command of such a format that Envoy does not know, or the percent sign that begins none; "" if
// there is none.
func UnknownCommand(s string) string { return unknownCommand(s, "") }

// ValidHeaderFormat reports whether Envoy knows all commands of the value of a header that it adds.
func ValidHeaderFormat(s string) bool { return unknownCommand(s, WithoutQuery) == "" }

func unknownCommand(s, except string) string {
	for _, m := range command.FindAllStringSubmatchIndex(s, -1) {
		if !validCommand(s, m) && (!validLogCommand(s, m) || s[m[2]:m[3]] == except) {
			return s[m[0]:m[1]]
		}
	}
	return ""
}

// validCommand looks at one match of command in a value.
func validCommand(v string, m []int) bool {
	if m[2] < 0 {
		return v[m[0]:m[1]] == "%%"
	}
	name := v[m[2]:m[3]]
	if m[4] < 0 {
		_, plain := plainCommands[name]
		return plain && m[6] < 0
	}
	form, known := commands[name]
	return known && form.parameters.MatchString(v[m[4]:m[5]]) && (form.length || m[6] < 0)
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
