package aggregate

import (
	"container/list"
	"sync"
	"time"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
)

// mailbox is the coalescing input of one run of one registry instance: the latest event per key, in
// the order in which keys were first touched, behind an optional pending full truth. Its size is
// bounded by the number of distinct keys, however fast events come and however slow the writer is.
type mailbox struct {
	wake func() // tells the writer that there is something; must not block

	mu       sync.Mutex
	closed   bool
	replaced bool // Replace was called at least once
	early    int  // puts ignored because they came before the first Replace
	full     *model.ShardState
	fullAt   time.Time
	events   map[model.RowKey]*list.Element
	order    *list.List // of *pending, oldest first
	known    map[model.RowKey]struct{}
	status   *model.Status
}

type pending struct {
	ev model.Event
	at time.Time // when the key was first touched
}

// batch is what the writer takes in one turn.
type batch struct {
	full   *model.ShardState // comes before events
	events []model.Event
	status *model.Status
	oldest time.Time // when the oldest of these came; zero if there are none
	more   bool
}

func newMailbox(wake func()) *mailbox {
	return &mailbox{
		wake: wake, events: map[model.RowKey]*list.Element{}, order: list.New(),
		known: map[model.RowKey]struct{}{},
	}
}

// Replace implements model.Sink: earlier puts are part of the new truth, or gone.
func (m *mailbox) Replace(s *model.ShardState) {
	if s == nil {
		return
	}
	m.mu.Lock()
	if !m.closed {
		m.full, m.replaced = s, true
		if m.fullAt.IsZero() {
			m.fullAt = time.Now()
		}
		clear(m.events)
		m.order.Init()
		if m.status != nil && m.status.State != model.StateLive {
			m.status = nil // the source was reached after that
		}
	}
	m.mu.Unlock()
	m.wake()
}

// Put implements model.Sink. The writer commits all events of a call together: it does not while more is
// waiting here.
func (m *mailbox) Put(evs ...model.Event) {
	if m.putAll(evs) {
		m.wake()
	}
}

func (m *mailbox) putAll(evs []model.Event) (news bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.closed:
		return false
	case !m.replaced:
		m.early += len(evs)
		return false
	}
	for _, ev := range evs {
		news = m.put(ev) || news
	}
	return news
}

// put reports whether the writer must be told. It is called with mu held.
func (m *mailbox) put(ev model.Event) bool {
	e, have := m.events[ev.Row]
	if ev.Obj == nil && !m.seen(ev.Row) {
		if have {
			m.order.Remove(e)
			delete(m.events, ev.Row)
		}
		return false
	}
	if have {
		e.Value.(*pending).ev = ev
		return false // the writer was told when the key was first touched
	}
	m.events[ev.Row] = m.order.PushBack(&pending{ev: ev, at: time.Now()})
	return true
}

// seen reports whether the writer knows the key, or will before it sees the events.
func (m *mailbox) seen(k model.RowKey) bool {
	if m.full != nil {
		_, ok := m.full.Row(k)
		return ok
	}
	_, ok := m.known[k]
	return ok
}

// Status implements model.Sink.
func (m *mailbox) Status(s model.Status) {
	m.mu.Lock()
	if !m.closed {
		m.status = &s
	}
	m.mu.Unlock()
	m.wake()
}

// take hands over up to budget events; a pending full truth comes first and counts as one.
func (m *mailbox) take(budget int) batch {
	m.mu.Lock()
	defer m.mu.Unlock()
	b := batch{full: m.full, status: m.status, oldest: m.oldestLocked()}
	m.status = nil
	if m.full != nil {
		m.handOver()
		budget--
	}
	for n := min(budget, m.order.Len()); n > 0; n-- {
		p := m.order.Remove(m.order.Front()).(*pending)
		delete(m.events, p.ev.Row)
		if p.ev.Obj == nil {
			delete(m.known, p.ev.Row)
		} else {
			m.known[p.ev.Row] = struct{}{}
		}
		b.events = append(b.events, p.ev)
	}
	b.more = m.order.Len() > 0
	return b
}

func (m *mailbox) handOver() {
	m.known = make(map[model.RowKey]struct{}, m.full.Len())
	for k := range m.full.Rows() {
		m.known[k] = struct{}{}
	}
	m.full, m.fullAt = nil, time.Time{}
}

// relists reports whether a full truth waits.
func (m *mailbox) relists() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.full != nil
}

// close makes every later call a no-op and frees what is held.
func (m *mailbox) close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed, m.full, m.status = true, nil, nil
	m.events, m.known = nil, nil
	m.order.Init()
}

// depth is the number of distinct keys that wait, and the arrival of the oldest (zero if none).
func (m *mailbox) depth() (int, time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := m.order.Len()
	if m.full != nil {
		n += m.full.Len()
	}
	return n, m.oldestLocked()
}

func (m *mailbox) oldestLocked() time.Time {
	at := m.fullAt
	if f := m.order.Front(); f != nil {
		if t := f.Value.(*pending).at; at.IsZero() || t.Before(at) {
			at = t
		}
	}
	return at
}

// tooEarly is the number of puts that were ignored because they came before the first Replace.
func (m *mailbox) tooEarly() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.early
}
