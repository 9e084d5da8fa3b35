package nacos

import (
	"errors"
	"fmt"
	"time"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
)

const (
	maxListed = 100                    // problems that a status names
	pace      = 100 * time.Millisecond // how often more of them are told, at most
	restful   = 9                      // how much longer than that took it is not done again: at most a tenth of the time goes into it
)

func (w *watcher) setStatus(s model.State, err string) {
	if w.status.State != s {
		w.status.State, w.status.Since = s, w.clock()
	}
	w.status.Err = err
	w.told, w.quiet = false, time.Time{}
}

// report says how things are. If much is in trouble the next problem waits for a while with that.
func (w *watcher) report() {
	began := w.clock()
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
	for svc := range w.troubled {
		if !w.scopes[svc.name.scope()].unread { // which says it for all of them
			add(svc.problem)
		}
	}
	w.said = model.ListProblems(began, out.Problems, w.said, maxListed)
	out.Problems = w.said
	w.pub.Status(out)
	w.told, w.quiet = true, time.Time{}
	if len(w.troubled) > maxListed {
		now := w.clock()
		w.quiet = now.Add(max(pace, restful*now.Sub(began)))
	}
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

// setProblem notes what is wrong with a part of the registry.
func (w *watcher) setProblem(p *model.Problem, item, reason string) {
	if p.Reason != reason {
		*p = model.Problem{Item: item, Reason: reason, Since: w.clock(), Broad: true}
		w.told = false
	}
}

func (w *watcher) clearProblem(p *model.Problem) {
	if p.Reason != "" {
		*p = model.Problem{}
		w.told = false
	}
}

// complain notes what is wrong with a service.
func (w *watcher) complain(svc *service, reason string) {
	w.setProblem(&svc.problem, svc.name.String(), reason)
	svc.problem.Broad = false
	w.troubled[svc] = struct{}{}
}

// content notes that nothing is.
func (w *watcher) content(svc *service) {
	w.clearProblem(&svc.problem)
	delete(w.troubled, svc)
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
