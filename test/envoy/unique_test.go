package envoy_test

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"testing"

	"github.com/isthmus-mesh/isthmus/cmd/isthmus/bootstrap"
	"github.com/isthmus-mesh/isthmus/test/envoy/envoytest"
)

// Of equal addresses Envoy keeps the first that it is sent. So that the hub's
// weights are Envoy's too, each address is sent once: that of a backend that
// two clusters list, and that of a gateway that leads to several localities.
// launch compares the two at the end.
func TestAddressesAreSentOnce(t *testing.T) {
	modes(t, func(t *testing.T, sotw bool) {
		m := newMesh(t)
		web, far := service("web", "10.96.0.1", "http", 8000), service("far", "10.96.0.2", "http", 8001)
		near, shared := m.backend(t, envoytest.HTTP1, "near"), m.backend(t, envoytest.HTTP1, "shared")
		gateway := netip.MustParseAddrPort(m.lo.At(5, 1, 15443))
		authority := envoytest.StartAuthority(t)
		away := map[string]string{"topology.istio.io/network": "far", "security.istio.io/tlsMode": "istio"}
		m.start(t, files{
			"networks.yaml": {fmt.Sprintf("networks: {far: {endpoints: [{fromCidr: 192.0.2.0/24}], gateways: [{address: %s, port: %d}]}}",
				gateway.Addr(), gateway.Port())},
			"east/all.yaml": {
				web, slicesOf(web, endpoint{addr: near.Addr, pod: "near"}, endpoint{addr: shared.Addr, pod: "shared"}),
				pod("near", ip(near), "europe.z1", nil), pod("shared", ip(shared), "europe.z1", nil),
				far, slicesOf(far, endpoint{addr: "192.0.2.1:9000", pod: "far1"}, endpoint{addr: "192.0.2.2:9000", pod: "far2"}),
				pod("far1", "192.0.2.1", "europe.z1", away), pod("far2", "192.0.2.2", "america.z2", away),
			},
			"west/all.yaml": {web, slicesOf(web, endpoint{addr: shared.Addr, pod: "shared"}), pod("shared", ip(shared), "america.z2", nil)},
		})
		for _, cluster := range []string{"east", "west"} {
			p := m.launch(t, cluster, certified(t, authority, cluster, bootstrap.Options{SotW: sotw, Cluster: cluster}))
			p.answers(t, host("web"), 8000, "shared")
			p.has(t, outbound(host("web"), 8000), near.Addr, shared.Addr)
			p.has(t, outbound(host("far"), 8001), gateway.String())
		}
	})
}

// has waits until a cluster of the proxy has exactly those addresses.
func (p *proxy) has(t testing.TB, cluster string, addrs ...string) {
	t.Helper()
	slices.Sort(addrs)
	envoytest.Eventually(t, limit, fmt.Sprintf("%s to have %v", p.Name, addrs), func() error {
		hosts, err := p.hosts(t.Context(), cluster)
		if got := slices.Sorted(maps.Keys(hosts)); err == nil && !slices.Equal(got, addrs) {
			err = fmt.Errorf("it has %v", got)
		}
		return err
	})
}
