package gen_test

import (
	"testing"

	meshconfig "istio.io/api/mesh/v1alpha1"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/xds/gen"
)

// TestExplainPriority: what is behind others says why, and what is not says nothing.
func TestExplainPriority(t *testing.T) {
	t.Parallel()
	failover := newMesh(func(m *settings) {
		m.Config.LocalityLbSetting = &networking.LocalityLoadBalancerSetting{}
		m.Config.DefaultTrafficPolicy = &meshconfig.MeshConfig_DefaultTrafficPolicy{OutlierDetection: &networking.OutlierDetection{}}
	})
	labels := newMesh(func(m *settings) {
		m.Config.LocalityLbSetting = &networking.LocalityLoadBalancerSetting{FailoverPriority: []string{"topology.istio.io/cluster", "version"}}
		m.Config.DefaultTrafficPolicy = &meshconfig.MeshConfig_DefaultTrafficPolicy{OutlierDetection: &networking.OutlierDetection{}}
	})
	c := sidecar("c1", "shop", inZone("r1/z1/s1"))
	for name, test := range map[string]struct {
		mesh    *settings
		traffic model.TrafficDistribution
		ep      *model.Endpoint
		demoted bool
		want    string
	}{
		"same place":      {failover, 0, ep("c1", "http", "10.0.0.1:80", at("r1/z1/s1")), false, ""},
		"no setting":      {newMesh(), 0, ep("c1", "http", "10.0.0.1:80", at("r2/z1")), false, ""},
		"subzone":         {failover, 0, ep("c1", "http", "10.0.0.1:80", at("r1/z1/s2")), false, "another subzone (the mesh's locality failover)"},
		"zone":            {failover, 0, ep("c1", "http", "10.0.0.1:80", at("r1/z2/s1")), false, "another zone (the mesh's locality failover)"},
		"region":          {failover, 0, ep("c1", "http", "10.0.0.1:80", at("r2/z1/s1")), false, "another region (the mesh's locality failover)"},
		"label":           {labels, 0, ep("c1", "http", "10.0.0.1:80", func(e *model.Endpoint) { e.Labels = model.Labels{"version": "v2"} }), false, "another value of the label version (the mesh's failoverPriority)"},
		"cluster":         {labels, 0, ep("c2", "http", "10.0.0.1:80"), false, "another cluster (the mesh's failoverPriority)"},
		"traffic":         {failover, model.TrafficPreferSameZone, ep("c1", "http", "10.0.0.1:80", at("r1/z2")), false, "another zone (the service's trafficDistribution)"},
		"stale":           {newMesh(), 0, ep("c2", "http", "10.0.0.1:80"), true, "its cluster is out of contact for too long"},
		"stale, but own":  {newMesh(), 0, ep("c1", "http", "10.0.0.1:80"), true, ""},
		"stale elsewhere": {failover, 0, ep("c2", "http", "10.0.0.1:80", at("r2")), true, "its cluster is out of contact for too long; another region (the mesh's locality failover)"},
	} {
		v := cart(test.ep).view(test.mesh)
		v.Shape.Traffic = test.traffic
		if test.demoted {
			v.Demoted = []model.ShardKey{test.ep.Source.Shard}
		}
		if got := gen.ExplainPriority(v, c, httpPort(80), test.ep); got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}
