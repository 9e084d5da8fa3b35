package registries

import (
	"context"
	"maps"
	"strings"
	"sync"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
)

// Follower passes registries on to a Lifecycle, and what they declare to a Manager: just before it goes where all rows go, so that who waits
// for these waits for the registries that they declare too.
type Follower struct {
	model.Lifecycle
	manager *Manager

	mu       sync.Mutex
	last     map[model.ShardKey]*followSink // guarded by mu: whose rows count: the one that gave a full truth last
	detached map[model.ShardKey]uint64      // guarded by mu: how often each key was
}

// NewFollower gives one that passes on to l and tells m.
func NewFollower(l model.Lifecycle, m *Manager) *Follower {
	return &Follower{Lifecycle: l, manager: m, last: map[model.ShardKey]*followSink{}, detached: map[model.ShardKey]uint64{}}
}

// Attach implements model.Lifecycle.
func (f *Follower) Attach(r model.Registry) {
	if f.manager.opts.Scope.follows(r.Key()) {
		f.mu.Lock()
		r = followed{r, f, f.detached[r.Key()]}
		f.mu.Unlock()
	}
	f.Lifecycle.Attach(r)
}

// Detach implements model.Lifecycle.
func (f *Follower) Detach(k model.ShardKey) {
	f.Lifecycle.Detach(k)
	if f.manager.opts.Scope.follows(k) {
		f.mu.Lock()
		f.detached[k]++
		delete(f.last, k)
		f.mu.Unlock()
		f.manager.queue.Apply(func() { delete(f.manager.rows, k) })
	}
}

// follows reports whether a registry may have declarations that count.
func (s Scope) follows(k model.ShardKey) bool {
	return !k.Provider.Foreign() && !k.Provider.OfHub() && (s.ConfigCluster == "" || k.Cluster == s.ConfigCluster)
}

// followed is a registry whose declarations count. It is a value: the same registry attached again is equal to what it was.
type followed struct {
	model.Registry
	by       *Follower
	detached uint64 // how often its key was before
}

// Run implements model.Registry.
func (r followed) Run(ctx context.Context, out model.Sink) error {
	return r.Registry.Run(ctx, &followSink{Sink: out, of: r})
}

// followSink is the sink of one run.
type followSink struct {
	model.Sink
	of followed
}

// Replace implements model.Sink.
func (s *followSink) Replace(full *model.ShardState) {
	if full != nil {
		rows := map[string]*model.Config{}
		for k, o := range full.Rows() {
			if c, ok := o.(*model.Config); ok && Counts(c) {
				rows[k.Key] = c
			}
		}
		s.change(true, func(m *Manager) { m.rows[s.of.Key()] = rows })
	}
	s.Sink.Replace(full)
}

// Put implements model.Sink.
func (s *followSink) Put(events ...model.Event) {
	changed := map[string]*model.Config{}
	for _, ev := range events {
		if ev.Row.Kind == model.RowConfig && (strings.HasPrefix(ev.Row.Key, model.ConfigRegistry+"/") || strings.HasPrefix(ev.Row.Key, model.ConfigMcpBridge+"/")) {
			changed[ev.Row.Key], _ = ev.Obj.(*model.Config)
		}
	}
	if len(changed) > 0 {
		s.change(false, func(m *Manager) {
			rows := m.rows[s.of.Key()]
			maps.Copy(rows, changed)
			maps.DeleteFunc(rows, func(_ string, c *model.Config) bool { return c == nil })
		})
	}
	s.Sink.Put(events...)
}

// change makes a change, unless its key was detached since, or another run has given a full truth since this one did.
func (s *followSink) change(full bool, what func(*Manager)) {
	f, k := s.of.by, s.of.Key()
	counts := func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		if full && f.detached[k] == s.of.detached {
			f.last[k] = s
		}
		return f.last[k] == s
	}
	if counts() {
		f.manager.queue.Apply(func() {
			if full = false; counts() { // still
				what(f.manager)
			}
		})
	}
}
