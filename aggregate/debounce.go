package aggregate

import "time"

// lane is one of the two deadlines of the debouncer.
type lane uint8

const (
	laneEndpoints lane = iota // rows that change endpoints only
	laneShape                 // everything else
	lanes
)

// maxStretch bounds how far measured push cost may delay a commit.
const maxStretch = 5 * time.Second

// window is one lane's timing.
type window struct {
	quiet time.Duration // commit when nothing came for so long …
	max   time.Duration // … or when the first event is so old
}

// debouncer says when to commit. It is a pure state machine: every method is told the time.
//
// An event after an idle period is due at once. Otherwise a lane waits for a quiet period or for its
// cap, and any commit waits until pushing the ones before took no more than its share of the time.
type debouncer struct {
	windows [lanes]window
	share   float64 // part of the machine that pushing may take

	first, last [lanes]time.Time // of the pending events; zero = none
	committed   time.Time        // last commit
	cost        time.Duration    // smoothed machine time of pushing one commit
}

// note records an event.
func (d *debouncer) note(l lane, now time.Time) {
	if d.first[l].IsZero() {
		d.first[l] = now
	}
	d.last[l] = now
}

// pending reports whether any lane has events.
func (d *debouncer) pending() bool {
	return !d.first[laneEndpoints].IsZero() || !d.first[laneShape].IsZero()
}

// deadline gives the time of the next commit; false if nothing is pending.
func (d *debouncer) deadline() (time.Time, bool) {
	var at time.Time
	for l, w := range d.windows {
		if d.first[l].IsZero() {
			continue
		}
		if t := d.laneDeadline(lane(l), w); at.IsZero() || t.Before(at) {
			at = t
		}
	}
	if at.IsZero() {
		return at, false
	}
	if rest := d.committed.Add(d.pause()); at.Before(rest) {
		at = rest
	}
	return at, true
}

func (d *debouncer) laneDeadline(l lane, w window) time.Time {
	if d.first[l].Sub(d.committed) >= w.quiet && d.first[l].Equal(d.last[l]) {
		return d.first[l] // the first after an idle period
	}
	quiet, limit := d.last[l].Add(w.quiet), d.first[l].Add(w.max)
	if limit.Before(quiet) {
		return limit
	}
	return quiet
}

// pause is how long after a commit the next may come, given what pushing costs.
func (d *debouncer) pause() time.Duration {
	if d.share <= 0 {
		return 0
	}
	return min(time.Duration(float64(d.cost)/d.share), maxStretch)
}

// commit records that everything pending was committed, and what pushing since the commit before
// has cost.
func (d *debouncer) commit(now time.Time, cost time.Duration) {
	d.first, d.last = [lanes]time.Time{}, [lanes]time.Time{}
	d.committed = now
	d.cost = (d.cost + cost) / 2
}
