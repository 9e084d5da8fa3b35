package envoy_test

import (
	"fmt"
	"testing"

	"github.com/isthmus-mesh/isthmus/cmd/isthmus/bootstrap"
	"github.com/isthmus-mesh/isthmus/test/envoy/envoytest"
)

// joined is the FederatedService of checkout: three endpoints of a Service, and one of a ServiceEntry of another cluster.
func joined(host, policy string) string {
	return fmt.Sprintf("apiVersion: isthmus.io/v1alpha1\nkind: FederatedService\nmetadata: {name: checkout, namespace: shop}\nspec:\n  host: %s\n  policy: %s\n"+
		"  ports: [{name: http, number: 8000, protocol: HTTP}]\n  sources: [{name: kube, host: checkout.shop.svc.cluster.local, weight: 30}, {name: legacy, host: checkout.legacy, weight: 70}]", host, policy)
}

// shared waits until a source has this share of the answers: so many that others are most unlikely, and no request fails.
func (p *proxy) shared(t *testing.T, host string, legacy float64) {
	t.Helper()
	envoytest.Eventually(t, limit, fmt.Sprintf("legacy to answer %.2f of the requests", legacy), func() error {
		const n = 600
		got := 0
		for range n {
			a, err := p.get(t.Context(), host, 8000)
			if err != nil {
				return err
			}
			if a.Name == "legacy" {
				got++
			}
		}
		if share := float64(got) / n; share < legacy-0.06 || share > legacy+0.06 {
			return fmt.Errorf("it answers %.2f", share)
		}
		return nil
	})
}

// TestFederatedShares: sources have their shares whatever the number of their endpoints, under a name of their own and under
// that of a Service; what too few healthy endpoints can't take goes to the other source, and nothing to unready ones.
func TestFederatedShares(t *testing.T) {
	modes(t, func(t *testing.T, sotw bool) {
		m := newMesh(t)
		var kube []*envoytest.Backend
		for i := range 3 {
			kube = append(kube, m.backend(t, envoytest.HTTP1, fmt.Sprint("kube-", i)))
		}
		legacy := m.backend(t, envoytest.HTTP1, "legacy")
		s := service("checkout", "10.96.0.7", "http", 8000)
		ready := func(n int) []any {
			eps := at(kube...)
			for i := range eps {
				eps[i].notReady = i >= n
			}
			return append([]any{s}, slicesOf(s, eps...)...)
		}
		m.start(t, files{
			"east/checkout.yaml":  ready(3),
			"east/federated.yaml": {joined("checkout.global", "weighted")},
			"west/legacy.yaml": {object("ServiceEntry", "legacy", fmt.Sprintf("hosts: [checkout.legacy]\nlocation: MESH_INTERNAL\nresolution: STATIC\n"+
				"ports: [{name: tcp, number: 9000, protocol: TCP}]\nendpoints: [{address: %s}]", ip(legacy)))},
		})
		p := m.launch(t, "client", bootstrap.Options{SotW: sotw})
		p.has(t, outbound("checkout.global", 8000), kube[0].Addr, kube[1].Addr, kube[2].Addr, legacy.Addr)
		p.shared(t, "checkout.global", 0.7)

		// A third of a source's endpoints take 1.4 times a third of its share, as Envoy has it.
		m.write(t, "east/checkout.yaml", ready(1)...)
		p.shared(t, "checkout.global", 70/(70+30*1.4/3))
		m.write(t, "east/checkout.yaml", ready(0)...)
		p.shared(t, "checkout.global", 1)
		m.write(t, "east/checkout.yaml", ready(3)...)
		p.shared(t, "checkout.global", 0.7)

		m.write(t, "east/federated.yaml", joined(host("checkout"), "weighted"))
		p.dropped(t, outbound("checkout.global", 8000), legacy)
		p.shared(t, host("checkout"), 0.7)

		m.write(t, "east/federated.yaml", joined(host("checkout"), "failover"))
		p.shared(t, host("checkout"), 0)
		m.write(t, "east/checkout.yaml", ready(1)...)
		p.shared(t, host("checkout"), 1-1.4/3)
		m.write(t, "east/checkout.yaml", ready(0)...)
		p.shared(t, host("checkout"), 1)
		m.write(t, "east/checkout.yaml", ready(3)...)
		p.shared(t, host("checkout"), 0)
		m.remove(t, "east/federated.yaml")
		p.dropped(t, outbound(host("checkout"), 8000), legacy)
		p.shared(t, host("checkout"), 0)
	})
}
