package gen

import (
	"maps"
	"slices"

	"istio.io/api/envoy/extensions/stats"
	telemetryv1 "istio.io/api/telemetry/v1alpha1"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/pushcontext"
)

// metricNames are those of Istio's Envoy for the metrics of Telemetry, in the order of the API.
var metricNames = []string{
	telemetryv1.MetricSelector_REQUEST_COUNT:          "requests_total",
	telemetryv1.MetricSelector_REQUEST_DURATION:       "request_duration_milliseconds",
	telemetryv1.MetricSelector_REQUEST_SIZE:           "request_bytes",
	telemetryv1.MetricSelector_RESPONSE_SIZE:          "response_bytes",
	telemetryv1.MetricSelector_TCP_OPENED_CONNECTIONS: "tcp_connections_opened_total",
	telemetryv1.MetricSelector_TCP_CLOSED_CONNECTIONS: "tcp_connections_closed_total",
	telemetryv1.MetricSelector_TCP_SENT_BYTES:         "tcp_sent_bytes_total",
	telemetryv1.MetricSelector_TCP_RECEIVED_BYTES:     "tcp_received_bytes_total",
	telemetryv1.MetricSelector_GRPC_REQUEST_MESSAGES:  "request_messages_total",
	telemetryv1.MetricSelector_GRPC_RESPONSE_MESSAGES: "response_messages_total",
}

// statistics is what Istio's Envoy counts for Prometheus in a direction, as Telemetry has it; nil for nothing.
func statistics(c Class, mesh *pushcontext.MeshView, d direction) *stats.PluginConfig {
	out := &stats.PluginConfig{}
	metrics, counted := map[string]*stats.MetricConfig{}, countsFor(mesh, mesh.Config.GetDefaultProviders().GetMetrics(), true)
	for _, t := range telemetryOf(c) {
		var own []string
		for _, m := range t.Spec.GetMetrics() {
			names := refNames(m.GetProviders())
			if own = append(own, names...); !countsFor(mesh, names, counted) {
				continue
			}
			if i := positive(m.GetReportingInterval()); i != nil {
				out.TcpReportingDuration = i
			}
			for _, o := range m.GetOverrides() {
				if forDirection(o.GetMatch().GetMode(), d) {
					override(metrics, o)
				}
			}
		}
		counted = countsFor(mesh, own, counted)
	}
	if !counted {
		return nil
	}
	dropped := 0
	for _, name := range slices.Sorted(maps.Keys(metrics)) {
		if m := metrics[name]; m.Drop || len(m.Dimensions)+len(m.TagsToRemove) > 0 {
			out.Metrics = append(out.Metrics, m)
			if m.Drop && slices.Contains(metricNames, name) {
				dropped++
			}
		}
	}
	if dropped == len(metricNames)-1 {
		return nil
	}
	return out
}

// countsFor reports whether Prometheus is among the providers, or what to take for true if there are none. A mesh that names no
// provider of metrics has it.
func countsFor(m *pushcontext.MeshView, names []string, none bool) bool {
	if len(names) == 0 {
		return none
	}
	return slices.ContainsFunc(names, func(n string) bool { return m.Provider(n).GetPrometheus() != nil })
}

func telemetryOf(c Class) []*pushcontext.Telemetry {
	if c.Scope == nil {
		return nil
	}
	return c.Scope.Telemetry
}

// override lays one over what was said of its metrics before.
func override(metrics map[string]*stats.MetricConfig, o *telemetryv1.MetricsOverrides) {
	for _, name := range overridden(o.GetMatch()) {
		m := metrics[name]
		if m == nil {
			m = &stats.MetricConfig{Name: name, Dimensions: map[string]string{}}
			metrics[name] = m
		}
		if o.Disabled != nil {
			m.Drop = o.Disabled.Value
		}
		for _, tag := range slices.Sorted(maps.Keys(o.TagOverrides)) {
			delete(m.Dimensions, tag)
			m.TagsToRemove = slices.DeleteFunc(m.TagsToRemove, func(t string) bool { return t == tag })
			switch t := o.TagOverrides[tag]; {
			case t.GetOperation() == telemetryv1.MetricsOverrides_TagOverride_REMOVE:
				m.TagsToRemove = append(m.TagsToRemove, tag)
			case model.ValidExpression(t.GetValue()):
				m.Dimensions[tag] = t.Value
			}
		}
	}
}

// overridden are the names of the metrics that an override is for.
func overridden(m *telemetryv1.MetricSelector) []string {
	if name := m.GetCustomMetric(); name != "" {
		return []string{name}
	}
	if n := m.GetMetric(); n > 0 && int(n) < len(metricNames) {
		return metricNames[n : n+1]
	}
	return metricNames[1:]
}
