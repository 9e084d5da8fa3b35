package gen_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"github.com/google/go-cmp/cmp"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/pushcontext"
	"github.com/isthmus-mesh/isthmus/xds/gen"
)

// subsetOf selects by "key=value" labels.
func subsetOf(name string, p *networking.TrafficPolicy, labels ...string) *networking.Subset {
	out := &networking.Subset{Name: name, TrafficPolicy: p, Labels: map[string]string{}}
	for _, l := range labels {
		k, v, _ := strings.Cut(l, "=")
		out.Labels[k] = v
	}
	return out
}

// divided makes a DestinationRule of the service's namespace with subsets.
func divided(p *networking.TrafficPolicy, subsets ...*networking.Subset) *pushcontext.DestinationPolicy {
	out := destination("shop", "r", p)
	out.Spec.Subsets = subsets
	return out
}

// underSubsets gives a service with subsets that select by the label "version".
func underSubsets(s svc, versions ...string) svc {
	var list []*networking.Subset
	for _, v := range versions {
		list = append(list, subsetOf(v, nil, "version="+v))
	}
	return underRules(s, divided(nil, list...))
}

func version(v string) func(*model.Endpoint) {
	return func(e *model.Endpoint) { e.Labels = model.Labels{"version": v, "app": "cart"} }
}

// assignmentsOf gives the assignments of a service as one proxy sees them, the way the engine makes them.
func assignmentsOf(t testing.TB, v *pushcontext.ServiceView, c gen.Class) map[string]*endpointv3.ClusterLoadAssignment {
	t.Helper()
	out := map[string]*endpointv3.ClusterLoadAssignment{}
	for _, r := range build(t, gen.Endpoints{}, v, gen.Endpoints{}.Narrow(v, c.Keep(gen.Endpoints{}.Traits(v)|gen.TraitPolicy))) {
		out[r.name] = decode(t, r).(*endpointv3.ClusterLoadAssignment)
	}
	return out
}

// Endpoints of a subset are those that have its labels; what the hub knows of their place counts as labels.
func TestSubsetEndpoints(t *testing.T) {
	t.Parallel()
	s := cart(
		ep("c1", "http", "10.0.0.1:80", version("v1"), at("r1/z1"), network("n1"), node("a")), ep("c1", "http", "10.0.0.2:80", version("v2"), at("r1/z2")),
		ep("c2", "http", "10.0.0.3:80", version("v1"), at("r2/z1/s1")), ep("c2", "http", "10.0.0.4:80", at("r2/z1"), func(e *model.Endpoint) {
			e.Labels = model.Labels{"topology.istio.io/cluster": "lie", "empty": ""}
		}))
	for _, c := range []struct {
		labels string
		want   string // last parts of addresses
	}{
		{"", "1 2 3 4"}, {"version=v1", "1 3"}, {"version=v2", "2"}, {"version=v3", ""}, {"version=v1,app=cart", "1 3"}, {"version=v1,app=other", ""},
		{"topology.istio.io/cluster=c2", "3 4"}, {"topology.istio.io/cluster=lie", ""}, {"topology.istio.io/cluster=c1,version=v2", "2"},
		{"topology.kubernetes.io/region=r1", "1 2"}, {"topology.kubernetes.io/zone=z1", "1 3 4"}, {"topology.istio.io/subzone=s1", "3"},
		{"topology.istio.io/network=n1", "1"}, {"kubernetes.io/hostname=a", "1"}, {"empty=", "4"},
	} {
		labels := strings.Split(c.labels, ",")
		if c.labels == "" {
			labels = nil
		}
		v := underRules(s, divided(nil, subsetOf("s", nil, labels...))).view(newMesh())
		all := assignmentsOf(t, v, sidecar("c1", "shop"))
		var got []string
		for _, line := range assignmentText(all["outbound|80|s|cart.shop.svc.cluster.local"]) {
			for _, f := range strings.Fields(line) {
				if addr, ok := strings.CutPrefix(f, "10.0.0."); ok {
					got = append(got, addr[:1])
				}
			}
		}
		slices.Sort(got)
		if strings.Join(got, " ") != c.want {
			t.Errorf("%q: endpoints %v, want %q", c.labels, got, c.want)
		}
		if whole := all["outbound|80||cart.shop.svc.cluster.local"]; len(sentOf(whole)) != 4 {
			t.Errorf("%q: the service itself has %v", c.labels, sentOf(whole))
		}
	}
}

// Each port has its subsets; of two subsets of one name the first counts, and one whose name would be unreadable is
// none.
func TestSubsetNames(t *testing.T) {
	t.Parallel()
	s := cart(ep("c1", "http", "10.0.0.1:80", version("v1")))
	s.ports = append(s.ports, tcpPort(90), model.Port{Name: "dns", Number: 53, Protocol: model.ProtocolUDP})
	s = underRules(s, divided(nil, subsetOf("v1", nil, "version=v1"), subsetOf("", nil), subsetOf("a|b", nil), subsetOf("a_.b", nil), subsetOf("v1", nil, "version=v2"), subsetOf("v2", nil)))
	want := []string{"outbound|80||" + s.host, "outbound|80|v1|" + s.host, "outbound|80|v2|" + s.host, "outbound|90||" + s.host, "outbound|90|v1|" + s.host, "outbound|90|v2|" + s.host}
	v, c := s.view(newMesh()), sidecar("c1", "shop")
	for _, x := range []struct {
		g gen.Generator
		v pushcontext.View
	}{{gen.Clusters{}, v.Shape}, {gen.Endpoints{}, v}} {
		if d := cmp.Diff(want, x.g.Names(x.v, c)); d != "" {
			t.Errorf("%T (-want +got):\n%s", x.g, d)
		}
	}
	if got := assignmentText(assignmentsOf(t, v, c)[want[1]]); len(got) != 1 {
		t.Errorf("of two subsets v1 the first counts: %v", got)
	}
}

// What a subset says of a setting goes before what its rule says; port settings replace all settings of their level.
func TestSubsetPolicy(t *testing.T) {
	t.Parallel()
	simple := func(b networking.LoadBalancerSettings_SimpleLB) *networking.TrafficPolicy {
		return &networking.TrafficPolicy{LoadBalancer: &networking.LoadBalancerSettings{LbPolicy: &networking.LoadBalancerSettings_Simple{Simple: b}}}
	}
	random, robin := simple(networking.LoadBalancerSettings_RANDOM), simple(networking.LoadBalancerSettings_ROUND_ROBIN)
	both := func(all, port *networking.TrafficPolicy) *networking.TrafficPolicy {
		return &networking.TrafficPolicy{LoadBalancer: all.LoadBalancer, OutlierDetection: all.OutlierDetection, PortLevelSettings: forPort(80, port).PortLevelSettings}
	}
	for name, c := range map[string]struct {
		rule, subset *networking.TrafficPolicy
		balancer     clusterv3.Cluster_LbPolicy
		errors       uint32
	}{
		"nothing":                                {nil, nil, clusterv3.Cluster_LEAST_REQUEST, 0},
		"of the rule":                            {detecting(simple(networking.LoadBalancerSettings_RANDOM)), nil, clusterv3.Cluster_RANDOM, 3},
		"of the subset":                          {nil, random, clusterv3.Cluster_RANDOM, 0},
		"subset before rule":                     {robin, random, clusterv3.Cluster_RANDOM, 0},
		"the rest stays":                         {detecting(simple(networking.LoadBalancerSettings_ROUND_ROBIN)), random, clusterv3.Cluster_RANDOM, 3},
		"port of the rule":                       {forPort(80, robin), nil, clusterv3.Cluster_ROUND_ROBIN, 0},
		"subset before port of the rule":         {forPort(80, detecting(simple(networking.LoadBalancerSettings_ROUND_ROBIN))), random, clusterv3.Cluster_RANDOM, 3},
		"port of the subset":                     {detecting(simple(networking.LoadBalancerSettings_ROUND_ROBIN)), forPort(80, random), clusterv3.Cluster_RANDOM, 0},
		"port of the subset before all of it":    {nil, both(detecting(simple(networking.LoadBalancerSettings_ROUND_ROBIN)), random), clusterv3.Cluster_RANDOM, 0},
		"another port of the subset says naught": {random, forPort(81, robin), clusterv3.Cluster_RANDOM, 0},
	} {
		s := underRules(cart(), divided(c.rule, subsetOf("v1", c.subset)))
		got := clustersOf(t, s, newMesh(), sidecar("c1", "shop"))["outbound|80|v1|"+s.host]
		if got.LbPolicy != c.balancer || got.OutlierDetection.GetConsecutive_5Xx().GetValue() != c.errors {
			t.Errorf("%s: %s, %v", name, got.LbPolicy, got.OutlierDetection)
		}
	}
}

// A subset's own settings decide about its endpoints too: which are sent, in which order, and what the class costs.
func TestSubsetSelection(t *testing.T) {
	t.Parallel()
	s := cart(ep("c1", "http", "10.0.0.1:80", version("v1"), at("r1")), ep("c1", "http", "10.0.0.2:80", version("v1"), at("r2"), health(model.Unhealthy)), ep("c1", "http", "10.0.0.3:80", version("v2"), at("r1")))
	counted := localities(&localitySetting{FailoverPriority: []string{"tier"}})
	counted.OutlierDetection = &networking.OutlierDetection{MinHealthPercent: 50}
	s = underRules(s, divided(nil, subsetOf("all", nil, "version=v1"), subsetOf("ready", counted, "version=v1")))
	v := s.view(newMesh())
	all := assignmentsOf(t, v, sidecar("c1", "shop"))
	if got := len(sentOf(all["outbound|80|all|"+s.host])); got != 2 {
		t.Errorf("all: %d endpoints", got)
	}
	if got := len(sentOf(all["outbound|80|ready|"+s.host])); got != 1 {
		t.Errorf("ready: %d endpoints", got)
	}
	if got := (gen.Endpoints{}).Traits(v); got != gen.TraitTLS|gen.TraitPolicy {
		t.Errorf("traits %b", got)
	}
	rule := gen.RuleFor(v.Shape, sidecar("c1", "shop"))
	if got := gen.SubsetsWith(rule, s.endpoints[1]); !slices.Equal(got, []string{"all", "ready"}) {
		t.Errorf("an endpoint is in the subsets %v", got)
	}
	if got := gen.SubsetsWith(rule, s.endpoints[2]); got != nil {
		t.Errorf("another is in the subsets %v", got)
	}
}

// Subsets of services that proxies resolve, and of those reached where the application says.
func TestSubsetOfOtherResolutions(t *testing.T) {
	t.Parallel()
	named := func(r model.Resolution) svc {
		return underSubsets(svc{host: "api.example.com", ns: "shop", ports: []model.Port{httpPort(80)}, resolution: r,
			inline: []*model.Endpoint{ep("c1", "http", "a.example.com:80", version("v1")), ep("c1", "http", "b.example.com:80", version("v2"))}}, "v1", "v2", "v3")
	}
	hosts := func(c *clusterv3.Cluster) string {
		var out []string
		for _, l := range c.LoadAssignment.GetEndpoints() {
			for _, e := range l.LbEndpoints {
				out = append(out, e.GetEndpoint().Address.GetSocketAddress().Address)
			}
		}
		return fmt.Sprint(c.GetType(), out)
	}
	for _, c := range []struct {
		resolution     model.Resolution
		base, one, non string
	}{
		{model.DNSLB, "STRICT_DNS [a.example.com b.example.com]", "STRICT_DNS [b.example.com]", "STATIC []"},
		{model.DNSRoundRobin, "LOGICAL_DNS [a.example.com]", "LOGICAL_DNS [b.example.com]", "STATIC []"},
		{model.Passthrough, "ORIGINAL_DST []", "ORIGINAL_DST []", "ORIGINAL_DST []"},
	} {
		all := clustersOf(t, named(c.resolution), newMesh(), sidecar("c1", "shop"))
		got := []string{hosts(all["outbound|80||api.example.com"]), hosts(all["outbound|80|v2|api.example.com"]), hosts(all["outbound|80|v3|api.example.com"])}
		if d := cmp.Diff([]string{c.base, c.one, c.non}, got); d != "" {
			t.Errorf("%s (-want +got):\n%s", c.resolution, d)
		}
	}
}

// Gateways forward to subsets by their names, which callers show.
func TestSubsetAcrossNetworks(t *testing.T) {
	t.Parallel()
	s := cart(ep("c2", "http", "10.2.0.1:80", version("v1"), mtls, network("n2")), ep("c2", "http", "10.2.0.2:80", version("v2"), mtls, network("n2")), ep("c2", "http", "10.2.0.3:80", version("v1"), network("n2")))
	s = underSubsets(s, "v1", "V2")
	m := newMesh(crossing)
	v := s.view(m)
	east := sidecar("c2", "istio-system", forwarding(1), onNetwork("n2"))
	if d := cmp.Diff([]string{"outbound_.80_._." + s.host, "outbound_.80_.v1_." + s.host}, forwardedNames(t, gen.Endpoints{}, v, east)); d != "" {
		t.Errorf("assignments (-want +got):\n%s", d)
	}
	if d := cmp.Diff(forwardedNames(t, gen.Endpoints{}, v, east), forwardedNames(t, gen.Clusters{}, v.Shape, east)); d != "" {
		t.Errorf("clusters (-assignments +got):\n%s", d)
	}
	if d := cmp.Diff([]string{"p0  w=6: 10.2.0.1:80*6"}, assignmentText(assignmentsOf(t, v, east)["outbound_.80_.v1_."+s.host])); d != "" {
		t.Errorf("forwarded to (-want +got):\n%s", d)
	}
	caller := clustersOf(t, s, m, sidecar("c1", "shop", secured, onNetwork("n1")))["outbound|80|v1|"+s.host]
	if got := security(t, caller); got != "auto outbound_.80_.v1_."+s.host+" istio certified" {
		t.Errorf("caller: %s", got)
	}
}

// Rules of different namespaces have different subsets: which clusters there are depends on the class.
func TestSubsetsByNamespaceAndSelector(t *testing.T) {
	t.Parallel()
	own := destination("client", "own", nil)
	own.Spec.Subsets = []*networking.Subset{subsetOf("mine", nil, "version=v1")}
	canary := destination("client", "canary", nil)
	canary.Selector = model.Labels{"role": "canary"}
	canary.Spec.Subsets = []*networking.Subset{subsetOf("try", nil, "version=v2")}
	s := underRules(cart(ep("c1", "http", "10.0.0.1:80", version("v1")), ep("c1", "http", "10.0.0.2:80", version("v2"))),
		canary, own, divided(nil, subsetOf("theirs", nil, "version=v1")))
	v := s.view(newMesh())
	classes := map[gen.Class]bool{}
	for _, c := range []struct{ namespace, role, subset string }{
		{"client", "", "mine"}, {"client", "canary", "try"}, {"client", "x", "mine"}, {"shop", "canary", "theirs"}, {"other", "canary", "theirs"}, {"other", "", "theirs"},
	} {
		class := sidecar("c1", c.namespace, labelled(model.Labels{"role": c.role, "hash": c.namespace + c.role}))
		want := []string{"outbound|80|" + c.subset + "|" + s.host, "outbound|80||" + s.host}
		if d := cmp.Diff(want, slices.Sorted(maps.Keys(assignmentsOf(t, v, class)))); d != "" {
			t.Errorf("%+v: assignments (-want +got):\n%s", c, d)
		}
		if d := cmp.Diff(want, slices.Sorted(maps.Keys(clustersOf(t, s, newMesh(), class)))); d != "" {
			t.Errorf("%+v: clusters (-want +got):\n%s", c, d)
		}
		classes[gen.Endpoints{}.Narrow(v, class.Keep(gen.Endpoints{}.Traits(v)))] = true
	}
	if len(classes) != 4 { // all others; of client those with each of three roles
		t.Errorf("%d classes", len(classes))
	}
}

// An endpoint that changes changes the assignments that it is in, and no others.
func TestSubsetOfAChangedEndpoint(t *testing.T) {
	t.Parallel()
	es := []*model.Endpoint{ep("c1", "http", "10.0.0.1:80", version("v1")), ep("c1", "http", "10.0.0.2:80", version("v2"))}
	before := assignmentsOf(t, underSubsets(cart(es...), "v1", "v2").view(newMesh()), sidecar("c1", "shop"))
	es[1] = ep("c1", "http", "10.0.0.2:80", version("v2"), weight(3))
	var changed []string
	for n, a := range assignmentsOf(t, underSubsets(cart(es...), "v1", "v2").view(newMesh()), sidecar("c1", "shop")) {
		if fmt.Sprint(sentOf(a)) != fmt.Sprint(sentOf(before[n])) {
			changed = append(changed, n)
		}
	}
	slices.Sort(changed)
	if d := cmp.Diff([]string{"outbound|80|v2|cart.shop.svc.cluster.local", "outbound|80||cart.shop.svc.cluster.local"}, changed); d != "" {
		t.Errorf("changed (-want +got):\n%s", d)
	}
}
