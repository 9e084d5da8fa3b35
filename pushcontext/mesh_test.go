package pushcontext

import (
	"net/netip"
	"slices"
	"testing"
)

func TestNetworkGateways(t *testing.T) {
	t.Parallel()
	at := netip.MustParseAddrPort
	ns := NewNetworks([]Gateway{
		{Network: "n1", Addr: at("1.1.1.1:15443")},
		{Network: "n1", Cluster: "c1", Addr: at("1.1.1.2:15443")},
		{Network: "n2", Host: "gw.example"},
		{Network: "n3", Cluster: "c3", Host: "gw3.example"},
		{Network: "n3", Cluster: "c4", Addr: at("3.3.3.3:15443")},
	}, nil)
	for _, c := range []struct {
		network, cluster string
		want             []string
	}{
		{"n1", "c1", []string{"1.1.1.2:15443"}},
		{"n1", "c2", []string{"1.1.1.1:15443", "1.1.1.2:15443"}},
		{"n2", "c2", nil},
		{"n3", "c3", []string{"3.3.3.3:15443"}}, // its own is not resolved
		{"n4", "c1", nil},
		{"", "", nil},
	} {
		var got []string
		for _, g := range ns.NetworkGateways(c.network, clusterID(c.cluster), false) {
			got = append(got, g.Addr.String())
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s/%s: got %v, want %v", c.network, c.cluster, got, c.want)
		}
	}
	m := &MeshView{GatewayNetworks: []string{"n1", "n2", "n3"}}
	// Incident 61: a gateway without address is still a gateway.
	if !m.HasGateway("n2") || m.HasGateway("n4") || !m.MultiNetwork() || new(MeshView).MultiNetwork() {
		t.Error("which networks have a gateway is wrong")
	}
}
