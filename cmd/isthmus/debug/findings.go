package debug

import (
	"cmp"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/analysis"
	"github.com/isthmus-mesh/isthmus/pushcontext"
)

// ObjectFinding is something about a configuration object that its author should know: an element of /debug/findings.
type ObjectFinding struct {
	Severity  string `json:"severity"` // error (the object, or the field, is not used), warning, info
	Cluster   string `json:"cluster"`
	Provider  string `json:"provider,omitempty"`
	Kind      string `json:"kind,omitempty"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name,omitempty"`
	Field     string `json:"field,omitempty"` // "http[0].route[1].weight"; "" for the whole object
	Message   string `json:"message"`
	Code      string `json:"code"` // see docs/checking.md
	File      string `json:"file,omitempty"`
	Line      int    `json:"line,omitempty"` // at which the object begins, from 1; 0 if unknown
}

// FindingOf gives a finding of a snapshot.
func FindingOf(f analysis.Finding) ObjectFinding {
	return ObjectFinding{
		Severity: f.Severity.String(), Cluster: string(f.Source.Shard.Cluster), Provider: string(f.Source.Shard.Provider),
		Kind: f.Object.Kind, Namespace: f.Object.Namespace, Name: f.Object.Name, Field: f.Field, Message: f.Message, Code: f.Code,
	}
}

// ParseSeverity reads the name of a severity.
func ParseSeverity(name string) (s model.Severity, ok bool) {
	err := s.UnmarshalText([]byte(name))
	return s, err == nil
}

// findingsEvery is how old the counts of Findings may be: a large mesh has a new version many times in a minute, and looking
// at all of it takes a while.
const findingsEvery = time.Minute

// Findings keeps the findings of the version that it was last asked about.
type Findings struct {
	Snapshot func() *pushcontext.PushContext // nil before the first commit
	Now      func() time.Time
	More     func(*pushcontext.PushContext) []analysis.Finding // beside those of the analysis; may be nil

	mu     sync.Mutex
	pc     *pushcontext.PushContext // guarded by mu; whose the rest is
	at     time.Time                // guarded by mu
	list   []analysis.Finding       // guarded by mu
	counts map[model.Severity]int   // guarded by mu
}

// List gives the findings of the current snapshot.
func (f *Findings) List() []analysis.Finding {
	pc := f.Snapshot()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.look(pc)
	return f.list
}

// look is called with mu held. The analysis reads an immutable snapshot and takes no lock.
func (f *Findings) look(pc *pushcontext.PushContext) {
	if pc == f.pc || pc == nil || pc.Mesh == nil {
		return
	}
	f.pc, f.at, f.list = pc, f.Now(), analysis.Findings(pc)
	if f.More != nil {
		f.list = Merge(f.list, f.More(pc))
	}
	f.counts = map[model.Severity]int{}
	for i := range f.list {
		f.counts[f.list[i].Severity]++
	}
}

// Merge puts findings about objects behind what else there is about each of these.
func Merge(list, more []analysis.Finding) []analysis.Finding {
	list = append(slices.Clip(list), more...)
	slices.SortStableFunc(list, func(a, b analysis.Finding) int {
		return cmp.Or(cmp.Compare(a.Object.Kind, b.Object.Kind), cmp.Compare(a.Object.Namespace, b.Object.Namespace), cmp.Compare(a.Object.Name, b.Object.Name), a.Source.Shard.Compare(b.Source.Shard))
	})
	return list
}

var findingsDesc = prometheus.NewDesc("isthmus_config_findings", "Findings about configuration objects, as in 'isthmus findings'; a minute old at most.", []string{"severity"}, nil)

// Describe implements prometheus.Collector.
func (f *Findings) Describe(ch chan<- *prometheus.Desc) { ch <- findingsDesc }

// Collect implements prometheus.Collector.
func (f *Findings) Collect(ch chan<- prometheus.Metric) {
	pc := f.Snapshot()
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.pc == nil || f.Now().Sub(f.at) >= findingsEvery {
		f.look(pc)
	}
	for _, s := range []model.Severity{model.SeverityInfo, model.SeverityWarning, model.SeverityError} {
		ch <- prometheus.MustNewConstMetric(findingsDesc, prometheus.GaugeValue, float64(f.counts[s]), s.String())
	}
}

func (h *handler) findings(r *http.Request) (any, error) {
	if _, err := h.snapshot(); err != nil {
		return nil, err
	}
	q := r.URL.Query()
	least, ok := ParseSeverity(cmp.Or(q.Get("severity"), "info"))
	if !ok {
		return nil, badRequest("severity %q is none of error, warning, info", q.Get("severity"))
	}
	out := []ObjectFinding{}
	for _, f := range h.Findings.List() {
		if f.Severity < least || !passes(q.Get("kind"), f.Object.Kind) || !passes(q.Get("namespace"), f.Object.Namespace) {
			continue
		}
		out = append(out, FindingOf(f))
	}
	return out, nil
}

// passes reports whether a filter, "" for none, lets a value through.
func passes(filter, value string) bool { return filter == "" || filter == value }
