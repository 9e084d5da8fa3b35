package kube_test

import (
	"testing"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/clusters/kube"
)

// TestServerQuarantine: an object of an API server that gets an error keeps its last good version until it is put right or
// deleted, and a registry that starts while it has one knows none. Others of its kind go on.
func TestServerQuarantine(t *testing.T) {
	t.Parallel()
	c := servers.Take(t, 1)[0]
	rule := func(name, host string) string {
		return "apiVersion: networking.istio.io/v1\nkind: DestinationRule\nmetadata: {name: " + name + ", namespace: demo}\nspec: {host: " + host + "}"
	}
	start := func() *watcher {
		return watch(t, kube.New(kube.Options{Cluster: "c1", Config: c.Config, Configuration: true, Timing: quick}))
	}
	await := func(w *watcher, name, host string, refused bool) {
		t.Helper()
		w.await(name+" for "+host, func() bool {
			r, _ := w.rows[model.RowKey{Kind: model.RowConfig, Key: "DestinationRule/demo/" + name}].(*model.Config)
			if r == nil {
				return host == "" && !refused
			}
			spec, _ := r.Spec.(*networking.DestinationRule)
			return spec.GetHost() == host && r.Refused == refused
		})
	}
	c.Apply(t, rule("web", "a.example"))
	w := start()
	await(w, "web", "a.example", false)
	c.Apply(t, rule("web", "a..example"))
	await(w, "web", "a.example", true)
	w.awaitProblem("DestinationRule/demo/web", "its last good version stays in force")
	c.Apply(t, rule("other", "b.example"))
	await(w, "other", "b.example", false)

	w.stop()
	w = start()
	await(w, "web", "", true)
	await(w, "other", "b.example", false)
	w.awaitProblem("DestinationRule/demo/web", "it is not in force")
	c.Apply(t, rule("web", "c.example"))
	await(w, "web", "c.example", false)
	w.awaitNoProblem()
	c.Apply(t, rule("web", "c..example"))
	await(w, "web", "c.example", true)
	c.Delete(t, rule("web", "x"))
	await(w, "web", "", false)
	w.awaitNoProblem()
}
