package envoy_test

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	commonv1 "go.opentelemetry.io/proto/otlp/common/v1"
	tracev1 "go.opentelemetry.io/proto/otlp/trace/v1"
	rpc "google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/isthmus-mesh/isthmus/cmd/isthmus/bootstrap"
	"github.com/isthmus-mesh/isthmus/test/envoy/envoytest"
)

// observed is a mesh with two services, "web" with named routes and "db" over TCP, of which proxies report what they do.
type observed struct {
	*mesh
	web, db *envoytest.Backend
}

const webRoutes = `
hosts: [web]
http:
- name: orders
  match: [{uri: {prefix: /orders}}]
  rewrite: {uri: /v2/orders}
  route: [{destination: {host: web}}]
- name: missing
  match: [{uri: {prefix: /missing}}]
  directResponse: {status: 404}`

func newObserved(t *testing.T, meshConfig string, objects ...any) *observed {
	t.Helper()
	m := newMesh(t)
	w := &observed{m, m.backend(t, envoytest.HTTP1, "web"), m.backend(t, envoytest.TCP, "db")}
	web, db := service("web", "10.96.0.1", "http", 8000), service("db", "10.96.0.2", "tcp", 9002)
	m.start(t, files{
		"mesh.yaml":     {meshConfig},
		"east/all.yaml": {web, slicesOf(web, at(w.web)...), db, slicesOf(db, at(w.db)...), object("VirtualService", "web", webRoutes), objects},
	})
	return w
}

// client starts a proxy whose workload is labelled app=NAME. What it logs is written at once.
func (w *observed) client(t *testing.T, name string) *proxy {
	t.Helper()
	o := w.complete(t, name, bootstrap.Options{Labels: map[string]string{"app": name}})
	p := w.run(t, o.IP, envoytest.Options{Name: name, Bootstrap: config(t, o), Args: []string{"--file-flush-interval-msec", "50"}})
	envoytest.Eventually(t, limit, name+" to have the routes", func() error { // what this is refused with is no route's
		got, err := p.send(http.MethodGet, "/missing/ready", nil)
		return same(got.status, http.StatusNotFound, err)
	})
	return p
}

// send makes a request to web.
func (p *proxy) send(method, path string, header http.Header) (reply, error) {
	req, err := http.NewRequest(method, "http://"+p.addr(8000)+path, nil)
	if err != nil {
		return reply{}, err
	}
	req.Host, req.Header = host("web"), header
	return answer(p.ns.HTTPClient().Do(req))
}

func (p *proxy) sends(t *testing.T, method, path string, header http.Header, status int) reply {
	t.Helper()
	got, err := p.send(method, path, header)
	if err = same(got.status, status, err); err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	return got
}

// telemetry is an object of that kind for the workloads that are labelled app=NAME; all of the mesh without a name.
func telemetry(name, spec string) string {
	ns, selector := namespace, fmt.Sprintf("  selector: {matchLabels: {app: %s}}\n", name)
	if name == "" {
		name, ns, selector = "default", "istio-system", ""
	}
	return fmt.Sprintf("apiVersion: telemetry.istio.io/v1\nkind: Telemetry\nmetadata: {name: %s, namespace: %s}\nspec:\n%s  %s", name, ns, selector, spec)
}

// logged gives the lines of a file. A line that is not whole yet is not among them.
func logged(file string) ([]string, error) {
	text, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	lines := strings.Split(string(text), "\n")
	return lines[:len(lines)-1], nil
}

// logs waits until a file has each of the lines once.
func logs(t *testing.T, file string, want ...string) {
	t.Helper()
	envoytest.Eventually(t, limit, "lines of the log", func() error {
		got, err := logged(file)
		for _, line := range want {
			n := 0
			for _, l := range got {
				if l == line {
					n++
				}
			}
			err = errors.Join(err, same(n, 1, nil))
		}
		if err != nil {
			err = fmt.Errorf("%w; want\n%s\ngot\n%s", err, strings.Join(want, "\n"), strings.Join(got, "\n"))
		}
		return err
	})
}

const (
	logFormat = `%REQ(:METHOD)% %REQ(X-ENVOY-ORIGINAL-PATH?:PATH)% %PROTOCOL% %RESPONSE_CODE% %RESPONSE_FLAGS% %UPSTREAM_CLUSTER_RAW% %UPSTREAM_HOST% %ROUTE_NAME%`
	who       = ` %DOWNSTREAM_LOCAL_ADDRESS%` // as the proxies of a mesh have addresses of their own
)

// TestAccessLogs: proxies write what accessLogFile, accessLogFormat and accessLogEncoding say, from one moment to the other.
func TestAccessLogs(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "access.log")
	meshConfig := func(more string) string { return fmt.Sprintf("accessLogFile: %s\n%s", file, more) }
	w := newObserved(t, meshConfig("accessLogFormat: '"+logFormat+"'"))
	p := w.client(t, "client")
	p.sends(t, http.MethodGet, "/orders/7?x=1", nil, 200)
	p.sends(t, http.MethodPost, "/orders", nil, 200)
	p.sends(t, http.MethodGet, "/missing", nil, 404)
	p.sends(t, http.MethodGet, "/neither", nil, 404)
	if _, err := envoytest.EchoTCP(t.Context(), p.ns, p.addr(9002), "ping\n"); err != nil {
		t.Fatal(err)
	}
	logs(t, file,
		"GET /orders/7?x=1 HTTP/1.1 200 - "+outbound(host("web"), 8000)+" "+w.web.Addr+" orders",
		"POST /orders HTTP/1.1 200 - "+outbound(host("web"), 8000)+" "+w.web.Addr+" orders",
		"GET /missing HTTP/1.1 404 - - - missing",
		"GET /neither HTTP/1.1 404 NR - - -",
		"- - - 0 - "+outbound(host("db"), 9002)+" "+w.db.Addr+" -")

	// entry makes requests until one is logged as it shall be.
	n := 0
	entry := func(what, start string) (path, line string) {
		t.Helper()
		envoytest.Eventually(t, limit, what, func() error {
			n++
			path = fmt.Sprintf("/orders/%d", n)
			p.sends(t, http.MethodGet, path, http.Header{"User-Agent": {"tester"}, "X-Request-Id": {"id-1"}}, 200)
			lines, err := logged(file)
			i := slices.IndexFunc(lines, func(l string) bool { return strings.HasPrefix(l, start) })
			if err != nil || i < 0 {
				return fmt.Errorf("no such line, %w", err)
			}
			line = lines[i]
			return nil
		})
		return path, line
	}
	w.write(t, "mesh.yaml", meshConfig("accessLogEncoding: JSON"))
	_, line := entry("fields", "{")
	var fields map[string]any
	if err := json.Unmarshal([]byte(line), &fields); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]any{"method": "GET", "protocol": "HTTP/1.1", "response_code": 200.0, "response_flags": "-", "response_code_details": "via_upstream",
		"authority": host("web"), "user_agent": "tester", "upstream_cluster": outbound(host("web"), 8000), "upstream_host": w.web.Addr, "route_name": "orders",
		"downstream_local_address": p.addr(8000), "connection_termination_details": nil, "requested_server_name": nil} {
		if got, ok := fields[name]; !ok || got != want {
			t.Errorf("%s: got %v (%v), want %v", name, got, ok, want)
		}
	}
	for _, name := range []string{"start_time", "duration", "bytes_sent", "bytes_received", "request_id", "x_forwarded_for", "upstream_service_time", "upstream_local_address",
		"downstream_remote_address", "upstream_transport_failure_reason"} {
		if _, ok := fields[name]; !ok {
			t.Errorf("%s is missing", name)
		}
	}
	if path, _ := fields["path"].(string); !strings.HasPrefix(path, "/orders/") {
		t.Errorf("the path is %q", path)
	}

	w.write(t, "mesh.yaml", meshConfig(`accessLogEncoding: JSON`+"\n"+`accessLogFormat: '{"a": "%REQ(:METHOD)%", "to": {"cluster": "%UPSTREAM_CLUSTER_RAW%", "code": "%RESPONSE_CODE%"}}'`))
	_, line = entry("fields that the mesh names", `{"a"`)
	if want := `{"a":"GET","to":{"cluster":"` + outbound(host("web"), 8000) + `","code":200}}`; line != want {
		t.Errorf("got %s, want %s", line, want)
	}

	// Without a format lines are as tools know them of Istio.
	w.write(t, "mesh.yaml", meshConfig(""))
	_, line = entry("lines", "[")
	_, line, _ = strings.Cut(line, "] ")
	want := []string{`"GET`, "/orders/", `HTTP/1.1"`, "200", "-", "via_upstream", "-", `"-"`, "0", "", "", "", `"-"`, `"tester"`, `"`,
		`"` + host("web") + `"`, `"` + w.web.Addr + `"`, outbound(host("web"), 8000), "", p.addr(8000), "", "-", "orders"}
	got := strings.Fields(line)
	if len(got) != len(want) {
		t.Fatalf("got %d fields, want %d: %s", len(got), len(want), line)
	}
	for i := range want {
		if exact := i != 1 && i != 14; exact && want[i] != "" && got[i] != want[i] || !strings.HasPrefix(got[i], want[i]) {
			t.Errorf("field %d is %s, want %s: %s", i, got[i], want[i], line)
		}
	}
}

// TestTelemetryLogs: Telemetry says which providers log what of which workloads.
func TestTelemetryLogs(t *testing.T) {
	t.Parallel()
	file, failures := filepath.Join(t.TempDir(), "lines"), filepath.Join(t.TempDir(), "failures")
	w := newObserved(t, fmt.Sprintf(`
extensionProviders:
- {name: lines, envoyFileAccessLog: {path: %s, logFormat: {text: "%s"}}}
- {name: failures, envoyFileAccessLog: {path: %s, logFormat: {labels: {path: "%%REQ(:PATH)%%", code: "%%RESPONSE_CODE%%", none: "%%REQ(x-none)%%"}}, omitEmptyValues: true}}`,
		file, logFormat+who, failures),
		telemetry("", "accessLogging: [{providers: [{name: lines}]}]"))
	w.write(t, "east/quiet.yaml", telemetry("quiet", "accessLogging: [{disabled: true}]"))
	w.write(t, "east/strict.yaml", telemetry("strict", "accessLogging: [{providers: [{name: lines}, {name: failures}], filter: {expression: response.code >= 400}}]"))
	line := func(p *proxy, path string, code int) string {
		if code == 404 {
			return fmt.Sprintf("GET %s HTTP/1.1 404 - - - missing %s", path, p.addr(8000))
		}
		return fmt.Sprintf("GET %s HTTP/1.1 200 - %s %s orders %s", path, outbound(host("web"), 8000), w.web.Addr, p.addr(8000))
	}
	all := map[string]*proxy{}
	for _, name := range []string{"plain", "quiet", "strict"} {
		p := w.client(t, name)
		p.sends(t, http.MethodGet, "/orders/first", nil, 200)
		p.sends(t, http.MethodGet, "/missing/first", nil, 404)
		all[name] = p
	}
	logs(t, file, line(all["plain"], "/orders/first", 200), line(all["plain"], "/missing/first", 404), line(all["strict"], "/missing/first", 404))
	logs(t, failures, `{"code":404,"path":"/missing/first"}`)

	// What is said no more holds no more. By the time that a proxy has logged this, it would have what came before.
	w.remove(t, "east/quiet.yaml")
	w.remove(t, "east/strict.yaml")
	for _, name := range []string{"quiet", "strict"} {
		p := all[name]
		envoytest.Eventually(t, limit, name+" to log as others do", func() error {
			p.sends(t, http.MethodGet, "/orders/later", nil, 200)
			lines, err := logged(file)
			if !slices.Contains(lines, line(p, "/orders/later", 200)) {
				err = errors.Join(err, errors.New("no such line"))
			}
			return err
		})
	}
	lines, err := logged(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range []string{line(all["quiet"], "/orders/first", 200), line(all["quiet"], "/missing/first", 404), line(all["strict"], "/orders/first", 200)} {
		if slices.Contains(lines, l) {
			t.Errorf("there is a line %q", l)
		}
	}
}

// collector takes spans over OTLP, by gRPC and by HTTP.
type collector struct {
	grpc, http string // "IP:PORT"

	mu    sync.Mutex
	spans []collected // guarded by mu
}

type collected struct {
	*tracev1.Span
	by         string            // "grpc" or "http" and the path
	attributes map[string]string // of the span
	resource   map[string]string
}

func (m *mesh) collector(t *testing.T) *collector {
	t.Helper()
	return startCollector(t, m.lo.At(2, byte(m.backends.Add(1)), 9000), m.lo.At(2, byte(m.backends.Add(1)), 9000))
}

func startCollector(t *testing.T, grpc, http1 string) *collector {
	t.Helper()
	c := &collector{}
	listen := func(addr string) net.Listener {
		l, err := net.Listen("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	l := listen(grpc)
	c.grpc = l.Addr().String()
	g := rpc.NewServer()
	g.RegisterService(&rpc.ServiceDesc{ServiceName: "opentelemetry.proto.collector.trace.v1.TraceService", HandlerType: (*any)(nil), Methods: []rpc.MethodDesc{{MethodName: "Export",
		Handler: func(_ any, _ context.Context, read func(any) error, _ rpc.UnaryServerInterceptor) (any, error) {
			all := &tracev1.TracesData{} // has the shape of the request
			if err := read(all); err != nil {
				return nil, err
			}
			c.add("grpc", all)
			return &emptypb.Empty{}, nil
		}}}}, c)
	done := make(chan error, 1)
	go func() { done <- g.Serve(l) }()
	t.Cleanup(func() {
		g.Stop()
		if err := <-done; err != nil {
			t.Errorf("the collector ended with %v", err)
		}
	})

	h := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		all := &tracev1.TracesData{}
		body, err := io.ReadAll(r.Body)
		if err = errors.Join(err, proto.Unmarshal(body, all)); err != nil {
			t.Errorf("spans can't be read: %v", err)
		}
		c.add("http "+r.URL.Path+" "+r.Header.Get("x-tenant"), all)
	}))
	h.Listener.Close()
	h.Listener = listen(http1)
	c.http = h.Listener.Addr().String()
	h.Start()
	t.Cleanup(h.Close)
	return c
}

func (c *collector) add(by string, all *tracev1.TracesData) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range all.GetResourceSpans() {
		for _, s := range r.GetScopeSpans() {
			for _, span := range s.GetSpans() {
				c.spans = append(c.spans, collected{span, by, texts(span.GetAttributes()), texts(r.GetResource().GetAttributes())})
			}
		}
	}
}

func texts(list []*commonv1.KeyValue) map[string]string {
	out := map[string]string{}
	for _, a := range list {
		out[a.GetKey()] = a.GetValue().GetStringValue()
	}
	return out
}

// of waits for the span of a trace that one side of the request made.
func (c *collector) of(t *testing.T, trace string, kind tracev1.Span_SpanKind) (out collected) {
	t.Helper()
	envoytest.Eventually(t, limit, "the span of "+trace, func() error {
		c.mu.Lock()
		defer c.mu.Unlock()
		i := slices.IndexFunc(c.spans, func(s collected) bool { return hex.EncodeToString(s.GetTraceId()) == trace && s.GetKind() == kind })
		if i < 0 {
			return fmt.Errorf("it is not among %d", len(c.spans))
		}
		out = c.spans[i]
		return nil
	})
	return out
}

// hasTags checks that a span has tags; those of value "" it must not have.
func (s *collected) hasTags(t *testing.T, of string, all ...map[string]string) {
	t.Helper()
	for _, tags := range all {
		for tag, value := range tags {
			if s.attributes[tag] != value {
				t.Errorf("%s: tag %s is %q, want %q; all are %v", of, tag, s.attributes[tag], value, s.attributes)
			}
		}
	}
}

// istioTags are those of workloads labelled app=NAME in cluster east.
func istioTags(name string) map[string]string {
	return map[string]string{"istio.canonical_service": name, "istio.canonical_revision": "latest", "istio.namespace": namespace, "istio.cluster_id": "east", "istio.mesh_id": "unknown"}
}

// TestSpans: spans come to the collectors that Telemetry names, with the tags and of the share of requests that it says.
func TestSpans(t *testing.T) {
	t.Parallel()
	w := newObserved(t, `
defaultProviders: {tracing: [otel]}
extensionProviders:
- {name: otel, opentelemetry: {service: otel.shop.svc.cluster.local, port: 4317}}
- {name: otel-http, opentelemetry: {service: otel-http.shop.svc.cluster.local, port: 4318, http: {path: /v1/traces, headers: [{name: x-tenant, value: 100%}]}}}
defaultConfig: {tracing: {sampling: 100, customTags: {of: {literal: {value: the mesh}}}}}`,
		telemetry("tagged", `tracing: [{randomSamplingPercentage: 100, customTags: {literal: {literal: {value: v}}, env: {environment: {name: NO_SUCH_VARIABLE, defaultValue: d}},
    header: {header: {name: x-tag, defaultValue: none}}, format: {formatter: {value: "%REQ(:METHOD)% to %UPSTREAM_CLUSTER_RAW%"}}}}]`),
		telemetry("by-http", "tracing: [{providers: [{name: otel-http}]}]"),
		telemetry("unsampled", "tracing: [{randomSamplingPercentage: 0}]"),
		telemetry("silent", "tracing: [{disableContextPropagation: true}]"),
		telemetry("dark", "tracing: [{disableSpanReporting: true}]"))
	c := w.collector(t)
	byGRPC, byHTTP := service("otel", "10.96.0.8", "grpc", 4317), service("otel-http", "10.96.0.9", "http", 4318)
	w.write(t, "east/collector.yaml", byGRPC, slicesOf(byGRPC, endpoint{addr: c.grpc}), byHTTP, slicesOf(byHTTP, endpoint{addr: c.http}))

	// sent gives the trace of a request and whether it is sampled, as the backend is told.
	sent := func(p *proxy) (trace string, sampled bool) {
		t.Helper()
		got := p.sends(t, http.MethodGet, "/orders/7", http.Header{"X-Tag": {"mine"}}, 200)
		parts := strings.Split(got.Headers.Get("Traceparent"), "-")
		if len(parts) != 4 {
			return "", false
		}
		return parts[1], parts[3] == "01"
	}
	clusterOf := outbound(host("web"), 8000)
	usual := map[string]string{"component": "proxy", "upstream_cluster": clusterOf, "upstream_cluster.name": clusterOf, "http.status_code": "200", "http.method": "GET", "http.protocol": "HTTP/1.1",
		"http.url": "http://" + host("web") + "/orders/7", "response_flags": "-"}
	expected := map[string]struct {
		by   string
		tags map[string]string
	}{
		"plain":   {"grpc", map[string]string{"of": "the mesh"}},
		"tagged":  {"grpc", map[string]string{"literal": "v", "env": "d", "header": "mine", "format": "GET to " + clusterOf, "of": ""}},
		"by-http": {"http /v1/traces 100%", map[string]string{"of": "the mesh"}},
	}
	traces := map[string]string{}
	for name := range expected { // before any is waited for: proxies send spans every 5 s
		trace, sampled := sent(w.client(t, name))
		if !sampled {
			t.Fatalf("%s: a request of trace %q is not sampled", name, trace)
		}
		traces[name] = trace
	}
	for name, want := range expected {
		s := c.of(t, traces[name], tracev1.Span_SPAN_KIND_CLIENT)
		if s.by != want.by || s.GetName() != host("web")+":8000/orders*" {
			t.Errorf("%s: span %q by %s, want it by %s", name, s.GetName(), s.by, want.by)
		}
		s.hasTags(t, name, usual, want.tags, istioTags(name))
		if s.resource["service.name"] != name+"."+namespace {
			t.Errorf("%s: the span names another service: %v", name, s.resource)
		}
	}
	if trace, sampled := sent(w.client(t, "unsampled")); trace == "" || sampled {
		t.Errorf("of 0%% of requests there is trace %q, sampled: %v", trace, sampled)
	}
	for _, name := range []string{"silent", "dark"} {
		if trace, _ := sent(w.client(t, name)); trace != "" {
			t.Errorf("%s: the backend is told of trace %q", name, trace)
		}
	}
}
