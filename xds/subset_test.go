package xds_test

import (
	"testing"
	"testing/synctest"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/pushcontext"
	"github.com/isthmus-mesh/isthmus/xds"
	"github.com/isthmus-mesh/isthmus/xds/gen"
	"github.com/isthmus-mesh/isthmus/xds/wire"
	"github.com/isthmus-mesh/isthmus/xds/xdstest"
)

// subsetsOf makes a DestinationRule for everybody with subsets that select by the label "version".
func subsetsOf(namespace string, versions ...string) []*pushcontext.DestinationPolicy {
	spec := &networking.DestinationRule{}
	for _, v := range versions {
		spec.Subsets = append(spec.Subsets, &networking.Subset{Name: v, Labels: map[string]string{"version": v}})
	}
	return []*pushcontext.DestinationPolicy{{Namespace: namespace, Export: pushcontext.Export{Public: true}, Spec: spec}}
}

// TestI7Subsets: an endpoint that changes changes the assignments of the subsets that it is in, and of the
// service; those of others are neither encoded anew nor sent (invariant I7).
func TestI7Subsets(t *testing.T) {
	both(t, func(t *testing.T, p wire.Protocol) {
		r := newRig(t, func(o *xds.Options) { o.Generators = gen.All() })
		e := r.envoy(p, node(1))
		defer e.Disconnect()
		ruled := func(generation int, policies []*pushcontext.DestinationPolicy, ips ...string) xdstest.Service {
			s := svc("foo.x.svc.cluster.local", generation, ips...)
			s.Labels, s.Policies = model.Labels{"version": "v1"}, policies // the first endpoint is of v1
			return s
		}
		rule := subsetsOf("x", "v1", "v2", "v3")
		r.mesh.Set(ruled(0, rule, "10.0.0.1", "10.0.0.2"))
		r.agrees(e)
		check := func(what string, clusters, assignments uint64, step func()) {
			t.Helper()
			synctest.Wait()
			before := r.server.Counters().Types
			step()
			r.agrees(e)
			after := r.server.Counters().Types
			for short, want := range map[string]uint64{"cds": clusters, "eds": assignments} {
				if a, b := after[short], before[short]; a.Built-b.Built != want || p == wire.Delta && clusters == 0 && a.Sent-b.Sent != want {
					t.Errorf("%s: %d %s built, %d sent; want %d", what, a.Built-b.Built, short, a.Sent-b.Sent, want)
				}
			}
		}
		check("an endpoint of no subset", 0, 1, func() { r.mesh.Set(ruled(0, rule, "10.0.0.1", "10.0.0.3")) })
		check("an endpoint of one subset", 0, 2, func() { r.mesh.Set(ruled(0, rule, "10.0.0.4", "10.0.0.3")) })
		check("one subset for another", 1, 1, func() { r.mesh.Set(ruled(1, subsetsOf("x", "v1", "v2", "v4"), "10.0.0.4", "10.0.0.3")) })
		r.mesh.Set(ruled(2, nil, "10.0.0.5", "10.0.0.3"))
		r.agrees(e)
		r.mesh.Set(ruled(3, rule, "10.0.0.5"))
		r.agrees(e)
	})
}
