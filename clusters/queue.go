package clusters

import "sync"

// Queue has changes made one after the other, and what follows from them. Nothing is locked meanwhile, so both may attach registries, and
// ask for further changes.
type Queue struct {
	// Follow makes what follows from changes, once for all that there were. It is set before the first.
	Follow func()

	mu      sync.Mutex
	changes []func() // guarded by mu: to be made, in order
	active  bool     // guarded by mu: somebody makes them, and owns what they are about
}

// Apply makes a change and what follows from it. If another goroutine is at it, that one does, and Apply does not wait for it.
func (q *Queue) Apply(change func()) {
	if !q.add(change) {
		return
	}
	for changes := q.take(); changes != nil; changes = q.take() {
		for _, c := range changes {
			c()
		}
		q.Follow()
	}
}

// add reports whether nobody is at it yet.
func (q *Queue) add(change func()) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	was := q.active
	q.changes, q.active = append(q.changes, change), true
	return !was
}

// take gives what there is to do. If that is nothing, nobody is at it any more.
func (q *Queue) take() []func() {
	q.mu.Lock()
	defer q.mu.Unlock()
	changes := q.changes
	q.changes, q.active = nil, len(changes) > 0
	return changes
}
