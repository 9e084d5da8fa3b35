package fleet

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/mem"
)

// Watch looks for a marker in what proxies receive.
type Watch struct {
	fleet   *Fleet
	marker  []byte
	typeURL string
	want    []bool // by proxy
	seen    []atomic.Int64
	left    atomic.Int64
	done    chan struct{}
	once    sync.Once
}

// Watch starts to look for the marker (an address, a host name) in responses of a type, at the
// proxies of a group, or at all if group is "". Every Watch must be ended with Stop.
func (f *Fleet) Watch(marker, typeURL, group string) *Watch {
	w := &Watch{fleet: f, marker: []byte(marker), typeURL: typeURL, done: make(chan struct{}),
		want: make([]bool, len(f.opts.Proxies)), seen: make([]atomic.Int64, len(f.opts.Proxies))}
	for i, p := range f.opts.Proxies {
		if w.want[i] = group == "" || p.Group == group; w.want[i] {
			w.left.Add(1)
		}
	}
	f.change(func(ws []*Watch) []*Watch { return append(ws, w) })
	return w
}

// Stop ends the watch.
func (w *Watch) Stop() {
	w.fleet.change(func(ws []*Watch) []*Watch {
		return slices.DeleteFunc(ws, func(x *Watch) bool { return x == w })
	})
}

// change replaces the list of watches, which streams read without a lock.
func (f *Fleet) change(edit func([]*Watch) []*Watch) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var ws []*Watch
	if p := f.watches.Load(); p != nil {
		ws = slices.Clone(*p)
	}
	ws = edit(ws)
	f.watches.Store(&ws)
}

func (f *Fleet) sight(proxy int, typeURL string, data mem.BufferSlice, at time.Time) {
	ws := f.watches.Load()
	if ws == nil {
		return
	}
	for _, w := range *ws {
		if w.typeURL != typeURL || !w.want[proxy] || w.seen[proxy].Load() != 0 || !contains(data, w.marker) {
			continue
		}
		if w.seen[proxy].CompareAndSwap(0, at.UnixNano()) && w.left.Add(-1) == 0 {
			w.once.Do(func() { close(w.done) })
		}
	}
}

// Await waits until every watched proxy has seen the marker and gives how long after since each
// did, sorted.
func (w *Watch) Await(ctx context.Context, since time.Time) ([]time.Duration, error) {
	select {
	case <-w.done:
	case <-ctx.Done():
		return nil, fmt.Errorf("%q did not reach %d of %d proxies: %w%s", w.marker, w.left.Load(), len(w.want), ctx.Err(), w.fleet.lastFault())
	}
	var ds []time.Duration
	for i := range w.seen {
		if w.want[i] {
			ds = append(ds, max(0, time.Unix(0, w.seen[i].Load()).Sub(since)))
		}
	}
	slices.Sort(ds)
	return ds, nil
}
