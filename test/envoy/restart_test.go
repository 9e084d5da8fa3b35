package envoy_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"testing"

	"github.com/isthmus-mesh/isthmus/cmd/isthmus/bootstrap"
	"github.com/isthmus-mesh/isthmus/test/envoy/envoytest"
)

// changes are the counters of an Envoy that grow when it is sent something: a
// resource that is new or differs, over either variant, and over delta any
// endpoints at all.
func (p *proxy) changes(ctx context.Context, sotw bool) (map[string]uint64, error) {
	filter := `^cluster_manager\.cluster_(added|modified|removed)$|^listener_manager\.listener_(added|modified|removed|in_place_updated)$|rds\..*\.config_reload$`
	if !sotw {
		filter += `|^cluster\.outbound.*\.update_success$`
	}
	return p.Stats(ctx, filter)
}

// connected waits until the proxy has a stream to the hub.
func (p *proxy) connected(t testing.TB) {
	t.Helper()
	envoytest.Eventually(t, limit, p.Name+" to be connected", func() error {
		n, err := p.Stat(t.Context(), "control_plane.connected_state")
		return same(n, 1, err)
	})
}

// A hub that goes leaves its proxies serving. One that comes back sends what
// changed meanwhile and nothing else.
func TestHubRestartUnderTraffic(t *testing.T) {
	modes(t, func(t *testing.T, sotw bool) {
		for name, end := range map[string]func(*envoytest.Hub) error{
			"stopped": (*envoytest.Hub).Stop,
			"killed":  (*envoytest.Hub).Kill,
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				hubRestart(t, sotw, end)
			})
		}
	})
}

// restarted is a hub that ends and comes back under the traffic of its proxies.
type restarted struct {
	*mesh
	end     func(*envoytest.Hub) error
	proxies []*proxy
	traffic []*envoytest.Traffic // by proxies
}

func hubRestart(t *testing.T, sotw bool, end func(*envoytest.Hub) error) {
	m := newMesh(t)
	web, old := service("web", "10.96.0.1", "http", 8000), service("old", "10.96.0.2", "http", 8001)
	first, second := m.backend(t, envoytest.HTTP1, "first"), m.backend(t, envoytest.HTTP1, "second")
	m.start(t, files{
		"east/web.yaml": {web, slicesOf(web, at(first)...)},
		"east/old.yaml": {old, slicesOf(old, at(first)...)},
	})
	r := &restarted{mesh: m, end: end, proxies: []*proxy{
		m.launch(t, "client", bootstrap.Options{SotW: sotw}),
		m.launch(t, "gateway", bootstrap.Options{SotW: sotw, Type: bootstrap.Router, Expose: true}),
	}}
	for _, p := range r.proxies {
		p.answers(t, host("web"), 8000, "first")
		p.answers(t, host("old"), 8001, "first")
		r.traffic = append(r.traffic, p.traffic(t, 1, host("web"), 8000))
	}

	before := r.changes(t, sotw)
	r.restart(t, func() {})
	// What the proxies get next is something new: whatever was sent again came
	// before it.
	m.write(t, "east/web.yaml", web, slicesOf(web, at(first, second)...))
	for _, p := range r.proxies {
		p.answers(t, host("web"), 8000, "second")
	}
	after := r.changes(t, sotw)
	for i, p := range r.proxies {
		p.onlyChange(t, "cluster."+outbound(host("web"), 8000)+".update_success", before[i], after[i])
	}
	if !sotw {
		r.sent(t, map[string]float64{"cds": 0, "eds": float64(len(r.proxies)), "lds": 0, "rds": 0, "vhds": 0})
	}

	r.restart(t, func() {
		m.write(t, "east/web.yaml", web, slicesOf(web, at(second)...))
		m.remove(t, "east/old.yaml")
		m.write(t, "mesh.yaml", "connectTimeout: 3s") // every cluster is another one
	})
	for i, p := range r.proxies {
		p.modified(t, 1)
		p.only(t, host("web"), 8000, "second")
		p.closed(t, 8001)
		p.lacks(t, outbound(host("old"), 8001))
		flawless(t, r.traffic[i])
	}
}

// restart ends the hub, sees that the proxies serve without it, and starts it
// again on what is changed meanwhile.
func (r *restarted) restart(t *testing.T, meanwhile func()) {
	t.Helper()
	if err := r.end(r.hub); err != nil {
		t.Fatal(err)
	}
	for i, p := range r.proxies {
		more(t, r.traffic[i], 20)
		p.answers(t, host("old"), 8001, "first") // not only on connections that exist
	}
	meanwhile()
	if err := r.hub.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, p := range r.proxies {
		p.connected(t)
	}
}

// sent checks how many resources of each type the hub has sent since it started.
func (m *mesh) sent(t *testing.T, want map[string]float64) {
	t.Helper()
	got := map[string]float64{}
	for typ := range want {
		n, err := m.hub.Metric(t.Context(), "isthmus_xds_resources_sent_total", fmt.Sprintf("type=%q", typ))
		if err != nil {
			t.Fatal(err)
		}
		got[typ] = n
	}
	if !maps.Equal(got, want) {
		t.Errorf("the hub has sent %v, want %v", got, want)
	}
}

func (r *restarted) changes(t *testing.T, sotw bool) (out []map[string]uint64) {
	t.Helper()
	for _, p := range r.proxies {
		counted, err := p.changes(t.Context(), sotw)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, counted)
	}
	return out
}

// onlyChange checks that nothing grew but one counter, by one. SotW has no such
// counter: it sends endpoints again to every proxy that connects.
func (p *proxy) onlyChange(t *testing.T, counter string, before, after map[string]uint64) {
	t.Helper()
	if n, ok := after[counter]; ok && n != before[counter]+1 {
		t.Errorf("%s: %s grew by %d, want 1", p.Name, counter, n-before[counter])
	}
	delete(before, counter)
	delete(after, counter)
	if !maps.Equal(before, after) {
		t.Errorf("%s was sent unchanged resources again:\n%s", p.Name, difference(before, after))
	}
}

// lacks waits until the proxy does not have a cluster.
func (p *proxy) lacks(t testing.TB, cluster string) {
	t.Helper()
	envoytest.Eventually(t, limit, p.Name+" to drop "+cluster, func() error {
		hosts, err := p.hosts(t.Context(), cluster)
		if hosts != nil {
			err = errors.New("it has it")
		}
		return err
	})
}

// A proxy may be there first.
func TestProxyStartsBeforeItsHub(t *testing.T) {
	modes(t, func(t *testing.T, sotw bool) {
		m := newMesh(t)
		web := service("web", "10.96.0.1", "http", 8000)
		m.start(t, files{"east/web.yaml": {web, slicesOf(web, at(m.backend(t, envoytest.HTTP1, "b"))...)}})
		if err := m.hub.Stop(); err != nil {
			t.Fatal(err)
		}
		o := m.complete(t, "client", bootstrap.Options{SotW: sotw})
		p := m.begin(t, o.IP, envoytest.Options{Name: "client", Bootstrap: config(t, o)})
		envoytest.Eventually(t, limit, "a failed attempt to connect", func() error {
			n, err := p.Stat(t.Context(), "cluster.xds-grpc.upstream_cx_connect_fail")
			return same(n > 0, true, err)
		})
		if err := m.hub.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		p.ready(t)
		p.answers(t, host("web"), 8000, "b")
	})
}

func difference(before, after map[string]uint64) (out string) {
	for name, n := range after {
		if n != before[name] {
			out += fmt.Sprintf("  %s: %d, was %d\n", name, n, before[name])
		}
	}
	return out
}
