package gen_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	tcpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"
	"github.com/google/go-cmp/cmp"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/pushcontext"
	"github.com/isthmus-mesh/isthmus/xds/gen"
)

// tcpClusters gives, for each listener of a port, the cluster that plain TCP without server name or
// known range goes to.
func tcpClusters(t testing.TB, v *pushcontext.PortView, c gen.Class) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, r := range build(t, gen.Listeners{}, v, c) {
		l := decode(t, r).(*listenerv3.Listener)
		chain := l.DefaultFilterChain
		for _, f := range l.FilterChains {
			if f.FilterChainMatch == nil {
				chain = f
			}
		}
		out[l.Name] = ""
		if chain != nil {
			out[l.Name] = proxied(t, chain)
		}
	}
	return out
}

func proxied(t testing.TB, f *listenerv3.FilterChain) string {
	t.Helper()
	m, err := f.Filters[len(f.Filters)-1].GetTypedConfig().UnmarshalNew()
	if err != nil {
		t.Fatal(err)
	}
	if p, ok := m.(*tcpv3.TcpProxy); ok {
		return p.GetCluster()
	}
	return "http"
}

// domains gives the domains of each virtual host of a port's shared table.
func domains(t testing.TB, v *pushcontext.PortView, c gen.Class) map[string][]string {
	t.Helper()
	out := map[string][]string{}
	seen := map[string]bool{}
	for _, r := range build(t, gen.Routes{}, v, c) {
		m := decode(t, r).(*routev3.RouteConfiguration)
		if m.Name != fmt.Sprint(v.Number) && m.Name != "exposed."+fmt.Sprint(v.Number) {
			continue
		}
		for _, h := range m.VirtualHosts {
			if h.Name == "allow_any" || h.Name == "block_all" {
				continue
			}
			out[h.Name] = h.Domains
			for _, d := range h.Domains {
				if seen[d] {
					t.Errorf("the domain %s is there twice: Envoy would refuse the table", d)
				}
				seen[d] = true
			}
		}
	}
	return out
}

func names(t testing.TB, g gen.Generator, v pushcontext.View, c gen.Class) []string {
	t.Helper()
	var out []string
	for _, r := range build(t, g, v, c) {
		out = append(out, r.name)
	}
	return out
}

func members(pairs ...string) map[model.ClusterID][]string {
	out := map[model.ClusterID][]string{}
	for i := 0; i < len(pairs); i += 2 {
		out[model.ClusterID(pairs[i])] = append(out[model.ClusterID(pairs[i])], pairs[i+1])
	}
	return out
}

// Incident 66: with reused ranges an address means the service of the proxy's own member, and another
// member's address is used only where it is free.
func TestIncident66OverlappingAddresses(t *testing.T) {
	t.Parallel()
	far := svc{host: "far.a.svc.cluster.local", ports: []model.Port{tcpPort(5000)}, vips: members("c2", "10.0.0.1"), age: 9}
	near := svc{host: "near.a.svc.cluster.local", ports: []model.Port{tcpPort(5000)}, vips: members("c1", "10.0.0.1")}
	free := svc{host: "free.a.svc.cluster.local", ports: []model.Port{tcpPort(5000)}, vips: members("c2", "10.0.0.2")}
	both := svc{host: "both.a.svc.cluster.local", ports: []model.Port{tcpPort(5000)}, vips: members("c1", "10.0.0.5", "c2", "10.0.0.6")}
	v := portView(5000, newMesh(), far, near, free, both)
	for _, c := range []struct {
		class gen.Class
		want  map[string]string
	}{
		{sidecar("c1", "a"), map[string]string{"10.0.0.1_5000": "outbound|5000||near.a.svc.cluster.local",
			"10.0.0.2_5000": "outbound|5000||free.a.svc.cluster.local", "10.0.0.5_5000": "outbound|5000||both.a.svc.cluster.local"}},
		{sidecar("c2", "a"), map[string]string{"10.0.0.1_5000": "outbound|5000||far.a.svc.cluster.local",
			"10.0.0.2_5000": "outbound|5000||free.a.svc.cluster.local", "10.0.0.6_5000": "outbound|5000||both.a.svc.cluster.local"}},
		{sidecar("c3", "a"), map[string]string{"10.0.0.1_5000": "outbound|5000||far.a.svc.cluster.local",
			"10.0.0.2_5000": "outbound|5000||free.a.svc.cluster.local", "10.0.0.5_5000": "outbound|5000||both.a.svc.cluster.local"}},
	} {
		if d := cmp.Diff(c.want, tcpClusters(t, v, c.class)); d != "" {
			t.Errorf("proxy of %s:\n%s", c.class.Cluster, d)
		}
	}
}

func TestIncident66OverlappingAddressesInRoutes(t *testing.T) {
	t.Parallel()
	far := svc{host: "far.a.svc.cluster.local", ports: []model.Port{httpPort(80)}, vips: members("c2", "10.0.0.1")}
	near := svc{host: "near.a.svc.cluster.local", ports: []model.Port{httpPort(80)}, vips: members("c1", "10.0.0.1")}
	v := portView(80, newMesh(), far, near)
	for cluster, want := range map[string][2]bool{"c1": {false, true}, "c2": {true, false}} {
		d := domains(t, v, sidecar(cluster, "b"))
		got := [2]bool{slices.Contains(d["far.a.svc.cluster.local:80"], "10.0.0.1"), slices.Contains(d["near.a.svc.cluster.local:80"], "10.0.0.1")}
		if got != want {
			t.Errorf("proxy of %s: 10.0.0.1 means far: %v, near: %v", cluster, got[0], got[1])
		}
	}
}

// Incident 49: headless in two members, with an address in a third: the address holds in the third, and
// the any-address is never listened on for it.
func TestIncident49HeadlessInSomeMembers(t *testing.T) {
	t.Parallel()
	s := svc{host: "db.a.svc.cluster.local", ports: []model.Port{tcpPort(5000)}, vips: members("c1", "0.0.0.0", "c3", "10.3.0.1"),
		resolution: model.Passthrough, inline: []*model.Endpoint{ep("c1", "tcp", "10.1.0.1:5000"), ep("c2", "tcp", "10.2.0.1:5000")}}
	v := portView(5000, newMesh(), s)
	cluster := "outbound|5000||db.a.svc.cluster.local"
	for c, want := range map[string]map[string]string{
		"c1": {"10.1.0.1_5000": cluster, "10.2.0.1_5000": cluster},
		"c3": {"10.3.0.1_5000": cluster},
	} {
		if d := cmp.Diff(want, tcpClusters(t, v, sidecar(c, "a"))); d != "" {
			t.Errorf("proxy of %s:\n%s", c, d)
		}
	}
}

// Incident 48: each port of a service that has different ports in different members is served.
func TestIncident48PortsOfAllMembers(t *testing.T) {
	t.Parallel()
	s := svc{host: "foo.a.svc.cluster.local", ports: []model.Port{httpPort(8080), {Name: "http2", Number: 8090, Protocol: model.ProtocolHTTP}}}.view(newMesh())
	want := []string{"outbound|8080||foo.a.svc.cluster.local", "outbound|8090||foo.a.svc.cluster.local"}
	if d := cmp.Diff(want, names(t, gen.Clusters{}, s.Shape, sidecar("c1", "a"))); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff(want, names(t, gen.Endpoints{}, s, sidecar("c1", "a"))); d != "" {
		t.Error(d)
	}
}

// Incident 50: a cluster subscribes to endpoints exactly if there is an assignment of its name.
func TestIncident50OneResolution(t *testing.T) {
	t.Parallel()
	for r := model.ClientSideLB; r <= model.DynamicDNS; r++ {
		for _, c := range []gen.Class{sidecar("c1", "a"), sidecar("c1", "a", noInterception), router("c1", "a")} {
			s := svc{host: "a.example", ns: "a", ports: []model.Port{httpPort(80), {Name: "dns", Number: 53, Protocol: model.ProtocolUDP}}, resolution: r,
				inline: []*model.Endpoint{ep("c1", "http", "a.example:80")}, endpoints: []*model.Endpoint{ep("c1", "http", "10.0.0.1:80")}}.view(newMesh())
			var subscribed []string
			for _, x := range build(t, gen.Clusters{}, s.Shape, c) {
				if m := decode(t, x).(*clusterv3.Cluster); m.GetType() == clusterv3.Cluster_EDS {
					subscribed = append(subscribed, m.EdsClusterConfig.ServiceName)
				}
			}
			if d := cmp.Diff(subscribed, names(t, gen.Endpoints{}, s, c)); d != "" {
				t.Errorf("%s, %+v:\n%s", r, c, d)
			}
		}
	}
}

// A DNS cluster without endpoints is there, for listeners and routes name it, and waits for nothing.
func TestDNSClusterWithoutEndpointsIsEmpty(t *testing.T) {
	t.Parallel()
	s := svc{host: "a.example", ns: "a", ports: []model.Port{httpPort(80), tcpPort(81)}, resolution: model.DNSLB,
		inline: []*model.Endpoint{ep("c1", "tcp", "a.example:81"), ep("c1", "http", "b.example:80", health(model.Terminating))}}
	got := map[string]string{}
	for _, x := range build(t, gen.Clusters{}, s.shape(newMesh()), sidecar("c1", "a")) {
		m := decode(t, x).(*clusterv3.Cluster)
		refreshed := m.ProtoReflect().Has(m.ProtoReflect().Descriptor().Fields().ByName("dns_refresh_rate"))
		got[m.Name] = fmt.Sprint(m.GetType(), len(m.GetLoadAssignment().GetEndpoints()), refreshed)
	}
	want := map[string]string{"outbound|80||a.example": "STATIC 0 false", "outbound|81||a.example": "STRICT_DNS 1 true"}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

// Incident 92: what a proxy may not see is in none of its listeners and routes, and where several
// services have one host they mean the same one as everywhere else.
func TestIncident92OneVisibility(t *testing.T) {
	t.Parallel()
	only := func(ns ...string) func(*pushcontext.ShapeView) {
		return func(s *pushcontext.ShapeView) { s.Export = pushcontext.Export{Namespaces: ns} }
	}
	m := newMesh()
	list := []svc{
		{host: "x.example", ns: "a", ports: []model.Port{tcpPort(5000)}, vips: members("c1", "10.0.0.1"), edit: only("a"), age: 3},
		{host: "x.example", ns: "b", ports: []model.Port{tcpPort(5000)}, vips: members("c1", "10.0.0.2"), edit: only("a", "b", "c"), age: 2},
		{host: "x.example", ns: "c", ports: []model.Port{tcpPort(5000)}, vips: members("c1", "10.0.0.3"), edit: only("d"), age: 1},
		{host: "none.example", ns: "a", ports: []model.Port{tcpPort(5000)}, vips: members("c1", "10.0.0.9"), edit: only()},
	}
	v := portView(5000, m, list...)
	for ns, want := range map[string][]string{"a": {"10.0.0.1_5000"}, "b": {"10.0.0.2_5000"}, "c": {"10.0.0.2_5000"}, "d": {"10.0.0.3_5000"}, "e": nil} {
		if d := cmp.Diff(want, names(t, gen.Listeners{}, v, sidecar("c1", ns))); d != "" {
			t.Errorf("namespace %s:\n%s", ns, d)
		}
		w := v.Means("x.example", &pushcontext.Reader{Cluster: "c1", Namespace: ns})
		if (w == nil) != (want == nil) || w != nil && w.Addresses["c1"][0].Addr().String()+"_5000" != want[0] {
			t.Errorf("namespace %s: listeners and clusters disagree on what the host means", ns)
		}
	}
}

// TestWinnerWithoutThePort: where the service that a host means lacks a port, nobody else serves it: the
// cluster would not exist.
func TestWinnerWithoutThePort(t *testing.T) {
	t.Parallel()
	list := []svc{
		{host: "h.example", ns: "a", ports: []model.Port{httpPort(80)}, age: 9},
		{host: "h.example", ns: "b", ports: []model.Port{httpPort(8080), tcpPort(9090)}, vips: members("c1", "10.9.9.9"), age: 1},
		{host: "other.example", ns: "a", ports: []model.Port{httpPort(8080), tcpPort(9090)}, vips: members("c1", "10.9.9.8")},
	}
	m := newMesh()
	for ns, want := range map[string][]string{"other": nil, "a": nil, "b": {"10.9.9.9_9090"}} {
		want = append([]string{"10.9.9.8_9090"}, want...)
		if d := cmp.Diff(want, names(t, gen.Listeners{}, portView(9090, m, list...), sidecar("c1", ns))); d != "" {
			t.Errorf("listeners of namespace %s:\n%s", ns, d)
		}
		_, routed := domains(t, portView(8080, m, list...), sidecar("c1", ns))["h.example:8080"]
		if routed != (ns == "b") {
			t.Errorf("namespace %s: routed to h.example:8080: %v", ns, routed)
		}
	}
}

func TestRouteDomains(t *testing.T) {
	t.Parallel()
	list := []svc{
		{host: "cart.shop.svc.cluster.local", ports: []model.Port{httpPort(80)}, vips: members("c1", "10.0.0.1", "c2", "10.0.0.2")},
		{host: "nodes.shop.svc.cluster.local", ports: []model.Port{httpPort(80)}, resolution: model.Passthrough},
		{host: "six.shop.svc.cluster.local", ports: []model.Port{httpPort(80)}, vips: members("c1", "2001:db8::6")},
		{host: "*.wild.example", ns: "shop", ports: []model.Port{httpPort(80)}},
		{host: "auto.shop.svc.cluster.local", ports: []model.Port{autoPort(80)}, vips: members("c1", "10.0.0.7")},
		{host: "db.shop.svc.cluster.local", ports: []model.Port{tcpPort(80)}, vips: members("c1", "10.0.0.8")},
		{host: "mesh.example", ns: "shop", ports: []model.Port{httpPort(80)}, vips: members("c9", "240.240.0.1"),
			edit: func(s *pushcontext.ShapeView) { s.MeshAddresses = true }},
	}
	v := portView(80, newMesh(), list...)
	dual := func(c *gen.Class) { c.IPv6 = true }
	fqdn := func(n string, more ...string) []string {
		return append([]string{n + ".shop.svc.cluster.local", n + ".shop.svc.cluster.local."}, more...)
	}
	want := map[string][]string{
		"cart.shop.svc.cluster.local:80": fqdn("cart", "cart", "cart.shop.svc", "cart.shop", "10.0.0.1"),
		"nodes.shop.svc.cluster.local:80": fqdn("nodes", "nodes", "nodes.shop.svc", "nodes.shop", "*.nodes.shop.svc.cluster.local",
			"*.nodes.shop.svc.cluster.local.", "*.nodes", "*.nodes.shop.svc", "*.nodes.shop"),
		"six.shop.svc.cluster.local:80":  fqdn("six", "six", "six.shop.svc", "six.shop", "[2001:db8::6]"),
		"*.wild.example:80":              {"*.wild.example"},
		"auto.shop.svc.cluster.local:80": fqdn("auto", "auto", "auto.shop.svc", "auto.shop", "10.0.0.7"),
		"mesh.example:80":                {"mesh.example", "mesh.example.", "240.240.0.1"},
	}
	if d := cmp.Diff(want, domains(t, v, sidecar("c1", "shop", dual))); d != "" {
		t.Errorf("own namespace:\n%s", d)
	}
	got := domains(t, v, sidecar("c2", "other"))
	if d := cmp.Diff(fqdn("cart", "cart.shop.svc", "cart.shop", "10.0.0.2"), got["cart.shop.svc.cluster.local:80"]); d != "" {
		t.Errorf("other namespace and member:\n%s", d)
	}
	if d := cmp.Diff(fqdn("six", "six.shop.svc", "six.shop"), got["six.shop.svc.cluster.local:80"]); d != "" {
		t.Errorf("another family's address:\n%s", d)
	}
	plain := domains(t, v, sidecar("c1", "shop", func(c *gen.Class) { c.DNSDomain = "vm.example" }))
	if d := cmp.Diff(fqdn("cart", "10.0.0.1"), plain["cart.shop.svc.cluster.local:80"]); d != "" {
		t.Errorf("a proxy outside the cluster's DNS domain:\n%s", d)
	}
	atRouter := domains(t, v, router("c1", "shop"))
	if d := cmp.Diff(fqdn("auto", "auto", "auto.shop.svc", "auto.shop"), atRouter["auto.shop.svc.cluster.local:80"]); d != "" {
		t.Errorf("a detected protocol at a router:\n%s", d)
	}
}

// Domains that two virtual hosts would share belong to one: Envoy would refuse the whole table.
func TestRouteDomainCollisions(t *testing.T) {
	t.Parallel()
	list := colliding()
	for _, c := range []gen.Class{sidecar("c1", "shop"), sidecar("c1", "other"), router("c1", "shop"), sidecar("c1", "shop", noInterception)} {
		v := portView(80, newMesh(), list...)
		first := domains(t, v, c)
		if got := first["cart.shop.svc.cluster.local:80"]; slices.Contains(got, "cart") || slices.Contains(got, "10.0.0.1") {
			t.Errorf("a short name or address of one service is another's own host: %v", got)
		}
		if d := cmp.Diff(first, domains(t, v, c)); d != "" {
			t.Errorf("the second table differs:\n%s", d)
		}
		if d := cmp.Diff(first["up.example:80"], []string(nil)); d != "" {
			t.Errorf("of hosts that differ in case only, the first has the domain:\n%s", d)
		}
	}
	// The shapes' encoded hosts, made where nothing collides, are not used where something does.
	m := newMesh()
	v := portView(80, m, list[0])
	domains(t, v, sidecar("c1", "shop"))
	with := &pushcontext.PortView{Number: 80, Mesh: m.MeshView, Services: append(portView(80, m, list[2]).Services, v.Services...)}
	domains(t, with, sidecar("c1", "shop"))
}

func TestNoneModeBindsLoopbackOnly(t *testing.T) {
	t.Parallel()
	list := conflicting()
	list = append(list, svc{host: "h.a.svc.cluster.local", ports: []model.Port{tcpPort(5000)}, resolution: model.Passthrough,
		inline: []*model.Endpoint{ep("c1", "tcp", "10.5.5.5:5000")}})
	v := portView(5000, newMesh(), list...)
	for _, c := range []struct {
		class gen.Class
		want  string
	}{
		{sidecar("c1", "a", noInterception), "127.0.0.1_5000"},
		{sidecar("c1", "a", noInterception, func(c *gen.Class) { c.IPv4, c.IPv6 = false, true }), "::1_5000"},
		{sidecar("c1", "a", noInterception, func(c *gen.Class) { c.Bind = netip.MustParseAddr("127.0.0.7") }), "127.0.0.7_5000"},
		{sidecar("c1", "a", noInterception, func(c *gen.Class) { c.Bind = netip.MustParseAddr("10.0.0.7") }), "127.0.0.1_5000"},
	} {
		// the oldest TCP service has the rest of the connections; HTTP and TLS are told apart
		want := map[string]string{c.want: "outbound|5000||old.example.com"}
		if d := cmp.Diff(want, tcpClusters(t, v, c.class)); d != "" {
			t.Error(d)
		}
	}
	m := newMesh()
	for _, view := range []pushcontext.View{m, &pushcontext.TargetsView{Mesh: m.MeshView, Targets: []pushcontext.Target{{Host: "a", Port: 80, Endpoint: 80}}}} {
		if got := names(t, gen.Listeners{}, view, sidecar("c1", "a", noInterception)); got != nil {
			t.Errorf("virtual listeners without interception: %v", got)
		}
	}
}

func TestHeadlessListeners(t *testing.T) {
	t.Parallel()
	s := svc{host: "db.a.svc.cluster.local", ports: []model.Port{tcpPort(5000)}, resolution: model.Passthrough, inline: []*model.Endpoint{
		ep("c1", "tcp", "10.1.0.1:5000"), ep("c1", "tcp", "10.1.0.2:5000", health(model.Unhealthy)), ep("c1", "tcp", "10.1.0.3:5000", health(model.Terminating)),
		ep("c2", "tcp", "10.1.0.1:5000"), ep("c2", "tcp", "10.2.0.1:5000", network("n2")), ep("c2", "tcp", "[2001:db8::1]:5000"), ep("c1", "tcp", "10.1.0.9:5000"),
	}}
	vip := svc{host: "vip.a.svc.cluster.local", ports: []model.Port{tcpPort(5000)}, vips: members("c1", "10.1.0.9")}
	v := portView(5000, newMesh(twoNetworks), s, vip)
	me := func(c *gen.Class) { c.IP = netip.MustParseAddr("10.1.0.2") }
	want := map[string]string{"10.1.0.1_5000": "outbound|5000||db.a.svc.cluster.local", "10.1.0.9_5000": "outbound|5000||vip.a.svc.cluster.local"}
	if d := cmp.Diff(want, tcpClusters(t, v, sidecar("c1", "a", me, onNetwork("n1")))); d != "" {
		t.Errorf("own address, other network, other family and taken address get no listener of it:\n%s", d)
	}
	if d := cmp.Diff(map[string]string{"0.0.0.0_5000": "outbound|5000||db.a.svc.cluster.local"}, tcpClusters(t, v, router("c1", "a"))); d != "" {
		t.Errorf("a router has one listener for the port:\n%s", d)
	}
}

func TestReservedPorts(t *testing.T) {
	t.Parallel()
	for _, n := range []uint16{15001, 15006, 15020, 15021, 15090} {
		s := svc{host: "a.a.svc.cluster.local", ports: []model.Port{httpPort(n)}, vips: members("c1", "10.0.0.1")}
		for _, c := range []gen.Class{sidecar("c1", "a"), sidecar("c1", "a", noInterception), router("c1", "a")} {
			if got := names(t, gen.Listeners{}, portView(n, newMesh(), s), c); got != nil {
				t.Errorf("port %d: %v", n, got)
			}
		}
	}
}

// Kubernetes allows one number for TCP and UDP; UDP is not proxied.
func TestPortOfTwoProtocols(t *testing.T) {
	t.Parallel()
	s := svc{host: "dns.a.svc.cluster.local", ports: []model.Port{{Name: "dns", Number: 53, Protocol: model.ProtocolUDP}, {Name: "dns-tcp", Number: 53, Protocol: model.ProtocolTCP}},
		vips: members("c1", "10.0.0.10"), endpoints: []*model.Endpoint{ep("c1", "dns", "10.1.0.1:53"), ep("c1", "dns-tcp", "10.1.0.1:5353")}}
	v := s.view(newMesh())
	if d := cmp.Diff([]string{"p0  w=1: 10.1.0.1:5353*1"}, assignmentText(assigned(t, v, sidecar("c1", "a")))); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff([]string{"outbound|53||dns.a.svc.cluster.local"}, names(t, gen.Clusters{}, v.Shape, sidecar("c1", "a"))); d != "" {
		t.Error(d)
	}
}

// colliding has hosts that are short names, addresses or other spellings of each other.
func colliding() []svc {
	list := []svc{
		{host: "cart.shop.svc.cluster.local", ports: []model.Port{httpPort(80)}, vips: members("c1", "10.0.0.1")},
		{host: "nodes.shop.svc.cluster.local", ports: []model.Port{httpPort(80)}, resolution: model.Passthrough},
	}
	for _, h := range []string{"cart", "cart.shop", "CART.shop.svc", "cart.shop.svc.", "*.nodes.shop", "*.nodes", "Up.example", "up.example",
		"up.example.", "10.0.0.1", "*", "NODES.shop.svc.cluster.local"} {
		list = append(list, svc{host: h, ns: "shop", ports: []model.Port{httpPort(80)}})
	}
	return list
}

// The gRPC-Web filter is on the listeners of ports that some visible service serves gRPC-Web on.
func TestGRPCWebFilter(t *testing.T) {
	t.Parallel()
	web := svc{host: "web.a.svc.cluster.local", ports: []model.Port{{Name: "grpc-web", Number: 80, Protocol: model.ProtocolGRPCWeb}}}
	hidden := web
	hidden.edit = func(s *pushcontext.ShapeView) { s.Export = pushcontext.Export{} }
	plain := svc{host: "plain.a.svc.cluster.local", ports: []model.Port{httpPort(80)}, age: 1}
	for _, c := range []struct {
		services []svc
		want     bool
	}{{[]svc{plain}, false}, {[]svc{plain, web}, true}, {[]svc{plain, hidden}, false}} {
		v := portView(80, newMesh(), c.services...)
		for _, class := range []gen.Class{sidecar("c1", "a"), sidecar("c1", "a", noInterception), router("c1", "a")} {
			for _, r := range build(t, gen.Listeners{}, v, class) {
				if got := strings.Contains(text(t, decode(t, r)), "grpc_web"); got != c.want {
					t.Errorf("%s: %v, want %v", r.name, got, c.want)
				}
			}
		}
	}
}
