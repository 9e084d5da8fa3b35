package consul

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
)

// report tells how it stands, if that has changed.
func (r *run) report() {
	s := model.Status{State: model.StateLive}
	var reasons []string
	hidden, late := 0, 0
	nothing := !r.synced && len(r.troubled) > 0 && len(r.troubled) == len(r.services)
	for v := range r.troubled {
		if v.problem.Reason != "" {
			s.Problems = append(s.Problems, v.problem)
		}
		if v.hidden && v.last != nil {
			hidden++
		}
		nothing = nothing && v.hidden
		if v.late {
			late++
		}
	}
	for _, of := range r.scopes {
		if of.err != nil {
			reasons = append(reasons, strings.TrimPrefix(of.String()+": "+of.err.Error(), ": "))
		}
		if of.more > 0 {
			s.Problems = append(s.Problems, model.Problem{Item: "limits.maxServices", Reason: fmt.Sprintf("%d services are not read: there are more than that", of.more), Since: r.began})
		}
	}
	if nothing {
		reasons = append(reasons, errNothing.text)
	}
	if hidden > 0 && len(reasons) == 0 {
		reasons = append(reasons, fmt.Sprintf("the token may not see %d services that were seen before: what was known of them stays", hidden))
	}
	if s.Err = strings.Join(reasons, "; "); s.Err == "" && late > 0 && r.said.State == model.StateStale {
		s.Err = r.said.Err // until all has been read again
	}
	switch {
	case !r.synced:
		s.State = model.StateSyncing
	case s.Err != "":
		s.State = model.StateStale
	}
	slices.SortFunc(s.Problems, func(a, b model.Problem) int { return strings.Compare(a.Item, b.Item) })
	r.say(s)
}

// say gives a status that is not the last one.
func (r *run) say(s model.Status) {
	s.Since = r.said.Since
	if s.State != r.said.State {
		s.Since = time.Now()
	}
	if s.State == r.said.State && s.Err == r.said.Err && slices.Equal(s.Problems, r.said.Problems) {
		return
	}
	r.said = s
	r.pub.Status(s)
}
