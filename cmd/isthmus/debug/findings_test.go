package debug_test

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/cmd/isthmus/debug"
	"github.com/isthmus-mesh/isthmus/cmd/isthmus/debug/debugtest"
	"github.com/isthmus-mesh/isthmus/pushcontext"
)

// TestFindingsAreCounted: the metric is looked into anew after a minute at the earliest, the list with each version.
func TestFindingsAreCounted(t *testing.T) {
	t.Parallel()
	var pc *pushcontext.PushContext
	now := debugtest.Now()
	f := &debug.Findings{Snapshot: func() *pushcontext.PushContext { return pc }, Now: func() time.Time { return now }}
	r := prometheus.NewRegistry()
	r.MustRegister(f)
	count := func() (n float64) {
		families, err := r.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range families[0].Metric {
			if m.Label[0].GetValue() == "error" {
				n = m.Gauge.GetValue()
			}
		}
		return n
	}
	if n := count(); n != 0 || len(f.List()) != 0 {
		t.Errorf("%v errors before the first commit", n)
	}
	pc = debugtest.Hub().Current()
	before := count()
	if before == 0 || len(f.List()) == 0 {
		t.Errorf("%v errors, %d findings", before, len(f.List()))
	}
	next, _ := pushcontext.NewBuilder().Commit(pushcontext.Commit{Mesh: &pushcontext.MeshView{Config: pc.Mesh.Config}, Time: now, Configs: []*model.Config{
		{Kind: model.ConfigGateway, Name: "a", Spec: &networking.Gateway{}, Findings: []model.Finding{{Severity: model.SeverityInfo}}},
	}})
	pc = next
	if n := count(); n != before {
		t.Errorf("counted anew within a minute: %v", n)
	}
	now = now.Add(time.Minute)
	if n := count(); n != 0 {
		t.Errorf("%v errors", n)
	}
}
