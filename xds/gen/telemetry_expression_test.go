package gen

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	accesslogv3 "github.com/envoyproxy/go-control-plane/envoy/config/accesslog/v3"
	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	tcpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
)

// usable and unusable are expressions that Envoy takes and refuses.
var (
	usable = []string{
		"response.code >= 400", `request.url_path.contains("x") && !connection.mtls`, "has(request.headers.x) ? true : false", "size(request.path) > 3 || 'a' in request.headers",
		"request.headers['x-y'] == 'a\\'b'", "[1, 2u, -3, 0x1F, 1.5e3].size() == 4", "{'a': 1, 'b': [true, null]}.size() == 2", "request.time.getHours('UTC') > 3", "matches(request.host, '^a.*b$')",
		"request.host.matches('[a-z]+')", "duration('1s') < response.duration", "(((1 + 2) * 3) % 2) / 1 - -1 == 0", "xds.cluster_name", "nosuch.field == 1", "request.path.startsWith('/a') && request.path.endsWith('b')", "!!true", "x[0]['a'].b",
		"int('1') + int(2.0) == 3 && type(1) == int", "timestamp('2026-01-01T00:00:00Z') < request.time",
	}
	unusable = []string{
		"", " ", "response.code >=", "foo.bar(1)", "startsWith('a')", "has(request.headers['x'])", "has(x)", "request.host.matches('[')", "[1, 2].exists(x, x == 1)", "'a'.lowerAscii()", "optional.of(1)", "a b", "1 +", "(1", "1)", "'a", "x.1", "if == 1", "a ? b", "a ? b :",
		"size()", "size(1, 2)", "99999999999999999999 == x", "a..b", "a = b", "{a: }", "[1", "&& a", "a.has(b.c)", "string(1)", "{'a'}",
	}
)

func TestExpressions(t *testing.T) {
	t.Parallel()
	for _, s := range usable {
		if !model.ValidExpression(s) {
			t.Errorf("%s is not taken", s)
		}
	}
	for _, s := range append(unusable, strings.Repeat("(", 99)+"1"+strings.Repeat(")", 99), strings.Repeat("a", 5000)) {
		if model.ValidExpression(s) {
			t.Errorf("%s is taken", s)
		}
	}
}

// Envoy agrees on all of them.
func TestEnvoyTakesExpressions(t *testing.T) {
	t.Parallel()
	envoy := os.Getenv("ISTHMUS_ENVOY")
	if envoy == "" {
		t.Skip("ISTHMUS_ENVOY does not name an Envoy binary: the expressions are not read by a real proxy here")
	}
	if out := envoyOn(t, envoy, usable...); out != "" {
		t.Error(out)
	}
	for _, s := range unusable {
		if s != "" && envoyOn(t, envoy, s) == "" && s != "99999999999999999999 == x" {
			t.Errorf("%q is fine with Envoy", s)
		}
	}
}

// envoyOn gives what Envoy says against logs filtered by expressions.
func envoyOn(t *testing.T, envoy string, expressions ...string) string {
	t.Helper()
	var logs []*accesslogv3.AccessLog
	for _, s := range expressions {
		l := fileLogger(standardOutput, textFormat(""))[0]
		l.Filter = filterBy(s)
		logs = append(logs, l)
	}
	if out := envoyWith(t, envoy, logs); out != "" {
		return strings.Join(expressions, "; ") + ": " + out
	}
	return ""
}

func envoyWith(t *testing.T, envoy string, logs []*accesslogv3.AccessLog) string {
	t.Helper()
	proxy := &tcpv3.TcpProxy{StatPrefix: "x", ClusterSpecifier: &tcpv3.TcpProxy_Cluster{Cluster: "x"}, AccessLog: logs}
	b := &bootstrapv3.Bootstrap{StaticResources: &bootstrapv3.Bootstrap_StaticResources{Listeners: []*listenerv3.Listener{{
		Name: "l", Address: socketAddress("127.0.0.1", 1), FilterChains: []*listenerv3.FilterChain{{Filters: []*listenerv3.Filter{networkFilter("envoy.filters.network.tcp_proxy", proxy)}}}}}}}
	raw, err := protojson.Marshal(b)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "bootstrap.json")
	if err := os.WriteFile(path, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), envoy, "--mode", "validate", "-c", path, "-l", "error", "--disable-hot-restart").CombinedOutput()
	if err != nil {
		return string(out)
	}
	return ""
}

// Envoy knows every command that a format may have.
func TestEnvoyKnowsLogCommands(t *testing.T) {
	t.Parallel()
	envoy := os.Getenv("ISTHMUS_ENVOY")
	if envoy == "" {
		t.Skip("ISTHMUS_ENVOY does not name an Envoy binary: no real proxy is asked here")
	}
	all := "%REQ_WITHOUT_QUERY(:PATH?x):9% %COMMON_DURATION(DS_RX_BEG:DS_RX_END:ms)% %EMIT_TIME(%s)% %START_TIME(%Y)% %REQ(a?b):5% %%"
	for _, name := range model.PlainCommands() {
		all += " %" + name + "%"
	}
	format := textFormat(all)
	if got := format.GetTextFormatSource().GetInlineString(); got != all+"\n" {
		t.Fatalf("a command is not taken: %s", got)
	}
	if out := envoyWith(t, envoy, fileLogger(standardOutput, format)); out != "" {
		t.Error(out)
	}
}

// FuzzExpression: reading ends, whatever the text is.
func FuzzExpression(f *testing.F) {
	for _, s := range append(usable, unusable...) {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if model.ValidExpression(s) && strings.TrimSpace(s) == "" {
			t.Error("nothing is an expression")
		}
	})
}
