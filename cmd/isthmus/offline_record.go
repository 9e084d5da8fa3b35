package main

import (
	"cmp"
	"context"
	"slices"
	"sync"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
)

// recorder notes what registries report on its way to the controller: workloads, which a snapshot does not hold, and
// what is wrong with files, which may be told after the snapshot is made.
type recorder struct {
	told chan struct{} // closed once every registry that is awaited has told how it is

	mu        sync.Mutex
	statuses  map[model.ShardKey]model.Status       // guarded by mu
	awaited   map[model.ShardKey]bool               // guarded by mu; registries that have not told yet
	workloads map[model.WorkloadKey]*model.Workload // guarded by mu
	closed    bool                                  // guarded by mu
}

func newRecorder() *recorder {
	return &recorder{
		told: make(chan struct{}), statuses: map[model.ShardKey]model.Status{}, awaited: map[model.ShardKey]bool{},
		workloads: map[model.WorkloadKey]*model.Workload{},
	}
}

// watch gives a lifecycle that is recorded.
func (r *recorder) watch(l model.Lifecycle) model.Lifecycle { return &recorded{l, r} }

type recorded struct {
	model.Lifecycle
	recorder *recorder
}

// Attach implements model.Lifecycle.
func (l *recorded) Attach(reg model.Registry) {
	l.recorder.await(reg.Key())
	l.Lifecycle.Attach(&recordedRegistry{reg, l.recorder})
}

type recordedRegistry struct {
	model.Registry
	recorder *recorder
}

// Run implements model.Registry.
func (r *recordedRegistry) Run(ctx context.Context, out model.Sink) error {
	return r.Registry.Run(ctx, &recordedSink{out, r.Key(), r.recorder})
}

type recordedSink struct {
	model.Sink
	key      model.ShardKey
	recorder *recorder
}

// Replace implements model.Sink.
func (s *recordedSink) Replace(full *model.ShardState) {
	for _, obj := range full.Rows() {
		s.recorder.row(obj)
	}
	s.Sink.Replace(full)
}

// Put implements model.Sink.
func (s *recordedSink) Put(events ...model.Event) {
	for _, e := range events {
		s.recorder.row(e.Obj)
	}
	s.Sink.Put(events...)
}

// Status implements model.Sink.
func (s *recordedSink) Status(st model.Status) {
	s.recorder.note(s.key, st)
	s.Sink.Status(st)
}

func (r *recorder) await(k model.ShardKey) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.awaited[k] = true
}

func (r *recorder) row(obj model.Object) {
	w, ok := obj.(*model.Workload)
	if !ok || w == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.workloads[w.Key()] = w
}

func (r *recorder) note(k model.ShardKey, st model.Status) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.statuses[k] = st
	if st.State == model.StateSyncing {
		return
	}
	if delete(r.awaited, k); len(r.awaited) == 0 && !r.closed {
		r.closed = true
		close(r.told)
	}
}

func (r *recorder) status(k model.ShardKey) (model.Status, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	st, ok := r.statuses[k]
	return st, ok
}

// all gives the workloads in order.
func (r *recorder) all() (out []*model.Workload) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, w := range r.workloads {
		out = append(out, w)
	}
	slices.SortFunc(out, func(a, b *model.Workload) int {
		return cmp.Or(cmp.Compare(a.Source.Shard.Cluster, b.Source.Shard.Cluster), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Kind, b.Kind))
	})
	return out
}
