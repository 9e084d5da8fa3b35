package debug

import (
	"cmp"
	"net/http"
	"slices"
	"strings"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/clusters"
	"github.com/isthmus-mesh/isthmus/pushcontext"
)

func (h *handler) clusterz(*http.Request) (any, error) {
	out := Clusters(h.Shards(), h.ConfigCluster)
	if pc := h.Snapshot(); pc != nil {
		addOrphans(out, pc)
		addNotServed(out, pc)
	}
	if h.Members != nil {
		out = addMembers(out, h.Members())
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

// addNotServed counts each registry's objects with fields that nothing uses.
func addNotServed(clusters []Cluster, pc *pushcontext.PushContext) {
	byShard := map[string]map[string]int{}
	for _, c := range pc.Configs {
		shard := c.Source.Shard.String()
		for _, f := range c.NotServedFields {
			if byShard[shard] == nil {
				byShard[shard] = map[string]int{}
			}
			byShard[shard][c.Kind+" "+f]++
		}
	}
	for i, c := range clusters {
		clusters[i].NotServedIn = byShard[c.Provider+"/"+c.ID]
	}
}

// Clusters shows registries, but for foreign ones: those of the configuration cluster first, then by cluster and provider.
func Clusters(shards []pushcontext.ShardInfo, config model.ClusterID) []Cluster {
	out := make([]Cluster, 0, len(shards))
	for _, s := range shards {
		if s.Key.Provider.Foreign() {
			continue // see Registries
		}
		c := cluster(s)
		c.ConfigCluster = config != "" && s.Key.Cluster == config && s.Key.Provider == model.ProviderKubernetes
		out = append(out, c)
	}
	rank := func(c Cluster) int {
		switch {
		case c.ID != string(config):
			return 2
		case model.ProviderID(c.Provider).OfHub():
			return 1
		}
		return 0
	}
	slices.SortFunc(out, func(a, b Cluster) int {
		return cmp.Or(rank(a)-rank(b), cmp.Compare(a.ID, b.ID), cmp.Compare(a.Provider, b.Provider))
	})
	return out
}

// addMembers says which credential each cluster is read with, and which are not used. Those that do not tell of which
// cluster they are are problems of their source.
func addMembers(out []Cluster, members []clusters.Member) []Cluster {
	at := map[string]int{}
	for i, c := range out {
		if c.Provider == string(model.ProviderKubernetes) {
			at[c.ID] = i
		}
	}
	for _, m := range ownersFirst(members) {
		id := string(m.Cluster)
		if id == "" {
			continue
		}
		i, known := at[id]
		if !known {
			out = append(out, unattached(m))
			i = len(out) - 1
			at[id] = i
		}
		c := Credential{Source: m.Source, Hash: ShortHash(m.Hash), Reason: m.Reason, Trying: m.Trying, Warning: m.Warning, Created: m.Created, Expires: m.Expires}
		if m.Owner || !known {
			out[i].own(m, c)
		} else {
			out[i].NotUsed = append(out[i].NotUsed, c)
		}
	}
	return out
}

// own notes the credential that counts.
func (c *Cluster) own(m clusters.Member, own Credential) {
	c.Credential, c.SecretName, c.UID = &own, secretName(m.Source), m.UID
	if m.Earlier != nil {
		c.Earlier = &Earlier{Source: m.Earlier.Source, Hash: ShortHash(m.Earlier.Hash), Expires: m.Earlier.Expires}
	}
	if own.Reason != "" && c.State == string(model.StateTimeout) {
		c.State = Refused
	}
}

// ownersFirst puts the claim that counts before the cluster's others, which may be barred for what they are.
func ownersFirst(members []clusters.Member) []clusters.Member {
	rank := func(m clusters.Member) int {
		if m.Owner {
			return 0
		}
		return 1
	}
	return slices.SortedStableFunc(slices.Values(members), func(a, b clusters.Member) int {
		return cmp.Or(cmp.Compare(a.Cluster, b.Cluster), rank(a)-rank(b))
	})
}

// unattached stands for the registry of a credential that has none.
func unattached(m clusters.Member) Cluster {
	c := Cluster{ID: string(m.Cluster), Provider: string(model.ProviderKubernetes), SyncStatus: "syncing", State: string(model.StateSyncing), Rows: map[string]int{}}
	if !m.Owner {
		c.SyncStatus, c.State, c.Error = "timeout", string(model.StateTimeout), m.Reason
	}
	return c
}

// secretName gives "namespace/name" if a credential is from a Secret.
func secretName(source string) string {
	name, ok := strings.CutPrefix(source, "Secret ")
	if !ok {
		return ""
	}
	return name
}

// ShortHash is as much of a credential's hash as tells it from the cluster's others.
func ShortHash(hash string) string { return hash[:min(len(hash), 12)] }

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
