package holdback_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	networking "istio.io/api/networking/v1alpha3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	api "github.com/isthmus-mesh/isthmus/api/v1alpha1"
	"github.com/isthmus-mesh/isthmus/clusters/holdback"
)

// configured is a row that a registry of configuration has: an object, a service of a ServiceEntry that has no endpoints, or the
// workload of a WorkloadEntry.
func configured(kind, name string) model.Event {
	object := model.ObjectKey{Kind: kind, Namespace: "ns", Name: name}
	src := model.Source{Shard: key, Object: object}
	switch kind {
	case model.ConfigServiceEntry:
		return model.Event{Row: model.RowKey{Kind: model.RowService, Key: object.String() + "/" + name}, Obj: &model.Service{Host: name, Namespace: "ns", Name: name, Source: src}}
	case model.ConfigWorkloadEntry:
		return model.Event{Row: model.RowKey{Kind: model.RowWorkload, Key: object.String()}, Obj: &model.Workload{Kind: model.KindWorkloadEntry, Namespace: "ns", Name: name, Source: src}}
	}
	return model.Event{Row: model.RowKey{Kind: model.RowConfig, Key: object.String()}, Obj: &model.Config{
		Kind: kind, Namespace: "ns", Name: name, Spec: &networking.VirtualService{Hosts: []string{name}}, Source: src,
	}}
}

var judged = []string{model.ConfigVirtualService, model.ConfigDestinationRule, model.ConfigServiceEntry, model.ConfigWorkloadEntry}

// configure gives the registry four of each kind: p, q, r and s.
func (w *world) configure() {
	for _, kind := range judged {
		for _, name := range []string{"p", "q", "r", "s"} {
			w.Registry.Apply(configured(kind, name))
		}
	}
	w.configs(0, "p q r s", judged...)
}

// gone takes objects away in one event.
func (w *world) gone(kind string, names ...string) {
	var evs []model.Event
	for _, n := range names {
		evs = append(evs, model.Event{Row: configured(kind, n).Row})
	}
	w.Registry.Apply(evs...)
}

// configs waits, and compares what is served of kinds.
func (w *world) configs(d time.Duration, want string, kinds ...string) {
	w.t.Helper()
	time.Sleep(d) // of the fake clock
	served := w.settled()
	for _, kind := range kinds {
		var got []string
		for row := range served {
			if rest, ok := strings.CutPrefix(row.Key, kind+"/ns/"); ok && row.Kind != model.RowEndpoints {
				name, _, _ := strings.Cut(rest, "/")
				got = append(got, name)
			}
		}
		slices.Sort(got)
		if got := strings.Join(slices.Compact(got), " "); got != want {
			w.t.Errorf("after %v: %s %s, want %s", d, kind, got, want)
		}
	}
}

func (w *world) reconnect() {
	w.Registry.Status(model.Status{State: model.StateStale, Err: "gone"})
	w.Registry.Status(model.Status{State: model.StateLive})
}

func TestConfiguration(t *testing.T) {
	t.Parallel()
	const none = ""
	protect := api.EmptyPolicy{}
	story(t, "an object is deleted, and is gone in seconds", protect, func(w *world) {
		w.configure()
		for _, kind := range judged {
			w.gone(kind, "p")
		}
		w.configs(time.Second, "p q r s", judged...)
		w.configs(2*time.Second, "q r s", judged...)
		if len(w.problems()) > 0 {
			w.t.Errorf("%+v", w.problems())
		}
	})
	story(t, "the only object of its kind is deleted", protect, func(w *world) {
		w.Registry.Apply(configured(model.ConfigGateway, "p"))
		w.configs(0, "p", model.ConfigGateway)
		w.gone(model.ConfigGateway, "p")
		w.configs(3*time.Second, none, model.ConfigGateway)
	})
	story(t, "kinds are judged each for itself", protect, func(w *world) {
		w.configure()
		w.gone(model.ConfigVirtualService, "p", "q", "r")
		w.gone(model.ConfigDestinationRule, "p", "q")
		w.configs(3*time.Second, "p q r s", model.ConfigVirtualService)
		w.configs(0, "r s", model.ConfigDestinationRule)
		ps := w.problems()
		if len(ps) != 3 || ps[0].Item != "VirtualService/ns/p" || !strings.Contains(ps[0].Reason, "it is gone, and 3 of the 4 objects of its kind went together: it is held by the policy protect, until 2000-01-01T00:05:00Z") {
			w.t.Errorf("%+v", ps)
		}
		w.after(0, everything) // services are another kind
		w.configs(5*time.Minute, "s", model.ConfigVirtualService)
	})
	story(t, "incident 76: a server of configuration that restarts empty", protect, func(w *world) {
		w.configure()
		w.reconnect()
		for _, kind := range judged {
			w.gone(kind, "p", "q", "r", "s")
		}
		w.configs(50*time.Second, "p q r s", judged...)
		if ps := w.problems(); len(ps) != 16 || !strings.Contains(ps[0].Reason, "it is gone, a short time after contact was lost") {
			w.t.Errorf("%+v", ps)
		}
		w.Registry.Apply(configured(model.ConfigVirtualService, "p"), configured(model.ConfigServiceEntry, "q"))
		w.configs(time.Minute, "p q r s", judged...)
		if ps := w.problems(); len(ps) != 14 || slices.Max(w.held()) != 16 || ps[4].Item != "ServiceEntry/ns/p/p" {
			w.t.Errorf("%+v %v", ps, w.held())
		}
		w.configs(4*time.Minute, "p", model.ConfigVirtualService)
		w.configs(0, "q", model.ConfigServiceEntry)
		w.configs(0, none, model.ConfigDestinationRule, model.ConfigWorkloadEntry)
	})
	story(t, "what was deleted while there was no contact is gone within a minute of it", protect, func(w *world) {
		w.configure()
		w.reconnect()
		w.gone(model.ConfigVirtualService, "p")
		w.configs(50*time.Second, "p q r s", model.ConfigVirtualService)
		w.configs(10*time.Second, "q r s", model.ConfigVirtualService)
	})
	story(t, "a server that says something before all has been said again is only coming back", protect, func(w *world) {
		w.configure()
		w.Registry.Status(model.Status{State: model.StateStale, Err: "gone"})
		time.Sleep(time.Hour)
		w.gone(model.ConfigVirtualService, "p", "q", "r", "s")
		w.gone(model.ConfigWorkloadEntry, "p")
		w.put("a", 1)
		w.configs(50*time.Second, "p q r s", judged...)
		w.after(0, everything)
		w.configs(10*time.Second, "p q r s", model.ConfigVirtualService)
		w.configs(0, "q r s", model.ConfigWorkloadEntry)
		w.after(0, "a=1/1 b=4/4 c=4/4 d=4/4")
	})
	story(t, "an object with many rows is one that goes alone", protect, func(w *world) {
		one := model.Source{Shard: key, Object: model.ObjectKey{Kind: model.ConfigServiceEntry, Namespace: "ns", Name: "one"}}
		var put, del []model.Event
		for i := range 9 {
			host := fmt.Sprint("h", i)
			row := model.RowKey{Kind: model.RowService, Key: one.Object.String() + "/" + host}
			put = append(put, model.Event{Row: row, Obj: &model.Service{Host: host, Namespace: "ns", Source: one}})
			del = append(del, model.Event{Row: row})
		}
		w.Registry.Apply(put...)
		w.configs(0, "one", model.ConfigServiceEntry)
		w.Registry.Apply(del...)
		w.configs(3*time.Second, none, model.ConfigServiceEntry)
	})
	story(t, "services of ServiceEntries that have endpoints count among all that go", protect, func(w *world) {
		w.configure()
		var evs []model.Event
		for _, name := range []string{"e", "f", "g", "h", "i"} {
			row := configured(model.ConfigServiceEntry, name)
			src := model.Source{Shard: key, Object: model.ObjectKey{Kind: model.ConfigServiceEntry, Namespace: "ns", Name: name}}
			evs = append(evs, row, model.Event{Row: model.RowKey{Kind: model.RowEndpoints, Key: row.Row.Key}, Obj: &model.Endpoints{
				Host: name, Namespace: "ns", Source: src, Endpoints: []model.Endpoint{{PortName: "http"}},
			}})
		}
		w.Registry.Apply(evs...)
		w.configs(0, "e f g h i p q r s", model.ConfigServiceEntry)
		for i := range evs {
			evs[i].Obj = nil
		}
		w.Registry.Apply(evs...)
		w.gone(model.ConfigServiceEntry, "p", "q")                    // 2 of 4 without endpoints, 7 of 9 in all
		w.configs(2*time.Second, "p q r s", model.ConfigServiceEntry) // 5 of the 21 endpoints are gone
		w.configs(5*time.Minute, "r s", model.ConfigServiceEntry)
	})
	story(t, "what says nothing goes at once", protect, func(w *world) {
		ev := configured(model.ConfigVirtualService, "p")
		ev.Obj.(*model.Config).Spec = nil
		w.Registry.Apply(ev)
		w.configs(0, "p", model.ConfigVirtualService)
		w.gone(model.ConfigVirtualService, "p")
		w.configs(0, none, model.ConfigVirtualService)
	})
	story(t, "the full truth is judged like its changes", protect, func(w *world) {
		w.configure()
		w.Registry.Replace(all(map[string][]int{"a": four, "b": four, "c": four, "d": four}))
		w.configs(time.Minute, "p q r s", judged...)
		w.after(0, everything)
		w.configs(4*time.Minute, none, judged...)
	})
	story(t, "hold", api.EmptyPolicy{Mode: api.EmptyHold, Duration: &metav1.Duration{Duration: time.Minute}}, func(w *world) {
		w.configure()
		w.gone(model.ConfigVirtualService, "p")
		w.configs(59*time.Second, "p q r s", model.ConfigVirtualService)
		w.configs(time.Second, "q r s", model.ConfigVirtualService)
	})
	story(t, "immediate", api.EmptyPolicy{Mode: api.EmptyImmediate}, func(w *world) {
		w.configure()
		for _, kind := range judged {
			w.gone(kind, "p", "q", "r", "s")
		}
		w.configs(0, none, judged...)
	})
}

// TestEachThatIsHeldIsTold: a status names some of it, who asks is told of each.
func TestEachThatIsHeldIsTold(t *testing.T) {
	t.Parallel()
	story(t, "more than a status names", api.EmptyPolicy{}, func(w *world) {
		var evs, gone []model.Event
		for i := range 250 {
			name := fmt.Sprintf("v%03d", i)
			evs = append(evs, configured(model.ConfigVirtualService, name))
			gone = append(gone, model.Event{Row: evs[i].Row})
		}
		if ps := (holdback.Held{}).Problems(); len(ps) > 0 {
			w.t.Errorf("of nothing: %+v", ps)
		}
		w.Registry.Apply(evs...)
		w.reconnect()
		w.Registry.Apply(gone...)
		w.remove("a")
		time.Sleep(time.Second)
		synctest.Wait()
		all := w.last.Problems()
		if len(all) != 251 || w.last.Count != 251 || all[250].Item != "VirtualService/ns/v249" || !all[250].Held || !strings.Contains(all[250].Reason, "it is gone, a short time after contact was lost") {
			w.t.Errorf("%d of %d: %+v", len(all), w.last.Count, all)
		}
		if ps := w.problems(); len(ps) != 101 || !slices.Equal(ps[:100], all[:100]) || ps[100].More != 151 || !ps[100].Held {
			w.t.Errorf("%d problems, at last %+v", len(ps), ps[len(ps)-1])
		}
		some := w.last.Problems("VirtualService/ns/v249", "VirtualService/ns/none", "Service/ns/b", "Service/ns/a")
		if !slices.Equal(some, []model.Problem{all[0], all[250]}) {
			w.t.Errorf("%+v", some)
		}
		w.after(10*time.Minute, "b=4/4 c=4/4 d=4/4")
		if ps := w.last.Problems(); len(ps) > 0 || w.last.Count > 0 {
			w.t.Errorf("in the end: %+v", ps)
		}
	})
}

// What is held is looked through at a pace if it is much: a registry whose thousands of services come back one by one is told of now
// and then, and not at each.
func TestMuchIsToldAtAPace(t *testing.T) {
	t.Parallel()
	story(t, "thousands of objects go one by one, and come back", api.EmptyPolicy{}, func(w *world) {
		const many = 5000
		var evs []model.Event
		for i := range many {
			evs = append(evs, configured(model.ConfigVirtualService, fmt.Sprint("v", i)))
		}
		w.Registry.Apply(evs...)
		w.reconnect()
		synctest.Wait()
		before := len(w.Statuses())
		for _, ev := range evs {
			w.Registry.Apply(model.Event{Row: ev.Row})
			time.Sleep(time.Millisecond) // of the fake clock
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if ps, held := w.problems(), w.held(); len(ps) != 101 || held[len(held)-1] != many || ps[0].Item != "VirtualService/ns/v0" || ps[100].Reason != "4900 more are held back" || model.CountProblems(ps) != many {
			w.t.Errorf("%d problems, held %v", len(ps), held)
		}
		for _, ev := range evs {
			w.Registry.Apply(ev)
			time.Sleep(time.Millisecond)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if ps, held := w.problems(), w.held(); len(ps) > 0 || held[len(held)-1] != 0 {
			w.t.Errorf("%d problems, held %v", len(ps), held)
		}
		if n := len(w.Statuses()) - before; n > 1000 { // at each it were 10 000
			w.t.Errorf("%d statuses", n)
		}
		if n := holdback.Looks(w.before); n > 2000 {
			w.t.Errorf("%d looks", n)
		}
		w.configs(10*time.Minute, "", model.ConfigGateway)
		if n := len(w.served()); n < many {
			w.t.Errorf("%d rows", n)
		}
	})
}

// While much is held, further removals do not have it looked through at each: neither to tell of them nor to see what is due.
func TestLooksAreAtAPace(t *testing.T) {
	t.Parallel()
	story(t, "objects go one by one while thousands are held", api.EmptyPolicy{}, func(w *world) {
		const many, more = 5000, 300
		var evs, gone []model.Event
		for i := range many + more {
			evs = append(evs, configured(model.ConfigVirtualService, fmt.Sprint("v", i)))
			gone = append(gone, model.Event{Row: evs[i].Row})
		}
		w.Registry.Apply(evs...)
		w.reconnect()
		w.Registry.Apply(gone[:many]...)
		time.Sleep(3 * time.Second)
		synctest.Wait()
		before := holdback.Looks(w.before)
		for _, ev := range gone[many:] {
			w.Registry.Apply(ev)
			time.Sleep(100 * time.Microsecond) // of the fake clock
			synctest.Wait()
		}
		if n := holdback.Looks(w.before) - before; n > 4 { // in 30 ms, and it may rest for 98
			w.t.Errorf("%d looks at %d removals", n, more)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if held := w.held(); held[len(held)-1] != many+more {
			w.t.Errorf("%d are told", held[len(held)-1])
		}
	})
}
