package pushcontext

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
)

func step1(v uint64, host string) (*PushContext, *Delta) {
	return &PushContext{Version: v}, &Delta{From: v - 1, To: v, Endpoints: []string{host}}
}

// follower is a reader as a stream is one: it notes the version that it has been brought to and all
// hosts that it was told of.
type follower struct {
	last     uint64
	told     map[string]bool
	overflow int
}

func (f *follower) catchUp(t *testing.T, h *Hub) {
	pc := h.Current()
	if pc == nil {
		return
	}
	if pc.Version < f.last {
		t.Errorf("version went back from %d to %d", f.last, pc.Version)
	}
	d, ok := h.Between(f.last, pc.Version)
	if !ok {
		f.overflow++
		for v := f.last + 1; v <= pc.Version; v++ { // compares everything it has
			f.told[fmt.Sprint(v)] = true
		}
	} else {
		for _, name := range d.Endpoints {
			f.told[name] = true
		}
	}
	f.last = pc.Version
}

func (f *follower) check(t *testing.T) {
	for v := uint64(1); v <= f.last; v++ {
		if !f.told[fmt.Sprint(v)] {
			t.Errorf("recorded version %d but missed delta %d", f.last, v)
		}
	}
}

// Invariant I5: whenever a reader looks, be it between ring append, pointer store and wake, a version
// that it records never hides a delta.
func TestI5RecordedVersionNeverHidesADelta(t *testing.T) {
	t.Parallel()
	h := NewHub(nil)
	steps := len(h.publication(step1(1, "1")))
	followers := make([]*follower, 1<<steps) // each looks after its own choice of steps
	for i := range followers {
		followers[i] = &follower{told: map[string]bool{}}
	}
	for v := uint64(1); v <= 20; v++ {
		for i, step := range h.publication(step1(v, fmt.Sprint(v))) {
			step()
			for looks, f := range followers {
				if looks>>i&1 == 1 {
					f.catchUp(t, h)
					f.check(t)
				}
			}
		}
	}
	for _, f := range followers[1:] {
		if f.last < 19 || f.overflow > 0 {
			t.Errorf("a reader is at version %d, %d overflows", f.last, f.overflow)
		}
	}
}

func TestI5ConcurrentReadersWithStalls(t *testing.T) {
	t.Parallel()
	const versions = 5000
	var wg sync.WaitGroup
	wakes := make([]chan struct{}, 6)
	h := NewHub(func(pc *PushContext, d *Delta) {
		for _, w := range wakes {
			select {
			case w <- struct{}{}:
			default:
			}
		}
	})
	for i := range wakes {
		wakes[i] = make(chan struct{}, 1)
		f := &follower{told: map[string]bool{}}
		r := rand.New(rand.NewPCG(uint64(i), 3))
		wg.Go(func() {
			for f.last < versions {
				<-wakes[i]
				for range r.IntN(1 << (2 * i)) { // stalls of many lengths, in scheduler turns
					runtime.Gosched()
				}
				f.catchUp(t, h)
			}
			f.check(t)
		})
	}
	for v := uint64(1); v <= versions; v++ {
		h.Publish(step1(v, fmt.Sprint(v)))
	}
	wg.Wait()
}

func TestHubWakesAfterTheSnapshotCanBeRead(t *testing.T) {
	t.Parallel()
	var h *Hub
	woken := uint64(0)
	h = NewHub(func(pc *PushContext, d *Delta) {
		woken = d.To
		if h.Current() != pc {
			t.Error("woken before the snapshot is current")
		}
		if got, ok := h.Between(d.From, d.To); !ok || got != d {
			t.Error("woken before the delta is in the ring")
		}
	})
	if h.Current() != nil {
		t.Error("an empty hub has a snapshot")
	}
	if _, ok := h.Between(0, 1); ok {
		t.Error("an empty hub has a delta")
	}
	h.Publish(step1(1, "x"))
	if woken != 1 {
		t.Error("not woken")
	}
}

func TestBetween(t *testing.T) {
	t.Parallel()
	const newest = 3 * ringSize
	h := NewHub(nil)
	for v := uint64(1); v <= newest; v++ {
		h.Publish(step1(v, fmt.Sprintf("h%d", v%7)))
	}
	for _, c := range []struct {
		from, to uint64
		ok       bool
		hosts    int
	}{
		{newest, newest, true, 0},
		{newest - 1, newest, true, 1},
		{newest - 3, newest, true, 3},
		{newest - 10, newest - 9, true, 1},
		{newest - ringSize, newest, true, 7},
		{newest - ringSize, newest - ringSize + 1, true, 1},
		{newest - ringSize - 1, newest, false, 0},
		{newest - ringSize - 1, newest - ringSize, false, 0}, // its slot holds a later delta
		{0, newest, false, 0},
		{0, 1, false, 0},
		{newest, newest + 1, false, 0}, // not published
		{newest + 5, newest, true, 0},
	} {
		d, ok := h.Between(c.from, c.to)
		if ok != c.ok {
			t.Errorf("%d..%d: %v", c.from, c.to, ok)
			continue
		}
		if ok && (len(d.Endpoints) != c.hosts || d.From != c.from || d.To != c.to) {
			t.Errorf("%d..%d: %+v", c.from, c.to, d)
		}
	}
}

func TestMergeDeltas(t *testing.T) {
	t.Parallel()
	k := func(s string) model.InstanceKey { return model.InstanceKey{Cluster: "c1", IP: ip(s)} }
	got := merge([]*Delta{
		{From: 4, To: 5, Endpoints: []string{"a", "c"}, Reasons: []string{"endpoint"}, Instances: []model.InstanceKey{k("10.0.0.2")}},
		{From: 5, To: 6, Shape: []string{"c", "d"}, Ports: []uint16{80, 443}, Reasons: []string{"cluster", "service"}},
		{From: 6, To: 7, Endpoints: []string{"b", "c", "d"}, Ports: []uint16{80}, Reasons: []string{"endpoint"}, Instances: []model.InstanceKey{k("10.0.0.1"), k("10.0.0.2")}},
	})
	want := &Delta{
		From: 4, To: 7, Endpoints: []string{"a", "b"}, Shape: []string{"c", "d"}, Ports: []uint16{80, 443},
		Reasons: []string{"cluster", "endpoint", "service"}, Instances: []model.InstanceKey{k("10.0.0.1"), k("10.0.0.2")},
	}
	if diff := cmp.Diff(want, got, cmp.Comparer(sameInstance)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if d := merge([]*Delta{{From: 1, To: 2}, {From: 2, To: 3, Mesh: true}, {From: 3, To: 4}}); !d.Mesh || d.Empty() {
		t.Errorf("%+v", d)
	}
	if d := merge([]*Delta{{From: 1, To: 2}, {From: 2, To: 3}}); !d.Empty() {
		t.Errorf("%+v", d)
	}
}

func TestDeltaKeys(t *testing.T) {
	t.Parallel()
	d := &Delta{
		Endpoints: []string{"a", "b"}, Shape: []string{"c"}, Ports: []uint16{80, 90},
		Instances: []model.InstanceKey{{Cluster: "c1", IP: ip("10.0.0.1")}, {Cluster: "c2", IP: ip("10.0.0.2")}},
	}
	on := func(cluster, addr string) *Reader {
		return &Reader{Instances: []model.InstanceKey{{Cluster: "c9", IP: ip("10.9.9.9")}, {Cluster: clusterID(cluster), IP: ip(addr)}}}
	}
	host := func(kind ViewKind, names ...string) (out []ViewKey) {
		for _, n := range names {
			out = append(out, ViewKey{Kind: kind, Host: n})
		}
		return out
	}
	for _, c := range []struct {
		name string
		d    *Delta
		kind ViewKind
		r    *Reader
		want []ViewKey
	}{
		{"services", d, ViewService, &Reader{}, host(ViewService, "c", "a", "b")},
		{"shapes", d, ViewShape, &Reader{}, host(ViewShape, "c")},
		{"ports", d, ViewPort, &Reader{}, []ViewKey{{Kind: ViewPort, Port: 80}, {Kind: ViewPort, Port: 90}}},
		{"targets", d, ViewTargets, on("c1", "10.0.0.1"), []ViewKey{{Kind: ViewTargets}}},
		{"targets of another member", d, ViewTargets, on("c2", "10.0.0.1"), nil},
		{"peers", d, ViewPeers, &Reader{}, []ViewKey{{Kind: ViewPeers}}},
		{"peers of a workload that moved", &Delta{Instances: d.Instances}, ViewPeers, on("c1", "10.0.0.1"), []ViewKey{{Kind: ViewPeers}}},
		{"peers, where only ports and others moved", &Delta{Ports: d.Ports, Instances: d.Instances}, ViewPeers, &Reader{}, nil},
		{"mesh", d, ViewMesh, &Reader{}, nil},
		{"mesh changed", &Delta{Mesh: true}, ViewMesh, &Reader{}, []ViewKey{{Kind: ViewMesh}}},
		{"mesh changed, targets", &Delta{Mesh: true}, ViewTargets, &Reader{}, []ViewKey{{Kind: ViewTargets}}},
	} {
		if got := slices.Collect(c.d.Keys(c.kind, c.r)); !slices.Equal(got, c.want) {
			t.Errorf("%s: got %v, want %v", c.name, got, c.want)
		}
		for range c.d.Keys(c.kind, c.r) {
			break
		}
	}
}
