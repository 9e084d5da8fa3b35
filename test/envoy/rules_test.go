package envoy_test

import (
	"bufio"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/isthmus-mesh/isthmus/cmd/isthmus/bootstrap"
	"github.com/isthmus-mesh/isthmus/test/envoy/envoytest"
)

// tlsBackend answers over TLS as example.com; it returns where, and a file of what its certificate is verified by.
func (m *mesh) tlsBackend(t testing.TB, name string) (addr, authority string) {
	t.Helper()
	l, err := net.Listen("tcp", m.lo.At(2, byte(m.backends.Add(1)), 9000))
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = json.NewEncoder(w).Encode(envoytest.Answer{Name: name, Proto: r.Proto})
	}))
	s.Listener.Close()
	s.Listener = l
	s.EnableHTTP2 = true
	s.StartTLS()
	t.Cleanup(s.Close)
	authority = filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(authority, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	return l.Addr().String(), authority
}

// greeter sends back the first two lines of each connection.
func (m *mesh) greeter(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", m.lo.At(2, byte(m.backends.Add(1)), 9000))
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	t.Cleanup(func() { l.Close(); <-done })
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			r := bufio.NewReader(c)
			for range 2 {
				if line, err := r.ReadString('\n'); err == nil {
					_, _ = c.Write([]byte(line))
				}
			}
			c.Close()
		}
	}()
	return l.Addr().String()
}

func rule(name, policy string) string {
	return fmt.Sprintf("apiVersion: networking.istio.io/v1\nkind: DestinationRule\nmetadata: {name: %s, namespace: shop}\nspec: {host: %s, trafficPolicy: {%s}}", name, name, policy)
}

// TestDestinationRules: what rules say of connections holds for them.
func TestDestinationRules(t *testing.T) {
	modes(t, func(t *testing.T, sotw bool) {
		m := newMesh(t)
		safe, lame, hello := service("safe", "10.96.0.1", "http", 8000), service("lame", "10.96.0.2", "http", 8001), service("hello", "10.96.0.3", "tcp", 8002)
		at1, authority := m.tlsBackend(t, "safe-0")
		live := m.backend(t, envoytest.HTTP1, "lame-0")
		dead := m.lo.At(2, byte(m.backends.Add(1)), 9000) // nobody listens
		tls := func(more string) string {
			return rule("safe", fmt.Sprintf("tls: {mode: SIMPLE, caCertificates: %s%s}", authority, more))
		}
		m.start(t, files{
			"east/all.yaml": {safe, slicesOf(safe, endpoint{addr: at1}), hello, slicesOf(hello, endpoint{addr: m.greeter(t)}),
				rule("lame", "outlierDetection: {consecutiveGatewayErrors: 1, interval: 0.1s, baseEjectionTime: 300s, maxEjectionPercent: 100}"),
				rule("hello", "proxyProtocol: {version: V1}")},
			"east/lame.yaml": {lame, slicesOf(lame, endpoint{addr: live.Addr}, endpoint{addr: dead})},
			"east/safe.yaml": {tls(", sni: example.com, subjectAltNames: [example.com]")},
		})
		p := m.launch(t, "client", bootstrap.Options{SotW: sotw})

		// TLS that the rule describes; who is not named is not spoken to; requests are upgraded if it says so.
		p.answers(t, host("safe"), 8000, "safe-0")
		m.write(t, "east/safe.yaml", tls(", sni: example.com, subjectAltNames: [other.example]"))
		p.refuses(t, host("safe"), 8000, 503)
		m.write(t, "east/safe.yaml", tls(", sni: example.com, subjectAltNames: [example.com]}, connectionPool: {http: {h2UpgradePolicy: UPGRADE}"))
		envoytest.Eventually(t, limit, "requests to be upgraded", func() error {
			a, err := p.get(t.Context(), host("safe"), 8000)
			return same(a.Name+" "+a.Proto, "safe-0 HTTP/2.0", err)
		})

		// An endpoint that fails is left out.
		ejected := "cluster." + outbound(host("lame"), 8001) + ".outlier_detection.ejections_active"
		envoytest.Eventually(t, limit, "the endpoint that nobody listens at to be ejected", func() error {
			_, _ = p.get(t.Context(), host("lame"), 8001)
			n, err := p.Stat(t.Context(), ejected)
			return same(n, 1, err)
		})
		for range 20 {
			if a, err := p.get(t.Context(), host("lame"), 8001); err != nil || a.Name != "lame-0" {
				t.Fatalf("an answer of %q, %v", a.Name, err)
			}
		}

		m.write(t, "east/lame.yaml", lame, slicesOf(lame, endpoint{addr: live.Addr}))
		p.has(t, outbound(host("lame"), 8001), live.Addr)

		// Connections start with who makes them.
		envoytest.Eventually(t, limit, "a connection that says who makes it", func() error {
			line, err := envoytest.EchoTCP(t.Context(), p.ns, p.addr(8002), "hi\n")
			if err == nil && !strings.HasPrefix(line, "PROXY TCP4 "+p.ip.String()+" ") && !strings.HasPrefix(line, "PROXY TCP4 127.") {
				err = fmt.Errorf("it starts with %q", line)
			}
			return err
		})
	})
}
