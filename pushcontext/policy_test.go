package pushcontext

import (
	"testing"

	meshconfig "istio.io/api/mesh/v1alpha1"
	networking "istio.io/api/networking/v1alpha3"

	"google.golang.org/protobuf/types/known/durationpb"
)

// What a rule says of requests and of connections, for all ports or one, of the host or a subset.
func TestRulesThatTellOfConnections(t *testing.T) {
	t.Parallel()
	pool := func(tcp *networking.ConnectionPoolSettings_TCPSettings) *networking.TrafficPolicy {
		return &networking.TrafficPolicy{ConnectionPool: &networking.ConnectionPoolSettings{Tcp: tcp}}
	}
	hash := func(h *networking.LoadBalancerSettings_ConsistentHashLB) *networking.TrafficPolicy {
		return &networking.TrafficPolicy{LoadBalancer: &networking.LoadBalancerSettings{LbPolicy: &networking.LoadBalancerSettings_ConsistentHash{ConsistentHash: h}}}
	}
	plain := &MeshView{Config: &meshconfig.MeshConfig{}}
	idle := &MeshView{Config: &meshconfig.MeshConfig{DefaultTrafficPolicy: &meshconfig.MeshConfig_DefaultTrafficPolicy{
		ConnectionPool: pool(&networking.ConnectionPoolSettings_TCPSettings{IdleTimeout: durationpb.New(1)}).ConnectionPool}}}
	for name, c := range map[string]struct {
		policy         *networking.TrafficPolicy
		mesh           *MeshView
		hashes, steers bool
	}{
		"nothing":                {nil, plain, false, false},
		"a hash of requests":     {hash(&networking.LoadBalancerSettings_ConsistentHashLB{}), plain, true, false},
		"a hash of sources":      {hash(&networking.LoadBalancerSettings_ConsistentHashLB{HashKey: &networking.LoadBalancerSettings_ConsistentHashLB_UseSourceIp{UseSourceIp: true}}), plain, true, true},
		"an idle timeout":        {pool(&networking.ConnectionPoolSettings_TCPSettings{IdleTimeout: durationpb.New(1)}), plain, false, true},
		"a pool":                 {pool(&networking.ConnectionPoolSettings_TCPSettings{MaxConnections: 1}), plain, false, false},
		"a pool, not the mesh's": {pool(&networking.ConnectionPoolSettings_TCPSettings{MaxConnections: 1}), idle, false, true},
		"no pool but the mesh's": {&networking.TrafficPolicy{}, idle, false, false},
		"a tunnel":               {&networking.TrafficPolicy{Tunnel: &networking.TrafficPolicy_TunnelSettings{}}, plain, false, true},
	} {
		for place, r := range map[string]*networking.DestinationRule{
			"the host": {TrafficPolicy: c.policy},
			"a subset": {Subsets: []*networking.Subset{nil, {TrafficPolicy: c.policy}}},
			"a port":   {TrafficPolicy: &networking.TrafficPolicy{PortLevelSettings: []*networking.TrafficPolicy_PortTrafficPolicy{nil, {LoadBalancer: c.policy.GetLoadBalancer(), ConnectionPool: c.policy.GetConnectionPool()}}}},
		} {
			p := &DestinationPolicy{Spec: r}
			want := c.steers && (place != "a port" || c.policy.Tunnel == nil) // which has no tunnels
			if p.Hashes() != c.hashes || p.Steers(c.mesh) != want {
				t.Errorf("%s of %s: hashes %v, steers %v", name, place, p.Hashes(), p.Steers(c.mesh))
			}
		}
	}
}
