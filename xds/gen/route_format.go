package gen

import (
	"regexp"
	"strings"
)

// command finds what a percent sign in the value of an added header starts: another one, or a command of Envoy's
// substitution format with parameters and length.
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
var plainCommands = set(`REQUEST_HEADERS_BYTES BYTES_RECEIVED PROTOCOL UPSTREAM_PROTOCOL RESPONSE_CODE
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

func set(words string) map[string]struct{} {
	out := map[string]struct{}{}
	for w := range strings.FieldsSeq(words) {
		out[w] = struct{}{}
	}
	return out
}

// headerFormat gives a value as Envoy takes it: commands stay commands, unless it knows one of them not. Then the
// value is meant literally.
func headerFormat(v string) string {
	for _, m := range command.FindAllStringSubmatchIndex(v, -1) {
		if !validCommand(v, m) && (!validLogCommand(v, m) || v[m[2]:m[3]] == withoutQuery) {
			return strings.ReplaceAll(v, "%", "%%")
		}
	}
	return v
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
