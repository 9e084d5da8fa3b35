package xds

import (
	"strconv"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"

	"github.com/isthmus-mesh/isthmus/xds/wire"
)

// metrics are the server's counters: those that dashboards for Istio read, under their names, and
// the hub's own under isthmus_.
type metrics struct {
	internalErrors prometheus.Counter
	writeTimeouts  prometheus.Counter
	refusedStreams map[string]prometheus.Counter // by reason
	panics         prometheus.Counter
	connected      *census
	convergence    prometheus.Histogram
	queue          prometheus.Histogram
	unserved       *prometheus.CounterVec
	received       prometheus.Gauge
	receivedMax    atomic.Int64

	types []typeMetrics
	sends prometheus.Observer
}

// typeMetrics are the metrics of one type, with what tests count.
type typeMetrics struct {
	pushes, pushErrors, rejects, expired, builds, resources, bytes prometheus.Counter
	pushTime, size                                                 prometheus.Observer
	nacks                                                          *census

	builtN, sentN, responsesN, bytesN atomic.Uint64
}

func newMetrics(reg prometheus.Registerer, rules []rule) *metrics {
	if reg == nil {
		reg = prometheus.NewRegistry()
	}
	b := builder{reg}
	m := &metrics{
		internalErrors: b.counter("pilot_total_xds_internal_errors", "Resources that could not be generated.").WithLabelValues(),
		writeTimeouts:  b.counter("pilot_xds_write_timeout", "Streams closed because the proxy did not read.").WithLabelValues(),
		refusedStreams: map[string]prometheus.Counter{},
		panics:         b.counter("isthmus_xds_stream_panics_total", "Streams closed by a fault of the hub.").WithLabelValues(),
		connected:      newCensus(b.gauge("pilot_xds", "Connected proxies.", "version"), maxVersions),
		convergence:    b.histogram("pilot_proxy_convergence_time", "Seconds from a commit to its last response to a proxy.", seconds()).WithLabelValues().(prometheus.Histogram),
		queue:          b.histogram("pilot_proxy_queue_time", "Seconds that a push waits for its turn.", seconds()).WithLabelValues().(prometheus.Histogram),
		unserved:       b.counter("isthmus_xds_unserved_requests_total", "Requests of types without resources.", "type"),
		received:       b.gauge("pilot_xds_recv_max", "Largest request received, in bytes.").WithLabelValues(),
		sends:          b.histogram("pilot_xds_send_time", "Seconds that sending one response takes.", seconds()).WithLabelValues(),
		types:          make([]typeMetrics, len(rules)),
	}
	for i := range m.types {
		m.types[i].register(b, rules[i].short)
	}
	refused := b.counter("isthmus_xds_refused_streams_total", "Streams refused before they were a proxy's.", "reason")
	for reason := range refusalReasons() {
		m.refusedStreams[reason] = refused.WithLabelValues(reason)
	}
	return m
}

func seconds() []float64 { return []float64{.001, .003, .01, .03, .1, .3, 1, 3, 10, 30} }

func sizes() []float64 { return []float64{1e3, 1e4, 1e5, 1e6, 4e6, 1e7, 4e7} }

func (t *typeMetrics) register(b builder, short string) {
	t.pushes = b.counter("pilot_xds_pushes", "Responses sent, and responses that failed to be sent.", "type").WithLabelValues(short)
	t.pushErrors = b.counter("pilot_xds_pushes", "Responses sent, and responses that failed to be sent.", "type").WithLabelValues(short + "_senderr")
	t.rejects = b.counter("pilot_total_xds_rejects", "Responses refused by proxies.", "type").WithLabelValues(short)
	t.expired = b.counter("pilot_xds_expired_nonce", "Requests with an outdated nonce.", "type").WithLabelValues(short)
	t.nacks = newCensus(b.gauge("pilot_xds_"+short+"_reject", "Streams whose last answer was a refusal.", "node", "err"), maxRefusals)
	t.pushTime = b.histogram("pilot_xds_push_time", "Seconds that generating and sending a response takes.", seconds(), "type").WithLabelValues(short)
	t.size = b.histogram("pilot_xds_config_size_bytes", "Bytes of a response.", sizes(), "type").WithLabelValues(short)
	t.builds = b.counter("isthmus_xds_builds_total", "Resources built that are not as they were before.", "type").WithLabelValues(short)
	t.resources = b.counter("isthmus_xds_resources_sent_total", "Resources in sent responses.", "type").WithLabelValues(short)
	t.bytes = b.counter("isthmus_xds_bytes_sent_total", "Bytes of sent responses.", "type").WithLabelValues(short)
}

// builder registers metrics; one that exists is used as it is.
type builder struct{ reg prometheus.Registerer }

func register[C prometheus.Collector](reg prometheus.Registerer, c C) C {
	if err := reg.Register(c); err != nil {
		if are, ok := err.(prometheus.AlreadyRegisteredError); ok {
			return are.ExistingCollector.(C)
		}
		panic(err) // a programming error: two definitions of one name
	}
	return c
}

func (b builder) counter(name, help string, labels ...string) *prometheus.CounterVec {
	return register(b.reg, prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels))
}

func (b builder) gauge(name, help string, labels ...string) *prometheus.GaugeVec {
	return register(b.reg, prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels))
}

func (b builder) histogram(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	return register(b.reg, prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, labels))
}

// observe registers the gauges that are read from the server when scraped.
func (s *Server) observe(reg prometheus.Registerer) {
	if reg == nil {
		return
	}
	gauge := func(name, help string, f func() float64) {
		register(reg, prometheus.Collector(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, f)))
	}
	gauge("isthmus_xds_classes", "Distinct classes of connected proxies that resources are kept for.", func() float64 { return float64(s.classes.count()) })
	gauge("isthmus_xds_memo_bytes", "Bytes of encoded resources that are kept.", func() float64 { return float64(s.kept.Load()) })
	gauge("isthmus_xds_names", "Interned resource names.", func() float64 { return float64(s.tables.current.Load().size()) })
}

func (m *metrics) built(typ, n int) {
	m.types[typ].builds.Add(float64(n))
	m.types[typ].builtN.Add(uint64(n))
}

func (m *metrics) sent(typ, resources, bytes int, took time.Duration, err error) {
	t := &m.types[typ]
	if err != nil {
		t.pushErrors.Inc()
		return
	}
	t.pushes.Inc()
	t.resources.Add(float64(resources))
	t.bytes.Add(float64(bytes))
	t.size.Observe(float64(bytes))
	m.sends.Observe(took.Seconds())
	t.sentN.Add(uint64(resources))
	t.responsesN.Add(1)
	t.bytesN.Add(uint64(bytes))
}

func (m *metrics) request(size int) {
	for {
		old := m.receivedMax.Load()
		if int64(size) <= old {
			return
		}
		if m.receivedMax.CompareAndSwap(old, int64(size)) {
			m.received.Set(float64(size))
			return
		}
	}
}

func (m *metrics) expired(typ int) { m.types[typ].expired.Inc() }

// rejected counts a refusal, and the proxy among those that refuse something until the result is called.
func (m *metrics) rejected(typ int, node string, f *wire.Fault) (recovered func()) {
	m.types[typ].rejects.Inc()
	code := codes.Code(f.Code)
	if f.Code < 0 || code > codes.Unauthenticated { // the last there is
		code = codes.Unknown
	}
	return m.types[typ].nacks.join(node, strconv.Itoa(int(code)))
}

// TypeCounters count the work for one type since the server started.
type TypeCounters struct {
	Built     uint64 // resources built that are not as they were before
	Sent      uint64 // resources in responses
	Responses uint64
	Bytes     uint64
}

// Counters count work since the server started. Types are keyed by their short names ("cds" …).
type Counters struct {
	Types map[string]TypeCounters
	Wakes uint64 // streams woken by commits
}

// Counters gives what has been done so far.
func (s *Server) Counters() Counters {
	c := Counters{Types: map[string]TypeCounters{}, Wakes: s.wakes.Load()}
	for i := range s.metrics.types {
		t := &s.metrics.types[i]
		c.Types[s.rules[i].short] = TypeCounters{Built: t.builtN.Load(), Sent: t.sentN.Load(), Responses: t.responsesN.Load(), Bytes: t.bytesN.Load()}
	}
	return c
}
