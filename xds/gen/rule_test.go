package gen_test

import (
	"slices"
	"strings"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/pushcontext"
	"github.com/isthmus-mesh/isthmus/xds/gen"
)

// destination makes a DestinationRule of a namespace for everybody.
func destination(namespace, name string, p *networking.TrafficPolicy) *pushcontext.DestinationPolicy {
	return &pushcontext.DestinationPolicy{Namespace: namespace, Export: pushcontext.Export{Public: true},
		Source: model.Source{Object: model.ObjectKey{Kind: "DestinationRule", Namespace: namespace, Name: name}},
		Spec:   &networking.DestinationRule{TrafficPolicy: p}}
}

// underRules gives a service with DestinationRules.
func underRules(s svc, rules ...*pushcontext.DestinationPolicy) svc {
	before := s.edit
	s.edit = func(v *pushcontext.ShapeView) {
		if before != nil {
			before(v)
		}
		v.Policies = append(v.Policies, rules...)
	}
	return s
}

func localities(l *networking.LocalityLoadBalancerSetting) *networking.TrafficPolicy {
	return &networking.TrafficPolicy{LoadBalancer: &networking.LoadBalancerSettings{LocalityLbSetting: l}}
}

// detecting adds outlier detection, without which there is no failover.
func detecting(p *networking.TrafficPolicy) *networking.TrafficPolicy {
	p.OutlierDetection = &networking.OutlierDetection{Consecutive_5XxErrors: wrapperspb.UInt32(3)}
	return p
}

func inMode(m networking.ClientTLSSettings_TLSmode) *networking.TrafficPolicy {
	return &networking.TrafficPolicy{Tls: &networking.ClientTLSSettings{Mode: m}}
}

func forPort(n uint32, p *networking.TrafficPolicy) *networking.TrafficPolicy {
	return &networking.TrafficPolicy{PortLevelSettings: []*networking.TrafficPolicy_PortTrafficPolicy{{
		Port: &networking.PortSelector{Number: n}, LoadBalancer: p.LoadBalancer, OutlierDetection: p.OutlierDetection, Tls: p.Tls}}}
}

func seconds(n int64) *durationpb.Duration { return &durationpb.Duration{Seconds: n} }

type localitySetting = networking.LocalityLoadBalancerSetting

// Whose locality setting is in force: the rule's, the service's own, the mesh's.
func TestPolicyPrecedence(t *testing.T) {
	t.Parallel()
	here := sidecar("c1", "shop", inZone("r1/z1"))
	spread := func(edits ...func(*pushcontext.ShapeView)) svc {
		s := cart(ep("c1", "http", "10.0.0.1:80", at("r1/z1")), ep("c1", "http", "10.0.0.2:80", at("r1/z2")), ep("c1", "http", "10.0.0.3:80", at("r2/z1")))
		s.edit = func(v *pushcontext.ShapeView) {
			for _, e := range edits {
				e(v)
			}
		}
		return s
	}
	near := func(v *pushcontext.ShapeView) { v.Traffic = model.TrafficPreferSameZone }
	flat := []string{"p0 r1/z1 w=1: 10.0.0.1:80*1", "p0 r1/z2 w=1: 10.0.0.2:80*1", "p0 r2/z1 w=1: 10.0.0.3:80*1"}
	failed := []string{"p0 r1/z1 w=1: 10.0.0.1:80*1", "p1 r1/z2 w=1: 10.0.0.2:80*1", "p2 r2/z1 w=1: 10.0.0.3:80*1"}
	shares := []string{"p0 r1/z1 w=10: 10.0.0.1:80*1", "p0 r1/z2 w=90: 10.0.0.2:80*1"}
	distribute := &localitySetting{Distribute: []*networking.LocalityLoadBalancerSetting_Distribute{{From: "r1/*", To: map[string]uint32{"r1/z1/*": 10, "r1/z2/*": 90}}}}
	lost := map[string]model.Reason{"10.0.0.3:80": model.ReasonLocalityWeight}
	onSetting := setting(&localitySetting{})
	regions := []string{"p0 r1/z1 w=1: 10.0.0.1:80*1", "p0 r1/z2 w=1: 10.0.0.2:80*1", "p1 r2/z1 w=1: 10.0.0.3:80*1"}
	on, off := &zoneSetting{Enabled: wrapperspb.Bool(true)}, &zoneSetting{Enabled: wrapperspb.Bool(false)}
	for _, c := range []selectCase{
		{name: "of the rule, without outlier detection", mesh: newMesh(onSetting), svc: underRules(spread(), destination("shop", "r", localities(&localitySetting{}))), class: here, want: flat},
		{name: "of the rule, with it", mesh: newMesh(), svc: underRules(spread(), destination("shop", "r", detecting(localities(&localitySetting{})))), class: here, want: failed},
		{name: "of the rule, with the mesh's outlier detection", mesh: newMesh(failover), svc: underRules(spread(), destination("shop", "r", localities(&localitySetting{}))), class: here, want: failed},
		{name: "the mesh's where the rule has outlier detection alone", mesh: newMesh(onSetting), svc: underRules(spread(), destination("shop", "r", detecting(&networking.TrafficPolicy{}))), class: here, want: failed},
		{name: "turned off by the rule", mesh: newMesh(onSetting, failover), class: here, want: flat,
			svc: underRules(spread(), destination("shop", "r", localities(&localitySetting{Enabled: wrapperspb.Bool(false)})))},
		{name: "turned on by the rule", mesh: newMesh(failover, setting(&localitySetting{Enabled: wrapperspb.Bool(false)})), class: here, want: failed,
			svc: underRules(spread(), destination("shop", "r", localities(&localitySetting{Enabled: wrapperspb.Bool(true)})))},
		{name: "the rule's goes before a traffic distribution", mesh: newMesh(), class: here, want: shares, left: lost,
			svc: underRules(spread(near), destination("shop", "r", localities(distribute)))},
		{name: "the rule turns a traffic distribution off", mesh: newMesh(), class: here, want: flat,
			svc: underRules(spread(near), destination("shop", "r", localities(&localitySetting{Enabled: wrapperspb.Bool(false)})))},
		{name: "a traffic distribution goes before the mesh's", mesh: newMesh(setting(distribute)), svc: spread(near), class: here, want: failed},
		{name: "a rule without locality setting leaves a traffic distribution", mesh: newMesh(setting(distribute)), class: here, want: failed,
			svc: underRules(spread(near), destination("shop", "r", detecting(&networking.TrafficPolicy{})))},
		{name: "zone-aware balancing of the rule goes before the mesh's locality setting", mesh: newMesh(setting(distribute)), class: here, want: regions,
			svc: underRules(spread(), destination("shop", "r", zoneAware(on, nil)))},
		{name: "and before a traffic distribution", mesh: newMesh(), class: here, want: regions, svc: underRules(spread(near), destination("shop", "r", zoneAware(on, nil)))},
		{name: "and before its own locality setting", mesh: newMesh(), class: here, want: regions, svc: underRules(spread(), destination("shop", "r", zoneAware(on, distribute)))},
		{name: "a zone-aware setting without a word is on", mesh: newMesh(), class: here, want: regions, svc: underRules(spread(), destination("shop", "r", zoneAware(&zoneSetting{}, nil)))},
		{name: "one that is off leaves the rule's locality setting", mesh: newMesh(), class: here, want: shares, left: lost,
			svc: underRules(spread(), destination("shop", "r", zoneAware(off, distribute)))},
		{name: "one that is off leaves a traffic distribution", mesh: newMesh(zonesOfMesh(on)), class: here, want: failed,
			svc: underRules(spread(near), destination("shop", "r", zoneAware(off, nil)))},
		{name: "one that is off replaces the mesh's", mesh: newMesh(zonesOfMesh(on), onSetting), class: here, want: flat,
			svc: underRules(spread(), destination("shop", "r", zoneAware(off, nil)))},
		{name: "zone-aware balancing of the mesh goes before its locality setting", mesh: newMesh(zonesOfMesh(on), setting(distribute)), class: here, want: regions, svc: spread()},
		{name: "but after the rule's", mesh: newMesh(zonesOfMesh(on)), class: here, want: shares, left: lost, svc: underRules(spread(), destination("shop", "r", localities(distribute)))},
		{name: "and after a traffic distribution", mesh: newMesh(zonesOfMesh(on)), class: here, want: failed, svc: spread(near)},
		{name: "that of the mesh turned off", mesh: newMesh(zonesOfMesh(off), setting(distribute)), class: here, want: shares, left: lost, svc: spread()},
		{name: "of the port", mesh: newMesh(onSetting), svc: underRules(spread(), destination("shop", "r", forPort(80, detecting(localities(distribute))))), class: here, want: shares, left: lost},
		{name: "of another port", mesh: newMesh(onSetting), svc: underRules(spread(), destination("shop", "r", forPort(81, detecting(localities(distribute))))), class: here, want: flat},
		{name: "the port's replaces that for all ports", mesh: newMesh(onSetting), class: here, want: flat, svc: underRules(spread(), func() *pushcontext.DestinationPolicy {
			p := detecting(localities(distribute))
			p.PortLevelSettings = forPort(80, inMode(networking.ClientTLSSettings_DISABLE)).PortLevelSettings
			return destination("shop", "r", p)
		}())},
	} {
		t.Run(c.name, c.run)
	}
}

// A rule of the reader's namespace goes before those of the service's and the root namespace.
func TestPolicyByNamespace(t *testing.T) {
	t.Parallel()
	share := func(zone string) *networking.TrafficPolicy {
		return localities(&localitySetting{Distribute: []*networking.LocalityLoadBalancerSetting_Distribute{{From: "*", To: map[string]uint32{zone: 100}}}})
	}
	private := destination("shop", "private", share("r1/z3/*"))
	private.Export = pushcontext.Export{Namespaces: []string{"shop", "web"}}
	s := underRules(cart(ep("c1", "http", "10.0.0.1:80", at("r1/z1")), ep("c1", "http", "10.0.0.2:80", at("r1/z2")), ep("c1", "http", "10.0.0.3:80", at("r1/z3")), ep("c1", "http", "10.0.0.4:80", at("r1/z4"))),
		destination("client", "own", share("r1/z2/*")), private, destination("istio-system", "root", share("r1/z4/*")))
	root := newMesh(func(m *settings) { m.Config.RootNamespace = "istio-system" })
	v := s.view(root)
	for ns, want := range map[string]string{"client": "10.0.0.2", "shop": "10.0.0.3", "web": "10.0.0.3", "other": "10.0.0.4", "istio-system": "10.0.0.4"} {
		got := assignmentText(assigned(t, v, sidecar("c1", ns)))
		if len(got) != 1 || !strings.Contains(got[0], want+":80") {
			t.Errorf("a proxy of %s is sent %v, want %s", ns, got, want)
		}
	}
	for _, x := range gen.ExplainEndpoints(v, sidecar("c1", "client"), s.ports[0]) {
		if !x.Sent && !strings.HasPrefix(x.Detail, "DestinationRule client/own's locality distribution") {
			t.Errorf("%s: %q does not name the rule", x.Endpoint.Addr, x.Detail)
		}
	}
	classes := map[gen.Class]bool{}
	for _, ns := range []string{"client", "shop", "web", "a", "b", "c", "istio-system"} {
		c := sidecar("c1", ns).Keep(gen.Endpoints{}.Traits(v))
		classes[gen.Endpoints{}.Narrow(v, c)] = true
	}
	if len(classes) != 4 { // client, shop, web, and all others
		t.Errorf("proxies of seven namespaces are of %d classes", len(classes))
	}
}

// Which class traits policies cost: none that no policy compares endpoints with.
func TestPolicyTraits(t *testing.T) {
	t.Parallel()
	byLabel := func(labels ...string) *networking.TrafficPolicy {
		return detecting(localities(&localitySetting{FailoverPriority: labels}))
	}
	public := func(p *networking.TrafficPolicy) svc { return underRules(cart(), destination("shop", "r", p)) }
	for _, c := range []struct {
		name   string
		mesh   *settings
		svc    svc
		traits gen.Traits
		labels []string
	}{
		{"no rules", newMesh(), cart(), 0, nil},
		{"a rule for everybody", newMesh(), public(&networking.TrafficPolicy{}), gen.TraitTLS, nil},
		{"a rule of the client's namespace", newMesh(), underRules(cart(), destination("client", "r", &networking.TrafficPolicy{})), gen.TraitTLS | gen.TraitPolicy, nil},
		{"places", newMesh(), public(byLabel("topology.kubernetes.io/region", "kubernetes.io/hostname")), gen.TraitTLS | gen.TraitLocality | gen.TraitNode, nil},
		{"network and cluster", newMesh(), public(byLabel("topology.istio.io/network", "topology.istio.io/cluster")), gen.TraitTLS | gen.TraitNetwork | gen.TraitCluster, nil},
		{"a fixed value", newMesh(), public(byLabel("topology.istio.io/network=n1", "tier=gold")), gen.TraitTLS, nil},
		{"labels", newMesh(), public(byLabel("version", "tier", "app=x")), gen.TraitTLS | gen.TraitPolicy, []string{"tier", "version"}},
		{"labels without outlier detection", newMesh(), public(localities(&localitySetting{FailoverPriority: []string{"tier"}})), gen.TraitTLS, nil},
		{"on networks", newMesh(), cart(ep("c1", "http", "10.0.0.1:80", network("n1"))), gen.TraitNetworkView, nil},
		{"on a network with gateways", newMesh(twoNetworks), cart(ep("c1", "http", "10.0.0.1:80", network("n2"))), gen.TraitNetworkView | gen.TraitNetwork | gen.TraitFamilies | gen.TraitTLS, nil},
		{"on a network without gateways", newMesh(twoNetworks), cart(ep("c1", "http", "10.0.0.1:80", network("n1")), ep("c1", "http", "10.0.0.2:80")), gen.TraitNetworkView, nil},
		{"labels of the mesh", newMesh(failover, setting(&localitySetting{FailoverPriority: []string{"tier"}})), cart(), gen.TraitPolicy, []string{"tier"}},
		{"of a port alone", newMesh(), public(forPort(80, byLabel("tier"))), gen.TraitTLS | gen.TraitPolicy, []string{"tier"}},
		{"of a port that it does not have", newMesh(), public(forPort(81, byLabel("tier"))), gen.TraitTLS, nil},
	} {
		v := c.svc.view(c.mesh)
		if got := (gen.Endpoints{}).Traits(v); got != c.traits {
			t.Errorf("%s: traits %b, want %b", c.name, got, c.traits)
		}
		full := sidecar("c1", "shop", labelled(model.Labels{"tier": "gold", "version": "1", "app": "y", "hash": "2"}))
		if got := (gen.Endpoints{}).Narrow(v, full.Keep(c.traits|gen.TraitPolicy)).Labels.Keys(); !slices.Equal(got, c.labels) {
			t.Errorf("%s: labels %v, want %v", c.name, got, c.labels)
		}
	}
}

func labelled(l model.Labels) func(*gen.Class) {
	return func(c *gen.Class) { c.Labels = gen.NewLabels(l) }
}

// failoverPriority compares any label of the proxy's workload with the endpoint's.
func TestPolicyFailoverPriority(t *testing.T) {
	t.Parallel()
	with := func(l model.Labels) func(*model.Endpoint) { return func(e *model.Endpoint) { e.Labels = l } }
	four := cart(ep("c1", "http", "10.0.0.1:80", with(model.Labels{"tier": "gold", "v": "1"})), ep("c1", "http", "10.0.0.2:80", with(model.Labels{"tier": "gold", "v": "2"})),
		ep("c1", "http", "10.0.0.3:80", with(model.Labels{"tier": "silver", "v": "1"})), ep("c1", "http", "10.0.0.4:80"))
	rule := func(s svc, l *localitySetting) svc {
		return underRules(s, destination("shop", "r", detecting(localities(l))))
	}
	by := func(labels ...string) *localitySetting { return &localitySetting{FailoverPriority: labels} }
	gold := sidecar("c1", "shop", labelled(model.Labels{"tier": "gold", "v": "1"}))
	nets := cart(ep("c1", "http", "10.0.0.1:80", network("n1"), with(model.Labels{"v": "2"})), ep("c1", "http", "10.0.0.2:80", network("n2"), with(model.Labels{"v": "1"})),
		ep("c1", "http", "10.0.0.3:80", network("n1"), with(model.Labels{"v": "1"})), ep("c1", "http", "10.0.0.4:80", network("n2"), with(model.Labels{"v": "2"})))
	places := cart(ep("c1", "http", "10.0.0.1:80", at("r1"), with(model.Labels{"tier": "gold"})), ep("c1", "http", "10.0.0.2:80", at("r1")),
		ep("c1", "http", "10.0.0.3:80", at("r2"), with(model.Labels{"tier": "gold"})), ep("c1", "http", "10.0.0.4:80", at("r2")), ep("c1", "http", "10.0.0.5:80", at("r3"), with(model.Labels{"tier": "gold"})))
	for _, c := range []selectCase{
		{name: "two labels", mesh: newMesh(), svc: rule(four, by("tier", "v")), class: gold, want: []string{
			"p0  w=1: 10.0.0.1:80*1", "p1  w=1: 10.0.0.2:80*1", "p2  w=2: 10.0.0.3:80*1 10.0.0.4:80*1"}},
		{name: "the other way round", mesh: newMesh(), svc: rule(four, by("v", "tier")), class: gold, want: []string{
			"p0  w=1: 10.0.0.1:80*1", "p1  w=1: 10.0.0.3:80*1", "p2  w=2: 10.0.0.2:80*1 10.0.0.4:80*1"}},
		{name: "a label that the proxy lacks", mesh: newMesh(), svc: rule(four, by("tier", "v")), class: sidecar("c1", "shop"), want: []string{
			"p0  w=1: 10.0.0.4:80*1", "p1  w=3: 10.0.0.1:80*1 10.0.0.2:80*1 10.0.0.3:80*1"}},
		{name: "key=value goes before the proxy's own", mesh: newMesh(), svc: rule(four, by("tier=silver", "v")), class: gold, want: []string{
			"p0  w=1: 10.0.0.3:80*1", "p1  w=3: 10.0.0.1:80*1 10.0.0.2:80*1 10.0.0.4:80*1"}},
		{name: "another network, first, moves all the rest back", mesh: newMesh(), svc: rule(nets, by("topology.istio.io/network", "v")), class: sidecar("c1", "shop", onNetwork("n1"), labelled(model.Labels{"v": "1"})),
			want: []string{"p0  w=1: 10.0.0.3:80*1", "p1  w=1: 10.0.0.1:80*1", "p2  w=1: 10.0.0.2:80*1", "p3  w=1: 10.0.0.4:80*1"}},
		{name: "another network, later, is a mismatch like another", mesh: newMesh(), svc: rule(nets, by("v", "topology.istio.io/network")), class: sidecar("c1", "shop", onNetwork("n1"), labelled(model.Labels{"v": "1"})),
			want: []string{"p0  w=1: 10.0.0.3:80*1", "p1  w=1: 10.0.0.2:80*1", "p2  w=2: 10.0.0.1:80*1 10.0.0.4:80*1"}},
		{name: "regions within each", mesh: newMesh(), class: sidecar("c1", "shop", inZone("r1"), labelled(model.Labels{"tier": "gold"})),
			svc:  rule(places, &localitySetting{FailoverPriority: []string{"tier"}, Failover: []*networking.LocalityLoadBalancerSetting_Failover{{From: "r1", To: "r2"}}}),
			want: []string{"p0 r1 w=1: 10.0.0.1:80*1", "p1 r2 w=1: 10.0.0.3:80*1", "p2 r3 w=1: 10.0.0.5:80*1", "p3 r1 w=1: 10.0.0.2:80*1", "p4 r2 w=1: 10.0.0.4:80*1"}},
	} {
		t.Run(c.name, c.run)
	}
}

// clustersOf gives the clusters of a service as one proxy sees them, the way the engine makes them.
func clustersOf(t *testing.T, s svc, m *settings, c gen.Class) map[string]*clusterv3.Cluster {
	t.Helper()
	out := map[string]*clusterv3.Cluster{}
	shape := s.shape(m)
	for _, r := range build(t, gen.Clusters{}, shape, gen.Clusters{}.Narrow(shape, c.Keep(gen.Clusters{}.Traits(shape)|gen.TraitPolicy))) {
		out[r.name] = decode(t, r).(*clusterv3.Cluster)
	}
	return out
}

// The rule decides about outlier detection, panic threshold and locality weights of its clusters.
func TestPolicyOfClusters(t *testing.T) {
	t.Parallel()
	outlier := func(o *networking.OutlierDetection) *networking.TrafficPolicy {
		return &networking.TrafficPolicy{OutlierDetection: o}
	}
	distribute := &localitySetting{Distribute: []*networking.LocalityLoadBalancerSetting_Distribute{{From: "*", To: map[string]uint32{"*": 100}}}}
	region := &localitySetting{Failover: []*networking.LocalityLoadBalancerSetting_Failover{{From: "a", To: "b"}}}
	two := cart()
	two.ports = append(two.ports, tcpPort(90))
	near := func(v *pushcontext.ShapeView) { v.Traffic = model.TrafficPreferSameZone }
	for _, c := range []struct {
		name     string
		mesh     *settings
		policy   *networking.TrafficPolicy
		edit     func(*pushcontext.ShapeView)
		errors   uint32 // consecutive 5xx errors; 0 for no outlier detection
		panic    float64
		weighted bool
	}{
		{name: "none", mesh: newMesh()},
		{name: "of the mesh", mesh: newMesh(failover), errors: 3},
		{name: "of the rule", mesh: newMesh(failover), policy: outlier(&networking.OutlierDetection{Consecutive_5XxErrors: wrapperspb.UInt32(9), MinHealthPercent: 20}), errors: 9, panic: 20},
		{name: "of the rule, with a traffic distribution", mesh: newMesh(), policy: outlier(&networking.OutlierDetection{Consecutive_5XxErrors: wrapperspb.UInt32(9), MinHealthPercent: 20}), edit: near, errors: 9},
		{name: "rule without it", mesh: newMesh(failover), policy: localities(&localitySetting{}), errors: 3},
		{name: "of another port", mesh: newMesh(failover), policy: forPort(90, outlier(&networking.OutlierDetection{Consecutive_5XxErrors: wrapperspb.UInt32(9)})), errors: 3},
		{name: "of the port", mesh: newMesh(failover), policy: forPort(80, outlier(&networking.OutlierDetection{Consecutive_5XxErrors: wrapperspb.UInt32(9)})), errors: 9},
		{name: "distribution", mesh: newMesh(), policy: localities(distribute), weighted: true},
		{name: "failover to a region, without outlier detection", mesh: newMesh(), policy: localities(region)},
		{name: "failover to a region", mesh: newMesh(), policy: detecting(localities(region)), errors: 3, weighted: true},
		{name: "failover by labels", mesh: newMesh(), policy: detecting(localities(&localitySetting{FailoverPriority: []string{"a"}})), errors: 3, weighted: true},
		{name: "plain failover", mesh: newMesh(), policy: detecting(localities(&localitySetting{})), errors: 3},
		{name: "traffic distribution", mesh: newMesh(), edit: near},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := two
			s.edit = c.edit
			if c.policy != nil {
				s = underRules(s, destination("shop", "r", c.policy))
			}
			got := clustersOf(t, s, c.mesh, sidecar("c1", "shop"))["outbound|80||"+s.host]
			if n := got.OutlierDetection.GetConsecutive_5Xx().GetValue(); n != c.errors {
				t.Errorf("%d consecutive errors, want %d", n, c.errors)
			}
			if p := got.CommonLbConfig.HealthyPanicThreshold.GetValue(); p != c.panic {
				t.Errorf("panic threshold %v, want %v", p, c.panic)
			}
			if w := got.CommonLbConfig.GetLocalityWeightedLbConfig() != nil; w != c.weighted {
				t.Errorf("weighted by locality: %v", w)
			}
		})
	}
}

// Every field of outlier detection reaches Envoy.
func TestOutlierDetectionFields(t *testing.T) {
	t.Parallel()
	s := underRules(cart(), destination("shop", "r", &networking.TrafficPolicy{OutlierDetection: &networking.OutlierDetection{
		SplitExternalLocalOriginErrors: true, ConsecutiveLocalOriginFailures: wrapperspb.UInt32(1), ConsecutiveGatewayErrors: wrapperspb.UInt32(2), Consecutive_5XxErrors: wrapperspb.UInt32(3),
		Interval: seconds(4), BaseEjectionTime: seconds(5), MaxEjectionPercent: 6, MinHealthPercent: 7, FailurePercentageThreshold: wrapperspb.UInt32(8),
		OutlierDetectionHttpErrorCodes: []uint32{503, 429, 503, 99, 600}}}))
	got := compact(t, build(t, gen.Clusters{}, s.shape(newMesh()), sidecar("c1", "shop"))[0])
	for _, w := range []string{`"splitExternalLocalOriginErrors":true`, `"consecutiveLocalOriginFailure":1`, `"enforcingConsecutiveLocalOriginFailure":100`, `"enforcingLocalOriginSuccessRate":0`,
		`"consecutiveGatewayFailure":2`, `"enforcingConsecutiveGatewayFailure":100`, `"consecutive5xx":3`, `"enforcingConsecutive5xx":100`, `"interval":"4s"`, `"baseEjectionTime":"5s"`,
		`"maxEjectionPercent":6`, `"healthyPanicThreshold":{"value":7}`, `"failurePercentageThreshold":8`, `"enforcingFailurePercentage":100`, `"enforcingSuccessRate":0`,
		`"errorMatcher":{"orMatch":{"rules":[{"httpResponseHeadersMatch":{"headers":[{"name":":status","stringMatch":{"exact":"429"}}]}},{"httpResponseHeadersMatch":{"headers":[{"name":":status","stringMatch":{"exact":"503"}}]}}]}}`} {
		if !strings.Contains(got, w) {
			t.Errorf("%s is missing in %s", w, got)
		}
	}
	one := underRules(cart(), destination("shop", "r", &networking.TrafficPolicy{OutlierDetection: &networking.OutlierDetection{OutlierDetectionHttpErrorCodes: []uint32{429}}}))
	if got := compact(t, build(t, gen.Clusters{}, one.shape(newMesh()), sidecar("c1", "shop"))[0]); !strings.Contains(got, `"errorMatcher":{"httpResponseHeadersMatch"`) || !strings.Contains(got, `"explicitHttpConfig":{"httpProtocolOptions":{}}`) {
		t.Errorf("one error code: %s", got)
	}
}

// Unready endpoints are sent unless outlier detection has a minHealthPercent; a traffic distribution has
// them sent all the same.
func TestPolicySendsUnready(t *testing.T) {
	t.Parallel()
	two := cart(ep("c1", "http", "10.0.0.1:80"), ep("c1", "http", "10.0.0.2:80", health(model.Unhealthy)))
	counted := func(percent int32) *networking.TrafficPolicy {
		return &networking.TrafficPolicy{OutlierDetection: &networking.OutlierDetection{MinHealthPercent: percent}}
	}
	near := two
	near.edit = func(v *pushcontext.ShapeView) { v.Traffic = model.TrafficPreferSameNode }
	meshwide := newMesh(func(m *settings) { failover(m); m.Config.DefaultTrafficPolicy.OutlierDetection.MinHealthPercent = 30 })
	sent, left := []string{"p0  w=2: 10.0.0.1:80*1 10.0.0.2:80*1!"}, map[string]model.Reason{"10.0.0.2:80": model.ReasonUnready}
	for _, c := range []selectCase{
		{name: "0", mesh: newMesh(), svc: underRules(two, destination("shop", "r", counted(0))), class: sidecar("c1", "shop"), want: sent},
		{name: "30", mesh: newMesh(), svc: underRules(two, destination("shop", "r", counted(30))), class: sidecar("c1", "shop"), want: []string{"p0  w=1: 10.0.0.1:80*1"}, left: left},
		{name: "0 goes before the mesh's 30", mesh: meshwide, svc: underRules(two, destination("shop", "r", counted(0))), class: sidecar("c1", "shop"), want: sent},
		{name: "30 with a traffic distribution", mesh: newMesh(), svc: underRules(near, destination("shop", "r", counted(30))), class: sidecar("c1", "shop"), want: sent},
		{name: "30 with a locality setting before the traffic distribution", mesh: newMesh(), class: sidecar("c1", "shop"), want: sent,
			svc: underRules(near, destination("shop", "r", &networking.TrafficPolicy{LoadBalancer: localities(&localitySetting{}).LoadBalancer, OutlierDetection: counted(30).OutlierDetection}))},
	} {
		t.Run(c.name, c.run)
	}
}

// policyScenarios have DestinationRules of every kind that is served, and endpoints of both families.
func policyScenarios() []scenario {
	tier := func(e *model.Endpoint) { e.Labels = model.Labels{"tier": "gold"} }
	endpoints := []*model.Endpoint{
		ep("c1", "http", "10.0.0.1:80", at("r1/z1"), tier), ep("c1", "http", "10.0.0.2:80", at("r1/z2"), workload("x")), ep("c2", "http", "10.0.0.3:80", at("r2/z1"), workload("y"), tier, health(model.Unhealthy))}
	other := func(host string, p *networking.TrafficPolicy) svc {
		s := cart(endpoints...)
		s.host = host
		return underRules(s, destination("shop", "r", p))
	}
	here := sidecar("c1", "shop", inZone("r1/z1"), labelled(model.Labels{"tier": "gold"}))
	detects := detecting(localities(&localitySetting{FailoverPriority: []string{"tier"}, Failover: []*networking.LocalityLoadBalancerSetting_Failover{{From: "r1", To: "r2"}}}))
	detects.OutlierDetection = &networking.OutlierDetection{SplitExternalLocalOriginErrors: true, ConsecutiveLocalOriginFailures: wrapperspb.UInt32(2),
		ConsecutiveGatewayErrors: wrapperspb.UInt32(3), Consecutive_5XxErrors: wrapperspb.UInt32(4), Interval: seconds(5), BaseEjectionTime: seconds(6), MaxEjectionPercent: 70,
		FailurePercentageThreshold: wrapperspb.UInt32(80), OutlierDetectionHttpErrorCodes: []uint32{429, 503}}
	counts := detecting(localities(&localitySetting{}))
	counts.OutlierDetection.MinHealthPercent, counts.OutlierDetection.OutlierDetectionHttpErrorCodes = 40, []uint32{429}
	return []scenario{
		{name: "policies", mesh: newMesh(), class: here, services: []svc{
			other("labels.shop.svc.cluster.local", detects), other("ready.shop.svc.cluster.local", counts),
			other("shares.shop.svc.cluster.local", localities(&localitySetting{Distribute: []*networking.LocalityLoadBalancerSetting_Distribute{
				{From: "r1/*", To: map[string]uint32{"r1/z1/*": 70, "r1/*": 30}}}}))}},
		{name: "dual-stack", mesh: newMesh(), class: sidecar("c1", "shop", func(c *gen.Class) { c.IPv6 = true }), services: []svc{
			cart(ep("c1", "http", "10.0.0.1:80"), ep("c1", "http", "[2001:db8::1]:80"), ep("c1", "http", "10.0.0.2:80", workload("x")))}},
	}
}

// What a rule for one port says does not depend on the resource being built for a narrowed class.
func TestNarrowedClassBuildsTheSame(t *testing.T) {
	t.Parallel()
	s := underRules(cart(ep("c1", "http", "10.0.0.1:80", at("r1")), ep("c1", "http", "10.0.0.2:80", at("r2"))),
		destination("client", "own", detecting(localities(&localitySetting{FailoverPriority: []string{"tier", "topology.kubernetes.io/region"}}))),
		destination("shop", "all", detecting(localities(&localitySetting{}))))
	v := s.view(newMesh())
	for _, ns := range []string{"client", "shop", "other"} {
		c := sidecar("c1", ns, inZone("r2"), labelled(model.Labels{"tier": "gold", "hash": ns}))
		for _, g := range []gen.Generator{gen.Clusters{}, gen.Endpoints{}} {
			var view pushcontext.View = v
			if g.TypeURL() == gen.ClusterURL {
				view = v.Shape
			}
			k := c.Keep(g.Traits(view))
			want, err := g.Build(view, c, "outbound|80||"+s.host)
			if err != nil {
				t.Fatal(err)
			}
			got, err := g.Build(view, g.(gen.Narrower).Narrow(view, k), "outbound|80||"+s.host)
			if d := cmp.Diff(want, got); d != "" || err != nil {
				t.Errorf("%s for a proxy of %s depends on what its class does not keep (%v)", g.TypeURL(), ns, err)
			}
		}
	}
}
