package consul

import (
	"context"
	"slices"
	"time"
)

// assign decides which services are watched: all if requests may wait for so many at once, else as many as that leaves when
// the tables are followed too, for the others. None is before the first sync: an instance that is to be replaced may hold as
// many connections as the agent grants to one address.
func (r *run) assign(ctx context.Context) {
	if r.assigned {
		return
	}
	r.assigned = true
	if !r.synced {
		for _, s := range r.sorted() {
			if !s.settled {
				r.ask(s)
			}
		}
		return
	}
	room := max(int(r.opts.Spec.Limits.Concurrency)-len(r.scopes)-r.readers, 0)
	if r.shared = len(r.services) > room; r.shared {
		room -= tables * len(r.scopes)
	}
	all := r.sorted()
	room = min(max(room, 0), len(all))
	for _, s := range all[room:] { // first, so that there are never too many
		was := s.watcher != nil
		if was {
			s.watcher.end()
			s.watcher = nil
			r.watched--
		}
		if s.scope.ready() && (was || !s.settled) {
			r.ask(s)
		}
	}
	for _, s := range all[:room] {
		if s.watcher == nil {
			from := s.index // of what is known of it
			s.watcher = r.start(ctx, func(ctx context.Context) { r.watch(ctx, s, from) })
			r.watched++
		}
	}
	for _, s := range r.scopes {
		r.share(ctx, s)
	}
	r.opts.Metrics.Watches(r.key.String(), r.watched)
}

// share follows the tables of a scope while there are services that are not watched. Peers have no tables.
func (r *run) share(ctx context.Context, s *scopeState) {
	switch {
	case r.shared && s.following == nil && s.peer == "":
		var all []func(context.Context)
		for table := range tables {
			all = append(all, func(ctx context.Context) { r.follow(ctx, s, table) })
		}
		s.following = r.start(ctx, all...)
	case !r.shared && s.following != nil:
		s.following.end()
		s.following, s.baseline, s.tried = nil, [tables]bool{}, [tables]bool{}
	}
}

// ready reports whether services may be read on demand: a change after that is in the tables, or they can't be read.
func (s *scopeState) ready() bool { return s.peer != "" || !slices.Contains(s.tried[:], false) }

// ask has a service read once, after those that wait already.
func (r *run) ask(s *service) {
	switch {
	case s.asked:
		s.again = true
	case !s.queued:
		s.queued = true
		r.queue = append(r.queue, s)
	}
}

// ahead is the job that is next.
func (r *run) ahead() (job, bool) {
	for len(r.queue) > 0 {
		s := r.queue[0]
		switch {
		case s.missing, s.hidden:
			return job{of: s}, true
		case s.watcher == nil:
			return job{of: s, known: s.index}, true
		}
		s.queued = false // it is watched by now
		r.queue = r.queue[1:]
	}
	return job{}, false
}

// apply has the services read again that a table names.
func (t tableChange) apply(_ context.Context, r *run) {
	s := t.of
	if !r.shared {
		return
	}
	was := s.ready()
	s.tried[t.table], s.baseline[t.table] = true, t.err == nil
	all := t.err == nil && t.services == nil // whatever has happened before is not in it
	if !s.ready() || was && t.err != nil {
		return
	}
	for k, v := range r.services {
		if k.scope == s && v.watcher == nil && (all || !was || t.touches(v)) {
			r.ask(v)
		}
	}
}

func (t tableChange) touches(s *service) bool {
	return t.services[s.name] || slices.ContainsFunc(s.nodes, func(n string) bool { return t.nodes[n] })
}

// sweep reads all services of a scope that are not watched, within the refresh interval or as fast as the registry's limit on
// requests allows. There is one when a registration has changed, and where the tables can't be followed again and again.
type sweep struct {
	want  bool
	began time.Time
	all   int
	rest  []*service
}

// tick is how often a sweep goes on.
const tick = 20 * time.Millisecond

// pace goes on with the sweeps, and sets the timer for what is next.
func (r *run) pace(now time.Time) {
	next := r.again(now)
	for _, s := range r.scopes {
		if r.shared && s.listed {
			next = min(next, r.advance(s, now))
		}
	}
	r.wake.Reset(next)
}

// again has services read once more that could not be, and are not watched or would wait for a change, and gives the time until the
// next time.
func (r *run) again(now time.Time) time.Duration {
	if len(r.troubled) == 0 {
		return time.Hour
	}
	if since := now.Sub(r.retried); since < r.refresh() {
		return r.refresh() - since
	}
	r.retried = now
	for s := range r.troubled {
		if s.watcher == nil || s.hidden {
			r.ask(s)
		}
	}
	return r.refresh()
}

// advance goes on with the sweep of a scope, and gives the time until it does again.
func (r *run) advance(s *scopeState, now time.Time) time.Duration {
	w := &s.sweep
	blind := s.peer != "" || slices.Contains(s.baseline[:], false)
	if len(w.rest) == 0 {
		since := now.Sub(w.began)
		switch {
		case w.want && (!blind || since >= r.refresh()) || blind && since >= r.refresh():
			r.sweep(s, now)
		case blind:
			return r.refresh() - since
		default:
			return time.Hour
		}
	}
	due := int(float64(w.all) * float64(now.Sub(w.began)+tick) / float64(r.refresh()))
	for len(w.rest) > 0 && w.all-len(w.rest) < due && len(r.queue) < r.readers {
		one := w.rest[0]
		w.rest = w.rest[1:]
		if r.services[serviceKey{s, one.name}] == one && one.watcher == nil {
			r.ask(one)
		}
	}
	return tick
}

func (r *run) sweep(s *scopeState, now time.Time) {
	s.sweep = sweep{began: now}
	for _, one := range r.sorted() {
		if one.scope == s && one.watcher == nil {
			s.sweep.rest = append(s.sweep.rest, one)
		}
	}
	s.sweep.all = len(s.sweep.rest)
}
