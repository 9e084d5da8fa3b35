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
	before  atomic.Pointer[map[MemoKey]*memoEntry] // of the view that this one replaced
	built   atomic.Int64
}

type memoEntry struct {
	once sync.Once
	done atomic.Bool
	val  any
}

// Do returns the value for k, building it if this is the first call for k. Concurrent callers wait
// for the one that builds. build must not panic and must depend on nothing but the view and k.
func (m *Memo) Do(k MemoKey, build func() any) any {
	e := m.lookup(k)
	if e == nil {
		e = m.insert(k)
	}
	e.once.Do(func() {
		e.val = build()
		e.done.Store(true)
		m.finished()
	})
	return e.val
}

// Before returns what was built for k of the view that this one replaced, or nil: nothing was, or it
// is not kept any more (see keepBefore). It is for telling what of a changed view is as it was.
func (m *Memo) Before(k MemoKey) any {
	if p := m.before.Load(); p != nil {
		if e := (*p)[k]; e != nil && e.done.Load() {
			return e.val
		}
	}
	return nil
}

// follow makes the values of old those before; it is called before publication. It reports whether
// there are any.
func (m *Memo) follow(old *Memo) bool {
	entries := old.entries.Load()
	m.before.Store(entries)
	return entries != nil
}

// adopt takes the values of old over; it is called before publication.
func (m *Memo) adopt(old *Memo) {
	m.entries.Store(old.entries.Load())
	m.before.Store(old.before.Load())
	m.built.Store(old.built.Load())
}

// forget lets the values before go.
func (m *Memo) forget() { m.before.Store(nil) }

// finished lets the values before go once as many were made anew.
func (m *Memo) finished() {
	n := m.built.Add(1)
	if p := m.before.Load(); p != nil && n >= int64(len(*p)) {
		m.forget()
	}
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
