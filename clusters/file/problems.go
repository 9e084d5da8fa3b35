package file

import (
	"log/slog"
	"math"
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
	next, news := model.Status{
		State: state, Since: now, Err: err, Problems: model.ListProblems(now, problems, r.status.Problems, math.MaxInt),
	}.Follow(r.status)
	if news {
		r.announce(next)
		r.status = next
	}
	return next, news
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
