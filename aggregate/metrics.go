package aggregate

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
)

// metrics are the controller's. Names without prefix isthmus_ are those that Istio dashboards read.
type metrics struct {
	inbound     *prometheus.CounterVec // pilot_inbound_updates
	triggers    *prometheus.CounterVec // pilot_push_triggers
	services    prometheus.Gauge       // pilot_services
	debounce    prometheus.Histogram   // pilot_debounce_time
	init        prometheus.Histogram   // pilot_pushcontext_init_seconds
	timeouts    prometheus.Counter     // remote_cluster_sync_timeouts_total
	commitTime  prometheus.Histogram   // isthmus_commit_seconds
	conflicts   prometheus.Gauge       // isthmus_service_conflicts
	configs     prometheus.Gauge       // isthmus_config_conflicts
	drift       prometheus.Counter     // isthmus_scrub_drift_total
	scrubbed    prometheus.Counter     // isthmus_scrub_services_total
	invalid     prometheus.Counter     // isthmus_rows_refused_total
	mergePanics prometheus.Counter     // isthmus_merge_panics_total
	failures    *prometheus.CounterVec // isthmus_registry_failures_total
	stuck       prometheus.Counter     // isthmus_mailbox_stuck_total
	turns       prometheus.Counter     // isthmus_writer_turns_total
}

var latencyBuckets = []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}

func newMetrics(r prometheus.Registerer, c *Controller) *metrics {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	vec := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	gauge := func(name, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
	}
	seconds := func(name, help string) prometheus.Histogram {
		return prometheus.NewHistogram(prometheus.HistogramOpts{Name: name, Help: help, Buckets: latencyBuckets})
	}
	m := &metrics{
		inbound:     vec("pilot_inbound_updates", "Changes received, by kind.", "type"),
		triggers:    vec("pilot_push_triggers", "Commits that changed something, by reason.", "type"),
		services:    gauge("pilot_services", "Services known."),
		debounce:    seconds("pilot_debounce_time", "Age of the oldest change when its commit was published, in seconds."),
		init:        seconds("pilot_pushcontext_init_seconds", "Time to make and publish a snapshot, in seconds: that of isthmus_commit_seconds under the name that Istio's dashboards read."),
		timeouts:    counter("remote_cluster_sync_timeouts_total", "Registries that did not sync in time."),
		commitTime:  seconds("isthmus_commit_seconds", "Time of one commit including merging, in seconds."),
		conflicts:   gauge("isthmus_service_conflicts", "Disagreements between definitions of one service."),
		configs:     gauge("isthmus_config_conflicts", "Configuration objects that are not used, wholly or in part, in favour of others."),
		drift:       counter("isthmus_scrub_drift_total", "Services found different from their rows, and repaired."),
		scrubbed:    counter("isthmus_scrub_services_total", "Services checked against their rows."),
		invalid:     counter("isthmus_rows_refused_total", "Rows whose value is not of the kind of their key."),
		mergePanics: counter("isthmus_merge_panics_total", "Services that could not be merged and keep their last good state."),
		failures:    vec("isthmus_registry_failures_total", "Registry runs that ended by themselves.", "cluster", "provider"),
		stuck:       counter("isthmus_mailbox_stuck_total", "Times that the oldest waiting change was found too old."),
		turns:       counter("isthmus_writer_turns_total", "Turns of the writer: near zero while nothing changes."),
	}
	if r != nil {
		r.MustRegister(m.inbound, m.triggers, m.services, m.debounce, m.init, m.timeouts, m.commitTime, m.conflicts, m.configs, m.drift,
			m.scrubbed, m.invalid, m.mergePanics, m.failures, m.stuck, m.turns, &collector{c: c})
	}
	return m
}

func (m *metrics) commit(c *Controller, took time.Duration) {
	m.commitTime.Observe(took.Seconds())
	m.init.Observe(took.Seconds())
	for r := range c.reasons {
		m.triggers.WithLabelValues(r).Inc()
	}
	m.services.Set(float64(c.views))
}

// received counts a row that changed.
func (m *metrics) received(ev model.Event) {
	kind := "svc"
	switch {
	case ev.Row.Kind == model.RowConfig:
		kind = "config"
	case ev.Row.Kind != model.RowService:
		kind = "eds"
	case ev.Obj == nil:
		kind = "svcdelete"
	}
	m.inbound.WithLabelValues(kind).Inc()
}

// forget drops the series of a detached registry.
func (m *metrics) forget(k model.ShardKey) {
	m.failures.DeleteLabelValues(string(k.Cluster), string(k.Provider))
}

var (
	depthDesc  = prometheus.NewDesc("isthmus_mailbox_depth", "Distinct keys that wait for the writer.", []string{"cluster", "provider"}, nil)
	oldestDesc = prometheus.NewDesc("isthmus_mailbox_oldest_seconds", "Age of the oldest waiting change, in seconds.", []string{"cluster", "provider"}, nil)
	staleDesc  = prometheus.NewDesc("isthmus_shard_stale_seconds", "Time since contact with the source was lost, in seconds; 0 while there is contact.", []string{"cluster", "provider"}, nil)
	syncedDesc = prometheus.NewDesc("isthmus_shard_state", "1 for the state that the registry is in.", []string{"cluster", "provider", "state"}, nil)
	orphanDesc = prometheus.NewDesc("isthmus_endpoints_without_service", "Endpoints for services that nobody defines.", []string{"cluster", "provider"}, nil)
	rowsDesc   = prometheus.NewDesc("isthmus_shard_rows", "Rows that the registry contributes.", []string{"cluster", "provider", "kind"}, nil)
)

// collector reads values that exist elsewhere when they are asked for.
type collector struct{ c *Controller }

// Describe implements prometheus.Collector.
func (x *collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{depthDesc, oldestDesc, staleDesc, syncedDesc, orphanDesc, rowsDesc} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (x *collector) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	for k, b := range x.c.mailboxes() {
		gauge(depthDesc, float64(b.depth), string(k.Cluster), string(k.Provider))
		gauge(oldestDesc, b.age.Seconds(), string(k.Cluster), string(k.Provider))
	}
	for _, s := range x.c.Shards() {
		cluster, provider := string(s.Key.Cluster), string(s.Key.Provider)
		var age float64
		if s.Status.State == model.StateStale {
			age = time.Since(s.Status.Since).Seconds()
		}
		gauge(staleDesc, age, cluster, provider)
		gauge(syncedDesc, 1, cluster, provider, string(s.Status.State))
		gauge(orphanDesc, float64(s.NoService), cluster, provider)
		for kind, n := range s.Rows {
			gauge(rowsDesc, float64(n), cluster, provider, model.Kind(kind).String())
		}
	}
}

// waiting is what waits for the writer in the mailboxes of one key.
type waiting struct {
	depth int
	age   time.Duration
}

func (c *Controller) mailboxes() map[model.ShardKey]waiting {
	c.mu.Lock()
	boxes := make(map[*mailbox]model.ShardKey, len(c.boxes))
	for b, k := range c.boxes {
		boxes[b] = k
	}
	c.mu.Unlock()
	out := map[model.ShardKey]waiting{}
	for b, k := range boxes {
		n, oldest := b.depth()
		w := out[k]
		w.depth += n
		if !oldest.IsZero() {
			w.age = max(w.age, time.Since(oldest))
		}
		out[k] = w
	}
	return out
}

// The watchdog looks for changes that wait too long: a sign that the writer hangs.
const (
	watchEvery = 5 * time.Second
	stuckAfter = 10 * time.Second
)

func (c *Controller) watch(ctx context.Context) {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		for k, w := range c.mailboxes() {
			if w.age > stuckAfter {
				c.metrics.stuck.Inc()
				c.opts.Log.Error("changes wait for the writer", "cluster", k.Cluster, "provider", k.Provider, "depth", w.depth, "age", w.age)
			}
		}
	}
}
