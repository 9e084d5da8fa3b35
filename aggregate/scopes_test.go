package aggregate_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	telemetry "istio.io/api/telemetry/v1alpha1"
	selectors "istio.io/api/type/v1beta1"

	"github.com/isthmus-mesh/isthmus/aggregate"
	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/pushcontext"
)

func telemetryFor(app string) *telemetry.Telemetry {
	t := &telemetry.Telemetry{}
	if app != "" {
		t.Selector = &selectors.WorkloadSelector{MatchLabels: map[string]string{"app": app}}
	}
	return t
}

// born sets when an object was created.
func born(seconds int64, c *model.Config) *model.Config {
	c.Created = time.Unix(seconds, 0)
	return c
}

// scopeNames gives the Sidecar and the Telemetries of a scope, as "namespace/name".
func scopeNames(s *pushcontext.Scope) string {
	if s == nil {
		return "none"
	}
	var out []string
	name := func(s model.Source) { out = append(out, s.Object.Namespace+"/"+s.Object.Name) }
	if s.Sidecar != nil {
		name(s.Sidecar.Source)
	}
	for _, t := range s.Telemetry {
		name(t.Source)
	}
	return strings.Join(out, " ")
}

// What holds for a workload: the oldest Sidecar that selects it, else its namespace's, else the root namespace's; and the
// Telemetries of the root namespace, its own, and the oldest that selects it, in this order.
func TestScopesOfWorkloads(t *testing.T) {
	t.Parallel()
	c1 := kube("c1")
	b := rebuild(
		born(2, config(c1, model.ConfigSidecar, "ns", "all", sidecarOf("./*"))), born(3, config(c1, model.ConfigSidecar, "ns", "all-too", sidecarOf("./*"))),
		born(1, config(c1, model.ConfigSidecar, "ns", "old", sidecarFor("a", "./*"))), born(2, config(c1, model.ConfigSidecar, "ns", "young", sidecarFor("a", "./*"))),
		born(2, config(c1, model.ConfigSidecar, "ns", "apart", sidecarFor("b", "./*"))),
		config(c1, model.ConfigSidecar, "istio-system", "root", sidecarOf("*/*")), config(c1, model.ConfigSidecar, "istio-system", "some", sidecarFor("a", "./*")),
		config(c1, model.ConfigTelemetry, "istio-system", "t-root", telemetryFor("")), config(c1, model.ConfigTelemetry, "istio-system", "t-some", telemetryFor("a")),
		config(c1, model.ConfigTelemetry, "ns", "t-all", telemetryFor("")), born(1, config(c1, model.ConfigTelemetry, "ns", "t-all-too", telemetryFor(""))),
		config(c1, model.ConfigTelemetry, "ns", "t-some", telemetryFor("a")), born(1, config(c1, model.ConfigTelemetry, "ns", "t-late", telemetryFor("a"))),
		config(c1, model.ConfigTelemetry, "ns", "odd", sidecarOf()), config(c1, model.ConfigSidecar, "ns", "odd", telemetryFor("")),
	)
	for name, tc := range map[string]struct {
		key  pushcontext.ScopeKey
		want string
	}{
		"selected":             {pushcontext.ScopeKey{Namespace: "ns", Labels: model.Labels{"app": "a", "x": "y"}}, "ns/old istio-system/t-root ns/t-all ns/t-some"},
		"other":                {pushcontext.ScopeKey{Namespace: "ns", Labels: model.Labels{"app": "c"}}, "ns/all istio-system/t-root ns/t-all"},
		"elsewhere":            {pushcontext.ScopeKey{Namespace: "x", Labels: model.Labels{"app": "a"}}, "istio-system/root istio-system/t-root"},
		"root":                 {pushcontext.ScopeKey{Namespace: "istio-system"}, "istio-system/root istio-system/t-root"},
		"selected in the root": {pushcontext.ScopeKey{Namespace: "istio-system", Labels: model.Labels{"app": "a"}}, "istio-system/some istio-system/t-root istio-system/t-some"},
	} {
		if got := scopeNames(b.Scopes.Of(tc.key)); got != tc.want {
			t.Errorf("%s: %s, want %s", name, got, tc.want)
		}
	}
	lost := "the namespace has one without a selector already: the later one is not used"
	both := "both select workloads with app=a: the later one is not used"
	want := []string{"all over all-too: " + lost, "old over young: " + both, "t-all over t-all-too: " + lost, "t-some over t-late: " + both}
	if d := cmp.Diff(want, conflictText(b.Conflicts)); d != "" {
		t.Error(d)
	}
	if s := rebuild(service(c1, "a")).Scopes; s != nil {
		t.Errorf("%+v of nothing", s)
	}
}

// A root namespace that is another one changes whom its objects are for.
func TestScopesOfAnotherRoot(t *testing.T) {
	inBubble(t, aggregate.Options{ConfigCluster: "c1"}, func(h *hub) {
		c1 := kube("c1")
		h.Attach(registry(c1, config(c1, model.ConfigSidecar, "ns", "s", sidecarOf("./*"))))
		h.start()
		key := pushcontext.ScopeKey{Namespace: "x"}
		if s := h.quiet().ScopeOf(key); s != nil {
			t.Errorf("%s", scopeNames(s))
		}
		k := model.ShardKey{Provider: model.ProviderMesh, Cluster: "c1"}
		settings := rootNamespace("ns")
		h.Attach(registry(k, settings))
		pc := h.quiet()
		if got := scopeNames(pc.ScopeOf(key)); got != "ns/s" {
			t.Error(got)
		}
		if d := h.deltas[len(h.deltas)-1]; !d.Scoped("x") {
			t.Errorf("%+v", d)
		}
	})
}
