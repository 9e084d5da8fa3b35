package lastgood

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
)

const (
	// patience is how long a registry may say that it has not synced and why, until that counts as lost contact.
	patience = 2 * time.Second
	// pulse is how often it is noted that what was written still holds.
	pulse = time.Minute
	// share bounds the time spent on writing: it rests as many times as long as it took.
	share = 50
)

// registry keeps what another one reports.
type registry struct {
	inner model.Registry
	opts  Options
	file  *shardFile
	next  func() uint64 // gives a higher serial than any before
	terms Terms
	log   *slog.Logger
	turn  chan struct{} // full while it runs, for who is replaced and attached again may not have ended yet

	// Owned by who has the turn.
	serial uint64    // of several instances only the newest writes
	told   bool      // the last run was told to end
	known  bool      // a full truth of inner has been passed on, in this run or before
	held   time.Time // when what was restored was last known to hold; zero if nothing was restored
}

// Key implements model.Registry.
func (r *registry) Key() model.ShardKey { return r.inner.Key() }

// Run implements model.Registry.
func (r *registry) Run(ctx context.Context, out model.Sink) error {
	select {
	case r.turn <- struct{}{}:
		defer func() { <-r.turn }()
	case <-ctx.Done():
		return ctx.Err()
	}
	if r.told { // attached again after another
		r.serial = r.next()
	}
	t := newTap(r, out)
	var parts sync.WaitGroup
	own, cancel := context.WithCancel(ctx)
	if t.waits() {
		parts.Go(func() { t.restoreWhenDue(own) })
	}
	k := &keeper{registry: r, tap: t}
	parts.Go(func() { k.keep(own) })
	err := r.inner.Run(ctx, t)
	cancel()
	parts.Wait()
	if ctx.Err() == nil && t.waits() {
		t.restore("it has ended") // the controller tells why
	}
	k.save()
	t.end()
	r.told = ctx.Err() != nil
	return err
}

// tap is the sink of one run: it passes on what comes, and remembers it.
type tap struct {
	*registry
	out     model.Sink
	synced  chan struct{} // closed with the first full truth of the run
	changed chan struct{} // cap 1: there is something to write
	lost    chan struct{} // cap 1: contact is lost, or never was

	mu    sync.Mutex
	phase phase                         // guarded by mu
	held  time.Time                     // guarded by mu: that of what was restored
	rows  map[model.RowKey]model.Object // guarded by mu: the truth; nil before the first
	dirty bool                          // guarded by mu: rows differ from what was written
	last  model.Status                  // guarded by mu: the last one that inner gave
	fault model.Problem                 // guarded by mu: why the rows can't be kept; zero if they can
}

// phase is what out has been given so far.
type phase int

const (
	nothing  phase = iota // and what was kept may be given
	restored              // what was kept
	truth                 // what inner says, or what there is has to do
)

func newTap(r *registry, out model.Sink) *tap {
	t := &tap{registry: r, out: out, synced: make(chan struct{}), changed: make(chan struct{}, 1), lost: make(chan struct{}, 1), held: r.held}
	switch {
	case r.known || !r.terms.Restore:
		t.phase = truth
	case !r.held.IsZero():
		t.phase = restored
	}
	return t
}

// end leaves to the next run what it has to know.
func (t *tap) end() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.registry.known = t.registry.known || t.rows != nil
	t.registry.held = t.held
}

// Replace implements model.Sink. Sinks never block, so the lock may be held: nothing may come between the truth
// and what is remembered of it, and what was kept may not come after it.
func (t *tap) Replace(s *model.ShardState) {
	if s == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.rows == nil {
		close(t.synced)
		t.fault = model.Problem{} // that there was nothing to restore
	}
	t.phase, t.rows = truth, maps.Collect(s.Rows())
	t.out.Replace(s)
	t.note()
}

// Put implements model.Sink.
func (t *tap) Put(evs ...model.Event) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.rows == nil {
		if t.phase != restored { // else it would change what was restored
			t.out.Put(evs...)
		}
		return
	}
	for _, ev := range evs {
		if ev.Obj == nil {
			delete(t.rows, ev.Row)
		} else {
			t.rows[ev.Row] = ev.Obj
		}
	}
	t.out.Put(evs...)
	t.note()
}

// note is called with mu held.
func (t *tap) note() {
	t.dirty = true
	select {
	case t.changed <- struct{}{}:
	default:
	}
}

// Status implements model.Sink. While what was restored is served, whatever inner says means that it is stale. That
// there is no contact from the start is passed on only when nothing can be restored, for then nobody waits any more.
func (t *tap) Status(s model.Status) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.rows != nil && !slices.Equal(heldBack(t.last), heldBack(s)) {
		t.note() // for what is kept aside
	}
	t.last = s
	switch {
	case t.phase == restored:
		t.give(t.stale())
	case t.phase == truth || s.Err == "":
		t.give(s)
	default:
		if s.State == model.StateSyncing {
			t.give(s)
		}
		select {
		case t.lost <- struct{}{}:
		default:
		}
	}
}

// heldBack are the problems that tell of items which are gone, and served.
func heldBack(s model.Status) (out []model.Problem) {
	for _, p := range s.Problems {
		if p.Held {
			out = append(out, p)
		}
	}
	return out
}

// give passes a status on, with what is wrong here; it is called with mu held.
func (t *tap) give(s model.Status) {
	if t.fault != (model.Problem{}) {
		s.Problems = append(slices.Clip(s.Problems), t.fault)
	}
	t.out.Status(s)
}

// fail tells that the rows can't be kept, and why, or with "" that they can again.
func (t *tap) fail(why string, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	var fault model.Problem
	if why != "" {
		fault = model.Problem{Item: "state-dir", Reason: "what is known of the cluster can't be kept for the next start of the hub: " + why, Since: now, Broad: true}
	}
	if fault.Reason == t.fault.Reason {
		return
	}
	t.fault = fault
	if t.phase == truth {
		s := t.last
		s.State = cmp.Or(s.State, model.StateLive)
		t.give(s)
	}
}

// stale is the status of what was restored; it is called with mu held.
func (t *tap) stale() model.Status {
	text := "served as it was kept at " + t.held.UTC().Format(time.RFC3339)
	if t.last.Err != "" {
		text += ": " + t.last.Err
	}
	return model.Status{State: model.StateStale, Since: t.held, Err: text, Problems: t.last.Problems, StaleAfter: t.last.StaleAfter}
}

func (t *tap) waits() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.phase == nothing
}

// restoreWhenDue waits until inner has had its time.
func (t *tap) restoreWhenDue(ctx context.Context) {
	timer := time.NewTimer(t.opts.After)
	defer timer.Stop()
	lost, warned := t.lost, false
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.synced:
			return
		case <-lost:
			if p := t.patience(); p == 0 {
				lost = nil
				timer.Reset(0)
			} else if !warned {
				warned = true
				timer.Reset(min(p, t.opts.After))
			}
		case <-timer.C:
			t.restore("it has not synced")
			return
		}
	}
}

// patience is how long the last status lets hope.
func (t *tap) patience() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.last.State == model.StateSyncing {
		return patience
	}
	return 0
}

// restore reports what was kept, if there is anything and inner still has not.
func (t *tap) restore(why string) {
	h, state, err := t.file.read(t.terms.of())
	held := h.Saved
	t.mu.Lock()
	defer t.mu.Unlock()
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.log.Warn("last good rows can't be used", "file", t.file.path, "err", err)
	}
	if t.phase != nothing {
		return
	}
	if err != nil {
		t.phase = truth
		if errors.Is(err, ErrOther) {
			t.fault = model.Problem{Item: "state-dir", Reason: "what was kept is not served: " + err.Error(), Since: time.Now(), Broad: true}
		}
		if t.last.State != "" {
			t.give(t.last)
		}
		return
	}
	t.phase, t.held = restored, held
	t.out.Replace(state)
	t.give(t.stale())
	t.log.Warn("last good rows are served until the cluster can be read", "reason", why, "rows", state.Len(), "held", held)
}

// take gives the rows if they are to be written.
func (t *tap) take() map[model.RowKey]model.Object {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.dirty {
		return nil
	}
	t.dirty = false
	return maps.Clone(t.rows)
}

// live reports whether what was taken last still holds.
func (t *tap) live() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return !t.dirty && t.rows != nil && (t.last.State == model.StateLive || t.last.State == "")
}

// again makes the rows be written later.
func (t *tap) again() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.note()
}
