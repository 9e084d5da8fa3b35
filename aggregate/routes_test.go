package aggregate_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/types/known/durationpb"
	meshconfig "istio.io/api/mesh/v1alpha1"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/isthmus-mesh/isthmus/aggregate"
	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/pushcontext"
)

// virtual is a VirtualService that is created so many seconds after the epoch.
func virtual(namespace, name string, created int64, spec *networking.VirtualService) *model.Config {
	c := config(kube("c1"), model.ConfigVirtualService, namespace, name, spec)
	c.Created = time.Unix(created, 0)
	return c
}

// hosts is a VirtualService for hosts.
func hosts(names ...string) *networking.VirtualService {
	return &networking.VirtualService{Hosts: names}
}

// to is a route to a host; port 0 is none.
func to(host string, port uint32) *networking.HTTPRoute {
	d := &networking.Destination{Host: host}
	if port != 0 {
		d.Port = &networking.PortSelector{Number: port}
	}
	return &networking.HTTPRoute{Route: []*networking.HTTPRouteDestination{{Destination: d}}}
}

func virtualNames(list []*pushcontext.VirtualService) []string {
	out := []string{}
	for _, v := range list {
		out = append(out, v.Namespace+"/"+v.Source.Object.Name)
	}
	return out
}

// The VirtualServices for a host: those with a more specific host first, then the oldest; those of gateways alone
// are none for sidecars.
func TestVirtualServicesOfAHost(t *testing.T) {
	t.Parallel()
	c1 := kube("c1")
	gatewayOnly, both := hosts("a"), hosts("a")
	gatewayOnly.Gateways, both.Gateways = []string{"gw"}, []string{"gw", "mesh"}
	rows := []model.Object{
		service(c1, "a"), service(c1, "b"), service(c1, "aa"),
		virtual("ns", "all", 0, hosts("*")), virtual("ns", "wide", 1, hosts("*.local", "x.example")), virtual("ns", "young", 3, hosts("a", "*.local")),
		virtual("other", "old", 2, hosts(host("A")+".")), virtual("other", "short", 0, hosts("a")), virtual("ns", "gateway", 0, gatewayOnly),
		virtual("ns", "both", 4, both), virtual("ns", "deep", 0, hosts("*.a.ns.svc.cluster.local")), virtual("ns", "part", 5, hosts("*s.svc.cluster.local", "")), virtual("ns", "short", 6, hosts("*a")), virtual("ns", "itself", 0, hosts("*"+host("a"))),
		notServed(virtual("ns", "unread", 0, hosts("a"))),
	}
	for name, want := range map[string][]string{
		"a": {"other/old", "ns/young", "ns/both", "ns/part", "ns/wide", "ns/all"}, "b": {"ns/part", "ns/wide", "ns/young", "ns/all"}, "aa": {"ns/itself", "ns/short", "ns/part", "ns/wide", "ns/young", "ns/all"},
	} {
		if d := cmp.Diff(want, virtualNames(rebuilt(t, name, rows...).Shape.VirtualServices)); d != "" {
			t.Errorf("%s: %s", name, d)
		}
	}
	outside := entry(c1, "wild", func(s *model.Service) { s.Host = "*.example.com" })
	v := rebuilt(t, "wild", outside, virtual("ns", "same", 2, hosts("*.example.com")), virtual("ns", "part", 3, hosts("*ple.com")), virtual("ns", "below", 0, hosts("*-a.example.com")), virtual("ns", "wider", 1, hosts("*.com")), virtual("ns", "one", 0, hosts("a.example.com")))
	if d := cmp.Diff([]string{"ns/same", "ns/part", "ns/wider"}, virtualNames(v.Shape.VirtualServices)); d != "" {
		t.Error(d)
	}
}

// Who may use a VirtualService: whom it says, or else the mesh's default.
func TestVirtualServicesAreExported(t *testing.T) {
	t.Parallel()
	settings := meshRow(&meshconfig.MeshConfig{DefaultVirtualServiceExportTo: []string{"."}}, model.ConfigMesh)
	public, some := hosts("a"), hosts("a")
	public.ExportTo, some.ExportTo = []string{"*"}, []string{"x", "y"}
	s := rebuilt(t, "a", settings, service(kube("c1"), "a"), virtual("ns", "own", 1, hosts("a")), virtual("ns", "some", 2, some), virtual("ns", "public", 3, public)).Shape
	for reader, want := range map[string]string{"ns": "own", "x": "some", "z": "public"} {
		if v := s.VirtualService(&pushcontext.Reader{Namespace: reader}); v == nil || v.Source.Object.Name != want {
			t.Errorf("%s uses %v, want %s", reader, virtualNames([]*pushcontext.VirtualService{v}), want)
		}
	}
}

// Every name in a VirtualService is completed: hosts in its own namespace, Gateways in all forms that there are.
func TestNamesInVirtualServices(t *testing.T) {
	t.Parallel()
	h := to("A", 8080)
	h.Mirror = &networking.Destination{Host: "m"}
	h.Mirrors = []*networking.HTTPMirrorPolicy{{Destination: &networking.Destination{Host: "x.example."}}}
	h.Match = []*networking.HTTPMatchRequest{{Gateways: []string{"gw", "mesh"}}}
	spec := &networking.VirtualService{
		Hosts: []string{"A", "b.other.svc.cluster.local", "a"}, Gateways: []string{"gw", "mesh", "./gw", "x/far", "old.y.svc.cluster.local", "older.y"},
		Http: []*networking.HTTPRoute{h},
		Tls: []*networking.TLSRoute{{
			Match: []*networking.TLSMatchAttributes{{Gateways: []string{"./gw"}}}, Route: []*networking.RouteDestination{{Destination: &networking.Destination{Host: "t"}}, {}},
		}},
		Tcp: []*networking.TCPRoute{{
			Match: []*networking.L4MatchAttributes{{Gateways: []string{"x/far"}}}, Route: []*networking.RouteDestination{{Destination: &networking.Destination{Host: "u"}}},
		}},
	}
	v := rebuild(virtual("ns", "v", 0, spec)).VirtualServices[0]
	for what, d := range map[string]string{
		"hosts":        cmp.Diff([]string{host("a"), "b.other.svc.cluster.local"}, v.Hosts),
		"gateways":     cmp.Diff([]string{"mesh", "ns/gw", "x/far", "y/old", "y/older"}, v.Gateways),
		"destinations": cmp.Diff([]string{host("a"), host("m"), host("t"), host("u"), "x.example"}, destinationHosts(v)),
		"matches": cmp.Diff([][]string{{"ns/gw", "mesh"}, {"ns/gw"}, {"x/far"}},
			[][]string{v.Spec.Http[0].Match[0].Gateways, v.Spec.Tls[0].Match[0].Gateways, v.Spec.Tcp[0].Match[0].Gateways}),
	} {
		if d != "" {
			t.Errorf("%s: %s", what, d)
		}
	}
	if spec.Http[0].Route[0].Destination.Host != "A" || len(spec.Hosts) != 3 || spec.Gateways[0] != "gw" {
		t.Error("the row was changed")
	}
}

func destinationHosts(v *pushcontext.VirtualService) (out []string) {
	for _, d := range v.Destinations {
		out = append(out, d.Host)
	}
	return slices.Compact(out)
}

// Services of foreign registries may have capitals: VirtualServices and DestinationRules for them do not mind case, and what they
// send to is called as the service is.
func TestCaseDoesNotCount(t *testing.T) {
	inBubble(t, aggregate.Options{ConfigCluster: "c1"}, func(h *hub) {
		c1 := kube("c1")
		const name = "pay.DEFAULT-GROUP.public.nacos"
		named := func(s *model.Service) { s.Host = name }
		spec := func(hosts ...string) *networking.VirtualService {
			return &networking.VirtualService{Hosts: hosts, Http: []*networking.HTTPRoute{to(name, 80), to("PAY.default-group.public.nacos", 0)}}
		}
		r := registry(c1, service(c1, "a"), rule(c1, "ns", "r", strings.ToLower(name), 0, hashed), virtual("ns", "v", 0, spec(name, "*.public.nacos")), virtual("ns", "a", 0, spec("a")))
		h.Attach(r)
		h.start()
		sends := func() string {
			to := h.service("a").Shape.VirtualServices[0]
			return fmt.Sprint(to.Spec.Http[0].Route[0].Destination.Host, " ", to.Spec.Http[1].Route[0].Destination.Host, " ", len(to.Policies))
		}
		h.quiet()
		if got, want := sends(), strings.ToLower(name)+" "+strings.ToLower(name)+" 1"; got != want {
			t.Errorf("without a service it is %s", got)
		}
		s := entry(c1, "pay", named)
		r.Put(keyOf(s), s)
		pc := h.quiet()
		view := pc.Host(name).Services[0].Shape
		if got, want := sends(), name+" "+name+" 1"; got != want {
			t.Errorf("it sends to %s, want %s", got, want)
		}
		if len(view.VirtualServices) != 1 || len(view.Policies) != 1 {
			t.Errorf("%s has the VirtualServices %v, %d rules", name, virtualNames(view.VirtualServices), len(view.Policies))
		}
		h.deltas = nil
		c := virtual("ns", "v", 0, spec(name))
		r.Put(keyOf(c), c)
		h.quiet()
		if len(h.deltas) != 1 || !slices.Equal(h.deltas[0].Shape, []string{name}) {
			t.Errorf("an edit changes %+v", h.deltas)
		}
	})
}

// A destination without a port has that of its service if there is one only, at any time.
func TestDestinationsFollowTheirServices(t *testing.T) {
	inBubble(t, aggregate.Options{ConfigCluster: "c1"}, func(h *hub) {
		c1 := kube("c1")
		r := registry(c1, service(c1, "a"), service(c1, "far"), virtual("ns", "v", 0, &networking.VirtualService{
			Hosts: []string{"a"}, Http: []*networking.HTTPRoute{to("b", 0), to("b", 90)}, Tcp: []*networking.TCPRoute{{Route: []*networking.RouteDestination{{Destination: &networking.Destination{Host: "b"}}}}},
		}))
		h.Attach(r)
		h.start()
		h.quiet()
		b := func(ports ...model.Port) func() {
			return func() {
				s := service(c1, "b", func(s *model.Service) { s.Ports = ports })
				r.Put(keyOf(s), s)
			}
		}
		for i, step := range []struct {
			do    func()
			want  string
			shape []string
		}{
			{b(port("http", 80)), "80 90 80", []string{host("a"), host("b")}},
			{b(port("web", 80)), "80 90 80", []string{host("b")}},
			{b(port("http", 81)), "81 90 81", []string{host("a"), host("b")}},
			{b(port("http", 80), port("other", 81)), "0 90 0", []string{host("a"), host("b")}},
			{func() { s := service(c1, "far", func(s *model.Service) { s.Ports = nil }); r.Put(keyOf(s), s) }, "0 90 0", []string{host("far")}},
			{b(port("http", 80)), "80 90 80", []string{host("a"), host("b")}},
			{func() { r.Delete(rowOf(service(c1, "b"))) }, "0 90 0", []string{host("a"), host("b")}},
		} {
			h.deltas = nil
			step.do()
			pc := h.quiet()
			spec := h.service("a").Shape.VirtualServices[0].Spec
			port := func(d *networking.Destination) uint32 { return d.GetPort().GetNumber() }
			got := fmt.Sprint(port(spec.Http[0].Route[0].Destination), port(spec.Http[1].Route[0].Destination), port(spec.Tcp[0].Route[0].Destination))
			if got != step.want {
				t.Errorf("step %d: ports %s, want %s", i, got, step.want)
			}
			if d := h.deltas; len(d) != 1 || !slices.Equal(d[0].Shape, step.shape) {
				t.Errorf("step %d changes %+v at version %d, want %q", i, d, pc.Version, step.shape)
			}
		}
	})
}

// Of VirtualServices of sidecars for one host the oldest is used, by all who may use it; that others are not is told.
func TestVirtualServicesOfOneHostAreConflicts(t *testing.T) {
	t.Parallel()
	of := func(names ...string) *networking.VirtualService {
		v := hosts(names...)
		v.Http = []*networking.HTTPRoute{to(host("a"), 0)}
		return v
	}
	private, gateway, streams := of("a"), of("a"), hosts("a", "b")
	private.ExportTo, gateway.Gateways = []string{"."}, []string{"gw"}
	streams.Tcp = []*networking.TCPRoute{{}}
	b := rebuild(virtual("ns", "private", 0, private), virtual("ns", "first", 1, of("a", "b")), virtual("ns", "second", 2, of("b")),
		virtual("ns", "third", 3, of("c")), virtual("ns", "gateway", 4, gateway), virtual("ns", "hidden", 5, private),
		virtual("ns", "oldest", -1, streams), virtual("ns", "streams", 6, streams))
	want := []string{"first over second: both are", "private over hidden: both are"}
	if d := cmp.Diff(want, conflictText(b.Conflicts)); d != "" {
		t.Error(d)
	}
}

// hashed has endpoints of a host chosen by a hash.
func hashed(r *networking.DestinationRule) {
	r.TrafficPolicy = &networking.TrafficPolicy{PortLevelSettings: []*networking.TrafficPolicy_PortTrafficPolicy{{
		LoadBalancer: &networking.LoadBalancerSettings{LbPolicy: &networking.LoadBalancerSettings_ConsistentHash{ConsistentHash: &networking.LoadBalancerSettings_ConsistentHashLB{}}},
	}}}
}

// A VirtualService knows the rules by which endpoints of its destinations are chosen by a hash.
func TestVirtualServicesKnowHashes(t *testing.T) {
	t.Parallel()
	c1 := kube("c1")
	v := rebuild(service(c1, "a"), service(c1, "b"), rule(c1, "x", "r", host("a"), 0, hashed), rule(c1, "x", "wide", "*.local", 0), rule(c1, "x", "s", host("b"), 0),
		virtual("x", "v", 0, &networking.VirtualService{Hosts: []string{"v"}, Http: []*networking.HTTPRoute{to(host("a"), 0), to(host("b"), 0)}})).VirtualServices[0]
	p := v.Policies[host("a")]
	if len(v.Policies) != 1 || p == nil || p.Namespace != "ns" || len(p.Policies) != 2 || p.Policies[0].Source.Object.Name != "r" {
		t.Errorf("%+v", v.Policies)
	}
}

// TLS and TCP routes need to know more of rules: tunnels and idle times of connections.
func TestVirtualServicesKnowTunnels(t *testing.T) {
	t.Parallel()
	c1 := kube("c1")
	tunnel := func(r *networking.DestinationRule) {
		r.Subsets = []*networking.Subset{{Name: "v1", TrafficPolicy: &networking.TrafficPolicy{Tunnel: &networking.TrafficPolicy_TunnelSettings{TargetHost: "x", TargetPort: 1}}}}
	}
	idle := func(r *networking.DestinationRule) {
		r.TrafficPolicy = &networking.TrafficPolicy{ConnectionPool: &networking.ConnectionPoolSettings{Tcp: &networking.ConnectionPoolSettings_TCPSettings{IdleTimeout: durationpb.New(1)}}}
	}
	to := func(h string) []*networking.RouteDestination {
		return []*networking.RouteDestination{{Destination: &networking.Destination{Host: h}}}
	}
	v := rebuild(service(c1, "a"), service(c1, "b"), service(c1, "c"), rule(c1, "x", "r", host("a"), 0, tunnel), rule(c1, "x", "s", host("b"), 0, idle), rule(c1, "x", "t", host("c"), 0),
		virtual("x", "v", 0, &networking.VirtualService{Hosts: []string{"v"}, Tcp: []*networking.TCPRoute{{Route: to(host("a"))}, {Route: to(host("c"))}}, Tls: []*networking.TLSRoute{{Route: to(host("b"))}}})).VirtualServices[0]
	if len(v.Policies) != 2 || v.Policies[host("a")] == nil || v.Policies[host("b")] == nil {
		t.Errorf("%+v", v.Policies)
	}
}

// A rule with a pool is one to know where the mesh has an idle timeout: the pool is in the place of the mesh's.
func TestVirtualServicesKnowPoolsWithoutTimeout(t *testing.T) {
	t.Parallel()
	pool := func(s *networking.ConnectionPoolSettings_TCPSettings) *networking.ConnectionPoolSettings {
		return &networking.ConnectionPoolSettings{Tcp: s}
	}
	c1 := kube("c1")
	pooled := func(r *networking.DestinationRule) {
		r.TrafficPolicy = &networking.TrafficPolicy{ConnectionPool: pool(&networking.ConnectionPoolSettings_TCPSettings{MaxConnections: 1})}
	}
	idle := &meshconfig.MeshConfig{DefaultTrafficPolicy: &meshconfig.MeshConfig_DefaultTrafficPolicy{ConnectionPool: pool(&networking.ConnectionPoolSettings_TCPSettings{IdleTimeout: durationpb.New(1)})}}
	rows := []model.Object{service(c1, "a"), rule(c1, "x", "r", host("a"), 0, pooled), virtual("x", "v", 0, &networking.VirtualService{
		Hosts: []string{"v"}, Tcp: []*networking.TCPRoute{{Route: []*networking.RouteDestination{{Destination: &networking.Destination{Host: host("a")}}}}}})}
	if v := rebuild(rows...).VirtualServices[0]; len(v.Policies) != 0 {
		t.Errorf("%+v without an idle timeout", v.Policies)
	}
	if v := rebuild(append(rows, meshRow(idle, model.ConfigMesh))...).VirtualServices[0]; v.Policies[host("a")] == nil {
		t.Errorf("%+v with one", v.Policies)
	}
}
