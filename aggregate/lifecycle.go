package aggregate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/pushcontext"
)

// attached is everything that is attached under one shard key: the instance that contributes, and at most one
// replacement that has not synced yet. Owned by the controller goroutine.
type attached struct {
	key       model.ShardKey
	active    *instance
	shadow    *instance
	syncedAt  time.Time
	lastEvent time.Time
	orphans   int                   // endpoints without a service
	info      pushcontext.ShardInfo // as last listed
	changed   bool                  // since then
}

// instance is one attached registry. A failed one runs again, with a new mailbox each time.
type instance struct {
	key      model.ShardKey
	registry model.Registry
	box      *mailbox
	cancel   context.CancelFunc
	attached time.Time
	synced   bool
	late     time.Time // when it was given up waiting for, while not synced; zero if it was not
	status   model.Status
	failures int       // runs that ended since the last Replace
	retryAt  time.Time // zero while it runs
	rest     time.Time // until then no other full truth of it is taken
}

// resting reports whether the instance has relisted again too soon: whole truths cost a pass over all its
// rows, and others would wait for each.
func (in *instance) resting(now time.Time) bool { return now.Before(in.rest) && in.box.relists() }

// exit tells that a run ended.
type exit struct {
	in  *instance
	box *mailbox // of that run
	err error
}

func (m *attached) instances() []*instance {
	if m.shadow == nil {
		return []*instance{m.active}
	}
	return []*instance{m.active, m.shadow}
}

func (c *Controller) attach(ctx context.Context, r model.Registry) {
	now, key := time.Now(), r.Key()
	in := &instance{key: key, registry: r, attached: now, status: model.Status{State: model.StateSyncing, Since: now}}
	m := c.attached[key]
	switch {
	case m != nil && m.active.registry == r:
		c.keep(m, now)
		return
	case m == nil:
		m = &attached{key: key, active: in}
		c.attached[key] = m
		c.regrouped = true
		c.endPass()
		c.state.shard(key)
	case m.shadow != nil: // a replacement that never synced is replaced itself
		c.end(m.shadow)
		fallthrough
	default:
		m.shadow = in
	}
	c.opts.Log.Info("registry attached", "cluster", key.Cluster, "provider", key.Provider, "replacement", m.shadow == in)
	c.start(ctx, in)
	c.touch(m, now)
}

// keep ends the replacement, if there is one: what it was to replace stays.
func (c *Controller) keep(m *attached, now time.Time) {
	if m.shadow == nil {
		return
	}
	c.end(m.shadow)
	m.shadow = nil
	c.opts.Log.Info("replacement of registry ended", "cluster", m.key.Cluster, "provider", m.key.Provider)
	c.touch(m, now)
}

// touch makes the next snapshot carry the registry's current info.
func (c *Controller) touch(m *attached, now time.Time) {
	m.changed = true
	c.debounce.note(laneShape, now)
}

// start runs the registry with a mailbox of its own, so that a late writer of an earlier run reaches
// nobody.
func (c *Controller) start(parent context.Context, in *instance) {
	ctx, cancel := context.WithCancel(parent)
	in.cancel, in.retryAt = cancel, time.Time{}
	in.box = newMailbox(c.wake)
	c.mu.Lock()
	c.boxes[in.box] = in.key
	c.mu.Unlock()
	e := exit{in: in, box: in.box}
	c.running.Go(func() {
		e.err = runContained(ctx, in.registry, e.box)
		if ctx.Err() != nil {
			return // ended by the controller, which has forgotten it
		}
		select {
		case c.exits <- e:
		case <-ctx.Done():
		}
	})
}

// runContained runs a registry and turns a panic into an error.
func runContained(ctx context.Context, r model.Registry, out model.Sink) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	if err = r.Run(ctx, out); err == nil && ctx.Err() == nil {
		err = errors.New("registry ended without being told to")
	}
	return err
}

// end stops an instance for good. What it still writes reaches nobody.
func (c *Controller) end(in *instance) {
	in.cancel()
	c.retire(in.box)
}

func (c *Controller) retire(b *mailbox) {
	b.close()
	c.mu.Lock()
	k, open := c.boxes[b]
	delete(c.boxes, b)
	c.mu.Unlock()
	if n := b.tooEarly(); open && n > 0 {
		c.opts.Log.Error("rows came before the first full truth and were ignored", "cluster", k.Cluster, "provider", k.Provider, "rows", n)
	}
}

// exited handles a run that ended by itself: what it delivered stays, and it will run again.
func (c *Controller) exited(e exit) {
	m := c.attached[e.in.key]
	if m == nil || e.in.box != e.box || m.active != e.in && m.shadow != e.in {
		return
	}
	for c.receive(m, e.in, e.box.take(c.opts.Budget)) {
	}
	now := time.Now()
	e.in.cancel()
	c.retire(e.box)
	e.in.failures++
	e.in.retryAt = now.Add(backoff(e.in.failures, c.opts.BackoffMin, c.opts.BackoffMax))
	text, stack, _ := strings.Cut(e.err.Error(), "\n")
	c.opts.Log.Error("registry failed", "cluster", e.in.key.Cluster, "provider", e.in.key.Provider, "err", text,
		"retry", e.in.retryAt.Sub(now), "stack", stack)
	c.metrics.failures.WithLabelValues(string(e.in.key.Cluster), string(e.in.key.Provider)).Inc()
	c.takeStatus(m, e.in, model.Status{State: model.StateStale, Since: now, Err: text, Problems: e.in.status.Problems}, now)
}

// backoff doubles from low to high with the number of failures, and takes a random half off.
func backoff(failures int, low, high time.Duration) time.Duration {
	d := low
	for ; failures > 1 && d < high; failures-- {
		d *= 2
	}
	d = min(d, high)
	return d - rand.N(d/2+1)
}

// detach removes all instances of a key and their rows, and commits at once.
func (c *Controller) detach(k model.ShardKey) {
	m := c.attached[k]
	if m == nil {
		return
	}
	for _, in := range m.instances() {
		c.end(in)
	}
	delete(c.attached, k)
	c.regrouped = true
	c.endPass()
	c.state.drop(c.state.shard(k))
	delete(c.demoted, k)
	c.force = true
	c.reasons["cluster"]++
	c.metrics.forget(k)
	c.opts.Log.Info("registry detached", "cluster", k.Cluster, "provider", k.Provider)
}

// takeFull applies a full truth. That of a replacement makes it take over: only the difference to
// what the old instance contributed is a change.
func (c *Controller) takeFull(m *attached, in *instance, full *model.ShardState, now time.Time) {
	reason, since := "cluster", now
	if in == m.shadow {
		if before := m.active.status; before.State == model.StateLive && !in.failing() {
			since = before.Since // there was contact all the time
		}
		c.end(m.active)
		m.active, m.shadow = in, nil
		c.opts.Log.Info("registry replaced", "cluster", m.key.Cluster, "provider", m.key.Provider, "rows", full.Len())
	}
	in.synced, in.failures = true, 0
	m.syncedAt, m.lastEvent = now, now
	if in.status.State != model.StateLive || since.Before(in.status.Since) {
		in.status = model.Status{State: model.StateLive, Since: since, Problems: in.status.Problems}
	}
	if n := c.state.replace(c.state.shard(m.key), full, c.valid(m.key)); n > 0 {
		c.note(laneShape, reason, now)
	}
	c.touch(m, now)
	c.demote(m, now)
}

func (c *Controller) takeStatus(m *attached, in *instance, s model.Status, now time.Time) {
	old := in.status
	if s.Since.IsZero() {
		s.Since = now
	}
	switch {
	case s.State == model.StateTimeout && in.synced:
		s.State = model.StateStale
	case s.State == model.StateTimeout:
		c.giveUp(m, in, s.Since, s.Err) // it can't sync: there is nothing to wait for
	case s.State == model.StateSyncing && in.synced && old.State == model.StateStale:
		s.State, s.Since, s.Err = old.State, old.Since, old.Err // trying again is not contact yet
	case s.State == model.StateSyncing && in.synced:
		s.State = model.StateLive
	}
	if s.State == old.State {
		s.Since = old.Since
	}
	if s.State == old.State && s.Err == old.Err && slices.Equal(s.Problems, old.Problems) {
		return
	}
	in.status = s
	c.touch(m, now)
	c.demote(m, now)
}

// demote decides whether the shard is stale for too long, or no longer.
func (c *Controller) demote(m *attached, now time.Time) {
	st := m.active.status
	late := m.active.synced && st.State == model.StateStale && now.Sub(st.Since) >= c.staleAfter(st)
	if late == c.demoted[m.key] {
		return
	}
	if late {
		c.demoted[m.key] = true
	} else {
		delete(c.demoted, m.key)
	}
	c.opts.Log.Warn("stale shard changed place", "cluster", m.key.Cluster, "provider", m.key.Provider, "demoted", late)
	c.state.markShard(m.key)
	c.note(laneShape, "cluster", now)
}

func (c *Controller) staleAfter(st model.Status) time.Duration {
	return cmp.Or(st.StaleAfter, c.opts.StaleAfter)
}

// timers does what is due by time alone: start-up timeouts, retries, staleness.
func (c *Controller) timers(ctx context.Context, now time.Time) {
	for _, m := range c.attached {
		for _, in := range m.instances() {
			if at := in.attached.Add(c.opts.SyncTimeout); !in.synced && !now.Before(at) {
				c.giveUp(m, in, at, in.status.Err)
			}
			if !in.retryAt.IsZero() && !now.Before(in.retryAt) {
				c.start(ctx, in)
			}
		}
		c.demote(m, now)
	}
}

// giveUp stops waiting for an instance that has not synced. It goes on trying.
func (c *Controller) giveUp(m *attached, in *instance, at time.Time, why string) {
	if !in.late.IsZero() {
		return
	}
	in.late = at
	c.touch(m, time.Now())
	c.metrics.timeouts.Inc()
	c.opts.Log.Warn("registry not synced in time", "cluster", m.key.Cluster, "provider", m.key.Provider, "err", why)
}

// nextTime is when the writer must act although nothing comes.
func (c *Controller) nextTime() time.Time {
	next := time.Now().Add(time.Hour)
	sooner := func(t time.Time) {
		if t.Before(next) {
			next = t
		}
	}
	if at, ok := c.debounce.deadline(); ok && c.open {
		sooner(at)
	}
	if !c.open && !c.asked.IsZero() {
		sooner(c.asked.Add(hostWait))
	}
	if c.opts.ScrubEvery > 0 && c.open && !c.debounce.pending() {
		sooner(c.nextScrub)
	}
	for _, m := range c.attached {
		for _, in := range m.instances() {
			if !in.synced && in.late.IsZero() {
				sooner(in.attached.Add(c.opts.SyncTimeout))
			}
			if !in.retryAt.IsZero() {
				sooner(in.retryAt)
			}
			if in.resting(time.Now()) {
				sooner(in.rest)
			}
		}
		if st := m.active.status; m.active.synced && st.State == model.StateStale && !c.demoted[m.key] {
			sooner(st.Since.Add(c.staleAfter(st)))
		}
	}
	return next
}

// tryOpen opens the serving gate when no registry is waited for, and publishes the first snapshot.
func (c *Controller) tryOpen(now time.Time) {
	if c.expects() {
		return
	}
	for _, m := range c.attached {
		if !m.active.synced && (m.active.late.IsZero() || c.essential(m.key)) {
			return
		}
	}
	if c.unresolved(now) {
		return
	}
	c.open = true
	c.commit(now)
	close(c.ready)
	c.opts.Log.Info("serving gate open", "registries", len(c.attached))
}

// expects reports whether registries are yet to be attached: those in the options, and those that were given to
// Attach since this turn began. Whoever attaches registries because of the rows of another relies on that.
func (c *Controller) expects() bool {
	for _, k := range c.opts.Expected {
		if c.attached[k] == nil {
			return true
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.ops) > 0
}

// essential tells the registry without which the hub does not start: that of the config cluster's API server.
func (c *Controller) essential(k model.ShardKey) bool {
	return k.Provider == model.ProviderKubernetes && k.Cluster == c.opts.ConfigCluster
}

// shutdown waits for the registries, which have been told to end.
func (c *Controller) shutdown() error {
	for _, m := range c.attached {
		for _, in := range m.instances() {
			c.end(in)
		}
	}
	done := make(chan struct{})
	go func() {
		c.running.Wait()
		close(done)
	}()
	grace := time.NewTimer(c.opts.ShutdownGrace)
	defer grace.Stop()
	select {
	case <-done:
		return nil
	case <-grace.C:
		return ErrRegistriesRunning
	}
}
