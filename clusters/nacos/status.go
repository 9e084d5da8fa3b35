package nacos

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
)

func (w *watcher) setStatus(s model.State, err string) {
	if w.status.State != s {
		w.status.State, w.status.Since = s, w.clock()
	}
	w.status.Err = err
	w.told = false
}

// report says how things are.
func (w *watcher) report() {
	w.told = true
	out := w.status
	add := func(p model.Problem) {
		if p.Reason != "" {
			out.Problems = append(out.Problems, p)
		}
	}
	add(w.full)
	for _, n := range w.scopes {
		add(n.problem)
	}
	for n, svc := range w.services {
		if !w.scopes[n.scope()].unread { // which says it for all of them
			add(svc.problem)
		}
	}
	slices.SortFunc(out.Problems, func(a, b model.Problem) int { return strings.Compare(a.Item, b.Item) })
	w.pub.Status(out)
}

// counted says how many services are left out.
func (w *watcher) counted() {
	leftOut := 0
	for _, n := range w.scopes {
		leftOut += n.leftOut
	}
	if leftOut == 0 {
		w.clearProblem(&w.full)
		return
	}
	w.setProblem(&w.full, "services", fmt.Sprintf("%d services are left out: at most %d (limits.maxServices) are read", leftOut, w.maxServices))
}

func (w *watcher) setProblem(p *model.Problem, item, reason string) {
	if p.Reason != reason {
		*p = model.Problem{Item: item, Reason: reason, Since: w.clock()}
		w.told = false
	}
}

func (w *watcher) clearProblem(p *model.Problem) {
	if p.Reason != "" {
		*p = model.Problem{}
		w.told = false
	}
}

// lost is told that a session has ended, or that there was none.
func (w *watcher) lost(err error) {
	w.session, w.live = nil, false
	w.metrics.watches(0)
	state := model.StateSyncing
	if w.published {
		state = model.StateStale
	}
	w.setStatus(state, reason(err))
	w.report()
}

// reason is what a status says of an error.
func reason(err error) string {
	if errors.Is(err, errDenied) {
		return "the credentials are not accepted: " + err.Error()
	}
	return err.Error()
}
