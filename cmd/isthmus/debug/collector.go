package debug

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/clusters"
	"github.com/isthmus-mesh/isthmus/pushcontext"
)

var (
	managedClusters = prometheus.NewDesc("istiod_managed_clusters", "Clusters attached to the hub.", []string{"cluster_type"}, nil)
	syncStatusDesc  = prometheus.NewDesc("istiod_remote_cluster_sync_status", "1 for the status that each cluster has: syncing, synced or timeout.", []string{"cluster", "cluster_type", "status"}, nil)
	uptime          = prometheus.NewDesc("istiod_uptime_seconds", "Seconds since the hub started.", nil, nil)
	problemsDesc    = prometheus.NewDesc("isthmus_shard_problems", "Items that can't be read and keep their last good content.", []string{"cluster", "provider"}, nil)
	notServedDesc   = prometheus.NewDesc("isthmus_config_not_served", "Objects that are accepted but not used by this version.", []string{"cluster", "provider", "kind"}, nil)
	expiryDesc      = prometheus.NewDesc("isthmus_credential_expiry_timestamp_seconds", "When the credential that each cluster is read with ends, in Unix time, where it says so.", []string{"cluster"}, nil)
	notUsedDesc     = prometheus.NewDesc("isthmus_credentials_not_used", "Credentials that are refused, or whose cluster has another.", nil, nil)
	info            = prometheus.NewDesc("pilot_info", "1; the label is the hub's version.", []string{"version"}, nil)
)

// Collector gives the metrics about the hub as a whole, those that Istio's dashboards read under the
// names that they use.
type Collector struct {
	Shards        func() []pushcontext.ShardInfo
	ConfigCluster model.ClusterID
	Members       func() []clusters.Member // nil if no cluster has a credential
	Version       string
	Started       time.Time
	Now           func() time.Time
}

// Describe implements prometheus.Collector.
func (c *Collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{managedClusters, syncStatusDesc, problemsDesc, notServedDesc, expiryDesc, notUsedDesc, uptime, info} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (c *Collector) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	gauge(uptime, c.Now().Sub(c.Started).Seconds())
	gauge(info, 1, c.Version)
	for _, s := range c.Shards() {
		cluster, provider := string(s.Key.Cluster), string(s.Key.Provider)
		gauge(problemsDesc, float64(model.CountProblems(s.Status.Problems)), cluster, provider)
		for kind, n := range s.NotServed {
			gauge(notServedDesc, float64(n), cluster, provider, kind)
		}
	}
	c.credentials(gauge)
	count := map[string]int{"local": 0, "remote": 0}
	for id, status := range c.status() {
		kind := "remote"
		if id == c.ConfigCluster {
			kind = "local"
		}
		count[kind]++
		gauge(syncStatusDesc, 1, string(id), kind, status)
	}
	for kind, n := range count {
		gauge(managedClusters, float64(n), kind)
	}
}

func (c *Collector) credentials(gauge func(*prometheus.Desc, float64, ...string)) {
	if c.Members == nil {
		return
	}
	notUsed := 0
	for _, m := range c.Members() {
		ends := m.Expires
		if m.Earlier != nil {
			ends = m.Earlier.Expires
		}
		if m.Owner && !ends.IsZero() {
			gauge(expiryDesc, float64(ends.Unix()), string(m.Cluster))
		}
		if m.Reason != "" {
			notUsed++
		}
	}
	gauge(notUsedDesc, float64(notUsed))
}

// status is each cluster's: that of its registry that is furthest behind.
func (c *Collector) status() map[model.ClusterID]string {
	out := map[model.ClusterID]string{}
	behind := map[string]int{"synced": 1, "timeout": 2, "syncing": 3}
	for _, s := range c.Shards() {
		if s.Key.Provider.OfHub() || s.Key.Provider.Foreign() {
			continue
		}
		if now := syncStatus(s); behind[now] > behind[out[s.Key.Cluster]] {
			out[s.Key.Cluster] = now
		}
	}
	return out
}
