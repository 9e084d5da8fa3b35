package xds_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/isthmus-mesh/isthmus/pushcontext"
	"github.com/isthmus-mesh/isthmus/xds"
	"github.com/isthmus-mesh/isthmus/xds/gen"
	"github.com/isthmus-mesh/isthmus/xds/wire"
	"github.com/isthmus-mesh/isthmus/xds/xdstest"
)

// TestRealGenerators: the generators that are served keep what the engine relies on (a listed name
// leads back to its view, and is listed by no other), and clients end up with what they make.
func TestRealGenerators(t *testing.T) {
	both(t, func(t *testing.T, p wire.Protocol) {
		r := newRig(t, func(o *xds.Options) { o.Generators = gen.All() })
		e := r.envoy(p, node(1))
		defer e.Disconnect()
		own := svc("own.x.svc.cluster.local", 0, "10.99.0.2", "10.0.7.1")
		r.mesh.Set(own, svc("foo.x.svc.cluster.local", 0, "10.0.0.1"))
		r.agrees(e)
		for i := range 8 {
			r.mesh.Set(svc("foo.x.svc.cluster.local", i/3, fmt.Sprintf("10.0.0.%d", i+1)), svc(fmt.Sprintf("s%d.x.svc.cluster.local", i%3), i, "10.0.2.1"))
			r.agrees(e)
		}
		r.mesh.Delete(own)
		r.agrees(e)
		r.mesh.SetMesh()
		r.agrees(e)
	})
}

// TestEveryNamedClusterExists: where several services claim a host, listeners and routes name clusters
// of the one that is meant, whichever ports the others have.
func TestEveryNamedClusterExists(t *testing.T) {
	both(t, func(t *testing.T, p wire.Protocol) {
		r := newRig(t, func(o *xds.Options) { o.Generators = gen.All() })
		e := r.envoy(p, node(1))
		defer e.Disconnect()
		claim := func(namespace string, tcp bool, ports ...uint16) xdstest.Service {
			s := svc("h.example", 0, "10.0.0.1")
			s.Namespace, s.TCP, s.Ports = namespace, tcp, ports
			s.VIP = fmt.Sprintf("10.255.0.%d", len(namespace))
			return s
		}
		first, second := claim("a", false, 80), claim("bb", true, 9090, 8080)
		r.mesh.Set(first, second)
		r.agrees(e)
		r.mesh.Set(claim("bb", false, 8080))
		r.agrees(e)
		r.mesh.Delete(first) // the second has the host now, on ports that did not change
		r.agrees(e)
		r.mesh.Set(first)
		r.agrees(e)
		r.mesh.Set(claim("x", true, 3306)) // the proxy's own namespace before others
		r.agrees(e)
	})
}

func (r *rig) agrees(e *xdstest.Envoy) {
	r.Helper()
	time.Sleep(2 * time.Second)
	synctest.Wait()
	if v := e.Violations(); len(v) > 0 {
		r.Fatal(v)
	}
	status := r.server.Proxies()[0]
	reader := &pushcontext.Reader{Cluster: status.Cluster, Namespace: status.Namespace, Instances: status.Instances}
	pc := r.mesh.Hub.Current()
	for _, g := range gen.All() {
		r.owned(pc, g, status.Class, reader)
	}
	want, err := xdstest.Expect(pc, gen.All(), status.Class, reader)
	if err != nil {
		r.Fatal(err)
	}
	have := e.State()
	if d, err := xdstest.Dangling(have); err != nil || len(d) > 0 {
		r.Errorf("clusters are named that the proxy does not have: %q %v", d, err)
	}
	for u := range want {
		for n := range want[u] {
			if have[u][n] != want[u][n] {
				r.Errorf("%s %s: has %q, want %q", u, n, have[u][n], want[u][n])
			}
		}
		if len(have[u]) != len(want[u]) {
			r.Errorf("%s: has %d, want %d", u, len(have[u]), len(want[u]))
		}
	}
	if r.Failed() {
		r.FailNow()
	}
}

func (r *rig) owned(pc *pushcontext.PushContext, g gen.Generator, c gen.Class, reader *pushcontext.Reader) {
	r.Helper()
	for _, kind := range g.Kinds() {
		for key := range pc.Keys(kind) {
			v, _ := pc.View(key, reader)
			if v == nil {
				continue
			}
			for _, n := range g.Names(v, c.Keep(g.Traits(v))) {
				if got, ok := g.Key(n); !ok || got != key {
					r.Errorf("%s: %s is listed by %+v, but its key is %+v", g.TypeURL(), n, key, got)
				}
			}
		}
	}
}
