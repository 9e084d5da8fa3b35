package envoy_test

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/isthmus-mesh/isthmus/cmd/isthmus/bootstrap"
	"github.com/isthmus-mesh/isthmus/test/envoy/envoytest"
)

// call makes one request through a proxy and returns the name of the backend
// that answered and the protocol that it saw.
type call func(ctx context.Context, p *proxy, host string, port uint16) (name, proto string, err error)

func http1(ctx context.Context, p *proxy, host string, port uint16) (string, string, error) {
	a, err := p.get(ctx, host, port)
	return a.Name, a.Proto, err
}

func http2(ctx context.Context, p *proxy, host string, port uint16) (string, string, error) {
	a, err := p.get2(ctx, host, port)
	return a.Name, a.Proto, err
}

func grpc(ctx context.Context, p *proxy, host string, port uint16) (string, string, error) {
	a, err := envoytest.EchoGRPC(ctx, p.ns, p.addr(port), host)
	return a.Name, a.Proto, err
}

func tcp(ctx context.Context, p *proxy, _ string, port uint16) (string, string, error) {
	line, err := envoytest.EchoTCP(ctx, p.ns, p.addr(port), "ping\n")
	var name string
	if err == nil {
		_, err = fmt.Sscan(line, &name)
	}
	return name, "", err
}

// secure speaks TLS with the backend itself: the proxy sees the server name only.
func secure(ctx context.Context, p *proxy, host string, port uint16) (string, string, error) {
	client := &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		TLSClientConfig:   &tls.Config{ServerName: host, InsecureSkipVerify: true},
	}}
	a, err := envoytest.Get(ctx, client, "https://"+p.addr(port)+"/", host)
	return a.Name, a.Proto, err
}

const (
	h1 = "HTTP/1.1"
	h2 = "HTTP/2.0"
)

// protocols are the calls that work through a proxy. The backend has the name
// of its service.
var protocols = []struct {
	name   string
	call   call
	host   string
	port   uint16
	answer string
	proto  string
	router bool // through a gateway too
}{
	{"http", http1, host("web"), 8000, "web", h1, true},
	{"http by short name", http1, "web", 8000, "web", h1, false},
	{"http by name and namespace", http1, "web." + namespace, 8000, "web", h1, true},
	{"http by name and port", http1, host("web") + ":8000", 8000, "web", h1, true},
	{"http by address", http1, "10.96.0.1", 8000, "web", h1, false},
	{"http2 to http2", http2, host("api"), 8001, "api", h2, true},
	{"http1 to http2", http1, host("api"), 8001, "api", h2, true},
	{"grpc", grpc, host("greeter"), 8002, "greeter", h2, true},
	{"tcp", tcp, "", 8003, "echo", "", true},
	{"tcp beside http", tcp, "", 8000, "beside", "", true},
	{"sniffed as http1", http1, host("any"), 8004, "any", h1, true},
	{"sniffed as http2", http2, host("any2"), 8005, "any2", h2, true},
	{"sniffed as tcp", tcp, "", 8006, "anything", "", true},
	{"tls by server name", secure, host("vault"), 8012, "vault", h1, true},
	{"https by server name", secure, host("shop"), 8012, "shop", h1, true},
	{"several services on one port", http1, host("second"), 8000, "second", h1, true},
	{"static entry", http1, "static.example", 8007, "static.example", h1, true},
	{"dns entry", http1, "dns.example", 8008, "dns.example", h1, true},
	{"headless", http1, host("headless"), 8010, "headless", h1, true},
	{"external name", http1, host("external"), 8011, "external", h1, true},
	{"round robin dns entry", http1, "one.example", 8009, "one.example", h1, true},
}

// entry is a ServiceEntry of one host.
func entry(host string, port uint16, resolution, address string, target uint16) string {
	return fmt.Sprintf(`
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: %q, namespace: %s}
spec:
  hosts: [%q]
  location: MESH_EXTERNAL
  resolution: %s
  ports: [{number: %d, name: http, protocol: HTTP}]
  endpoints: [{address: %q, ports: {http: %d}}]`, host, namespace, host, resolution, port, address, target)
}

// protocolMesh runs every backend of the table behind its service, and a
// resolver for the entries, whose address it returns.
func protocolMesh(t testing.TB) (*mesh, netip.AddrPort) {
	t.Helper()
	m := newMesh(t)
	var objects []any
	add := func(kind envoytest.Kind, name, vip, portName string, port uint16) {
		s := service(name, vip, portName, port)
		objects = append(objects, s, slicesOf(s, at(m.backend(t, kind, name))...))
	}
	add(envoytest.HTTP1, "web", "10.96.0.1", "http", 8000)
	add(envoytest.HTTP1, "second", "10.96.0.2", "http", 8000)
	add(envoytest.HTTP2, "api", "10.96.0.3", "http2", 8001)
	add(envoytest.GRPC, "greeter", "10.96.0.4", "grpc", 8002)
	add(envoytest.TCP, "echo", "10.96.0.5", "tcp", 8003)
	add(envoytest.HTTP1, "any", "10.96.0.6", "", 8004)
	add(envoytest.HTTP2, "any2", "10.96.0.7", "", 8005)
	add(envoytest.TCP, "anything", "10.96.0.8", "", 8006)
	add(envoytest.HTTP1, "headless", "", "http", 8010)
	add(envoytest.TCP, "beside", "10.96.0.9", "tcp", 8000)
	for _, s := range []*corev1.Service{service("vault", "10.96.0.10", "tls", 8012), service("shop", "10.96.0.11", "https", 8012)} {
		objects = append(objects, s, slicesOf(s, endpoint{addr: m.secureBackend(t, s.Name)}))
	}

	resolver := netip.MustParseAddrPort(m.lo.At(3, 1, 5353))
	names := map[string][]netip.Addr{}
	external := func(host string, port uint16, resolution, dnsName string) {
		addr := netip.MustParseAddrPort(m.backend(t, envoytest.HTTP1, host).Addr)
		address := addr.Addr().String()
		if dnsName != "" {
			names[dnsName+"."], address = []netip.Addr{addr.Addr()}, dnsName
		}
		objects = append(objects, entry(host, port, resolution, address, addr.Port()))
	}
	external("static.example", 8007, "STATIC", "")
	external("dns.example", 8008, "DNS", "dns.backend.test")
	external("one.example", 8009, "DNS_ROUND_ROBIN", "one.backend.test")
	objects = append(objects, m.externalName(t, "external", 8011, "external.backend.test", names))
	startDNS(t, resolver, names)
	m.start(t, files{"east/all.yaml": objects})
	return m, resolver
}

// externalName is a service that stands for a DNS name, whose backend it runs.
func (m *mesh) externalName(t testing.TB, name string, port uint16, dnsName string, names map[string][]netip.Addr) *corev1.Service {
	t.Helper()
	addr := netip.MustParseAddrPort(m.lo.At(4, 1, port))
	m.backendAt(t, envoytest.HTTP1, name, addr.String())
	names[dnsName+"."] = []netip.Addr{addr.Addr()}
	s := service(name, "", "http", port)
	s.Spec.ClusterIP, s.Spec.Type, s.Spec.ExternalName = "", corev1.ServiceTypeExternalName, dnsName
	return s
}

// secureBackend is like backend, but speaks TLS; it returns the address.
func (m *mesh) secureBackend(t testing.TB, name string) string {
	t.Helper()
	return m.secureAt(t, name, m.lo.At(2, byte(m.backends.Add(1)), 9000))
}

func (m *mesh) secureAt(t testing.TB, name, addr string) string {
	t.Helper()
	l, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = json.NewEncoder(w).Encode(envoytest.Answer{Name: name, Proto: r.Proto})
	}))
	s.Listener.Close()
	s.Listener = l
	s.StartTLS()
	t.Cleanup(s.Close)
	return l.Addr().String()
}

func TestProtocols(t *testing.T) {
	t.Parallel()
	m, resolver := protocolMesh(t)
	for _, kind := range []string{bootstrap.Sidecar, bootstrap.Router} {
		for name, sotw := range map[string]bool{"delta": false, "sotw": true} {
			t.Run(kind+"/"+name, func(t *testing.T) {
				t.Parallel()
				p := m.resolving(t, kind+"-"+name, bootstrap.Options{
					Type: kind, Expose: kind == bootstrap.Router, SotW: sotw,
				}, resolver)
				for _, tt := range protocols {
					if kind == bootstrap.Router && !tt.router {
						continue
					}
					t.Run(tt.name, func(t *testing.T) {
						t.Parallel()
						envoytest.Eventually(t, limit, "an answer", func() error {
							answer, proto, err := tt.call(t.Context(), p, tt.host, tt.port)
							return same([2]string{answer, proto}, [2]string{tt.answer, tt.proto}, err)
						})
					})
				}
				t.Run("unknown host", func(t *testing.T) {
					t.Parallel()
					if kind == bootstrap.Router {
						p.refuses(t, "nobody.example", 8000, 404)
					}
				})
			})
		}
	}
}

// An Envoy asks for listeners only when its clusters are warm, and a cluster
// whose resolver never answers never is: see Envoy's wait_for_warm_on_init.
func TestColdStartWithSilentDNS(t *testing.T) {
	t.Parallel()
	m := newMesh(t)
	web := service("web", "10.96.0.1", "http", 8000)
	m.start(t, files{"east/all.yaml": {
		web, slicesOf(web, at(m.backend(t, envoytest.HTTP1, "web"))...),
		entry("dns.example", 8008, "DNS", "silent.backend.test", 80),
		entry("one.example", 8009, "DNS_ROUND_ROBIN", "silent.backend.test", 80),
	}})
	resolver := netip.MustParseAddrPort(m.lo.At(3, 1, 5353))
	startDNS(t, resolver, nil)
	for name, sotw := range map[string]bool{"delta": false, "sotw": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := m.resolving(t, "cold-"+name, bootstrap.Options{SotW: sotw}, resolver)
			p.answers(t, host("web"), 8000, "web")
			// Later changes arrive as well: nothing waits for that cluster.
			second := service("second-"+name, map[string]string{"delta": "10.96.0.2", "sotw": "10.96.0.3"}[name], "http", 8000)
			m.write(t, "east/"+name+".yaml", second, slicesOf(second, at(m.backend(t, envoytest.HTTP1, "second"))...))
			p.answers(t, host("second-"+name), 8000, "second")
		})
	}
}
