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

// connected waits until the proxy has a stream to the hub, and the hub has
// answered on it: it was sent something for each type that it asks for.
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

func hubRestart(t *testing.T, sotw bool, end func(*envoytest.Hub) error) {
	m := newMesh(t)
	web, old := service("web", "10.96.0.1", "http", 8000), service("old", "10.96.0.2", "http", 8001)
	first, second := m.backend(t, envoytest.HTTP1, "first"), m.backend(t, envoytest.HTTP1, "second")
	m.start(t, files{
		"east/web.yaml": {web, slicesOf(web, at(first)...)},
		"east/old.yaml": {old, slicesOf(old, at(first)...)},
	})
	proxies := []*proxy{
		m.launch(t, "client", bootstrap.Options{SotW: sotw}),
		m.launch(t, "gateway", bootstrap.Options{SotW: sotw, Type: bootstrap.Router, Expose: true}),
	}
	var traffic []*envoytest.Traffic
	var before []map[string]uint64
	for _, p := range proxies {
		p.answers(t, host("web"), 8000, "first")
		p.answers(t, host("old"), 8001, "first")
		traffic = append(traffic, p.traffic(t, 1, host("web"), 8000))
		counted, err := p.changes(t.Context(), sotw)
		if err != nil {
			t.Fatal(err)
		}
		before = append(before, counted)
	}
	restart := func(meanwhile func()) {
		if err := end(m.hub); err != nil {
			t.Fatal(err)
		}
		for i, p := range proxies {
			more(t, traffic[i], 20)
			p.answers(t, host("old"), 8001, "first") // not only on connections that exist
		}
		meanwhile()
		if err := m.hub.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		for _, p := range proxies {
			p.connected(t)
		}
	}

	restart(func() {})
	// What the proxies get next is something new: whatever was sent again came
	// before it.
	m.write(t, "east/web.yaml", web, slicesOf(web, at(first, second)...))
	for i, p := range proxies {
		p.answers(t, host("web"), 8000, "second")
		after, err := p.changes(t.Context(), sotw)
		if err != nil {
			t.Fatal(err)
		}
		eds := "cluster." + outbound(host("web"), 8000) + ".update_success"
		if !sotw && after[eds] != before[i][eds]+1 {
			t.Errorf("%s was sent the endpoints of web %d times since the restart, want once", p.Name, after[eds]-before[i][eds])
		}
		delete(after, eds)
		delete(before[i], eds)
		if !maps.Equal(before[i], after) {
			t.Errorf("%s was sent unchanged resources again:\n%s", p.Name, difference(before[i], after))
		}
	}

	restart(func() {
		m.write(t, "east/web.yaml", web, slicesOf(web, at(second)...))
		m.remove(t, "east/old.yaml")
		m.write(t, "mesh.yaml", "connectTimeout: 3s") // every cluster is another one
	})
	for i, p := range proxies {
		p.modified(t, 1)
		p.only(t, host("web"), 8000, "second")
		p.closed(t, 8001)
		envoytest.Eventually(t, limit, p.Name+" to drop the cluster of old", func() error {
			_, err := p.hosts(t.Context(), outbound(host("old"), 8001))
			if err == nil {
				return errors.New("it has it")
			}
			return nil
		})
		flawless(t, traffic[i])
	}
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
		o := m.complete("client", bootstrap.Options{SotW: sotw})
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
