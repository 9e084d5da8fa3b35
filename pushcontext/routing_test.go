package pushcontext

import (
	"slices"
	"testing"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
)

// What a commit says of Gateways, VirtualServices and scopes is published, and a delta names it if it differs.
func TestCommitOfRouting(t *testing.T) {
	t.Parallel()
	m, b := testMesh(), NewBuilder()
	s := spec{key: key("", "ns", "a"), ports: []uint16{80, 90}}
	v, w := routesOf(MeshGateway), routesOf(MeshGateway)
	elsewhere, streams := routesOf("ns/gw"), routesOf(MeshGateway)
	streams.Spec = &networking.VirtualService{Tcp: []*networking.TCPRoute{{}}}
	scopes := NewScopes(nil, "root", map[string]*ScopeSpace{"ns": {Sidecar: sidecarRule("./*")}}, nil)
	g := &GatewaysView{Mesh: m}
	pc, d := b.Commit(Commit{
		Mesh: m, Services: []Change{{s.key, s.fresh(m)}}, Gateways: g, VirtualServices: []*VirtualService{elsewhere, v, streams}, Scopes: scopes, Scoped: []string{"y", "ns", "y"},
	})
	if !d.Gateways || !slices.Equal(d.Scopes, []string{"ns", "y"}) || pc.Gateways != g || g.Revision() != 1 || pc.ScopeOf(ScopeKey{Namespace: "ns"}) == nil {
		t.Errorf("%+v", d)
	}
	if p := pc.Port(80); !slices.Equal(p.Routes, []*VirtualService{v}) || len(pc.Port(90).Routes) > 0 {
		t.Errorf("%+v", p)
	}
	g.Derived().Do(MemoKey{}, func() any { return "built" })
	for i, step := range []struct {
		commit   Commit
		ports    int
		gateways bool
	}{
		{Commit{Gateways: g, VirtualServices: []*VirtualService{v}}, 0, false}, // what is not of sidecars and HTTP does not count
		{Commit{Gateways: g, VirtualServices: []*VirtualService{w}}, 1, false},
		{Commit{Gateways: &GatewaysView{Mesh: m}, VirtualServices: []*VirtualService{w}}, 0, true},
		{Commit{}, 1, true},
		{Commit{}, 0, false},
	} {
		next, d := b.Commit(step.commit)
		if len(d.Ports) != step.ports || d.Gateways != step.gateways || len(d.Shape) > 0 {
			t.Errorf("step %d: %+v", i, d)
		}
		if p := next.Port(80); len(p.Routes) != len(step.commit.VirtualServices) || (p.Revision() == next.Version) != (step.ports > 0) {
			t.Errorf("step %d: %+v", i, p)
		}
		if step.gateways && next.Gateways != nil && (next.Gateways.Derived().Before(MemoKey{}) != "built" || next.Gateways.Revision() != next.Version) {
			t.Errorf("step %d: the Gateways do not follow those before", i)
		}
	}
}

// routesOf are HTTP routes for a gateway.
func routesOf(gateway string) *VirtualService {
	return &VirtualService{Namespace: "ns", Hosts: []string{"x"}, Gateways: []string{gateway}, Spec: &networking.VirtualService{Http: []*networking.HTTPRoute{{}}}}
}

// Port 80 has the VirtualServices when it is new, and under new settings.
func TestRoutesOfNewPorts(t *testing.T) {
	t.Parallel()
	m, b := testMesh(), NewBuilder()
	s := spec{key: key("", "ns", "a"), ports: []uint16{90}}
	routes := []*VirtualService{routesOf(MeshGateway)}
	_, d := b.Commit(Commit{Mesh: m, Services: []Change{{s.key, s.fresh(m)}}, VirtualServices: routes})
	if !slices.Equal(d.Ports, []uint16{90}) {
		t.Errorf("ports %v", d.Ports)
	}
	s.ports = []uint16{80, 90}
	pc, _ := b.Commit(Commit{Services: []Change{{s.key, s.fresh(m)}}, VirtualServices: routes})
	if len(pc.Port(80).Routes) != 1 {
		t.Error("the new port lacks the routes")
	}
	m = testMesh()
	pc, d = b.Commit(Commit{Mesh: m, Services: []Change{{s.key, s.fresh(m)}}, VirtualServices: routes})
	if len(pc.Port(80).Routes) != 1 || len(pc.Port(90).Routes) > 0 || !d.Mesh {
		t.Error("under new settings the port lacks the routes")
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
