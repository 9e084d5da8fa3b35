package envoy_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/isthmus-mesh/isthmus/cmd/isthmus/bootstrap"
	"github.com/isthmus-mesh/isthmus/test/envoy/envoytest"
)

// zoned are backends with their pods, by place ("region.zone").
func (m *mesh) zoned(t testing.TB, name, place string, n int) (eps []endpoint, pods []any) {
	t.Helper()
	for i := range n {
		name := fmt.Sprintf("%s-%s-%d", name, strings.ReplaceAll(place, ".", ""), i)
		b := m.backend(t, envoytest.HTTP1, name)
		eps = append(eps, endpoint{addr: b.Addr, pod: name})
		pods = append(pods, pod(name, ip(b), place, nil))
	}
	return eps, pods
}

// TestZones: an Envoy that knows its peers keeps traffic in its zone where the
// configuration says so, as far as its zone has its share of the endpoints, and
// nowhere else.
func TestZones(t *testing.T) {
	modes(t, func(t *testing.T, sotw bool) {
		m := newMesh(t)
		web, plain, client := service("web", "10.96.0.1", "http", 8000), service("plain", "10.96.0.2", "http", 8001), service("client", "10.96.0.3", "http", 8002)
		var webEps, plainEps []endpoint
		var pods []any
		for _, place := range []string{"eu.a", "eu.b", "us.a"} {
			eps, more := m.zoned(t, "web", place, 1)
			webEps, pods = append(webEps, eps...), append(pods, more...)
		}
		for _, place := range []string{"eu.a", "eu.b"} { // Envoy's own least size is 6
			eps, more := m.zoned(t, "plain", place, 3)
			plainEps, pods = append(plainEps, eps...), append(pods, more...)
		}
		here, there, other := m.lo.Addr(1, 100), m.lo.Addr(1, 101), m.lo.Addr(1, 102)
		peer := func(name string, at netip.Addr, place, template string) []any {
			return append(slicesOf(client, endpoint{addr: netip.AddrPortFrom(at, 9000).String(), pod: name}), pod(name, at.String(), place, map[string]string{"pod-template-hash": template}))
		}
		m.start(t, files{
			"east/all.yaml": {web, slicesOf(web, webEps...), plain, slicesOf(plain, plainEps...), pods, client,
				peer("client-1a-x1", here, "eu.a", "1a"), peer("client-2b-x1", other, "eu.b", "2b"),
				"apiVersion: networking.istio.io/v1\nkind: DestinationRule\nmetadata: {name: web, namespace: shop}\n" +
					"spec: {host: web, trafficPolicy: {loadBalancer: {zoneAwareLbSetting: {enabled: true, minClusterSize: 1}}}}"},
			"east/peer.yaml": {peer("client-1a-x2", there, "eu.b", "1a")},
		})
		p := m.launch(t, "client-1a-x1", bootstrap.Options{SotW: sotw, IP: here, SelfDiscovery: true, Workload: "client", Locality: "eu/a",
			Labels: map[string]string{"pod-template-hash": "1a"}})
		const peers = "local_cluster"
		p.has(t, peers, netip.AddrPortFrom(here, 9000).String(), netip.AddrPortFrom(there, 9000).String())

		// Both zones have half of the peers and half of the endpoints: each keeps what is its own.
		p.has(t, outbound(host("web"), 8000), webEps[0].addr, webEps[1].addr, webEps[2].addr)
		if got := p.who(t, host("web"), 8000); len(got) != 1 || got["web-eua-0"] == 0 {
			t.Errorf("answers of %v, want those of the proxy's zone", got)
		}
		if got := p.who(t, host("plain"), 8001); len(got) != 6 {
			t.Errorf("answers of %v, want those of both zones where no setting is in force", got)
		}

		// All peers are in one zone, which has half of the endpoints: half of the traffic goes to the other.
		m.remove(t, "east/peer.yaml")
		p.has(t, peers, netip.AddrPortFrom(here, 9000).String())
		envoytest.Eventually(t, limit, "both zones of the region to answer", func() error {
			got := p.who(t, host("web"), 8000)
			if len(got) != 2 || got["web-eua-0"] < 20 || got["web-eub-0"] < 20 {
				return fmt.Errorf("answers of %v", got)
			}
			return nil
		})
	})
}

// who counts who answers 100 requests.
func (p *proxy) who(t testing.TB, host string, port uint16) map[string]int {
	t.Helper()
	got := map[string]int{}
	for range 100 {
		a, err := p.get(t.Context(), host, port)
		if err != nil {
			t.Fatal(err)
		}
		got[a.Name]++
	}
	return got
}
