package pushcontext

import (
	"maps"
	"sync"
	"sync/atomic"
)

// MemoKey names a derived value of a view: which generator made it, for which class of reader.
type MemoKey struct {
	Generator uint8
	Class     uint32
}

// Memo holds values derived from one view. Each is built at most once per key and is collected
// together with the view. The zero value is ready to use; a Memo must not be copied.
type Memo struct {
	mu      sync.Mutex
	entries atomic.Pointer[map[MemoKey]*memoEntry] // copy on write: few keys, many reads
}

type memoEntry struct {
	once sync.Once
	val  any
}

// Do returns the value for k, building it if this is the first call for k. Concurrent callers wait
// for the one that builds. build must not panic and must depend on nothing but the view and k.
func (m *Memo) Do(k MemoKey, build func() any) any {
	e := m.lookup(k)
	if e == nil {
		e = m.insert(k)
	}
	e.once.Do(func() { e.val = build() })
	return e.val
}

func (m *Memo) lookup(k MemoKey) *memoEntry {
	if p := m.entries.Load(); p != nil {
		return (*p)[k]
	}
	return nil
}

func (m *Memo) insert(k MemoKey) *memoEntry {
	m.mu.Lock()
	defer m.mu.Unlock()
	if e := m.lookup(k); e != nil {
		return e
	}
	next := map[MemoKey]*memoEntry{}
	if p := m.entries.Load(); p != nil {
		next = maps.Clone(*p)
	}
	e := new(memoEntry)
	next[k] = e
	m.entries.Store(&next)
	return e
}
