package workloadgroup_test

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/isthmus-mesh/isthmus/clusters/workloadgroup"
)

// TestComesAndGoes is the life of an entry: it is there at once, outlives its proxy for the grace, and then goes.
func TestComesAndGoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShared()
		r := run(t, s, "hub-1", workloadgroup.Options{})
		defer r.stop()
		p := vm("10.3.0.1")
		start := time.Now().UTC()
		r.Connected(p)
		synctest.Wait()
		got := *s.entry(t, "legacy-10.3.0.1-dc1")
		got.Version = ""
		want := workloadgroup.Entry{
			Key: workloadgroup.Key{Namespace: "vms", Name: "legacy-10.3.0.1-dc1"}, Labels: map[string]string{"team": "old"},
			Annotations: map[string]string{
				"note": "x", workloadgroup.AnnotationGroup: "legacy", workloadgroup.AnnotationController: "hub-1",
				workloadgroup.AnnotationConnected: start.Format(time.RFC3339Nano), "proxy.istio.io/health-checks-enabled": "true",
			},
			Spec: &networking.WorkloadEntry{
				Address: "10.3.0.1", Ports: map[string]uint32{"http": 8080}, Labels: map[string]string{"app": "legacy", "version": "v2"},
				Network: "dc1", Locality: "r/z", ServiceAccount: "legacy",
			},
		}
		if d := cmp.Diff(want, got, protocmp.Transform()); d != "" {
			t.Errorf("the entry differs (-want +got):\n%s", d)
		}

		r.Health(p, true, "")
		synctest.Wait()
		if h := s.entry(t, "legacy-10.3.0.1-dc1").Health; h == nil || !h.Healthy {
			t.Errorf("health %v, want healthy", h)
		}
		r.Health(p, false, "503 of /ready")
		synctest.Wait()
		if h := s.entry(t, "legacy-10.3.0.1-dc1").Health; h == nil || h.Healthy || h.Message != "503 of /ready" {
			t.Errorf("health %v, want what the proxy said", h)
		}

		r.Disconnected(p)
		synctest.Wait()
		e := s.entry(t, "legacy-10.3.0.1-dc1")
		if e.Annotations[workloadgroup.AnnotationDisconnected] == "" || e.Health == nil || e.Health.Healthy {
			t.Errorf("nothing says that the proxy has gone: %v %v", e.Annotations, e.Health)
		}
		r.Health(p, true, "") // a late word of the stream that has ended
		after(9 * time.Second)
		s.entry(t, "legacy-10.3.0.1-dc1")
		after(2 * time.Second)
		if left := s.names(); len(left) > 0 {
			t.Errorf("entries %v are left", left)
		}
	})
}

// TestComesBack covers proxies that come again within the grace, and before their old stream ends.
func TestComesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShared()
		r := run(t, s, "hub-1", workloadgroup.Options{})
		defer r.stop()
		old, next, third := vm("10.3.0.1"), vm("10.3.0.1"), vm("10.3.0.1")
		r.Connected(old)
		synctest.Wait()
		r.Connected(next)
		r.Disconnected(old)
		after(time.Minute)
		if e := s.entry(t, "legacy-10.3.0.1-dc1"); e.Annotations[workloadgroup.AnnotationDisconnected] != "" {
			t.Error("the end of an old stream counts for a proxy that is connected")
		}
		r.Disconnected(next)
		after(8 * time.Second)
		r.Connected(third)
		after(time.Minute)
		if e := s.entry(t, "legacy-10.3.0.1-dc1"); e.Annotations[workloadgroup.AnnotationDisconnected] != "" {
			t.Error("it is noted as gone, and is there")
		}
	})
}

// TestGroupComesLater: until there is the group, there is no entry; a changed group changes its entries.
func TestGroupComesLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShared()
		var group *networking.WorkloadGroup
		var mu sync.Mutex
		r := run(t, s, "hub", workloadgroup.Options{Group: func(string, string) *networking.WorkloadGroup {
			mu.Lock()
			defer mu.Unlock()
			return group
		}})
		defer r.stop()
		set := func(g *networking.WorkloadGroup) {
			mu.Lock()
			group = g
			mu.Unlock()
			r.GroupsChanged()
			synctest.Wait()
		}
		r.Connected(vm("10.3.0.1"))
		after(5 * time.Second)
		if n := s.names(); len(n) > 0 {
			t.Fatalf("entries %v of a group that is not there", n)
		}
		set(legacy)
		if e := s.entry(t, "legacy-10.3.0.1-dc1"); e.Spec.Ports["http"] != 8080 {
			t.Errorf("ports %v", e.Spec.Ports)
		}
		set(&networking.WorkloadGroup{Template: &networking.WorkloadEntry{Ports: map[string]uint32{"http": 9090}}})
		if e := s.entry(t, "legacy-10.3.0.1-dc1"); e.Spec.Ports["http"] != 9090 {
			t.Errorf("ports %v after the group has changed", e.Spec.Ports)
		}
		before := s.written()
		r.GroupsChanged()
		after(time.Second)
		if n := s.written() - before; n > 0 {
			t.Errorf("%d writes though nothing has changed", n)
		}
	})
}

// TestEntriesOfOthers: an entry that is not of a group is nobody's to take or remove; a proxy that names one reports its
// health.
func TestEntriesOfOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShared()
		own := workloadgroup.Key{Namespace: "vms", Name: "legacy-10.3.0.1-dc1"}
		s.entries[own] = &workloadgroup.Entry{Key: own, Spec: &networking.WorkloadEntry{Address: "10.9.9.9"}, Version: "7"}
		r := run(t, s, "hub", workloadgroup.Options{})
		defer r.stop()
		p := vm("10.3.0.1")
		r.Connected(p)
		after(5 * time.Second)
		r.Disconnected(p)
		after(time.Minute)
		if e := s.entry(t, own.Name); e.Version != "7" {
			t.Errorf("somebody's entry was written: %v", e)
		}
		named := &workloadgroup.Proxy{ID: "p", Entry: own.Name, Namespace: "vms"}
		r.Connected(named)
		r.Health(named, true, "")
		synctest.Wait()
		if e := s.entry(t, own.Name); e.Health == nil || !e.Health.Healthy || e.Spec.Address != "10.9.9.9" {
			t.Errorf("the entry is %v", e)
		}
		r.Disconnected(named)
		after(time.Minute)
		if e := s.entry(t, own.Name); e.Annotations[workloadgroup.AnnotationDisconnected] == "" {
			t.Error("nothing says that the proxy of the entry has gone")
		}
	})
}

// TestFailures: what can't be written is tried again, later and later; a conflict soon.
func TestFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShared()
		var tries atomic.Int32
		s.fail = func(op string) error {
			if op != "put" {
				return nil
			}
			switch n := tries.Add(1); {
			case n == 1:
				return workloadgroup.ErrConflict
			case n <= 4:
				return errors.New("the API server is away")
			}
			return nil
		}
		r := run(t, s, "hub", workloadgroup.Options{})
		defer r.stop()
		r.Connected(vm("10.3.0.1"))
		after(5 * time.Second)
		if n := tries.Load(); n != 4 {
			t.Errorf("%d tries in the first 5 s, want 4", n)
		}
		after(10 * time.Second)
		s.entry(t, "legacy-10.3.0.1-dc1")
	})
}

// TestNames: names of entries are names to Kubernetes, whatever proxies say.
func TestNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShared()
		r := run(t, s, "hub", workloadgroup.Options{Group: func(string, string) *networking.WorkloadGroup { return legacy }})
		defer r.stop()
		long := vm("10.3.0.9")
		long.Group = fmt.Sprintf("%0300d", 1)
		odd := vm("fd00::1")
		odd.Group, odd.Network = "A/b", "n_1"
		r.Connected(long)
		r.Connected(odd)
		synctest.Wait()
		s.entry(t, "a-b-fd00--1-n-1")
		for _, n := range s.names() {
			if len(n) > len("vms/")+253 {
				t.Errorf("%d bytes are too many for a name", len(n))
			}
		}
	})
}
