package envoy_test

import (
	"fmt"
	"testing"

	"github.com/isthmus-mesh/isthmus/cmd/isthmus/bootstrap"
	"github.com/isthmus-mesh/isthmus/test/envoy/envoytest"
)

// resent is how many resources of a type the hub has sent since it started.
func (m *mesh) resent(t *testing.T, typ string) float64 {
	t.Helper()
	n, err := m.hub.Metric(t.Context(), "isthmus_xds_resources_sent_total", fmt.Sprintf("type=%q", typ))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// A sidecar over delta is sent virtual hosts one by one: what a new service brings is one of them, and its
// table stays as it is. A listener that comes back finds its hosts again.
func TestVirtualHostsOneByOne(t *testing.T) {
	t.Parallel()
	m := newMesh(t)
	b := m.backend(t, envoytest.HTTP1, "b")
	web, shop, cart := service("web", "10.96.0.1", "http", 8000), service("shop", "10.96.0.2", "http", 8000), service("cart", "10.96.0.3", "http", 8001)
	m.start(t, files{
		"mesh.yaml":     {"outboundTrafficPolicy: {mode: REGISTRY_ONLY}"},
		"east/web.yaml": {web, slicesOf(web, at(b)...)},
	})
	p := m.launch(t, "client", bootstrap.Options{})
	p.answers(t, host("web"), 8000, "b")
	traffic := p.traffic(t, 1, host("web"), 8000)
	if rds, vhds := m.resent(t, "rds"), m.resent(t, "vhds"); rds != 1 || vhds != 1 {
		t.Errorf("a first service brought %v tables and %v hosts", rds, vhds)
	}

	m.write(t, "east/shop.yaml", shop, slicesOf(shop, at(b)...))
	p.answers(t, host("shop"), 8000, "b")
	if rds, vhds := m.resent(t, "rds"), m.resent(t, "vhds"); rds != 1 || vhds != 2 {
		t.Errorf("a second service brought the tables to %v and the hosts to %v", rds, vhds)
	}
	m.remove(t, "east/shop.yaml")
	p.refuses(t, host("shop"), 8000, 502)
	if rds, vhds := m.resent(t, "rds"), m.resent(t, "vhds"); rds != 1 || vhds != 2 {
		t.Errorf("its removal brought the tables to %v and the hosts to %v", rds, vhds)
	}

	for range 2 { // the second time the Envoy says that it has the host, and does not
		m.write(t, "east/cart.yaml", cart, slicesOf(cart, at(b)...))
		p.answers(t, host("cart"), 8001, "b")
		m.remove(t, "east/cart.yaml")
		p.closed(t, 8001)
		envoytest.Eventually(t, limit, "the table to be given up", func() error {
			n, err := p.Stats(t.Context(), `rds\.8001\.config_reload$`)
			return same(len(n), 0, err)
		})
	}
	flawless(t, traffic)
}

// A hub that comes back with the flag turned off takes the hosts of its proxies back into their tables.
func TestVirtualHostsTurnedOff(t *testing.T) {
	t.Parallel()
	m := newMesh(t)
	b := m.backend(t, envoytest.HTTP1, "b")
	web, shop := service("web", "10.96.0.1", "http", 8000), service("shop", "10.96.0.2", "http", 8000)
	m.start(t, files{
		"mesh.yaml":      {"outboundTrafficPolicy: {mode: REGISTRY_ONLY}"},
		"east/web.yaml":  {web, slicesOf(web, at(b)...)},
		"east/shop.yaml": {shop, slicesOf(shop, at(b)...)},
	})
	p := m.launch(t, "client", bootstrap.Options{})
	p.answers(t, host("web"), 8000, "b")
	traffic := p.traffic(t, 1, host("web"), 8000)
	if err := m.hub.Stop(); err != nil {
		t.Fatal(err)
	}
	m.remove(t, "east/shop.yaml")
	m.args = []string{"--vhds=false"}
	m.start(t, nil)
	p.refuses(t, host("shop"), 8000, 502)
	p.answers(t, host("web"), 8000, "b")
	m.write(t, "east/shop.yaml", shop, slicesOf(shop, at(b)...))
	p.answers(t, host("shop"), 8000, "b")
	flawless(t, traffic)
}
