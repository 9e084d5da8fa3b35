package xds_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/xds"
	"github.com/isthmus-mesh/isthmus/xds/gen"
	"github.com/isthmus-mesh/isthmus/xds/wire"
)

const refusedStreams = "isthmus_xds_refused_streams_total"

// TestRefusedProxiesShow: whoever is refused is counted by its reason, and in the log once in a while with
// the id that it gives.
func TestRefusedProxiesShow(t *testing.T) {
	lost := func(t *testing.T, i int) *corev3.Node {
		return withMetadata(t, i, map[string]any{"CLUSTER_ID": "nowhere"})
	}
	for reason, tt := range map[string]struct {
		node func(t *testing.T, i int) *corev3.Node
		line string
	}{
		"unknown_cluster": {lost, `cluster \"nowhere\", which this hub does not know`},
		"node": {func(t *testing.T, i int) *corev3.Node {
			return withMetadata(t, i, map[string]any{"INSTANCE_IPS": "x"})
		}, `\"x\" is not an IP address`},
	} {
		t.Run(reason, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				reg, log := prometheus.NewRegistry(), &written{}
				r := newRig(t, func(o *xds.Options) {
					o.Registerer, o.Log = reg, log.logger()
					o.KnownClusters = func() []model.ClusterID { return []model.ClusterID{"c1"} }
				})
				for i := range 40 {
					p := r.greet(tt.node(t, i))
					synctest.Wait()
					if p.Err() == nil {
						t.Fatal("it is not refused")
					}
					time.Sleep(time.Second)
				}
				if got := r.series(reg, refusedStreams); got[reason] != 40 || len(got) != 6 {
					t.Errorf("counted: %v", got)
				}
				lines := log.lines("a proxy is refused")
				if len(lines) != 4 || !strings.Contains(lines[0], tt.line) || !strings.Contains(lines[1], node(10).Id) || !strings.Contains(lines[1], "unlogged=9") {
					t.Errorf("logged: %q", lines)
				}
				if extra := log.lines("connected"); len(extra) != 0 {
					t.Errorf("logged: %q", extra)
				}
			})
		})
	}
}

// TestSilentStreamsShow: a stream without a node is refused; one that its client ends first is not.
func TestSilentStreamsShow(t *testing.T) {
	bubble(t, func(t *testing.T) {
		reg, log := prometheus.NewRegistry(), &written{}
		r := newRig(t, func(o *xds.Options) { o.Registerer, o.Log = reg, log.logger() })
		r.pipe(wire.Delta).Close()
		r.pipe(wire.Delta)
		time.Sleep(time.Minute)
		synctest.Wait()
		if got := r.series(reg, refusedStreams); got["silent"] != 1 {
			t.Errorf("counted: %v", got)
		}
		if lines := log.lines("reason=silent"); len(lines) != 1 {
			t.Errorf("logged: %q", lines)
		}
	})
}

// TestGateIsCountedOnly: what a hub that starts sends away is no proxy's fault, and not in the log.
func TestGateIsCountedOnly(t *testing.T) {
	bubble(t, func(t *testing.T) {
		reg, log := prometheus.NewRegistry(), &written{}
		r := newRig(t, func(o *xds.Options) {
			o.Registerer, o.Log, o.Ready = reg, log.logger(), func() bool { return false }
		})
		p := r.pipe(wire.Delta)
		synctest.Wait()
		if got := r.series(reg, refusedStreams); p.Err() == nil || got["not_ready"] != 1 || len(log.lines("")) != 0 {
			t.Errorf("err %v, counted %v, logged %q", p.Err(), got, log.lines(""))
		}
	})
}

// TestDepartureShows: the end of a proxy's stream is in the log with its reason.
func TestDepartureShows(t *testing.T) {
	ends := map[string]struct {
		end  func(r *rig, s *script)
		want string
	}{
		"left": {func(_ *rig, s *script) { s.p.Close() }, `level=INFO msg="proxy disconnected" proxy=%s cluster=c1 after=3s reason="`},
		"broke a rule": {func(_ *rig, s *script) {
			s.send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: "type.googleapis.com/no.such"})
		}, `level=WARN msg="proxy disconnected" proxy=%s cluster=c1 after=3s reason="resource type`},
		"shutdown": {func(r *rig, _ *script) { r.check(r.server.Shutdown(context.Background())) },
			`level=INFO msg="proxy disconnected" proxy=%s cluster=c1 after=3s reason="the hub is shutting down"`},
	}
	for name, tt := range ends {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				log := &written{}
				r := newRig(t, func(o *xds.Options) { o.Log = log.logger() })
				s := r.script()
				defer s.p.Close()
				s.send(&discoveryv3.DeltaDiscoveryRequest{Node: node(1), TypeUrl: gen.EndpointURL, ResourceNamesSubscribe: []string{foo}})
				s.next(true)
				time.Sleep(3 * time.Second)
				tt.end(r, s)
				synctest.Wait()
				if lines := log.lines("proxy disconnected"); len(lines) != 1 || !strings.Contains(lines[0], fmt.Sprintf(tt.want, node(1).Id)) {
					t.Errorf("logged: %q", lines)
				}
			})
		})
	}
}
