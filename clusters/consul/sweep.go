package consul

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// sweep reads all services of a scope that are not watched: when a registration has changed, since the list does not say which, and
// where the tables can't be followed again and again. One that changes while others are read is not read before its turn, and
// none twice before all have been read once.
type sweep struct {
	want   bool // a registration has changed
	hasty  bool // it is for that
	began  time.Time
	paced  time.Time // when credit was last counted
	credit float64   // how many may be asked for
	last   string    // the name of the one that was asked for last
	all    int
	rest   []*service
}

const (
	tick      = 20 * time.Millisecond // how often a sweep goes on, at most
	soon      = 10 * time.Second      // how long one takes while registrations change all the time
	fewEnough = 100                   // services that may be read in soon, however few there are
)

// pace goes on with the sweeps, and sets the timer for what is next.
func (r *run) pace(now time.Time) {
	next := r.again(now)
	for _, s := range r.scopes {
		if r.shared && s.listed {
			next = min(next, r.advance(s, now))
		}
	}
	if left := r.began.Add(grace).Sub(now); !r.synced && left > 0 {
		next = min(next, left)
	}
	if r.untold {
		next = min(next, max(r.quiet.Sub(now), 0))
	}
	r.wake.Reset(next)
}

// advance goes on with the sweep of a scope, and gives the time until it does again.
func (r *run) advance(s *scopeState, now time.Time) time.Duration {
	w := &s.sweep
	blind := s.peer != "" || slices.Contains(s.baseline[:], false)
	switch since := now.Sub(w.began); {
	case s.silent():
		return time.Hour
	case w.want || blind && len(w.rest) == 0 && since >= r.refresh():
		r.sweep(s, now)
	case blind && len(w.rest) == 0:
		return r.refresh() - since
	}
	rate, most := r.rate(w)
	w.credit = min(w.credit+rate*now.Sub(w.paced).Seconds(), most)
	w.paced = now
	for len(w.rest) > 0 && w.credit >= 1 && len(s.queue) < r.readers {
		one := w.rest[0]
		w.rest, w.last = w.rest[1:], one.name
		if r.services[serviceKey{s, one.name}] == one && one.watcher == nil {
			w.credit--
			r.ask(one)
		}
	}
	switch {
	case len(w.rest) > 0:
		return max(time.Duration((1-w.credit)/rate*float64(time.Second)), tick)
	case blind:
		return r.refresh()
	}
	return time.Hour
}

// rate is how many services are read in a second, and how many at once: all in the refresh interval, one by one. If a
// registration has changed they are read at once, and as long as others change once in every soon; but that takes no more than half of
// the requests that the registry's limit allows, unless the refresh interval asks for it.
func (r *run) rate(w *sweep) (rate, most float64) {
	all := float64(w.all)
	rate = all / r.refresh().Seconds()
	if !w.hasty {
		return rate, 1
	}
	busy := min(max(all, fewEnough)/soon.Seconds(), float64(r.opts.Spec.Limits.RequestsPerSecond)/2)
	return max(rate, busy), max(all, 1)
}

// sweep begins a sweep, with those that were not reached by the last one.
func (r *run) sweep(s *scopeState, now time.Time) {
	w := &s.sweep
	w.began, w.hasty, w.want, w.rest = now, w.want, false, nil
	for _, one := range r.services {
		if one.scope == s && one.watcher == nil {
			w.rest = append(w.rest, one)
		}
	}
	w.all = len(w.rest)
	turn := func(one *service) int { // 0 for those whose turn has not come
		if one.name > w.last {
			return 0
		}
		return 1
	}
	slices.SortFunc(w.rest, func(a, b *service) int { return cmp.Or(turn(a)-turn(b), strings.Compare(a.name, b.name)) })
}
