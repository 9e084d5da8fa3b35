package aggregate_test

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	meshconfig "istio.io/api/mesh/v1alpha1"

	"github.com/google/go-cmp/cmp"

	"github.com/isthmus-mesh/isthmus/aggregate"
	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/pushcontext"
)

func TestMeshNetworks(t *testing.T) {
	t.Parallel()
	from := func(e ...*meshconfig.Network_NetworkEndpoints) []*meshconfig.Network_NetworkEndpoints { return e }
	registry := func(c string) *meshconfig.Network_NetworkEndpoints {
		return &meshconfig.Network_NetworkEndpoints{Ne: &meshconfig.Network_NetworkEndpoints_FromRegistry{FromRegistry: c}}
	}
	cidr := func(c string) *meshconfig.Network_NetworkEndpoints {
		return &meshconfig.Network_NetworkEndpoints{Ne: &meshconfig.Network_NetworkEndpoints_FromCidr{FromCidr: c}}
	}
	gateway := func(a string) *meshconfig.Network_IstioNetworkGateway {
		return &meshconfig.Network_IstioNetworkGateway{Gw: &meshconfig.Network_IstioNetworkGateway_Address{Address: a}, Port: 15443}
	}
	nets := &meshconfig.MeshNetworks{Networks: map[string]*meshconfig.Network{
		"n1": {Endpoints: from(registry("c1")), Gateways: []*meshconfig.Network_IstioNetworkGateway{gateway("gw.example"), gateway("1.1.1.1")}},
		"n2": {Endpoints: from(cidr("10.2.0.0/16"))},
		"n3": {Endpoints: from(cidr("10.2.3.0/24"))},
	}}
	own := slice(kube("c2"), "a", "own", "10.2.0.7")
	own.Endpoints[0].Network = "mine"
	v := rebuilt(t, "a", service(kube("c1"), "a"), slice(kube("c1"), "a", "s", "10.2.0.1"), service(kube("c2"), "a"),
		slice(kube("c2"), "a", "s", "10.2.0.1", "10.2.3.1", "10.9.0.1"), own, meshRow(nets, model.ConfigNetworks))
	got := map[string]string{}
	for _, e := range v.Port("http")[0].Endpoints {
		got[string(e.Addr.Cluster)+"/"+e.Addr.AddrPort.Addr().String()] = e.Network
	}
	want := map[string]string{"c1/10.2.0.1": "n1", "c2/10.2.0.1": "n2", "c2/10.2.3.1": "n3", "c2/10.9.0.1": "", "c2/10.2.0.7": "mine"}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	wantGW := []pushcontext.Gateway{
		{Network: "n1", Host: "gw.example", Addr: netip.AddrPortFrom(netip.Addr{}, 15443), Source: "MeshNetworks"},
		{Network: "n1", Addr: netip.MustParseAddrPort("1.1.1.1:15443"), Source: "MeshNetworks"},
	}
	if n := v.Networks.Find("n1"); n == nil || !slices.Equal(n.Gateways, wantGW) {
		t.Errorf("gateways %v, want %v", n, wantGW)
	}
}

// A gateway that can't be dialled is kept, so that its network stays apart, but is never usable: a port out
// of range must not become another port.
func TestMeshGatewaysThatCannotBeDialled(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		address string
		port    uint32
		usable  bool
	}{
		{"10.0.0.1", 15443, true}, {"10.0.0.1", 65535, true}, {"10.0.0.1", 65536 + 80, false}, {"10.0.0.1", 0, false},
		{"0.0.0.0", 15443, false}, {"::", 15443, false}, {"gw.example", 15443, false},
		{"127.0.5.1", 15443, true}, {"169.254.169.254", 15443, false}, // all on one machine, said on purpose
	} {
		nets := &meshconfig.MeshNetworks{Networks: map[string]*meshconfig.Network{"n1": {Gateways: []*meshconfig.Network_IstioNetworkGateway{
			{Gw: &meshconfig.Network_IstioNetworkGateway_Address{Address: tc.address}, Port: tc.port},
		}}}}
		v := rebuilt(t, "a", service(kube("c1"), "a"), onNetwork(slice(kube("c1"), "a", "s", "10.0.0.1"), "n1"), meshRow(nets, model.ConfigNetworks))
		m := v.Shape.Mesh
		if usable := len(v.Networks.NetworkGateways("n1", "c1", false)) == 1; usable != tc.usable || !m.HasGateway("n1") {
			t.Errorf("%s port %d: usable %v, want %v; network known %v", tc.address, tc.port, usable, tc.usable, m.HasGateway("n1"))
		}
	}
}

func TestMeshDefaults(t *testing.T) {
	t.Parallel()
	c := rebuilt(t, "a", service(kube("c1"), "a")).Shape.Mesh.Config
	got := fmt.Sprintln(c.RootNamespace, c.TrustDomain, c.ProxyListenPort, c.ProxyInboundListenPort, c.ConnectTimeout.AsDuration(), c.DnsRefreshRate.AsDuration(),
		c.EnableAutoMtls.Value, c.OutboundTrafficPolicy.Mode, c.InboundTrafficPolicy.Mode, c.LocalityLbSetting.Enabled.Value, c.DefaultServiceExportTo,
		c.DefaultConfig.DiscoveryAddress, c.DefaultConfig.StatusPort, c.DefaultConfig.DrainDuration.AsDuration())
	want := "istio-system cluster.local 15001 15006 10s 1m0s true ALLOW_ANY PASSTHROUGH true [*] istiod.istio-system.svc:15012 15020 45s\n"
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

// A trust domain of the hub's own beats that of the settings.
func TestMeshTrustDomain(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ option, settings, want string }{
		{"", "", "cluster.local"}, {"", "a.test", "a.test"}, {"b.test", "", "b.test"}, {"b.test", "a.test", "b.test"},
	} {
		c1 := kube("c1")
		rows := state(service(c1, "a"), meshRow(meshConfigWithTrustDomain(tc.settings), model.ConfigMesh))
		views := aggregate.Rebuild(map[model.ShardKey]*model.ShardState{c1: rows}, aggregate.Options{TrustDomain: tc.option}).Services
		if got := views[0].Shape.Mesh.Config.TrustDomain; got != tc.want {
			t.Errorf("option %q, settings %q: %q, want %q", tc.option, tc.settings, got, tc.want)
		}
	}
}

func meshConfigWithTrustDomain(d string) *meshconfig.MeshConfig {
	return &meshconfig.MeshConfig{TrustDomain: d}
}

func onNetwork(e *model.Endpoints, network string) *model.Endpoints {
	for i := range e.Endpoints {
		e.Endpoints[i].Network = network
	}
	return e
}
