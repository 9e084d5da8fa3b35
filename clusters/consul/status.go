package consul

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
)

// maxListed is how many problems a status names.
const maxListed = 100

// silent reports whether there is no contact with the scope.
func (s *scopeState) silent() bool { return lost(s.err) }

// standing is what the services of a scope that have a problem say of all of it.
type standing struct {
	troubled int
	hidden   int // those that may not be seen
	seen     int // those of them that were
	late     int
}

// report tells how it stands, if that has changed. What is wrong with all scopes is wrong with the registry; what is wrong with some
// is their problem.
func (r *run) report() {
	s := model.Status{State: model.StateLive}
	of := r.standings()
	now := time.Now()
	var reasons []string
	inTrouble := 0
	for _, scope := range r.scopes {
		if text := r.trouble(scope, of[scope]); text != scope.trouble {
			scope.trouble, scope.since = text, now
		}
		if scope.trouble != "" {
			inTrouble++
			reasons = append(reasons, strings.TrimPrefix(scope.String()+": "+scope.trouble, ": "))
		}
	}
	switch {
	case !r.synced:
		s.State, s.Err = model.StateSyncing, strings.Join(reasons, "; ")
	case inTrouble == len(r.scopes):
		s.State, s.Err = model.StateStale, strings.Join(reasons, "; ")
	}
	s.Problems = r.problems(s.State == model.StateLive)
	r.say(s)
}

func (r *run) standings() map[*scopeState]*standing {
	of := make(map[*scopeState]*standing, len(r.scopes))
	for _, s := range r.scopes {
		of[s] = &standing{}
	}
	for v := range r.troubled {
		o := of[v.scope]
		o.troubled++
		if v.hidden {
			o.hidden++
		}
		if v.hidden && v.last != nil {
			o.seen++
		}
		if v.late {
			o.late++
		}
	}
	return of
}

// trouble is what is wrong with all of a scope; "" if nothing.
func (r *run) trouble(s *scopeState, o *standing) string {
	switch {
	case s.err != nil:
		return s.err.Error()
	case !r.synced && o.hidden > 0 && o.hidden == o.troubled && o.troubled == s.count:
		return errNothing.text
	case o.seen > 0:
		return fmt.Sprintf("the token may not see %d services that were seen before: what was known of them stays", o.seen)
	case o.late > 0:
		return s.trouble // until all has been read again
	}
	return ""
}

// problems are those of scopes, if others are live, and of services.
func (r *run) problems(live bool) (out []model.Problem) {
	for _, s := range r.scopes {
		if s.trouble != "" && live {
			reason := "what is known of it stays as it was: " + s.trouble
			out = append(out, model.Problem{Item: cmp.Or(s.String(), s.convert.dc), Reason: reason, Since: s.since, Broad: true})
		}
		out = append(out, s.odd...)
		if s.more > 0 {
			reason := fmt.Sprintf("%d services are not read: there are more than that", s.more)
			out = append(out, model.Problem{Item: "limits.maxServices", Reason: reason, Since: r.began, Broad: true})
		}
	}
	for v := range r.troubled {
		if v.problem.Reason != "" && !v.shares() {
			out = append(out, v.problem)
		}
	}
	return model.ListProblems(time.Now(), out, r.said.Problems, maxListed)
}

// shares reports whether a service can't be read for the reason that nothing of its scope can.
func (s *service) shares() bool {
	return s.scope.err != nil && (s.lost && s.scope.silent() || s.problem.Reason == notRead(s.scope.err))
}

func notRead(err error) string { return "not read: " + err.Error() }

// say gives a status that is not the last one.
func (r *run) say(s model.Status) {
	s.Since = time.Now()
	if next, news := s.Follow(r.said); news {
		r.said = next
		r.pub.Status(next)
	}
}
