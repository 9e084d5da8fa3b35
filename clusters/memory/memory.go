// Package memory is a registry that a test scripts (it reports what it is told, when it is told, and
// misbehaves on demand), and a sink that keeps what a registry says.
package memory

import (
	"context"
	"maps"
	"sync"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
)

// Registry is a scripted model.Registry. Its methods may be called before, during and after Run, from
// any goroutine; rows set before Run are delivered by it.
type Registry struct {
	key model.ShardKey

	mu       sync.Mutex
	rows     map[model.RowKey]model.Object // guarded by mu: the truth
	ready    bool                          // guarded by mu: Replace was called, so Run may deliver
	hang     bool                          // guarded by mu: Run delivers nothing
	sink     model.Sink                    // guarded by mu: of the current run
	last     model.Sink                    // guarded by mu: of the newest run, also after its end
	fail     chan error                    // cap 1: makes Run return
	running  int                           // guarded by mu
	started  int                           // guarded by mu
	panicing string                        // guarded by mu: makes the next Run panic
}

// New makes a registry that is silent until Replace is called.
func New(key model.ShardKey) *Registry {
	return &Registry{key: key, rows: map[model.RowKey]model.Object{}, fail: make(chan error, 1)}
}

// Key implements model.Registry.
func (r *Registry) Key() model.ShardKey { return r.key }

// Run implements model.Registry: it delivers the truth, if there is one, and then every change.
func (r *Registry) Run(ctx context.Context, out model.Sink) error {
	if p := r.begin(out); p != "" {
		panic(p)
	}
	defer r.finish(out)
	select {
	case <-ctx.Done():
		return ctx.Err()
	case err := <-r.fail:
		return err
	}
}

func (r *Registry) begin(out model.Sink) (panicText string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.started++
	panicText, r.panicing = r.panicing, ""
	if panicText != "" {
		return panicText
	}
	r.running++
	r.sink, r.last = out, out
	if r.ready && !r.hang {
		r.deliver()
	}
	return ""
}

func (r *Registry) finish(out model.Sink) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.running--
	if r.sink == out {
		r.sink = nil
	}
}

// deliver sends the full truth. Sinks never block, so the lock may be held.
func (r *Registry) deliver() {
	if r.sink != nil {
		r.sink.Replace(r.state())
		r.sink.Status(model.Status{State: model.StateLive})
	}
}

func (r *Registry) state() *model.ShardState {
	b := model.NewShardBuilder()
	for k, o := range r.rows {
		b.Add(k.Key, o)
	}
	return b.Build()
}

// State gives the truth as it stands.
func (r *Registry) State() *model.ShardState {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.state()
}

// Replace sets the full truth and delivers it: the first sync, or a relist. Nil means that of now.
func (r *Registry) Replace(s *model.ShardState) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if s != nil {
		r.rows = maps.Collect(s.Rows())
	}
	r.ready = true
	if !r.hang {
		r.deliver()
	}
}

// Restore delivers what is known from earlier, with how long ago that was: what comes by itself is unknown.
func (r *Registry) Restore(s *model.ShardState, st model.Status) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.rows, r.ready = maps.Collect(s.Rows()), true
	if r.sink != nil {
		r.sink.Replace(r.state())
		r.sink.Status(st)
	}
}

// Put sets one row under the key, and reports it if the registry has synced.
func (r *Registry) Put(key string, o model.Object) {
	r.Apply(model.Event{Row: model.RowKey{Kind: o.RowKind(), Key: key}, Obj: o})
}

// Delete removes one row.
func (r *Registry) Delete(k model.RowKey) { r.Apply(model.Event{Row: k}) }

// Apply sets and deletes rows, and reports them together.
func (r *Registry) Apply(evs ...model.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, ev := range evs {
		if ev.Obj == nil {
			delete(r.rows, ev.Row)
		} else {
			r.rows[ev.Row] = ev.Obj
		}
	}
	if r.sink != nil && r.ready && !r.hang {
		r.sink.Put(evs...)
	}
}

// Status reports contact with the imagined source.
func (r *Registry) Status(s model.Status) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.sink != nil {
		r.sink.Status(s)
	}
}

// Fail makes the current run, or else the next, return err.
func (r *Registry) Fail(err error) {
	select {
	case r.fail <- err:
	default:
	}
}

// Panic makes the next run panic.
func (r *Registry) Panic(text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.panicing = text
}

// Hang stops (true) or resumes (false) all delivery. On resuming, the truth is delivered in full.
func (r *Registry) Hang(on bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.hang = on
	if !on && r.ready {
		r.deliver()
	}
}

// Late writes to the sink of the newest run even if that run has ended: what no registry may do.
func (r *Registry) Late(evs ...model.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, ev := range evs {
		if r.last != nil {
			r.last.Put(ev)
		}
	}
}

// LateReplace is Late for a full truth.
func (r *Registry) LateReplace(s *model.ShardState) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.last != nil {
		r.last.Replace(s)
	}
}

// Running is the number of runs that have not ended.
func (r *Registry) Running() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.running
}

// Started is the number of runs so far.
func (r *Registry) Started() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.started
}
