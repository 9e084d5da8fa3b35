package nacos

import (
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
)

// A registry that replaces another has of what it can't read what the other knew, until it can read it.
func TestReplacementWithoutAGroup(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]func(class string, n request) int{
		"the list":           func(class string, n request) int { return about(classList, 500, false)(class, n) },
		"the list, for good": func(class string, n request) int { return about(classList, errorParameter, false)(class, n) },
		"the list, and its names": func(class string, n request) int {
			return max(about(classList, errorNoRight, false)(class, n), about(classSubscribe, errorNoRight, false)(class, n))
		},
		"names that are listed": func(class string, n request) int { return about(classSubscribe, 500, false)(class, n) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFake(t)
			in := func(name string) serviceName { return serviceName{bad.namespace, bad.group, name} }
			f.set(public("a"), []instance{host("10.0.0.1:80")})
			f.set(in("b"), []instance{host("10.0.0.2:80")})
			f.set(in("gone"), []instance{host("10.0.0.9:80")})
			o := Options{Spec: f.spec(withBad), Before: &Memory{}}
			old := start(t, o)
			f.set(in("gone"), nil)
			all := []string{"DEFAULT_GROUP@@a: 10.0.0.1:80 healthy", "other/BAD@@b: 10.0.0.2:80 healthy"}
			old.awaitServices(all...)

			f.change(func(x *faults) { x.answer = fault })
			next := start(t, o)
			next.awaitServices(all...)
			next.awaitState(model.StateLive)
			next.await("there is one problem", func() bool { return len(next.status.Problems) == 1 })
			o.Before = &Memory{} // of one that is declared otherwise
			other := start(t, o)
			other.awaitState(model.StateLive)
			other.awaitServices(all[0])

			f.change(func(x *faults) { x.answer = nil })
			f.set(in("b"), []instance{host("10.0.0.3:80")})
			f.set(in("c"), []instance{host("10.0.0.4:80")})
			now := []string{all[0], "other/BAD@@b: 10.0.0.3:80 healthy", "other/BAD@@c: 10.0.0.4:80 healthy"}
			for _, out := range []*sink{next, other} {
				out.awaitServices(now...)
				out.await("no problem is left", func() bool { return len(out.status.Problems) == 0 })
			}
			f.set(in("b"), nil)
			next.awaitServices(now[0], now[2])
		})
	}
}

// What went while nobody looked is not known again when its group can't be read any more.
func TestReplacementForgetsWhatHasGone(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	in := func(name string) serviceName { return serviceName{bad.namespace, bad.group, name} }
	f.set(in("b"), []instance{host("10.0.0.2:80")})
	f.set(in("dead"), []instance{host("10.0.0.9:80")})
	o := Options{Spec: f.spec(withBad), Before: &Memory{}}
	first, err := quickly(o)
	if err != nil {
		t.Fatal(err)
	}
	out := newSink(t)
	stop := begin(first, out)
	b := "other/BAD@@b: 10.0.0.2:80 healthy"
	out.awaitServices(b, "other/BAD@@dead: 10.0.0.9:80 healthy")
	stop() // as if its contact were lost: it sees nothing of what follows
	f.set(in("dead"), nil)
	start(t, o).awaitServices(b)
	f.change(func(x *faults) {
		x.answer = func(class string, n request) int {
			return max(about(classList, errorNoRight, false)(class, n), about(classSubscribe, errorNoRight, false)(class, n))
		}
	})
	third := start(t, o)
	third.awaitServices(b)
	third.awaitProblem(bad.String(), "can't be listed")
}

// Lists that change each time that they are read say nothing of the names that were in none of them.
func TestReplacementWithPartialLists(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.set(public("a"), []instance{host("10.0.0.1:80")})
	f.set(public("b"), []instance{host("10.0.0.2:80")})
	f.set(public("c"), []instance{host("10.0.0.3:80")})
	o := Options{Spec: f.spec(), Before: &Memory{}}
	all := []string{"DEFAULT_GROUP@@a: 10.0.0.1:80 healthy", "DEFAULT_GROUP@@b: 10.0.0.2:80 healthy", "DEFAULT_GROUP@@c: 10.0.0.3:80 healthy"}
	old := start(t, o)
	old.awaitServices(all...)
	f.change(func(x *faults) {
		x.page = func(_ int, names []string, count int) ([]string, int) { return names[1:], count }
	})
	next := start(t, o)
	next.awaitServices(all...)
	next.await("the first full truth had them", func() bool { return next.replaced == 1 && next.puts == 0 })
	next.awaitProblem("namespace public, group DEFAULT_GROUP", "the list changed")
	f.set(public("b"), nil)
	f.change(func(x *faults) { x.page = nil })
	next.awaitServices(all[0], all[2])
	next.await("no problem is left", func() bool { return len(next.status.Problems) == 0 })
}

// Of services that can't be read since none of their group can, each is asked for seldom, and all are when the group can be read.
func TestServicesOfAnUnreadGroupWait(t *testing.T) {
	t.Parallel()
	w, _ := bareWatcher()
	w.timing, w.backoff = defaultTiming, func(int) time.Duration { return time.Second }
	w.discover(public("a"))
	svc, n := w.services[public("a")], w.scopes[scope{"public", defaultGroup}]
	denied := &serverError{class: classSubscribe, code: errorNoRight}
	w.unlisted(n, denied)
	w.subscribed(svc, 1, nil, denied)
	if at := w.later.at[task{kind: subscribe, service: svc.name}]; at.Before(w.clock().Add(defaultTiming.reconcile - time.Minute)) {
		t.Errorf("it is asked for at %v", at)
	}
	for _, ok := w.todo.next(); ok; _, ok = w.todo.next() {
	}
	w.listed(n, w.clock(), []string{"a"}, nil)
	if got, _ := w.todo.next(); got != (task{kind: subscribe, service: svc.name}) {
		t.Errorf("what is asked is %+v", got)
	}
}
