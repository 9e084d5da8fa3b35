package consul

import (
	"context"
	"slices"
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
	room := max(int(r.opts.Spec.Limits.Concurrency)-len(r.scopes)*(1+r.readers), 0)
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
		if was || !s.settled {
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

// ready reports whether a change of a service that has been read is in the tables, or they can't be read.
func (s *scopeState) ready() bool { return s.peer != "" || !slices.Contains(s.tried[:], false) }

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
	if all = all || !was; all {
		s.sweep.want, s.sweep.rest = false, nil // this is one
	}
	for k, v := range r.services {
		if k.scope == s && v.watcher == nil && (all || t.touches(v)) {
			r.ask(v)
		}
	}
}

func (t tableChange) touches(s *service) bool {
	return t.services[s.name] || slices.ContainsFunc(s.nodes, func(n string) bool { return t.nodes[n] })
}
