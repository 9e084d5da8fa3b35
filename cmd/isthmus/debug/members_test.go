package debug_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/clusters"
	"github.com/isthmus-mesh/isthmus/cmd/isthmus/debug/debugtest"
	"github.com/isthmus-mesh/isthmus/pushcontext"
)

// members are the credentials of a config cluster and of remote ones: renewed, contested, refused, and not attached yet.
func members() []clusters.Member {
	made := debugtest.Now().Add(-time.Hour)
	return []clusters.Member{
		{Source: "clusters/readme.txt", Reason: "not a kubeconfig", Created: made},
		{Cluster: "bad/id", Source: "Secret istio-system/bad", Reason: "not a cluster id", Created: made},
		{Cluster: "east", Source: "primary.yaml", Owner: true, Hash: strings.Repeat("ab", 32), Created: made},
		{Cluster: "east", Source: "Secret istio-system/east", Reason: "this is the id of the config cluster", Created: made},
		{Cluster: "new", Source: "Secret istio-system/barred", Reason: "not allowed", Created: made},
		{Cluster: "new", Source: "Secret istio-system/new", Owner: true, Hash: "1234", Created: made},
		{Cluster: "rotated", Source: "Secret istio-system/rotated", Owner: true, Hash: "5678", Created: made, Reason: "exec is refused", UID: "u1",
			Expires: debugtest.Now().Add(99 * time.Hour), Earlier: &clusters.Earlier{Source: "old.yaml", Hash: strings.Repeat("ef", 32), Expires: debugtest.Now().Add(time.Hour)}},
		{Cluster: "west", Source: "Secret istio-system/west", Owner: true, Hash: strings.Repeat("cd", 32), Created: made, Expires: debugtest.Now().Add(96 * time.Hour), Warning: "insecure"},
		{Cluster: "west", Source: "Secret istio-system/west-2", Reason: "the cluster is claimed by Secret istio-system/west", Created: made},
	}
}

// TestClusterzShowsCredentials: which credential each cluster is read with, which are not used and why; the
// config cluster first, what belongs to the hub behind it.
func TestClusterzShowsCredentials(t *testing.T) {
	t.Parallel()
	shard := func(p model.ProviderID, c model.ClusterID, s model.State) pushcontext.ShardInfo {
		return pushcontext.ShardInfo{Key: model.ShardKey{Provider: p, Cluster: c}, Synced: s == model.StateLive, Status: model.Status{State: s, Since: debugtest.Now()}}
	}
	o := options()
	o.Snapshot = func() *pushcontext.PushContext { return nil }
	o.Members = members
	lost := shard(model.ProviderSecrets, "east", model.StateStale)
	lost.Status.Err = "they can't be read"
	o.Shards = func() []pushcontext.ShardInfo {
		return []pushcontext.ShardInfo{
			shard(model.ProviderDNS, "east", model.StateLive), shard(model.ProviderKubernetes, "east", model.StateLive),
			shard(model.ProviderKubernetes, "west", model.StateTimeout), shard(model.ProviderMesh, "east", model.StateLive), lost,
		}
	}
	w := serve(o, local("/debug/clusterz"))
	if w.Code != http.StatusOK {
		t.Fatalf("%d: %s", w.Code, w.Body)
	}
	compare(t, "clusterz-credentials", w.Body.Bytes())
}
