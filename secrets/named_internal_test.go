package secrets

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
)

// What is wanted again is told anew, however soon; what is wanted on is left alone; nothing follows what is not wanted.
func TestWantedAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := NewNamed()
		var mu sync.Mutex
		var started []string // guarded by mu, as is running
		running := map[string]int{}
		n.start = func(ctx context.Context, name string) {
			mu.Lock()
			started = append(started, name)
			running[name]++
			mu.Unlock()
			<-ctx.Done()
			mu.Lock()
			running[name]--
			mu.Unlock()
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			n.follow(ctx)
		}()
		for _, names := range [][]string{{"a", "b"}, {"a", "b"}, {"b"}} {
			n.Want(names)
			synctest.Wait()
		}
		if !slices.Equal(started, []string{"a", "b"}) && !slices.Equal(started, []string{"b", "a"}) || running["a"] != 0 || running["b"] != 1 {
			t.Fatalf("%q, %v", started, running)
		}
		n.Want(nil)
		n.Want([]string{"b"})
		synctest.Wait()
		if len(started) != 3 || running["b"] != 1 {
			t.Errorf("%q, %v", started, running)
		}
		cancel()
		<-done
		if running["b"] != 0 {
			t.Errorf("%v", running)
		}
	})
}
