package debug

import (
	"cmp"
	"net/http"
	"slices"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/pushcontext"
)

func (h *handler) clusters(*http.Request) (any, error) {
	out := Clusters(h.Shards(), h.ConfigCluster)
	if pc := h.Snapshot(); pc != nil {
		addOrphans(out, pc)
	}
	return out, nil
}

// addOrphans tells each registry's endpoints of services that nobody defines.
func addOrphans(clusters []Cluster, pc *pushcontext.PushContext) {
	byShard := map[string]map[string]int{}
	for key, list := range pc.NoService {
		for _, l := range list {
			shard := l.Source.Shard.String()
			if byShard[shard] == nil {
				byShard[shard] = map[string]int{}
			}
			byShard[shard][key.String()]++
		}
	}
	for i, c := range clusters {
		clusters[i].NoService = byShard[c.Provider+"/"+c.ID]
	}
}

// Clusters shows registries: those of the configuration cluster first, then by cluster and provider.
func Clusters(shards []pushcontext.ShardInfo, config model.ClusterID) []Cluster {
	out := make([]Cluster, 0, len(shards))
	for _, s := range shards {
		out = append(out, cluster(s))
	}
	rank := func(c Cluster) int {
		if c.ID == string(config) {
			return 0
		}
		return 1
	}
	slices.SortFunc(out, func(a, b Cluster) int {
		return cmp.Or(rank(a)-rank(b), cmp.Compare(a.ID, b.ID), cmp.Compare(a.Provider, b.Provider))
	})
	return out
}

func cluster(s pushcontext.ShardInfo) Cluster {
	c := Cluster{
		ID: string(s.Key.Cluster), Provider: string(s.Key.Provider),
		SyncStatus: syncStatus(s), State: string(s.Status.State), Since: s.Status.Since,
		SyncedAt: s.SyncedAt, LastEvent: s.LastEvent, Error: s.Status.Err, Replacement: s.Replacement,
		Rows: map[string]int{}, NotServed: s.NotServed,
	}
	for k := range model.RowKinds {
		c.Rows[k.String()] = s.Rows[k]
	}
	for _, p := range s.Status.Problems {
		c.Problems = append(c.Problems, Problem(p))
	}
	return c
}

// syncStatus is istiod's word for the start of a registry; what became of it later is State.
func syncStatus(s pushcontext.ShardInfo) string {
	switch {
	case s.Synced:
		return "synced"
	case s.Status.State == model.StateTimeout:
		return "timeout"
	}
	return "syncing"
}
