package aggregate_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	api "github.com/isthmus-mesh/isthmus/api/v1alpha1"
	"github.com/isthmus-mesh/isthmus/pushcontext"
)

func consul(name model.ClusterID) model.ShardKey {
	return model.ShardKey{Provider: model.ProviderConsul, Cluster: name}
}

func nacos(name model.ClusterID) model.ShardKey {
	return model.ShardKey{Provider: model.ProviderNacos, Cluster: name}
}

// foreignService are the rows of a service of a foreign registry: the definition, its endpoints, and a workload for each.
func foreignService(k model.ShardKey, host string, p model.Port, ips ...string) []model.Object {
	name := strings.ReplaceAll(host, ".", "-")
	src := model.Source{Shard: k, Object: model.ObjectKey{Kind: "Service", Namespace: "ns", Name: name}}
	s := &model.Service{Host: host, Namespace: "ns", Name: name, Ports: []model.Port{p}, Source: src}
	e := &model.Endpoints{Host: host, Namespace: "ns", Source: src}
	out := []model.Object{s, e}
	for i, ip := range ips {
		addr := netip.MustParseAddr(ip)
		w := workload(k, model.KindInstance, fmt.Sprintf("%s-%d", name, i), ip, model.Labels{"app": name})
		w.Ports = map[string]uint16{p.Name: 8080}
		e.Endpoints = append(e.Endpoints, model.Endpoint{
			Addr: model.Addr{Cluster: k.Cluster, AddrPort: netip.AddrPortFrom(addr, 8080)}, PortName: p.Name, Health: model.Healthy, Labels: w.Labels,
			Workload: model.ObjectKey{Kind: "Instance", Namespace: "ns", Name: w.Name}, Source: &e.Source,
		})
		out = append(out, w)
	}
	return out
}

// federated makes a FederatedService of the namespace ns with the port http 80, of the oldest cluster.
func federated(name, host string, edit ...func(*api.FederatedServiceSpec)) *model.Config {
	spec := &api.FederatedServiceSpec{Host: host, Ports: []api.FederatedPort{{Name: "http", Number: 80, Protocol: "HTTP"}}}
	for _, e := range edit {
		e(spec)
	}
	return config(kube("c1"), model.ConfigFederatedService, "ns", name, spec)
}

func policy(p api.FederationPolicy) func(*api.FederatedServiceSpec) {
	return func(s *api.FederatedServiceSpec) { s.Policy = p }
}

func from(list ...api.FederatedSource) func(*api.FederatedServiceSpec) {
	return func(s *api.FederatedServiceSpec) { s.Sources = append(s.Sources, list...) }
}

func hostSource(host string) api.FederatedSource { return api.FederatedSource{Host: host} }

// viewOf gives the service of a host in ns.
func viewOf(t *testing.T, host string, rows ...model.Object) *pushcontext.ServiceView {
	t.Helper()
	for _, v := range rebuiltAll(rows...) {
		if v.Shape.Key.Host == host && v.Shape.Key.Namespace == "ns" && v.Shape.Key.Cluster == "" {
			return v
		}
	}
	t.Fatalf("no service has the host %s", host)
	return nil
}

// parts lists endpoints behind a port as "source cluster/ip:port".
func parts(v *pushcontext.ServiceView, port string) []string {
	out := []string{}
	for _, l := range v.Port(port) {
		for _, e := range l.Endpoints {
			name := "-"
			if s := v.Shape.Federation.SourceOf(e); s != nil {
				name = s.Name
			}
			out = append(out, fmt.Sprintf("%s %s/%s", name, e.Addr.Cluster, e.Addr))
		}
	}
	return out
}

// sourceStates lists what came of each source.
func sourceStates(v *pushcontext.ServiceView) []string {
	out := []string{}
	for i, s := range v.Sources {
		out = append(out, strings.TrimSpace(fmt.Sprintf("%s %s %s", v.Shape.Federation.Sources[i].Name, s.Reason, s.Detail)))
	}
	return out
}

func equal[T any](t *testing.T, got, want T) {
	t.Helper()
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

func rowsOf(lists ...[]model.Object) (out []model.Object) {
	for _, l := range lists {
		out = append(out, l...)
	}
	return out
}

var http80 = port("http", 80)

// A host that no registry has, of services of three: the definition is the FederatedService's, with automatic addresses.
func TestFederatedServiceOfThreeRegistries(t *testing.T) {
	t.Parallel()
	c1 := kube("c1")
	fs := federated("checkout", "checkout.global", policy(api.FederateFailover), from(
		api.FederatedSource{Name: "kube", Host: host("a")}, hostSource("checkout.public.nacos"), api.FederatedSource{Name: "consul", Selector: map[string]string{"app": "checkout-consul"}}))
	v := viewOf(t, "checkout.global", rowsOf([]model.Object{fs, service(c1, "a", vip("10.96.0.1/32")), slice(c1, "a", "a-1", "10.0.0.1")},
		foreignService(nacos("n"), "checkout.public.nacos", port("tcp", 9000), "10.1.0.1", "10.1.0.2"), foreignService(consul("dc"), "checkout.consul", http80, "10.2.0.1"))...)
	equal(t, parts(v, "http"), []string{"kube c1/10.0.0.1:8080", "checkout.public.nacos n/10.1.0.1:8080", "checkout.public.nacos n/10.1.0.2:8080", "consul dc/10.2.0.1:8080"})
	equal(t, sourceStates(v), []string{"kube", "checkout.public.nacos", "consul"})
	s := v.Shape
	if s.Native || !s.AutoAddresses || !s.MeshAddresses || len(s.Addresses["c1"]) != 2 || s.Resolution != model.ClientSideLB || s.Federation.Policy != pushcontext.FederateFailover {
		t.Errorf("%+v", s)
	}
	for i, src := range s.Federation.Sources {
		if src.Priority != uint32(i) || src.Weight != 1 {
			t.Errorf("source %d: %+v", i, src)
		}
	}
	equal(t, len(s.Contributions), 1)
}

// What is spoken at a port is what the object says, or what it says of a source, or what the registry of the first source that has the port does;
// of sources that say otherwise it is told.
func TestFederatedProtocols(t *testing.T) {
	t.Parallel()
	rows := rowsOf(foreignService(nacos("n"), "web.nacos", model.Port{Name: "web", Number: 8080, Protocol: model.ProtocolHTTP}, "10.1.0.1"),
		foreignService(consul("dc"), "grpc.consul", model.Port{Name: "grpc", Number: 9090, Protocol: model.ProtocolGRPC}, "10.2.0.1"),
		foreignService(consul("dc"), "any.consul", model.Port{Name: "any", Number: 9090}, "10.3.0.1"))
	says := func(word string) map[string]api.SourcePort { return map[string]api.SourcePort{"p": {Protocol: word}} }
	web, grpc, anything := hostSource("web.nacos"), hostSource("grpc.consul"), hostSource("any.consul")
	mapped := func(s api.FederatedSource, word string) api.FederatedSource {
		s.Ports = says(word)
		return s
	}
	for name, c := range map[string]struct {
		own     string
		sources []api.FederatedSource
		want    string // protocol, and sources that say another
	}{
		"the object's":                            {"HTTP", []api.FederatedSource{grpc, web}, "http [grpc.consul]"},
		"the first source's":                      {"", []api.FederatedSource{grpc, web}, "grpc [web.nacos]"},
		"of the first that says one":              {"", []api.FederatedSource{hostSource("none"), anything, web, grpc}, "http [grpc.consul]"},
		"nobody's":                                {"", []api.FederatedSource{anything}, "auto []"},
		"one that is mapped":                      {"", []api.FederatedSource{web, mapped(grpc, "GRPC")}, "grpc [web.nacos]"},
		"what is mapped counts, not what is said": {"", []api.FederatedSource{mapped(web, "HTTP2"), grpc}, "http2 []"},
		"the object's, and one that is mapped":    {"GRPC", []api.FederatedSource{mapped(web, "tri"), grpc}, "grpc []"},
		"to be found out":                         {"auto", []api.FederatedSource{web, grpc}, "auto []"},
		"of workloads":                            {"", []api.FederatedSource{{Name: "s", Selector: map[string]string{"app": "grpc-consul"}, Ports: says("GRPC")}, web}, "grpc [web.nacos]"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fs := federated("x", "x.global", from(c.sources...))
			fs.Spec.(*api.FederatedServiceSpec).Ports = []api.FederatedPort{{Name: "p", Number: 80, Protocol: c.own}}
			v := viewOf(t, "x.global", append(slices.Clone(rows), fs)...)
			unlike := []string{}
			for i, s := range v.Sources {
				if len(s.Unlike) > 0 {
					unlike = append(unlike, v.Shape.Federation.Sources[i].Name)
				}
			}
			equal(t, fmt.Sprint(v.Shape.Ports[0].Protocol, " ", unlike), c.want)
		})
	}
}

// A service that its sources can't all be spoken to alike has two ports: the only port of a source backs the one that it is.
func TestFederatedPortsForEachProtocol(t *testing.T) {
	t.Parallel()
	fs := federated("x", "x.global", from(hostSource("web.nacos"), hostSource("grpc.consul")))
	fs.Spec.(*api.FederatedServiceSpec).Ports = []api.FederatedPort{{Name: "http", Number: 80, Protocol: "HTTP"}, {Name: "grpc", Number: 90, Protocol: "GRPC"}}
	v := viewOf(t, "x.global", rowsOf(foreignService(nacos("n"), "web.nacos", model.Port{Name: "http", Number: 8080, Protocol: model.ProtocolHTTP}, "10.1.0.1"),
		foreignService(consul("dc"), "grpc.consul", model.Port{Name: "grpc", Number: 9090, Protocol: model.ProtocolGRPC}, "10.2.0.1"), []model.Object{fs})...)
	equal(t, parts(v, "http"), []string{"web.nacos n/10.1.0.1:8080"})
	equal(t, parts(v, "grpc"), []string{"grpc.consul dc/10.2.0.1:8080"})
	equal(t, len(v.Sources[0].Unlike)+len(v.Sources[1].Unlike), 0)
}

// A FederatedService for the host of a service is what the host means; the addresses stay, and its endpoints are one source.
func TestFederatedServiceTakesOverAHost(t *testing.T) {
	t.Parallel()
	c1, c2 := kube("c1"), kube("c2")
	two := withPorts(port("http", 80), port("metrics", 9090))
	rows := rowsOf([]model.Object{
		service(c1, "a", vip("10.96.0.1/32"), two, created(5)), service(c2, "a", vip("10.97.0.1/32"), two, created(6)),
		slice(c1, "a", "a-1", "10.0.0.1"), slice(c2, "a", "a-2", "10.0.0.2"),
	}, foreignService(consul("dc"), "a.consul", http80, "10.2.0.1"))
	fs := federated("a", host("a"), from(api.FederatedSource{Name: "west", Host: host("a"), Clusters: []string{"c2"}}, api.FederatedSource{Name: "east", Host: host("a"), Registries: []string{"kubernetes/c1"}}, hostSource("a.consul")))
	fs.Created = time.Unix(9, 0)
	v := viewOf(t, host("a"), append(rows, fs)...)
	equal(t, parts(v, "http"), []string{"east c1/10.0.0.1:8080", "west c2/10.0.0.2:8080", "a.consul dc/10.2.0.1:8080"})
	s := v.Shape
	if !s.Native || s.AutoAddresses || s.MeshAddresses || s.Name != "a" || s.Created.Unix() != 5 {
		t.Errorf("native %v, automatic %v, mesh %v, %s of %v", s.Native, s.AutoAddresses, s.MeshAddresses, s.Name, s.Created)
	}
	equal(t, fmt.Sprint(s.Addresses), "map[c1:[10.96.0.1/32] c2:[10.97.0.1/32]]")
	equal(t, portsOf(v), fmt.Sprint([]model.Port{http80}))
	equal(t, conflictFields(v), []string{"ports", "ports"})
	equal(t, winner(v), "kubernetes/c1 FederatedService")

	// Without the object it is as before; endpoints of others are untouched.
	v = viewOf(t, host("a"), rows...)
	equal(t, parts(v, "http"), []string{"- c1/10.0.0.1:8080", "- c2/10.0.0.2:8080"})

	// Sources that are others leave its own endpoints out, and say so.
	v = viewOf(t, host("a"), append(rows, federated("a", host("a"), from(hostSource("a.consul"))))...)
	equal(t, parts(v, "http"), []string{"a.consul dc/10.2.0.1:8080"})
	if len(v.LeftOut) != 2 || v.LeftOut[0].Reason != model.ReasonConflictLost {
		t.Errorf("left out: %v", v.LeftOut)
	}
}

// What a source gives nothing for is told.
func TestFederatedSourcesSayWhyTheyGiveNothing(t *testing.T) {
	t.Parallel()
	c1 := kube("c1")
	named := slice(c1, "dns", "named", "10.0.0.2")
	named.Endpoints[0].Addr = model.Addr{Cluster: "c1", AddrPort: netip.AddrPortFrom(netip.Addr{}, 80), Host: "db.example"}
	elsewhere := func(s *model.Service) {
		s.Namespace, s.Host, s.ExportTo = "far", "hidden.far", []string{"."}
		s.Source.Object.Namespace = "far"
	}
	local := func(s *model.Service) { s.ClusterLocal = true }
	nobodys := func(s *model.Service) { s.ExportTo = []string{"~"} }
	rows := []model.Object{
		entry(c1, "dns", withResolution(model.DNSLB)), named, service(c1, "hidden", elsewhere), service(c1, "local", local), service(c1, "empty"),
		service(c1, "ports", withPorts(port("x", 1), port("y", 2))), slice(c1, "ports", "p", "10.0.0.9"), service(c1, "w"), slice(c1, "w", "w", "10.0.0.3"), service(c1, "own", nobodys), slice(c1, "own", "own", "10.0.0.4"),
		service(c1, "headless", withResolution(model.Passthrough)), slice(c1, "headless", "headless", "10.0.0.5"),
	}
	zero := uint32(0)
	for _, tc := range []struct {
		source api.FederatedSource
		want   string
	}{
		{hostSource("nobody.example"), "NoService no service has the host nobody.example"},
		{api.FederatedSource{Host: host("empty"), Namespace: "x"}, "NoService no service has the host empty.ns.svc.cluster.local in the namespace x"},
		{api.FederatedSource{Host: host("empty"), Registries: []string{"consul/*"}}, "NoService no service has the host empty.ns.svc.cluster.local in consul/*"},
		{hostSource("hidden.far"), "Hidden hidden.far of the namespace far is exported to ., and not to ns"},
		{hostSource(host("local")), "ClusterLocal local.ns.svc.cluster.local is kept to c1"},
		{hostSource(host("empty")), "NoEndpoints there is no endpoint"},
		{hostSource(host("dns")), "WrongKind a FederatedService takes addresses, and its source s has DNS names"},
		{hostSource(host("ports")), `NoPort ports.ns.svc.cluster.local has no port for http: it has 1/http "x", 2/http "y"; map one in the ports of the source`},
		{api.FederatedSource{Host: host("w"), Weight: &zero}, "ZeroWeight its source s has the weight 0"},
		{api.FederatedSource{Host: host("w"), Clusters: []string{"c9"}}, "NoEndpoints there is no endpoint"},
		{api.FederatedSource{Selector: map[string]string{"app": "none"}}, "NoEndpoints no workload of the namespace ns has the labels app=none"},
		{hostSource("other.global"), "NoService no service has the host other.global"}, // another FederatedService is no source
		{hostSource(host("w") + "."), ""},
		{hostSource(host("own")), ""}, // of the same namespace
		{hostSource(host("headless")), ""},
	} {
		t.Run(tc.want, func(t *testing.T) {
			t.Parallel()
			tc.source.Name = "s"
			v := viewOf(t, "x.global", append(rows, federated("x", "x.global", policy(api.FederateWeighted), from(tc.source)), federated("other", "other.global", from(hostSource(host("w")))))...)
			equal(t, sourceStates(v), []string{strings.TrimSpace("s " + tc.want)})
		})
	}
}

// A port of a source is the one that is mapped, or that of the same name, the same number, or the only one.
func TestFederatedPorts(t *testing.T) {
	t.Parallel()
	c1 := kube("c1")
	both := withPorts(port("http", 8000), port("other", 80), port("third", 7))
	sliceOf := func(name string, ports ...string) (out []model.Object) {
		for i, p := range ports {
			e := slice(c1, name, name+p, fmt.Sprintf("10.0.0.%d", i+1))
			e.Endpoints[0].PortName = p
			out = append(out, e)
		}
		return out
	}
	for _, tc := range []struct {
		name  string
		ports func(*model.Service)
		given []string
		to    map[string]api.SourcePort
		want  []string
	}{
		{"name", both, []string{"http", "other", "third"}, nil, []string{"s c1/10.0.0.1:8080"}},
		{"number", withPorts(port("web", 80), port("x", 81)), []string{"web", "x"}, nil, []string{"s c1/10.0.0.1:8080"}},
		{"only", withPorts(port("x", 81)), []string{"x"}, nil, []string{"s c1/10.0.0.1:8080"}},
		{"none", withPorts(port("x", 81), port("y", 82)), []string{"x", "y"}, nil, []string{}},
		{"mapped to a name", both, []string{"http", "other", "third"}, map[string]api.SourcePort{"http": {Name: "third"}}, []string{"s c1/10.0.0.3:8080"}},
		{"mapped to a number", both, []string{"http", "other", "third"}, map[string]api.SourcePort{"http": {Number: 80}}, []string{"s c1/10.0.0.2:8080"}},
		{"mapped to nothing", both, []string{"http"}, map[string]api.SourcePort{"http": {Name: "gone"}}, []string{}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			v := viewOf(t, "x.global", append(sliceOf("a", tc.given...), service(c1, "a", tc.ports), federated("x", "x.global", from(api.FederatedSource{Name: "s", Host: host("a"), Ports: tc.to})))...)
			equal(t, parts(v, "http"), tc.want)
		})
	}
}

// Of workloads that are selected it is the port at which they are dialled.
func TestFederatedPortsOfWorkloads(t *testing.T) {
	t.Parallel()
	c1 := kube("c1")
	for _, tc := range []struct {
		name  string
		ports map[string]uint16
		to    map[string]api.SourcePort
		want  uint16 // 0: none
	}{
		{"name", map[string]uint16{"http": 8080, "x": 80}, nil, 8080},
		{"number", map[string]uint16{"y": 8080, "x": 80}, nil, 80},
		{"only", map[string]uint16{"y": 8080}, nil, 8080},
		{"names none", nil, nil, 80},
		{"names others", map[string]uint16{"y": 8080, "x": 81}, nil, 0},
		{"mapped to a name", map[string]uint16{"y": 8080, "http": 81}, map[string]api.SourcePort{"http": {Name: "y"}}, 8080},
		{"mapped to a number", map[string]uint16{"y": 8080, "http": 81}, map[string]api.SourcePort{"http": {Number: 7}}, 7},
		{"mapped to nothing", map[string]uint16{"http": 81}, map[string]api.SourcePort{"http": {Name: "gone"}}, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			w := workload(c1, model.KindPod, "p", "10.0.0.1", model.Labels{"app": "a"})
			w.Ports = tc.ports
			v := viewOf(t, "x.global", w, federated("x", "x.global", from(api.FederatedSource{Name: "s", Selector: map[string]string{"app": "a"}, Ports: tc.to})))
			want := []string{}
			if tc.want != 0 {
				want = []string{fmt.Sprintf("s c1/10.0.0.1:%d", tc.want)}
			} else if len(v.LeftOut) != 1 || v.LeftOut[0].Reason != model.ReasonNoPort || v.Sources[0].Reason != model.ReasonNoPort {
				t.Errorf("left out %v, source %+v", v.LeftOut, v.Sources)
			}
			equal(t, parts(v, "http"), want)
		})
	}
}

// An address that several sources have counts once, in the best of them, as its registry states it.
func TestFederatedSourcesShareAnAddress(t *testing.T) {
	t.Parallel()
	rows := foreignService(nacos("n"), "a.nacos", http80, "10.1.0.1", "10.1.0.2")
	rows[1].(*model.Endpoints).Endpoints[0].Health = model.Unhealthy
	selector := api.FederatedSource{Name: "selected", Selector: map[string]string{"app": "a-nacos"}}
	one := uint32(1)
	for name, tc := range map[string]struct {
		sources []api.FederatedSource
		want    string
	}{
		"first":    {[]api.FederatedSource{selector, hostSource("a.nacos")}, "selected"},
		"second":   {[]api.FederatedSource{hostSource("a.nacos"), selector}, "a.nacos"},
		"priority": {[]api.FederatedSource{{Name: "later", Host: "a.nacos", Priority: &one}, {Name: "now", Selector: selector.Selector, Priority: new(uint32)}}, "now"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v := viewOf(t, "x.global", append(rows, federated("x", "x.global", policy(api.FederateFailover), from(tc.sources...)))...)
			equal(t, parts(v, "http"), []string{tc.want + " n/10.1.0.1:8080", tc.want + " n/10.1.0.2:8080"})
			if h := v.Port("http")[0].Endpoints[0].Health; h != model.Unhealthy {
				t.Errorf("health %v: the registry's own statement counts", h)
			}
			if len(v.LeftOut) != 2 || v.LeftOut[0].Reason != model.ReasonDuplicate {
				t.Errorf("left out: %v", v.LeftOut)
			}
		})
	}
}

// Of FederatedServices for one host of a namespace the oldest is in force, and the other a conflict.
func TestFederatedServicesOfOneHost(t *testing.T) {
	t.Parallel()
	older, newer := federated("z", "x.global", from(hostSource(host("a")))), federated("a", "x.global", from(hostSource("none")))
	older.Created, newer.Created = time.Unix(1, 0), time.Unix(2, 0)
	b := rebuild(service(kube("c1"), "a"), slice(kube("c1"), "a", "s", "10.0.0.1"), newer, older)
	if len(b.Conflicts) != 1 || b.Conflicts[0].Winner.Object.Name != "z" || b.Conflicts[0].Loser.Object.Name != "a" {
		t.Errorf("conflicts %+v", b.Conflicts)
	}
	v := viewOf(t, "x.global", service(kube("c1"), "a"), slice(kube("c1"), "a", "s", "10.0.0.1"), newer, older)
	equal(t, len(v.Port("http")), 1)
}

// PeerAuthentications of the namespace that endpoints are of hold for them, wherever the FederatedService is.
func TestFederatedEndpointsKeepTheirNamespacesDemands(t *testing.T) {
	t.Parallel()
	fs := federated("x", "x.global", from(hostSource(host("a")), api.FederatedSource{Name: "s", Namespace: "ns", Selector: map[string]string{"app": "p"}}))
	fs.Namespace, fs.Source.Object.Namespace = "far", "far"
	rows := []model.Object{service(kube("c1"), "a"), slice(kube("c1"), "a", "s", "10.0.0.1"), workload(kube("c1"), model.KindPod, "p", "10.0.0.2", model.Labels{"app": "p"}), fs, demand("ns", "d", "STRICT", "", "", 0)}
	for _, v := range rebuiltAll(rows...) {
		if v.Shape.Key.Host != "x.global" {
			continue
		}
		n := 0
		for _, l := range v.Port("http") {
			for _, e := range l.Endpoints {
				n++
				if e.MTLS != model.MTLSStrict {
					t.Errorf("%s: %v", e.Addr, e.MTLS)
				}
			}
		}
		equal(t, n, 2)
	}
}

// Sources are found by their hosts whatever the case: registries keep hosts as they spell them.
func TestFederatedHostsAreSpelledAnyhow(t *testing.T) {
	t.Parallel()
	n := nacos("n")
	spelled, plain := foreignService(n, "A.DEFAULT-GROUP.nacos", http80, "10.1.0.1"), foreignService(n, "a.default-group.nacos", http80, "10.1.0.2")
	for name, tc := range map[string]struct {
		rows []model.Object
		want []string
	}{"as it is": {spelled, []string{"10.1.0.1"}}, "in lower case": {plain, []string{"10.1.0.2"}}, "both": {rowsOf(spelled, plain), []string{"10.1.0.1", "10.1.0.2"}}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var want []string
			for _, ip := range tc.want {
				want = append(want, "A.DEFAULT-GROUP.nacos n/"+ip+":8080")
			}
			equal(t, parts(viewOf(t, "x.global", rowsOf(tc.rows, []model.Object{federated("x", "x.global.", from(hostSource("A.DEFAULT-GROUP.nacos")))})...), "http"), want)
		})
	}

	// Its own host is what it takes over as it is spelled.
	v := viewOf(t, "A.DEFAULT-GROUP.nacos", rowsOf(spelled, []model.Object{federated("x", "A.DEFAULT-GROUP.nacos", from(hostSource("A.DEFAULT-GROUP.nacos")))})...)
	equal(t, parts(v, "http"), []string{"A.DEFAULT-GROUP.nacos n/10.1.0.1:8080"})
}

// Sources of one name are told apart all the same: proxies have each as a place.
func TestFederatedSourcesOfOneName(t *testing.T) {
	t.Parallel()
	v := viewOf(t, "x.global", federated("x", "x.global", from(hostSource("a"), hostSource("a"))))
	equal(t, v.Shape.Federation.Sources[1].Name, "a#1")
}

// A host that a cluster keeps to itself stays what it is there, and is the FederatedService's everywhere else.
func TestFederatedServiceOfAHostKeptToACluster(t *testing.T) {
	t.Parallel()
	c1 := kube("c1")
	local := func(s *model.Service) { s.ClusterLocal = true }
	rows := rowsOf([]model.Object{service(c1, "a", local), slice(c1, "a", "s", "10.0.0.1"), federated("a", host("a"), from(hostSource(host("a")), hostSource("a.nacos")))},
		foreignService(nacos("n"), "a.nacos", http80, "10.1.0.1"))
	got := map[string][]string{}
	for _, v := range rebuiltAll(rows...) {
		if v.Shape.Key.Host == host("a") {
			got[string(v.Shape.Key.Cluster)] = append(parts(v, "http"), sourceStates(v)...)
		}
	}
	equal(t, got, map[string][]string{
		"c1": {"- c1/10.0.0.1:8080"},
		"":   {"a.nacos n/10.1.0.1:8080", host("a") + " ClusterLocal " + host("a") + " is kept to c1", "a.nacos"},
	})
}
