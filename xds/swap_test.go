package xds_test

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/isthmus-mesh/isthmus/xds/gen"
	"github.com/isthmus-mesh/isthmus/xds/wire"
)

// A cluster that another replaces in the same commit stays until the proxy has been sent the listeners and routes that
// no longer name it: over SotW, too, where each response holds all.
func TestReplacedClusterStaysUntilRoutesHaveMoved(t *testing.T) {
	both(t, func(t *testing.T, p wire.Protocol) {
		r := newRig(t)
		r.mesh.Set(on(80, "a.x"))
		e := r.envoy(p, node(1))
		defer e.Disconnect()
		clusters := func() []string {
			synctest.Wait()
			return slices.DeleteFunc(slices.Sorted(maps.Keys(e.State()[gen.ClusterURL])), func(name string) bool { return !strings.HasPrefix(name, "outbound|") })
		}
		before := clusters()
		e.Hold(gen.ClusterURL)
		e.Hold(gen.EndpointURL)
		r.mesh.Set(on(81, "a.x"))
		if all := clusters(); len(all) != 2 || !slices.Contains(all, before[0]) {
			t.Errorf("while the new cluster is not acknowledged: %q", all)
		}
		e.Release()
		e.Settle()
		if after := clusters(); len(after) != 1 || after[0] == before[0] {
			t.Errorf("in the end: %q", after)
		}
		r.converged(1, e)
	})
}
