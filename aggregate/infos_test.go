package aggregate_test

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/isthmus-mesh/isthmus/aggregate"
	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/clusters/memory"
	"github.com/isthmus-mesh/isthmus/pushcontext"
)

func states(h *hub) []string {
	out := []string{}
	for _, s := range h.Shards() {
		out = append(out, fmt.Sprintf("%s %s synced=%v rows=%d", s.Key, s.Status.State, s.Synced, s.Rows[model.RowService]))
	}
	return out
}

// What each registry is waited for can be seen before there is a snapshot, and is what the snapshot
// says later.
func TestShardsBeforeTheGate(t *testing.T) {
	inBubble(t, aggregate.Options{}, func(h *hub) {
		c1, c2 := kube("c1"), kube("c2")
		if h.Shards() != nil {
			t.Error("shards before anything was attached")
		}
		late := memory.New(c2)
		h.Attach(late)
		h.Attach(registry(c1, service(c1, "a")))
		h.start()
		check := func(when string, want ...string) {
			t.Helper()
			synctest.Wait()
			if d := cmp.Diff(want, states(h)); d != "" {
				t.Errorf("%s (-want +got):\n%s", when, d)
			}
		}
		check("one is late", "kubernetes/c1 live synced=true rows=1", "kubernetes/c2 syncing synced=false rows=0")
		late.Status(model.Status{State: model.StateStale, Err: "refused"})
		check("it fails", "kubernetes/c1 live synced=true rows=1", "kubernetes/c2 stale synced=false rows=0")
		if h.Current() != nil || h.Ready() {
			t.Fatal("the gate is open")
		}
		late.Replace(state(service(c2, "a"), service(c2, "b")))
		check("it came", "kubernetes/c1 live synced=true rows=1", "kubernetes/c2 live synced=true rows=2")
		if !h.Ready() {
			t.Fatal("the gate is closed")
		}
		h.Detach(c2)
		h.quiet()
		check("it went", "kubernetes/c1 live synced=true rows=1")
		if !slices.EqualFunc(h.Shards(), h.Current().Shards, func(a, b pushcontext.ShardInfo) bool { return a.Key == b.Key && a.Rows == b.Rows }) {
			t.Errorf("snapshot %v, shards %v", h.Current().Shards, h.Shards())
		}
	})
}

func noService(h *hub) map[string][]string {
	out := map[string][]string{}
	for k, list := range h.Current().NoService {
		for _, l := range list {
			out[k.String()] = append(out[k.String()], fmt.Sprintf("%s %s %s", l.Source.Shard, l.Addr, l.Reason))
		}
	}
	return out
}

// Endpoints whose service does not exist, yet or any more, are listed and counted until it does.
func TestEndpointsWithoutService(t *testing.T) {
	inBubble(t, aggregate.Options{}, func(h *hub) {
		c1, c2 := kube("c1"), kube("c2")
		svc := service(c1, "a")
		r := registry(c1, slice(c1, "a", "s", "10.0.0.1", "10.0.0.2"))
		h.Attach(r)
		h.Attach(registry(c2))
		h.start()
		h.quiet()
		check := func(when string, n int, want map[string][]string) {
			t.Helper()
			if d := cmp.Diff(want, noService(h)); d != "" {
				t.Errorf("%s (-want +got):\n%s", when, d)
			}
			if got := h.shard(c1).NoService; got != n {
				t.Errorf("%s: %d counted, want %d", when, got, n)
			}
		}
		lost := map[string][]string{"ns/" + host("a"): {"kubernetes/c1 10.0.0.1:8080 NoService", "kubernetes/c1 10.0.0.2:8080 NoService"}}
		check("at the start", 2, lost)
		r.Put(keyOf(svc), svc)
		h.quiet()
		check("with the service", 0, map[string][]string{})
		wantAddrs(t, h, "a", "c1/10.0.0.1:8080", "c1/10.0.0.2:8080")
		r.Delete(rowOf(svc))
		h.quiet()
		check("without it again", 2, lost)
		v := h.Current().Version
		again := slice(c1, "a", "s", "10.0.0.1", "10.0.0.2")
		again.Source.Revision = "9"
		r.Put(keyOf(again), again)
		if now := h.quiet().Version; now != v {
			t.Errorf("equal content made version %d after %d", now, v)
		}
		h.Detach(c1)
		h.quiet()
		if len(h.Current().NoService) != 0 || h.Indexed() != 0 {
			t.Errorf("after detach: %v", h.Current().NoService)
		}
	})
}

// A member's endpoints of a host that only others keep to themselves belong to no service.
func TestEndpointsBesideClusterLocalService(t *testing.T) {
	inBubble(t, aggregate.Options{}, func(h *hub) {
		c1, c2 := kube("c1"), kube("c2")
		h.Attach(registry(c1, service(c1, "a", func(s *model.Service) { s.ClusterLocal = true }), slice(c1, "a", "s", "10.0.0.1")))
		h.Attach(registry(c2, slice(c2, "a", "s", "10.0.0.2")))
		h.start()
		h.quiet()
		want := map[string][]string{"ns/" + host("a"): {"kubernetes/c2 10.0.0.2:8080 NoService"}}
		if d := cmp.Diff(want, noService(h)); d != "" || h.shard(c2).NoService != 1 {
			t.Errorf("%d counted (-want +got):\n%s", h.shard(c2).NoService, d)
		}
	})
}
