package envoy_test

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	tracev1 "go.opentelemetry.io/proto/otlp/trace/v1"

	"github.com/isthmus-mesh/isthmus/cmd/isthmus/bootstrap"
	"github.com/isthmus-mesh/isthmus/test/envoy/envoytest"
)

// report starts the sidecar of a namespace, whose workload is labelled app=NAME and all of whose traffic it sees. What it logs is
// written at once.
func (m *mesh) report(t *testing.T, ns *envoytest.Namespace) {
	t.Helper()
	if err := ns.Intercept(t.Context()); err != nil {
		t.Fatal(err)
	}
	o := m.complete(t, ns.Name, bootstrap.Options{IP: ns.Addr, Interception: bootstrap.Redirect, Labels: map[string]string{"app": ns.Name}})
	m.run(t, ns.Addr, envoytest.Options{Name: ns.Name, Bootstrap: config(t, o), Namespace: ns, UID: envoytest.ProxyUID, Args: []string{"--file-flush-interval-msec", "50"}})
}

// writable is a folder that proxies of other users may write to.
func writable(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "isthmus-logs-")
	if err == nil {
		err = os.Chmod(dir, 0o777)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// TestServersReport: the sidecars of both sides log and trace a request, and a connection, each what it is told, and the server's
// span is below the client's.
func TestServersReport(t *testing.T) {
	t.Parallel()
	network := envoytest.NewNetwork(t, "client", "server")
	client, server := network.Namespace("client"), network.Namespace("server")
	dir := writable(t)
	all, failures := filepath.Join(dir, "all"), filepath.Join(dir, "failures")
	collect := startCollector(t, netip.AddrPortFrom(network.Host, 4317).String(), netip.AddrPortFrom(network.Host, 4318).String())

	m := newMesh(t)
	web, echo, otel := service("web", "10.96.0.1", "http", 80), service("echo", "10.96.0.2", "tcp", echoPort), service("otel", "10.96.0.8", "grpc", 4317)
	envoytest.StartBackend(t, envoytest.BackendOptions{Kind: envoytest.HTTP1, Name: "web", Namespace: server, Addr: podPort(server, webPort)})
	envoytest.StartBackend(t, envoytest.BackendOptions{Kind: envoytest.TCP, Name: "echo", Namespace: server, Addr: podPort(server, echoPort)})
	m.startAt(t, files{
		"mesh.yaml": {fmt.Sprintf(`
accessLogFile: %s
accessLogFormat: "%%REQ(:PATH)%% %%RESPONSE_CODE%% %%UPSTREAM_CLUSTER_RAW%% %%UPSTREAM_HOST%% %%DOWNSTREAM_LOCAL_ADDRESS%%"
defaultProviders: {tracing: [otel]}
extensionProviders:
- {name: otel, opentelemetry: {service: otel.shop.svc.cluster.local, port: 4317}}
- {name: failures, envoyFileAccessLog: {path: %s, logFormat: {text: "%%REQ(:PATH)%% %%RESPONSE_CODE%% %%UPSTREAM_CLUSTER_RAW%%"}}}
defaultConfig: {tracing: {sampling: 100}}`, all, failures)},
		"east/all.yaml": {
			web, slicesOf(web, endpoint{addr: podPort(server, webPort), pod: "server"}), echo, slicesOf(echo, endpoint{addr: podPort(server, echoPort), pod: "server"}),
			otel, slicesOf(otel, endpoint{addr: collect.grpc}), pod("server", server.Addr.String(), "", nil), pod("client", client.Addr.String(), "", nil),
			telemetry("server", `tracing: [{match: {mode: SERVER}, customTags: {side: {literal: {value: theirs}}}}, {match: {mode: CLIENT}, disableSpanReporting: true}]`),
			telemetry("client", `tracing: [{match: {mode: SERVER}, disableSpanReporting: true}, {match: {mode: CLIENT}, enableIstioTags: false, customTags: {side: {literal: {value: ours}}}}]`),
		},
	}, netip.AddrPortFrom(network.Host, 15010).String())
	m.report(t, client)
	m.report(t, server)

	get := func(path string) (reply, error) {
		req, err := http.NewRequest(http.MethodGet, "http://10.96.0.1"+path, nil)
		if err != nil {
			return reply{}, err
		}
		req.Host = host("web")
		return answer(client.HTTPClient().Do(req))
	}
	var got reply
	envoytest.Eventually(t, limit, "both sidecars to pass a request on", func() (err error) {
		if got, err = get("/first"); err == nil && !strings.HasPrefix(got.From, inbound) {
			err = fmt.Errorf("the peer was %s", got.From)
		}
		return same(got.status, http.StatusOK, err)
	})
	if got, err := get("/second"); err != nil || got.status != http.StatusOK {
		t.Fatalf("got %+v, %v", got, err)
	}
	m.spansOfBothSides(t, collect, got.Headers.Get("Traceparent"))

	envoytest.Eventually(t, limit, "a connection to both sidecars", func() error {
		line, err := envoytest.EchoTCP(t.Context(), client, "10.96.0.2:9000", "ping\n")
		return same(strings.TrimSpace(line), "echo", err)
	})
	web1, inside := podPort(server, webPort), podPort(server, echoPort)
	logs(t, all,
		"/second 200 "+outbound(host("web"), 80)+" "+web1+" 10.96.0.1:80",
		"/second 200 inbound|8080|| "+web1+" "+web1)
	envoytest.Eventually(t, limit, "the connection in the log", func() error {
		text, err := os.ReadFile(all)
		for _, line := range []string{"- 0 " + outbound(host("echo"), echoPort) + " " + inside + " 10.96.0.2:9000", "- 0 inbound|9000|| " + inside + " " + inside} {
			if err == nil && !bytes.Contains(text, []byte(line+"\n")) {
				err = fmt.Errorf("there is no %q in\n%s", line, text)
			}
		}
		return err
	})
	m.serverLogs(t, failures, get)
}

// spansOfBothSides checks the spans of the request that the backend was told of.
func (m *mesh) spansOfBothSides(t *testing.T, c *collector, told string) {
	t.Helper()
	parts := strings.Split(told, "-")
	if len(parts) != 4 {
		t.Fatalf("the backend is told of trace %q", told)
	}
	ours, theirs := c.of(t, parts[1], tracev1.Span_SPAN_KIND_CLIENT), c.of(t, parts[1], tracev1.Span_SPAN_KIND_SERVER)
	if !bytes.Equal(theirs.GetParentSpanId(), ours.GetSpanId()) || hex.EncodeToString(theirs.GetSpanId()) != parts[2] {
		t.Errorf("the server's span %x is below %x, the client's is %x, and the backend is told of %s", theirs.GetSpanId(), theirs.GetParentSpanId(), ours.GetSpanId(), parts[2])
	}
	none := map[string]string{}
	for tag := range istioTags("") {
		none[tag] = ""
	}
	ours.hasTags(t, "the client's side", map[string]string{"side": "ours", "upstream_cluster": outbound(host("web"), 80)}, none)
	theirs.hasTags(t, "the server's side", map[string]string{"side": "theirs", "upstream_cluster": "inbound|8080||"}, istioTags("server"))
	for _, x := range []struct {
		span collected
		want string
	}{{ours, "client.shop"}, {theirs, "server.shop"}} {
		if got := x.span.resource["service.name"]; got != x.want {
			t.Errorf("a span of %s is of %s", x.want, got)
		}
	}
}

// serverLogs: what a Telemetry says of the server's side only that side does.
func (m *mesh) serverLogs(t *testing.T, file string, get func(path string) (reply, error)) {
	t.Helper()
	m.write(t, "east/failures.yaml", telemetry("", "accessLogging: [{match: {mode: SERVER}, providers: [{name: failures}], filter: {expression: \"request.url_path != '/silent'\"}}]"))
	n := 0
	envoytest.Eventually(t, limit, "the server's side to log", func() error {
		n++
		for _, path := range []string{fmt.Sprintf("/loud/%d", n), "/silent"} {
			if got, err := get(path); err != nil || got.status != http.StatusOK {
				return fmt.Errorf("got %+v, %w", got, err)
			}
		}
		lines, err := logged(file)
		if err == nil && len(lines) < 2 {
			err = fmt.Errorf("it has %d lines", len(lines))
		}
		return err
	})
	lines, err := logged(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range lines {
		if !strings.HasPrefix(l, "/loud/") || !strings.HasSuffix(l, " 200 inbound|8080||") {
			t.Errorf("there is a line %q", l)
		}
	}
}
