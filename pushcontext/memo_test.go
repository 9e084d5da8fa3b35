package pushcontext

import (
	"sync"
	"sync/atomic"
	"testing"
)

func TestMemoBuildsOncePerKey(t *testing.T) {
	t.Parallel()
	const keys, readers = 40, 16
	var m Memo
	var built [keys]atomic.Int32
	var got [readers][keys]any
	var wg sync.WaitGroup
	start := make(chan struct{})
	for r := range readers {
		wg.Go(func() {
			<-start
			for i := range keys {
				k := (i + r*7) % keys
				got[r][k] = m.Do(MemoKey{Generator: uint8(k % 4), Class: uint32(k / 4)}, func() any {
					built[k].Add(1)
					return &k
				})
			}
		})
	}
	close(start)
	wg.Wait()
	for k := range keys {
		if n := built[k].Load(); n != 1 {
			t.Errorf("key %d was built %d times", k, n)
		}
		for r := range readers {
			if got[r][k] != got[0][k] || got[r][k] == nil {
				t.Errorf("reader %d has another value for key %d", r, k)
			}
		}
	}
}

// A slow build must not hold up the building of another key.
func TestMemoBuildsKeysIndependently(t *testing.T) {
	t.Parallel()
	var m Memo
	other := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		m.Do(MemoKey{Class: 1}, func() any { <-other; return nil })
	})
	m.Do(MemoKey{Class: 2}, func() any { return nil })
	close(other)
	wg.Wait()
}

func TestMemoKeepsNil(t *testing.T) {
	t.Parallel()
	var m Memo
	m.Do(MemoKey{}, func() any { return nil })
	if v := m.Do(MemoKey{}, func() any { t.Error("built again"); return 1 }); v != nil {
		t.Errorf("got %v", v)
	}
}

func TestMemoBefore(t *testing.T) {
	t.Parallel()
	var old, next Memo
	keys := []MemoKey{{Class: 1}, {Class: 2}}
	for i, k := range keys {
		old.Do(k, func() any { return i })
	}
	next.follow(&old)
	old.Do(MemoKey{Class: 3}, func() any { return "late" })
	for i, k := range keys {
		if v := next.Before(k); v != i {
			t.Errorf("before %v: %v", k, v)
		}
	}
	if v := next.Before(MemoKey{Class: 3}); v != nil {
		t.Errorf("what was built after the replacement is no predecessor: %v", v)
	}
	if v := new(Memo).Before(keys[0]); v != nil {
		t.Errorf("a first view has a predecessor: %v", v)
	}
	for i, k := range keys {
		next.Do(k, func() any {
			if v := next.Before(k); v != i {
				t.Errorf("while building %v: %v", k, v)
			}
			return "new"
		})
	}
	if next.before.Load() != nil {
		t.Error("values before are kept although all were made anew")
	}
}

func TestMemoBeforeSkipsWhatIsBeingBuilt(t *testing.T) {
	t.Parallel()
	var old, next Memo
	begun, finish := make(chan struct{}), make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		old.Do(MemoKey{}, func() any { close(begun); <-finish; return 1 })
	})
	<-begun
	next.follow(&old)
	if v := next.Before(MemoKey{}); v != nil {
		t.Errorf("got %v", v)
	}
	close(finish)
	wg.Wait()
	if v := next.Before(MemoKey{}); v != 1 {
		t.Errorf("got %v", v)
	}
}
