package xds_test

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/isthmus-mesh/isthmus/xds"
	"github.com/isthmus-mesh/isthmus/xds/gen"
	"github.com/isthmus-mesh/isthmus/xds/wire"
	"github.com/isthmus-mesh/isthmus/xds/xdstest"
)

// script drives one delta stream message by message.
type script struct {
	*rig
	p *xdstest.Pipe
}

func (r *rig) script() *script { return &script{r, r.pipe(wire.Delta)} }

func (s *script) send(m *discoveryv3.DeltaDiscoveryRequest) {
	s.Helper()
	if err := s.p.Send(m); err != nil {
		s.Fatal(err)
	}
}

// next waits for a response, says which resources it has, and ACKs it if told to.
func (s *script) next(ack bool) (m *discoveryv3.DeltaDiscoveryResponse, names []string) {
	s.Helper()
	m = &discoveryv3.DeltaDiscoveryResponse{}
	if err := s.p.Recv(m); err != nil {
		s.Fatal(err)
	}
	for _, r := range m.Resources {
		names = append(names, r.Name)
	}
	slices.Sort(names)
	if ack {
		s.send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: m.TypeUrl, ResponseNonce: m.Nonce})
	}
	return m, names
}

func (s *script) expect(url string, names, removed []string) *discoveryv3.DeltaDiscoveryResponse {
	s.Helper()
	m, got := s.next(true)
	gone := slices.Sorted(slices.Values(m.RemovedResources))
	if m.TypeUrl != url || !slices.Equal(got, names) || !slices.Equal(gone, removed) {
		s.Fatalf("got %s %q removed %q, want %s %q removed %q", m.TypeUrl, got, gone, url, names, removed)
	}
	return m
}

// quiet checks that nothing more is sent.
func (s *script) quiet() {
	s.Helper()
	synctest.Wait()
	m := &discoveryv3.DeltaDiscoveryResponse{}
	if s.p.TryRecv(m) {
		s.Fatalf("sent %v", m)
	}
}

func svc(host string, generation int, ips ...string) xdstest.Service {
	return xdstest.Service{Host: host, Namespace: "x", Ports: []uint16{80}, Generation: generation, Endpoints: ips, Member: "c1"}
}

const (
	foo = "outbound|80||foo.x"
	bar = "outbound|80||bar.x"
	bh  = "BlackHoleCluster"
)

func bubble(t *testing.T, f func(t *testing.T)) {
	t.Parallel()
	synctest.Test(t, f)
}

// TestIncident78: a name subscribed before its data exists gets an explicit empty answer, and its
// first data later.
func TestIncident78(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newRig(t).script()
		defer s.p.Close()
		s.send(&discoveryv3.DeltaDiscoveryRequest{Node: node(1), TypeUrl: gen.EndpointURL, ResourceNamesSubscribe: []string{foo}})
		m := s.expect(gen.EndpointURL, []string{foo}, nil)
		if strings.Contains(m.String(), "lb_endpoints") {
			t.Fatal(m)
		}
		s.mesh.Set(svc("foo.x", 0, "10.0.0.9"))
		if m := s.expect(gen.EndpointURL, []string{foo}, nil); !strings.Contains(m.String(), "10.0.0.9") {
			t.Fatal(m)
		}
		s.mesh.Delete(svc("foo.x", 0))
		if m := s.expect(gen.EndpointURL, []string{foo}, nil); strings.Contains(m.String(), "lb_endpoints") {
			t.Fatal("the endpoints of a removed service stay", m)
		}
	})
}

// TestIncident80: with an outdated nonce the ACK part is ignored and the subscription change is not.
func TestIncident80(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newRig(t, func(o *xds.Options) { o.InlineHosts = true }).script()
		defer s.p.Close()
		s.mesh.Set(svc("foo.x", 0, "10.0.0.1"), svc("bar.x", 0, "10.0.0.2"))
		s.send(&discoveryv3.DeltaDiscoveryRequest{Node: node(1), TypeUrl: gen.RouteURL, ResourceNamesSubscribe: []string{"80"}})
		first, _ := s.next(true)
		s.mesh.Set(svc("baz.x", 0))
		s.next(false)
		s.send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: gen.RouteURL, ResponseNonce: first.Nonce, ResourceNamesSubscribe: []string{"81"}})
		s.mesh.Set(svc("more.x", 0))
		s.quiet() // the second response is still un-ACKed
		s.send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: gen.RouteURL, ResponseNonce: "2"})
		s.expect(gen.RouteURL, []string{"80"}, []string{"81"})
	})
}

// TestIncident81: what a new service needs comes in order, and removals in the reverse order.
func TestIncident81(t *testing.T) {
	both(t, func(t *testing.T, p wire.Protocol) {
		var order []string
		r := newRig(t)
		e := r.envoy(p, node(1), func(e *xdstest.Envoy) {
			e.Trace = func(line string) {
				if kind, ok := strings.CutPrefix(line, "<- type.googleapis.com/envoy.config."); ok {
					kind, _, _ = strings.Cut(kind, " ")
					order = append(order, kind[strings.LastIndex(kind, ".")+1:])
				}
			}
		})
		defer e.Disconnect()
		r.mesh.Set(svc("other.x", 0))
		r.converged(1, e)
		order = nil
		added := svc("foo.x", 0, "10.0.0.1")
		added.Ports = []uint16{81}
		r.mesh.Set(added)
		r.converged(1, e)
		want := []string{"Cluster", "ClusterLoadAssignment", "Listener", "RouteConfiguration"}
		if p == wire.Delta {
			want = append(want, "VirtualHost")
		}
		if !slices.Equal(order, want) {
			t.Errorf("added in the order %v, want %v", order, want)
		}
		order = nil
		r.mesh.Delete(added)
		r.converged(1, e)
		if slices.Index(order, want[len(want)-1]) > slices.Index(order, "Cluster") {
			t.Errorf("removed in the order %v: a route led to a cluster that was no more", order)
		}
	})
}

// TestIncident75: content made from an old snapshot is never sent after newer content.
func TestIncident75(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		s, late := r.script(), r.script()
		defer s.p.Close()
		defer late.p.Close()
		r.mesh.Set(svc("foo.x", 1))
		s.send(&discoveryv3.DeltaDiscoveryRequest{Node: node(1), TypeUrl: gen.ClusterURL})
		s.expect(gen.ClusterURL, []string{bh, foo}, nil)
		r.mesh.Set(svc("foo.x", 2))
		s.expect(gen.ClusterURL, []string{foo}, nil)
		late.send(&discoveryv3.DeltaDiscoveryRequest{Node: node(2), TypeUrl: gen.ClusterURL})
		if m := late.expect(gen.ClusterURL, []string{bh, foo}, nil); !strings.Contains(m.String(), "seconds:3") {
			t.Error("a proxy that came later got older content", m)
		}
	})
}

// TestIncident76: what was refused is not sent again until it changes; the rest of the response is.
func TestIncident76(t *testing.T) {
	both(t, func(t *testing.T, p wire.Protocol) {
		r := newRig(t)
		e := r.envoy(p, node(1), func(e *xdstest.Envoy) { e.Fault = picky })
		defer e.Disconnect()
		r.mesh.Set(svc("foo.x", 1, "10.0.0.1"), svc("bar.x", badGeneration+1, "10.0.0.2"))
		synctest.Wait()
		e.Settle()
		if have := e.State()[gen.ClusterURL]; have[foo] == "" || have[bar] != "" {
			t.Fatal(have)
		}
		if p := r.server.Proxies()[0]; !slices.Equal(p.Types[0].Rejected, []string{bar}) {
			t.Errorf("the status shows %+v", p.Types[0])
		}
		n := e.Refusals()
		r.mesh.SetMesh() // everything is made anew and stays the same
		synctest.Wait()
		if e.Refusals() != n {
			t.Error("what was refused was sent again")
		}
		r.mesh.Set(svc("bar.x", 1, "10.0.0.2"))
		r.converged(1, e)
		r.mesh.Set(svc("bar.x", badGeneration+1, "10.0.0.2"))
		synctest.Wait()
		if p := r.server.Proxies()[0]; p.Types[0].Nack == nil {
			t.Errorf("the status shows no refusal: %+v", p.Types[0])
		}
		r.mesh.Delete(svc("bar.x", 1))
		r.converged(1, e)
		if p := r.server.Proxies()[0]; p.Types[0].Nack != nil || len(p.Types[0].Rejected) > 0 {
			t.Errorf("what is gone is still refused: %+v", p.Types[0])
		}
	})
}

// TestIncident94: many streams at once are all served, with bounded concurrent generation; beyond
// what admission allows they are told to come again.
func TestIncident94(t *testing.T) {
	t.Run("all served", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			r := newRig(t, func(o *xds.Options) { o.Workers = 2 })
			r.mesh.Set(svc("foo.x", 0, "10.0.0.1"))
			for i := range 500 {
				e := r.envoy(wire.Delta, node(i))
				defer e.Disconnect()
				defer func() {
					if len(e.State()[gen.RouteURL]) != 1 {
						t.Errorf("proxy %d got nothing", i)
					}
				}()
			}
			synctest.Wait()
			if c := r.server.Counters(); c.Types["eds"].Built != 1 {
				t.Errorf("built %d times", c.Types["eds"].Built)
			}
		})
	})
	t.Run("refused", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			r := newRig(t, func(o *xds.Options) { o.StreamRate, o.StreamBurst = 2, 1 })
			var refused atomic.Int32
			var pipes []*xdstest.Pipe
			for range 10 {
				p := xdstest.NewPipe(t.Context(), wire.Delta, func(p wire.Protocol, e *xdstest.PipeEnd) error {
					err := r.server.Serve(p, e)
					if status.Code(err) == codes.ResourceExhausted {
						refused.Add(1)
					}
					return err
				})
				pipes = append(pipes, p)
			}
			synctest.Wait()
			time.Sleep(2 * time.Second)
			if n := refused.Load(); n != 7 { // one at once, two within the second that a stream may queue
				t.Errorf("%d refused", n)
			}
			for _, p := range pipes {
				p.Close()
			}
		})
	})
}

// TestSlowPeer: a proxy that does not read loses its stream and keeps nobody else waiting.
func TestSlowPeer(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		p := r.pipe(wire.Delta)
		if err := p.Send(&discoveryv3.DeltaDiscoveryRequest{Node: node(1), TypeUrl: gen.ClusterURL}); err != nil {
			t.Fatal(err)
		}
		e := r.envoy(wire.Delta, node(2))
		defer e.Disconnect()
		r.mesh.Set(svc("foo.x", 0, "10.0.0.1"))
		r.converged(2, e)
		start := time.Now()
		if err := p.Err(); status.Code(err) != codes.DeadlineExceeded || time.Since(start) > 21*time.Second {
			t.Error(err, time.Since(start))
		}
	})
}

// TestShutdownWhileConnecting: however many streams were about to be served, all of them end.
func TestShutdownWhileConnecting(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	var all []*sink
	for range 100 {
		all = append(all, newSink(r.server, wire.Delta))
	}
	r.check(r.server.Shutdown(t.Context()))
	for _, x := range all {
		if err := <-x.done; status.Code(err) != codes.Unavailable {
			t.Error(err)
		}
		x.cancel()
	}
}

func TestShutdown(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		p := r.pipe(wire.Delta)
		if err := p.Send(&discoveryv3.DeltaDiscoveryRequest{Node: node(1), TypeUrl: gen.ClusterURL}); err != nil {
			t.Fatal(err)
		}
		if err := p.Recv(&discoveryv3.DeltaDiscoveryResponse{}); err != nil {
			t.Fatal(err)
		}
		if err := r.server.Shutdown(context.Background()); err != nil {
			t.Fatal(err)
		}
		if err := p.Err(); status.Code(err) != codes.Unavailable {
			t.Error(err)
		}
		if err := r.pipe(wire.Delta).Err(); status.Code(err) != codes.Unavailable {
			t.Error(err)
		}
	})
}
