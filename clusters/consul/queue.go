package consul

import (
	"context"
	"time"
)

// scan is how often those that could not be read are looked through, at most.
const scan = 100 * time.Millisecond

// job asks for a service; if it still has the index that is known, for no more than that.
type job struct {
	of    *service
	known uint64
	since time.Time // what has happened until then must be in the answer; zero if that does not matter
}

// ask has a service read once, after those of its scope that wait already.
func (r *run) ask(s *service) {
	s.wanted = time.Now()
	s.due = s.wanted.Add(r.refresh())
	switch {
	case s.asked:
		s.again = true
	case !s.queued:
		s.queued = true
		s.scope.queue = append(s.scope.queue, s)
	}
}

// dispatch begins to read what is next in each scope, no more at once than a scope may. No scope waits for another.
func (r *run) dispatch(ctx context.Context) {
	for _, of := range r.scopes {
		for of.busy < r.readers && len(of.queue) > 0 {
			s := of.queue[0]
			of.queue = of.queue[1:]
			s.queued = false
			if s.watcher != nil && !s.missing && !s.hidden {
				continue // it is watched by now
			}
			s.asked = true
			of.busy++
			j := r.job(s)
			r.work.Go(func() { r.serve(ctx, j) })
		}
	}
}

func (r *run) job(s *service) job {
	j := job{of: s}
	if !s.missing && !s.hidden {
		j.known = s.index
	}
	if r.synced {
		j.since = s.wanted
	}
	return j
}

// behind is how often a service is read, at most, because the server has not heard of the leader since it was asked for.
const behind = 4

// serve reads a service. A server that is behind the leader may not know yet why it is asked: it is asked again as much later.
func (r *run) serve(ctx context.Context, j job) {
	began := time.Now()
	got := r.read(ctx, j.of, 0, j.known)
	for range behind - 1 {
		if got.err != nil || got.age == 0 || !began.Add(-got.age).Before(j.since) {
			break
		}
		pause(ctx, min(got.age, r.client.maxStale), nil)
		began = time.Now()
		got = r.read(ctx, j.of, 0, j.known)
	}
	got.onDemand = true
	r.send(ctx, got)
}

// again has those read once more that could not be, each in its time, and gives the time until the next one.
func (r *run) again(now time.Time) time.Duration {
	if wait := r.retry.Sub(now); wait > 0 {
		return wait
	}
	r.retry = now.Add(time.Hour)
	for s := range r.troubled {
		if s.watcher != nil && !s.hidden || s.scope.silent() {
			continue
		}
		if !s.due.After(now) {
			r.ask(s)
		}
		r.retryAt(s.due, now)
	}
	return r.retry.Sub(now)
}

func (r *run) retryAt(due, now time.Time) {
	if first := now.Add(scan); due.Before(first) {
		due = first
	}
	if due.Before(r.retry) {
		r.retry = due
	}
}
