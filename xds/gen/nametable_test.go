package gen_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/pushcontext"
	"github.com/isthmus-mesh/isthmus/xds/gen"
)

// namesOf commits services and gives the view that a name table is made from.
func namesOf(t testing.TB, m *settings, list ...svc) pushcontext.View {
	t.Helper()
	c := pushcontext.Commit{Mesh: m.MeshView, Time: time.Unix(1, 0)}
	for _, s := range list {
		v := s.view(m)
		c.Services = append(c.Services, pushcontext.Change{Key: v.Shape.Key, View: v})
	}
	pc, _ := pushcontext.NewBuilder().Commit(c)
	v, _ := pc.View(pushcontext.ViewKey{Kind: pushcontext.ViewNames}, &pushcontext.Reader{})
	return v
}

// fields gives the values of an encoded message of strings and messages by number.
func fields(t testing.TB, b []byte) map[protowire.Number][]string {
	t.Helper()
	out := map[protowire.Number][]string{}
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		v, m := protowire.ConsumeBytes(b[max(n, 0):])
		if n < 0 || m < 0 || typ != protowire.BytesType {
			t.Fatalf("not a message: %q", b)
		}
		out[num] = append(out[num], string(v))
		b = b[n+m:]
	}
	return out
}

// readNames gives "IP IP REGISTRY [SHORT.NAMESPACE]" by host.
func readNames(t testing.TB, b []byte) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, e := range fields(t, b)[1] {
		f := fields(t, []byte(e))
		host := f[1][0]
		if out[host] != "" {
			t.Errorf("%s is there twice", host)
		}
		info := fields(t, []byte(f[2][0]))
		line := strings.Join(info[1], " ") + " " + strings.Join(info[2], "")
		if len(info[3]) > 0 {
			line += " " + info[3][0] + "/" + info[4][0]
		}
		out[host] = line
	}
	return out
}

func names2(t testing.TB, v pushcontext.View, c gen.Class) map[string]string {
	t.Helper()
	list := build(t, gen.NameTable{}, v, c)
	if len(list) != 1 {
		t.Fatalf("%d tables", len(list))
	}
	return readNames(t, list[0].bytes)
}

// TestReadNameTable: a table is read as it is sent.
func TestReadNameTable(t *testing.T) {
	t.Parallel()
	v := namesOf(t, newMesh(), svc{host: "cart.shop.svc.cluster.local", ports: []model.Port{httpPort(80)}, vips: map[model.ClusterID][]string{"c1": {"10.0.0.1", "fd00::1"}}},
		svc{host: "api.example", ports: []model.Port{httpPort(443)}, vips: map[model.ClusterID][]string{"": {"240.240.0.1"}}, edit: func(s *pushcontext.ShapeView) { s.Native, s.MeshAddresses = false, true }}).(*pushcontext.NamesView)
	want := map[string]gen.NameInfo{
		"cart.shop.svc.cluster.local": {IPs: []string{"10.0.0.1"}, Registry: "Kubernetes", Shortname: "cart", Namespace: "shop"},
		"api.example":                 {IPs: []string{"240.240.0.1"}, Registry: "External"},
	}
	if d := cmp.Diff(want, gen.ReadNameTable(v, sidecar("c1", "shop"))); d != "" {
		t.Error(d)
	}
	if got := gen.ReadNameTable(v, router("c1", "edge")); got != nil {
		t.Errorf("a router has %v", got)
	}
}

func hostname(n string) func(*model.Endpoint) { return func(e *model.Endpoint) { e.Hostname = n } }

// TestNameTable: a name stands for what the proxy would reach by it.
func TestNameTable(t *testing.T) {
	t.Parallel()
	headless := func(s *pushcontext.ShapeView) { s.Native, s.Resolution = true, model.Passthrough }
	entry := func(s *pushcontext.ShapeView) { s.Native, s.MeshAddresses = false, true }
	v := namesOf(t, newMesh(),
		svc{host: "cart.shop.svc.cluster.local", ports: []model.Port{httpPort(80)}, vips: map[model.ClusterID][]string{"c1": {"10.0.0.1", "fd00::1"}, "c2": {"10.9.0.1"}}},
		svc{host: "pay.shop.svc.cluster.local", ports: []model.Port{httpPort(80)}, vips: map[model.ClusterID][]string{"c2": {"10.9.0.2"}}},
		svc{host: "twin.shop.svc.cluster.local", ports: []model.Port{httpPort(80)}, vips: map[model.ClusterID][]string{"c2": {"10.0.0.1"}}},
		svc{host: "hidden.shop.svc.cluster.local", ports: []model.Port{httpPort(80)}, vips: map[model.ClusterID][]string{"c1": {"10.0.0.9"}},
			edit: func(s *pushcontext.ShapeView) { s.Export = pushcontext.Export{Namespaces: []string{"other"}} }},
		svc{host: "local.shop.svc.cluster.local", ports: []model.Port{httpPort(80)}, vips: map[model.ClusterID][]string{"c2": {"10.9.0.3"}},
			edit: func(s *pushcontext.ShapeView) { s.Key.Cluster = "c2" }},
		svc{host: "set.shop.svc.clusterset.local", ports: []model.Port{httpPort(80)}, vips: map[model.ClusterID][]string{"c1": {"10.0.0.7"}},
			edit: func(s *pushcontext.ShapeView) { s.Native = true }},
		svc{host: "api.example", ports: []model.Port{httpPort(443)}, vips: map[model.ClusterID][]string{"": {"240.240.0.1", "10.8.0.0/16"}}, edit: entry},
		svc{host: "*.wild.example", ports: []model.Port{httpPort(443)}, vips: map[model.ClusterID][]string{"": {"240.240.0.2"}}, edit: entry},
		svc{host: "*", ports: []model.Port{httpPort(443)}, vips: map[model.ClusterID][]string{"": {"240.240.0.3"}}, edit: entry},
		svc{host: "none.example", ports: []model.Port{httpPort(443)}, vips: map[model.ClusterID][]string{"": {"240.240.0.4"}}, resolution: model.Passthrough, edit: entry},
		svc{host: "bare.example", ports: []model.Port{httpPort(443)}, resolution: model.DNSLB, edit: entry},
		svc{host: "db.shop.svc.cluster.local", ports: []model.Port{tcpPort(5432), httpPort(80)}, edit: headless, endpoints: []*model.Endpoint{
			ep("c2", "tcp", "10.2.0.1:5432", network("n1"), hostname("db-0")), ep("c1", "tcp", "10.1.0.1:5432", network("n1"), hostname("db-0")),
			ep("c1", "http", "10.1.0.1:80", network("n1"), hostname("db-0")), ep("c2", "tcp", "10.2.0.2:5432", hostname("db-1")),
			ep("c2", "tcp", "10.3.0.1:5432", network("n2"), hostname("db-2")), ep("c1", "tcp", "10.1.0.3:5432", network("n1"), hostname("db-3"), health(model.Unhealthy)),
			ep("c1", "tcp", "[fd00::5]:5432", network("n1")), ep("c1", "tcp", "10.1.0.4:5432", network("n1")),
		}},
		svc{host: "empty.shop.svc.cluster.local", ports: []model.Port{tcpPort(1)}, edit: headless},
	)
	c := sidecar("c1", "shop", func(c *gen.Class) { c.Network = "n1" })
	want := map[string]string{
		"cart.shop.svc.cluster.local":    "10.0.0.1 Kubernetes cart/shop",
		"pay.shop.svc.cluster.local":     "10.9.0.2 Kubernetes pay/shop",
		"set.shop.svc.clusterset.local":  "10.0.0.7 Kubernetes",
		"api.example":                    "240.240.0.1 External",
		"*.wild.example":                 "240.240.0.2 External",
		"db.shop.svc.cluster.local":      "10.1.0.1 10.1.0.4 10.2.0.1 10.2.0.2 Kubernetes db/shop",
		"db-0.db.shop.svc.cluster.local": "10.1.0.1 Kubernetes db-0.db/shop",
		"db-1.db.shop.svc.cluster.local": "10.2.0.2 Kubernetes db-1.db/shop",
	}
	if d := cmp.Diff(want, names2(t, v, c)); d != "" {
		t.Error(d)
	}
	both := names2(t, v, sidecar("c1", "shop", func(c *gen.Class) { c.Network, c.IPv6 = "n1", true }))
	if got := both["cart.shop.svc.cluster.local"]; got != "10.0.0.1 fd00::1 Kubernetes cart/shop" {
		t.Errorf("a proxy of both families is told %s", got)
	}
	remote := names2(t, v, sidecar("c2", "shop", func(c *gen.Class) { c.Network = "n2" }))
	if got := remote["twin.shop.svc.cluster.local"] + remote["db-2.db.shop.svc.cluster.local"]; got != "10.0.0.1 Kubernetes twin/shop10.3.0.1 Kubernetes db-2.db/shop" {
		t.Errorf("a proxy elsewhere is told %s", got)
	}
	if got := build(t, gen.NameTable{}, v, router("c1", "shop")); len(got) > 0 {
		t.Error("a router is told names")
	}
}

// BenchmarkNameTable10k is the whole table of one class after a change.
func BenchmarkNameTable10k(b *testing.B) {
	v := namesOf(b, newMesh(), manyServices(10_000, httpPort(80))...)
	g, c := gen.NameTable{}, sidecar("c1", "ns-1")
	c = c.Keep(g.Traits(v))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := g.Build(v, c, g.Names(v, c)[0]); err != nil {
			b.Fatal(err)
		}
	}
}
