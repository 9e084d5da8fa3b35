package nacos

import (
	"math/rand/v2"
	"time"
)

// agenda holds tasks that are not due yet.
type agenda struct {
	at    map[task]time.Time
	first time.Time // no task is due before it; zero: there is none
}

// add puts a task off. One that is there keeps the earlier time.
func (a *agenda) add(t task, at time.Time) {
	if a.at == nil {
		a.at = map[task]time.Time{}
	}
	if old, ok := a.at[t]; ok && old.Before(at) {
		return
	}
	a.at[t] = at
	if a.first.IsZero() || at.Before(a.first) {
		a.first = at
	}
}

// due takes out what is due.
func (a *agenda) due(now time.Time) (out []task) {
	if a.first.IsZero() || now.Before(a.first) {
		return nil
	}
	a.first = time.Time{}
	for t, at := range a.at {
		switch {
		case !now.Before(at):
			out = append(out, t)
			delete(a.at, t)
		case a.first.IsZero() || at.Before(a.first):
			a.first = at
		}
	}
	return out
}

func (a *agenda) drop(n serviceName) {
	for k := subscribe; k < kinds; k++ {
		delete(a.at, task{kind: k, service: n})
	}
}

// round is a walk over all services, some at a time, that takes about a given time.
type round struct {
	over  time.Duration
	rest  []serviceName
	next  time.Time // when the next ones are due; zero: never
	pause time.Duration
	batch int // services at a time
}

// jittered is d and up to a tenth more, so that what began together does not go on together.
func jittered(d time.Duration) time.Duration { return d + rand.N(d/10+1) }
