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
	touched := map[string]bool{}
	for {
		wait := look(f, w, touched)
		clear(touched)
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		case ev := <-w.events():
			note(ev, touched)
		case <-w.errors(): // events were lost: look
		case <-timer.C:
		}
		timer.Stop()
		w.drain(touched)
	}
}

// look takes one turn. Folders are watched before the listing that counts, so that nothing between
// the two is missed.
func look(f follower, w *watcher, touched map[string]bool) time.Duration {
	l, err := f.list()
	if err == nil && w.cover(l.dirs) {
		l, err = f.list()
	}
	now := time.Now()
	if err != nil {
		f.unreadable(now, err)
		return retry
	}
	next := f.turn(now, l, touched)
	return w.pace(now, next, len(l.lost) > 0)
}
