package nacos

import (
	"fmt"
	"testing"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
)

// A list that is not whole says nothing; names that are in it or not change nothing.
func TestPartialListsSayNothing(t *testing.T) {
	t.Parallel()
	partial := map[string]func(page int, names []string, count int) ([]string, int){
		"a name is missing":      func(_ int, names []string, count int) ([]string, int) { return names[1:], count },
		"nothing of what counts": func(_ int, _ []string, count int) ([]string, int) { return nil, count },
		"a name comes twice":     func(_ int, names []string, count int) ([]string, int) { return append(names[1:], names[1]), count },
		"more than counted":      func(_ int, names []string, count int) ([]string, int) { return names, count - 1 },
		"a negative number":      func(_ int, names []string, _ int) ([]string, int) { return names, -1 },
		"too many to be true":    func(_ int, names []string, _ int) ([]string, int) { return names, 1 << 40 },
		"the number changes":     func(page int, names []string, count int) ([]string, int) { return names, count + 2*pageSize + page },
	}
	for name, page := range partial {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFake(t)
			f.set(public("a"), []instance{host("10.0.0.1:80")})
			f.set(public("b"), []instance{host("10.0.0.2:80")})
			out := start(t, Options{Spec: f.spec()})
			want := []string{"DEFAULT_GROUP@@a: 10.0.0.1:80 healthy", "DEFAULT_GROUP@@b: 10.0.0.2:80 healthy"}
			out.awaitServices(want...)
			f.change(func(x *faults) { x.page = page })
			out.awaitProblem("namespace public, group DEFAULT_GROUP", "can't be listed")
			f.await("no question whether they are gone", func() bool { return f.calls[classQuery] == 0 })
			out.awaitServices(want...)
			f.change(func(x *faults) { x.page = nil })
			out.await("no problem", func() bool { return len(out.status.Problems) == 0 })
			out.awaitServices(want...)
		})
	}
}

// Where lists change each time that they are read, the names that are seen are served.
func TestListsThatAlwaysChange(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	for _, n := range []string{"a", "b", "c"} {
		f.set(public(n), []instance{host("10.0.0.1:80")})
	}
	turn := 0
	f.faults.page = func(_ int, names []string, count int) ([]string, int) {
		turn++
		return names[turn%2 : turn%2+2], count
	}
	out := start(t, Options{Spec: f.spec()})
	out.awaitServices("DEFAULT_GROUP@@a: 10.0.0.1:80 healthy", "DEFAULT_GROUP@@b: 10.0.0.1:80 healthy", "DEFAULT_GROUP@@c: 10.0.0.1:80 healthy")
	out.awaitState(model.StateLive)
	out.awaitProblem("namespace public, group DEFAULT_GROUP", "the list changed")
	f.await("nothing is asked about what they lack", func() bool { return f.calls[classQuery] == 0 })
}

// Lists of several pages are read whole.
func TestListsOfManyPages(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	n := 2*pageSize + 17
	for i := range n {
		f.set(public(fmt.Sprint("s", i)), []instance{host("10.0.0.1:80")})
	}
	out := start(t, Options{Spec: f.spec()})
	out.await("all services", func() bool { return len(out.services()) == n })
}

// A list that leaves out a service whose instances are there is not believed.
func TestAbsenceIsConfirmed(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.set(public("a"), []instance{host("10.0.0.1:80")})
	f.set(public("b"), []instance{host("10.0.0.2:80")})
	out := start(t, Options{Spec: f.spec()})
	want := []string{"DEFAULT_GROUP@@a: 10.0.0.1:80 healthy", "DEFAULT_GROUP@@b: 10.0.0.2:80 healthy"}
	out.awaitServices(want...)
	f.change(func(x *faults) {
		x.page = func(_ int, names []string, count int) ([]string, int) { return names[1:], count - 1 }
	})
	f.await("it asks", func() bool { return f.calls[classQuery] >= 3 })
	out.awaitServices(want...)
}
