package xds_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/isthmus-mesh/isthmus/xds"
	"github.com/isthmus-mesh/isthmus/xds/gen"
	"github.com/isthmus-mesh/isthmus/xds/wire"
	"github.com/isthmus-mesh/isthmus/xds/xdstest"
)

// TestRefusedListenerIsTriedAgain: a listener that was refused because another had yet to leave its
// address is there once the other has left; one that stays refused is not sent for ever.
func TestRefusedListenerIsTriedAgain(t *testing.T) {
	both(t, func(t *testing.T, p wire.Protocol) {
		busy, never := 1, false
		r := newRig(t)
		e := r.envoy(p, node(1), func(e *xdstest.Envoy) {
			e.Fault = func(url, name string, _ []byte) string {
				if url != gen.ListenerURL || name != "0.0.0.0_80" || busy <= 0 && !never {
					return ""
				}
				busy-- // by 0.0.0.0_81, which leaves the address in the same response
				return "duplicate address '0.0.0.0:80' as existing listener"
			}
		})
		defer e.Disconnect()
		of := func(port uint16, generation int) xdstest.Service {
			s := svc(fmt.Sprintf("s%d.x", port), generation, "10.0.0.1")
			s.Ports = []uint16{port}
			return s
		}
		r.converged(1, e)
		r.mesh.Set(of(80, 0), of(81, 0))
		r.converged(1, e)
		if n := e.Refusals(); n != 1 {
			t.Errorf("refused %d times", n)
		}
		r.mesh.Delete(of(80, 0))
		r.converged(1, e)
		never = true
		r.mesh.Set(of(80, 1), of(82, 0)) // refused, tried again after 82, refused
		synctest.Wait()
		n := e.Refusals()
		if n > 3 {
			t.Errorf("refused %d times without a change", n-1)
		}
		r.mesh.Set(of(82, 1)) // other clusters, the same listeners
		synctest.Wait()
		if e.Refusals() != n {
			t.Error("tried again although no listener changed")
		}
		never = false
		r.mesh.Delete(of(82, 1))
		r.converged(1, e)
		if n := e.State()[gen.ListenerURL]; n["0.0.0.0_80"] == "" {
			t.Errorf("listeners: %v", n)
		}
		if c := r.server.Proxies()[0].Types[2]; c.State() != xds.SyncSynced {
			t.Errorf("the status is %+v", c)
		}
	})
}

// TestListenerOfATakenPort: a listener whose port another process has for a while is there soon after; as
// long as it is refused, it is tried ever more seldom.
func TestListenerOfATakenPort(t *testing.T) {
	both(t, func(t *testing.T, p wire.Protocol) {
		start := time.Now()
		free := 8 * time.Second
		r := newRig(t)
		e := r.envoy(p, node(1), func(e *xdstest.Envoy) {
			e.Fault = func(url, _ string, _ []byte) string {
				if url == gen.ListenerURL && time.Since(start) < free {
					return "Address already in use"
				}
				return ""
			}
		})
		defer e.Disconnect()
		r.mesh.Set(svc("foo.x", 0, "10.0.0.1"))
		time.Sleep(free + 8*time.Second)
		r.converged(1, e)
		start, free = time.Now(), time.Hour
		other := svc("bar.x", 0, "10.0.0.2")
		other.Ports = []uint16{81}
		before := e.Refusals()
		r.mesh.Set(other)
		time.Sleep(free + 6*time.Minute)
		r.converged(1, e)
		if n := e.Refusals() - before; n < 10 || n > 30 {
			t.Errorf("refused %d times in an hour", n)
		}
	})
}

// TestRemovalInARefusedResponse: a delta proxy applies what a refused response removes and still says, when
// it connects again, that it has it. It is told again, or it would not be sent it when it is back.
func TestRemovalInARefusedResponse(t *testing.T) {
	both(t, func(t *testing.T, p wire.Protocol) {
		r := newRig(t)
		e := r.envoy(p, node(1), func(e *xdstest.Envoy) {
			e.Fault = func(url, name string, _ []byte) string {
				if url == gen.ListenerURL && name == "0.0.0.0_82" {
					return "Address already in use"
				}
				return ""
			}
		})
		defer func() { e.Disconnect() }()
		s := svc("foo.x", 0, "10.0.0.1")
		s.Ports = []uint16{81}
		r.mesh.Set(s)
		r.converged(1, e)
		for range 2 {
			s.Ports = []uint16{82}
			r.mesh.Set(s)
			synctest.Wait()
			if have := e.State()[gen.ListenerURL]; len(have) != 0 {
				t.Fatalf("listeners: %v", have)
			}
			e.Disconnect()
			s.Ports = []uint16{81}
			r.mesh.Set(s)
			r.check(e.Connect())
			r.converged(1, e)
		}
		if n := e.Refusals(); n > 6 {
			t.Errorf("refused %d times", n)
		}
	})
}
