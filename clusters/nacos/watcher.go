package nacos

import (
	"context"
	"log/slog"
	"time"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/clusters/foreign"
)

// publisher is foreign.Publisher.
type publisher interface {
	Replace([]foreign.Service)
	Put(...foreign.Service)
	Delete(...string)
	Status(model.Status)
}

// watcher is what one run of a registry knows. It belongs to the goroutine of the run: sessions give it events, and nobody locks it.
type watcher struct {
	settings
	pub     publisher
	log     *slog.Logger
	metrics *metrics

	scopes    map[scope]*names
	services  map[serviceName]*service
	published bool // Replace was called
	protected int  // services of which the server says that all instances are healthy, since too few are
	status    model.Status
	full      model.Problem         // there are more services than there may be
	troubled  map[*service]struct{} // those with a problem
	said      []model.Problem       // the problems that were reported
	told      bool                  // status and problems are as they were reported
	quiet     time.Time             // until then new problems are not

	// What follows belongs to one session.
	session   *session
	live      bool // all that is known was asked for anew
	unsettled int  // services that are not settled
	todo      queue
	running   int // tasks
	timeouts  int // in a row
	later     agenda
	homes     homes
	round     round
	dirty     map[serviceName]time.Time // to be published, and when the first notice of it came; zero if it was read
}

// names is what is known of one scope.
type names struct {
	scope    scope
	complete bool      // in this session the list was read, or nobody waits for it
	since    time.Time // when the last complete list was begun: until then every name is known
	watched  bool      // the server tells of names in this session
	count    int       // of services
	leftOut  int       // names for which there is no room
	unread   bool      // in this session the list can't be read, and nobody waits for it
	failures int
	problem  model.Problem
}

// service is what is known of one service.
type service struct {
	name     serviceName
	added    time.Time
	info     *serviceInfo // the last; nil if there was none yet
	settled  bool         // in this session: there was an answer, or none is expected
	asked    int          // questions about it, and notifications, in their order
	taken    int          // which of these info is of
	suspect  bool         // a read says something else than the last notification
	failures int
	problem  model.Problem
}

func newWatcher(s settings, pub publisher, m *metrics) *watcher {
	w := &watcher{
		settings: s, pub: pub, log: s.log, metrics: m,
		scopes: map[scope]*names{}, services: map[serviceName]*service{}, troubled: map[*service]struct{}{}, dirty: map[serviceName]time.Time{}, todo: newQueue(),
	}
	for _, sc := range s.scopes {
		w.scopes[sc] = &names{scope: sc}
	}
	w.setStatus(model.StateSyncing, "")
	w.report()
	return w
}

// follow keeps what is known up to date over a session, until that ends.
func (w *watcher) follow(s *session) error {
	w.begin(s)
	alarm := time.NewTimer(0)
	defer alarm.Stop()
	for {
		w.start()
		w.flush()
		alarm.Reset(w.wakeAt().Sub(w.clock()))
		select {
		case f := <-s.events:
			f(w)
			w.drain()
		case <-alarm.C:
			w.due()
		case <-s.ctx.Done():
			return context.Cause(s.ctx)
		}
	}
}

// begin asks for everything, known services first.
func (w *watcher) begin(s *session) {
	w.session, w.live, w.running, w.timeouts, w.unsettled = s, false, 0, 0, len(w.services)
	w.todo, w.later, w.round, w.homes = newQueue(), agenda{}, round{}, homes{}
	for _, sc := range w.settings.scopes {
		n := w.scopes[sc]
		n.complete, n.unread, n.watched, n.failures = false, false, false, 0
		w.todo.add(task{kind: listNames, scope: sc})
	}
	for n, svc := range w.services {
		svc.settled, svc.suspect, svc.failures = false, false, 0
		svc.taken = svc.asked // what is asked from now on is newer
		w.todo.add(task{kind: subscribe, service: n})
	}
}

// drain takes what else has come, so that it is published together.
func (w *watcher) drain() {
	for range cap(w.session.events) {
		select {
		case f := <-w.session.events:
			f(w)
		default:
			return
		}
	}
}

// flush publishes what has changed, and tells when everything was asked for.
func (w *watcher) flush() {
	if !w.live && w.settled() {
		w.synced()
	}
	w.publish()
	if !w.told && !w.clock().Before(w.quiet) {
		w.report()
	}
}

func (w *watcher) publish() {
	if !w.published || len(w.dirty) == 0 {
		return
	}
	var puts []foreign.Service
	var gone []string
	for n := range w.dirty {
		if out, ok := w.naming.convert(n, w.services[n].info); ok {
			puts = append(puts, out)
		} else {
			gone = append(gone, n.String())
		}
	}
	w.pub.Delete(gone...)
	w.pub.Put(puts...)
	for _, at := range w.dirty {
		w.metrics.put(at)
	}
	clear(w.dirty)
	w.metrics.watches(len(w.services))
}

// settled reports whether nothing that was asked for at the beginning is still open.
func (w *watcher) settled() bool {
	if w.unsettled > 0 {
		return false
	}
	for _, n := range w.scopes {
		if !n.complete {
			return false
		}
	}
	return !w.unheard()
}

// unheard reports whether no list can be read: then nothing is known, which is not to be taken for nothing.
func (w *watcher) unheard() bool {
	for _, n := range w.scopes {
		if !n.unread {
			return false
		}
	}
	return true
}

func (w *watcher) synced() {
	w.live = true
	if !w.published {
		w.published = true
		w.pub.Replace(w.everything())
		clear(w.dirty)
	}
	w.setStatus(model.StateLive, "")
	w.missed()
	w.round.next = w.clock().Add(w.timing.settle)
}

// missed has everything verified soon.
func (w *watcher) missed() { w.round = round{over: w.timing.settle, next: w.clock()} }

// everything is all services of which something is known.
func (w *watcher) everything() (out []foreign.Service) {
	for n, svc := range w.services {
		if svc.info == nil {
			continue
		}
		if s, ok := w.naming.convert(n, svc.info); ok {
			out = append(out, s)
		}
	}
	return out
}

// discover takes note of a service.
func (w *watcher) discover(n serviceName) {
	names := w.scopes[n.scope()]
	if names == nil || w.services[n] != nil || !realService(n.name) || !w.filter.Takes(n.name) {
		return
	}
	if len(w.services) >= w.maxServices {
		names.leftOut++
		return
	}
	w.services[n] = &service{name: n, added: w.clock()}
	w.unsettled++
	names.count++
	w.todo.add(task{kind: subscribe, service: n})
	if w.live {
		w.metrics.discovered(names, w.clock())
	}
}

// forget takes a service away.
func (w *watcher) forget(svc *service) {
	delete(w.services, svc.name)
	delete(w.dirty, svc.name)
	w.scopes[svc.name.scope()].count--
	w.settle(svc)
	w.protect(svc.info, nil)
	w.before.Note(svc.name.scope(), svc.name.name, nil)
	w.todo.drop(svc.name)
	w.later.drop(svc.name)
	w.content(svc)
	if w.published {
		w.pub.Delete(svc.name.String())
	}
	w.todo.add(task{kind: leave, service: svc.name})
}

// take makes an answer, or a notice that came at a time, what is known of a service.
func (w *watcher) take(svc *service, info *serviceInfo, at time.Time) {
	switch {
	case sameInfo(svc.info, info):
		if !at.IsZero() {
			w.metrics.unchanged()
		}
	case w.dirty[svc.name].IsZero():
		w.dirty[svc.name] = at
	}
	w.protect(svc.info, info)
	w.before.Note(svc.name.scope(), svc.name.name, info)
	if svc.info = info; len(info.Hosts) == 0 { // whether it is still there only the list tells
		w.later.add(task{kind: listNames, scope: svc.name.scope()}, w.clock().Add(w.interval))
	}
}

// fresh takes an answer, unless what is known is one to a later question, or a notification that came meanwhile: these may be newer, and
// the server's clock says whether they are. All come from one server.
func (w *watcher) fresh(svc *service, asked int, info *serviceInfo) {
	switch {
	case asked > svc.taken:
		svc.taken = asked
	case info.LastRefTime <= svc.info.LastRefTime:
		return
	}
	w.take(svc, info, time.Time{})
}

// protect counts protected services, as one changes. nil is none.
func (w *watcher) protect(old, now *serviceInfo) {
	was, is := old != nil && old.Protected, now != nil && now.Protected
	switch {
	case is && !was:
		w.protected++
	case was && !is:
		w.protected--
	default:
		return
	}
	w.metrics.protected(w.protected)
}

func (w *watcher) settle(svc *service) {
	if !svc.settled {
		svc.settled = true
		w.unsettled--
	}
}

// able is told what the server can do besides what all can.
func (w *watcher) able(abilities map[string]bool) {
	if !abilities[abilityFuzzyWatch] {
		return
	}
	for _, sc := range w.settings.scopes {
		w.todo.add(task{kind: watchNames, scope: sc})
	}
}

// pushed is a notification. They come in order; when a server made them says nothing, since its clock may be wrong. If it may be about
// services of several namespaces, all are asked for.
func (w *watcher) pushed(n serviceName, info *serviceInfo, at time.Time) {
	about := w.homes.of(n)
	for _, n := range about {
		svc := w.services[n]
		if svc == nil || info == nil {
			continue // it was left meanwhile
		}
		if svc.suspect = false; len(about) > 1 {
			w.todo.add(task{kind: read, service: n})
			continue
		}
		svc.asked++
		svc.taken = svc.asked
		w.take(svc, info, at)
	}
}

// named is a notification of names that came or went. Servers say that a service goes when its last instance does, though it may stay
// without any: the list tells.
func (w *watcher) named(changes []fuzzyContext) {
	for _, c := range changes {
		n, ok := parseServiceKey(c.Key)
		switch {
		case !ok:
		case c.Changed == fuzzyAddService:
			w.discover(n)
		case c.Changed == fuzzyDeleteService && w.services[n] != nil:
			w.later.add(task{kind: listNames, scope: n.scope()}, w.clock().Add(w.timing.relist))
		}
	}
}
