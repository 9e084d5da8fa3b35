package pushcontext

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	networking "istio.io/api/networking/v1alpha3"

	meshconfig "istio.io/api/mesh/v1alpha1"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
)

// Networks do not depend on the order of gateways, name each once, and keep the pointers of those that
// stay the same.
func TestNewNetworks(t *testing.T) {
	t.Parallel()
	at := netip.MustParseAddrPort
	gws := []Gateway{
		{Network: "n1", Addr: at("1.1.1.1:15443")}, {Network: "n1", Addr: at("1.1.1.1:15443"), Host: "gw.example"},
		{Network: "n1", Cluster: "c1", Addr: at("1.1.1.1:15443")}, {Network: "n1", Addr: at("1.1.1.1:15444")},
		{Network: "n1", Addr: at("1.1.1.1:15443"), HBONEPort: 15008}, {Network: "n1", Addr: at("1.1.1.1:0"), HBONEPort: 15008},
		{Network: "n2", Host: "gw.example", Source: "b"}, {Network: "n2", Host: "gw.example", Source: "a"},
	}
	first := NewNetworks(gws, nil)
	if len(first) != 2 || len(first.Find("n1").Gateways) != 6 || len(first.Find("n2").Gateways) != 1 || first.Find("n3") != nil {
		t.Fatalf("%+v", first)
	}
	if got := first.Find("n2").Gateways[0].Source; got != "a" {
		t.Errorf("the gateway that two name is that of %s", got)
	}
	for range 20 {
		rand.Shuffle(len(gws), func(i, j int) { gws[i], gws[j] = gws[j], gws[i] })
		again := NewNetworks(gws, nil)
		if !again.Equal(first) || again[0] == first[0] {
			t.Fatalf("%+v", again)
		}
		if kept := NewNetworks(gws, first); !slices.Equal(kept, first) {
			t.Fatal("equal networks are new ones")
		}
	}
	next := NewNetworks(append(gws, Gateway{Network: "n2", Addr: at("2.2.2.2:15443")}), first)
	if next[0] != first[0] || next[1] == first[1] || next.Equal(first) {
		t.Error("a changed network is the old one, or another is new")
	}
	if NewNetworks(nil, first) != nil {
		t.Error("networks without gateways")
	}
}

// A gateway known by name serves proxies that resolve names themselves, if its port is known. One that speaks HBONE alone serves nobody, also if
// it is the member's own.
func TestNamedGateways(t *testing.T) {
	t.Parallel()
	port := netip.AddrPortFrom(netip.Addr{}, 15443)
	ns := NewNetworks([]Gateway{
		{Network: "n1", Addr: netip.MustParseAddrPort("1.1.1.1:15443")}, {Network: "n1", Host: "gw.example", Addr: port},
		{Network: "n1", Host: "0.0.0.0"}, {Network: "n1", Cluster: "c1", Addr: port}, {Network: "n1", Cluster: "c2", Host: "own.example", Addr: port},
		{Network: "n1", Cluster: "c1", Addr: netip.MustParseAddrPort("1.1.1.2:0"), HBONEPort: 15008}, {Network: "n1", Cluster: "c1", Host: "ambient.example", HBONEPort: 15008},
	}, nil)
	for cluster, want := range map[model.ClusterID][2]int{"": {1, 3}, "c1": {1, 3}, "c2": {1, 1}} {
		for i, named := range []bool{false, true} {
			if got := ns.NetworkGateways("n1", cluster, named); len(got) != want[i] {
				t.Errorf("%q, named %v: %v", cluster, named, got)
			}
		}
	}
}

// The rule in force for a reader: of its own namespace, of the service's, of the root, if it may see it.
func TestPolicyOfAReader(t *testing.T) {
	t.Parallel()
	public := Export{Public: true}
	policy := func(ns, name string, e Export) *DestinationPolicy {
		return &DestinationPolicy{Namespace: ns, Host: name, Export: e, Spec: &networking.DestinationRule{}}
	}
	s := &ShapeView{
		Key: model.ServiceKey{Namespace: "svc"}, Mesh: &MeshView{Config: &meshconfig.MeshConfig{RootNamespace: "root"}},
		Policies: []*DestinationPolicy{
			policy("root", "root", public), policy("svc", "hidden", Export{Namespaces: []string{"svc"}}), policy("svc", "shown", public),
			policy("client", "own", Export{Namespaces: []string{"client"}}), policy("other", "other", public),
		},
	}
	for reader, want := range map[string]string{"client": "own", "svc": "hidden", "any": "shown", "root": "shown", "other": "other"} {
		if p := s.Policy(reader); p == nil || p.Host != want {
			t.Errorf("%s reads %v, want %s", reader, p, want)
		}
	}
	s.Policies = s.Policies[3:]
	if p := s.Policy("any"); p != nil {
		t.Errorf("read %v", p)
	}
}
