package kube

import (
	"cmp"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
)

// maxProblems bounds what a cluster can make us keep of its faults.
const maxProblems = 200

// reporter turns what is known into a registry's status, and logs each change and each problem once.
type reporter struct {
	log      *slog.Logger
	key      model.ShardKey
	replaces bool // another registry, which serves until this one has synced
	status   model.Status
}

// report gives the new status and whether it differs from the last one. Problems are as listed gives them.
func (r *reporter) report(now time.Time, state model.State, err string, problems []model.Problem) (model.Status, bool) {
	next := model.Status{State: state, Since: now, Err: err, Problems: problems}
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

// listed sorts problems, keeps the first, and gives each the time at which it was first seen.
func (r *reporter) listed(now time.Time, problems []model.Problem) []model.Problem {
	slices.SortFunc(problems, func(a, b model.Problem) int {
		return cmp.Or(strings.Compare(a.Item, b.Item), strings.Compare(a.Reason, b.Reason))
	})
	problems = slices.Compact(problems)
	if more := len(problems) - maxProblems; more > 0 {
		problems = append(slices.Clone(problems[:maxProblems]), model.Problem{Reason: fmt.Sprintf("%d more problems are not listed", more)})
	}
	seen := make(map[[2]string]time.Time, len(r.status.Problems))
	for _, p := range r.status.Problems {
		seen[[2]string{p.Item, p.Reason}] = p.Since
	}
	for i, p := range problems {
		problems[i].Since = cmp.Or(seen[[2]string{p.Item, p.Reason}], now)
	}
	return problems
}

func (r *reporter) announce(next model.Status) {
	log := r.log.With("cluster", r.key.Cluster, "provider", r.key.Provider)
	before := r.status
	switch {
	case next.Err != "" && next.Err != before.Err && strings.HasPrefix(next.Err, stillReading):
		log.Info("cluster has not been read yet", "why", next.Err)
	case next.Err != "" && next.Err != before.Err && next.State == model.StateSyncing && r.replaces:
		log.Warn("the cluster can't be read with its new credential or settings; the old ones serve, and it is tried again", "err", next.Err)
	case next.Err != "" && next.Err != before.Err && next.State == model.StateSyncing:
		log.Warn("cluster can't be read yet; it is tried again", "err", next.Err)
	case next.Err != "" && next.Err != before.Err:
		log.Warn("contact with the cluster is lost; what is known of it stays, and it is tried again", "err", next.Err)
	case next.State == model.StateLive && before.State == model.StateStale:
		log.Info("contact with the cluster is back", "after", next.Since.Sub(before.Since).Round(time.Millisecond))
	case next.State == model.StateLive && before.State != model.StateLive:
		log.Info("cluster has been read")
	}
	for _, p := range next.Problems {
		if p.Since.Equal(next.Since) || !slices.ContainsFunc(before.Problems, func(o model.Problem) bool { return o.Item == p.Item && o.Reason == p.Reason }) {
			log.Warn("problem in a cluster", "object", p.Item, "reason", p.Reason)
		}
	}
}
