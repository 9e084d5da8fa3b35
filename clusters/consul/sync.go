package consul

import (
	"slices"
	"strings"
	"time"

	"github.com/isthmus-mesh/isthmus/clusters/foreign"
)

// The first sync does not wait for services that can't be read, again and again, if no more than one in few is such; nor any longer
// than grace for a datacenter or peer that can't be read, if there is another that can.
const (
	patient = 5
	few     = 10
	grace   = 15 * time.Second
)

// progress is how many services of a scope there are, how many of them may not be seen, and how many can't be read.
type progress struct{ all, hidden, hopeless int }

// nothing reports whether no sense can be made of what was read: a token that may see nothing says nothing.
func (p *progress) nothing() bool {
	return p.hidden > 0 && p.hidden == p.all || p.hopeless*few > p.all
}

// publish gives the whole truth, once everything has been read.
func (r *run) publish(now time.Time) {
	if r.synced {
		return
	}
	late := now.Sub(r.began) >= grace
	of, settled := r.progress(late)
	if !settled {
		return
	}
	some := false
	for s, p := range of {
		switch {
		case s.listed && !p.nothing():
			some = true
		case !late:
			return
		}
	}
	if some {
		r.sync()
	}
}

// progress is that of each scope, if nothing needs to be waited for.
func (r *run) progress(late bool) (of map[*scopeState]*progress, settled bool) {
	of = make(map[*scopeState]*progress, len(r.scopes))
	for _, s := range r.scopes {
		if !s.listed && (s.err == nil || !late) {
			return nil, false
		}
		of[s] = &progress{}
	}
	for _, s := range r.services {
		p := of[s.scope]
		p.all++
		switch {
		case s.hidden:
			p.hidden++
		case s.settled, late && s.scope.err != nil:
		case s.failed < patient:
			return nil, false
		default:
			p.hopeless++
		}
	}
	return of, true
}

func (r *run) sync() {
	r.remember()
	var all []foreign.Service
	for _, s := range r.services {
		if s.last != nil {
			all = append(all, *s.last)
		}
	}
	slices.SortFunc(all, func(a, b foreign.Service) int { return strings.Compare(a.Key, b.Key) })
	r.pub.Replace(all)
	r.synced, r.assigned = true, false
}
