package gen_test

import (
	"fmt"
	"strings"
	"testing"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/isthmus-mesh/isthmus/pushcontext"
	"github.com/isthmus-mesh/isthmus/xds/gen"
)

// TestVirtualHostsAreThoseOfTheTable: a table and its virtual hosts, sent on their own, are together what the
// table is when it is sent whole. Each host calls itself as the resource is called.
func TestVirtualHostsAreThoseOfTheTable(t *testing.T) {
	t.Parallel()
	for _, s := range scenarios() {
		if s.class.Type == gen.Router {
			continue
		}
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			for _, v := range s.views() {
				if p, ok := v.(*pushcontext.PortView); ok {
					together(t, p, s.class)
				}
			}
		})
	}
}

func together(t *testing.T, v *pushcontext.PortView, c gen.Class) {
	t.Helper()
	c.VHDS = false
	whole := tablesOf(t, v, c)
	if got := build(t, gen.VirtualHosts{}, v, c); len(got) > 0 {
		t.Errorf("%d hosts are sent on their own to a proxy that has them in its tables", len(got))
	}
	c.VHDS = true
	split := tablesOf(t, v, c)
	name := fmt.Sprint(v.Number)
	if table := split[name]; table != nil {
		catchAll := table.VirtualHosts
		table.VirtualHosts = nil
		for _, r := range build(t, gen.VirtualHosts{}, v, c) {
			h := decode(t, r).(*routev3.VirtualHost)
			own, ok := strings.CutPrefix(r.name, name+"/")
			if h.Name != r.name || !ok {
				t.Errorf("%s calls itself %s", r.name, h.Name)
			}
			h.Name = own
			table.VirtualHosts = append(table.VirtualHosts, h)
		}
		table.VirtualHosts = append(table.VirtualHosts, catchAll...)
		if table.Vhds == nil {
			t.Errorf("table %s does not say where its hosts are", name)
		}
		table.Vhds = nil
	}
	if d := cmp.Diff(whole, split, protocmp.Transform()); d != "" {
		t.Errorf("port %d (-whole +split):\n%s", v.Number, d)
	}
}

func tablesOf(t *testing.T, v *pushcontext.PortView, c gen.Class) map[string]*routev3.RouteConfiguration {
	t.Helper()
	out := map[string]*routev3.RouteConfiguration{}
	for _, r := range build(t, gen.Routes{}, v, c) {
		out[r.name] = decode(t, r).(*routev3.RouteConfiguration)
	}
	return out
}

func TestVirtualHostNames(t *testing.T) {
	t.Parallel()
	g := gen.VirtualHosts{}
	if k, ok := g.Key("80/a.example:80"); !ok || k != (pushcontext.ViewKey{Kind: pushcontext.ViewPort, Port: 80}) || g.Whole(k) != "80" {
		t.Errorf("%v %v", k, ok)
	}
	for _, name := range []string{"", "80", "/", "/a", "x/a", "080/a", "70000/a", "a.example:80/a"} {
		if k, ok := g.Key(name); ok {
			t.Errorf("%q is made from %v", name, k)
		}
	}
	if k, ok := g.Key(g.None("80")); !ok || k.Port != 80 {
		t.Errorf("%q does not belong to its table", g.None("80"))
	}
}

// TestBundle: what is made at once is what is made one by one, also after a change of one host, when the others
// stay what they were to the byte.
func TestBundle(t *testing.T) {
	t.Parallel()
	m := newMesh()
	services := manyServices(50, httpPort(80))
	c := sidecar("c1", "ns-1")
	c.VHDS = true
	b := pushcontext.NewBuilder()
	commit := pushcontext.Commit{Mesh: m.MeshView}
	for _, s := range services {
		v := s.view(m)
		commit.Services = append(commit.Services, pushcontext.Change{Key: v.Shape.Key, View: v})
	}
	pc, _ := b.Commit(commit)
	names, first := bundle(t, pc.Port(80), c)
	changed := services[7]
	changed.vips = nil
	v := changed.view(m)
	pc, _ = b.Commit(pushcontext.Commit{Services: []pushcontext.Change{{Key: v.Shape.Key, View: v}}})
	again, second := bundle(t, pc.Port(80), c)
	if d := cmp.Diff(names, again); d != "" || len(names) != len(services) {
		t.Fatalf("%d names: %s", len(names), d)
	}
	for i, n := range names {
		if same := &first[i][0] == &second[i][0]; same == strings.Contains(n, changed.host) {
			t.Errorf("%s: made once more is %v", n, !same)
		}
	}
}

func bundle(t *testing.T, v *pushcontext.PortView, c gen.Class) ([]string, [][]byte) {
	t.Helper()
	g := gen.VirtualHosts{}
	c = c.Keep(g.Traits(v))
	names, bodies, err := g.Bundle(v, c)
	if err != nil || len(names) != len(bodies) {
		t.Fatalf("%d names, %d bodies, %v", len(names), len(bodies), err)
	}
	if d := cmp.Diff(names, g.Names(v, c)); d != "" {
		t.Error(d)
	}
	for i, n := range names {
		if one, err := g.Build(v, c, n); err != nil || string(one) != string(bodies[i]) {
			t.Errorf("%s on its own is %q, %v", n, one, err)
		}
	}
	return names, bodies
}

// BenchmarkVirtualHosts1k makes the list anew after one of 1 000 services has changed.
func BenchmarkVirtualHosts1k(b *testing.B) {
	m := newMesh()
	services := manyServices(1000, httpPort(80))
	v := portView(80, m, services...)
	g, c := gen.VirtualHosts{}, sidecar("c1", "ns-1")
	c.VHDS = true
	c = c.Keep(g.Traits(v))
	if len(g.Names(v, c)) != len(services) {
		b.Fatal("hosts are missing")
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		changed := &pushcontext.PortView{Number: 80, Mesh: m.MeshView, Services: append([]*pushcontext.ShapeView(nil), v.Services...)}
		changed.Services[i%len(services)] = services[i%len(services)].shape(m)
		if _, _, err := g.Bundle(changed, c); err != nil {
			b.Fatal(err)
		}
	}
}
