package xds_test

import (
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/isthmus-mesh/isthmus/pushcontext"
	"github.com/isthmus-mesh/isthmus/xds"
	"github.com/isthmus-mesh/isthmus/xds/gen"
	"github.com/isthmus-mesh/isthmus/xds/wire"
	"github.com/isthmus-mesh/isthmus/xds/xdstest"
)

// broken is the far end of a pipe whose parts panic.
type broken struct {
	*xdstest.PipeEnd
	sends, receives bool
}

func (b broken) SendMsg(m any) error {
	if b.sends {
		panic("told to panic while sending")
	}
	return b.PipeEnd.SendMsg(m)
}

func (b broken) RecvMsg(m any) error {
	if b.receives {
		panic("told to panic while receiving")
	}
	return b.PipeEnd.RecvMsg(m)
}

// brittle does not know what it is made from, once it is told so.
type brittle struct {
	gen.Generator
	breaks *atomic.Bool
}

func (b brittle) Kinds() []pushcontext.ViewKind {
	if b.breaks.Load() {
		panic("told to panic for kinds")
	}
	return b.Generator.Kinds()
}

// TestPanicCostsOneStream: whatever part of a stream panics, that stream ends with Internal; it is
// counted and logged, and others are served as before.
func TestPanicCostsOneStream(t *testing.T) {
	for name, part := range map[string]func(broken) broken{
		"sending":   func(b broken) broken { b.sends = true; return b },
		"receiving": func(b broken) broken { b.receives = true; return b },
	} {
		t.Run(name, func(t *testing.T) {
			both(t, func(t *testing.T, p wire.Protocol) {
				reg, log := prometheus.NewRegistry(), &written{}
				r := newRig(t, func(o *xds.Options) { o.Registerer, o.Log = reg, log.logger() })
				r.mesh.Set(svc("foo.x", 0, "10.0.0.1"))
				e := r.envoy(p, node(1))
				defer e.Disconnect()
				for range 5 {
					x := xdstest.NewPipe(t.Context(), wire.Delta, func(p wire.Protocol, end *xdstest.PipeEnd) error {
						return r.server.Serve(p, part(broken{PipeEnd: end}))
					})
					r.check(x.Send(&discoveryv3.DeltaDiscoveryRequest{Node: node(2), TypeUrl: gen.ClusterURL}))
					if err := x.Err(); status.Code(err) != codes.Internal {
						t.Error(err)
					}
				}
				r.panicked(reg, log, 5, "while "+name)
				r.mesh.Set(svc("foo.x", 0, "10.0.0.2"))
				r.converged(1, e)
			})
		})
	}
}

func (r *rig) panicked(reg prometheus.Gatherer, log *written, n float64, what string) {
	r.Helper()
	synctest.Wait()
	if got := r.series(reg, "isthmus_xds_stream_panics_total")[""]; got != n {
		r.Errorf("%v panics are counted, want %v", got, n)
	}
	if got := log.lines("panic: a stream is closed"); len(got) != 1 || !strings.Contains(got[0], what) || !strings.Contains(got[0], "contain") {
		r.Errorf("log: %q", got)
	}
	if n := len(r.server.Connections()); n != 1 {
		r.Errorf("%d streams are left, want 1", n)
	}
}

// TestPanicWhileSubscribing: a stream that fails while it enters and once more while it leaves gives
// back what it has: others come and go.
func TestPanicWhileSubscribing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		reg, log, breaks := prometheus.NewRegistry(), &written{}, &atomic.Bool{}
		r := newRig(t, func(o *xds.Options) {
			o.Registerer, o.Log = reg, log.logger()
			for i, g := range o.Generators {
				o.Generators[i] = brittle{g, breaks}
			}
		})
		r.mesh.Set(svc("foo.x", 0, "10.0.0.1"))
		e := r.envoy(wire.Delta, node(1))
		defer e.Disconnect()
		r.converged(1, e)
		breaks.Store(true)
		x := r.pipe(wire.Delta)
		r.check(x.Send(&discoveryv3.DeltaDiscoveryRequest{Node: node(2), TypeUrl: gen.ClusterURL}))
		if err := x.Err(); status.Code(err) != codes.Internal {
			t.Error(err)
		}
		r.panicked(reg, log, 2, "for kinds")
		if got := r.series(reg, "pilot_xds")[""]; got != 1 {
			t.Errorf("%v proxies are counted", got)
		}
		breaks.Store(false)
		again := r.envoy(wire.Delta, node(2))
		defer again.Disconnect()
		r.mesh.Set(svc("foo.x", 0, "10.0.0.2"))
		r.converged(1, e)
		r.converged(2, again)
	})
}

// TestReceivingEnds: the end of the peer's requests ends the stream without a fault.
func TestReceivingEnds(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		x := newSink(r.server, wire.Delta)
		x.cancel()
		if err := <-x.done; err != nil && err != io.EOF && status.Code(err) == codes.Internal {
			t.Error(err)
		}
	})
}
