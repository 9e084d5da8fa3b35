package envoy_test

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/isthmus-mesh/isthmus/cmd/isthmus/bootstrap"
	"github.com/isthmus-mesh/isthmus/test/envoy/envoytest"
)

// crossing is two clusters on two networks, east on n1 and west on n2. Each has
// a gateway, workloads with sidecars, and a firewall that lets nothing pass from
// the workloads of one network to those of the other.
type crossing struct {
	*mesh
	net     *envoytest.Network
	ca      *envoytest.Authority
	sotw    bool
	proxies map[string]*proxy
	west    []any           // what west is made of, beside its gateway
	far     *corev1.Service // one of them, that only west has endpoints of
}

// Who is where.
const (
	east, west     = "east", "west"
	gatewayPort    = 15443
	gatewayService = "eastwest"
)

func (c *crossing) ns(name string) *envoytest.Namespace { return c.net.Namespace(name) }

func workloadsOf(cluster string) []string {
	return map[string][]string{east: {"client", "near"}, west: {"far1", "far2", "bare"}}[cluster]
}

// meshed is a pod whose sidecar speaks mutual TLS.
func meshed(ns *envoytest.Namespace) *corev1.Pod {
	p := pod(ns.Name, ns.Addr.String(), "", map[string]string{"app": ns.Name, "security.istio.io/tlsMode": "istio"})
	p.Spec.ServiceAccountName = ns.Name
	return p
}

// gateway is the Service of a network's gateway, as a load balancer at the
// addresses.
func gateway(network string, addrs ...netip.Addr) *corev1.Service {
	s := service(gatewayService+"-"+network, "10.96.9.9", "tls", gatewayPort)
	s.Labels = map[string]string{"topology.istio.io/network": network}
	s.Spec.Type = corev1.ServiceTypeLoadBalancer
	for _, a := range addrs {
		s.Status.LoadBalancer.Ingress = append(s.Status.LoadBalancer.Ingress, corev1.LoadBalancerIngress{IP: a.String()})
	}
	return s
}

const gatewayServer = `
apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: cross-network, namespace: shop}
spec:
  selector: {istio: eastwestgateway}
  servers:
  - {port: {number: 15443, name: tls, protocol: TLS}, tls: {mode: AUTO_PASSTHROUGH}, hosts: ["*.local"]}`

func newCrossing(t *testing.T, sotw bool) *crossing {
	t.Helper()
	c := &crossing{mesh: newMesh(t), sotw: sotw, proxies: map[string]*proxy{}, ca: envoytest.StartAuthority(t)}
	c.net = envoytest.NewNetwork(t, "client", "near", "far1", "far2", "bare", "gateway1", "gateway2")
	c.apart(t, east, west)
	c.apart(t, west, east)
	pods := map[string]*corev1.Pod{}
	for _, name := range []string{"client", "near", "far1", "far2"} {
		pods[name] = meshed(c.ns(name))
	}
	c.serve(t, "near", "far1", "far2", "bare")
	web, far, db, api, home, plain := service("web", "10.96.0.1", "http", 80), service("far", "10.96.0.2", "http", 80), service("db", "10.96.0.3", "tcp", 9000),
		service("api", "10.96.0.4", "grpc", 83), service("home", "10.96.0.5", "http", 80), service("plain", "10.96.0.6", "http", 80)
	of := func(name string, port uint16) endpoint {
		return endpoint{addr: podPort(c.ns(name), port), pod: name}
	}
	c.far = far
	c.west = []any{
		pods["far1"], pods["far2"], pod("bare", c.ns("bare").Addr.String(), "", nil),
		web, slicesOf(web, of("far1", webPort), of("far2", webPort)), far, slicesOf(far, of("far1", webPort)), db, slicesOf(db, of("far1", dbPort)),
		api, slicesOf(api, of("far2", greeterPort)), plain, slicesOf(plain, of("bare", webPort)), home,
	}
	c.startAt(t, files{
		"networks.yaml": {"networks: {n1: {endpoints: [{fromRegistry: east}]}, n2: {endpoints: [{fromRegistry: west}]}}"},
		"east/all.yaml": {gatewayServer, gateway("n1", c.ns("gateway1").Addr), pods["client"], pods["near"],
			web, slicesOf(web, of("near", webPort)), far, db, api, plain, home, slicesOf(home, of("near", webPort))},
		"west/all.yaml":     c.west,
		"west/gateway.yaml": {gateway("n2", c.ns("gateway2").Addr)},
	}, netip.AddrPortFrom(c.net.Host, 15010).String())
	for _, name := range []string{"client", "near", "far1", "far2"} {
		c.sidecar(t, name)
	}
	c.router(t, "gateway1", east, "n1")
	c.router(t, "gateway2", west, "n2")
	return c
}

// apart drops and counts what workloads of one network send to those of another.
func (c *crossing) apart(t *testing.T, from, to string) {
	t.Helper()
	var there []string
	for _, name := range workloadsOf(to) {
		there = append(there, c.ns(name).Addr.String())
	}
	rules := fmt.Sprintf(`
table ip apart {
	chain out {
		type filter hook output priority 10; policy accept;
		tcp flags & (syn | ack) == syn ip daddr { %s } counter drop
	}
}
`, strings.Join(there, ", "))
	here := append(workloadsOf(from), map[string]string{east: "gateway1", west: "gateway2"}[from])
	for _, name := range here {
		if err := c.ns(name).Run(t.Context(), rules, "nft", "-f", "-"); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		for _, name := range here {
			if n, err := c.ns(name).Output(context.Background(), "nft", "list", "table", "ip", "apart"); err != nil || !strings.Contains(n, "packets 0 ") {
				t.Errorf("%s has tried to reach the other network by itself: %s, %v", name, n, err)
			}
		}
	})
}

// serve runs the backends of workloads. Each says who it is.
func (c *crossing) serve(t *testing.T, names ...string) {
	t.Helper()
	for _, name := range names {
		cluster := east
		if slices.Contains(workloadsOf(west), name) {
			cluster = west
		}
		for port, kind := range map[uint16]envoytest.Kind{webPort: envoytest.HTTP1, dbPort: envoytest.TCP, greeterPort: envoytest.GRPC, unknownPort: envoytest.HTTP1} {
			envoytest.StartBackend(t, envoytest.BackendOptions{Kind: kind, Name: name, Cluster: cluster, Namespace: c.ns(name), Addr: podPort(c.ns(name), port)})
		}
	}
}

// sidecar intercepts a workload's traffic.
func (c *crossing) sidecar(t *testing.T, name string) {
	t.Helper()
	cluster, network := east, "n1"
	if slices.Contains(workloadsOf(west), name) {
		cluster, network = west, "n2"
	}
	ns := c.ns(name)
	if err := ns.Intercept(t.Context()); err != nil {
		t.Fatal(err)
	}
	o := c.complete(t, name, certified(t, c.ca, name, bootstrap.Options{IP: ns.Addr, Cluster: cluster, Network: network,
		Interception: bootstrap.Redirect, SotW: c.sotw}))
	c.proxies[name] = c.run(t, ns.Addr, envoytest.Options{Name: name, Bootstrap: config(t, o), Namespace: ns, UID: envoytest.ProxyUID})
}

// router runs a network's gateway. It has no certificates: it needs none.
func (c *crossing) router(t *testing.T, name, cluster, network string) {
	t.Helper()
	ns := c.ns(name)
	o := c.complete(t, name, bootstrap.Options{Type: bootstrap.Router, IP: ns.Addr, Cluster: cluster, Network: network, SotW: c.sotw,
		Labels: map[string]string{"istio": "eastwestgateway"}})
	c.proxies[name] = c.run(t, ns.Addr, envoytest.Options{Name: name, Bootstrap: config(t, o), Namespace: ns})
}

// from makes one request from a workload.
func (c *crossing) from(ctx context.Context, name, addr, host string) (envoytest.Answer, error) {
	return envoytest.Get(ctx, c.ns(name).HTTPClient(), "http://"+addr+"/", host)
}

// reaches waits until a workload gets an answer of another.
func (c *crossing) reaches(t *testing.T, from, addr, host, want string) {
	t.Helper()
	envoytest.Eventually(t, limit, fmt.Sprintf("%s to get an answer of %s from %s", from, want, addr), func() error {
		a, err := c.from(t.Context(), from, addr, host)
		return same(a.Name+" in "+a.Cluster, want, err)
	})
}

// fails waits until a workload's requests end with the status, or without one if
// it is 0.
func (c *crossing) fails(t *testing.T, from, addr, host string, status int) {
	t.Helper()
	envoytest.Eventually(t, limit, fmt.Sprintf("%s to be refused by %s with %d", from, addr, status), func() error {
		_, err := c.from(t.Context(), from, addr, host)
		if status != 0 || err == nil {
			return refusal(err, status)
		}
		var answered *envoytest.StatusError
		if errors.As(err, &answered) {
			return err
		}
		return nil
	})
}

// entered counts the connections that came in at a gateway.
func (c *crossing) entered(t *testing.T, name string) uint64 {
	t.Helper()
	n, err := c.proxies[name].Stat(t.Context(), "tcp.passthrough.downstream_cx_total")
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// explained waits until the hub gives the reason why a proxy is not sent an
// endpoint of a service; "" if it is sent.
func (c *crossing) explained(t *testing.T, proxy, service, addr, reason string) {
	t.Helper()
	at := fmt.Sprintf("%s/debug/servicez?host=%s&proxyID=%s.%s", c.hub.URL, host(service), proxy, namespace)
	envoytest.Eventually(t, limit, fmt.Sprintf("%s of %s to be explained to %s as %q", addr, service, proxy, reason), func() error {
		body, err := c.hub.Get(t.Context(), at)
		if err != nil {
			return err
		}
		var all []struct {
			Endpoints []struct{ Address, Reason, Detail string }
		}
		if err := json.Unmarshal(body, &all); err != nil {
			return err
		}
		for _, x := range all {
			for _, e := range x.Endpoints {
				if e.Address == addr {
					return same(e.Reason, reason, nil)
				}
			}
		}
		return fmt.Errorf("%s is not mentioned: %s", addr, body)
	})
}

// TestEastWest: workloads of two clusters on two networks reach each other
// through gateways that route their mutual TLS, and not otherwise.
func TestEastWest(t *testing.T) {
	envoytest.RequireRoot(t)
	modes(t, func(t *testing.T, sotw bool) {
		c := newCrossing(t, sotw)
		gateway2 := netip.AddrPortFrom(c.ns("gateway2").Addr, gatewayPort).String()

		// A service that only the other cluster has, over HTTP, TCP and gRPC.
		c.reaches(t, "client", "10.96.0.2:80", host("far"), "far1 in west")
		envoytest.Eventually(t, limit, "TCP to reach the other network", func() error {
			line, err := envoytest.EchoTCP(t.Context(), c.ns("client"), "10.96.0.3:9000", "ping\n")
			return same(strings.TrimSpace(line), "far1 west", err)
		})
		envoytest.Eventually(t, limit, "gRPC to reach the other network", func() error {
			a, err := envoytest.EchoGRPC(t.Context(), c.ns("client"), "10.96.0.4:83", host("api"))
			return same(a.Name+" "+a.Cluster, "far2 west", err)
		})
		c.proxies["client"].has(t, outbound(host("far"), 80), gateway2)
		c.proxies["gateway2"].has(t, serverName(host("far"), 80), podPort(c.ns("far1"), webPort))
		if n := c.entered(t, "gateway2"); n < 3 {
			t.Errorf("%d connections came in at the gateway", n)
		}
		c.introduces(t)
		// And the other way.
		c.reaches(t, "far1", "10.96.0.5:80", host("home"), "near in east")
		if n := c.entered(t, "gateway1"); n == 0 {
			t.Error("no connection came in at the gateway of n1")
		}
		c.balances(t, gateway2)

		// A workload that does not speak mutual TLS can't be told apart by a gateway.
		c.fails(t, "client", "10.96.0.6:80", host("plain"), 503)
		c.explained(t, "client", "plain", podPort(c.ns("bare"), webPort), "NoMTLS")
		c.explained(t, "gateway2", "plain", podPort(c.ns("bare"), webPort), "NoMTLS")
		c.reaches(t, "far1", "10.96.0.6:80", host("plain"), "bare in west") // on its own network it can be

		c.identifies(t)
		c.refusesNames(t)
		c.demands(t)
		c.loses(t, gateway2)
	})
}

// balances checks that each network gets the share of its endpoints: one here,
// two there.
func (c *crossing) balances(t *testing.T, gateway2 string) {
	t.Helper()
	c.proxies["client"].has(t, outbound(host("web"), 80), podPort(c.ns("near"), webPort), gateway2)
	const n = 600
	got := map[string]int{}
	for range n {
		a, err := c.from(t.Context(), "client", "10.96.0.1:80", host("web"))
		if err != nil {
			t.Fatal(err)
		}
		got[a.Name]++
	}
	// Which of the two a gateway takes is decided for a connection, and connections
	// are kept.
	if there := got["far1"] + got["far2"]; got["near"]+there != n || math.Abs(float64(there)-2*n/3) > 0.1*n {
		t.Errorf("%d of %d requests went to the two endpoints of the other network, want about %d: %v", there, n, 2*n/3, got)
	}
}

// introduces checks that a workload is told who calls, and that nobody can say
// so himself.
func (c *crossing) introduces(t *testing.T) {
	t.Helper()
	const header = "X-Forwarded-Client-Cert"
	envoytest.Eventually(t, limit, "the caller to be introduced", func() error {
		a, err := c.from(t.Context(), "client", "10.96.0.2:80", host("far"))
		if got := a.Headers.Get(header); err == nil && !strings.Contains(got, "URI="+account("client")) {
			err = fmt.Errorf("%s: %q", header, got)
		}
		return err
	})
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+podPort(c.ns("far1"), webPort)+"/", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set(header, "URI="+account("client"))
	resp, err := c.ns("bare").HTTPClient().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var a envoytest.Answer
	if err := json.NewDecoder(resp.Body).Decode(&a); err != nil || a.Headers.Get(header) != "" {
		t.Errorf("a caller in cleartext introduces itself: %v, %v", a.Headers, err)
	}
}

// identifies checks that who answers must be who the service says.
func (c *crossing) identifies(t *testing.T) {
	t.Helper()
	accounts := func(name string) {
		c.far.Annotations = map[string]string{"alpha.istio.io/canonical-serviceaccounts": account(name)}
		c.write(t, "west/all.yaml", c.west...)
	}
	accounts("somebody-else")
	c.fails(t, "client", "10.96.0.2:80", host("far"), 503)
	accounts("far1")
	c.reaches(t, "client", "10.96.0.2:80", host("far"), "far1 in west")
}

// refusesNames checks that a client of a gateway gets at nothing but what is
// forwarded: no other cluster, nothing in cleartext, no service by a wrong port.
func (c *crossing) refusesNames(t *testing.T) {
	t.Helper()
	const refusals = "listener.0.0.0.0_15443.no_filter_chain_match"
	before, err := c.proxies["gateway2"].Stat(t.Context(), refusals)
	if err != nil {
		t.Fatal(err)
	}
	at := netip.AddrPortFrom(c.ns("gateway2").Addr, gatewayPort).String()
	names := []string{outbound(host("far"), 80), "BlackHoleCluster", "outbound_.80_._.far.shop.svc.cluster.elsewhere", "far.shop.svc.cluster.local", ""}
	for _, name := range names {
		if err := c.handshake(t, at, name); err == nil {
			t.Errorf("the gateway takes the server name %q", name)
		}
	}
	if n, err := c.proxies["gateway2"].Stat(t.Context(), refusals); err != nil || n < before+uint64(len(names)) {
		t.Errorf("%d of %d names were refused before a cluster was chosen, %v", n-before, len(names), err)
	}
	if err := c.handshake(t, at, serverName(host("far"), 81)); err == nil {
		t.Error("the gateway forwards to a port that the service does not have")
	}
	if err := c.handshake(t, at, serverName(host("far"), 80)); err != nil {
		t.Errorf("the gateway does not forward: %v", err)
	}
}

// handshake speaks TLS at an address, for a server name.
func (c *crossing) handshake(t *testing.T, addr, name string) error {
	t.Helper()
	cert, err := tls.LoadX509KeyPair(filepath.Join(c.ca.Dir, "client-chain.pem"), filepath.Join(c.ca.Dir, "client-key.pem"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	raw, err := c.ns("client").Dial(ctx, addr)
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	// Who is there does not matter here, only that somebody is.
	return tls.Client(raw, &tls.Config{ServerName: name, Certificates: []tls.Certificate{cert}, InsecureSkipVerify: true, NextProtos: []string{"istio"}}).HandshakeContext(ctx)
}

// demands checks what PeerAuthentication demands of those who call a workload.
func (c *crossing) demands(t *testing.T) {
	t.Helper()
	far := podPort(c.ns("far1"), webPort)
	policy := func(mode string) string {
		return fmt.Sprintf("apiVersion: security.istio.io/v1\nkind: PeerAuthentication\nmetadata: {name: far, namespace: shop}\nspec: {selector: {matchLabels: {app: far1}}, mtls: {mode: %s}}", mode)
	}
	c.reaches(t, "bare", far, "", "far1 in west") // takes both
	c.reaches(t, "bare", podPort(c.ns("far1"), unknownPort), "", "far1 in west")

	c.write(t, "east/policy.yaml", policy("STRICT"))
	c.fails(t, "bare", far, "", 0)
	c.fails(t, "bare", podPort(c.ns("far1"), unknownPort), "", 0)
	c.reaches(t, "client", "10.96.0.2:80", host("far"), "far1 in west")

	c.write(t, "east/policy.yaml", policy("DISABLE"))
	c.reaches(t, "bare", far, "", "far1 in west")
	c.fails(t, "client", "10.96.0.2:80", host("far"), 503)
	c.explained(t, "client", "far", far, "NoMTLS")
	c.explained(t, "gateway2", "far", far, "NoMTLS")
	c.reaches(t, "far2", "10.96.0.2:80", host("far"), "far1 in west") // in cleartext

	c.remove(t, "east/policy.yaml")
	c.reaches(t, "client", "10.96.0.2:80", host("far"), "far1 in west")
}

// loses checks what is left when the other network's gateway has no address.
func (c *crossing) loses(t *testing.T, gateway2 string) {
	t.Helper()
	far := podPort(c.ns("far1"), webPort)
	c.write(t, "west/gateway.yaml", gateway("n2"))
	c.explained(t, "client", "far", far, "NoGateway")
	c.proxies["client"].has(t, outbound(host("web"), 80), podPort(c.ns("near"), webPort))
	c.fails(t, "client", "10.96.0.2:80", host("far"), 503)
	c.reaches(t, "client", "10.96.0.1:80", host("web"), "near in east")
	c.write(t, "west/gateway.yaml", gateway("n2", c.ns("gateway2").Addr))
	c.explained(t, "client", "far", far, "")
	c.proxies["client"].has(t, outbound(host("far"), 80), gateway2)
	c.reaches(t, "client", "10.96.0.2:80", host("far"), "far1 in west")
}
