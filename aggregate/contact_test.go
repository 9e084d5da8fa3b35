package aggregate_test

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/isthmus-mesh/isthmus/aggregate"
	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/clusters/memory"
	"github.com/isthmus-mesh/isthmus/pushcontext"
)

// A registry that says that it can't sync is not waited for, and says why.
func TestRegistryThatCannotSync(t *testing.T) {
	inBubble(t, aggregate.Options{ConfigCluster: "c1"}, func(h *hub) {
		c1, c2 := kube("c1"), kube("c2")
		refused := memory.New(c2)
		h.Attach(registry(c1, service(c1, "a")))
		h.Attach(refused)
		h.start()
		synctest.Wait()
		if h.Ready() {
			t.Fatal("ready before it said so")
		}
		refused.Status(model.Status{State: model.StateTimeout, Err: "exec plugins are refused"})
		synctest.Wait()
		if s := h.shard(c2); !h.Ready() || s.Status.State != model.StateTimeout || s.Status.Err != "exec plugins are refused" || s.Synced {
			t.Fatalf("ready %v, %+v", h.Ready(), s)
		}
		time.Sleep(time.Hour)
		refused.Replace(state(service(c2, "b")))
		if h.quiet(); h.shard(c2).Status.State != model.StateLive || h.service("b") == nil {
			t.Errorf("it did not join: %+v", h.shard(c2))
		}
	})
}

// As a replacement it leaves what serves alone, and shows.
func TestReplacementThatCannotSync(t *testing.T) {
	inBubble(t, aggregate.Options{ConfigCluster: "c1"}, func(h *hub) {
		c1 := kube("c1")
		h.Attach(registry(c1, service(c1, "a")))
		h.start()
		h.quiet()
		refused := memory.New(c1)
		h.Attach(refused)
		synctest.Wait()
		refused.Status(model.Status{State: model.StateTimeout, Err: "no token"})
		h.quiet()
		if s := h.shard(c1); s.Status.State != model.StateDegraded || s.Status.Err != "replacement: no token" || s.Replacement != "no token" || h.service("a") == nil {
			t.Errorf("%+v", s)
		}
	})
}

// Incident 8: others are given up waiting for, the config cluster's API server is not; what was restored from an
// earlier run counts.
func TestIncident8ConfigClusterIsWaitedFor(t *testing.T) {
	inBubble(t, aggregate.Options{ConfigCluster: "c1"}, func(h *hub) {
		c1, c2 := kube("c1"), kube("c2")
		own := memory.New(c1)
		h.Attach(own)
		h.Attach(memory.New(c2))
		h.start()
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		state1 := func() model.Status {
			i := slices.IndexFunc(h.Shards(), func(s pushcontext.ShardInfo) bool { return s.Key == c1 })
			return h.Shards()[i].Status
		}
		if s := state1(); h.Ready() || s.State != model.StateTimeout {
			t.Fatalf("ready %v, %+v", h.Ready(), s)
		}
		own.Replace(state(service(c1, "a")))
		own.Status(model.Status{State: model.StateStale, Since: time.Now().Add(-time.Hour), Err: "connection refused"})
		h.quiet()
		if s := h.shard(c1); !h.Ready() || s.Status.State != model.StateStale || !s.Synced {
			t.Errorf("ready %v, %+v", h.Ready(), s)
		}
	})
}

// TestIncident9NotAttachedIsNotEmpty: a registry that is expected is waited for before it is attached, however long,
// and then like any other.
func TestIncident9NotAttachedIsNotEmpty(t *testing.T) {
	inBubble(t, aggregate.Options{ConfigCluster: "c1", Expected: []model.ShardKey{kube("c1"), kube("c2")}}, func(h *hub) {
		c1, c2 := kube("c1"), kube("c2")
		h.start()
		h.quiet()
		if h.Ready() {
			t.Fatal("ready with nothing")
		}
		h.Attach(memory.New(c2))
		time.Sleep(10 * time.Minute)
		if h.quiet(); h.Ready() {
			t.Fatal("ready without a registry that is expected")
		}
		own := memory.New(c1)
		h.Attach(own)
		time.Sleep(10 * time.Minute)
		if h.quiet(); h.Ready() {
			t.Fatal("ready without the config cluster")
		}
		own.Replace(state(service(c1, "a")))
		if h.quiet(); !h.Ready() || h.service("a") == nil || h.shard(c2).Status.State != model.StateTimeout {
			t.Errorf("ready %v, %+v", h.Ready(), h.shard(c2))
		}
	})
}

// What was restored is as old as it says: demoted at once if that is too old.
func TestRestoredRegistryIsStaleSince(t *testing.T) {
	for name, tc := range map[string]struct {
		age     time.Duration
		demoted bool
	}{"long ago": {time.Hour, true}, "just now": {time.Minute, false}} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, aggregate.Options{ConfigCluster: "c1"}, func(h *hub) {
				c1, c2 := kube("c1"), kube("c2")
				remote := memory.New(c2)
				h.Attach(registry(c1, service(c1, "a")))
				h.Attach(remote)
				h.start()
				synctest.Wait()
				since := time.Now().Add(-tc.age)
				restored := model.Status{State: model.StateStale, Since: since, Err: "not reached since the hub was started"}
				remote.Restore(state(service(c2, "a"), slice(c2, "a", "a-1", "10.0.0.1")), restored)
				h.quiet()
				if s := h.shard(c2); s.Status.State != model.StateStale || !s.Status.Since.Equal(since) || s.Status.Err != restored.Err {
					t.Errorf("%+v", s)
				}
				if got := slices.Contains(h.service("a").Demoted, c2); got != tc.demoted {
					t.Errorf("demoted %v", got)
				}
				remote.Status(model.Status{State: model.StateSyncing}) // trying is not contact
				time.Sleep(5 * time.Minute)
				if h.quiet(); !slices.Contains(h.service("a").Demoted, c2) || !h.shard(c2).Status.Since.Equal(since) {
					t.Errorf("five minutes later: demoted %v, %+v", h.service("a").Demoted, h.shard(c2))
				}
				remote.Replace(nil)
				if h.quiet(); len(h.service("a").Demoted) > 0 || h.shard(c2).Status.State != model.StateLive {
					t.Errorf("in contact again: %+v", h.shard(c2))
				}
			})
		})
	}
}

// Workloads of one name in several members, and of two kinds in one, are several, and go one by one.
func TestWorkloadsOfOneName(t *testing.T) {
	inBubble(t, aggregate.Options{ConfigCluster: "c1"}, func(h *hub) {
		c1, c2 := kube("c1"), kube("c2")
		labels := model.Labels{"app": "db"}
		db := entry(c1, "db", func(s *model.Service) { s.Selector.Labels = labels })
		pod := func(k model.ShardKey, kind model.WorkloadKind, n int) *model.Workload {
			return workload(k, kind, "db-0", fmt.Sprint("10.0.0.", n), labels)
		}
		r1 := registry(c1, db, pod(c1, model.KindPod, 1), pod(c1, model.KindWorkloadEntry, 2))
		r2 := registry(c2, pod(c2, model.KindPod, 1), pod(c2, model.KindWorkloadEntry, 2))
		h.Attach(r1)
		h.Attach(r2)
		h.start()
		h.quiet()
		wantAddrs(t, h, "db", "c1/10.0.0.1:80", "c2/10.0.0.1:80", "c1/10.0.0.2:80", "c2/10.0.0.2:80")
		r2.Delete(rowOf(pod(c2, model.KindPod, 1)))
		h.quiet()
		wantAddrs(t, h, "db", "c1/10.0.0.1:80", "c1/10.0.0.2:80", "c2/10.0.0.2:80")
		r1.Delete(rowOf(pod(c1, model.KindWorkloadEntry, 2)))
		h.quiet()
		wantAddrs(t, h, "db", "c1/10.0.0.1:80", "c2/10.0.0.2:80")
	})
}
