package aggregate_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/isthmus-mesh/isthmus/aggregate"
	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/clusters/memory"
	"github.com/isthmus-mesh/isthmus/pushcontext"
)

func wantAddrs(t *testing.T, h *hub, svc string, want ...string) {
	t.Helper()
	if want == nil {
		want = []string{}
	}
	if d := cmp.Diff(want, addrs(h.service(svc), "http")); d != "" {
		t.Errorf("endpoints of %s (-want +got):\n%s", svc, d)
	}
}

func (h *hub) shard(k model.ShardKey) pushcontext.ShardInfo {
	for _, s := range h.Current().Shards {
		if s.Key == k {
			return s
		}
	}
	return pushcontext.ShardInfo{}
}

// Incidents 6 and 47: two members hold one service: union while both are attached, and only the
// other's when one goes, at once.
func TestUnionAndDetachIncidents6And47(t *testing.T) {
	inBubble(t, aggregate.Options{}, func(h *hub) {
		c1, c2 := kube("c1"), kube("c2")
		h.Attach(registry(c1, service(c1, "a"), slice(c1, "a", "a-1", "10.0.0.1")))
		h.Attach(registry(c2, service(c2, "a"), slice(c2, "a", "a-1", "10.0.0.1"), service(c2, "only")))
		h.start()
		h.quiet()
		wantAddrs(t, h, "a", "c1/10.0.0.1:8080", "c2/10.0.0.1:8080")
		h.Detach(c2)
		synctest.Wait() // no time passes
		wantAddrs(t, h, "a", "c1/10.0.0.1:8080")
		if h.service("only") != nil || len(h.Current().Shards) != 1 {
			t.Error("the detached member is still seen")
		}
	})
}

// Incidents 8 to 10: a member that hangs delays readiness by its own timeout only, which counts from
// when it was attached; not synced is another state than empty.
func TestServingGateIncidents8To10(t *testing.T) {
	inBubble(t, aggregate.Options{}, func(h *hub) {
		c1, c2, c3 := kube("c1"), kube("c2"), kube("c3")
		slow, later := memory.New(c2), memory.New(c3)
		h.Attach(registry(c1, service(c1, "a")))
		h.Attach(slow)
		h.start()
		h.quiet()
		if h.Ready() || h.Current() != nil {
			t.Fatal("ready before every registry has synced")
		}
		time.Sleep(30 * time.Second)
		h.quiet()
		if !h.Ready() || h.shard(c2).Status.State != model.StateTimeout || h.shard(c2).Synced {
			t.Fatalf("after the timeout: ready %v, shard %+v", h.Ready(), h.shard(c2))
		}
		<-h.ReadyCh()
		h.Attach(later)
		if h.quiet(); h.shard(c3).Status.State != model.StateSyncing || h.shard(c3).Synced {
			t.Errorf("attached after the start-up timeout: %+v", h.shard(c3))
		}
		slow.Replace(state(service(c2, "b")))
		if h.quiet(); h.service("b") == nil || h.shard(c2).Status.State != model.StateLive || !h.shard(c2).Synced {
			t.Errorf("late member did not join: %+v", h.shard(c2))
		}
		time.Sleep(time.Minute)
		if h.quiet(); h.shard(c2).Status.State != model.StateLive || h.shard(c3).Status.State != model.StateTimeout {
			t.Errorf("much later: %+v, %+v", h.shard(c2), h.shard(c3))
		}
	})
}

func TestGateOpensWithFirstSync(t *testing.T) {
	inBubble(t, aggregate.Options{}, func(h *hub) {
		c1 := kube("c1")
		r := memory.New(c1)
		h.Attach(r)
		h.start()
		synctest.Wait()
		if h.Ready() {
			t.Fatal("ready at once")
		}
		r.Replace(state(service(c1, "a"), slice(c1, "a", "s", "10.0.0.1")))
		synctest.Wait()
		if !h.Ready() || h.Current().Version != 1 || h.Current().Mesh == nil {
			t.Fatalf("ready %v, snapshot %+v", h.Ready(), h.Current())
		}
		wantAddrs(t, h, "a", "c1/10.0.0.1:8080")
	})
}

// TestAttachedAgain: attaching the registry in force again ends its replacement; attaching one that was replaced makes
// it the replacement.
func TestAttachedAgain(t *testing.T) {
	inBubble(t, aggregate.Options{}, func(h *hub) {
		c1 := kube("c1")
		old, next := registry(c1, service(c1, "a"), slice(c1, "a", "s", "10.0.0.1")), memory.New(c1)
		h.Attach(old)
		h.start()
		h.quiet()
		for range 2 {
			h.Attach(next)
			h.quiet()
			h.Attach(old)
			h.Attach(old) // once more does not matter
			h.quiet()
			if old.Started() != 1 || old.Running() != 1 || next.Running() != 0 {
				t.Errorf("old started %d times, runs: old %d, new %d", old.Started(), old.Running(), next.Running())
			}
		}
		next.Replace(state(service(c1, "a"), slice(c1, "a", "s", "10.0.0.2")))
		h.Attach(next)
		h.quiet()
		wantAddrs(t, h, "a", "c1/10.0.0.2:8080")
		h.Attach(old)
		h.quiet()
		wantAddrs(t, h, "a", "c1/10.0.0.1:8080")
		if old.Running() != 1 || next.Running() != 0 {
			t.Errorf("runs: old %d, new %d", old.Running(), next.Running())
		}
	})
}

// Incidents 1 and 4: the credential is rotated. Nothing is missing in any version, and only the
// difference is a change.
func TestSwapIncidents1And4(t *testing.T) {
	inBubble(t, aggregate.Options{}, func(h *hub) {
		c1 := kube("c1")
		rows := []model.Object{service(c1, "a"), slice(c1, "a", "s", "10.0.0.1"), service(c1, "gone"), service(c1, "same"), slice(c1, "same", "t", "10.0.0.5")}
		old, next := registry(c1, rows...), memory.New(c1)
		h.Attach(old)
		h.start()
		h.quiet()
		same := h.service("same")
		h.Attach(next)
		time.Sleep(10 * time.Minute) // listing a large member takes long: the old one serves
		h.quiet()
		wantAddrs(t, h, "a", "c1/10.0.0.1:8080")
		from := len(h.deltas)
		next.Replace(state(service(c1, "a"), slice(c1, "a", "s", "10.0.0.1", "10.0.0.2"), service(c1, "same"), slice(c1, "same", "t", "10.0.0.5")))
		h.quiet()
		wantAddrs(t, h, "a", "c1/10.0.0.1:8080", "c1/10.0.0.2:8080")
		if old.Running() != 0 || next.Running() != 1 {
			t.Errorf("runs: old %d, new %d", old.Running(), next.Running())
		}
		for _, d := range h.deltas[from:] {
			if d.Empty() {
				continue
			}
			if diff := cmp.Diff([][]string{{host("a")}, {host("gone")}}, [][]string{d.Endpoints, d.Shape}); diff != "" {
				t.Errorf("delta of the swap: %s", diff)
			}
		}
		if h.service("same") != same {
			t.Error("a service that the swap does not change has a new view")
		}
	})
}

// Incident 2: after the swap nothing of the old instance runs or is heard.
func TestOldInstanceEndsIncident2(t *testing.T) {
	inBubble(t, aggregate.Options{}, func(h *hub) {
		c1 := kube("c1")
		old, next := registry(c1, service(c1, "a")), registry(c1, service(c1, "a"))
		h.Attach(old)
		h.start()
		h.quiet()
		h.Attach(next)
		h.quiet()
		e := slice(c1, "a", "s", "10.0.0.9")
		old.Late(model.Event{Row: rowOf(e), Obj: e})
		h.quiet()
		wantAddrs(t, h, "a")
		e = slice(c1, "a", "s", "10.0.0.1")
		next.Put(keyOf(e), e)
		h.quiet()
		wantAddrs(t, h, "a", "c1/10.0.0.1:8080")
		if old.Running() != 0 {
			t.Error("the old instance still runs")
		}
	})
}

// Contract 2.1 #5, #14, #15 and #17: bad rotations. The healthy instance serves, the fault is seen, a
// failed middle is dropped, and detaching ends every instance.
func TestBadRotations(t *testing.T) {
	inBubble(t, aggregate.Options{}, func(h *hub) {
		c1 := kube("c1")
		healthy := registry(c1, service(c1, "a"), slice(c1, "a", "s", "10.0.0.1"))
		silent, failing := memory.New(c1), memory.New(c1)
		h.Attach(healthy)
		h.start()
		h.quiet()
		h.Attach(silent)
		if h.quiet(); h.shard(c1).Replacement != "syncing" || h.shard(c1).Status.State != model.StateLive {
			t.Errorf("replacement at work: %+v", h.shard(c1))
		}
		time.Sleep(time.Minute)
		if h.quiet(); h.shard(c1).Status.State != model.StateDegraded || h.shard(c1).Replacement == "" {
			t.Errorf("replacement overdue: %+v", h.shard(c1))
		}
		h.Attach(failing)
		h.quiet()
		failing.Fail(errors.New("401 unauthorized"))
		if h.quiet(); h.shard(c1).Status.State != model.StateDegraded || !strings.Contains(h.shard(c1).Replacement, "401") {
			t.Errorf("replacement fails: %+v", h.shard(c1))
		}
		if silent.Running() != 0 {
			t.Error("the failed middle instance still runs")
		}
		wantAddrs(t, h, "a", "c1/10.0.0.1:8080")
		h.Attach(memory.New(c1))
		h.quiet()
		h.Detach(c1)
		if h.quiet(); healthy.Running()+silent.Running()+failing.Running() != 0 || h.service("a") != nil || len(h.Current().Shards) != 0 {
			t.Error("detaching left an instance or its data")
		}
		if n := h.Mailboxes(); n != 0 {
			t.Errorf("%d mailboxes are still open to late writers", n)
		}
	})
}

// A replacement that works at once is no new contact, one that did not work for a while ends a fault.
func TestReplacementIsNoNewContact(t *testing.T) {
	inBubble(t, aggregate.Options{}, func(h *hub) {
		c1 := kube("c1")
		h.Attach(registry(c1, service(c1, "a")))
		h.start()
		h.quiet()
		since := h.shard(c1).Status.Since
		for _, statusFirst := range []bool{false, true} {
			time.Sleep(time.Minute)
			next := memory.New(c1)
			h.Attach(next)
			if h.quiet(); statusFirst {
				next.Status(model.Status{State: model.StateLive})
				h.quiet()
			}
			next.Replace(state(service(c1, "b")))
			next.Status(model.Status{State: model.StateLive, Since: time.Now()})
			if h.quiet(); h.shard(c1).Status.State != model.StateLive || !h.shard(c1).Status.Since.Equal(since) {
				t.Errorf("live since %+v, want %s", h.shard(c1).Status, since)
			}
		}
		next := memory.New(c1)
		next.Fail(errors.New("refused"))
		h.Attach(next)
		h.quiet()
		next.Replace(state(service(c1, "c")))
		time.Sleep(2 * time.Minute)
		if h.quiet(); h.service("c") == nil || !h.shard(c1).Status.Since.After(since) {
			t.Errorf("after a fault: %+v", h.shard(c1).Status)
		}
	})
}

// A replacement that recovers takes over.
func TestReplacementRecovers(t *testing.T) {
	inBubble(t, aggregate.Options{}, func(h *hub) {
		c1 := kube("c1")
		h.Attach(registry(c1, service(c1, "a")))
		h.start()
		h.quiet()
		next := memory.New(c1)
		next.Fail(errors.New("refused"))
		h.Attach(next)
		h.quiet()
		next.Replace(state(service(c1, "b")))
		time.Sleep(2 * time.Minute)
		if h.quiet(); h.service("b") == nil || h.service("a") != nil || h.shard(c1).Replacement != "" || h.shard(c1).Status.State != model.StateLive {
			t.Errorf("shard %+v", h.shard(c1))
		}
	})
}

// A registry may say itself how long it may be stale.
func TestStaleAfterOfARegistry(t *testing.T) {
	inBubble(t, aggregate.Options{}, func(h *hub) {
		c1 := kube("c1")
		r := registry(c1, service(c1, "a"), slice(c1, "a", "s", "10.0.0.1"))
		h.Attach(r)
		h.start()
		h.quiet()
		r.Status(model.Status{State: model.StateStale, Err: "no route to host", StaleAfter: time.Minute})
		for after, want := range []int{0, 1} {
			if h.quiet(); len(h.service("a").Demoted) != want {
				t.Errorf("after %d minutes: demoted %v", after, h.service("a").Demoted)
			}
			time.Sleep(time.Minute)
		}
	})
}

// Incidents 11 and 95: contact is lost: the data stays, staleness is seen, and ends by itself; late
// stale shards are demoted for others.
func TestStaleKeepsDataIncidents11And95(t *testing.T) {
	inBubble(t, aggregate.Options{}, func(h *hub) {
		c1, c2 := kube("c1"), kube("c2")
		r := registry(c1, service(c1, "a"), slice(c1, "a", "s", "10.0.0.1"))
		h.Attach(r)
		h.Attach(registry(c2, service(c2, "a"), slice(c2, "a", "s", "10.0.0.2")))
		h.start()
		before := h.quiet().Version
		r.Status(model.Status{State: model.StateStale, Err: "no route to host"})
		h.quiet()
		if s := h.shard(c1).Status; s.State != model.StateStale || s.Err != "no route to host" || s.Since.IsZero() {
			t.Errorf("status %+v", s)
		}
		for _, d := range h.deltas[before:] {
			if !d.Empty() {
				t.Errorf("a status change woke readers: %+v", d)
			}
		}
		if len(h.deltas) == int(before) {
			t.Error("a status change made no version")
		}
		wantAddrs(t, h, "a", "c1/10.0.0.1:8080", "c2/10.0.0.2:8080")
		r.Status(model.Status{State: model.StateSyncing}) // trying again is not contact
		time.Sleep(5 * time.Minute)
		h.quiet()
		wantAddrs(t, h, "a", "c1/10.0.0.1:8080", "c2/10.0.0.2:8080")
		if d := cmp.Diff([]model.ShardKey{c1}, h.service("a").Demoted); d != "" {
			t.Errorf("demoted: %s", d)
		}
		r.Status(model.Status{State: model.StateLive})
		if h.quiet(); len(h.service("a").Demoted) != 0 || h.shard(c1).Status.State != model.StateLive || h.shard(c1).Status.Err != "" {
			t.Errorf("after recovery: demoted %v, status %+v", h.service("a").Demoted, h.shard(c1).Status)
		}
	})
}

// A registry that gives up or panics runs again with growing pauses; its data stays; others do not
// notice.
func TestFailingRegistryIsRestarted(t *testing.T) {
	inBubble(t, aggregate.Options{}, func(h *hub) {
		c1, c2 := kube("c1"), kube("c2")
		r, other := registry(c1, service(c1, "a"), slice(c1, "a", "s", "10.0.0.1")), registry(c2, service(c2, "b"))
		h.Attach(r)
		h.Attach(other)
		h.start()
		h.quiet()
		for i, fail := range []func(){
			func() { r.Fail(errors.New("gone away")) },
			func() { r.Panic("index out of range"); r.Fail(errors.New("gone away")) },
		} {
			started := r.Started()
			fail()
			synctest.Wait()
			wantAddrs(t, h, "a", "c1/10.0.0.1:8080")
			time.Sleep(time.Minute)
			if h.quiet(); r.Started() <= started || h.shard(c1).Status.State != model.StateLive {
				t.Errorf("failure %d: %d runs, status %+v", i, r.Started(), h.shard(c1).Status)
			}
			wantAddrs(t, h, "a", "c1/10.0.0.1:8080")
		}
		if other.Started() != 1 {
			t.Errorf("the other registry ran %d times", other.Started())
		}
	})
}

// Incident 95: the state is seen while a failing registry is between runs.
func TestFailureIsSeen(t *testing.T) {
	inBubble(t, aggregate.Options{BackoffMin: time.Hour, BackoffMax: time.Hour}, func(h *hub) {
		c1 := kube("c1")
		r := registry(c1, service(c1, "a"))
		h.Attach(r)
		h.start()
		h.quiet()
		r.Fail(errors.New("certificate expired"))
		if h.quiet(); h.shard(c1).Status.State != model.StateStale || h.shard(c1).Status.Err != "certificate expired" || h.service("a") == nil {
			t.Errorf("shard %+v", h.shard(c1))
		}
	})
}

// Incident 7: a member goes in the same window in which another gets a service: neither is lost.
func TestDetachAndNewServiceTogetherIncident7(t *testing.T) {
	inBubble(t, aggregate.Options{}, func(h *hub) {
		c1, c2 := kube("c1"), kube("c2")
		r := registry(c1, service(c1, "a"))
		h.Attach(r)
		h.Attach(registry(c2, service(c2, "b")))
		h.start()
		h.quiet()
		from := h.Current().Version
		s, e := service(c1, "new"), slice(c1, "new", "s", "10.0.0.1")
		r.Put(keyOf(s), s)
		h.Detach(c2)
		r.Put(keyOf(e), e)
		h.quiet()
		wantAddrs(t, h, "new", "c1/10.0.0.1:8080")
		if h.service("b") != nil {
			t.Error("service of the detached member is still there")
		}
		d, _ := h.Between(from, h.Current().Version)
		if diff := cmp.Diff([]string{host("b"), host("new")}, d.Shape); diff != "" {
			t.Error(diff)
		}
	})
}

// A registry that is waited for and then detached is waited for no longer.
func TestGateForgetsDetached(t *testing.T) {
	inBubble(t, aggregate.Options{}, func(h *hub) {
		h.Attach(registry(kube("c1"), service(kube("c1"), "a")))
		h.Attach(memory.New(kube("c2")))
		h.start()
		synctest.Wait()
		if h.Ready() {
			t.Fatal("ready too early")
		}
		h.Detach(kube("c2"))
		synctest.Wait()
		if !h.Ready() || h.service("a") == nil {
			t.Errorf("ready %v", h.Ready())
		}
	})
}
