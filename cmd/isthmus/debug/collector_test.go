package debug_test

import (
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/isthmus-mesh/isthmus/cmd/isthmus/debug"
	"github.com/isthmus-mesh/isthmus/cmd/isthmus/debug/debugtest"
)

func TestCollector(t *testing.T) {
	t.Parallel()
	c := &debug.Collector{
		Shards: debugtest.Shards, ConfigCluster: "east", Version: "v1", Started: debugtest.Now().Add(-time.Minute), Now: debugtest.Now, Members: members,
	}
	const want = `
# HELP isthmus_config_not_served Objects that are accepted but not used by this version.
# TYPE isthmus_config_not_served gauge
isthmus_config_not_served{cluster="east",kind="Gateway",provider="file"} 1
isthmus_config_not_served{cluster="east",kind="VirtualService",provider="file"} 2
# HELP isthmus_credential_expiry_timestamp_seconds When the credential that each cluster is read with ends, in Unix time, where it says so.
# TYPE isthmus_credential_expiry_timestamp_seconds gauge
isthmus_credential_expiry_timestamp_seconds{cluster="rotated"} 1.77237e+09
isthmus_credential_expiry_timestamp_seconds{cluster="west"} 1.772712e+09
# HELP isthmus_credentials_not_used Credentials that are refused, or whose cluster has another.
# TYPE isthmus_credentials_not_used gauge
isthmus_credentials_not_used 6
# HELP isthmus_shard_problems Items that can't be read and keep their last good content.
# TYPE isthmus_shard_problems gauge
isthmus_shard_problems{cluster="east",provider="file"} 0
isthmus_shard_problems{cluster="south",provider="file"} 0
isthmus_shard_problems{cluster="west",provider="file"} 2
# HELP istiod_managed_clusters Clusters attached to the hub.
# TYPE istiod_managed_clusters gauge
istiod_managed_clusters{cluster_type="local"} 1
istiod_managed_clusters{cluster_type="remote"} 2
# HELP istiod_remote_cluster_sync_status 1 for the status that each cluster has: syncing, synced or timeout.
# TYPE istiod_remote_cluster_sync_status gauge
istiod_remote_cluster_sync_status{cluster="east",cluster_type="local",status="synced"} 1
istiod_remote_cluster_sync_status{cluster="south",cluster_type="remote",status="syncing"} 1
istiod_remote_cluster_sync_status{cluster="west",cluster_type="remote",status="synced"} 1
# HELP istiod_uptime_seconds Seconds since the hub started.
# TYPE istiod_uptime_seconds gauge
istiod_uptime_seconds 60
# HELP pilot_info 1; the label is the hub's version.
# TYPE pilot_info gauge
pilot_info{version="v1"} 1
`
	r := prometheus.NewPedanticRegistry()
	r.MustRegister(c)
	w := httptest.NewRecorder()
	promhttp.HandlerFor(r, promhttp.HandlerOpts{}).ServeHTTP(w, local("/metrics"))
	if d := cmp.Diff(strings.TrimPrefix(want, "\n"), w.Body.String()); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}
