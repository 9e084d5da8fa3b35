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

// A port that another program holds makes a proxy reject its listener. That
// costs this listener alone: others arrive, with it and after it, the hub says
// what is wrong, and does not send the same again and again.
func TestTakenPortCostsItsListenerOnly(t *testing.T) {
	modes(t, func(t *testing.T, sotw bool) {
		m := newMesh(t)
		m.rejects = true
		b := m.backend(t, envoytest.HTTP1, "b")
		web := service("web", "10.96.0.1", "http", 8000)
		m.start(t, files{"east/web.yaml": {web, slicesOf(web, at(b)...)}})
		p := m.launch(t, "client", bootstrap.Options{SotW: sotw})
		p.rejects = true
		p.answers(t, host("web"), 8000, "b")
		traffic := p.traffic(t, 1, host("web"), 8000)
		squatter := m.backendAt(t, envoytest.HTTP1, "squatter", p.addr(8001))

		taken, beside, later := service("taken", "10.96.0.2", "http", 8001), service("beside", "10.96.0.3", "http", 8002), service("later", "10.96.0.4", "http", 8003)
		m.write(t, "east/two.yaml", taken, slicesOf(taken, at(b)...), beside, slicesOf(beside, at(b)...))
		p.answers(t, host("beside"), 8002, "b")
		envoytest.Eventually(t, limit, "the hub to say what is rejected", func() error {
			w, err := m.watch(t.Context(), p, "lds")
			if err == nil && (w.Status != "ERROR" || len(w.Rejected) != 1) {
				err = fmt.Errorf("it says %q of %q, and %q", w.Status, w.Rejected, w.Error)
			}
			return err
		})
		m.write(t, "east/later.yaml", later, slicesOf(later, at(b)...))
		p.answers(t, host("later"), 8003, "b")
		p.answers(t, host("taken"), 8001, "squatter")

		// The rejected listener is tried once more after each accepted change of others, and after 5 s.
		// Once when it came, and after each of the two others that came beside and later.
		envoytest.Eventually(t, limit, "the listener to be tried again", func() error {
			rejected, err := p.Stat(t.Context(), "listener_manager.lds.update_rejected")
			if err == nil && rejected > 4 {
				t.Fatalf("it rejected %d responses, want 3, and one more if 5 s have gone by", rejected)
			}
			return same(rejected >= 3, true, err)
		})
		// With the port free, a change of the listener is tried again.
		if err := squatter.Close(); err != nil {
			t.Fatal(err)
		}
		taken.Spec.Ports[0].Name = ""
		m.write(t, "east/two.yaml", taken, slicesOf(taken, at(b)...), beside, slicesOf(beside, at(b)...))
		p.answers(t, host("taken"), 8001, "b")
		envoytest.Eventually(t, limit, "the hub to say that all is well", func() error {
			w, err := m.watch(t.Context(), p, "lds")
			return same(w.Status, "SYNCED", err)
		})
		flawless(t, traffic)
		p.settles(t, m.hub)
	})
}

// watch is what the hub says of a proxy and a type.
func (m *mesh) watch(ctx context.Context, p *proxy, typ string) (debug.Watch, error) {
	body, err := m.hub.Get(ctx, m.hub.URL+"/debug/connections")
	if err != nil {
		return debug.Watch{}, err
	}
	var proxies []debug.Proxy
	if err := json.Unmarshal(body, &proxies); err != nil {
		return debug.Watch{}, err
	}
	for _, x := range proxies {
		if x.Name == p.Name+"."+namespace {
			return x.Types[typ], nil
		}
	}
	return debug.Watch{}, errors.New("it is not connected")
}
