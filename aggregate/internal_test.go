package aggregate

import (
	"fmt"
	"net/netip"
	"reflect"
	"runtime"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/pushcontext"
)

func newTestController() *Controller {
	c := New(Options{Hub: pushcontext.NewHub(nil)})
	c.open = true
	return c
}

func svcRow(k model.ShardKey, name string, sel model.Labels) (model.RowKey, *model.Service) {
	s := &model.Service{
		Host: name, Namespace: "ns", Name: name, Ports: []model.Port{{Name: "http", Number: 80}}, Selector: model.Selector{Labels: sel},
		Source: model.Source{Shard: k, Object: model.ObjectKey{Kind: "Service", Namespace: "ns", Name: name}},
	}
	return model.RowKey{Kind: model.RowService, Key: name}, s
}

// A flapping member with a full mailbox does not hold up another's single event.
func TestDrainIsFair(t *testing.T) {
	t.Parallel()
	c := newTestController()
	for i, n := range []int{100_000, 1} {
		k := benchKey(i)
		m := &attached{key: k, active: &instance{key: k, synced: true, box: newMailbox(func() {})}}
		c.attached[k] = m
		m.active.box.Replace(model.NewShardBuilder().Build())
		for j := range n {
			rk, s := svcRow(k, fmt.Sprintf("s%d-%d", i, j), nil)
			m.active.box.Put(model.Event{Row: rk, Obj: s})
		}
	}
	if more := c.drain(); !more {
		t.Error("one turn emptied a mailbox of 100000 keys")
	}
	if got := len(c.state.shard(benchKey(1)).rows); got != 1 {
		t.Errorf("the quiet member has %d rows after one turn, want 1", got)
	}
	if got := len(c.state.shard(benchKey(0)).rows); got > c.opts.Budget {
		t.Errorf("the busy member had %d rows taken in one turn, budget %d", got, c.opts.Budget)
	}
}

// What comes in one call is in one snapshot, even if it takes several turns to apply; a mailbox that is
// never empty holds nothing up for long.
func TestBigBatchIsOneCommit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newTestController()
		c.opts.ScrubEvery = -1
		k := benchKey(0)
		in := &instance{key: k, box: newMailbox(func() {})}
		c.attached[k] = &attached{key: k, active: in}
		in.box.Replace(model.NewShardBuilder().Build())
		turn := func() (bool, uint64) {
			more := c.turn(t.Context())
			return more, c.opts.Hub.Current().Version
		}
		turn()
		time.Sleep(time.Minute)
		_, version := turn()
		put := func(n int) {
			var evs []model.Event
			for i := range n {
				rk, s := svcRow(k, fmt.Sprint("s", i), nil)
				s.Ports[0].Number = uint16(n)
				evs = append(evs, model.Event{Row: rk, Obj: s})
			}
			in.box.Put(evs...)
		}
		put(3*c.opts.Budget + 1)
		for range 3 {
			if more, v := turn(); !more || v != version {
				t.Fatalf("version %d in the middle of a batch, more %v", v, more)
			}
		}
		if more, v := turn(); more || v != version+1 {
			t.Fatalf("version %d after the batch, more %v", v, more)
		}
		time.Sleep(time.Minute)
		put(10 * c.opts.Budget)
		turn()
		time.Sleep(c.opts.EndpointMax)
		if more, v := turn(); !more || v != version+2 {
			t.Errorf("version %d while the mailbox does not empty, more %v", v, more)
		}
	})
}

// A registry that relists in a loop takes a bounded share of the writer, and its last truth is not lost.
func TestRelistsAreSpaced(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newTestController()
		c.open = false // nothing else is due
		k := benchKey(0)
		in := &instance{key: k, box: newMailbox(func() {})}
		c.attached[k] = &attached{key: k, active: in}
		rows := func(n int) *model.ShardState {
			b := model.NewShardBuilder()
			for i := range n {
				rk, s := svcRow(k, fmt.Sprint("s", i), nil)
				b.Add(rk.Key, s)
			}
			return b.Build()
		}
		have := func(want int) {
			t.Helper()
			c.drain()
			if n := len(c.state.shard(k).rows); n != want {
				t.Errorf("%d rows, want %d", n, want)
			}
		}
		in.box.Replace(rows(3))
		have(3)
		in.rest = time.Now().Add(time.Second) // the first took so long
		rk, s := svcRow(k, "more", nil)
		in.box.Put(model.Event{Row: rk, Obj: s})
		have(4)
		in.box.Replace(rows(1))
		in.box.Replace(rows(2))
		in.box.Put(model.Event{Row: rk, Obj: s})
		have(4)
		if d := time.Until(c.nextTime()); d != time.Second {
			t.Errorf("next turn in %v", d)
		}
		time.Sleep(time.Second)
		have(3)
	})
}

// The scrub finds and repairs every kind of index fault.
func TestScrubRepairsDrift(t *testing.T) {
	t.Parallel()
	k := benchKey(0)
	app := model.Labels{"app": "x"}
	wid, w := model.RowKey{Kind: model.RowWorkload, Key: "w"}, &model.Workload{
		Kind: model.KindWorkloadEntry, Namespace: "ns", Name: "w", Labels: app, Source: model.Source{Shard: k},
		Address: model.Addr{AddrPort: netip.MustParseAddrPort("10.0.0.1:0")},
	}
	for name, damage := range map[string]func(*state){
		"service index": func(s *state) { s.hosts[hostKey{"ns", "a"}].services = nil },
		"host missing":  func(s *state) { delete(s.hosts, hostKey{"ns", "b"}) },
		"selector pool": func(s *state) {
			for _, p := range s.sel.spaces["ns"].pools {
				clear(p.members)
			}
		},
		"published view": func(s *state) { s.hosts[hostKey{"ns", "a"}].views = s.hosts[hostKey{"ns", "b"}].views },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newTestController()
			sh := c.state.shard(k)
			for _, n := range []string{"a", "b"} {
				rk, s := svcRow(k, n, app)
				c.state.put(sh, rk, s)
			}
			c.state.put(sh, wid, w)
			c.commit(time.Now())
			want := len(c.state.hosts[hostKey{"ns", "a"}].views[0].Endpoints)
			if want != 1 {
				t.Fatalf("%d ports with endpoints, want 1", want)
			}
			damage(c.state)
			for k := range c.state.hosts {
				c.state.mark(k)
			}
			if name != "published view" {
				c.commit(time.Now()) // publishes the fault
			}
			clear(c.state.dirty)
			c.nextScrub = time.Time{}
			c.scrubAll(t)
			c.commit(time.Now())
			for _, n := range []string{"a", "b"} {
				v := c.opts.Hub.Current().Service(model.ServiceKey{Namespace: "ns", Host: n})
				if v == nil || len(v.Endpoints) != 1 {
					t.Errorf("service %s is not repaired: %+v", n, v)
				}
			}
		})
	}
}

func (c *Controller) scrubAll(t *testing.T) {
	t.Helper()
	for c.scrub(time.Now().Add(time.Hour)); c.pass != nil; {
		c.scrub(time.Now())
	}
	if !c.debounce.pending() {
		t.Error("the scrub found nothing")
	}
}

// A service that can't be merged keeps its last good view, also under new settings; others go on.
func TestMergePanicIsContained(t *testing.T) {
	t.Parallel()
	c := newTestController()
	k := benchKey(0)
	sh := c.state.shard(k)
	rk, s := svcRow(k, "a", nil)
	c.state.put(sh, rk, s)
	c.commit(time.Now())
	good := c.opts.Hub.Current().Service(model.ServiceKey{Namespace: "ns", Host: "a"})
	bad := &model.Service{Host: "a", Namespace: "ns", Resolution: 99, Source: model.Source{Shard: k}} // has no name to put into the conflict
	c.state.put(sh, model.RowKey{Kind: model.RowService, Key: "bad"}, bad)
	rk, s = svcRow(k, "b", nil)
	c.state.put(sh, rk, s)
	c.commit(time.Now())
	pc := c.opts.Hub.Current()
	if pc.Service(good.Shape.Key) != good || pc.Service(model.ServiceKey{Namespace: "ns", Host: "b"}) == nil {
		t.Fatal("the last good view is gone, or the other service is missing")
	}
	c.mesh, c.state.mesh = nil, true
	c.commit(time.Now())
	pc = c.opts.Hub.Current()
	if v := pc.Service(good.Shape.Key); v == nil || v == good || v.Shape.Mesh != pc.Mesh || good.Shape.Mesh == pc.Mesh {
		t.Errorf("under new settings: %+v", v)
	}
}

// A view carried over under new settings has every field of the old one.
func TestCarryCopiesEveryField(t *testing.T) {
	t.Parallel()
	c := newTestController()
	rk, s := svcRow(benchKey(0), "a", nil)
	s.Resolution, s.External, s.NodeLocal, s.PublishNotReady, s.Persistent = model.DNSLB, true, true, true, true
	c.state.put(c.state.shard(benchKey(0)), rk, s)
	c.commit(time.Now())
	old := c.state.hosts[hostKey{"ns", "a"}].views[0]
	m := &pushcontext.MeshView{}
	next := carry(old, m)
	if next.Revision() != 0 || next.Shape.Revision() != 0 || next.Shape.Mesh != m {
		t.Errorf("not a fresh view: %+v", next)
	}
	for _, pair := range [][2]any{{old, next}, {old.Shape, next.Shape}} {
		a, b := reflect.ValueOf(pair[0]).Elem(), reflect.ValueOf(pair[1]).Elem()
		for i := range a.NumField() {
			if f := a.Type().Field(i); f.IsExported() && f.Name != "Shape" && f.Name != "Mesh" && !reflect.DeepEqual(a.Field(i).Interface(), b.Field(i).Interface()) {
				t.Errorf("field %s is %v, was %v", f.Name, b.Field(i), a.Field(i))
			}
		}
	}
}

// Many workers give what one gives.
func TestParallelMergeEqualsSerial(t *testing.T) {
	t.Parallel()
	c := newTestController()
	for i := range 300 {
		sh := c.state.shard(benchKey(i % 7))
		s, e := benchService(i%7, i), benchSlice(i%7, i, 0)
		c.state.put(sh, model.RowKey{Kind: model.RowService, Key: s.Name}, s)
		c.state.put(sh, model.RowKey{Kind: model.RowEndpoints, Key: s.Name}, e)
	}
	c.refreshBasis()
	var dirty []hostKey
	for k := range c.state.dirty {
		dirty = append(dirty, k)
	}
	all := c.mergeAll(dirty)
	for i, k := range dirty {
		if one := c.mergeHost(k); !slices.EqualFunc(all[i].views, one.views, SameView) {
			t.Fatalf("%v: %d workers give something else than one", k, runtime.GOMAXPROCS(0))
		}
	}
}

func TestBackoff(t *testing.T) {
	t.Parallel()
	for failures, most := range map[int]time.Duration{1: time.Second, 2: 2 * time.Second, 4: 8 * time.Second, 50: time.Minute} {
		for range 100 {
			if d := backoff(failures, time.Second, time.Minute); d > most || d < most/2-1 {
				t.Errorf("after %d failures: %v, want between half and all of %v", failures, d, most)
			}
		}
	}
}

// What pushes cost is measured per machine, not per processor.
func TestPushCostSpacesCommits(t *testing.T) {
	t.Parallel()
	c := newTestController()
	c.PushCost(40 * time.Millisecond * time.Duration(runtime.GOMAXPROCS(0)))
	c.committed(time.Now())
	if p := c.debounce.pause(laneEndpoints); p != 80*time.Millisecond { // half of 40 ms, at a quarter share
		t.Errorf("pause %v, want 80ms", p)
	}
}
