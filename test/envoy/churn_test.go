package envoy_test

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/isthmus-mesh/isthmus/cmd/isthmus/bootstrap"
	"github.com/isthmus-mesh/isthmus/test/envoy/envoytest"
)

var churnSeed = flag.Uint64("churn.seed", 0, "repeat the edits of TestChurn; 0 = others each time")

// churn makes random edits: services of every kind come, change and go in two
// clusters, share ports and move between them.
type churn struct {
	*rand.Rand
	*mesh
	backends map[string][]*envoytest.Backend // by cluster
	there    map[string]bool                 // files that exist
}

const (
	churnRounds   = 60
	churnServices = 10
)

func pick[T any](r *rand.Rand, of ...T) T { return of[r.IntN(len(of))] }

// edit is one random edit.
func (c *churn) edit(t testing.TB) {
	n := c.IntN(churnServices)
	cluster := pick(c.Rand, "east", "west")
	file := fmt.Sprintf("%s/s%d.yaml", cluster, n)
	switch c.IntN(12) {
	case 0, 1:
		if c.there[file] {
			c.remove(t, file)
			delete(c.there, file)
			return
		}
	case 2:
		c.write(t, "mesh.yaml", fmt.Sprintf("outboundTrafficPolicy: {mode: %s}\nconnectTimeout: %ds",
			pick(c.Rand, "ALLOW_ANY", "REGISTRY_ONLY"), 5+c.IntN(3)))
		return
	case 3:
		for f := range c.there {
			if f[:4] == "west" {
				delete(c.there, f)
			}
		}
		c.removeAll(t, "west")
		return
	case 4, 5:
		c.write(t, file, c.entry(n, cluster))
		c.there[file] = true
		return
	}
	c.write(t, file, c.service(n, cluster)...)
	c.there[file] = true
}

func (c *churn) service(n int, cluster string) []any {
	vip := fmt.Sprintf("10.96.1.%d", 1+c.IntN(churnServices))
	if c.IntN(5) == 0 {
		vip = ""
	}
	s := service(fmt.Sprintf("s%d", n), vip, pick(c.Rand, "http", "http2", "grpc", "tcp", "tls", ""), c.port())
	if d := pick(c.Rand, "", "PreferClose", "PreferSameNode"); d != "" {
		s.Spec.TrafficDistribution = &d
	}
	out := []any{s}
	for i, b := range c.backends[cluster][:c.IntN(4)] {
		name := fmt.Sprintf("s%d-%d", n, i)
		ep := endpoint{addr: b.Addr, notReady: c.IntN(4) == 0}
		if c.IntN(2) == 0 {
			ep.pod = name
			out = append(out, pod(name, ip(b), pick(c.Rand, "", "europe.z1", "america.z2"), map[string]string{"app": s.Name}))
		}
		out = append(out, slicesOf(s, ep))
	}
	return out
}

// port is often that of the steady service.
func (c *churn) port() uint16 { return uint16(8000 + c.IntN(3)) }

func (c *churn) entry(n int, cluster string) string {
	host := fmt.Sprintf("s%d.example", n)
	switch c.IntN(4) {
	case 0:
		return fmt.Sprintf(`
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: s%d, namespace: %s}
spec:
  hosts: [%q, "*.wild.example"]
  resolution: NONE
  addresses: %s
  ports: [{number: %d, name: p, protocol: %s}]`, n, namespace, host,
			pick(c.Rand, "[]", "[10.97.0.0/16]", "[10.98.0.1]"), c.port(), pick(c.Rand, "HTTP", "TCP", "TLS", "\"\""))
	case 1:
		return fmt.Sprintf(`
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: s%d, namespace: %s}
spec:
  hosts: [%q]
  resolution: STATIC
  location: MESH_INTERNAL
  ports: [{number: %d, name: p, protocol: %s}]
  workloadSelector: {labels: {app: s%d}}`, n, namespace, host, c.port(), pick(c.Rand, "HTTP", "TCP", "GRPC"), c.IntN(churnServices))
	}
	return entry(host, c.port(), pick(c.Rand, "STATIC", "DNS", "DNS_ROUND_ROBIN"), ip(pick(c.Rand, c.backends[cluster]...)), 9000)
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
	c := &churn{Rand: rand.New(rand.NewPCG(seed, 0)), mesh: m, there: map[string]bool{}, backends: map[string][]*envoytest.Backend{}}
	if c.IntN(2) == 0 {
		// No two edits are sent together, unless a proxy is slow.
		m.args = []string{"--endpoint-debounce=0", "--endpoint-debounce-max=0", "--config-debounce=0", "--config-debounce-max=0"}
	}
	for _, cluster := range []string{"east", "west"} {
		for i := range 4 {
			c.backends[cluster] = append(c.backends[cluster], m.backend(t, envoytest.HTTP1, fmt.Sprint(cluster, i)))
		}
	}
	return c
}

// run makes the edits. It returns when the last of them may still be on its way.
func (c *churn) run(t testing.TB, traffic []*envoytest.Traffic) {
	t.Helper()
	for i := range churnRounds {
		c.edit(t)
		switch {
		case i%20 == 19:
			c.restart(t)
		case c.IntN(3) == 0:
			more(t, pick(c.Rand, traffic...), 5)
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
	var traffic []*envoytest.Traffic
	for name, o := range map[string]bootstrap.Options{
		"sidecar-delta": {Locality: "europe/z1"},
		"sidecar-sotw":  {SotW: true},
		"router-delta":  {Type: bootstrap.Router, Expose: true},
		"router-sotw":   {Type: bootstrap.Router, Expose: true, SotW: true},
	} {
		p := m.launch(t, name, o)
		p.answers(t, host("web"), 8000, "east0")
		traffic = append(traffic, p.traffic(t, 1, host("web"), 8000))
	}
	c.run(t, traffic)
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
	var traffic []*envoytest.Traffic
	for name, sotw := range map[string]bool{"delta": false, "sotw": true} {
		ns := net.Namespace(name)
		m.intercept(t, ns, sotw)
		get := func(ctx context.Context) error {
			a, err := envoytest.Get(ctx, ns.HTTPClient(), "http://10.96.0.1:8000/", host("web"))
			return same(a.Name, "steady", err)
		}
		envoytest.Eventually(t, limit, "the first answer", func() error { return get(t.Context()) })
		traffic = append(traffic, envoytest.StartTraffic(t, 1, get))
	}
	c.run(t, traffic)
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
