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

func rebuiltAll(rows ...model.Object) []*pushcontext.ServiceView { return rebuild(rows...).Services }

func rebuild(rows ...model.Object) aggregate.Rebuilt {
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
