package nacos

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
)

const (
	settleTries = 3 // requests about one service that fail, before the rest is published without it
	unreadTries = 6 // requests for one list that fail, a quarter of a minute, before the rest is published without it
	maxTimeouts = 5 // requests in a row without answer, before a session is given up
	// fuzzyLimit is how many names a scope may have before its list is read as if the server did not tell of names: by default it tells of
	// 500 and says nothing of the rest.
	fuzzyLimit = 400
	minPause   = 250 * time.Millisecond // between services that are verified: waking up costs more than asking
)

// work says how the tasks of a kind are done: by ask, in a goroutine of its own, whose result is a function that the watcher's
// goroutine calls.
var work = [kinds]func(w *watcher, t task) func(context.Context, *session) func(){
	listNames:  (*watcher).list,
	watchNames: (*watcher).watch,
	subscribe:  (*watcher).subscribe,
	read:       (*watcher).read,
	confirm:    (*watcher).confirm,
	leave:      (*watcher).leave,
	verify:     (*watcher).verify,
}

// start starts as many tasks as may run at once.
func (w *watcher) start() {
	for w.running < w.concurrency {
		t, ok := w.todo.next()
		if !ok {
			return
		}
		ask := work[t.kind](w, t)
		if ask == nil {
			continue
		}
		w.running++
		s := w.session
		s.work.Go(func() {
			done := ask(s.ctx, s)
			s.tell(func(w *watcher) {
				w.running--
				done()
			})
		})
	}
}

// answered counts requests that get no answer. If none does any more, the session is no good, whatever signs of life it gives.
func (w *watcher) answered(err error) {
	if !errors.Is(err, context.DeadlineExceeded) {
		w.timeouts = 0
		return
	}
	if w.timeouts++; w.timeouts == maxTimeouts {
		w.session.end(fmt.Errorf("%d requests in a row were not answered", maxTimeouts))
	}
}

func (w *watcher) list(t task) func(context.Context, *session) func() {
	begun := w.clock()
	return func(ctx context.Context, s *session) func() {
		names, err := s.list(ctx, t.scope)
		return func() {
			n := w.scopes[t.scope]
			if !errors.Is(err, context.DeadlineExceeded) || !w.listsOthers(n) {
				w.answered(err)
			}
			w.listed(n, begun, names, err)
		}
	}
}

// listsOthers reports whether the last list of another scope was read in this session: then it is not the server that is silent.
func (w *watcher) listsOthers(than *names) bool {
	for _, n := range w.scopes {
		if n != than && n.complete && n.failures == 0 {
			return true
		}
	}
	return false
}

// listed takes a list. One that could not be read says nothing; one that changed meanwhile says what there is, and not what has gone.
func (w *watcher) listed(n *names, begun time.Time, list []string, err error) {
	again := task{kind: listNames, scope: n.scope}
	if err == nil || errors.Is(err, errPartial) {
		w.found(n, list)
		if n.unread {
			n.unread = false
			w.again(n.scope)
		}
	}
	if err != nil {
		w.unlisted(n, err)
		if n.complete && !w.published { // each is asked for by itself, and what can't be read either is as it was
			w.found(n, slices.Concat(list, w.before.Names(n.scope)))
		}
		w.later.add(again, w.clock().Add(w.pause(n.failures, err)))
		return
	}
	if w.live && w.status.State != model.StateLive {
		w.setStatus(model.StateLive, "")
	}
	w.clearProblem(&n.problem)
	w.before.Keep(n.scope, list) // whoever knew others has not seen them go
	empty := w.compare(n.scope, begun, list)
	n.failures, n.complete, n.since = 0, true, begun
	every := w.interval
	if n.watched && n.count < fuzzyLimit && !empty {
		every = w.timing.reconcile
	}
	w.later.add(again, w.clock().Add(jittered(every)))
}

// again asks for services that could not be read.
func (w *watcher) again(sc scope) {
	for svc := range w.troubled {
		if svc.name.scope() == sc {
			w.todo.add(task{kind: subscribe, service: svc.name})
		}
	}
}

// found takes note of the names of a list. Which ones there is no room for does not depend on the server's order.
func (w *watcher) found(n *names, list []string) {
	n.leftOut = 0
	for _, name := range slices.Compact(slices.Sorted(slices.Values(list))) {
		w.discover(serviceName{n.scope.namespace, n.scope.group, name})
	}
	w.counted()
}

// unlisted says that a list could not be read. One that is refused, or fails again and again, does not hold up the others; if that is so of
// all, what is known is no longer kept up to date.
func (w *watcher) unlisted(n *names, err error) {
	n.failures++
	changing := errors.Is(err, errPartial) // is no reason to serve none of the names
	n.unread = !changing && (lasting(err) || n.unread || n.failures >= unreadTries)
	if n.unread || n.failures >= settleTries {
		w.setProblem(&n.problem, n.scope.String(), "its services can't be listed: "+err.Error())
	}
	n.complete = n.complete || n.unread || changing && n.failures >= settleTries
	why := reason(err)
	if w.unheard() {
		why = "no services can be listed: " + why
	}
	switch {
	case !w.live:
		w.setStatus(w.status.State, why)
	case w.unheard():
		w.setStatus(model.StateStale, why)
	}
}

// lasting reports whether an error is about what is asked, so that the same question gets it again.
func lasting(err error) bool {
	var e *serverError
	return errors.Is(err, errDenied) || errors.Is(err, errTooLarge) || errors.As(err, &e) && (e.code == errorParameter || e.code == errorNotFound)
}

// pause is how long it takes until what has failed so often in a row is tried again. Rights may be granted at any time.
func (w *watcher) pause(failures int, err error) time.Duration {
	if lasting(err) && !errors.Is(err, errDenied) {
		return jittered(w.timing.refused)
	}
	return w.backoff(failures)
}

// compare asks about services that were known when a list was begun, and are not in it. It reports whether some have no instance:
// that they go is told by no notification.
func (w *watcher) compare(sc scope, begun time.Time, list []string) (empty bool) {
	there := make(map[string]bool, len(list))
	for _, name := range list {
		there[name] = true
	}
	for n, svc := range w.services {
		if n.scope() != sc {
			continue
		}
		empty = empty || svc.info == nil || len(svc.info.Hosts) == 0
		if !there[n.name] && svc.added.Before(begun) {
			w.todo.add(task{kind: confirm, service: n})
		}
	}
	return empty
}

func (w *watcher) watch(t task) func(context.Context, *session) func() {
	return func(ctx context.Context, s *session) func() {
		err := s.fuzzyWatch(ctx, t.scope)
		return func() {
			w.answered(err)
			if err != nil { // lists do instead
				w.log.Warn("the server does not tell of names", "registry", w.key.String(), "scope", t.scope.String(), "err", err)
				return
			}
			w.scopes[t.scope].watched = true
		}
	}
}

// about makes work about a service that is known: ask, and then, if it is still known, done with the number of the question.
func (w *watcher) about(t task, ask func(*session, context.Context, serviceName) (*serviceInfo, error),
	done func(svc *service, asked int, info *serviceInfo, err error),
) func(context.Context, *session) func() {
	svc := w.services[t.service]
	if svc == nil {
		return nil
	}
	svc.asked++
	asked := svc.asked
	return func(ctx context.Context, s *session) func() {
		info, err := ask(s, ctx, t.service)
		return func() {
			if w.answered(err); w.services[t.service] == svc {
				done(svc, asked, info, err)
			}
		}
	}
}

func (w *watcher) subscribe(t task) func(context.Context, *session) func() {
	w.homes.add(t.service, 2*w.maxServices, func(n serviceName) bool { return w.services[n] != nil })
	return w.about(t, (*session).subscribe, w.subscribed)
}

func (w *watcher) subscribed(svc *service, asked int, info *serviceInfo, err error) {
	if err == nil {
		svc.failures = 0
		w.fresh(svc, asked, info)
		w.settle(svc)
		w.content(svc)
		return
	}
	svc.failures++
	if lasting(err) || svc.failures >= settleTries {
		w.settle(svc)
		w.recall(svc)
		w.complain(svc, "it can't be read: "+err.Error())
	}
	pause := w.pause(svc.failures, err)
	if w.scopes[svc.name.scope()].unread { // when its list can be read, so most likely can it
		pause = max(pause, w.timing.reconcile)
	}
	w.later.add(task{kind: subscribe, service: svc.name}, w.clock().Add(pause))
}

// recall has a service that could not be read since the run began as it was known before.
func (w *watcher) recall(svc *service) {
	if info := w.before.Last(svc.name.scope(), svc.name.name); svc.info == nil && info != nil {
		w.take(svc, info, time.Time{})
	}
}

func (w *watcher) read(t task) func(context.Context, *session) func() {
	return w.about(t, (*session).query, func(svc *service, asked int, info *serviceInfo, err error) {
		if err != nil {
			svc.failures++
			w.later.add(t, w.clock().Add(w.pause(svc.failures, err)))
			return
		}
		svc.failures = 0
		w.fresh(svc, asked, info)
	})
}

func (w *watcher) confirm(t task) func(context.Context, *session) func() {
	return w.about(t, (*session).query, func(svc *service, asked int, info *serviceInfo, err error) {
		if err != nil {
			w.later.add(t, w.clock().Add(w.interval))
			return
		}
		if w.fresh(svc, asked, info); len(svc.info.Hosts) == 0 {
			w.forget(svc)
		}
	})
}

func (w *watcher) leave(t task) func(context.Context, *session) func() {
	if w.services[t.service] != nil {
		return nil // it has come back
	}
	return func(ctx context.Context, s *session) func() {
		err := s.unsubscribe(ctx, t.service)
		return func() {
			w.answered(err)
			if w.services[t.service] != nil { // it came back meanwhile, and which request was first is not known
				w.todo.add(task{kind: subscribe, service: t.service})
			}
		}
	}
}

func (w *watcher) verify(t task) func(context.Context, *session) func() {
	return w.about(t, (*session).query, func(svc *service, asked int, info *serviceInfo, err error) {
		if err == nil && svc.settled && svc.info != nil && asked > svc.taken && !sameInfo(svc.info, info) {
			w.doubt(svc, asked, info)
		}
	})
}

// doubt takes what was read instead of notified. If the notification does not follow, it was lost, or the subscription is.
func (w *watcher) doubt(svc *service, asked int, info *serviceInfo) {
	w.fresh(svc, asked, info)
	svc.suspect = true
	w.later.add(task{kind: subscribe, service: svc.name}, w.clock().Add(w.timing.notify))
}

// due starts what was put off until now.
func (w *watcher) due() {
	now := w.clock()
	for _, t := range w.later.due(now) {
		if svc := w.services[t.service]; t.kind == subscribe && svc != nil && svc.settled && svc.problem.Reason == "" {
			if !svc.suspect {
				continue // the notification has come
			}
			svc.suspect = false
			w.metrics.repaired()
			w.log.Warn("a change was not notified; subscribing anew", "registry", w.key.String(), "service", t.service.String())
		}
		w.todo.add(t)
	}
	if !w.round.next.IsZero() && !now.Before(w.round.next) {
		w.step(now)
	}
}

// step verifies the next services of the round.
func (w *watcher) step(now time.Time) {
	r := &w.round
	if len(r.rest) == 0 {
		for n := range w.services {
			r.rest = append(r.rest, n)
		}
		r.pause = max(r.over/time.Duration(len(r.rest)+1), w.verifyPause, 1)
		r.batch = max(1, int(minPause/r.pause))
		r.pause *= time.Duration(r.batch)
		r.over = w.timing.reconcile
	}
	r.next = now.Add(r.pause)
	rest := len(r.rest) - min(r.batch, len(r.rest))
	for _, n := range r.rest[rest:] {
		w.todo.add(task{kind: verify, service: n})
	}
	r.rest = r.rest[:rest]
}

// wakeAt is when due has something to do.
func (w *watcher) wakeAt() time.Time {
	at := w.later.first
	if next := w.round.next; !next.IsZero() && (at.IsZero() || next.Before(at)) {
		at = next
	}
	if !w.told && (at.IsZero() || w.quiet.Before(at)) {
		at = w.quiet
	}
	if at.IsZero() {
		at = w.clock().Add(time.Hour)
	}
	return at
}
