package debug_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/cmd/isthmus/debug"
	"github.com/isthmus-mesh/isthmus/cmd/isthmus/debug/debugtest"
	"github.com/isthmus-mesh/isthmus/pushcontext"
)

// Incident 95: operators could not see which cluster was not synced, and one that was late said
// "timeout" for ever. The gauge and the debug view agree at each moment of a cluster's life.
func TestIncident95GaugeEqualsDebugView(t *testing.T) {
	t.Parallel()
	key := model.ShardKey{Provider: model.ProviderFile, Cluster: "west"}
	for _, moment := range []struct {
		name   string
		info   pushcontext.ShardInfo
		status string
		state  string
	}{
		{"reading", pushcontext.ShardInfo{Key: key, Status: model.Status{State: model.StateSyncing}}, "syncing", "syncing"},
		{"too late", pushcontext.ShardInfo{Key: key, Status: model.Status{State: model.StateTimeout}}, "timeout", "timeout"},
		{"came after all", pushcontext.ShardInfo{Key: key, Status: model.Status{State: model.StateLive}, Synced: true}, "synced", "live"},
		{"lost", pushcontext.ShardInfo{Key: key, Status: model.Status{State: model.StateStale, Since: debugtest.Now(), Err: "no route"}, Synced: true}, "synced", "stale"},
		{"bad replacement", pushcontext.ShardInfo{Key: key, Status: model.Status{State: model.StateDegraded}, Synced: true, Replacement: "refused"}, "synced", "degraded"},
	} {
		t.Run(moment.name, func(t *testing.T) {
			t.Parallel()
			shards := func() []pushcontext.ShardInfo { return []pushcontext.ShardInfo{moment.info} }
			o := options()
			o.Shards = shards
			var view []debug.Cluster
			if err := json.Unmarshal(serve(o, local("/debug/clusterz")).Body.Bytes(), &view); err != nil {
				t.Fatal(err)
			}
			if len(view) != 1 || view[0].SyncStatus != moment.status || view[0].State != moment.state || view[0].Error != moment.info.Status.Err {
				t.Errorf("view: %+v", view)
			}
			r := prometheus.NewPedanticRegistry()
			r.MustRegister(&debug.Collector{Shards: shards, Now: time.Now})
			w := httptest.NewRecorder()
			promhttp.HandlerFor(r, promhttp.HandlerOpts{}).ServeHTTP(w, local("/metrics"))
			want := fmt.Sprintf(`istiod_remote_cluster_sync_status{cluster="west",cluster_type="remote",status=%q} 1`, moment.status)
			if n := strings.Count(w.Body.String(), "\nistiod_remote_cluster_sync_status{"); n != 1 || !strings.Contains(w.Body.String(), want) {
				t.Errorf("%d series, want %s in\n%s", n, want, w.Body)
			}
		})
	}
}

// Incident 96: once registries were merged nobody could tell where an instance came from, or that a
// registry was out of reach.
func TestIncident96SourcesSurviveTheMerge(t *testing.T) {
	t.Parallel()
	w := serve(options(), local("/debug/servicez?host="+debugtest.Host))
	var xs []debug.Explanation
	if err := json.Unmarshal(w.Body.Bytes(), &xs); err != nil || w.Code != http.StatusOK || len(xs) != 1 {
		t.Fatalf("%d %v %s", w.Code, err, w.Body)
	}
	shards := map[string]int{}
	for _, e := range xs[0].Endpoints {
		if e.Source.Object == "" || e.Source.Revision == "" || e.Source.Time.IsZero() || e.Source.Shard != "file/"+e.Cluster {
			t.Errorf("endpoint %s does not say where it comes from: %+v", e.Address, e.Source)
		}
		shards[e.Source.Shard]++
	}
	if shards["file/east"] == 0 || shards["file/west"] == 0 {
		t.Errorf("sources: %v", shards)
	}
	var view []debug.Cluster
	if err := json.Unmarshal(serve(options(), local("/debug/clusterz")).Body.Bytes(), &view); err != nil {
		t.Fatal(err)
	}
	for _, c := range view {
		if c.ID == "west" && (c.State != "stale" || c.Error == "" || c.SyncedAt.IsZero() || c.Rows["service"] == 0) {
			t.Errorf("west, which is out of reach: %+v", c)
		}
	}
}

// TestPrioritiesSayWhy: what a proxy uses after others says what puts it there.
func TestPrioritiesSayWhy(t *testing.T) {
	t.Parallel()
	o := options()
	pc := debugtest.Hub().Current()
	pc.Service(model.ServiceKey{Namespace: "shop", Host: debugtest.Host}).Shape.Mesh.GatewayNetworks = nil // one network
	o.Snapshot = func() *pushcontext.PushContext { return pc }
	w := serve(o, local("/debug/servicez?host="+debugtest.Host+"&proxyID=sidecar~10.10.0.5~web-1.shop~shop.svc.cluster.local"))
	var xs []debug.Explanation
	if err := json.Unmarshal(w.Body.Bytes(), &xs); err != nil || w.Code != http.StatusOK || len(xs) != 1 {
		t.Fatalf("%d %v %s", w.Code, err, w.Body)
	}
	later := 0
	for _, e := range xs[0].Endpoints {
		switch {
		case e.Priority == nil:
		case *e.Priority == 0 && e.Detail != "":
			t.Errorf("%s, which is used first: %s", e.Address, e.Detail)
		case *e.Priority > 0:
			if later++; e.Cluster != "west" || !strings.Contains(e.Detail, "its cluster is out of contact") {
				t.Errorf("%s of %s: %q", e.Address, e.Cluster, e.Detail)
			}
		}
	}
	if later == 0 {
		t.Errorf("nothing is used later: %+v", xs[0].Endpoints)
	}
}
