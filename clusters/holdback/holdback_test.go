package holdback_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	api "github.com/isthmus-mesh/isthmus/api/v1alpha1"
	"github.com/isthmus-mesh/isthmus/clusters/holdback"
	"github.com/isthmus-mesh/isthmus/clusters/memory"
)

var key = model.ShardKey{Provider: model.ProviderConsul, Cluster: "legacy"}

// sink is what proxies would be served.
type sink struct{ memory.Sink }

func (s *sink) problems() []model.Problem { return s.Last().Problems }

// settled is what is served once all is done.
func (s *sink) settled() map[model.RowKey]model.Object {
	synctest.Wait()
	return s.served()
}

func (s *sink) served() map[model.RowKey]model.Object { return s.Rows() }

// shown is what is served of each service: its number of endpoints, with "!" if there is no service, and its workloads.
func (s *sink) shown() string { return shown(s.served()) }

func shown(rows map[model.RowKey]model.Object) string {
	var out []string
	for k, o := range rows {
		e, ok := o.(*model.Endpoints)
		if !ok {
			continue
		}
		text := fmt.Sprint(e.Host, "=", len(e.Endpoints))
		if rows[model.RowKey{Kind: model.RowService, Key: k.Key}] == nil {
			text += "!"
		}
		workloads := 0
		for w := range rows {
			if w.Kind == model.RowWorkload && strings.HasPrefix(w.Key, "Instance/ns/"+e.Host+"/") {
				workloads++
			}
		}
		out = append(out, fmt.Sprint(text, "/", workloads))
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

// events are the rows of a service with endpoints at the addresses 10.0.0.<n>; none at all for a nil list.
func events(name string, at []int) []model.Event {
	object := model.ObjectKey{Kind: "Service", Namespace: "ns", Name: name}
	src := model.Source{Shard: key, Object: object}
	row := &model.Endpoints{Host: name, Namespace: "ns", Source: src}
	out := []model.Event{
		{Row: model.RowKey{Kind: model.RowService, Key: object.String()}, Obj: &model.Service{Host: name, Namespace: "ns", Name: name, Source: src}},
		{Row: model.RowKey{Kind: model.RowEndpoints, Key: object.String()}, Obj: row},
	}
	if at == nil {
		out[0].Obj, out[1].Obj = nil, nil
	}
	for n := range 10 {
		w := model.ObjectKey{Kind: "Instance", Namespace: "ns", Name: fmt.Sprint(name, "/", n)}
		ev := model.Event{Row: model.RowKey{Kind: model.RowWorkload, Key: w.String()}}
		if slices.Contains(at, n) {
			ev.Obj = &model.Workload{Kind: model.KindInstance, Namespace: "ns", Name: w.Name, Source: model.Source{Shard: key, Object: w}}
			row.Endpoints = append(row.Endpoints, model.Endpoint{Addr: model.Addr{Cluster: key.Cluster, AddrPort: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(n)}), 80)}, PortName: "http", Workload: w})
		}
		out = append(out, ev)
	}
	return out
}

func all(services map[string][]int) *model.ShardState {
	b := model.NewShardBuilder()
	for name, at := range services {
		for _, ev := range events(name, at) {
			if ev.Obj != nil {
				b.Add(ev.Row.Key, ev.Obj)
			}
		}
	}
	return b.Build()
}

// world is a registry behind the policy.
type world struct {
	*memory.Registry
	*sink
	t      *testing.T
	mu     sync.Mutex
	told   []int         // guarded by mu: the numbers of what is held
	last   holdback.Held // guarded by mu
	before *holdback.Handover
	stop   func() // ends the run
}

// held are the numbers that were told, without repetitions.
func (w *world) held() []int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Compact(slices.Clone(w.told))
}

// start begins with four services of four endpoints each.
func start(t *testing.T, p api.EmptyPolicy) *world {
	w := &world{Registry: memory.New(key), sink: &sink{}, t: t, before: &holdback.Handover{}}
	p = *api.RegistrySpec{Empty: &p}.Effective("ns").Empty
	reg := holdback.Wrap(w.Registry, holdback.Options{Policy: p, Before: w.before, Held: func(h holdback.Held) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.told, w.last = append(w.told, h.Count), h
	}})
	ctx, cancel := context.WithCancel(t.Context())
	var run sync.WaitGroup
	run.Go(func() { _ = reg.Run(ctx, w.sink) })
	w.stop = func() { cancel(); run.Wait() }
	t.Cleanup(w.stop)
	w.Registry.Replace(all(map[string][]int{"a": four, "b": four, "c": four, "d": four}))
	w.Registry.Status(model.Status{State: model.StateLive})
	synctest.Wait()
	return w
}

var four = []int{1, 2, 3, 4}

func (w *world) put(name string, at ...int) {
	if at == nil {
		at = []int{}
	}
	w.Registry.Apply(events(name, at)...)
}

func (w *world) remove(name string) { w.Registry.Apply(events(name, nil)...) }

func (w *world) after(d time.Duration, want string) {
	w.t.Helper()
	time.Sleep(d) // of the fake clock
	synctest.Wait()
	if got := w.shown(); got != want {
		w.t.Errorf("after %v: %s, want %s", d, got, want)
	}
}

const everything = "a=4/4 b=4/4 c=4/4 d=4/4"

func story(t *testing.T, name string, p api.EmptyPolicy, tell func(*world)) {
	t.Run(name, func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) { tell(start(t, p)) })
	})
}

func TestPolicies(t *testing.T) {
	t.Parallel()
	protect := api.EmptyPolicy{}
	story(t, "incident 33: the last instance of one service goes, and is gone in seconds", protect, func(w *world) {
		w.put("a")
		w.after(time.Second, everything)
		w.after(2*time.Second, "a=0/0 b=4/4 c=4/4 d=4/4")
	})
	story(t, "one service is removed", protect, func(w *world) {
		w.remove("a")
		w.after(time.Second, everything)
		w.after(2*time.Second, "b=4/4 c=4/4 d=4/4")
	})
	story(t, "an instance of several goes at once", protect, func(w *world) {
		w.put("a", 1, 2, 3)
		w.after(0, "a=3/3 b=4/4 c=4/4 d=4/4")
	})
	story(t, "incident 35: a registry that restarts empty", protect, func(w *world) {
		w.Registry.Status(model.Status{State: model.StateStale, Err: "gone"})
		w.Registry.Status(model.Status{State: model.StateLive})
		for _, s := range []string{"a", "b", "c"} {
			w.put(s)
		}
		w.remove("d")
		w.after(time.Second, everything)
		if ps := w.problems(); len(ps) != 4 || !strings.Contains(ps[0].Reason, "a short time after contact was lost") || !strings.Contains(ps[0].Reason, "until 2000-01-01T00:01:00Z") {
			w.t.Errorf("%+v", ps)
		}
		w.after(time.Minute, everything)
		if ps := w.problems(); len(ps) != 4 || ps[0].Item != "Service/ns/a" || !strings.Contains(ps[0].Reason, "16 of the 16 endpoints") || !strings.Contains(ps[0].Reason, "until 2000-01-01T00:05:00Z") {
			w.t.Errorf("%+v", ps)
		}
		w.put("a", 1) // one by one
		w.after(time.Second, everything)
		w.put("a", 1, 2, 3, 4)
		w.put("b", 5, 6, 7, 8) // elsewhere
		w.after(time.Second, everything)
		if a := w.problems(); len(a) != 2 || a[0].Item != "Service/ns/c" {
			w.t.Errorf("%+v", a)
		}
		w.after(4*time.Minute, "a=4/4 b=4/4 c=0/0")
		if held := w.held(); len(w.problems()) > 0 || !slices.Equal(held, []int{1, 2, 3, 4, 3, 2, 0}) {
			w.t.Errorf("%+v %v", w.problems(), held)
		}
	})
	story(t, "instances that are back elsewhere are served beside those that are held", protect, func(w *world) {
		for _, s := range []string{"a", "b", "c"} {
			w.put(s)
		}
		w.put("a", 8)
		w.after(time.Minute, "a=5/5 b=4/4 c=4/4 d=4/4")
		w.put("a", 8, 9)
		w.after(time.Minute, "a=6/6 b=4/4 c=4/4 d=4/4")
		w.after(5*time.Minute, "a=2/2 b=0/0 c=0/0 d=4/4")
	})
	story(t, "for a minute after contact was lost, some of many are held too", protect, func(w *world) {
		w.Registry.Status(model.Status{State: model.StateStale, Err: "gone"})
		w.Registry.Status(model.Status{State: model.StateLive})
		for _, s := range []string{"a", "b", "c"} {
			w.put(s, 1)
		}
		w.after(5*time.Second, everything)
		w.after(5*time.Minute, "a=1/1 b=1/1 c=1/1 d=4/4")
	})
	story(t, "and then one that loses some is believed", protect, func(w *world) {
		w.Registry.Status(model.Status{State: model.StateStale, Err: "gone"})
		w.Registry.Status(model.Status{State: model.StateLive})
		w.put("a", 1)
		w.after(50*time.Second, everything)
		w.after(10*time.Second, "a=1/1 b=4/4 c=4/4 d=4/4")
		w.put("b", 1)
		w.after(0, "a=1/1 b=1/1 c=4/4 d=4/4")
	})
	story(t, "incident 35: the one service of many that does not come back within the minute is let go of", protect, func(w *world) {
		w.Registry.Status(model.Status{State: model.StateStale, Err: "gone"})
		w.Registry.Status(model.Status{State: model.StateLive})
		w.remove("a")
		w.after(50*time.Second, everything)
		w.after(10*time.Second, "b=4/4 c=4/4 d=4/4")
	})
	story(t, "a service that comes back in time was never away", protect, func(w *world) {
		w.remove("a")
		w.after(time.Second, everything)
		w.put("a", 1, 2, 3, 4)
		w.after(time.Hour, everything)
	})
	story(t, "the full truth is judged like its changes", protect, func(w *world) {
		w.Registry.Replace(all(nil))
		w.after(time.Minute, everything)
		w.Registry.Replace(all(map[string][]int{"a": four}))
		w.after(time.Minute, everything)
		w.after(4*time.Minute, "a=4/4")
	})
	story(t, "what goes long after the others, while these are held, goes for itself", protect, func(w *world) {
		for _, s := range []string{"a", "b", "c"} {
			w.put(s)
		}
		w.after(2*time.Minute, everything)
		w.put("d")
		w.after(3*time.Second, "a=4/4 b=4/4 c=4/4 d=0/0")
		w.after(3*time.Minute, "a=0/0 b=0/0 c=0/0 d=0/0")
	})
	story(t, "a full read while there is contact makes nothing doubtful that goes later", protect, func(w *world) {
		w.Registry.Replace(all(map[string][]int{"a": four, "b": four, "c": four, "d": four}))
		w.put("a", 1)
		w.after(0, "a=1/1 b=4/4 c=4/4 d=4/4")
	})
	story(t, "hold", api.EmptyPolicy{Mode: api.EmptyHold, Duration: &metav1.Duration{Duration: time.Minute}}, func(w *world) {
		w.put("a")
		w.put("b", 1)
		w.after(59*time.Second, "a=4/4 b=1/1 c=4/4 d=4/4")
		w.after(time.Second, "a=0/0 b=1/1 c=4/4 d=4/4")
	})
	story(t, "immediate", api.EmptyPolicy{Mode: api.EmptyImmediate}, func(w *world) {
		w.put("a")
		w.remove("b")
		w.after(0, "a=0/0 c=4/4 d=4/4")
	})
	story(t, "a higher share", api.EmptyPolicy{Percent: new(int32(80))}, func(w *world) {
		for _, s := range []string{"a", "b", "c"} {
			w.put(s)
		}
		w.after(3*time.Second, "a=0/0 b=0/0 c=0/0 d=4/4")
	})
}

// TestWhatIsHeldOutlivesAReplacement: new credentials make a new connection, which finds the registry empty as well. What is held is held
// no longer for that, and the number of it is that of the run in force.
func TestWhatIsHeldOutlivesAReplacement(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := *api.RegistrySpec{}.Effective("ns").Empty
		out, held, before := &sink{}, 0, &holdback.Handover{}
		w := &world{sink: out, t: t}
		run := func() (reg *memory.Registry, end func()) {
			reg = memory.New(key)
			wrapped := holdback.Wrap(reg, holdback.Options{Policy: p, Held: func(h holdback.Held) { held = h.Count }, Before: before})
			ctx, cancel := context.WithCancel(t.Context())
			var running sync.WaitGroup
			running.Go(func() { _ = wrapped.Run(ctx, out) })
			return reg, func() { cancel(); running.Wait() }
		}
		first, end := run()
		first.Replace(all(map[string][]int{"a": four, "b": four, "c": four, "d": four}))
		first.Status(model.Status{State: model.StateLive})
		synctest.Wait()
		first.Status(model.Status{State: model.StateStale, Err: "gone"})
		first.Status(model.Status{State: model.StateLive})
		for _, name := range []string{"a", "b", "c"} {
			first.Apply(events(name, nil)...)
		}
		w.after(2*time.Minute, everything)
		second, endSecond := run()
		second.Replace(all(map[string][]int{"d": four}))
		second.Status(model.Status{State: model.StateLive})
		synctest.Wait()
		end()
		w.after(0, everything)
		if held != 3 || len(w.problems()) != 3 {
			t.Errorf("%d held, %+v", held, w.problems())
		}
		second.Apply(events("a", four)...)
		w.after(2*time.Minute, everything)
		w.after(2*time.Minute, "a=4/4 d=4/4") // five minutes after it began
		endSecond()
		third, endThird := run()
		third.Replace(all(nil))
		third.Status(model.Status{State: model.StateLive})
		w.after(2*time.Minute, "a=4/4 d=4/4")
		w.after(4*time.Minute, "")
		endThird()
		if held != 0 {
			t.Errorf("%d held", held)
		}
	})
}

// TestNewCredentialsMakeNothingDoubtful: the registry was in contact all the time, so what goes after the swap goes at once. A run that follows
// one that has ended can't know that.
func TestNewCredentialsMakeNothingDoubtful(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		ended bool
		want  string
	}{
		{"make before break", false, "a=1/1"},
		{"after a run that has ended", true, "a=4/4"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := start(t, api.EmptyPolicy{})
				second := memory.New(key)
				reg := holdback.Wrap(second, holdback.Options{Policy: *api.RegistrySpec{}.Effective("ns").Empty, Before: w.before})
				ctx, cancel := context.WithCancel(t.Context())
				var running sync.WaitGroup
				if c.ended {
					w.stop()
				}
				running.Go(func() { _ = reg.Run(ctx, w.sink) })
				second.Replace(all(map[string][]int{"a": four, "b": four, "c": four, "d": four}))
				second.Status(model.Status{State: model.StateLive})
				synctest.Wait()
				second.Apply(events("a", []int{1})...)
				w.after(0, c.want+" b=4/4 c=4/4 d=4/4")
				cancel()
				running.Wait()
			})
		})
	}
}

// TestAReplacementThatHoldsNothing: if all is there again in the first that a new connection says, it is told that nothing is held.
func TestAReplacementThatHoldsNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := start(t, api.EmptyPolicy{Mode: api.EmptyHold})
		w.remove("a")
		w.after(0, everything)
		second := memory.New(key)
		reg := holdback.Wrap(second, holdback.Options{Policy: *api.RegistrySpec{Empty: &api.EmptyPolicy{Mode: api.EmptyHold}}.Effective("ns").Empty, Before: w.before, Held: func(h holdback.Held) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.told = append(w.told, h.Count)
		}})
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { _ = reg.Run(ctx, &sink{}) })
		second.Replace(all(map[string][]int{"a": four, "b": four, "c": four, "d": four}))
		second.Status(model.Status{State: model.StateLive})
		synctest.Wait()
		w.remove("b") // said by the one that is replaced
		synctest.Wait()
		if got := w.held(); !slices.Equal(got, []int{1, 0}) {
			t.Errorf("%v are told", got)
		}
		cancel()
		running.Wait()
	})
}

// TestARegistryThatIsEmptyWhenTheHubStarts is doubted, if it is known what it said before: hubs and registries restart together.
func TestARegistryThatIsEmptyWhenTheHubStarts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		out, reg := &sink{}, memory.New(key)
		wrapped := holdback.Wrap(reg, holdback.Options{
			Policy: *api.RegistrySpec{}.Effective("ns").Empty, Before: holdback.Begin(all(map[string][]int{"a": four, "b": four, "c": four, "d": four})),
		})
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { _ = wrapped.Run(ctx, out) })
		w := &world{Registry: reg, sink: out, t: t}
		reg.Replace(all(nil))
		reg.Status(model.Status{State: model.StateLive})
		w.after(2*time.Minute, everything)
		w.put("a", 5, 6, 7, 8)
		w.after(0, everything)
		w.after(4*time.Minute, "a=4/4")
		cancel()
		running.Wait()
	})
}

// TestInTheEndItIsAsTheRegistrySays: whatever happens, once nothing happens for the time of the policy, what is served is what the
// registry said last; and what the registry has is served at any time.
func TestInTheEndItIsAsTheRegistrySays(t *testing.T) {
	t.Parallel()
	for seed := range uint64(60) {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 1))
			w := start(t, api.EmptyPolicy{})
			truth, objects := map[string][]int{"a": four, "b": four, "c": four, "d": four}, map[model.RowKey]model.Object{}
			said := func() *model.ShardState {
				b := model.NewShardBuilder()
				for k, o := range all(truth).Rows() {
					b.Add(k.Key, o)
				}
				for k, o := range objects {
					b.Add(k.Key, o)
				}
				return b.Build()
			}
			for range 60 {
				name := string(rune('a' + r.IntN(4)))
				switch r.IntN(10) {
				case 6, 7:
					ev := configured(judged[r.IntN(len(judged))], name)
					objects[ev.Row] = ev.Obj
					w.Registry.Apply(ev)
				case 8:
					ev := configured(judged[r.IntN(len(judged))], name)
					delete(objects, ev.Row)
					w.Registry.Apply(model.Event{Row: ev.Row})
				case 9: // it restarts, and knows nothing of a kind yet
					kind := judged[r.IntN(len(judged))]
					w.reconnect()
					for row := range objects {
						if strings.HasPrefix(row.Key, kind+"/") {
							delete(objects, row)
							w.Registry.Apply(model.Event{Row: row})
						}
					}
				case 0:
					delete(truth, name)
					w.remove(name)
				case 1:
					w.Registry.Status(model.Status{State: []model.State{model.StateStale, model.StateLive}[r.IntN(2)]})
				case 2:
					w.Registry.Replace(said())
				default:
					at := []int{}
					for n := range 10 {
						if r.IntN(3) == 0 {
							at = append(at, n)
						}
					}
					truth[name] = at
					w.put(name, at...)
				}
				time.Sleep(time.Duration(r.IntN(100)) * 100 * time.Millisecond)
				synctest.Wait()
				served := w.served()
				for row := range said().Rows() {
					if served[row] == nil {
						t.Fatalf("seed %d: %v is not served", seed, row)
					}
				}
			}
			time.Sleep(6 * time.Minute)
			synctest.Wait()
			want, got := maps.Collect(said().Rows()), w.served()
			if len(got) != len(want) {
				t.Fatalf("seed %d: %s, want %s (%d rows, want %d)", seed, shown(got), shown(want), len(got), len(want))
			}
			for k, o := range want {
				if got[k] == nil || !model.SameRow(o, got[k]) {
					t.Fatalf("seed %d: %v is %+v, want %+v", seed, k, got[k], o)
				}
			}
		})
	}
}
