package file

import (
	"cmp"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
)

// reporter turns what is wrong into a registry's status, and logs each problem once.
type reporter struct {
	log       *slog.Logger
	onProblem func(model.ShardKey, model.Problem)
	key       model.ShardKey
	status    model.Status
}

// report gives the new status and whether it differs from the last one.
func (r *reporter) report(now time.Time, state model.State, err string, problems []model.Problem) (model.Status, bool) {
	next := model.Status{State: state, Since: now, Err: err, Problems: r.date(now, problems)}
	if r.status.State == state {
		next.Since = r.status.Since
	}
	if r.status.State == state && r.status.Err == err && slices.Equal(r.status.Problems, next.Problems) {
		return next, false
	}
	r.announce(next)
	r.status = next
	return next, true
}

// date gives each problem the time at which it was first seen, and sorts them.
func (r *reporter) date(now time.Time, problems []model.Problem) []model.Problem {
	since := map[[2]string]time.Time{}
	for _, p := range r.status.Problems {
		since[[2]string{p.Item, p.Reason}] = p.Since
	}
	for i, p := range problems {
		problems[i].Since = now
		if t, ok := since[[2]string{p.Item, p.Reason}]; ok {
			problems[i].Since = t
		}
	}
	slices.SortFunc(problems, func(a, b model.Problem) int {
		return cmp.Or(strings.Compare(a.Item, b.Item), cmp.Compare(a.Line, b.Line), strings.Compare(a.Reason, b.Reason))
	})
	return slices.Compact(problems)
}

func (r *reporter) announce(next model.Status) {
	if next.State == model.StateStale && r.status.State != model.StateStale {
		r.log.Warn("the folder can't be read; what it held stays", "cluster", r.key.Cluster, "provider", r.key.Provider, "err", next.Err)
	}
	known := map[[2]string]bool{}
	for _, p := range r.status.Problems {
		known[[2]string{p.Item, p.Reason}] = true
	}
	for _, p := range next.Problems {
		if known[[2]string{p.Item, p.Reason}] {
			continue
		}
		r.log.Warn("problem in a file", "cluster", r.key.Cluster, "provider", r.key.Provider, "file", p.Item, "line", p.Line, "reason", p.Reason)
		if r.onProblem != nil {
			r.onProblem(r.key, p)
		}
	}
}
