package foreign

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// The results of requests to a registry's servers.
const (
	RequestOK        = "ok"
	RequestFailed    = "failed"    // no answer, or one that can't be read
	RequestRefused   = "refused"   // the credentials do not do
	RequestBusy      = "busy"      // the server asks for fewer requests
	RequestUncertain = "uncertain" // an answer that is not to be believed: no leader, too old
)

// Metrics are those of all foreign registries of a process, by registry as "provider/name". A nil *Metrics counts nothing.
type Metrics struct {
	requests  *prometheus.CounterVec   // isthmus_registry_requests_total
	unchanged *prometheus.CounterVec   // isthmus_registry_unchanged_wakeups_total
	watches   *prometheus.GaugeVec     // isthmus_registry_watches
	latency   *prometheus.HistogramVec // isthmus_registry_event_to_put_seconds
	connected *prometheus.CounterVec   // isthmus_registry_connections_total
	repaired  *prometheus.CounterVec   // isthmus_registry_repaired_services_total
	delay     *prometheus.HistogramVec // isthmus_registry_discovery_delay_seconds
	protected *prometheus.GaugeVec     // isthmus_registry_protected_services
}

// NewMetrics registers the metrics.
func NewMetrics(r prometheus.Registerer) *Metrics {
	m := &Metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "isthmus_registry_requests_total", Help: "Requests to a registry's servers, by result.",
		}, []string{"registry", "result"}),
		unchanged: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "isthmus_registry_unchanged_wakeups_total", Help: "Notices of a change in a registry that changed nothing.",
		}, []string{"registry"}),
		watches: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "isthmus_registry_watches", Help: "Services of a registry whose changes are told as they happen.",
		}, []string{"registry"}),
		latency: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "isthmus_registry_event_to_put_seconds", Help: "Time from a registry's notice of a change to its rows.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30},
		}, []string{"registry"}),
		connected: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "isthmus_registry_connections_total", Help: "Connections to a registry's servers over which it is read: each reads everything anew.",
		}, []string{"registry"}),
		repaired: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "isthmus_registry_repaired_services_total", Help: "Services of a registry that were found changed without a notice of it, and watched anew.",
		}, []string{"registry"}),
		delay: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "isthmus_registry_discovery_delay_seconds", Help: "How long a new service of a registry may at most have been unknown.",
			Buckets: []float64{.1, .5, 1, 2.5, 5, 10, 15, 30, 60, 120, 300},
		}, []string{"registry"}),
		protected: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "isthmus_registry_protected_services", Help: "Services of a Nacos with so few healthy instances that it says all are.",
		}, []string{"registry"}),
	}
	r.MustRegister(m.requests, m.unchanged, m.watches, m.latency, m.connected, m.repaired, m.delay, m.protected)
	return m
}

// Forget drops the series of a registry that has gone.
func (m *Metrics) Forget(registry string) {
	if m == nil {
		return
	}
	of := prometheus.Labels{"registry": registry}
	m.requests.DeletePartialMatch(of)
	m.unchanged.DeletePartialMatch(of)
	m.watches.DeletePartialMatch(of)
	m.latency.DeletePartialMatch(of)
	m.connected.DeletePartialMatch(of)
	m.repaired.DeletePartialMatch(of)
	m.delay.DeletePartialMatch(of)
	m.protected.DeletePartialMatch(of)
}

// Request counts a request.
func (m *Metrics) Request(registry, result string) {
	if m != nil {
		m.requests.WithLabelValues(registry, result).Inc()
	}
}

// Unchanged counts a notice that changed nothing.
func (m *Metrics) Unchanged(registry string) {
	if m != nil {
		m.unchanged.WithLabelValues(registry).Inc()
	}
}

// Watches says how many services are watched.
func (m *Metrics) Watches(registry string, n int) {
	if m != nil {
		m.watches.WithLabelValues(registry).Set(float64(n))
	}
}

// Put notes how long a change took from the registry's notice to its rows.
func (m *Metrics) Put(registry string, took time.Duration) {
	if m != nil {
		m.latency.WithLabelValues(registry).Observe(took.Seconds())
	}
}

// Connected counts a new connection.
func (m *Metrics) Connected(registry string) {
	if m != nil {
		m.connected.WithLabelValues(registry).Inc()
	}
}

// Repaired counts a service of which a change was missed.
func (m *Metrics) Repaired(registry string) {
	if m != nil {
		m.repaired.WithLabelValues(registry).Inc()
	}
}

// Discovered notes how long a new service may have been unknown.
func (m *Metrics) Discovered(registry string, atMost time.Duration) {
	if m != nil {
		m.delay.WithLabelValues(registry).Observe(atMost.Seconds())
	}
}

// Protected says how many services are served regardless of health by the registry's own rule.
func (m *Metrics) Protected(registry string, n int) {
	if m != nil {
		m.protected.WithLabelValues(registry).Set(float64(n))
	}
}
