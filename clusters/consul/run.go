package consul

import (
	"cmp"
	"context"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/clusters/foreign"
)

// run is one Run of a Registry. The goroutine that called Run owns it, but for the channels and what is said to be immutable.
type run struct {
	*Registry
	pub    *foreign.Publisher
	work   sync.WaitGroup
	events chan event
	jobs   chan job

	scopes   []*scopeState
	services map[serviceKey]*service
	queue    []*service            // to be read on demand, in order
	troubled map[*service]struct{} // those with a problem, or late
	watched  int
	shared   bool // there are more services than can be watched
	assigned bool // it is decided which are
	synced   bool
	began    time.Time
	retried  time.Time    // when those with a problem were last read again
	said     model.Status // last
	wake     *time.Timer  // for sweeps
}

// event is what other goroutines tell the owner.
type event interface{ apply(context.Context, *run) }

type serviceKey struct {
	scope *scopeState
	name  string
}

// scopeState is what is known of a scope.
type scopeState struct {
	scope                // immutable
	convert   *converter // immutable
	listed    bool       // there was a list
	index     uint64     // of the last one
	err       error      // why there is none now
	more      int        // services beyond the limit
	following *task
	tried     [tables]bool // tables of which something is known, if only that they can't be read
	baseline  [tables]bool // tables that are followed
	sweep     sweep
}

// service is what is known of one.
type service struct {
	scope *scopeState   // immutable
	name  string        // immutable
	kick  chan struct{} // ends the pause of its watcher

	watcher *task // nil: it is read on demand
	queued  bool
	asked   bool // a reader is at it
	again   bool // it must be read once more then
	settled bool // it was read, or can't be
	gone    bool // the last reading was empty, and all was to be seen
	hidden  bool // the token may see none of it
	missing bool // from a list that may not be complete
	late    bool // contact was lost, and is back, and it has not been read since
	lost    bool // for want of contact
	failed  int  // readings in a row that brought nothing
	problem model.Problem
	last    *foreign.Service // nil: none is published
	index   uint64           // of last, from a reader
	nodes   []string
}

func (s *service) key() string { return s.scope.convert.key + s.name }

// task is a goroutine that can be ended.
type task struct {
	cancel context.CancelFunc
	work   sync.WaitGroup
}

// start begins a task, of several goroutines or one.
func (r *run) start(ctx context.Context, does ...func(context.Context)) *task {
	t := &task{}
	ctx, t.cancel = context.WithCancel(ctx)
	for _, do := range does {
		t.work.Go(func() { do(ctx) })
	}
	return t
}

// end ends it, and waits until it has.
func (t *task) end() {
	if t != nil {
		t.cancel()
		t.work.Wait()
	}
}

func newRun(r *Registry, out model.Sink) *run {
	return &run{
		Registry: r, events: make(chan event), jobs: make(chan job), services: map[serviceKey]*service{},
		troubled: map[*service]struct{}{}, began: time.Now(), wake: time.NewTimer(time.Hour),
		pub: foreign.NewPublisher(foreign.Options{Shard: r.key, Spec: r.opts.Spec, Resolver: r.opts.Resolver, Log: r.opts.Log}, out),
	}
}

// loop follows the registry until ctx ends; all that it started has ended when it returns.
func (r *run) loop(ctx context.Context) error {
	inner, cancel := context.WithCancel(ctx)
	defer r.opts.Metrics.Watches(r.key.String(), 0)
	defer r.work.Wait()
	defer r.stop()
	defer cancel()
	defer r.wake.Stop()
	r.work.Go(func() { r.pub.Run(inner) })
	r.say(model.Status{State: model.StateSyncing})
	local, err := r.identify(inner)
	if err != nil {
		return ctx.Err()
	}
	for _, s := range r.Registry.scopes {
		state := &scopeState{scope: s, convert: newConverter(r.key, &r.opts.Spec, s, len(r.Registry.scopes) > 1, local)}
		r.scopes = append(r.scopes, state)
		r.work.Go(func() { r.list(inner, state) })
	}
	for range r.readers {
		r.work.Go(func() { r.serve(inner) })
	}
	for r.turn(inner) {
	}
	return ctx.Err()
}

// turn waits for what comes next; false at the end of ctx.
func (r *run) turn(ctx context.Context) bool {
	var jobs chan<- job
	j, some := r.ahead()
	if some {
		jobs = r.jobs
	}
	select {
	case e := <-r.events:
		e.apply(ctx, r)
		r.publish()
		r.assign(ctx)
		r.report()
	case jobs <- j:
		r.queue = r.queue[1:]
		j.of.queued, j.of.asked = false, true
	case <-r.wake.C:
	case <-ctx.Done():
		return false
	}
	r.pace(time.Now())
	return true
}

// stop ends what can be ended one by one.
func (r *run) stop() {
	for _, s := range r.services {
		s.watcher.end()
	}
	for _, s := range r.scopes {
		s.following.end()
	}
}

// identify gives the name of the agent's datacenter, if it is needed, however long that takes.
func (r *run) identify(ctx context.Context) (string, error) {
	if !slices.ContainsFunc(r.Registry.scopes, func(s scope) bool { return s.dc == "" && s.peer == "" }) {
		return "", nil
	}
	for failures := 0; ; failures++ {
		dc, err := r.datacenter(ctx)
		if err == nil || ctx.Err() != nil {
			return dc, ctx.Err()
		}
		r.say(model.Status{State: model.StateSyncing, Err: err.Error()})
		pause(ctx, r.opts.Timing.backoff(failures), nil)
	}
}

// apply takes a list of services.
func (l listed) apply(ctx context.Context, r *run) {
	s := l.of
	if l.err == nil && l.filtered && !s.listed && len(l.names) == 0 {
		l.err = errNothing
	}
	if l.err != nil {
		s.err = l.err
		return
	}
	if s.err != nil {
		r.back(s)
	}
	s.err = nil
	if l.same {
		return
	}
	if s.listed && l.index != s.index && s.peer == "" {
		s.sweep.want = true // a registration has changed, and the list does not say which
	}
	s.listed, s.index = true, l.index
	wanted := r.wanted(s, l.names)
	for _, name := range wanted {
		r.know(s, name)
	}
	r.prune(s, wanted, l.filtered)
}

// wanted are the names that are taken of a list, sorted, as many as there is room for.
func (r *run) wanted(s *scopeState, names map[string][]string) []string {
	out := make([]string, 0, len(names))
	for name, tags := range names {
		if r.takes(name, tags, s.convert) {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	others := 0
	for k := range r.services {
		if k.scope != s {
			others++
		}
	}
	room := min(max(int(r.opts.Spec.Limits.MaxServices)-others, 0), len(out))
	s.more = len(out) - room
	return out[:room]
}

// know notes that there is a service.
func (r *run) know(s *scopeState, name string) {
	k := serviceKey{s, name}
	if old := r.services[k]; old != nil {
		old.missing = false
		return
	}
	r.services[k] = &service{scope: s, name: name, kick: make(chan struct{}, 1)}
	r.assigned = false
}

// prune forgets the services that a list has no more. If it may not be complete they are gone if asking for each says so.
func (r *run) prune(s *scopeState, wanted []string, filtered bool) {
	var keys []string
	for k, old := range r.services {
		if _, has := slices.BinarySearch(wanted, k.name); k.scope != s || has {
			continue
		}
		if filtered && !old.gone {
			old.missing = true
			r.ask(old)
			continue
		}
		keys = append(keys, r.forget(k))
	}
	if len(keys) > 0 && r.synced {
		slices.Sort(keys)
		r.pub.Delete(keys...)
	}
}

// forget ends the watch of a service before it is deleted.
func (r *run) forget(k serviceKey) (key string) {
	s := r.services[k]
	if s.watcher != nil {
		s.watcher.end()
		r.watched--
	}
	r.queue = slices.DeleteFunc(r.queue, func(q *service) bool { return q == s })
	delete(r.services, k)
	delete(r.troubled, s)
	r.assigned = false
	return s.key()
}

// apply takes what a service was read as.
func (g reading) apply(_ context.Context, r *run) {
	s := g.of
	k := serviceKey{s.scope, s.name}
	if r.services[k] != s {
		return // it came too late
	}
	s.late = false
	if g.onDemand {
		s.asked = false
		if s.again {
			s.again = false
			r.ask(s)
		}
	}
	switch {
	case g.err != nil && g.onDemand && s.watcher != nil: // which knows better
	case g.err != nil:
		r.fail(s, g.err)
	case g.same:
		r.clear(s)
	case g.filtered && g.empty:
		s.settled, s.hidden, s.lost, s.index = true, true, false, 0
		r.complain(s, "not read: the token may see none of its instances (service:read and node:read are needed)")
	default:
		r.take(s, g)
	}
	if s.missing && s.gone {
		key := r.forget(k)
		if r.synced {
			r.pub.Delete(key)
		}
	}
}

// clear notes that a service could be read.
func (r *run) clear(s *service) {
	s.lost, s.hidden, s.failed, s.problem = false, false, 0, model.Problem{}
	delete(r.troubled, s)
}

func (r *run) complain(s *service, reason string) {
	if s.problem.Reason != reason {
		s.problem = model.Problem{Item: s.key(), Reason: reason, Since: time.Now()}
	}
	r.troubled[s] = struct{}{}
}

// fail notes that a service can't be read; what was known of it stays.
func (r *run) fail(s *service, err error) {
	r.complain(s, "not read: "+err.Error())
	s.index = 0
	s.failed++
	if s.lost = lost(err); !s.lost {
		s.settled, s.hidden = true, refused(err)
	} else if s.watcher == nil {
		r.ask(s)
	}
}

// back notes that there is contact with a scope again: what could not be read without is read at once.
func (r *run) back(of *scopeState) {
	for _, s := range r.services {
		if s.scope != of || !s.lost {
			continue
		}
		s.late = true
		select {
		case s.kick <- struct{}{}:
		default:
		}
	}
}

// take takes a service as it is now, and puts it if that is news.
func (r *run) take(s *service, g reading) {
	r.clear(s)
	was := s.settled
	s.settled, s.gone, s.index, s.nodes = true, g.empty, g.index, g.nodes
	if was && reflect.DeepEqual(s.last, g.value) {
		r.opts.Metrics.Unchanged(r.key.String())
		return
	}
	old := s.last
	s.last = g.value
	switch {
	case !r.synced:
	case s.last != nil:
		r.pub.Put(*s.last)
	case old != nil:
		r.pub.Delete(s.key()) // the settings take none of its instances any more
	}
	if r.synced {
		r.opts.Metrics.Put(r.key.String(), time.Since(g.at))
	}
}

// The first sync does not wait for services that can't be read, again and again, if no more than one in few is such.
const (
	patient = 5
	few     = 10
)

// publish gives the whole truth, once everything has been read.
func (r *run) publish() {
	if r.synced || slices.ContainsFunc(r.scopes, func(s *scopeState) bool { return !s.listed }) {
		return
	}
	hidden, hopeless := 0, 0
	var all []foreign.Service
	for _, s := range r.services {
		if !s.settled {
			if hopeless++; s.failed < patient || hopeless*few > len(r.services) {
				return
			}
		}
		if s.hidden {
			hidden++
		}
		if s.last != nil {
			all = append(all, *s.last)
		}
	}
	if hidden > 0 && hidden == len(r.services) {
		return // a token that may see nothing says nothing
	}
	slices.SortFunc(all, func(a, b foreign.Service) int { return strings.Compare(a.Key, b.Key) })
	r.pub.Replace(all)
	r.synced, r.assigned = true, false
}

// sorted are all services, in an order that stays. Those of which nothing is taken, such as sidecars, come last.
func (r *run) sorted() []*service {
	rank := func(s *service) int {
		if s.settled && s.last == nil && !s.hidden {
			return 1
		}
		return 0
	}
	return slices.SortedFunc(maps.Values(r.services), func(a, b *service) int {
		return cmp.Or(rank(a)-rank(b), strings.Compare(a.name, b.name), strings.Compare(a.scope.String(), b.scope.String()))
	})
}
