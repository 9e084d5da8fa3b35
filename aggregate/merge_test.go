package aggregate_test

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	meshconfig "istio.io/api/mesh/v1alpha1"

	"github.com/google/go-cmp/cmp"

	"github.com/isthmus-mesh/isthmus/aggregate"
	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/pushcontext"
)

// rebuilt merges rows, each into the shard that its source names, and gives the service.
func rebuilt(t *testing.T, name string, rows ...model.Object) *pushcontext.ServiceView {
	t.Helper()
	for _, v := range rebuiltAll(rows...) {
		if v.Shape.Name == name {
			return v
		}
	}
	t.Fatalf("no service %s", name)
	return nil
}

func rebuiltAll(rows ...model.Object) []*pushcontext.ServiceView {
	byShard := map[model.ShardKey][]model.Object{}
	for _, o := range rows {
		k := shardOf(o)
		byShard[k] = append(byShard[k], o)
	}
	states := map[model.ShardKey]*model.ShardState{}
	for k, rows := range byShard {
		states[k] = state(rows...)
	}
	return aggregate.Rebuild(states, aggregate.Options{ConfigCluster: "c1"})
}

func shardOf(o model.Object) model.ShardKey {
	switch o := o.(type) {
	case *model.Service:
		return o.Source.Shard
	case *model.Endpoints:
		return o.Source.Shard
	case *model.Workload:
		return o.Source.Shard
	}
	return o.(*model.Config).Source.Shard
}

func withPorts(ps ...model.Port) func(*model.Service) {
	return func(s *model.Service) { s.Ports = ps }
}

func withResolution(r model.Resolution) func(*model.Service) {
	return func(s *model.Service) { s.Resolution = r }
}

func created(n int64) func(*model.Service) {
	return func(s *model.Service) { s.Created = time.Unix(n, 0) }
}

func vip(a ...string) func(*model.Service) {
	return func(s *model.Service) {
		for _, x := range a {
			s.Addresses = append(s.Addresses, netip.MustParsePrefix(x))
		}
	}
}

func portsOf(v *pushcontext.ServiceView) string { return fmt.Sprint(v.Shape.Ports) }

func conflictFields(v *pushcontext.ServiceView) []string {
	out := []string{}
	for _, c := range v.Shape.Conflicts {
		out = append(out, c.Field)
	}
	return out
}

func winner(v *pushcontext.ServiceView) string {
	for _, c := range v.Shape.Contributions {
		if c.Won {
			return c.Source.Shard.String() + " " + c.Source.Object.Kind
		}
	}
	return ""
}

func TestMergePrecedence(t *testing.T) {
	t.Parallel()
	c1, c2, c3 := kube("c1"), kube("c2"), kube("c3")
	for _, tc := range []struct {
		name string
		rows []model.Object
		want string
	}{
		{"config cluster first", []model.Object{service(c2, "a", created(1)), service(c1, "a", created(9))}, "kubernetes/c1 Service"},
		{"then the oldest", []model.Object{service(c2, "a", created(5)), service(c3, "a", created(4))}, "kubernetes/c3 Service"},
		{"then the shard's key", []model.Object{service(c3, "a"), service(c2, "a")}, "kubernetes/c2 Service"},
		{"a service object beats an older ServiceEntry of the config cluster",
			[]model.Object{entry(c1, "a", created(1)), service(c2, "a", created(9))}, "kubernetes/c2 Service"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			for range 3 { // the order of rows is that of a map
				if got := winner(rebuilt(t, "a", tc.rows...)); got != tc.want {
					t.Errorf("winner %s, want %s", got, tc.want)
				}
			}
		})
	}
}

// Incident 48: all ports exist, and the winner's definition of a number is kept.
func TestMergePortsIncident48(t *testing.T) {
	t.Parallel()
	c1, c2 := kube("c1"), kube("c2")
	tcp := model.Port{Name: "raw", Number: 8080, Protocol: model.ProtocolTCP}
	v := rebuilt(t, "a",
		service(c1, "a", withPorts(port("http", 8080))), slice(c1, "a", "s1", "10.0.0.1"),
		service(c2, "a", withPorts(port("http", 8090), tcp)), slice(c2, "a", "s2", "10.0.0.2"))
	if want := fmt.Sprint([]model.Port{port("http", 8080), port("http-8090", 8090)}); portsOf(v) != want {
		t.Errorf("ports %s, want %s", portsOf(v), want)
	}
	if d := cmp.Diff([]string{"ports"}, conflictFields(v)); d != "" {
		t.Errorf("conflicts: %s: %+v", d, v.Shape.Conflicts)
	}
	if d := cmp.Diff([]string{"c1/10.0.0.1:8080"}, addrs(v, "http")); d != "" {
		t.Error("port of c1: " + d)
	}
	if d := cmp.Diff([]string{"c2/10.0.0.2:8080"}, addrs(v, "http-8090")); d != "" {
		t.Error("port of c2, renamed: " + d)
	}
}

// Kubernetes allows one number twice, for UDP and for TCP (its own DNS service does), and UDP never
// hides TCP, whichever of several definitions has which.
func TestMergeKeepsUDPApart(t *testing.T) {
	t.Parallel()
	c1, c2 := kube("c1"), kube("c2")
	udp := model.Port{Name: "dns", Number: 53, Protocol: model.ProtocolUDP}
	tcp := model.Port{Name: "dns-tcp", Number: 53, Protocol: model.ProtocolTCP}
	tcpToo := model.Port{Name: "dns", Number: 53, Protocol: model.ProtocolTCP}
	endpoints := func(k model.ShardKey, ip string, ports ...string) *model.Endpoints {
		e := slice(k, "a", "s"+ip, slices.Repeat([]string{ip}, len(ports))...)
		for i, p := range ports {
			e.Endpoints[i].PortName = p
		}
		return e
	}
	for _, tc := range []struct {
		name  string
		rows  []model.Object
		ports []model.Port
		tcp   []string
	}{
		{"one definition", []model.Object{service(c1, "a", withPorts(udp, tcp)), endpoints(c1, "10.0.0.1", "dns", "dns-tcp")},
			[]model.Port{tcp, udp}, []string{"c1/10.0.0.1:8080"}},
		{"the winner has UDP alone", []model.Object{service(c1, "a", withPorts(udp)), endpoints(c1, "10.0.0.1", "dns"),
			service(c2, "a", withPorts(tcp)), endpoints(c2, "10.0.0.2", "dns-tcp")},
			[]model.Port{tcp, udp}, []string{"c2/10.0.0.2:8080"}},
		{"under one name", []model.Object{service(c1, "a", withPorts(udp)), endpoints(c1, "10.0.0.1", "dns"),
			service(c2, "a", withPorts(tcpToo)), endpoints(c2, "10.0.0.2", "dns")},
			[]model.Port{{Name: "dns-53", Number: 53, Protocol: model.ProtocolTCP}, udp}, []string{"c2/10.0.0.2:8080"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			v := rebuilt(t, "a", tc.rows...)
			if want := fmt.Sprint(tc.ports); portsOf(v) != want {
				t.Errorf("ports %s, want %s", portsOf(v), want)
			}
			if d := cmp.Diff(tc.tcp, addrs(v, tc.ports[0].Name)); d != "" {
				t.Error("behind TCP: " + d)
			}
			if d := cmp.Diff([]string{"c1/10.0.0.1:8080"}, addrs(v, "dns")); d != "" {
				t.Error("behind UDP: " + d)
			}
		})
	}
}

// Several definitions in one member: endpoints belong to the ports of their own.
func TestMergeTranslatesByDefinition(t *testing.T) {
	t.Parallel()
	c1 := kube("c1")
	inline := func(e *model.Service, ip string) *model.Endpoints {
		s := slice(c1, "a", e.Source.Object.Name, ip)
		s.Source = e.Source // the inline endpoints of a ServiceEntry have its row key
		return s
	}
	named := func(name string) func(*model.Service) {
		return func(s *model.Service) { s.Source.Object.Name = name }
	}
	selecting := func(s *model.Service) { s.Selector.Labels = model.Labels{"app": "vm"} }
	x, y := entry(c1, "a", named("x")), entry(c1, "a", named("y"), withPorts(port("http", 8080)), selecting)
	vm := workload(c1, model.KindWorkloadEntry, "vm", "10.0.0.9", model.Labels{"app": "vm"})
	for _, tc := range []struct {
		name  string
		first []model.Object
	}{
		{"two ServiceEntries", []model.Object{x, inline(x, "10.0.0.1")}},
		{"a Service and a ServiceEntry", []model.Object{service(c1, "a"), slice(c1, "a", "s1", "10.0.0.1")}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			v := rebuilt(t, "a", append(tc.first, y, inline(y, "10.0.0.2"), vm)...)
			got := [][]string{addrs(v, "http"), addrs(v, "http-8080")}
			if d := cmp.Diff([][]string{{"c1/10.0.0.1:8080"}, {"c1/10.0.0.2:8080", "c1/10.0.0.9:8080"}}, got); d != "" {
				t.Errorf("behind %s (-want +got):\n%s", portsOf(v), d)
			}
		})
	}
}

// A name made for a second port is not that of a third.
func TestMergeNamesStayUnique(t *testing.T) {
	t.Parallel()
	c1 := kube("c1")
	v := rebuilt(t, "a", service(c1, "a", withPorts(port("http", 80), port("http-8080", 9090))), entry(c1, "a", withPorts(port("http", 8080))))
	if want := fmt.Sprint([]model.Port{port("http", 80), port("http-8080-2", 8080), port("http-8080", 9090)}); portsOf(v) != want {
		t.Errorf("ports %s, want %s", portsOf(v), want)
	}
}

// One number under two names: endpoints of both are behind the winner's name.
func TestMergeTranslatesPortNames(t *testing.T) {
	t.Parallel()
	c1, c2 := kube("c1"), kube("c2")
	web := slice(c2, "a", "s2", "10.0.0.2")
	web.Endpoints[0].PortName = "web"
	v := rebuilt(t, "a", service(c1, "a"), slice(c1, "a", "s1", "10.0.0.1"), service(c2, "a", withPorts(port("web", 80))), web)
	if d := cmp.Diff([]string{"c1/10.0.0.1:8080", "c2/10.0.0.2:8080"}, addrs(v, "http")); d != "" {
		t.Error(d)
	}
	if web.Endpoints[0].PortName != "web" {
		t.Error("a row was changed")
	}
}

// Incident 49: headless in some members, with a virtual address in another. One resolution, decided
// by precedence alone; addresses stay with their member; the unspecified one is none.
func TestMergeResolutionIncident49(t *testing.T) {
	t.Parallel()
	headless := withResolution(model.Passthrough)
	v := rebuilt(t, "a", service(kube("c1"), "a", headless, vip("0.0.0.0/32")), service(kube("c2"), "a", headless), service(kube("c3"), "a", vip("10.3.0.1/32")))
	if v.Shape.Resolution != model.Passthrough {
		t.Errorf("resolution %v", v.Shape.Resolution)
	}
	if d := cmp.Diff("map[c3:[10.3.0.1/32]]", fmt.Sprint(v.Shape.Addresses)); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff([]string{"resolution"}, conflictFields(v)); d != "" {
		t.Error(d)
	}
}

// Incident 50: a Service and a ServiceEntry of one host with another resolution.
func TestMergeServiceAndEntryIncident50(t *testing.T) {
	t.Parallel()
	c1 := kube("c1")
	named := slice(c1, "a", "named", "10.0.0.2")
	named.Endpoints[0].Addr = model.Addr{Cluster: "c1", AddrPort: netip.AddrPortFrom(netip.Addr{}, 80), Host: "db.example"}
	svc, eps, se := service(c1, "a", vip("10.1.0.1/32")), slice(c1, "a", "s", "10.0.0.1"), entry(c1, "a", withResolution(model.DNSLB), vip("240.0.0.1/32"))
	v := rebuilt(t, "a", svc, eps, se, named)
	if v.Shape.Resolution != model.ClientSideLB || !v.Shape.Native || v.Shape.MeshAddresses {
		t.Errorf("resolution %v, native %v, mesh addresses %v", v.Shape.Resolution, v.Shape.Native, v.Shape.MeshAddresses)
	}
	if d := cmp.Diff([]string{"c1/10.0.0.1:8080"}, addrs(v, "http")); d != "" {
		t.Error(d)
	}
	if len(v.LeftOut) != 1 || v.LeftOut[0].Reason != model.ReasonWrongKind {
		t.Errorf("left out: %v", v.LeftOut)
	}
	if v = rebuilt(t, "a", eps, se, named); v.Shape.Resolution != model.DNSLB || len(addrs(v, "http")) != 2 || len(v.Shape.Inline) != 1 || !v.Shape.MeshAddresses {
		t.Errorf("without the Service: %v, %v, inline %v", v.Shape.Resolution, addrs(v, "http"), v.Shape.Inline)
	}
}

// Incident 51: an address that moves between slices, and several slices that list it.
func TestMergeSlicesIncident51(t *testing.T) {
	t.Parallel()
	c1 := kube("c1")
	stamped := func(name string, at int64, h model.Health, ips ...string) *model.Endpoints {
		e := slice(c1, "a", name, ips...)
		e.Source.Time = time.Unix(at, 0)
		for i := range e.Endpoints {
			e.Endpoints[i].Health = h
		}
		return e
	}
	svc := service(c1, "a")
	v := rebuilt(t, "a", svc, stamped("x", 1, model.Healthy, "10.0.0.1", "10.0.0.2"), stamped("y", 2, model.Draining, "10.0.0.1"), stamped("v6", 1, model.Healthy, "fd00::1"))
	if d := cmp.Diff([]string{"c1/10.0.0.1:8080", "c1/10.0.0.2:8080", "c1/[fd00::1]:8080"}, addrs(v, "http")); d != "" {
		t.Error(d)
	}
	if h := v.Port("http")[0].Endpoints[0].Health; h != model.Draining {
		t.Errorf("health %v: the newest slice says draining", h)
	}
	v = rebuilt(t, "a", svc, stamped("x", 3, model.Healthy, "10.0.0.2"), stamped("y", 2, model.Healthy, "10.0.0.1"))
	if d := cmp.Diff([]string{"c1/10.0.0.1:8080", "c1/10.0.0.2:8080"}, addrs(v, "http")); d != "" {
		t.Error("gone from one slice, still in the other: " + d)
	}
}

func TestMergePolicyConflicts(t *testing.T) {
	t.Parallel()
	hidden := func(s *model.Service) { s.ExportTo, s.External = []string{"."}, true }
	v := rebuilt(t, "a", service(kube("c1"), "a"), service(kube("c2"), "a", hidden, withResolution(model.DNSLB)))
	if d := cmp.Diff([]string{"resolution", "exportTo", "location"}, conflictFields(v)); d != "" {
		t.Error(d)
	}
	if !v.Shape.Export.Public || v.Shape.External {
		t.Errorf("export %+v, external %v: not the winner's", v.Shape.Export, v.Shape.External)
	}
}

func TestMergeInline(t *testing.T) {
	t.Parallel()
	c1 := kube("c1")
	tcp := withPorts(port("http", 80), model.Port{Name: "db", Number: 5432, Protocol: model.ProtocolTCP})
	for _, tc := range []struct {
		name string
		svc  *model.Service
		want bool
	}{
		{"EDS", service(c1, "a", tcp), false},
		{"DNS", service(c1, "a", withResolution(model.DNSLB)), true},
		{"round-robin DNS", service(c1, "a", withResolution(model.DNSRoundRobin)), true},
		{"headless HTTP", service(c1, "a", withResolution(model.Passthrough)), false},
		{"headless TCP", service(c1, "a", withResolution(model.Passthrough), tcp), true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			v := rebuilt(t, "a", tc.svc, slice(c1, "a", "s", "10.0.0.1"))
			if got := len(v.Shape.Inline) > 0; got != tc.want {
				t.Errorf("inline %v, want %v", got, tc.want)
			}
		})
	}
}

// Incident 59 and contract: a cluster-local service is one service per member, each with its own
// members' endpoints and WorkloadEntries.
func TestMergeClusterLocalIncident59(t *testing.T) {
	t.Parallel()
	c1, c2 := kube("c1"), kube("c2")
	app := model.Labels{"app": "x"}
	local := func(s *model.Service) { s.ClusterLocal, s.Selector.Labels = true, app }
	views := rebuiltAll(
		service(c1, "a", local), slice(c1, "a", "s", "10.0.0.1"), workload(c1, model.KindWorkloadEntry, "vm", "10.0.0.9", app),
		service(c2, "a", local), slice(c2, "a", "s", "10.0.0.1"))
	if len(views) != 2 {
		t.Fatalf("%d services, want one per member", len(views))
	}
	if d := cmp.Diff([]string{"c1/10.0.0.1:8080", "c1/10.0.0.9:80"}, sorted(addrs(views[0], "http"))); d != "" || views[0].Shape.Key.Cluster != "c1" {
		t.Errorf("%s: %s", views[0].Shape.Key, d)
	}
	if d := cmp.Diff([]string{"c2/10.0.0.1:8080"}, addrs(views[1], "http")); d != "" || views[1].Shape.Key.Cluster != "c2" {
		t.Errorf("%s: %s", views[1].Shape.Key, d)
	}
}

// Contract 2.1 #6: where settings keep a ServiceEntry's host to each member, proxies of a member still
// find the workloads that run beside them.
func TestMergeClusterLocalEntry(t *testing.T) {
	t.Parallel()
	c1, c2 := kube("c1"), kube("c2")
	settings := &meshconfig.MeshConfig{ServiceSettings: []*meshconfig.MeshConfig_ServiceSettings{{
		Hosts: []string{host("a")}, Settings: &meshconfig.MeshConfig_ServiceSettings_Settings{ClusterLocal: true},
	}}}
	for _, configCluster := range []model.ClusterID{"c1", ""} { // settings belong to no member, whatever their key
		row := meshRow(settings, model.ConfigMesh)
		row.Source.Shard.Cluster = configCluster
		views := rebuiltAll(entry(c1, "a", selecting(appX)), workload(c1, model.KindPod, "p", "10.0.0.1", appX),
			workload(c2, model.KindPod, "p", "10.0.0.1", appX), row)
		got := map[string][]string{}
		for _, v := range views {
			got[string(v.Shape.Key.Cluster)] = addrs(v, "http")
		}
		if d := cmp.Diff(map[string][]string{"c1": {"c1/10.0.0.1:80"}, "c2": {"c2/10.0.0.1:80"}}, got); d != "" {
			t.Errorf("settings of %q: %s", configCluster, d)
		}
	}
}

func sorted(s []string) []string { return slices.Sorted(slices.Values(s)) }

func meshRow(spec any, kind string) *model.Config {
	return &model.Config{Kind: kind, Name: "mesh", Spec: spec, Source: model.Source{
		Shard: model.ShardKey{Provider: model.ProviderMesh, Cluster: "c1"}, Object: model.ObjectKey{Kind: kind, Name: "mesh"},
	}}
}

func TestMergeClusterLocalSettings(t *testing.T) {
	t.Parallel()
	setting := func(local bool, hosts ...string) *meshconfig.MeshConfig_ServiceSettings {
		return &meshconfig.MeshConfig_ServiceSettings{Hosts: hosts, Settings: &meshconfig.MeshConfig_ServiceSettings_Settings{ClusterLocal: local}}
	}
	at := func(h string) *model.Service {
		s := service(kube("c2"), "a")
		s.Host = h
		return s
	}
	for _, tc := range []struct {
		host     string
		settings []*meshconfig.MeshConfig_ServiceSettings
		want     model.ClusterID
	}{
		{"a.ns.svc.cluster.local", nil, ""},
		{"dns.kube-system.svc.cluster.local", nil, "c2"},
		{"kubernetes.default.svc.cluster.local", nil, "c2"},
		{"istiod.istio-system.svc.cluster.local", nil, "c2"},
		{"kubernetes.default.svc.cluster.local", []*meshconfig.MeshConfig_ServiceSettings{setting(false, "kubernetes.default.svc.cluster.local")}, ""},
		{"a.ns.svc.cluster.local", []*meshconfig.MeshConfig_ServiceSettings{setting(true, "*.ns.svc.cluster.local")}, "c2"},
		{"a.ns.svc.cluster.local", []*meshconfig.MeshConfig_ServiceSettings{setting(true, "*.ns.svc.cluster.local"), setting(false, "a.ns.svc.cluster.local")}, ""},
		{"a.ns.svc.cluster.local", []*meshconfig.MeshConfig_ServiceSettings{setting(false, "*.ns.svc.cluster.local"), setting(true, "*")}, ""},
	} {
		t.Run(fmt.Sprint(tc.host, tc.settings), func(t *testing.T) {
			t.Parallel()
			v := rebuilt(t, "a", at(tc.host), meshRow(&meshconfig.MeshConfig{ServiceSettings: tc.settings}, model.ConfigMesh))
			if v.Shape.Key.Cluster != tc.want {
				t.Errorf("cluster %q, want %q", v.Shape.Key.Cluster, tc.want)
			}
		})
	}
}

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
		{Network: "n1", Host: "gw.example", Addr: netip.AddrPortFrom(netip.Addr{}, 15443)}, {Network: "n1", Addr: netip.MustParseAddrPort("1.1.1.1:15443")},
	}
	if g := v.Shape.Mesh.Gateways; !slices.Equal(g, wantGW) {
		t.Errorf("gateways %v, want %v", g, wantGW)
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
		views := aggregate.Rebuild(map[model.ShardKey]*model.ShardState{c1: rows}, aggregate.Options{TrustDomain: tc.option})
		if got := views[0].Shape.Mesh.Config.TrustDomain; got != tc.want {
			t.Errorf("option %q, settings %q: %q, want %q", tc.option, tc.settings, got, tc.want)
		}
	}
}

func meshConfigWithTrustDomain(d string) *meshconfig.MeshConfig {
	return &meshconfig.MeshConfig{TrustDomain: d}
}
