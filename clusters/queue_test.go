package clusters_test

import (
	"slices"
	"sync"
	"testing"

	"github.com/isthmus-mesh/isthmus/clusters"
)

// TestQueueAsksForMore has changes, and what follows from them, ask for changes: all are made, in the order in which they were asked for.
func TestQueueAsksForMore(t *testing.T) {
	t.Parallel()
	var q clusters.Queue
	var got []string
	say := func(what string) func() { return func() { got = append(got, what) } }
	q.Follow = func() {
		got = append(got, "follow")
		if len(got) == 2 {
			q.Apply(say("third"))
		}
	}
	q.Apply(func() {
		got = append(got, "first")
		if q.Apply(say("second")); len(got) != 1 {
			t.Errorf("%v: a change was made within another", got)
		}
	})
	if want := []string{"first", "follow", "second", "third", "follow"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// TestQueueOfManyGoroutines: changes that nothing else protects are made once each, and something follows from the last one.
func TestQueueOfManyGoroutines(t *testing.T) {
	t.Parallel()
	var q clusters.Queue
	made, seen := 0, 0
	q.Follow = func() { seen = made }
	const goroutines, changes = 8, 100
	var all sync.WaitGroup
	for range goroutines {
		all.Go(func() {
			for range changes {
				q.Apply(func() { made++ })
			}
		})
	}
	all.Wait()
	if made != goroutines*changes || seen != made {
		t.Errorf("%d changes were made and %d followed, want %d", made, seen, goroutines*changes)
	}
}
