package workloadgroup_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/clusters/kube"
	"github.com/isthmus-mesh/isthmus/clusters/memory"
	"github.com/isthmus-mesh/isthmus/clusters/workloadgroup"
)

// sink keeps rows.
type sink struct {
	memory.Sink
	closed atomic.Bool // its run has ended
	late   atomic.Int32
}

func (s *sink) Put(events ...model.Event) {
	if s.closed.Load() {
		s.late.Add(1)
	}
	s.Sink.Put(events...)
}

func (s *sink) workloads() (out []*model.Workload) {
	for _, o := range s.Rows() {
		if w, ok := o.(*model.Workload); ok {
			out = append(out, w)
		}
	}
	return out
}

// TestRegistry: entries of a hub without an API server are rows, also for a run that begins later, and for none that has
// ended.
func TestRegistry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reg := workloadgroup.NewRegistry("primary", kube.Converter{TrustDomain: "td"})
		if k := reg.Key().String(); k != "workloadgroup/primary" {
			t.Errorf("the key is %s", k)
		}
		start := func() (*sink, func()) {
			ctx, cancel := context.WithCancel(t.Context())
			s, done := &sink{}, make(chan error, 1)
			go func() { done <- reg.Run(ctx, s) }()
			synctest.Wait()
			return s, func() {
				cancel()
				if err := <-done; !errors.Is(err, context.Canceled) {
					t.Errorf("Run ended with %v", err)
				}
				s.closed.Store(true)
			}
		}
		first, end := start()
		r := run(t, reg, "hub", workloadgroup.Options{})
		defer r.stop()
		p := vm("10.3.0.1")
		r.Connected(p)
		synctest.Wait()
		got := first.workloads()
		if len(got) != 1 {
			t.Fatalf("%d workloads, want 1", len(got))
		}
		w := got[0]
		if w.Name != "legacy-10.3.0.1-dc1" || w.Labels["app"] != "legacy" || w.Labels["version"] != "v2" || w.Health != model.Unhealthy ||
			w.ServiceAccount != "spiffe://td/ns/vms/sa/legacy" || w.Network != "dc1" || w.Address.Cluster != "primary" {
			t.Errorf("the workload is %+v", w)
		}
		r.Health(p, true, "")
		synctest.Wait()
		if got := first.workloads(); len(got) != 1 || got[0].Health != model.Healthy {
			t.Errorf("workloads %+v, want a healthy one", got)
		}
		end()
		second, end := start()
		if n := len(second.workloads()); n != 1 {
			t.Errorf("%d workloads for a later run, want 1", n)
		}
		r.Disconnected(p)
		after(11e9)
		if n := len(second.workloads()); n != 0 {
			t.Errorf("%d workloads are left", n)
		}
		end()
		if first.late.Load()+second.late.Load() > 0 || second.Last().State != model.StateLive {
			t.Errorf("late calls %d %d, state %s", first.late.Load(), second.late.Load(), second.Last().State)
		}
	})
}
