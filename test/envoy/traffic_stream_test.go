package envoy_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"

	"github.com/isthmus-mesh/isthmus/test/envoy/envoytest"
)

// connects says who answers a connection of the client.
func (w *roads) connects(ctx context.Context, addr string) (string, error) {
	line, err := envoytest.EchoTCP(ctx, w.client, addr, "ping\n")
	return strings.TrimSpace(line), err
}

// only waits until n connections in a row are answered by one workload.
func (w *roads) only(t *testing.T, n int, want string, connect func(context.Context) (string, error)) {
	t.Helper()
	envoytest.Eventually(t, limit, fmt.Sprintf("%d answers of %s", n, want), func() error {
		for range n {
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			got, err := connect(ctx)
			cancel()
			if err = same(got, want, err); err != nil {
				return err
			}
		}
		return nil
	})
}

// tcpRoutes: connections go to the subsets that routes name, in their shares.
func (w *roads) tcpRoutes(t *testing.T) {
	config := func(v1, v2 int) []string {
		return []string{versions("stream", ""), routes("stream", fmt.Sprintf(`
tcp:
- match: [{port: %d}]
  route: [{destination: {host: HOST, subset: v1}, weight: %d}, {destination: {host: HOST, subset: v2}, weight: %d}]
`, dbPort, v1, v2))}
	}
	at := w.serves(t, "stream", "tcp", dbPort, dbPort, config(0, 100)...)
	connect := func(ctx context.Context) (string, error) { return w.connects(ctx, at) }
	w.only(t, 20, "v2", connect)
	w.says(t, "stream", config(100, 0)...)
	w.only(t, 20, "v1", connect)

	w.says(t, "stream", config(30, 70)...)
	share := func(n int) map[string]int {
		got := map[string]int{}
		for range n {
			name, err := connect(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			got[name]++
		}
		return got
	}
	envoytest.Eventually(t, limit, "both to answer", func() error { return same(len(share(30)), 2, nil) })
	const n = 400
	likely(t, "v1", share(n)["v1"], n, 0.3)
}

const secureEntry = `
hosts: [vault.secure.example, a.secure.example, b.secure.example]
addresses: [10.97.0.1]
location: MESH_INTERNAL
resolution: STATIC
ports: [{number: 443, name: tls, protocol: TLS}]
endpoints:
- {address: V1, ports: {tls: 8443}, labels: {version: v1}}
- {address: V2, ports: {tls: 8443}, labels: {version: v2}}
`

// tlsRoutes: connections go where the server name that they ask for is routed to.
func (w *roads) tlsRoutes(t *testing.T) {
	config := func(a, b string) []any {
		return []any{
			object("ServiceEntry", "secure", strings.NewReplacer("V1", w.v1.Addr.String(), "V2", w.v2.Addr.String()).Replace(secureEntry)),
			strings.ReplaceAll(versions("secure", ""), "HOST", "vault.secure.example"),
			object("VirtualService", "secure", fmt.Sprintf(`
hosts: [a.secure.example, b.secure.example]
tls:
- match: [{port: 443, sniHosts: [a.secure.example]}]
  route: [{destination: {host: vault.secure.example, subset: %s}}]
- match: [{port: 443, sniHosts: [b.secure.example]}]
  route: [{destination: {host: vault.secure.example, subset: %s}}]
`, a, b)),
		}
	}
	handshake := func(name string) func(context.Context) (string, error) {
		return func(ctx context.Context) (string, error) {
			client := w.client.HTTPClient()
			client.Transport.(*http.Transport).TLSClientConfig = &tls.Config{ServerName: name, InsecureSkipVerify: true}
			a, err := envoytest.Get(ctx, client, "https://10.97.0.1:443/", name)
			return a.Name, err
		}
	}
	w.write(t, "east/secure.yaml", config("v1", "v2")...)
	w.only(t, 10, "v1", handshake("a.secure.example"))
	w.only(t, 10, "v2", handshake("b.secure.example"))
	w.write(t, "east/secure.yaml", config("v2", "v1")...)
	w.only(t, 10, "v2", handshake("a.secure.example"))
	w.only(t, 10, "v1", handshake("b.secure.example"))
	if name, err := handshake("c.secure.example")(t.Context()); err == nil {
		t.Errorf("a name that nothing has is answered by %s", name)
	}
}

// grpcRoutes: calls are routed by their methods, changed, and failed with the code that a fault says.
func (w *roads) grpcRoutes(t *testing.T) {
	rules := func(fault string) []string {
		return []string{versions("greeter", ""), routes("greeter", `
http:
- match: [{uri: {prefix: `+envoytest.EchoMethod+`}}]
  headers: {request: {set: {x-route: echo}}}
  route: [{destination: {host: HOST, subset: v2}}]`+fault+`
- route: [{destination: {host: HOST, subset: v1}}]
`)}
	}
	at := w.serves(t, "greeter", "grpc", 83, greeterPort, rules("")...)
	w.only(t, 10, "v2 echo", func(ctx context.Context) (string, error) {
		a, err := envoytest.EchoGRPC(ctx, w.client, at, host("greeter"))
		return a.Name + " " + a.Headers.Get("x-route"), err
	})
	w.says(t, "greeter", rules("\n  fault: {abort: {grpcStatus: RESOURCE_EXHAUSTED, percentage: {value: 100}}}")...)
	w.only(t, 10, codes.ResourceExhausted.String(), func(ctx context.Context) (string, error) {
		_, err := envoytest.EchoGRPC(ctx, w.client, at, host("greeter"))
		if err == nil {
			return "", errors.New("the call is answered")
		}
		return grpcstatus.Code(err).String(), nil
	})
}

// http2Routes: HTTP/2 is routed like HTTP/1, to backends that speak it.
func (w *roads) http2Routes(t *testing.T) {
	at := w.serves(t, "api", "http2", 82, apiPort, versions("api", ""), routes("api", `
http:
- match: [{uri: {prefix: /a}}]
  rewrite: {uri: /b}
  route: [{destination: {host: HOST, subset: v2}}]
- route: [{destination: {host: HOST, subset: v1}}]
`))
	client := w.client.HTTP2Client()
	defer client.CloseIdleConnections()
	for path, want := range map[string]string{"/a/x": "v2 HTTP/2.0 /b/x", "/c": "v1 HTTP/2.0 /c"} {
		w.only(t, 10, want, func(ctx context.Context) (string, error) {
			a, err := envoytest.Get(ctx, client, "http://"+at+path, host("api"))
			return a.Name + " " + a.Proto + " " + a.Path, err
		})
	}
}

// upgrades: a connection that becomes another protocol goes where its request is routed to.
func (w *roads) upgrades(t *testing.T) {
	at := w.serves(t, "chat", "http", 80, webPort, versions("chat", ""), routes("chat", `
http:
- match: [{uri: {prefix: /chat}}]
  rewrite: {uri: /socket}
  route: [{destination: {host: HOST, subset: v2}}]
- route: [{destination: {host: HOST, subset: v1}}]
`))
	w.until(t, at, request{path: "/chat"}, "the routes", named("v2"))
	head, conn, in := w.upgraded(t, at, host("chat"), "/chat/room")
	if !strings.HasPrefix(head[0], "http/1.1 101 ") || !slices.Contains(head, "x-backend: v2") || !slices.Contains(head, "x-path: /socket/room") {
		t.Fatalf("the answer is %q", head)
	}
	for _, text := range []string{"\x81\x05hello", "\x00\xff anything"} {
		back := make([]byte, len(text))
		if _, err := conn.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(in, back); err != nil || string(back) != text {
			t.Errorf("sent %q, got %q, %v", text, back, err)
		}
	}
}

// upgraded asks for an upgrade, and returns the head of the answer and the connection.
func (w *roads) upgraded(t *testing.T, addr, host, path string) (head []string, conn net.Conn, in *bufio.Reader) {
	t.Helper()
	conn, err := w.client.Dial(t.Context(), addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: %s\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n", path, host)
	in = bufio.NewReader(conn)
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			t.Fatalf("after %q: %v", head, err)
		}
		if line = strings.TrimSpace(line); line == "" {
			return head, conn, in
		}
		head = append(head, strings.ToLower(line))
	}
}
