package envoytest_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/test/envoy/envoytest"
)

// limit bounds every wait for a process; only a hang meets it.
const limit = time.Minute

// staticBootstrap is an Envoy with three listeners on free ports of address
// listen: "http" and "http2" route everything to the cluster "backend", "tcp"
// is a TCP proxy to it.
func staticBootstrap(t *testing.T, listen, backend string, http2 bool) []byte {
	t.Helper()
	host, port, err := net.SplitHostPort(backend)
	if err != nil {
		t.Fatal(err)
	}
	protocol := "http_protocol_options: {}"
	if http2 {
		protocol = "http2_protocol_options: {}"
	}
	return fmt.Appendf(nil, `
static_resources:
  listeners:
  - name: http
    address: {socket_address: {address: %[1]q, port_value: 0}}
    filter_chains:
    - filters:
      - name: hcm
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: in
          route_config:
            virtual_hosts:
            - {name: all, domains: ["*"], routes: [{match: {prefix: /}, route: {cluster: backend}}]}
          http_filters:
          - name: router
            typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router}
  - name: tcp
    address: {socket_address: {address: %[1]q, port_value: 0}}
    filter_chains:
    - filters:
      - name: tcp
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy
          stat_prefix: tcp
          cluster: backend
  clusters:
  - name: backend
    type: STATIC
    connect_timeout: 5s
    typed_extension_protocol_options:
      envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
        "@type": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
        explicit_http_config: {%[4]s}
    load_assignment:
      cluster_name: backend
      endpoints: [{lb_endpoints: [{endpoint: {address: {socket_address: {address: %[2]q, port_value: %[3]s}}}}]}]
`, listen, host, port, protocol)
}

// startStatic runs an Envoy in front of a backend and returns it, ready, with
// the addresses of its listeners.
func startStatic(t *testing.T, b *envoytest.Backend, http2 bool) (*envoytest.Envoy, map[string]string) {
	t.Helper()
	e := envoytest.Start(t, envoytest.Options{Name: t.Name(), Bootstrap: staticBootstrap(t, "127.0.0.1", b.Addr, http2)})
	ready(t, e)
	listeners, err := e.Listeners(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return e, listeners
}

func ready(t *testing.T, e *envoytest.Envoy) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	if err := e.WaitReady(ctx); err != nil {
		t.Fatal(err)
	}
}

func TestHTTPThroughEnvoy(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		kind  envoytest.Kind
		proto string
	}{
		{envoytest.HTTP1, "HTTP/1.1"},
		{envoytest.HTTP2, "HTTP/2.0"},
	} {
		t.Run(tt.kind.String(), func(t *testing.T) {
			t.Parallel()
			b := envoytest.StartBackend(t, envoytest.BackendOptions{Kind: tt.kind, Name: "b1", Cluster: "east"})
			_, listeners := startStatic(t, b, tt.kind == envoytest.HTTP2)
			var client *envoytest.Namespace
			got, err := envoytest.Get(t.Context(), client.HTTPClient(), "http://"+listeners["http"]+"/a/b", "svc.example")
			if err != nil {
				t.Fatal(err)
			}
			if got.Name != "b1" || got.Cluster != "east" || got.Proto != tt.proto || got.Host != "svc.example" || got.Path != "/a/b" {
				t.Errorf("got %+v", got)
			}
			if got.Headers.Get("X-Request-Id") == "" {
				t.Errorf("no x-request-id: the request did not pass an Envoy: %v", got.Headers)
			}
			if n := b.Requests(); n != 1 {
				t.Errorf("the backend counted %d requests, want 1", n)
			}
		})
	}
}

func TestHTTP2Client(t *testing.T) {
	t.Parallel()
	b := envoytest.StartBackend(t, envoytest.BackendOptions{Kind: envoytest.HTTP2, Name: "b"})
	client := (*envoytest.Namespace)(nil).HTTP2Client()
	defer client.CloseIdleConnections()
	got, err := envoytest.Get(t.Context(), client, "http://"+b.Addr+"/", "")
	if err != nil {
		t.Fatal(err)
	}
	if got.Proto != "HTTP/2.0" || got.Host != b.Addr {
		t.Errorf("got %+v", got)
	}
}

func TestGRPCThroughEnvoy(t *testing.T) {
	t.Parallel()
	b := envoytest.StartBackend(t, envoytest.BackendOptions{Kind: envoytest.GRPC, Name: "g", Cluster: "west"})
	_, listeners := startStatic(t, b, true)
	got, err := envoytest.EchoGRPC(t.Context(), nil, listeners["http"], "grpc.example")
	if err != nil {
		t.Fatal(err)
	}
	if got.Name != "g" || got.Cluster != "west" || got.Host != "grpc.example" || got.Headers.Get("X-Request-Id") == "" {
		t.Errorf("got %+v", got)
	}
	if n := b.Requests(); n != 1 {
		t.Errorf("the backend counted %d calls, want 1", n)
	}
}

func TestTCPThroughEnvoy(t *testing.T) {
	t.Parallel()
	b := envoytest.StartBackend(t, envoytest.BackendOptions{Kind: envoytest.TCP, Name: "t", Cluster: "east"})
	_, listeners := startStatic(t, b, false)
	got, err := envoytest.EchoTCP(t.Context(), nil, listeners["tcp"], "hello\nthere")
	if err != nil {
		t.Fatal(err)
	}
	if got != "t east" || b.Requests() != 1 {
		t.Errorf("got %q after %d connections, want %q after 1", got, b.Requests(), "t east")
	}
}

func TestBackendCloseCutsTCP(t *testing.T) {
	t.Parallel()
	b := envoytest.StartBackend(t, envoytest.BackendOptions{Kind: envoytest.TCP, Name: "t"})
	conn, err := net.Dial("tcp", b.Addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	if _, err := conn.Read(make([]byte, 100)); err == nil {
		// The first read may still get the name; the next one finds the end.
		if _, err := conn.Read(make([]byte, 100)); err == nil {
			t.Error("the connection outlives its backend")
		}
	}
	if _, err := net.Dial("tcp", b.Addr); err == nil {
		t.Error("a closed backend accepts connections")
	}
}

func TestHandlerAndStatusError(t *testing.T) {
	t.Parallel()
	b := envoytest.StartBackend(t, envoytest.BackendOptions{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "not today", http.StatusServiceUnavailable)
		}),
	})
	_, err := envoytest.Get(t.Context(), http.DefaultClient, "http://"+b.Addr, "")
	var status *envoytest.StatusError
	if !errors.As(err, &status) || status.Code != http.StatusServiceUnavailable || !strings.Contains(err.Error(), "not today") {
		t.Errorf("got %v, want status 503 with its text", err)
	}
	http.DefaultClient.CloseIdleConnections()
}

func TestAdminViews(t *testing.T) {
	t.Parallel()
	b := envoytest.StartBackend(t, envoytest.BackendOptions{Name: "b"})
	e, listeners := startStatic(t, b, false)
	ctx := t.Context()
	if _, err := envoytest.Get(ctx, http.DefaultClient, "http://"+listeners["http"]+"/", ""); err != nil {
		t.Fatal(err)
	}
	http.DefaultClient.CloseIdleConnections()

	envoytest.Eventually(t, limit, "the request to be counted", func() error {
		n, err := e.Stat(ctx, "cluster.backend.upstream_rq_total")
		if err == nil && n != 1 {
			err = fmt.Errorf("it is %d", n)
		}
		return err
	})
	if n, err := e.Stat(ctx, "no.such.stat"); n != 0 || err != nil {
		t.Errorf("an unknown stat is %d, %v; want 0", n, err)
	}
	if rejected, err := e.Rejected(ctx); len(rejected) != 0 || err != nil {
		t.Errorf("rejected: %v, %v", rejected, err)
	}
	clusters, err := e.Clusters(ctx)
	if err != nil || len(clusters) != 1 || clusters[0].GetName() != "backend" || len(clusters[0].GetHostStatuses()) != 1 {
		t.Errorf("clusters: %v, %v", clusters, err)
	}
	for resource, want := range map[string]int{"static_clusters": 1, "static_listeners": 2, "dynamic_active_clusters": 0} {
		if dump, err := e.ConfigDump(ctx, resource); err != nil || len(dump) != want {
			t.Errorf("%s: %d entries, %v; want %d", resource, len(dump), err, want)
		}
	}
	if dump, err := e.ConfigDump(ctx, ""); err != nil || len(dump) < 3 {
		t.Errorf("whole dump: %d entries, %v", len(dump), err)
	}
	if _, err := e.Admin(ctx, http.MethodGet, "/no-such-page"); err == nil {
		t.Error("an unknown admin page is no error")
	}
}

func TestStopKillAndRestart(t *testing.T) {
	t.Parallel()
	b := envoytest.StartBackend(t, envoytest.BackendOptions{Name: "b"})
	for name, end := range map[string]func(*envoytest.Envoy) error{
		"stop": (*envoytest.Envoy).Stop,
		"kill": (*envoytest.Envoy).Kill,
	} {
		e, _ := startStatic(t, b, false)
		for range 2 {
			if err := end(e); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		<-e.Exited()
		if err := e.WaitReady(t.Context()); err == nil || !strings.Contains(err.Error(), "exited") {
			t.Errorf("%s: ready gives %v, want that it exited", name, err)
		}
	}
}

func TestLaunchErrors(t *testing.T) {
	t.Parallel()
	binary, err := envoytest.Binary(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		opts envoytest.Options
		want string
	}{
		"not yaml":        {envoytest.Options{Bootstrap: []byte("{")}, "parse bootstrap"},
		"empty":           {envoytest.Options{}, "it is empty"},
		"refused by it":   {envoytest.Options{Bootstrap: []byte("no_such_field: 1")}, "no_such_field"},
		"no such program": {envoytest.Options{Bootstrap: []byte("node: {id: a}"), Binary: "/no/such/envoy"}, "/no/such/envoy"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if tt.opts.Binary == "" {
				tt.opts.Binary = binary
			}
			e, err := envoytest.Launch(t.Context(), tt.opts)
			if err == nil {
				e.Close()
				t.Fatal("no error")
			}
			if !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %q does not say %q", err, tt.want)
			}
		})
	}
}

func TestPoll(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	calls := 0
	err := envoytest.Poll(t.Context(), func() error {
		if calls++; calls < 3 {
			return errors.New("not yet")
		}
		return envoytest.Permanent(broken)
	})
	if !errors.Is(err, broken) || calls != 3 {
		t.Errorf("got %v after %d calls, want broken after 3", err, calls)
	}
	ctx, cancel := context.WithCancel(t.Context())
	err = envoytest.Poll(ctx, func() error { cancel(); return broken })
	if !errors.Is(err, broken) || !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want both the end of the context and the last error", err)
	}
}
