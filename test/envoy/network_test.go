package envoy_test

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"testing"

	"github.com/isthmus-mesh/isthmus/cmd/isthmus/bootstrap"
	"github.com/isthmus-mesh/isthmus/test/envoy/envoytest"
)

// forward is a gateway together with the sidecar behind it: it ends mutual TLS
// for a service port and takes the connections to one backend.
func forward(t testing.TB, a *envoytest.Authority, from, to, serverName string) {
	t.Helper()
	l, err := tls.Listen("tcp", from, a.Server(t, "gateway", serverName))
	if err != nil {
		t.Fatal(err)
	}
	var conns sync.WaitGroup
	conns.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return // closed at the end of the test
			}
			conns.Go(func() { join(c, to) })
		}
	})
	t.Cleanup(func() { l.Close(); conns.Wait() })
}

// join passes bytes both ways until one side ends.
func join(c net.Conn, to string) {
	defer c.Close()
	up, err := net.Dial("tcp", to)
	if err != nil {
		return
	}
	defer up.Close()
	var back sync.WaitGroup
	back.Go(func() {
		_, _ = io.Copy(c, up)
		c.Close() // ends the other direction
	})
	_, _ = io.Copy(up, c)
	up.Close()
	back.Wait()
}

// serverName is what mutual TLS to a service port asks for.
func serverName(host string, port uint16) string {
	return fmt.Sprintf("outbound_.%d_._.%s", port, host)
}

// account is the identity of a service account of these tests.
func account(name string) string { return "spiffe://cluster.local/ns/" + namespace + "/sa/" + name }

// certified gives a proxy the certificate of a service account.
func certified(t testing.TB, a *envoytest.Authority, name string, o bootstrap.Options) bootstrap.Options {
	t.Helper()
	c := a.Issue(t, name, account(name))
	o.ServiceAccount, o.CertChain, o.Key, o.RootCert = name, c.Chain, c.Key, c.Root
	return o
}

// What a proxy can't dial is reached through its network's gateway, and keeps
// being reached when the gateway moves. A workload that does not say that it
// speaks mutual TLS is left out, since gateways route nothing else.
func TestAcrossNetworks(t *testing.T) {
	modes(t, func(t *testing.T, sotw bool) {
		m := newMesh(t)
		web, plain := service("web", "10.96.0.1", "http", 8000), service("plain", "10.96.0.2", "http", 8000)
		far := m.backend(t, envoytest.HTTP1, "far")
		first, second := m.lo.At(5, 1, 15443), m.lo.At(5, 2, 15443)
		authority := envoytest.StartAuthority(t)
		for _, gateway := range []string{first, second} {
			forward(t, authority, gateway, far.Addr, serverName(host("web"), 8000))
		}
		networks := func(gateway string) string {
			a := netip.MustParseAddrPort(gateway)
			return fmt.Sprintf("networks: {far: {endpoints: [{fromRegistry: west}], gateways: [{address: %s, port: %d}]}}", a.Addr(), a.Port())
		}
		m.start(t, files{
			"networks.yaml": {networks(first)},
			"east/all.yaml": {web, plain},
			"west/all.yaml": {
				web, slicesOf(web, endpoint{addr: "192.0.2.1:9000", pod: "web"}),
				pod("web", "192.0.2.1", "", map[string]string{"security.istio.io/tlsMode": "istio"}),
				plain, slicesOf(plain, endpoint{addr: "192.0.2.2:9000", pod: "plain"}), pod("plain", "192.0.2.2", "", nil),
			},
		})
		p := m.launch(t, "client", certified(t, authority, "client", bootstrap.Options{SotW: sotw}))
		p.answers(t, host("web"), 8000, "far")
		p.has(t, outbound(host("web"), 8000), first)
		p.refuses(t, host("plain"), 8000, 503)
		// A proxy without certificates has no business with gateways.
		m.launch(t, "bare", bootstrap.Options{SotW: sotw}).refuses(t, host("web"), 8000, 503)

		traffic := p.traffic(t, 1, host("web"), 8000)
		more(t, traffic, 10)
		m.write(t, "networks.yaml", networks(second))
		p.has(t, outbound(host("web"), 8000), second)
		more(t, traffic, 10)
		flawless(t, traffic)
	})
}
