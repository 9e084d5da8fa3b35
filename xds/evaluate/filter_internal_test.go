package evaluate

import (
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
)

// A cluster without endpoints that may be used sends nothing; one that may panic uses those that are not healthy.
func TestReachable(t *testing.T) {
	t.Parallel()
	plain := &clusterv3.Cluster{}
	strict := &clusterv3.Cluster{CommonLbConfig: &clusterv3.Cluster_CommonLbConfig{HealthyPanicThreshold: &typev3.Percent{}}}
	original := &clusterv3.Cluster{ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_ORIGINAL_DST}}
	sick, well := Endpoint{Health: "UNHEALTHY"}, Endpoint{Health: "HEALTHY"}
	for name, x := range map[string]struct {
		name    string
		cluster *clusterv3.Cluster
		all     []Endpoint
		able    bool
	}{
		"missing": {"a", nil, nil, false}, "black hole": {blackHole, plain, []Endpoint{well}, false}, "original": {"a", original, nil, true},
		"none": {"a", plain, nil, false}, "panic": {"a", plain, []Endpoint{sick}, true}, "no panic": {"a", strict, []Endpoint{sick}, false},
		"one well": {"a", strict, []Endpoint{sick, well}, true},
	} {
		if why, able := reachable(x.name, x.cluster, x.all); able != x.able {
			t.Errorf("%s: %v, as %s", name, able, why)
		}
	}
}

// All fails only if each share does; what gets no requests does not count.
func TestVerdict(t *testing.T) {
	t.Parallel()
	bad, good, idle := Share{Percent: 50, Fails: Unavailable}, Share{Percent: 50}, Share{}
	for _, x := range []struct {
		shares []Share
		want   Failure
	}{{nil, ""}, {[]Share{bad}, Unavailable}, {[]Share{bad, good}, ""}, {[]Share{good, bad}, ""}, {[]Share{bad, idle}, Unavailable}} {
		r := &Result{Clusters: x.shares}
		if r.verdict(); r.Fails != x.want {
			t.Errorf("%v: %q, want %q", x.shares, r.Fails, x.want)
		}
	}
}
