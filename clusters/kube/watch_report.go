package kube

import (
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
	next, news := model.Status{State: state, Since: now, Err: err, Problems: problems}.Follow(r.status)
	if news {
		r.announce(next)
		r.status = next
	}
	return next, news
}

// listed makes problems those of a status.
func (r *reporter) listed(now time.Time, problems []model.Problem) []model.Problem {
	return model.ListProblems(now, problems, r.status.Problems, maxProblems)
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
