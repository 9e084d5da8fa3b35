package xds_test

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	"github.com/isthmus-mesh/isthmus/pushcontext"
	"github.com/isthmus-mesh/isthmus/xds"
	"github.com/isthmus-mesh/isthmus/xds/gen"
	"github.com/isthmus-mesh/isthmus/xds/wire"
)

// laborious resources take a while to build, by a clock of their own.
type laborious struct {
	gen.Generator
	takes time.Duration
	clock *atomic.Int64
}

func (l laborious) Build(v pushcontext.View, c gen.Class, name string) ([]byte, error) {
	l.clock.Add(int64(l.takes))
	return l.Generator.Build(v, c, name)
}

// TestPushCost: what pushing costs is the work, whoever else waits for it and however slowly a proxy
// reads.
func TestPushCost(t *testing.T) {
	const streams, workers, takes = 200, 2, 10 * time.Millisecond
	const sending = (streams + 1) * 30 * time.Microsecond // at a flat rate
	both(t, func(t *testing.T, p wire.Protocol) {
		var cost, clock atomic.Int64
		r := newRig(t, func(o *xds.Options) {
			o.Workers = workers
			o.Now = func() time.Time { return time.Now().Add(time.Duration(clock.Load())) }
			o.OnPushCost = func(d time.Duration) { cost.Add(int64(d)) }
			for i, g := range o.Generators {
				if g.TypeURL() == gen.EndpointURL {
					o.Generators[i] = laborious{g, takes, &clock}
				}
			}
		})
		r.mesh.Set(svc("foo.x", 0, "10.0.0.1"))
		for i := range streams {
			e := r.envoy(p, node(i))
			defer e.Disconnect()
		}
		r.stalled(p, node(streams))
		synctest.Wait()
		cost.Store(0)
		r.mesh.Set(svc("foo.x", 0, "10.0.0.2")) // one build, for all
		time.Sleep(time.Minute)
		if got, most := time.Duration(cost.Load())-sending, workers*takes; got < takes || got > most {
			t.Errorf("one build of %v costs %v beside sending, want at most %v", takes, got, most)
		}
		if n := len(r.server.Proxies()); n != streams {
			t.Errorf("%d proxies are left, want %d", n, streams)
		}
	})
}

// TestPushCostAfterAnACK: what had to wait for a proxy's ACK costs as much as what did not.
func TestPushCostAfterAnACK(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var cost, clock atomic.Int64
		r := newRig(t, func(o *xds.Options) {
			o.OnPushCost = func(d time.Duration) { cost.Add(int64(d)) }
			o.Now = func() time.Time { return time.Now().Add(time.Duration(clock.Load())) }
			for i, g := range o.Generators {
				o.Generators[i] = laborious{g, time.Millisecond, &clock}
			}
		})
		r.mesh.Set(svc("foo.x", 0, "10.0.0.1"))
		s := r.script()
		defer s.p.Close()
		s.send(&discoveryv3.DeltaDiscoveryRequest{Node: node(1), TypeUrl: gen.EndpointURL, ResourceNamesSubscribe: []string{foo}})
		m, _ := s.next(false)
		r.mesh.Set(svc("foo.x", 0, "10.0.0.2"))
		s.quiet()
		if got := cost.Load(); got != 0 {
			t.Errorf("a subscription and a wait cost %v", time.Duration(got))
		}
		s.send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: gen.EndpointURL, ResponseNonce: m.Nonce})
		s.expect(gen.EndpointURL, []string{foo}, nil)
		s.quiet()
		if got := time.Duration(cost.Load()); got != time.Millisecond+30*time.Microsecond {
			t.Errorf("a change cost %v", got)
		}
	})
}

// stalled connects a client that takes its first endpoints and nothing after them.
func (r *rig) stalled(p wire.Protocol, n *corev3.Node) {
	r.Helper()
	pipe := r.pipe(p)
	if p == wire.Delta {
		r.check(pipe.Send(&discoveryv3.DeltaDiscoveryRequest{Node: n, TypeUrl: gen.EndpointURL, ResourceNamesSubscribe: []string{foo}}))
		m := &discoveryv3.DeltaDiscoveryResponse{}
		r.check(pipe.Recv(m))
		r.check(pipe.Send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: gen.EndpointURL, ResponseNonce: m.Nonce}))
		return
	}
	m := &discoveryv3.DiscoveryResponse{}
	ask := &discoveryv3.DiscoveryRequest{Node: n, TypeUrl: gen.EndpointURL, ResourceNames: []string{foo}}
	r.check(pipe.Send(ask))
	r.check(pipe.Recv(m))
	r.check(pipe.Send(&discoveryv3.DiscoveryRequest{TypeUrl: gen.EndpointURL, ResponseNonce: m.Nonce, ResourceNames: []string{foo}}))
}

func (r *rig) check(err error) {
	r.Helper()
	if err != nil {
		r.Fatal(err)
	}
}
