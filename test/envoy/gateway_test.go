package envoy_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"github.com/isthmus-mesh/isthmus/cmd/isthmus/bootstrap"
	"github.com/isthmus-mesh/isthmus/test/envoy/envoytest"
)

// ingress is a mesh with a router that Gateways select, behind a service of its own whose ports 80 and 443 lead
// to 8080 and 8443, and with the services web, api and db.
type ingress struct {
	*mesh
	p         *proxy
	authority *envoytest.Authority
	caller    envoytest.Certificate // of clients
	secured   string                // address that ends TLS itself, for pass.example
}

func newIngress(t *testing.T, sotw bool, objects ...any) *ingress {
	t.Helper()
	g := &ingress{mesh: newMesh(t), authority: envoytest.StartAuthority(t)}
	g.caller = g.authority.Issue(t, "caller", account("caller"))
	ip := g.lo.Addr(1, 50)
	web, api, db, vault := service("web", "10.96.0.1", "http", 8000), service("api", "10.96.0.2", "http", 8000), service("db", "10.96.0.3", "tcp", 9000), service("vault", "10.96.0.4", "tls", 443)
	g.secured = g.lo.At(5, 1, 9443)
	forward(t, g.authority, g.secured, g.backend(t, envoytest.HTTP1, "vault").Addr, "pass.example")
	g.start(t, files{
		"east/all.yaml": {
			web, slicesOf(web, at(g.backend(t, envoytest.HTTP1, "web"))...), api, slicesOf(api, at(g.backend(t, envoytest.HTTP1, "api"))...),
			db, slicesOf(db, at(g.backend(t, envoytest.TCP, "db"))...), vault, slicesOf(vault, endpoint{addr: g.secured}), entrance(ip),
		},
		"east/gateway.yaml": objects,
	})
	g.p = g.launch(t, "gateway", bootstrap.Options{Type: bootstrap.Router, IP: ip, SotW: sotw, Labels: map[string]string{"istio": "ingress"}})
	return g
}

// entrance is the router's own service.
func entrance(ip netip.Addr) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Service
metadata: {name: entrance, namespace: shop}
spec: {clusterIP: 10.96.0.9, ports: [{name: http, port: 80, targetPort: 8080}, {name: https, port: 443, targetPort: 8443}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: entrance-1, namespace: shop, labels: {kubernetes.io/service-name: entrance}}
addressType: IPv4
ports: [{name: http, port: 8080}, {name: https, port: 8443}]
endpoints: [{addresses: [%s], conditions: {ready: true}}]`, ip)
}

func gatewayObject(name, servers string) string {
	return "apiVersion: networking.istio.io/v1\nkind: Gateway\nmetadata: {name: " + name + ", namespace: shop}\nspec: {selector: {istio: ingress}, servers: [" + servers + "]}"
}

func routesObject(name, gateways, hosts, rules string) string {
	return "apiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {name: " + name + ", namespace: shop}\nspec: {gateways: [" + gateways + "], hosts: [" + hosts + "], " + rules + "}"
}

func httpTo(service string) string {
	return "http: [{route: [{destination: {host: " + service + ", port: {number: 8000}}}]}]"
}

// ask sends one request, over TLS for its host if conf is not nil, and follows no redirects.
func (g *ingress) ask(ctx context.Context, host string, port uint16, conf *tls.Config) (*http.Response, envoytest.Answer, error) {
	scheme, transport := "http", &http.Transport{DisableKeepAlives: true}
	transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) { return g.p.ns.Dial(ctx, g.p.addr(port)) }
	if conf != nil {
		scheme, transport.TLSClientConfig = "https", conf.Clone()
	}
	client := &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, scheme+"://"+host+"/", nil)
	if err != nil {
		return nil, envoytest.Answer{}, err
	}
	req.Header.Set("X-Forwarded-Client-Cert", "URI=spiffe://nobody")
	resp, err := client.Do(req)
	if err != nil {
		return nil, envoytest.Answer{}, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	var a envoytest.Answer
	if err == nil && resp.StatusCode == http.StatusOK {
		err = json.Unmarshal(body, &a)
	}
	return resp, a, err
}

// insecure takes any certificate of the server: which one it is, tests look at themselves.
func insecure(certificates ...tls.Certificate) *tls.Config {
	return &tls.Config{InsecureSkipVerify: true, Certificates: certificates}
}

func (g *ingress) clientCertificate(t *testing.T) tls.Certificate {
	t.Helper()
	c, err := tls.LoadX509KeyPair(g.caller.Chain, g.caller.Key)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// expects waits until a host is answered by a backend, or with a status ("404").
func (g *ingress) expects(t *testing.T, host string, port uint16, conf *tls.Config, want string) envoytest.Answer {
	t.Helper()
	var answer envoytest.Answer
	envoytest.Eventually(t, limit, fmt.Sprintf("%s on port %d to be answered by %s", host, port, want), func() error {
		resp, a, err := g.ask(t.Context(), host, port, conf)
		if err != nil {
			return err
		}
		answer = a
		got := a.Name
		if resp.StatusCode != http.StatusOK {
			got = strings.TrimSpace(fmt.Sprint(resp.StatusCode, " ", resp.Header.Get("Location")))
		}
		return same(got, want, nil)
	})
	return answer
}

// closed waits until no connection to a host gets through.
func (g *ingress) closed(t *testing.T, host string, port uint16, conf *tls.Config) {
	t.Helper()
	envoytest.Eventually(t, limit, fmt.Sprintf("%s on port %d to be closed", host, port), func() error {
		if resp, _, err := g.ask(t.Context(), host, port, conf); err == nil {
			return fmt.Errorf("status %d", resp.StatusCode)
		}
		return nil
	})
}

// Several Gateways share a port; hosts, redirects and what changes.
func TestGatewayHosts(t *testing.T) {
	modes(t, func(t *testing.T, sotw bool) {
		g := newIngress(t, sotw,
			gatewayObject("first", "{port: {number: 80, name: http, protocol: HTTP}, hosts: [web.example], tls: {httpsRedirect: true}}, {port: {number: 8081, name: http-plain, protocol: HTTP}, hosts: ['*']}"),
			gatewayObject("second", "{port: {number: 80, name: http, protocol: HTTP}, hosts: ['*.api.example', both.example]}"),
			routesObject("web", "first", "web.example, plain.example", httpTo("web")), routesObject("api", "second", "'*.api.example'", httpTo("api")),
			routesObject("one", "second", "both.example", "http: [{match: [{uri: {exact: /one}}], route: [{destination: {host: web, port: {number: 8000}}}]}]"),
			routesObject("two", "second", "both.example", httpTo("api")))
		g.expects(t, "a.api.example", 8080, nil, "api")
		g.expects(t, "both.example", 8080, nil, "api")
		g.expects(t, "web.example", 8080, nil, "301 https://web.example/")
		g.expects(t, "api.example", 8080, nil, "404")
		g.expects(t, "plain.example", 8080, nil, "404")
		a := g.expects(t, "plain.example", 8081, nil, "web")
		if got := a.Headers.Get("X-Forwarded-Client-Cert"); got != "" {
			t.Errorf("a client introduces itself as %s", got)
		}
		if got := a.Headers.Get("X-Forwarded-For"); got == "" {
			t.Error("the workload is not told where the client is")
		}
		g.expects(t, "plain.example:8081", 8081, nil, "web")

		traffic := envoytest.StartTraffic(t, 2, func(ctx context.Context) error {
			_, a, err := g.ask(ctx, "a.api.example", 8080, nil)
			return same(a.Name, "api", err)
		})
		g.write(t, "east/more.yaml", gatewayObject("third", "{port: {number: 80, name: http, protocol: HTTP}, hosts: ['*']}"), routesObject("rest", "third", "rest.example", httpTo("web")))
		g.expects(t, "rest.example", 8080, nil, "web")
		g.write(t, "east/more.yaml", gatewayObject("third", "{port: {number: 80, name: http, protocol: HTTP}, hosts: ['*']}"), routesObject("rest", "third", "rest.example", httpTo("api")))
		g.expects(t, "rest.example", 8080, nil, "api")
		g.remove(t, "east/more.yaml")
		g.expects(t, "rest.example", 8080, nil, "404")
		if r := traffic.Stop(); r.Failed > 0 {
			t.Errorf("hosts that nothing was said of failed: %+v", r)
		}
		g.remove(t, "east/gateway.yaml")
		g.closed(t, "a.api.example", 8080, nil)
	})
}

// Every TLS mode, with certificates that the router has as files; servers of one port are told apart by name.
func TestGatewayTLS(t *testing.T) {
	modes(t, func(t *testing.T, sotw bool) {
		files := func(name string, authority *envoytest.Authority) string {
			c := authority.Issue(t, name, account(name))
			return fmt.Sprintf("serverCertificate: %s, privateKey: %s, caCertificates: %s", c.Chain, c.Key, c.Root)
		}
		authority := envoytest.StartAuthority(t)
		server := func(name, protocol, host, tls string) string {
			return "{port: {number: 443, name: " + name + ", protocol: " + protocol + "}, hosts: [" + host + "], tls: {" + tls + "}}"
		}
		g := newIngress(t, sotw)
		write := func(simple string) {
			g.write(t, "east/gateway.yaml",
				gatewayObject("tls", strings.Join([]string{
					server("simple", "HTTPS", "simple.example", simple), server("wild", "HTTPS", "'*.wild.example'", "mode: SIMPLE, minProtocolVersion: TLSV1_3, "+files("wild", authority)),
					server("mutual", "HTTPS", "mutual.example", "mode: MUTUAL, "+files("mutual", g.authority)),
					server("named", "HTTPS", "named.example", "mode: MUTUAL, subjectAltNames: ['spiffe://somebody/else'], "+files("named", g.authority)),
					server("optional", "HTTPS", "optional.example", "mode: OPTIONAL_MUTUAL, "+files("optional", g.authority)),
					server("tcp", "TLS", "db.example", "mode: SIMPLE, "+files("db", authority)), server("pass", "TLS", "'*.example'", "mode: PASSTHROUGH"), server("rest", "HTTPS", "'*'", "mode: SIMPLE, "+files("rest", authority)),
				}, ", ")),
				gatewayObject("younger", server("simple", "HTTPS", "simple.example", "mode: SIMPLE, "+files("younger", authority))),
				routesObject("web", "tls, younger", "simple.example, a.wild.example, mutual.example, named.example, optional.example", httpTo("web")),
				routesObject("db", "tls", "db.example", "tcp: [{route: [{destination: {host: db, port: {number: 9000}}}]}]"),
				routesObject("pass", "tls", "pass.example", "tls: [{match: [{sniHosts: [pass.example]}], route: [{destination: {host: vault, port: {number: 443}}}]}]"))
		}
		write("mode: SIMPLE, " + files("simple", authority))
		g.expects(t, "simple.example", 8443, insecure(), "web")
		g.shows(t, "simple.example", "simple")
		g.shows(t, "a.wild.example", "wild")
		g.expects(t, "a.wild.example", 8443, insecure(), "web")
		g.closed(t, "a.wild.example", 8443, &tls.Config{InsecureSkipVerify: true, MaxVersion: tls.VersionTLS12})
		g.expects(t, "unknown.test", 8443, insecure(), "404")
		g.shows(t, "unknown.test", "rest")
		g.closed(t, "simple.example", 8443, nil) // in cleartext

		mine := insecure(g.clientCertificate(t))
		g.closed(t, "mutual.example", 8443, insecure())
		g.closed(t, "named.example", 8443, mine)
		for host, conf := range map[string]*tls.Config{"mutual.example": mine, "optional.example": mine} {
			a := g.expects(t, host, 8443, conf, "web")
			if got := a.Headers.Get("X-Forwarded-Client-Cert"); !strings.Contains(got, "URI="+account("caller")) || strings.Contains(got, "nobody") {
				t.Errorf("%s: the workload is told of %q", host, got)
			}
		}
		g.expects(t, "optional.example", 8443, insecure(), "web")
		g.closed(t, "optional.example", 8443, insecure(stranger(t)))
		g.expects(t, "pass.example", 8443, mine, "vault")
		if got := g.line(t, "db.example"); !strings.HasPrefix(got, "db") {
			t.Errorf("TCP within TLS leads to %q", got)
		}

		// A credential by name is not there: nothing is answered for the host, not by the other Gateway, nor by the server for all.
		write("mode: SIMPLE, credentialName: simple")
		g.closed(t, "simple.example", 8443, insecure())
		g.expects(t, "mutual.example", 8443, mine, "web")
		write("mode: SIMPLE, " + files("simple", authority))
		g.expects(t, "simple.example", 8443, insecure(), "web")
	})
}

// stranger has a certificate of an authority that nobody knows.
func stranger(t *testing.T) tls.Certificate {
	t.Helper()
	c := envoytest.StartAuthority(t).Issue(t, "stranger", account("caller"))
	pair, err := tls.LoadX509KeyPair(c.Chain, c.Key)
	if err != nil {
		t.Fatal(err)
	}
	return pair
}

// secure opens a TLS connection to port 8443 for a host.
func (g *ingress) secure(t *testing.T, host string) *tls.Conn {
	t.Helper()
	raw, err := g.p.ns.Dial(t.Context(), g.p.addr(8443))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { raw.Close() })
	return tls.Client(raw, &tls.Config{ServerName: host, InsecureSkipVerify: true})
}

// shows checks whose certificate a host has.
func (g *ingress) shows(t *testing.T, host, name string) {
	t.Helper()
	c := g.secure(t, host)
	if err := c.HandshakeContext(t.Context()); err != nil {
		t.Errorf("%s: %v", host, err)
	} else if got := c.ConnectionState().PeerCertificates[0].Subject.CommonName; got != name {
		t.Errorf("%s shows the certificate of %s, want %s", host, got, name)
	}
}

// line reads what a TCP backend says first.
func (g *ingress) line(t *testing.T, host string) string {
	t.Helper()
	c := g.secure(t, host)
	if _, err := io.WriteString(c, "hello\n"); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(c).ReadString('\n')
	if err != nil {
		t.Error(err)
	}
	return line
}

// Servers of TCP in cleartext, by weight; their port goes where the routes say.
func TestGatewayTCP(t *testing.T) {
	modes(t, func(t *testing.T, sotw bool) {
		g := newIngress(t, sotw, gatewayObject("tcp", "{port: {number: 7000, name: tcp, protocol: TCP}, hosts: ['*']}"),
			routesObject("db", "tcp", "db.example", "tcp: [{match: [{port: 7000}], route: [{destination: {host: db, port: {number: 9000}}}]}]"))
		echo := func() (string, error) { return envoytest.EchoTCP(t.Context(), g.p.ns, g.p.addr(7000), "ping\n") }
		envoytest.Eventually(t, limit, "TCP to get through", func() error {
			line, err := echo()
			return same(strings.TrimSpace(line), "db", err)
		})
		g.write(t, "east/gateway.yaml", gatewayObject("tcp", "{port: {number: 7000, name: tcp, protocol: TCP}, hosts: ['*']}"))
		envoytest.Eventually(t, limit, "a port without routes to be closed", func() error {
			if line, err := echo(); err == nil {
				return fmt.Errorf("%q answers", line)
			}
			return nil
		})
	})
}
