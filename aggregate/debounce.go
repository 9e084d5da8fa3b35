package aggregate

import (
	"slices"
	"time"
)

// lane is one of the two deadlines of the debouncer.
type lane uint8

const (
	laneEndpoints lane = iota // rows that change endpoints only
	laneShape                 // everything else
	lanes
)

// How far measured push cost may delay a lane's commit. The bounds are small: a change of endpoints is
// to reach every proxy within 300 ms under churn, and what is really too much is spaced out by the
// proxies themselves, since a stream that is behind skips versions.
const (
	endpointStretch = 200 * time.Millisecond
	shapeStretch    = 500 * time.Millisecond
)

// calmAfter is the time in which the memory of an earlier push's cost fades by half.
const calmAfter = time.Second

// window is one lane's timing.
type window struct {
	quiet   time.Duration // commit when nothing came for so long …
	max     time.Duration // … or when the first event is so old …
	stretch time.Duration // … but so long after the last commit at most, however much pushing costs
}

// debouncer says when to commit. It is a pure state machine: every method is told the time.
//
// What comes after an idle period is due at once. Otherwise a lane waits for a quiet period or for its
// cap, and for pushing the commits before to take no more than its share of the time, within bounds.
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
	return at, !at.IsZero()
}

// due reports whether it is time to commit. While more waits to be applied, what came together may be
// half applied: then it is time only if something has waited for as long as endpoints ever do.
func (d *debouncer) due(now time.Time, more bool) bool {
	at, pending := d.deadline()
	if !pending || now.Before(at) {
		return false
	}
	limit := d.windows[laneEndpoints].max
	return !more || slices.ContainsFunc(d.first[:], func(t time.Time) bool { return !t.IsZero() && now.Sub(t) >= limit })
}

func (d *debouncer) laneDeadline(l lane, w window) time.Time {
	at := d.first[l] // what comes first after an idle period, be it one event or many, is due at once
	if at.Sub(d.committed) < w.quiet {
		at = sooner(d.last[l].Add(w.quiet), at.Add(w.max))
	}
	return later(at, d.committed.Add(d.pause(l)))
}

func sooner(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// pause is how long after a commit the lane's next may come, given what pushing costs.
func (d *debouncer) pause(l lane) time.Duration {
	if d.share <= 0 {
		return 0
	}
	return min(time.Duration(float64(d.cost)/d.share), d.windows[l].stretch)
}

// commit records that everything pending was committed, and what pushing since the commit before
// has cost.
func (d *debouncer) commit(now time.Time, cost time.Duration) {
	d.cost >>= max(0, min(now.Sub(d.committed)/calmAfter, 63))
	d.cost = (d.cost + cost) / 2
	d.first, d.last = [lanes]time.Time{}, [lanes]time.Time{}
	d.committed = now
}
