package gen_test

import (
	"bytes"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/pushcontext"
	"github.com/isthmus-mesh/isthmus/xds/gen"
)

func TestKey(t *testing.T) {
	t.Parallel()
	shape := func(h string) pushcontext.ViewKey { return pushcontext.ViewKey{Kind: pushcontext.ViewShape, Host: h} }
	service := func(h string) pushcontext.ViewKey {
		return pushcontext.ViewKey{Kind: pushcontext.ViewService, Host: h}
	}
	port := func(n uint16) pushcontext.ViewKey { return pushcontext.ViewKey{Kind: pushcontext.ViewPort, Port: n} }
	targets, mesh := pushcontext.ViewKey{Kind: pushcontext.ViewTargets}, pushcontext.ViewKey{Kind: pushcontext.ViewMesh}
	gateways := pushcontext.ViewKey{Kind: pushcontext.ViewGateways}
	for _, c := range []struct {
		g    gen.Generator
		name string
		want pushcontext.ViewKey
		ok   bool
	}{
		{gen.Clusters{}, "outbound|80||a.example", shape("a.example"), true},
		{gen.Clusters{}, "outbound|80||*.a.example", shape("*.a.example"), true},
		{gen.Clusters{}, "inbound|8080||", targets, true},
		{gen.Clusters{}, "BlackHoleCluster", mesh, true},
		{gen.Clusters{}, "PassthroughCluster", mesh, true},
		{gen.Clusters{}, "InboundPassthroughCluster", mesh, true},
		{gen.Endpoints{}, "outbound|80||a.example", service("a.example"), true},
		{gen.Endpoints{}, "local_cluster", pushcontext.ViewKey{Kind: pushcontext.ViewPeers}, true},
		{gen.Clusters{}, "outbound_.80_._.a.example", shape("a.example"), true},
		{gen.Endpoints{}, "outbound_.80_._.a.example", service("a.example"), true},
		{gen.Listeners{}, "gateway_0.0.0.0_15443", gateways, true},
		{gen.Listeners{}, "gateway_unix:///run/gw.sock_80", gateways, true},
		{gen.Listeners{}, "0.0.0.0_80", port(80), true},
		{gen.Listeners{}, "2001:db8::1_80", port(80), true},
		{gen.Listeners{}, "virtualOutbound", mesh, true},
		{gen.Listeners{}, "virtualInbound", targets, true},
		{gen.Routes{}, "80", port(80), true},
		{gen.Routes{}, "exposed.8080", port(8080), true},
		{gen.Routes{}, "http.8080", gateways, true},
		{gen.Routes{}, "http.8080.10.0.0.1", gateways, true},
		{gen.Routes{}, "http.8080.2001:db8::1", gateways, true},
		{gen.Routes{}, "http.8080.unix:///run/gw.sock", gateways, true},
		{gen.Routes{}, "http.0.unix:///run/gw.sock", gateways, true},
		{gen.Routes{}, "https.0.https.gw.istio-system.unix:///run/gw.sock", gateways, true},
		{gen.Listeners{}, "gateway_unix:///run/gw.sock_0", gateways, true},
		{gen.Routes{}, "https.443.https.gw.istio-system", gateways, true},
		{gen.Routes{}, "https.443.https.my.gw.istio-system.2001:db8::1", gateways, true},
		// Tables of services of these names, whose protocol is detected.
		{gen.Routes{}, "http.8080.svc.cluster.local:80", port(80), true},
		{gen.Routes{}, "https.443.svc.cluster.local:80", port(80), true},
		{gen.Routes{}, "a.example:9000", port(9000), true},
		{gen.Clusters{}, "outbound|80|v1|a.example", shape("a.example"), true},
		{gen.Endpoints{}, "outbound|80|v1|a.example", service("a.example"), true},
		{gen.Clusters{}, "outbound_.80_.v1_.a.example", shape("a.example"), true},
		{gen.Endpoints{}, "outbound_.80_.v1_.a.example", service("a.example"), true},
		{g: gen.Clusters{}, name: "outbound|80|a.example"},
		{g: gen.Clusters{}, name: "outbound|80|v|1|a.example"},
		{g: gen.Clusters{}, name: "outbound|80|v_.1|a.example"},
		{g: gen.Clusters{}, name: "outbound|080||a.example"},
		{g: gen.Clusters{}, name: "outbound|0||a.example"},
		{g: gen.Clusters{}, name: "outbound|65536||a.example"},
		{g: gen.Clusters{}, name: "outbound|80||"},
		{g: gen.Clusters{}, name: "inbound|80|x|"},
		{g: gen.Clusters{}, name: "outbound_.80_._."},
		{g: gen.Clusters{}, name: "outbound_.80||a.example"},
		{g: gen.Clusters{}, name: ""},
		{g: gen.Endpoints{}, name: "inbound|80||"},
		{g: gen.Listeners{}, name: "a.example_80"},
		{g: gen.Listeners{}, name: "0.0.0.0_"},
		{g: gen.Listeners{}, name: "0.0.0.0"},
		{g: gen.Listeners{}, name: "010.0.0.1_80"},
		{g: gen.Routes{}, name: "http."},
		{g: gen.Routes{}, name: ":80"},
		{g: gen.Routes{}, name: "+80"},
		{g: gen.Routes{}, name: "https.443.a.b"},
		{g: gen.Routes{}, name: "http.8080.a"},
	} {
		got, ok := c.g.Key(c.name)
		if ok != c.ok || ok && got != c.want {
			t.Errorf("%T %q: %+v, %v", c.g, c.name, got, ok)
		}
	}
}

// FuzzKey: any name a client may send gives a key of a kind that the generator declares, or none, and
// building it from a view that has no such resource is an error, never a panic.
func FuzzKey(f *testing.F) {
	for _, s := range []string{"outbound|80||a", "inbound|80||", "0.0.0.0_80", "::_80", "80", "http.80", "a:80", "virtualInbound", "BlackHoleCluster", "|", "_", ":", "outbound|||",
		"outbound_.80_._.a.ns.svc.cluster.local", "outbound|80|v1|a.ns.svc.cluster.local", "outbound_.80_.v1_.a.ns.svc.cluster.local", "gateway_0.0.0.0_8080", "http.8080", "https.443.https.web.istio-system"} {
		f.Add(s)
	}
	m := newMesh(crossing)
	s := underSubsets(svc{host: "a.ns.svc.cluster.local", ports: []model.Port{autoPort(80)}, vips: members("c1", "10.0.0.1")}, "v1", "v2")
	v := s.view(m)
	views := []pushcontext.View{v, v.Shape, portView(80, m, s), &pushcontext.TargetsView{Mesh: m.MeshView, Targets: []pushcontext.Target{{Host: "a", Port: 80, Endpoint: 80}}}, m.MeshView,
		gatewaysView(m, gatewayOf("web", httpServer(8080, "*"), tlsServer(443, fileTLS(), "a.example")))}
	classes := []gen.Class{sidecar("c1", "ns"), router("c1", "ns", forwarding(7))}
	f.Fuzz(func(t *testing.T, name string) {
		for i := range 2 * len(gen.All()) {
			g, class := gen.All()[i/2], classes[i%2]
			k, ok := g.Key(name)
			if ok && !slices.Contains(g.Kinds(), k.Kind) {
				t.Errorf("%T %q: kind %d is not declared", g, name, k.Kind)
			}
			for _, v := range views {
				c := class.Keep(g.Traits(v))
				b, err := g.Build(v, c, name)
				if (err == nil) != slices.Contains(g.Names(v, c), name) {
					t.Errorf("%T %q of a %T: listed and built disagree (%v)", g, name, v, err)
				}
				if err == nil && (!ok || k.Kind != kindOf(v) || len(b) == 0) {
					t.Errorf("%T %q: built from a view that is not its key's", g, name)
				}
			}
		}
	})
}

// Whatever a resource depends on is among the declared traits: made for the whole class and for the
// reduced one it is the same.
func TestTraitsAreComplete(t *testing.T) {
	t.Parallel()
	rnd := rand.New(rand.NewPCG(1, 2))
	for _, s := range scenarios() {
		for range 40 {
			s.class = randomClass(rnd)
			for _, g := range gen.All() {
				for _, v := range s.views() {
					if !slices.Contains(g.Kinds(), kindOf(v)) {
						continue
					}
					sameForReduced(t, g, v, s.class)
				}
			}
		}
	}
}

func sameForReduced(t *testing.T, g gen.Generator, v pushcontext.View, c gen.Class) {
	t.Helper()
	small := c.Keep(g.Traits(v))
	whole, reduced := g.Names(v, c), g.Names(v, small)
	if !slices.Equal(whole, reduced) {
		t.Fatalf("%T of a %T: names %v, reduced %v, class %+v", g, v, whole, reduced, c)
	}
	for _, n := range whole {
		a, err := g.Build(v, c, n)
		b, err2 := g.Build(v, small, n)
		if err != nil || err2 != nil || !bytes.Equal(a, b) {
			t.Fatalf("%T %s depends on a trait that it does not declare (%v, %v), class %+v", g, n, err, err2, c)
		}
	}
}

func randomClass(r *rand.Rand) gen.Class {
	families := pick(r, [2]bool{true, false}, [2]bool{false, true}, [2]bool{true, true}, [2]bool{})
	ns := pick(r, "shop", "other", "")
	c := gen.Class{
		Type: pick(r, gen.Sidecar, gen.Sidecar, gen.Router), Cluster: pick[model.ClusterID](r, "c1", "c2", "c3"), Network: pick(r, "", "n1", "n2"),
		Namespace: ns, DNSDomain: pick(r, ns+".svc.cluster.local", "vm.example"), Node: pick(r, "a", "b"),
		Locality: model.ParseLocality(pick(r, "", "r1/z1", "r2/z1")), IPv4: families[0], IPv6: families[1], IP: netip.MustParseAddr("10.1.0.21"),
		Interception: pick(r, gen.InterceptRedirect, gen.InterceptTProxy, gen.InterceptNone), Extensions: pick[gen.Extensions](r, 0, 15),
		HTTP10: r.IntN(2) == 0, ExposeServices: r.IntN(2) == 0, GatewayPorts: pick(r, "", "80:8080", "80:8081,443:8443"),
	}
	c.ClientTLS = pick(r, gen.TLSFiles{}, gen.TLSFiles{Chain: "/c", Key: "/k", Root: "/r"})
	c.ServerTLS = pick(r, gen.TLSFiles{}, gen.TLSFiles{Chain: "/sc", Key: "/sk", Root: "/sr"})
	c.Passthrough = pick[uint64](r, 0, 1, 6)
	if r.IntN(3) == 0 {
		c.Bind = netip.MustParseAddr("127.0.0.9")
	}
	return c
}
