package pushcontext

import (
	"sync"
	"sync/atomic"
)

// ringSize is how many deltas are kept. A reader further behind compares everything it has.
const ringSize = 1024

// Hub is where the controller publishes snapshots and everybody else reads them.
type Hub struct {
	current atomic.Pointer[PushContext]
	notify  func(*PushContext, *Delta) // read-only after NewHub
	sealed  seal                       // owned by the publisher

	mu   sync.Mutex
	ring [ringSize]*Delta // guarded by mu; slot To % ringSize
	last uint64           // guarded by mu; To of the newest
}

// NewHub makes an empty hub. notify, which may be nil, is called by Publish after the new snapshot
// can be read; it must not block.
func NewHub(notify func(*PushContext, *Delta)) *Hub { return &Hub{notify: notify} }

// Current gives the newest snapshot, nil before the first. Do not keep it across a blocking wait.
func (h *Hub) Current() *PushContext { return h.current.Load() }

// Publish makes pc current. It is called by one goroutine, with consecutive versions.
func (h *Hub) Publish(pc *PushContext, d *Delta) {
	for _, step := range h.publication(pc, d) {
		step()
	}
}

// publication is what Publish does, in order: were the pointer stored first, a reader could take
// version v as seen before delta v is in the ring, and lose the update.
func (h *Hub) publication(pc *PushContext, d *Delta) []func() {
	return []func(){
		func() { h.append(d) },
		func() { h.current.Store(pc) },
		func() { h.wake(pc, d) },
		func() { h.sealed.next(pc) },
	}
}

func (h *Hub) wake(pc *PushContext, d *Delta) {
	if h.notify != nil {
		h.notify(pc, d)
	}
}

func (h *Hub) append(d *Delta) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ring[d.To%ringSize] = d
	h.last = d.To
}

// Between gives what changed after version from, up to and including version to. It reports false
// if the ring does not reach back to from: then everything may have changed.
func (h *Hub) Between(from, to uint64) (*Delta, bool) {
	if from >= to {
		return &Delta{From: from, To: to}, true
	}
	ds, ok := h.steps(from, to)
	if !ok {
		return nil, false
	}
	return merge(ds), true
}

func (h *Hub) steps(from, to uint64) ([]*Delta, bool) {
	if to-from > ringSize {
		return nil, false
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if to > h.last || h.last-from > ringSize {
		return nil, false
	}
	ds := make([]*Delta, 0, to-from)
	for v := from + 1; v <= to; v++ {
		d := h.ring[v%ringSize]
		if d == nil || d.To != v {
			return nil, false
		}
		ds = append(ds, d)
	}
	return ds, true
}
