package envoy_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"

	"github.com/isthmus-mesh/isthmus/cmd/isthmus/bootstrap"
	"github.com/isthmus-mesh/isthmus/cmd/isthmus/debug"
	"github.com/isthmus-mesh/isthmus/test/envoy/envoytest"
)

// modes runs a test with each variant of ADS.
func modes(t *testing.T, test func(t *testing.T, sotw bool)) {
	t.Parallel()
	for name, sotw := range map[string]bool{"delta": false, "sotw": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, sotw)
		})
	}
}

// A backend that the files list may be started before, and stopped after it is
// listed, without a failed request in between.
func TestScaleUpAndDownUnderTraffic(t *testing.T) {
	modes(t, func(t *testing.T, sotw bool) {
		m := newMesh(t)
		web := service("web", "10.96.0.1", "http", 8000)
		first := m.backend(t, envoytest.HTTP1, "first")
		m.start(t, files{"east/web.yaml": {web, slicesOf(web, at(first)...)}})
		p := m.launch(t, "client", bootstrap.Options{SotW: sotw})
		p.answers(t, host("web"), 8000, "first")
		traffic := p.traffic(t, 2, host("web"), 8000)

		second := m.backend(t, envoytest.HTTP1, "second")
		m.write(t, "east/web.yaml", web, slicesOf(web, at(first, second)...))
		p.answers(t, host("web"), 8000, "second")
		more(t, traffic, 20)

		m.write(t, "east/web.yaml", web, slicesOf(web, at(second)...))
		p.dropped(t, outbound(host("web"), 8000), first)
		if err := first.Close(); err != nil {
			t.Error(err)
		}
		more(t, traffic, 20)
		flawless(t, traffic)

		// Scaled to zero and back.
		m.write(t, "east/web.yaml", web)
		p.refuses(t, host("web"), 8000, 503)
		m.write(t, "east/web.yaml", web, slicesOf(web, at(second)...))
		p.answers(t, host("web"), 8000, "second")
	})
}

// Endpoints of the own zone are preferred, those of the other cluster stand in
// while they are not ready.
func TestFailoverToTheOtherCluster(t *testing.T) {
	modes(t, func(t *testing.T, sotw bool) {
		m := newMesh(t)
		web := service("web", "10.96.0.1", "http", 8000)
		close := "PreferClose"
		web.Spec.TrafficDistribution = &close
		near, far := m.backend(t, envoytest.HTTP1, "near"), m.backend(t, envoytest.HTTP1, "far")
		// Both clusters have a pod of that name.
		near1, far1 := endpoint{addr: near.Addr, pod: "web-0"}, endpoint{addr: far.Addr, pod: "web-0"}
		m.start(t, files{
			"east/web.yaml": {web, slicesOf(web, near1), pod("web-0", ip(near), "europe.z1", nil)},
			"west/web.yaml": {web, slicesOf(web, far1), pod("web-0", ip(far), "america.z1", nil)},
		})
		east := m.launch(t, "east", bootstrap.Options{SotW: sotw, Locality: "europe/z1"})
		west := m.launch(t, "west", bootstrap.Options{SotW: sotw, Locality: "america/z1", Cluster: "west"})
		east.only(t, host("web"), 8000, "near")
		west.only(t, host("web"), 8000, "far")

		traffic := east.traffic(t, 2, host("web"), 8000)
		near1.notReady = true
		m.write(t, "east/web.yaml", web, slicesOf(web, near1), pod("web-0", ip(near), "europe.z1", nil))
		east.only(t, host("web"), 8000, "far")
		near1.notReady = false
		m.write(t, "east/web.yaml", web, slicesOf(web, near1), pod("web-0", ip(near), "europe.z1", nil))
		east.only(t, host("web"), 8000, "near")
		flawless(t, traffic)
	})
}

// A near backend that fails without a word is ejected, if the mesh has outlier
// detection, and the other region stands in.
func TestFailoverWhenTheNearBackendFails(t *testing.T) {
	modes(t, func(t *testing.T, sotw bool) {
		m := newMesh(t)
		web := service("web", "10.96.0.1", "http", 8000)
		near, far := m.backend(t, envoytest.HTTP1, "near"), m.backend(t, envoytest.HTTP1, "far")
		m.start(t, files{
			"mesh.yaml": {"defaultTrafficPolicy: {outlierDetection: " +
				"{consecutive5xxErrors: 1, interval: 0.1s, baseEjectionTime: 1s, maxEjectionPercent: 100}}"},
			"east/web.yaml": {web, slicesOf(web, endpoint{addr: near.Addr, pod: "web-0"}), pod("web-0", ip(near), "europe.z1", nil)},
			"west/web.yaml": {web, slicesOf(web, endpoint{addr: far.Addr, pod: "web-0"}), pod("web-0", ip(far), "america.z1", nil)},
		})
		p := m.launch(t, "client", bootstrap.Options{SotW: sotw, Locality: "europe/z1"})
		p.only(t, host("web"), 8000, "near")
		if err := near.Close(); err != nil {
			t.Fatal(err)
		}
		p.only(t, host("web"), 8000, "far")
		m.backendAt(t, envoytest.HTTP1, "near", near.Addr)
		p.only(t, host("web"), 8000, "near")
	})
}

// A setting of every cluster changes: each is replaced, which a proxy completes
// only when it has been sent the endpoints again.
func TestEveryClusterChangesUnderTraffic(t *testing.T) {
	modes(t, func(t *testing.T, sotw bool) {
		m := newMesh(t)
		web := service("web", "10.96.0.1", "http", 8000)
		b := m.backend(t, envoytest.HTTP1, "b")
		m.start(t, files{"east/web.yaml": {web, slicesOf(web, at(b)...)}})
		sidecar := m.launch(t, "client", bootstrap.Options{SotW: sotw})
		gateway := m.launch(t, "gateway", bootstrap.Options{SotW: sotw, Type: bootstrap.Router, Expose: true})
		var traffic []*envoytest.Traffic
		for _, p := range []*proxy{sidecar, gateway} {
			p.answers(t, host("web"), 8000, "b")
			traffic = append(traffic, p.traffic(t, 2, host("web"), 8000))
		}
		for i, setting := range []string{"connectTimeout: 5s", "connectTimeout: 6s", "connectTimeout: 7s"} {
			m.write(t, "mesh.yaml", setting)
			for j, p := range []*proxy{sidecar, gateway} {
				p.modified(t, i+1)
				more(t, traffic[j], 10)
			}
		}
		flawless(t, traffic[1])
		// So does one that is of the service; gateways do not serve such ports.
		web.Spec.Ports[0].Name = ""
		m.write(t, "east/web.yaml", web, slicesOf(web, at(b)...))
		sidecar.modified(t, 4)
		more(t, traffic[0], 10)
		flawless(t, traffic[0])
	})
}

// modified waits until n clusters or more were replaced, and none is on the way.
func (p *proxy) modified(t testing.TB, n int) {
	t.Helper()
	envoytest.Eventually(t, limit, fmt.Sprintf("%s to replace clusters, %d times in all", p.Name, n), func() error {
		done, err := p.Stat(t.Context(), "cluster_manager.cluster_modified")
		if err != nil || done < uint64(n) {
			return errors.Join(err, fmt.Errorf("it did %d times", done))
		}
		warming, err := p.Stat(t.Context(), "cluster_manager.warming_clusters")
		return same(warming, 0, err)
	})
}

// A cluster's folder that goes takes its endpoints along; one that appears
// brings them.
func TestClusterLeavesAndJoins(t *testing.T) {
	modes(t, func(t *testing.T, sotw bool) {
		m := newMesh(t)
		web := service("web", "10.96.0.1", "http", 8000)
		east, west := m.backend(t, envoytest.HTTP1, "east"), m.backend(t, envoytest.HTTP1, "west")
		m.start(t, files{"east/web.yaml": {web, slicesOf(web, at(east)...)}})
		p := m.launch(t, "client", bootstrap.Options{SotW: sotw})
		p.only(t, host("web"), 8000, "east")
		m.write(t, "west/web.yaml", web, slicesOf(web, at(west)...))
		p.answers(t, host("web"), 8000, "west")

		traffic := p.traffic(t, 2, host("web"), 8000)
		m.removeAll(t, "west")
		p.dropped(t, outbound(host("web"), 8000), west)
		p.only(t, host("web"), 8000, "east")
		flawless(t, traffic)
	})
}

func TestServiceAppearsAndGoes(t *testing.T) {
	modes(t, func(t *testing.T, sotw bool) {
		m := newMesh(t)
		web, shop := service("web", "10.96.0.1", "http", 8000), service("shop", "10.96.0.2", "http", 8000)
		other := service("other", "10.96.0.3", "http", 8001)
		b := m.backend(t, envoytest.HTTP1, "b")
		m.start(t, files{
			"mesh.yaml":     {"outboundTrafficPolicy: {mode: REGISTRY_ONLY}"},
			"east/web.yaml": {web, slicesOf(web, at(b)...)},
		})
		sidecar := m.launch(t, "client", bootstrap.Options{SotW: sotw})
		gateway := m.launch(t, "gateway", bootstrap.Options{SotW: sotw, Type: bootstrap.Router, Expose: true})
		both := func(do func(p *proxy)) { do(sidecar); do(gateway) }
		both(func(p *proxy) { p.answers(t, host("web"), 8000, "b") })
		sidecar.refuses(t, host("shop"), 8000, 502)
		gateway.refuses(t, host("shop"), 8000, 404)

		untouched := sidecar.traffic(t, 1, host("web"), 8000)
		m.write(t, "east/shop.yaml", shop, slicesOf(shop, at(b)...)) // on a port that has a listener
		m.write(t, "east/other.yaml", other, slicesOf(other, at(b)...))
		both(func(p *proxy) {
			p.answers(t, host("shop"), 8000, "b")
			p.answers(t, host("other"), 8001, "b")
		})

		m.remove(t, "east/shop.yaml")
		m.remove(t, "east/other.yaml")
		sidecar.refuses(t, host("shop"), 8000, 502)
		gateway.refuses(t, host("shop"), 8000, 404)
		both(func(p *proxy) { p.closed(t, 8001) })

		m.write(t, "east/shop.yaml", shop, slicesOf(shop, at(b)...))
		m.write(t, "east/other.yaml", other, slicesOf(other, at(b)...))
		both(func(p *proxy) {
			p.answers(t, host("shop"), 8000, "b")
			p.answers(t, host("other"), 8001, "b")
		})
		flawless(t, untouched)
	})
}

// While a service comes and goes its callers are served or told that there is
// none. A route to a cluster that is not there yet, or no more, would show as
// 503.
func TestRoutesComeLastAndGoFirst(t *testing.T) {
	modes(t, func(t *testing.T, sotw bool) {
		m := newMesh(t)
		web, shop := service("web", "10.96.0.1", "http", 8000), service("shop", "10.96.0.2", "http", 8000)
		b := m.backend(t, envoytest.HTTP1, "b")
		m.start(t, files{
			"mesh.yaml":     {"outboundTrafficPolicy: {mode: REGISTRY_ONLY}"},
			"east/web.yaml": {web, slicesOf(web, at(b)...)},
		})
		refused := map[*proxy]int{
			m.launch(t, "client", bootstrap.Options{SotW: sotw}):                                        502,
			m.launch(t, "gateway", bootstrap.Options{SotW: sotw, Type: bootstrap.Router, Expose: true}): 404,
		}
		var traffic []*envoytest.Traffic
		for p, status := range refused {
			p.answers(t, host("web"), 8000, "b")
			traffic = append(traffic, envoytest.StartTraffic(t, 2, func(ctx context.Context) error {
				if _, err := p.get(ctx, host("shop"), 8000); err != nil {
					return refusal(err, status)
				}
				return nil
			}))
		}
		for range 4 {
			m.write(t, "east/shop.yaml", shop, slicesOf(shop, at(b)...))
			for p := range refused {
				p.answers(t, host("shop"), 8000, "b")
			}
			m.remove(t, "east/shop.yaml")
			for p, status := range refused {
				p.refuses(t, host("shop"), 8000, status)
			}
		}
		for _, tr := range traffic {
			flawless(t, tr)
		}
	})
}

func TestBadFileKeepsItsLastGoodContent(t *testing.T) {
	t.Parallel()
	m := newMesh(t)
	web := service("web", "10.96.0.1", "http", 8000)
	first, second := m.backend(t, envoytest.HTTP1, "first"), m.backend(t, envoytest.HTTP1, "second")
	m.start(t, files{"east/web.yaml": {web, slicesOf(web, at(first)...)}})
	p := m.launch(t, "client", bootstrap.Options{})
	p.answers(t, host("web"), 8000, "first")
	traffic := p.traffic(t, 1, host("web"), 8000)

	m.writeText(t, "east/web.yaml", []byte("kind: Service\nmetadata: {name: web\n"))
	envoytest.Eventually(t, limit, "the file to be reported", func() error {
		problems, err := m.problems(t.Context())
		return same(problems, 1, err)
	})
	// The hub is alive to other changes, and the file's content still served.
	other := service("other", "10.96.0.2", "http", 8000)
	m.write(t, "east/other.yaml", other, slicesOf(other, at(second)...))
	p.answers(t, host("other"), 8000, "second")
	p.only(t, host("web"), 8000, "first")

	m.write(t, "east/web.yaml", web, slicesOf(web, at(second)...))
	p.only(t, host("web"), 8000, "second")
	envoytest.Eventually(t, limit, "the mended file to be no problem any more", func() error {
		problems, err := m.problems(t.Context())
		return same(problems, 0, err)
	})
	flawless(t, traffic)
}

// problems counts what the hub says of its sources.
func (m *mesh) problems(ctx context.Context) (n int, err error) {
	body, err := m.hub.Get(ctx, m.hub.URL+"/debug/clusterz")
	if err != nil {
		return 0, err
	}
	var clusters []debug.Cluster
	if err := json.Unmarshal(body, &clusters); err != nil {
		return 0, err
	}
	for _, c := range clusters {
		n += len(c.Problems)
	}
	return n, nil
}

// only waits until ten answers in a row come from that backend.
func (p *proxy) only(t testing.TB, host string, port uint16, backend string) {
	t.Helper()
	envoytest.Eventually(t, limit, fmt.Sprintf("%s to get all answers for %s:%d from %s", p.Name, host, port, backend), func() error {
		for range 10 {
			a, err := p.get(t.Context(), host, port)
			if err = same(a.Name, backend, err); err != nil {
				return err
			}
		}
		return nil
	})
}

// closed waits until the proxy does not accept connections on a port.
func (p *proxy) closed(t testing.TB, port uint16) {
	t.Helper()
	envoytest.Eventually(t, limit, fmt.Sprintf("%s to close port %d", p.Name, port), func() error {
		conn, err := p.ns.Dial(t.Context(), p.addr(port))
		if err != nil {
			return nil
		}
		conn.Close()
		return errors.New("it accepts connections")
	})
}
