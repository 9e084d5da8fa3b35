package envoy_test

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"

	"github.com/isthmus-mesh/isthmus/test/envoy/envoytest"
)

// TestEastWest: workloads of two clusters on two networks reach each other
// through gateways that route their mutual TLS, and not otherwise.
func TestEastWest(t *testing.T) {
	envoytest.RequireRoot(t)
	modes(t, func(t *testing.T, sotw bool) { newCrossing(t, sotw, nil).eastWest(t) })
}

// TestEastWestOnServers is the same, where the two clusters have API servers: one
// the config cluster's, the other known by a kubeconfig Secret.
func TestEastWestOnServers(t *testing.T) {
	envoytest.RequireRoot(t)
	t.Parallel()
	newCrossing(t, false, newAPIServers(t)).eastWest(t)
}

func (c *crossing) eastWest(t *testing.T) {
	t.Helper()
	gateway2 := netip.AddrPortFrom(c.ns("gateway2").Addr, gatewayPort).String()

	// A service that only the other cluster has, over HTTP, TCP and gRPC.
	c.reaches(t, "client", "10.96.1.2:80", host("far"), "far1 in west")
	envoytest.Eventually(t, limit, "TCP to reach the other network", func() error {
		line, err := envoytest.EchoTCP(t.Context(), c.ns("client"), "10.96.1.3:9000", "ping\n")
		return same(strings.TrimSpace(line), "far1 west", err)
	})
	envoytest.Eventually(t, limit, "gRPC to reach the other network", func() error {
		a, err := envoytest.EchoGRPC(t.Context(), c.ns("client"), "10.96.1.4:83", host("api"))
		return same(a.Name+" "+a.Cluster, "far2 west", err)
	})
	c.proxies["client"].has(t, outbound(host("far"), 80), gateway2)
	c.proxies["gateway2"].has(t, serverName(host("far"), 80), podPort(c.ns("far1"), webPort))
	if n := c.entered(t, "gateway2"); n < 3 {
		t.Errorf("%d connections came in at the gateway", n)
	}
	c.introduces(t)
	// And the other way.
	c.reaches(t, "far1", "10.96.1.5:80", host("home"), "near in east")
	if n := c.entered(t, "gateway1"); n == 0 {
		t.Error("no connection came in at the gateway of n1")
	}
	c.balances(t, gateway2)
	c.divides(t, gateway2)

	// A workload that does not speak mutual TLS can't be told apart by a gateway.
	c.fails(t, "client", "10.96.1.6:80", host("plain"), 503)
	c.explained(t, "client", "plain", podPort(c.ns("bare"), webPort), "NoMTLS")
	c.explained(t, "gateway2", "plain", podPort(c.ns("bare"), webPort), "NoMTLS")
	c.reaches(t, "far1", "10.96.1.6:80", host("plain"), "bare in west") // on its own network it can be

	c.identifies(t)
	c.refusesNames(t)
	c.demands(t)
	c.loses(t, gateway2)
}

// balances checks that each network gets the share of its endpoints: one here,
// two there.
func (c *crossing) balances(t *testing.T, gateway2 string) {
	t.Helper()
	c.proxies["client"].has(t, outbound(host("web"), 80), podPort(c.ns("near"), webPort), gateway2)
	const n = 600
	got := map[string]int{}
	for range n {
		a, err := c.from(t.Context(), "client", "10.96.1.1:80", host("web"))
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
		a, err := c.from(t.Context(), "client", "10.96.1.2:80", host("far"))
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
	c.fails(t, "client", "10.96.1.2:80", host("far"), 503)
	accounts("far1")
	c.reaches(t, "client", "10.96.1.2:80", host("far"), "far1 in west")
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
	c.reaches(t, "client", "10.96.1.2:80", host("far"), "far1 in west")

	c.write(t, "east/policy.yaml", policy("DISABLE"))
	c.reaches(t, "bare", far, "", "far1 in west")
	c.fails(t, "client", "10.96.1.2:80", host("far"), 503)
	c.explained(t, "client", "far", far, "NoMTLS")
	c.explained(t, "gateway2", "far", far, "NoMTLS")
	c.reaches(t, "far2", "10.96.1.2:80", host("far"), "far1 in west") // in cleartext

	c.remove(t, "east/policy.yaml")
	c.reaches(t, "client", "10.96.1.2:80", host("far"), "far1 in west")
}

// loses checks what is left when the other network's gateway has no address.
func (c *crossing) loses(t *testing.T, gateway2 string) {
	t.Helper()
	far := podPort(c.ns("far1"), webPort)
	c.write(t, "west/gateway.yaml", gateway("n2"))
	c.explained(t, "client", "far", far, "NoGateway")
	c.proxies["client"].has(t, outbound(host("web"), 80), podPort(c.ns("near"), webPort))
	c.fails(t, "client", "10.96.1.2:80", host("far"), 503)
	c.reaches(t, "client", "10.96.1.1:80", host("web"), "near in east")
	c.write(t, "west/gateway.yaml", gateway("n2", c.ns("gateway2").Addr))
	c.explained(t, "client", "far", far, "")
	c.proxies["client"].has(t, outbound(host("far"), 80), gateway2)
	c.reaches(t, "client", "10.96.1.2:80", host("far"), "far1 in west")
}
