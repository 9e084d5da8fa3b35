package xds_test

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/isthmus-mesh/isthmus/xds"
	"github.com/isthmus-mesh/isthmus/xds/gen"
	"github.com/isthmus-mesh/isthmus/xds/wire"
	"github.com/isthmus-mesh/isthmus/xds/xdstest"
)

// hostsIn lists the services that a proxy has clusters, endpoints or routes of.
func hostsIn(e *xdstest.Envoy, url string, candidates ...string) (out []string) {
	for name, body := range e.State()[url] {
		for _, h := range candidates {
			if strings.Contains(name+body, h) {
				out = append(out, h)
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// TestScopes: a Sidecar takes the services that it does not import from the proxies of its namespace, and what
// it imports again comes back: clusters, endpoints and routes alike. Proxies elsewhere are not even woken.
func TestScopes(t *testing.T) {
	both(t, func(t *testing.T, p wire.Protocol) {
		r := newRig(t, func(o *xds.Options) { o.Generators = gen.All() })
		foreign := svc("b.y.svc.cluster.local", 0, "10.0.0.2")
		foreign.Namespace, foreign.Ports = "y", []uint16{81} // the last one of its table
		all := []string{"a.x.svc", "b.y.svc"}
		r.mesh.Set(svc(all[0]+".cluster.local", 0, "10.0.0.1"), foreign)
		e := r.envoy(p, node(1))
		defer e.Disconnect()
		other := node(2)
		other.Metadata.Fields["NAMESPACE"] = other.Metadata.Fields["CLUSTER_ID"]
		elsewhere := r.envoy(p, other)
		defer elsewhere.Disconnect()
		sees := func(want ...string) {
			t.Helper()
			r.agrees(e, elsewhere)
			for _, url := range []string{gen.ClusterURL, gen.EndpointURL} {
				if got := hostsIn(e, url, all...); !slices.Equal(got, want) {
					t.Errorf("%s: has %q, want %q", url, got, want)
				}
			}
			routes := append(hostsIn(e, gen.RouteURL, all...), hostsIn(e, gen.VirtualHostURL, all...)...)
			if slices.Sort(routes); !slices.Equal(slices.Compact(routes), want) {
				t.Errorf("has routes of %q, want %q", routes, want)
			}
			if got := hostsIn(elsewhere, gen.ClusterURL, all...); !slices.Equal(got, all) {
				t.Errorf("a proxy elsewhere has %q", got)
			}
		}
		sees(all...)
		wakes := r.server.Counters().Wakes
		r.mesh.SetSidecars(map[string][]string{"x": {"./*"}}, "x")
		if n := r.server.Counters().Wakes - wakes; n != 1 {
			t.Errorf("%d streams woke", n)
		}
		sees(all[0])
		foreign.Endpoints = []string{"10.0.0.3"}
		r.mesh.Set(foreign) // changes while it is hidden
		sees(all[0])
		r.mesh.SetSidecars(map[string][]string{"x": {"y/*"}}, "x")
		sees(all[1])
		r.mesh.SetSidecars(nil, "x")
		sees(all...)
		received := e.Received(gen.ClusterURL)
		r.mesh.SetSidecars(map[string][]string{"x": {"*/*"}}, "*") // says what holds anyway
		synctest.Wait()
		if n := e.Received(gen.ClusterURL) - received; n != 0 && p == wire.Delta {
			t.Errorf("%d clusters were sent again", n)
		}
		sees(all...)
	})
}
