package xds_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/isthmus-mesh/isthmus/xds"
	"github.com/isthmus-mesh/isthmus/xds/gen"
	"github.com/isthmus-mesh/isthmus/xds/wire"
	"github.com/isthmus-mesh/isthmus/xds/xdstest"
)

// TestCounts is invariant I7: a change of X sends only X, only to those who subscribe it, encoded
// once per class.
func TestCounts(t *testing.T) {
	both(t, func(t *testing.T, p wire.Protocol) {
		r := newRig(t)
		r.mesh.Set(svc("foo.x", 0, "10.0.0.1"), svc("bar.x", 0, "10.0.0.2"))
		for i := range 20 {
			e := r.envoy(p, node(i))
			defer e.Disconnect()
		}
		synctest.Wait()
		before := r.server.Counters()
		for short, want := range map[string]uint64{"cds": 3, "eds": 2, "lds": 1, "rds": 1} {
			if got := before.Types[short]; got.Built != want || got.Sent != 20*want {
				t.Errorf("connecting: %s %+v, want %d built", short, got, want)
			}
		}
		r.mesh.Set(svc("foo.x", 0, "10.0.0.1", "10.0.0.3"))
		synctest.Wait()
		after := r.server.Counters()
		for short, want := range map[string]uint64{"cds": 0, "eds": 1, "lds": 0, "rds": 0} {
			built, sent := after.Types[short].Built-before.Types[short].Built, after.Types[short].Sent-before.Types[short].Sent
			if built != want || sent != 20*want {
				t.Errorf("endpoint change: %s built %d, sent %d; want %d and %d", short, built, sent, want, 20*want)
			}
		}
	})
}

// TestOnlyInterestedWake: an endpoint change wakes the streams that subscribe the service.
func TestOnlyInterestedWake(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		r.mesh.Set(svc("foo.x", 0, "10.0.0.1"), svc("bar.x", 0, "10.0.0.2"))
		for i := range 10 {
			s := r.script()
			defer s.p.Close()
			name := foo
			if i >= 7 {
				name = bar
			}
			s.send(&discoveryv3.DeltaDiscoveryRequest{Node: node(i), TypeUrl: gen.EndpointURL, ResourceNamesSubscribe: []string{name}})
			s.next(true)
		}
		synctest.Wait()
		before := r.server.Counters().Wakes
		r.mesh.Set(svc("bar.x", 0, "10.0.0.3"))
		if n := r.server.Counters().Wakes - before; n != 3 {
			t.Errorf("%d streams woke", n)
		}
	})
}

// TestReconnect: what a reconnecting delta proxy holds unchanged is not sent, what vanished is
// removed, what changed is sent.
func TestReconnect(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		r.mesh.Set(svc("foo.x", 1), svc("bar.x", 1), svc("old.x", 1))
		s := r.script()
		s.send(&discoveryv3.DeltaDiscoveryRequest{Node: node(1), TypeUrl: gen.ClusterURL})
		m, _ := s.next(true)
		versions := map[string]string{}
		for _, x := range m.Resources {
			versions[x.Name] = x.Version
		}
		s.p.Close()
		r.mesh.Delete(svc("old.x", 1))
		r.mesh.Set(svc("bar.x", 2))
		s = r.script()
		defer s.p.Close()
		s.send(&discoveryv3.DeltaDiscoveryRequest{Node: node(1), TypeUrl: gen.ClusterURL, InitialResourceVersions: versions})
		s.expect(gen.ClusterURL, []string{bar}, nil)
		s.expect(gen.ClusterURL, nil, []string{"outbound|80||old.x"})
		s.quiet()
	})
}

// TestReconnectRemovesLast: what is gone since a proxy was last connected is removed only after the
// routes that may still name it are replaced, though the proxy asks for these last.
func TestReconnectRemovesLast(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		r.mesh.Set(svc("foo.x", 1), svc("old.x", 1))
		s := r.script()
		s.send(&discoveryv3.DeltaDiscoveryRequest{Node: node(1), TypeUrl: gen.ClusterURL})
		m, _ := s.next(true)
		versions := map[string]string{}
		for _, x := range m.Resources {
			versions[x.Name] = x.Version
		}
		s.p.Close()
		r.mesh.Delete(svc("old.x", 1))
		s = r.script()
		defer s.p.Close()
		s.send(&discoveryv3.DeltaDiscoveryRequest{Node: node(1), TypeUrl: gen.ClusterURL, InitialResourceVersions: versions})
		s.expect(gen.ClusterURL, nil, nil)
		s.quiet()
		s.send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: gen.ListenerURL})
		s.expect(gen.ListenerURL, []string{"0.0.0.0_80"}, nil)
		s.quiet()
		s.send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: gen.RouteURL, ResourceNamesSubscribe: []string{"80"}})
		s.expect(gen.RouteURL, []string{"80"}, nil)
		s.quiet()
		s.send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: gen.VirtualHostURL})
		start := time.Now()
		s.expect(gen.VirtualHostURL, []string{"80/foo.x"}, nil)
		s.expect(gen.ClusterURL, nil, []string{"outbound|80||old.x"})
		if took := time.Since(start); took > 0 {
			t.Errorf("the removal came only after %v", took)
		}
		s.quiet()
	})
}

// TestReconnectWhileWarming: a proxy with a warming cluster asks for endpoints first and not for
// clusters; it gets them though their version did not change.
func TestReconnectWhileWarming(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		r.mesh.Set(svc("foo.x", 1, "10.0.0.1"))
		s := r.script()
		s.send(&discoveryv3.DeltaDiscoveryRequest{Node: node(1), TypeUrl: gen.EndpointURL, ResourceNamesSubscribe: []string{foo}})
		m, _ := s.next(true)
		s.p.Close()
		s = r.script()
		defer s.p.Close()
		irv := map[string]string{foo: m.Resources[0].Version}
		s.send(&discoveryv3.DeltaDiscoveryRequest{
			Node: node(1), TypeUrl: gen.EndpointURL, ResourceNamesSubscribe: []string{foo, bar}, InitialResourceVersions: irv,
		})
		s.expect(gen.EndpointURL, []string{bar, foo}, nil)
	})
}

// TestWildcards covers the ways to subscribe everything and to stop.
func TestWildcards(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		r.mesh.Set(svc("foo.x", 1), svc("bar.x", 1))
		s := r.script()
		defer s.p.Close()
		s.send(&discoveryv3.DeltaDiscoveryRequest{Node: node(1), TypeUrl: gen.ClusterURL, ResourceNamesSubscribe: []string{foo, "outbound|1||no.x"}})
		s.expect(gen.ClusterURL, []string{foo}, []string{"outbound|1||no.x"})
		s.send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: gen.ClusterURL, ResourceNamesSubscribe: []string{"*"}})
		s.expect(gen.ClusterURL, []string{bh, bar}, nil) // foo is there already
		s.send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: gen.ClusterURL, ResourceNamesUnsubscribe: []string{foo}})
		s.expect(gen.ClusterURL, []string{foo}, nil) // still part of everything
		s.send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: gen.ClusterURL, ResourceNamesSubscribe: []string{bar}})
		s.expect(gen.ClusterURL, []string{bar}, nil) // asked again: answered
		s.send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: gen.ClusterURL, ResourceNamesUnsubscribe: []string{"*"}})
		synctest.Wait()
		r.mesh.Set(svc("foo.x", 2))
		s.quiet()
		r.mesh.Set(svc("bar.x", 2))
		s.expect(gen.ClusterURL, []string{bar}, nil)
	})
}

// TestEmptyFirstResponse: a proxy does not start before its first clusters and listeners, even if
// there are none.
func TestEmptyFirstResponse(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newRig(t).script()
		defer s.p.Close()
		s.send(&discoveryv3.DeltaDiscoveryRequest{Node: node(1), TypeUrl: gen.ListenerURL})
		s.expect(gen.ListenerURL, nil, nil)
	})
}

// TestUnserved: types of Istio that have no resources are answered with nothing and disturb nobody.
func TestUnserved(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newRig(t).script()
		defer s.p.Close()
		const pcds = "type.googleapis.com/istio.mesh.v1alpha1.ProxyConfig"
		const sds = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret"
		s.send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: "type.googleapis.com/istio.v1.HealthInformation"})
		s.send(&discoveryv3.DeltaDiscoveryRequest{Node: node(1), TypeUrl: pcds})
		s.expect(pcds, nil, nil)
		s.send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: sds, ResourceNamesSubscribe: []string{"default"}})
		s.expect(sds, nil, []string{"default"})
		s.send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: gen.ClusterURL})
		s.expect(gen.ClusterURL, []string{bh}, nil)
	})
}

// TestFailedBuild: a resource that fails or panics is neither sent nor removed; others are.
func TestFailedBuild(t *testing.T) {
	both(t, func(t *testing.T, p wire.Protocol) {
		r := newRig(t)
		r.mesh.Set(svc("foo.x", 1, "10.0.0.1"), svc("bar.x", 1, "10.0.0.2"))
		e := r.envoy(p, node(1))
		defer e.Disconnect()
		r.converged(1, e)
		good := e.State()[gen.ClusterURL][foo]
		r.faults.Fail(foo, true)
		r.mesh.Set(svc("foo.x", 2, "10.0.0.1"), svc("bar.x", 2, "10.0.0.2"))
		synctest.Wait()
		if have := e.State()[gen.ClusterURL]; have[foo] != good || !strings.Contains(have[bar], "\x08\x03") {
			t.Errorf("foo must stay and bar change: %q", have)
		}
		if f := r.server.Failures(); len(f) == 0 || f[0].Name != foo || !strings.Contains(f[0].Err, "panic") {
			t.Error(f)
		}
		r.faults.Heal(foo)
		r.mesh.Set(svc("foo.x", 3, "10.0.0.1"))
		r.converged(1, e)
	})
}

// TestClassFollowsEndpoint: a proxy that does not state its locality gets that of its own endpoint,
// and new resources when that comes.
func TestClassFollowsEndpoint(t *testing.T) {
	both(t, func(t *testing.T, p wire.Protocol) {
		r := newRig(t)
		r.mesh.Set(svc("foo.x", 1, "10.0.0.1"))
		e := r.envoy(p, node(1))
		defer e.Disconnect()
		r.converged(1, e)
		own := svc("own.x", 1, "10.99.0.2") // the address of node(1)
		own.Locality.Region = "mars"
		r.mesh.Set(own)
		r.converged(1, e)
		have := e.State()[gen.ClusterURL]
		if !strings.Contains(have[foo], "mars") || have["inbound|80||"] == "" {
			t.Errorf("%q", have)
		}
		r.mesh.Delete(own)
		r.converged(1, e)
	})
}

// TestLaggingStream: a stream further behind than the hub remembers compares everything once.
func TestLaggingStream(t *testing.T) {
	both(t, func(t *testing.T, p wire.Protocol) {
		r := newRig(t, func(o *xds.Options) { o.SendTimeout = time.Hour })
		r.mesh.Set(svc("foo.x", 1, "10.0.0.1"), svc("bar.x", 1, "10.0.0.2"), svc("old.x", 1, "10.0.0.3"))
		e := r.envoy(p, node(1))
		defer e.Disconnect()
		synctest.Wait()
		for _, u := range []string{gen.EndpointURL, gen.ListenerURL, gen.RouteURL} {
			e.Hold(u)
		}
		r.mesh.Set(svc("foo.x", 2, "10.0.0.4"))
		synctest.Wait()
		r.mesh.Delete(svc("old.x", 1))
		for i := range 1100 {
			r.mesh.Set(svc("bar.x", 1, fmt.Sprintf("10.0.%d.%d", 2+i/250, i%250)))
		}
		e.Release()
		time.Sleep(5 * time.Second)
		r.converged(1, e)
	})
}

// TestStalls is invariant I5: clients that stop reading for a while and read on see no version go
// back and end up with the current state.
func TestStalls(t *testing.T) {
	both(t, func(t *testing.T, p wire.Protocol) {
		r := newRig(t, func(o *xds.Options) { o.SendTimeout = time.Hour })
		e := r.envoy(p, node(1))
		defer e.Disconnect()
		for i := range 200 {
			r.mesh.Set(svc("foo.x", i/20, fmt.Sprintf("10.0.0.%d", i%250)), svc(fmt.Sprintf("s%d.x", i%7), i/50, "10.0.1.9"))
			if i%13 == 0 {
				synctest.Wait()
			}
		}
		time.Sleep(5 * time.Second)
		r.converged(1, e)
	})
}

// TestManyNames: names that nobody holds any more are forgotten, and streams follow.
func TestManyNames(t *testing.T) {
	bubble(t, func(t *testing.T) {
		reg := prometheus.NewRegistry()
		r := newRig(t, func(o *xds.Options) { o.Registerer = reg })
		e := r.envoy(wire.Delta, node(1))
		defer e.Disconnect()
		for round := range 12 {
			var all []xdstest.Service
			for i := range 1000 {
				all = append(all, svc(fmt.Sprintf("r%d-%d.x", round, i), 0, fmt.Sprintf("10.1.%d.%d", i/250, i%250)))
			}
			r.mesh.Set(all...)
			synctest.Wait()
			r.mesh.Delete(all...)
			synctest.Wait()
			time.Sleep(2 * time.Second)
		}
		r.mesh.Set(svc("foo.x", 0, "10.0.0.1"))
		r.converged(1, e)
		families, err := reg.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			if n := f.GetMetric()[0].GetGauge().GetValue(); f.GetName() == "isthmus_xds_names" && n > 9000 {
				t.Errorf("%v names of 12 000 are still known", n)
			}
		}
	})
}

// TestGate: listeners wait for new clusters to be processed, but not for ever.
func TestGate(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, func(o *xds.Options) { o.GateWait = 700 * time.Millisecond })
		e := r.envoy(wire.Delta, node(1))
		defer e.Disconnect()
		synctest.Wait()
		e.Hold(gen.ClusterURL)
		e.Hold(gen.EndpointURL)
		r.mesh.Set(svc("foo.x", 0, "10.0.0.1"))
		synctest.Wait()
		if n := len(e.State()[gen.ListenerURL]); n != 0 {
			t.Errorf("%d listeners came before their clusters were processed", n)
		}
		time.Sleep(time.Second)
		r.converged(1, e)
	})
}

// TestMaxAge: a stream ends, with a jitter, and tells the proxy to come again.
func TestMaxAge(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, func(o *xds.Options) { o.MaxAge, o.IntroWait = 10*time.Minute, time.Hour })
		start := time.Now()
		err := r.pipe(wire.Delta).Err()
		if age := time.Since(start); status.Code(err) != codes.Unavailable || age < 8*time.Minute || age > 12*time.Minute {
			t.Error(err, age)
		}
	})
}

// TestMetrics: the names that dashboards read are there.
func TestMetrics(t *testing.T) {
	bubble(t, func(t *testing.T) {
		reg := prometheus.NewRegistry()
		r := newRig(t, func(o *xds.Options) { o.Registerer = reg })
		e := r.envoy(wire.Delta, node(1), func(e *xdstest.Envoy) { e.Fault = picky })
		defer e.Disconnect()
		r.mesh.Set(svc("foo.x", badGeneration+1, "10.0.0.1"))
		synctest.Wait()
		families, err := reg.Gather()
		if err != nil {
			t.Fatal(err)
		}
		have := map[string]bool{}
		for _, f := range families {
			have[f.GetName()] = true
		}
		for _, n := range []string{
			"pilot_xds", "pilot_xds_pushes", "pilot_xds_push_time", "pilot_xds_send_time", "pilot_xds_config_size_bytes",
			"pilot_total_xds_rejects", "pilot_xds_cds_reject", "pilot_total_xds_internal_errors", "pilot_xds_expired_nonce",
			"pilot_xds_write_timeout", "pilot_xds_recv_max", "pilot_proxy_convergence_time", "pilot_proxy_queue_time",
			"isthmus_xds_builds_total", "isthmus_xds_resources_sent_total", "isthmus_xds_classes", "isthmus_xds_memo_bytes",
		} {
			if !have[n] {
				t.Errorf("%s is missing", n)
			}
		}
	})
}
