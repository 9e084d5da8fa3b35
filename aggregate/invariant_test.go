package aggregate_test

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"runtime"
	"slices"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/isthmus-mesh/isthmus/aggregate"
	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/clusters/memory"
	"github.com/isthmus-mesh/isthmus/pushcontext"
)

// I1: after quiescence the snapshot equals a rebuild from the latest shard states, whatever the order
// of events, attaches, swaps, failures and detaches. Late writers run all the while (I2).
func TestI1SnapshotEqualsRebuild(t *testing.T) {
	t.Parallel()
	runs, steps := uint64(60), 150
	if testing.Short() {
		runs = 10
	}
	for seed := range runs {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			runWorld(t, seed, steps)
		})
	}
}

// I1 also holds for what readers are told: a reader that follows deltas ends with the snapshot.
func TestI1DeltasNameEveryChange(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newHub(t, aggregate.Options{ConfigCluster: "c1"})
		w := &world{hub: h, rnd: rand.New(rand.NewPCG(7, 7)), regs: map[model.ShardKey]*memory.Registry{}}
		w.attach(worldKeys[0])
		w.start()
		seen, at := map[string]*pushcontext.HostView{}, uint64(0)
		routing := newFollower()
		for range 600 {
			w.step()
			if w.pick(10) != 0 {
				continue
			}
			pc := w.quiet()
			d, ok := h.Between(at, pc.Version)
			if !ok {
				t.Fatal("ring too short for this test")
			}
			for _, name := range slices.Concat(d.Endpoints, d.Shape) {
				seen[name] = pc.Host(name)
			}
			at = pc.Version
			routing.follow(pc, d)
			if what := routing.lags(pc); what != "" {
				t.Fatalf("version %d: following deltas gives other %s than the snapshot", pc.Version, what)
			}
			maps.DeleteFunc(seen, func(_ string, v *pushcontext.HostView) bool { return v == nil })
			if now := maps.Collect(pc.Hosts()); !maps.EqualFunc(seen, now, sentAlike) {
				t.Fatalf("version %d: following deltas gives other hosts than the snapshot", pc.Version)
			}
		}
		h.finish()
	})
}

// sentAlike reports whether proxies are sent the same of both: all but candidates left out is equal.
func sentAlike(a, b *pushcontext.HostView) bool {
	return a == b || a.Rev == b.Rev && slices.EqualFunc(a.Services, b.Services, func(a, b *pushcontext.ServiceView) bool {
		return a.Shape == b.Shape && a.Revision() == b.Revision() && reflect.DeepEqual(a.Endpoints, b.Endpoints) &&
			a.Networks.Equal(b.Networks) && slices.Equal(a.Demoted, b.Demoted)
	})
}

// I2: what a detached or replaced instance still writes is never seen, not even between versions.
func TestI2LateWriterReachesNobody(t *testing.T) {
	inBubble(t, aggregate.Options{}, func(h *hub) {
		k := kube("c1")
		rows := func(ip string) []model.Object { return []model.Object{service(k, "a"), slice(k, "a", "a-1", ip)} }
		first, second := registry(k, rows("10.0.0.1")...), registry(k, rows("10.0.0.2")...)
		h.Attach(first)
		h.start()
		h.quiet()
		h.Attach(second)
		h.quiet()
		bad := slice(k, "a", "late", "10.9.9.9")
		write := func(r *memory.Registry) {
			for range 100 {
				r.Late(model.Event{Row: rowOf(bad), Obj: bad})
			}
			r.LateReplace(state(service(k, "a"), bad))
		}
		before := h.quiet().Version
		write(first)
		if pc := h.quiet(); pc.Version != before {
			t.Errorf("a replaced instance made version %d", pc.Version)
		}
		wantAddrs(t, h, "a", "c1/10.0.0.2:8080")
		h.Detach(k)
		write(second)
		h.quiet()
		write(second)
		if pc := h.quiet(); h.service("a") != nil || len(pc.Shards) != 0 {
			t.Error("a detached instance is still seen")
		}
		if n := first.Running() + second.Running(); n != 0 {
			t.Errorf("%d runs have not ended", n)
		}
	})
}

// I3: two members with equal names and addresses: an event of one leaves the rows of the other alone.
func TestI3EventsStayInTheirShard(t *testing.T) {
	inBubble(t, aggregate.Options{}, func(h *hub) {
		c1, c2 := kube("c1"), kube("c2")
		r1, r2 := memory.New(c1), memory.New(c2)
		rnd := &world{hub: h, rnd: rand.New(rand.NewPCG(3, 3))}
		same := func(k model.ShardKey, seed uint64) *model.ShardState {
			g := &world{rnd: rand.New(rand.NewPCG(seed, 0))}
			return g.state(k)
		}
		r1.Replace(same(c1, 5))
		r2.Replace(same(c2, 5))
		h.Attach(r1)
		h.Attach(r2)
		h.start()
		for range 300 {
			before := contributed(h.quiet(), c2)
			o := rnd.object(c1)
			if c, ok := o.(*model.Config); ok && c.Kind == model.ConfigMesh {
				continue // concerns everybody by design
			}
			r1.Put(keyOf(o), o)
			if after := contributed(h.quiet(), c2); !maps.Equal(before, after) {
				t.Fatalf("an event of %s changed what %s contributes:\n%v\n%v", c1, c2, before, after)
			}
		}
	})
}

// contributed lists candidates that a shard brought to services that exist in that shard too, whether
// they are served or not.
func contributed(pc *pushcontext.PushContext, k model.ShardKey) map[string]int {
	out := map[string]int{}
	for _, s := range pc.Shards {
		if s.Key == k {
			out[fmt.Sprint("rows ", s.Rows)]++
		}
	}
	for v := range pc.Services() {
		if !slices.ContainsFunc(v.Shape.Contributions, func(c pushcontext.Contribution) bool { return c.Source.Shard == k }) {
			continue
		}
		own := map[string]bool{}
		for _, p := range v.Endpoints {
			for _, l := range p.Localities {
				for _, e := range l.Endpoints {
					own[e.Source.String()+e.Addr.String()] = e.Source.Shard == k && e.Source.Object.Kind == "EndpointSlice"
				}
			}
		}
		for _, l := range v.LeftOut {
			own[l.Source.String()+l.Addr.String()] = l.Source.Shard == k && l.Source.Object.Kind == "EndpointSlice"
		}
		maps.DeleteFunc(own, func(_ string, mine bool) bool { return !mine })
		for id := range own {
			out[v.Shape.Key.Host+" "+id]++
		}
	}
	return out
}

// I5, with the hub: versions only grow by one, and each has its delta.
func TestI5VersionsAreConsecutive(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newHub(t, aggregate.Options{ConfigCluster: "c1"})
		w := &world{hub: h, rnd: rand.New(rand.NewPCG(11, 1)), regs: map[model.ShardKey]*memory.Registry{}}
		w.attach(worldKeys[0])
		w.start()
		for range 200 {
			w.step()
			time.Sleep(30 * time.Millisecond)
		}
		w.quiet()
		for i, d := range h.deltas {
			if d.From != uint64(i) || d.To != uint64(i)+1 {
				t.Fatalf("delta %d goes from %d to %d", i, d.From, d.To)
			}
		}
		h.finish()
	})
}

// I8: a member that flaps and a reader that never reads cost a bounded amount of memory: what waits for
// the writer is bounded by keys, and nobody's old snapshot stays.
func TestI8BoundedUnderFlapping(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // not in parallel: it counts goroutines and heap of the process
		h := newHub(t, aggregate.Options{})
		k := kube("c1")
		r := registry(k, service(k, "a"))
		h.Attach(r)
		h.start()
		first := h.quiet()
		stalled, snapshot := first.Version, weak.Make(first)
		first = nil
		var base runtime.MemStats
		goroutines := runtime.NumGoroutine()
		for round := range 60 {
			for i := range 500 {
				name, short := fmt.Sprintf("a-%d", i), i%2 == 0
				if short { // ever new keys, soon gone
					name = fmt.Sprintf("a-%d-%d", round, i)
				}
				e := slice(k, "a", name, fmt.Sprintf("10.%d.%d.1", round, i%250))
				r.Put(keyOf(e), e)
				if short {
					r.Delete(rowOf(e))
				}
			}
			if n := h.Depth(); n > 500 {
				t.Fatalf("%d keys wait, of 500 that there are", n)
			}
			if round%3 == 2 {
				r.Fail(errors.New("flap"))
			}
			h.quiet()
			if round == 5 {
				runtime.GC()
				runtime.ReadMemStats(&base)
			}
		}
		h.deltas = nil
		runtime.GC()
		var end runtime.MemStats
		runtime.ReadMemStats(&end)
		if n := runtime.NumGoroutine(); n > goroutines+2 {
			t.Errorf("%d goroutines, %d at the start", n, goroutines)
		}
		if rows := h.quiet().Shards[0].Rows; rows != [model.RowKinds]int{model.RowService: 1, model.RowEndpoints: 250} {
			t.Errorf("rows %v", rows)
		}
		if end.HeapAlloc > base.HeapAlloc+8<<20 {
			t.Errorf("heap grew from %d to %d bytes", base.HeapAlloc, end.HeapAlloc)
		}
		if snapshot.Value() != nil {
			t.Error("the snapshot that a stalled reader had seen is still in memory")
		}
		if d, ok := h.Between(stalled, h.Current().Version); ok && len(d.Endpoints) != 1 {
			t.Errorf("the stalled reader is told %+v", d)
		}
		h.finish()
	})
}
