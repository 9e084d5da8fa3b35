package envoy_test

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"

	"github.com/isthmus-mesh/isthmus/cmd/isthmus/bootstrap"
	"github.com/isthmus-mesh/isthmus/test/envoy/envoytest"
)

var churnSeed = flag.Uint64("churn.seed", 0, "repeat the edits of TestChurn; 0 = others each time")

var churnRounds = flag.Int("churn.rounds", 60, "number of edits of TestChurn")

// churn makes random edits: services of every kind come, change and go in two
// clusters, share ports, hosts and addresses, and move between them.
type churn struct {
	*rand.Rand
	*mesh
	backends map[string][]*envoytest.Backend // by cluster
	there    map[string]bool                 // files that exist
}

func pick[T any](r *rand.Rand, of ...T) T { return of[r.IntN(len(of))] }

// edit is one random edit.
func (c *churn) edit(t testing.TB) {
	n := c.IntN(churnServices)
	cluster := pick(c.Rand, "east", "west")
	file := fmt.Sprintf("%s/s%d.yaml", cluster, n)
	switch c.IntN(18) {
	case 0, 1, 2:
		if c.there[file] {
			c.remove(t, file)
			delete(c.there, file)
		}
		return
	case 3:
		c.write(t, "mesh.yaml", c.settings())
		return
	case 4:
		c.write(t, "networks.yaml", c.networks())
		return
	case 5:
		c.drop(t)
		return
	case 10:
		c.write(t, "east/policies.yaml", c.policies()...)
		return
	case 6, 7, 8:
		c.write(t, file, c.entry(n, cluster))
	case 9:
		c.write(t, file, c.workload(n, cluster))
	default:
		c.write(t, file, c.service(n, cluster)...)
	}
	c.there[file] = true
}

// steady is the backend of the service that never changes; it speaks no TLS.
const steady = "east0"

// drop takes a whole cluster away.
func (c *churn) drop(t testing.TB) {
	for f := range c.there {
		if strings.HasPrefix(f, "west/") {
			delete(c.there, f)
		}
	}
	c.removeAll(t, "west")
}

// newChurn writes one steady service, web, beside which the edits go on.
func newChurn(t testing.TB, m *mesh) *churn {
	t.Helper()
	seed := *churnSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("run again with -churn.seed=%d", seed)
		}
	})
	m.authority = envoytest.StartAuthority(t)
	m.drain = 4 // longer than a request takes on a busy machine: listeners are replaced under it
	c := &churn{Rand: rand.New(rand.NewPCG(seed, 0)), mesh: m, there: map[string]bool{}, backends: map[string][]*envoytest.Backend{}}
	if c.IntN(2) == 0 {
		// No two edits are sent together, unless a proxy is slow.
		m.args = []string{"--endpoint-debounce=0", "--endpoint-debounce-max=0", "--config-debounce=0", "--config-debounce-max=0"}
	}
	if c.IntN(2) == 0 {
		m.args = append(m.args, "--max-connection-age=500ms") // proxies connect again and again
	}
	for _, cluster := range []string{"east", "west"} {
		for i := range 4 {
			c.backends[cluster] = append(c.backends[cluster], m.backend(t, envoytest.HTTP1, fmt.Sprint(cluster, i)))
		}
	}
	return c
}

// run makes the edits. When it returns the last of them may still be on its way.
func (c *churn) run(t testing.TB, proxies []*proxy, traffic []*envoytest.Traffic) {
	t.Helper()
	for i := range *churnRounds {
		c.edit(t)
		switch {
		case i%25 == 24:
			c.restart(t)
			for _, p := range proxies[:c.IntN(len(proxies)+1)] {
				p.connected(t)
			}
		case c.IntN(10) == 0:
			pick(c.Rand, proxies...).settles(t, c.hub)
		case c.IntN(3) == 0:
			more(t, pick(c.Rand, traffic...), 10)
		}
	}
	for _, tr := range traffic {
		more(t, tr, 20)
		flawless(t, tr)
	}
}

// Whatever is edited, however fast, and with the hub restarted in between: a
// service that does not change does not lose a request, nothing is rejected,
// and in the end every proxy has exactly what the hub has (checked by launch).
func TestChurn(t *testing.T) {
	t.Parallel()
	m := newMesh(t)
	c := newChurn(t, m)
	web := service("web", "10.96.0.1", "http", 8000)
	m.start(t, files{"east/web.yaml": {web, slicesOf(web, at(c.backends["east"][0])...)}})
	var proxies []*proxy
	var traffic []*envoytest.Traffic
	for name, o := range map[string]bootstrap.Options{
		"sidecar-delta": {Locality: "europe/z1"},
		"sidecar-sotw":  {SotW: true},
		"router-delta":  {Type: bootstrap.Router, Expose: true, Labels: map[string]string{"istio": "eastwestgateway"}},
		"router-sotw":   {Type: bootstrap.Router, Expose: true, Labels: map[string]string{"istio": "eastwestgateway"}, SotW: true},
	} {
		p := m.launch(t, name, o)
		proxies = append(proxies, p)
		p.answers(t, host("web"), 8000, steady)
		traffic = append(traffic, p.traffic(t, 1, host("web"), 8000))
	}
	c.run(t, proxies, traffic)
}

// The same for sidecars that traffic is redirected to, which have many more
// listeners. The hub and the steady backend are outside the namespaces, at the
// bridge.
func TestChurnBehindInterception(t *testing.T) {
	t.Parallel()
	net := envoytest.NewNetwork(t, "delta", "sotw")
	m := newMesh(t)
	c := newChurn(t, m)
	web := service("web", "10.96.0.1", "http", 8000)
	b := m.backendAt(t, envoytest.HTTP1, "steady", netip.AddrPortFrom(net.Host, 9000).String())
	pods := []any{pod("delta", net.Namespace("delta").Addr.String(), "", nil), pod("sotw", net.Namespace("sotw").Addr.String(), "", nil)}
	m.startAt(t, files{"east/web.yaml": {web, slicesOf(web, at(b)...), pods}}, netip.AddrPortFrom(net.Host, 15010).String())
	var proxies []*proxy
	var traffic []*envoytest.Traffic
	for name, sotw := range map[string]bool{"delta": false, "sotw": true} {
		ns := net.Namespace(name)
		proxies = append(proxies, m.intercept(t, ns, sotw))
		get := func(ctx context.Context) error {
			a, err := envoytest.Get(ctx, ns.HTTPClient(), "http://10.96.0.1:8000/", host("web"))
			return same(a.Name, "steady", err)
		}
		envoytest.Eventually(t, limit, "the first answer", func() error { return get(t.Context()) })
		traffic = append(traffic, envoytest.StartTraffic(t, 1, get))
	}
	c.run(t, proxies, traffic)
}

// restart kills the hub and starts it again.
func (m *mesh) restart(t testing.TB) {
	t.Helper()
	if err := m.hub.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := m.hub.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
}
