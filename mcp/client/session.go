package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/isthmus-mesh/isthmus/mcp"
)

// outbox is what is to be sent. Who reads must never wait for who writes, or both ends could wait for each other; so it is
// not bounded by a channel, but by keeping one answer to each type.
type outbox struct {
	mu    sync.Mutex
	queue []request // guarded by mu
	wake  chan struct{}
}

func newOutbox() *outbox { return &outbox{wake: make(chan struct{}, 1)} }

// add queues a request. An answer takes the place of one to an earlier response of its type.
func (o *outbox) add(r request) {
	o.mu.Lock()
	if r.nonce != "" {
		o.queue = slices.DeleteFunc(o.queue, func(q request) bool { return q.url == r.url && q.nonce != "" })
	}
	o.queue = append(o.queue, r)
	o.mu.Unlock()
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

func (o *outbox) take() []request {
	o.mu.Lock()
	defer o.mu.Unlock()
	q := o.queue
	o.queue = nil
	return q
}

// session is one stream.
type session struct {
	*run
	address string
	out     *outbox
	in      chan received
	late    bool // kinds that have no answer have had their time
}

type received struct {
	message *message
	err     error
}

// converse talks to a server until the stream ends, over the protocol that it is known to have, or else the other.
func (r *run) converse(ctx context.Context, address string) error {
	r.live, r.given = false, false
	conn, err := r.opts.dial(address)
	if err != nil {
		return err
	}
	defer conn.Close()
	err = r.stream(ctx, conn, address, !r.full[address])
	if status.Code(err) == codes.Unimplemented {
		r.full[address] = !r.full[address]
		r.opts.Log.Info("the MCP server has not the protocol that was asked for; the other one is used", "cluster", r.key.Cluster, "provider", r.key.Provider,
			"address", address, "delta", !r.full[address])
		err = r.stream(ctx, conn, address, !r.full[address])
	}
	return err
}

// stream opens a stream and follows it to its end.
func (r *run) stream(ctx context.Context, conn *grpc.ClientConn, address string, delta bool) error {
	ctx, cancel := context.WithCancelCause(ctx)
	var parts sync.WaitGroup
	defer parts.Wait()
	defer cancel(nil)
	late := time.AfterFunc(r.opts.Timing.Connect, func() { cancel(errConnect) })
	w, err := r.opts.open(ctx, conn, delta)
	if !late.Stop() || err != nil {
		if cause := context.Cause(ctx); cause != nil {
			return cause
		}
		return err
	}
	r.opts.Metrics.opened(r.key.Cluster)
	s := &session{run: r, address: address, out: newOutbox(), in: make(chan received)}
	parts.Go(func() { s.receive(ctx, w) })
	parts.Go(func() { s.send(ctx, w) })
	return s.follow(ctx)
}

func (s *session) receive(ctx context.Context, w wire) {
	for {
		m, err := w.recv()
		select {
		case s.in <- received{m, err}:
		case <-ctx.Done():
			return
		}
		if err != nil {
			return
		}
	}
}

// send sends what is queued. When it can't, the receiver learns why.
func (s *session) send(ctx context.Context, w wire) {
	for {
		for _, r := range s.out.take() {
			if w.send(r) != nil {
				return
			}
		}
		select {
		case <-s.out.wake:
		case <-ctx.Done():
			return
		}
	}
}

// follow takes turns until the stream ends.
func (s *session) follow(ctx context.Context) error {
	s.begin()
	for {
		next := s.turn(time.Now())
		timer := time.NewTimer(time.Until(next))
		select {
		case in := <-s.in:
			timer.Stop()
			if in.err != nil {
				return ended(ctx, in.err)
			}
			s.handle(in.message)
		case <-timer.C:
			if s.silent(time.Now()) {
				return errSilent
			}
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		}
	}
}

func ended(ctx context.Context, err error) error {
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, io.EOF):
		return errClosed
	}
	return err
}

// begin asks for all kinds.
func (s *session) begin() {
	s.answeredAt, s.pending = time.Now(), map[*feed]later{}
	for _, k := range s.kinds {
		k.begin()
		s.ask(k)
	}
}

// ask asks for what is to be asked next of a kind, if there is something.
func (s *session) ask(k *kind) {
	f := k.next()
	if f == nil {
		return
	}
	s.answeredAt, s.news = time.Now(), true
	r := request{url: f.url}
	if !s.full[s.address] {
		r.initial = f.versions(s.address, s.opts.Limits.RequestBytes)
		f.anew = len(r.initial) == 0
	}
	s.out.add(r)
}

// handle takes a response, all of it that can be used.
func (s *session) handle(m *message) {
	now := time.Now()
	f := s.byURL[m.url]
	if f == nil || f.at >= f.kind.asked {
		s.opts.Log.Debug("the MCP server sent a type that was not asked for", "cluster", s.key.Cluster, "provider", s.key.Provider, "type", fmt.Sprintf("%.200q", m.url))
		return
	}
	k := f.kind
	s.opts.Metrics.received(s.key.Cluster, k.Name, m.bytes, now)
	faults := len(f.faults)
	m.full = m.full || f.anew && !f.answered
	t := s.read(f, m)
	s.news = s.news || len(t.refusals) > 0 || len(f.faults) != faults
	if !f.answered {
		f.answered, s.answeredAt, s.given, t.changed = true, now, true, true
	}
	f.origin = s.address
	s.ask(k)
	s.settle(k, false)
	s.reconcile(k)
	t.refusals = append(t.refusals, s.refused(k, t.names)...)
	s.answer(f, m, t, now)
}

func (s *session) read(f *feed, m *message) taken {
	if f.kind.Name == mcp.KindMesh {
		return s.takeMesh(f, m)
	}
	return s.take(f, m)
}

// answer accepts a response, or refuses it. One that says again what was refused is answered later and later: a server that
// sends at once what was refused would keep both ends busy.
func (s *session) answer(f *feed, m *message, t taken, now time.Time) {
	delete(s.pending, f)
	if len(t.refusals) == 0 {
		f.accepted, f.refusals = m.version, 0
		s.out.add(request{url: f.url, nonce: m.nonce, version: m.version})
		return
	}
	s.opts.Metrics.nacked(s.key.Cluster, f.kind.Name)
	if t.changed {
		f.refusals = 0
	}
	b := backoff{least: s.opts.Timing.Retry, most: s.opts.Timing.RetryMax}
	var wait time.Duration
	for range min(f.refusals, 32) {
		wait = b.wait()
	}
	f.refusals++
	s.pending[f] = later{now.Add(wait), request{url: f.url, nonce: m.nonce, version: f.accepted, refusal: told(t.refusals)}}
}

// later is an answer that is put off.
type later struct {
	due time.Time
	request
}

// turn does what is due, tells the state, and says when to look again.
func (s *session) turn(now time.Time) (next time.Time) {
	next = now.Add(time.Hour)
	for f, l := range s.pending {
		if !l.due.After(now) {
			s.out.add(l.request)
			delete(s.pending, f)
		} else if l.due.Before(next) {
			next = l.due
		}
	}
	open := false
	for _, k := range s.kinds {
		s.settle(k, s.given && s.enough(now))
		s.reconcile(k)
		open = open || !k.settled
	}
	if enough := s.answeredAt.Add(s.opts.Timing.Answer); open && enough.After(now) && enough.Before(next) {
		next = enough
	}
	if late := open && s.enough(now); late != s.late {
		s.late, s.news = late, true
	}
	switch {
	case s.given && (!open || s.late):
		s.sync()
	case !s.given && s.why == "" && s.enough(now):
		s.why = s.address + ": " + errSilent.Error()
	}
	s.report(now)
	return next
}

// silent reports whether the server has said nothing at all in the time that kinds have, and there is another to ask.
func (s *session) silent(now time.Time) bool {
	return !s.given && len(s.opts.Addresses) > 1 && s.enough(now)
}
