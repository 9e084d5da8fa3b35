package xds_test

import (
	"slices"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/isthmus-mesh/isthmus/pushcontext"
	"github.com/isthmus-mesh/isthmus/xds"
	"github.com/isthmus-mesh/isthmus/xds/gen"
	"github.com/isthmus-mesh/isthmus/xds/wire"
)

// What is rendered for a node is what a client with the node holds.
func TestRenderIsWhatIsSent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.mesh.Set(svc("foo.x", 0, "10.0.0.1"), svc("bar.x", 0, "10.0.0.2"))
		e := r.envoy(wire.Delta, node(1))
		synctest.Wait()
		list, err := r.server.Render(node(1))
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]map[string]string{}
		for url := range e.State() {
			got[url] = map[string]string{}
		}
		for _, x := range list {
			got[x.TypeURL][x.Name] = string(x.Body)
		}
		if d := cmp.Diff(readable(e.State()), readable(got)); d != "" {
			t.Errorf("-sent +rendered:\n%s", d)
		}
		if len(list) < 4 {
			t.Errorf("only %d resources", len(list))
		}
		only, err := r.server.Render(node(1), gen.EndpointURL)
		if err != nil || len(only) == 0 || slices.ContainsFunc(only, func(x xds.Rendered) bool { return x.Short != "eds" }) {
			t.Errorf("endpoints only: %v, %v", only, err)
		}
		e.Disconnect()
	})
}

func TestRenderRefuses(t *testing.T) {
	t.Parallel()
	if _, err := xds.NewServer(xds.Options{Hub: pushcontext.NewHub(nil)}).Render(node(1)); err == nil {
		t.Error("nothing has been published")
	}
	r := newRig(t)
	r.mesh.Set(svc("foo.x", 0, "10.0.0.1"))
	n := node(1)
	n.Id = "sidecar"
	if _, err := r.server.Render(n); err == nil {
		t.Error("the node has no id")
	}
	if _, err := r.server.ClassOf(n); err == nil {
		t.Error("the node has no class")
	}
	if c, err := r.server.ClassOf(node(1)); err != nil || c.Type != gen.Sidecar || c.Namespace == "" {
		t.Errorf("%+v, %v", c, err)
	}
}
