package kube

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/kubeapi"
)

// Metrics are those of all registries of a process. A nil *Metrics counts nothing. The name without
// prefix isthmus_ is one that Istio's dashboards read.
type Metrics struct {
	events  *prometheus.CounterVec // pilot_k8s_reg_events
	lists   *prometheus.CounterVec // isthmus_kube_list_pages_total
	objects *prometheus.CounterVec // isthmus_kube_listed_objects_total
	seconds *prometheus.CounterVec // isthmus_kube_list_seconds_total
	fails   *prometheus.CounterVec // isthmus_kube_failed_requests_total
}

// NewMetrics registers the metrics.
func NewMetrics(r prometheus.Registerer) *Metrics {
	vec := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	m := &Metrics{
		events:  vec("pilot_k8s_reg_events", "Events from Kubernetes API servers, by kind of object.", "type", "event"),
		lists:   vec("isthmus_kube_list_pages_total", "Pages of lists that were read from a cluster's API server: many mean that watches can't be kept.", "cluster"),
		objects: vec("isthmus_kube_listed_objects_total", "Objects on these pages.", "cluster"),
		seconds: vec("isthmus_kube_list_seconds_total", "Time that these pages took, in seconds.", "cluster"),
		fails:   vec("isthmus_kube_failed_requests_total", "Lists and watches of a cluster's API server that failed, by kind of object and of failure.", "cluster", "type", "failure"),
	}
	r.MustRegister(m.events, m.lists, m.objects, m.seconds, m.fails)
	return m
}

// Forget drops the series of a cluster that has gone.
func (m *Metrics) Forget(c model.ClusterID) {
	if m == nil {
		return
	}
	of := prometheus.Labels{"cluster": string(c)}
	for _, v := range []*prometheus.CounterVec{m.lists, m.objects, m.seconds, m.fails} {
		v.DeletePartialMatch(of)
	}
}

func (m *Metrics) event(kind, event string) {
	if m != nil {
		m.events.WithLabelValues(istioWord(kind), event).Inc()
	}
}

// istioWord is what dashboards call a kind.
func istioWord(kind string) string {
	switch kind {
	case KindNamespace, KindNode, KindPod, KindService:
		return kind + "s"
	}
	return kind
}

func (m *Metrics) listed(c model.ClusterID, objects int, took time.Duration) {
	if m == nil {
		return
	}
	m.lists.WithLabelValues(string(c)).Inc()
	m.objects.WithLabelValues(string(c)).Add(float64(objects))
	m.seconds.WithLabelValues(string(c)).Add(took.Seconds())
}

func (m *Metrics) failed(c model.ClusterID, kind string, f kubeapi.Failure) {
	if m != nil {
		m.fails.WithLabelValues(string(c), kind, f.String()).Inc()
	}
}
