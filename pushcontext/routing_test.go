package pushcontext

import (
	"slices"
	"testing"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
)

// What a commit says of Gateways, unclaimed hosts and scopes is published, and a delta names it if it differs.
func TestCommitOfRouting(t *testing.T) {
	t.Parallel()
	m, b := testMesh(), NewBuilder()
	s := spec{key: key("", "ns", "a"), ports: []uint16{80, 90}}
	v, w := &VirtualService{Namespace: "ns", Hosts: []string{"x"}}, &VirtualService{Namespace: "ns", Hosts: []string{"x"}}
	scopes := NewScopes(nil, "root", map[string]*ScopeSpace{"ns": {Sidecar: sidecarRule("./*")}}, nil)
	unclaimed := []UnclaimedHosts{{v, []string{"x"}}}
	g := &GatewaysView{Mesh: m}
	pc, d := b.Commit(Commit{
		Mesh: m, Services: []Change{{s.key, s.fresh(m)}}, Gateways: g, Unclaimed: unclaimed, Scopes: scopes, Scoped: []string{"y", "ns", "y"},
	})
	if !d.Gateways || !slices.Equal(d.Scopes, []string{"ns", "y"}) || pc.Gateways != g || g.Revision() != 1 || pc.ScopeOf(ScopeKey{Namespace: "ns"}) == nil {
		t.Errorf("%+v", d)
	}
	if p := pc.Port(80); len(p.Unclaimed) != 1 || len(pc.Unclaimed()) != 1 {
		t.Errorf("%+v", p)
	}
	g.Derived().Do(MemoKey{}, func() any { return "built" })
	for i, step := range []struct {
		commit   Commit
		ports    int
		gateways bool
	}{
		{Commit{Gateways: g, Unclaimed: unclaimed}, 0, false},
		{Commit{Gateways: g, Unclaimed: []UnclaimedHosts{{v, []string{"x"}}}}, 0, false}, // the same, elsewhere
		{Commit{Gateways: g, Unclaimed: []UnclaimedHosts{{w, []string{"x"}}}}, 2, false},
		{Commit{Gateways: &GatewaysView{Mesh: m}, Unclaimed: []UnclaimedHosts{{w, []string{"x"}}}}, 0, true},
		{Commit{}, 2, true},
		{Commit{}, 0, false},
	} {
		next, d := b.Commit(step.commit)
		if len(d.Ports) != step.ports || d.Gateways != step.gateways || len(d.Shape) > 0 {
			t.Errorf("step %d: %+v", i, d)
		}
		if p := next.Port(80); len(p.Unclaimed) != len(step.commit.Unclaimed) || (p.Revision() == next.Version) != (step.ports > 0) {
			t.Errorf("step %d: %+v", i, p)
		}
		if step.gateways && next.Gateways != nil && (next.Gateways.Derived().Before(MemoKey{}) != "built" || next.Gateways.Revision() != next.Version) {
			t.Errorf("step %d: the Gateways do not follow those before", i)
		}
	}
}

// A port that is new has the unclaimed hosts too, and so have all ports under new settings.
func TestUnclaimedHostsOfNewPorts(t *testing.T) {
	t.Parallel()
	m, b := testMesh(), NewBuilder()
	s := spec{key: key("", "ns", "a"), ports: []uint16{80}}
	unclaimed := []UnclaimedHosts{{&VirtualService{}, []string{"x"}}}
	b.Commit(Commit{Mesh: m, Services: []Change{{s.key, s.fresh(m)}}, Unclaimed: unclaimed})
	s.ports = []uint16{80, 90}
	pc, _ := b.Commit(Commit{Services: []Change{{s.key, s.fresh(m)}}, Unclaimed: unclaimed})
	if len(pc.Port(90).Unclaimed) != 1 {
		t.Error("a new port lacks the unclaimed hosts")
	}
	m = testMesh()
	pc, d := b.Commit(Commit{Mesh: m, Services: []Change{{s.key, s.fresh(m)}}, Unclaimed: unclaimed})
	if len(pc.Port(80).Unclaimed) != 1 || len(pc.Port(90).Unclaimed) != 1 || !d.Mesh {
		t.Error("under new settings ports lack the unclaimed hosts")
	}
}

func TestGatewayHostAdmits(t *testing.T) {
	t.Parallel()
	v := &VirtualService{Namespace: "ns", Hosts: []string{"a.example", "*.com"}}
	for h, want := range map[GatewayHost]bool{
		{"*", "*"}: true, {"ns", "a.example"}: true, {"x", "a.example"}: false, {"*", "*.example"}: true, {"*", "b.example"}: false, {"ns", "b.com"}: true, {"ns", "*.b.com"}: true, {"ns", "com"}: false,
	} {
		if got := h.Admits(v); got != want {
			t.Errorf("%v: %v", h, got)
		}
	}
	g := &GatewayServer{Namespace: "ns", Gateway: "gw"}
	if g.Name() != "ns/gw" || !g.Selects(nil) {
		t.Errorf("%s", g.Name())
	}
	if g.Selector = (model.Labels{"a": "b"}); g.Selects(nil) || !g.Selects(model.Labels{"a": "b", "c": "d"}) {
		t.Error("a selector")
	}
}
