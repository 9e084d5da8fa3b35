package envoy_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/isthmus-mesh/isthmus/cmd/isthmus/bootstrap"
	"github.com/isthmus-mesh/isthmus/test/envoy/envoytest"
)

const versionRules = `apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: web, namespace: shop}
spec:
  host: web
  subsets:
  - name: v1
    labels: {version: v1}
    trafficPolicy: {loadBalancer: {simple: ROUND_ROBIN}}
  - name: v2
    labels: {version: v2}
    trafficPolicy: {loadBalancer: {consistentHash: {httpQueryParameterName: user}}}
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: web, namespace: shop}
spec:
  hosts: [web]
  http:
  - match: [{uri: {prefix: /v1}}]
    route: [{destination: {host: web, subset: v1}}]
  - route: [{destination: {host: web, subset: v2}}]
`

// TestSubsets: requests go to the subset that their route names, and there where the subset's balancer sends them; a
// workload whose labels change moves from one subset to the other.
func TestSubsets(t *testing.T) {
	modes(t, func(t *testing.T, sotw bool) {
		m := newMesh(t)
		web := service("web", "10.96.0.1", "http", 8000)
		var eps []endpoint
		var backends []*envoytest.Backend
		for i := range 4 {
			b := m.backend(t, envoytest.HTTP1, fmt.Sprint("web-", i))
			backends, eps = append(backends, b), append(eps, endpoint{addr: b.Addr, pod: b.Name})
		}
		versioned := func(i int, version string) any {
			return pod(eps[i].pod, ip(backends[i]), "", map[string]string{"version": version})
		}
		m.start(t, files{
			"east/web.yaml":   {web, slicesOf(web, eps...), versioned(0, "v1"), versioned(1, "v1"), versioned(2, "v2"), versionRules},
			"east/moves.yaml": {versioned(3, "v2")},
		})
		p := m.launch(t, "client", bootstrap.Options{SotW: sotw})
		v1, v2 := "outbound|8000|v1|"+host("web"), "outbound|8000|v2|"+host("web")
		p.has(t, outbound(host("web"), 8000), eps[0].addr, eps[1].addr, eps[2].addr, eps[3].addr)
		p.has(t, v1, eps[0].addr, eps[1].addr)
		p.has(t, v2, eps[2].addr, eps[3].addr)

		ask := func(path string, n int) map[string]int {
			got := map[string]int{}
			for range n {
				a, err := envoytest.Get(t.Context(), p.ns.HTTPClient(), "http://"+p.addr(8000)+path, host("web"))
				if err != nil {
					t.Fatal(err)
				}
				got[a.Name]++
			}
			return got
		}
		envoytest.Eventually(t, limit, "the routes to be there", func() error {
			if got := ask("/v1", 20); len(got) != 2 || got["web-0"] != 10 || got["web-1"] != 10 {
				return fmt.Errorf("answers of %v, want those of v1 in turn", got)
			}
			return nil
		})
		all := map[string]int{}
		for user := range 24 {
			got := ask(fmt.Sprint("/?user=", user), 4)
			if len(got) != 1 || got["web-2"]+got["web-3"] != 4 {
				t.Errorf("user %d: answers of %v, want those of one of v2", user, got)
			}
			for name := range got {
				all[name]++
			}
		}
		if len(all) != 2 {
			t.Errorf("users are sent to %v, want both of v2", all)
		}

		m.write(t, "east/moves.yaml", versioned(3, "v1"))
		p.has(t, v1, eps[0].addr, eps[1].addr, eps[3].addr)
		p.has(t, v2, eps[2].addr)
		envoytest.Eventually(t, limit, "the workload to have moved", func() error {
			if got := ask("/v1", 30); len(got) != 3 || got["web-3"] != 10 {
				return fmt.Errorf("answers of %v, want those of three in turn", got)
			}
			if got := ask("/?user=1", 4); got["web-2"] != 4 {
				return fmt.Errorf("answers of %v, want those of the one of v2", got)
			}
			return nil
		})
	})
}

// divides checks that a subset's endpoints on another network are reached by the server name of the subset.
func (c *crossing) divides(t *testing.T, gateway2 string) {
	t.Helper()
	c.write(t, "east/rules.yaml",
		"apiVersion: networking.istio.io/v1\nkind: DestinationRule\nmetadata: {name: web, namespace: shop}\nspec: {host: web, subsets: [{name: two, labels: {app: far2}}]}",
		"apiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {name: web, namespace: shop}\nspec: {hosts: [web], http: [{route: [{destination: {host: web, subset: two}}]}]}")
	c.proxies["client"].has(t, "outbound|80|two|"+host("web"), gateway2)
	c.proxies["gateway2"].has(t, "outbound_.80_.two_."+host("web"), podPort(c.ns("far2"), webPort))
	envoytest.Eventually(t, limit, "the subset alone to answer", func() error {
		for range 20 {
			if a, err := c.from(t.Context(), "client", "10.96.1.1:80", host("web")); err != nil || a.Name != "far2" {
				return errors.Join(err, fmt.Errorf("an answer of %q", a.Name))
			}
		}
		return nil
	})
	c.remove(t, "east/rules.yaml")
	c.proxies["client"].has(t, outbound(host("web"), 80), podPort(c.ns("near"), webPort), gateway2)
}
