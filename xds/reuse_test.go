package xds_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/isthmus-mesh/isthmus/xds"
	"github.com/isthmus-mesh/isthmus/xds/gen"
	"github.com/isthmus-mesh/isthmus/xds/wire"
	"github.com/isthmus-mesh/isthmus/xds/xdstest"
)

func database(i int) xdstest.Service {
	s := svc(fmt.Sprintf("db-%d.x.svc.cluster.local", i), 0, fmt.Sprintf("10.0.1.%d", i+1))
	s.Ports, s.TCP, s.VIP = []uint16{3306}, true, fmt.Sprintf("10.255.0.%d", i+1)
	return s
}

// spent gives what was built and sent of a type since the last call.
func (r *rig) spent(short string, before *xds.Counters) (built, sent uint64) {
	synctest.Wait()
	now := r.server.Counters()
	a, b := before.Types[short], now.Types[short]
	*before = now
	return b.Built - a.Built, b.Sent - a.Sent
}

// TestOneServiceOfAPort: of the listeners of a port, those of services that are as they were are
// neither made nor sent again when one service changes.
func TestOneServiceOfAPort(t *testing.T) {
	both(t, func(t *testing.T, p wire.Protocol) {
		r := newRig(t, func(o *xds.Options) { o.Generators = gen.All() })
		for i := range 20 {
			r.mesh.Set(database(i))
		}
		e := r.envoy(p, node(1))
		defer e.Disconnect()
		r.agrees(e)
		var c xds.Counters
		r.spent("lds", &c)
		again := database(7)
		again.Generation = 1 // other service accounts: the cluster is another
		r.mesh.Set(again)
		if built, sent := r.spent("lds", &c); built != 0 || sent != 0 {
			t.Errorf("a changed cluster made %d listeners and sent %d", built, sent)
		}
		r.agrees(e)
		r.spent("lds", &c)
		r.mesh.Set(database(20))
		built, sent := r.spent("lds", &c)
		if built != 1 || p == wire.Delta && sent != 1 {
			t.Errorf("a new service made %d listeners and sent %d", built, sent)
		}
		r.agrees(e)
	})
}

// TestOwnAddressOfAHeadlessService: only the backends of a headless service have listeners of their
// own making; all other proxies share theirs, and so do backends what is not about them.
func TestOwnAddressOfAHeadlessService(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const proxies = 30
		r := newRig(t, func(o *xds.Options) { o.Generators = gen.All() })
		headless := svc("h.x.svc.cluster.local", 0, "10.0.1.1", "10.99.0.2", "10.99.0.3") // of nodes 1 and 2
		headless.Ports, headless.TCP, headless.Headless = []uint16{3306}, true, true
		r.mesh.Set(headless, database(1))
		var all []*xdstest.Envoy
		for i := range proxies {
			e := r.envoy(wire.Delta, node(i))
			defer e.Disconnect()
			all = append(all, e)
		}
		var c xds.Counters
		// Four addresses, the outbound listener, and the inbound one with and without the service.
		if built, _ := r.spent("lds", &c); built != 7 {
			t.Errorf("made %d listeners for %d proxies", built, proxies)
		}
		listens := func(i int) (out []string) {
			for n := range maps.Keys(all[i].State()[gen.ListenerURL]) {
				if a, ok := strings.CutSuffix(n, "_3306"); ok {
					out = append(out, a)
				}
			}
			slices.Sort(out)
			return out
		}
		check := func(i int, want ...string) {
			t.Helper()
			if got := listens(i); !slices.Equal(got, want) {
				t.Errorf("proxy %d listens for %v, want %v", i, got, want)
			}
		}
		check(0, "10.0.1.1", "10.255.0.2", "10.99.0.2", "10.99.0.3")
		check(1, "10.0.1.1", "10.255.0.2", "10.99.0.3")
		check(2, "10.0.1.1", "10.255.0.2", "10.99.0.2")
		headless.Endpoints = append(headless.Endpoints, "10.99.0.4") // node 3
		r.mesh.Set(headless)
		// The backends' inbound listeners are as they were, but for the one of node 3.
		if built, sent := r.spent("lds", &c); built != 1 || sent != proxies-1+1 {
			t.Errorf("one more backend made %d listeners and sent %d", built, sent)
		}
		check(3, "10.0.1.1", "10.255.0.2", "10.99.0.2", "10.99.0.3")
		check(1, "10.0.1.1", "10.255.0.2", "10.99.0.3", "10.99.0.4")
	})
}
