package registries

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
)

// instance is a registry as it is attached: it knows whether it has delivered everything once, and adds problems to those that the registry
// tells itself.
type instance struct {
	model.Registry
	delivered atomic.Bool

	mu       sync.Mutex
	out      model.Sink      // guarded by mu: of the run; nil if it does not run
	last     model.Status    // guarded by mu: that the registry told last in this run
	problems []model.Problem // guarded by mu
	stale    time.Duration   // guarded by mu: that statuses have which say none of their own; 0: none
}

// Run implements model.Registry.
func (i *instance) Run(ctx context.Context, out model.Sink) error {
	i.mu.Lock()
	i.out, i.last = out, model.Status{}
	i.mu.Unlock()
	defer func() {
		i.mu.Lock()
		defer i.mu.Unlock()
		if i.out == out {
			i.out = nil
		}
	}()
	return i.Registry.Run(ctx, &tap{Sink: out, of: i})
}

// say sets the problems, and how long the registry may be stale.
func (i *instance) say(problems []model.Problem, stale time.Duration) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if slices.Equal(i.problems, problems) && i.stale == stale {
		return
	}
	i.problems, i.stale = problems, stale
	if i.out != nil && i.last.State != "" {
		i.give(i.out)
	}
}

// give is called with mu held. Sinks never block, so it may be: nothing older may come after what is told now.
func (i *instance) give(out model.Sink) {
	s := i.last
	s.StaleAfter = cmp.Or(s.StaleAfter, i.stale)
	if len(i.problems) > 0 {
		s.Problems = append(slices.Clip(s.Problems), i.problems...)
	}
	out.Status(s)
}

// tap is the sink of one run.
type tap struct {
	model.Sink
	of *instance
}

// Replace implements model.Sink.
func (t *tap) Replace(s *model.ShardState) {
	if s != nil {
		t.of.delivered.Store(true)
	}
	t.Sink.Replace(s)
}

// Status implements model.Sink.
func (t *tap) Status(s model.Status) {
	t.of.mu.Lock()
	defer t.of.mu.Unlock()
	t.of.last = s
	t.of.give(t.Sink)
}

// place is a registry that can't be made yet: it says why, and delivers nothing until it is filled. So what is attached stays what it is
// when what was missing comes.
type place struct {
	key model.ShardKey

	mu      sync.Mutex
	status  model.Status   // guarded by mu
	inner   model.Registry // guarded by mu; nil until it is filled
	of      string         // guarded by mu: the identity of what it is made for
	changed chan struct{}  // guarded by mu: closed, and renewed, by changes
}

func newPlace(k model.ShardKey, s model.Status, of string) *place {
	return &place{key: k, status: s, of: of, changed: make(chan struct{})}
}

// Key implements model.Registry.
func (p *place) Key() model.ShardKey { return p.key }

// Run implements model.Registry.
func (p *place) Run(ctx context.Context, out model.Sink) error {
	for {
		p.mu.Lock()
		status, inner, changed := p.status, p.inner, p.changed
		p.mu.Unlock()
		if inner != nil {
			return inner.Run(ctx, out)
		}
		out.Status(status)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-changed:
		}
	}
}

func (p *place) identity() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.of
}

// Given is what Make gave for a registry that Keep was given; nil if it has given none yet.
func Given(r model.Registry) model.Registry {
	p, ok := r.(*place)
	if !ok {
		return r
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.inner
}

// fill makes it the registry, or with nil says why there still is none.
func (p *place) fill(r model.Registry, s model.Status, of string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.inner, p.status, p.of = r, s, of
	close(p.changed)
	p.changed = make(chan struct{})
}
