package foreign

import (
	"maps"
	"slices"
	"sync"
)

// Memory is what registries of one declaration leave to each other: what was last known of services, by their scope and name. One that
// replaces another, with other credentials, has of it what it can't read yet, so that nothing is lost that only can't be read. It is safe for
// use by several goroutines. The zero value is ready for use; who has none (nil) notes nothing and knows nothing. What values point to does not
// change.
type Memory[S comparable, V any] struct {
	mu   sync.Mutex
	last map[S]map[string]*V // guarded by mu
}

// Note notes what a service is; nil if there is none.
func (m *Memory[S, V]) Note(of S, name string, v *V) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case v == nil:
		delete(m.last[of], name)
		return
	case m.last == nil:
		m.last = map[S]map[string]*V{}
	}
	if m.last[of] == nil {
		m.last[of] = map[string]*V{}
	}
	m.last[of][name] = v
}

// Keep notes that a scope has no other services than these, which need not be known.
func (m *Memory[S, V]) Keep(of S, names []string) {
	if m == nil {
		return
	}
	there := make(map[string]bool, len(names))
	for _, n := range names {
		there[n] = true
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	maps.DeleteFunc(m.last[of], func(name string, _ *V) bool { return !there[name] })
}

// Last is what was last known of a service; nil if nothing was.
func (m *Memory[S, V]) Last(of S, name string) *V {
	if m == nil {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.last[of][name]
}

// Names are the services of a scope, sorted.
func (m *Memory[S, V]) Names(of S) []string {
	if m == nil {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Sorted(maps.Keys(m.last[of]))
}
