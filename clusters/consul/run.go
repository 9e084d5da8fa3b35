package consul

import (
	"cmp"
	"context"
	"maps"
	"reflect"
	"slices"
	"strconv"
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

	scopes   []*scopeState
	services map[serviceKey]*service
	troubled map[*service]struct{} // those with a problem, seen in part, or late
	watched  int
	shared   bool // there are more services than can be watched
	assigned bool // it is decided which are
	synced   bool
	began    time.Time
	retry    time.Time    // when the next of those with a problem may be due
	said     model.Status // last
	untold   bool         // there may be more to say
	quiet    time.Time    // until then what is read is not told
	wake     *time.Timer  // for what is done at a time
}

// event is what other goroutines tell the owner.
type event interface{ apply(context.Context, *run) }

type serviceKey struct {
	scope *scopeState
	name  string
}

// scopeState is what is known of a scope.
type scopeState struct {
	scope                     // immutable
	convert   *converter      // immutable
	listed    bool            // there was a list
	index     uint64          // of the last one
	err       error           // why there is none now
	count     int             // of services
	more      int             // services beyond the limit
	odd       []model.Problem // names that can't be asked for, as many as are listed
	trouble   string          // what is wrong with all of it
	since     time.Time       // when that began
	queue     []*service      // to be read on demand, in order
	busy      int             // those that are being read so
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
	asked   bool      // it is being read
	again   bool      // it must be read once more then
	wanted  time.Time // when it was last asked for
	due     time.Time // when it is to be read again, if it has a problem
	settled bool      // it was read, or can't be
	gone    bool      // the last reading was empty, and all was to be seen
	hidden  bool      // the token may see none of it
	missing bool      // from a list that may not be complete
	late    bool      // contact was lost, and is back, and it has not been read since
	lost    bool      // for want of contact
	failed  int       // readings in a row that brought nothing
	problem model.Problem
	last    *foreign.Service // nil: none is published
	index   uint64           // of last; 0 if it is not known, or not all that there is
	nodes   []string
}

func (s *service) key() string { return s.scope.convert.key + foreign.KeyPart(s.name) }

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
		Registry: r, events: make(chan event), services: map[serviceKey]*service{},
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
	r.began = time.Now()
	for _, s := range r.Registry.scopes {
		state := &scopeState{scope: s, convert: newConverter(r.key, &r.opts.Spec, s, len(r.Registry.scopes) > 1, local)}
		r.scopes = append(r.scopes, state)
		r.work.Go(func() { r.list(inner, state) })
	}
	for r.turn(inner) {
	}
	return ctx.Err()
}

// turn waits for what comes next; false at the end of ctx.
func (r *run) turn(ctx context.Context) bool {
	select {
	case e := <-r.events:
		e.apply(ctx, r)
		if _, one := e.(reading); one && time.Now().Before(r.quiet) {
			r.untold = true
		} else {
			r.tell(ctx)
		}
	case <-r.wake.C:
		if r.untold || !r.synced { // then nothing is waited for any more
			r.tell(ctx)
		}
	case <-ctx.Done():
		return false
	}
	r.pace(time.Now())
	r.dispatch(ctx)
	return true
}

// tell tells what is known, and follows it. If much is in trouble, what is read next waits for a while with that: all of it is looked
// through to say how things stand.
func (r *run) tell(ctx context.Context) {
	r.publish(time.Now())
	r.assign(ctx)
	began := time.Now()
	r.report()
	r.untold, r.quiet = false, time.Time{}
	if len(r.troubled) > maxListed {
		now := time.Now()
		r.quiet = now.Add(max(scan, restful*now.Sub(began)))
	}
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
	switch {
	case !l.filtered:
		r.opts.Before.Keep(s.scope, wanted) // whoever knew the others has not seen them go
	case !r.synced:
		r.recall(s)
	}
	r.prune(s, wanted, l.filtered)
}

// wanted are the names that are taken of a list, sorted, as many as there is room for.
func (r *run) wanted(s *scopeState, names map[string][]string) []string {
	out := make([]string, 0, len(names))
	var odd []string
	for name, tags := range names {
		switch {
		case !r.takes(name, tags, s.convert):
		case askable(name):
			out = append(out, name)
		default:
			odd = append(odd, strconv.Quote(s.convert.key+name))
		}
	}
	slices.Sort(out)
	s.leaveOut(odd)
	others := len(r.services) - s.count
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
	v := &service{scope: s, name: name, kick: make(chan struct{}, 1)}
	r.services[k] = v
	s.count++
	r.assigned = false
	if r.synced && s.trouble != "" {
		r.isLate(v)
	}
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
	s.scope.queue = slices.DeleteFunc(s.scope.queue, func(q *service) bool { return q == s })
	delete(r.services, k)
	s.scope.count--
	delete(r.troubled, s)
	r.opts.Before.Note(s.scope.scope, s.name, nil)
	r.assigned = false
	return s.key()
}

// apply takes what a service was read as.
func (g reading) apply(_ context.Context, r *run) {
	s := g.of
	if g.onDemand {
		s.asked = false
		s.scope.busy--
	}
	k := serviceKey{s.scope, s.name}
	if r.services[k] != s {
		return // it came too late
	}
	s.late = false
	if g.onDemand && s.again {
		s.again = false
		r.ask(s)
	}
	switch {
	case g.onDemand && s.watcher != nil && (g.err != nil || g.index < s.index): // which knows better
	case g.err != nil:
		r.fail(s, g.err)
	case g.same:
		r.clear(s)
	case g.filtered && g.empty:
		s.settled, s.hidden, s.lost, s.index = true, true, false, 0
		r.complain(s, "not read: the token may see none of its instances (service:read and node:read are needed)", r.refresh())
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

// complain notes what is wrong with a service, which is read again after some time.
func (r *run) complain(s *service, reason string, after time.Duration) {
	now := time.Now()
	if s.problem.Reason != reason {
		s.problem = model.Problem{Item: s.key(), Reason: reason, Since: now}
	}
	r.troubled[s] = struct{}{}
	s.due = now.Add(after)
	r.retryAt(s.due, now)
}

// fail notes that a service can't be read; what was known of it stays.
func (r *run) fail(s *service, err error) {
	after := r.refresh()
	if s.lost = lost(err); s.lost {
		after = r.opts.Timing.backoff(s.failed)
	} else {
		s.settled, s.hidden = true, refused(err)
	}
	s.index = 0
	s.failed++
	r.complain(s, notRead(err), after)
}

// back notes that there is contact with a scope again: what could not be read without is read at once. The rest is read soon, if only
// because it may be another server that counts anew.
func (r *run) back(of *scopeState) {
	of.sweep.want = of.listed && of.peer == ""
	r.retry = time.Now()
	for _, s := range r.services {
		if s.scope != of {
			continue
		}
		if s.watcher == nil {
			s.index = 0
		}
		if s.lost {
			r.isLate(s)
		}
	}
}

// isLate has a service read at once.
func (r *run) isLate(s *service) {
	s.late = true
	r.troubled[s] = struct{}{}
	if s.watcher == nil {
		r.ask(s)
		return
	}
	select {
	case s.kick <- struct{}{}:
	default:
	}
}

// rights is after how many refresh intervals a service is read again of which the token may see a part.
const rights = 10

// take takes a service as it is now, and puts it if that is news.
func (r *run) take(s *service, g reading) {
	r.clear(s)
	was := s.settled
	s.settled, s.gone, s.index, s.nodes = true, g.empty, g.believed(g.index), g.nodes
	if g.filtered && s.watcher == nil {
		r.troubled[s] = struct{}{} // no index tells that the token may see more
		s.due = g.at.Add(rights * r.refresh())
		r.retryAt(s.due, g.at)
	}
	if was && reflect.DeepEqual(s.last, g.value) {
		r.opts.Metrics.Unchanged(r.key.String())
		return
	}
	old := s.last
	s.last = g.value
	r.opts.Before.Note(s.scope.scope, s.name, s.last)
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

// sorted are all services, in an order that stays. Those of which nothing is taken, such as sidecars, come last.
func (r *run) sorted() []*service {
	rank := func(s *service) int {
		if s.settled && s.last == nil && !s.hidden {
			return 1
		}
		return 0
	}
	return slices.SortedFunc(maps.Values(r.services), func(a, b *service) int {
		return cmp.Or(rank(a)-rank(b), strings.Compare(a.name, b.name), strings.Compare(a.scope.convert.key, b.scope.convert.key))
	})
}
