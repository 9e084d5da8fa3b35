package file

import (
	"context"
	"time"
)

// follower is what run drives.
type follower interface {
	list() (*listing, error)
	turn(now time.Time, l *listing, touched map[string]bool) (next time.Time)
	unreadable(now time.Time, err error)
}

// run looks at the folder at once, on each event, and when the follower asks for it, until ctx ends.
func run(ctx context.Context, f follower) error {
	w := newWatcher()
	defer w.close()
	l := &looker{follower: f, watcher: w}
	touched := map[string]bool{}
	for {
		wait := l.look(touched)
		if l.failing.IsZero() {
			clear(touched)
		}
		if err := w.await(ctx, wait, touched); err != nil {
			return err
		}
		w.drain(touched)
	}
}

// await waits for an event, or for the time, or until the folder itself is another one: there are no events
// of what stands above it.
func (w *watcher) await(ctx context.Context, wait time.Duration, touched map[string]bool) error {
	for ; wait > 0; wait -= glance {
		timer := time.NewTimer(min(wait, glance))
		select {
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		case ev := <-w.events():
			timer.Stop()
			note(ev, touched)
			return nil
		case <-w.errors(): // events were lost: look
			timer.Stop()
			return nil
		case <-timer.C:
		}
		if w.replaced() {
			return nil
		}
	}
	return nil
}

// surveys bounds how often one look lists a folder that grows all the time.
const surveys = 8

// survey lists the folder until every folder in the listing was watched before it was made: what is
// created in a folder between its listing and its watch has no event.
func (k *looker) survey() (l *listing, settled bool, err error) {
	for range surveys {
		if l, err = k.list(); err != nil {
			return nil, false, err
		}
		if !k.cover(l.dirs) {
			return l, true, nil
		}
	}
	return l, false, nil
}

// looker takes the turns of one run.
type looker struct {
	follower
	*watcher
	failing time.Time // since when the folder can't be read
}

// look takes one turn. A folder that can't be read is reported after the grace: it may be on its way
// out, and about to be detached.
func (k *looker) look(touched map[string]bool) time.Duration {
	l, settled, err := k.survey()
	now := time.Now()
	if err == nil {
		k.failing = time.Time{}
		next := k.turn(now, l, touched)
		return k.pace(now, next, len(l.lost) > 0 || !settled)
	}
	if k.failing.IsZero() {
		k.failing = now
	}
	if left := grace - now.Sub(k.failing); left > 0 {
		return left
	}
	k.unreadable(now, err)
	return retry
}
