package client

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
)

// Metrics are those of all clients of a process. A nil *Metrics counts nothing.
type Metrics struct {
	objects *prometheus.GaugeVec   // isthmus_mcp_objects
	skipped *prometheus.GaugeVec   // isthmus_mcp_skipped_objects
	last    *prometheus.GaugeVec   // isthmus_mcp_last_message_timestamp_seconds
	bytes   *prometheus.CounterVec // isthmus_mcp_received_bytes_total
	answers *prometheus.CounterVec // isthmus_mcp_responses_total
	refused *prometheus.CounterVec // isthmus_mcp_nacks_total
	streams *prometheus.CounterVec // isthmus_mcp_streams_total
}

// NewMetrics registers the metrics.
func NewMetrics(r prometheus.Registerer) *Metrics {
	gauge := func(name, help string, labels ...string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, append([]string{"upstream"}, labels...))
	}
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, append([]string{"upstream"}, labels...))
	}
	m := &Metrics{
		objects: gauge("isthmus_mcp_objects", "Objects of an MCP server that are in use, by kind.", "type"),
		skipped: gauge("isthmus_mcp_skipped_objects", "Objects of an MCP server that are left out: passed on by this hub (loop), of another revision, or made by an istiod of a Service (synthetic).", "reason"),
		last:    gauge("isthmus_mcp_last_message_timestamp_seconds", "When an MCP server last said something."),
		bytes:   counter("isthmus_mcp_received_bytes_total", "Bytes of the responses of an MCP server."),
		answers: counter("isthmus_mcp_responses_total", "Responses of an MCP server, by kind.", "type"),
		refused: counter("isthmus_mcp_nacks_total", "Responses of an MCP server in which something was refused, by kind.", "type"),
		streams: counter("isthmus_mcp_streams_total", "Streams that were opened to an MCP server."),
	}
	r.MustRegister(m.objects, m.skipped, m.last, m.bytes, m.answers, m.refused, m.streams)
	return m
}

// Forget drops the series of an upstream that has gone.
func (m *Metrics) Forget(name model.ClusterID) {
	if m == nil {
		return
	}
	of := prometheus.Labels{"upstream": string(name)}
	for _, v := range []interface {
		DeletePartialMatch(prometheus.Labels) int
	}{m.objects, m.skipped, m.last, m.bytes, m.answers, m.refused, m.streams} {
		v.DeletePartialMatch(of)
	}
}

func (m *Metrics) opened(name model.ClusterID) {
	if m != nil {
		m.streams.WithLabelValues(string(name)).Inc()
	}
}

func (m *Metrics) received(name model.ClusterID, kind string, bytes int, at time.Time) {
	if m != nil {
		m.answers.WithLabelValues(string(name), kind).Inc()
		m.bytes.WithLabelValues(string(name)).Add(float64(bytes))
		m.last.WithLabelValues(string(name)).Set(float64(at.UnixMilli()) / 1000)
	}
}

func (m *Metrics) nacked(name model.ClusterID, kind string) {
	if m != nil {
		m.refused.WithLabelValues(string(name), kind).Inc()
	}
}

func (m *Metrics) holds(name model.ClusterID, kind string, objects int) {
	if m != nil {
		m.objects.WithLabelValues(string(name), kind).Set(float64(objects))
	}
}

func (m *Metrics) skips(name model.ClusterID, counts map[skip]int) {
	if m != nil {
		for _, s := range skips {
			m.skipped.WithLabelValues(string(name), string(s)).Set(float64(counts[s]))
		}
	}
}
