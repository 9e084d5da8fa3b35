package foreign_test

import (
	"slices"
	"sync"
	"testing"

	"github.com/isthmus-mesh/isthmus/clusters/foreign"
)

func TestMemory(t *testing.T) {
	t.Parallel()
	var none *foreign.Memory[string, int]
	none.Note("dc1", "a", new(int))
	none.Keep("dc1", nil)
	if none.Last("dc1", "a") != nil || none.Names("dc1") != nil {
		t.Error("what is no memory knows something")
	}
	var m foreign.Memory[string, int]
	m.Keep("dc1", []string{"a"})
	m.Note("dc1", "a", nil)
	a := new(int)
	for _, name := range []string{"c", "b", "a"} {
		m.Note("dc1", name, a)
		m.Note("dc2", name, new(int))
	}
	m.Note("dc1", "b", nil)
	if got := m.Names("dc1"); !slices.Equal(got, []string{"a", "c"}) {
		t.Errorf("dc1 has %q", got)
	}
	if m.Last("dc1", "a") != a || m.Last("dc1", "b") != nil || m.Last("dc3", "a") != nil {
		t.Error("another value is known")
	}
	m.Keep("dc1", []string{"c", "d"})
	if got := m.Names("dc1"); !slices.Equal(got, []string{"c"}) {
		t.Errorf("dc1 has %q, where c and d are", got)
	}
	if got := m.Names("dc2"); !slices.Equal(got, []string{"a", "b", "c"}) {
		t.Errorf("dc2 has %q", got)
	}
}

// A registry and the one that replaces it use it at the same time.
func TestMemoryOfTwo(t *testing.T) {
	t.Parallel()
	var m foreign.Memory[string, int]
	var work sync.WaitGroup
	for range 2 {
		work.Go(func() {
			for i := range 100 {
				m.Note("dc1", "a", &i)
				m.Keep("dc1", m.Names("dc1"))
				m.Last("dc1", "a")
			}
		})
	}
	work.Wait()
	if last := m.Last("dc1", "a"); last == nil || *last != 99 {
		t.Errorf("last is %v", last)
	}
}
