package gen_test

import (
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/wrapperspb"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/xds/gen"
)

type zoneSetting = networking.ZoneAwareLoadBalancerSetting

// zoneAware is a policy with both settings that a rule may have.
func zoneAware(z *zoneSetting, l *localitySetting) *networking.TrafficPolicy {
	p := localities(l)
	p.LoadBalancer.ZoneAwareLbSetting = z
	return p
}

func zonesOfMesh(z *zoneSetting) func(*settings) {
	return func(m *settings) { m.Config.ZoneAwareLbSetting = z }
}

func selfDiscovery(c *gen.Class) { c.SelfDiscovery = true }

func zoneScenario() scenario {
	shop := cart(ep("c1", "http", "10.1.0.1:80", at("r1/z1")), ep("c1", "http", "10.1.0.2:80", at("r1/z2")), ep("c2", "http", "10.2.0.1:80", at("r2/z1")))
	zones := underRules(shop, destination("shop", "r", zoneAware(&zoneSetting{MinClusterSize: wrapperspb.UInt32(2)}, nil)))
	zones.host = "zones.shop.svc.cluster.local"
	shares := underRules(shop, destination("shop", "r", localities(&localitySetting{Distribute: []*networking.LocalityLoadBalancerSetting_Distribute{
		{From: "r1/*", To: map[string]uint32{"r1/z1/*": 70, "r1/*": 30}}}})))
	shares.host = "shares.shop.svc.cluster.local"
	return scenario{name: "self-discovery", mesh: newMesh(), class: sidecar("c1", "shop", inZone("r1/z1"), selfDiscovery), services: []svc{shop, zones, shares},
		peers: []*model.Endpoint{ep("c1", "http", "10.3.0.1:80", at("r1/z1")), ep("c1", "http", "10.3.0.2:80", at("r1/z2"), health(model.Unhealthy)), ep("c1", "http", "10.3.0.3:80", at("r2/z1"))}}
}

// How Envoy is told to balance between zones: where a setting is in force, as it says; where none is, an Envoy that would do
// so all the same is told not to.
func TestZoneAwareClusters(t *testing.T) {
	t.Parallel()
	enabled := &clusterv3.Cluster_CommonLbConfig_ZoneAwareLbConfig{}
	disabled := &clusterv3.Cluster_CommonLbConfig_ZoneAwareLbConfig{RoutingEnabled: &typev3.Percent{}}
	atLeast3 := &clusterv3.Cluster_CommonLbConfig_ZoneAwareLbConfig{MinClusterSize: wrapperspb.UInt64(3)}
	rule := func(z *zoneSetting) svc {
		return underRules(cart(ep("c1", "http", "10.0.0.1:80", at("r1"))), destination("shop", "r", zoneAware(z, nil)))
	}
	headless := rule(&zoneSetting{})
	headless.resolution = model.Passthrough
	named := rule(&zoneSetting{})
	named.resolution, named.inline = model.DNSLB, []*model.Endpoint{ep("c1", "http", "a.example:80", at("r1"))}
	weighted := underRules(cart(), destination("shop", "r", localities(&localitySetting{Distribute: []*networking.LocalityLoadBalancerSetting_Distribute{{From: "*", To: map[string]uint32{"*": 100}}}})))
	plain, self := sidecar("c1", "shop"), sidecar("c1", "shop", selfDiscovery)
	for _, c := range []struct {
		name  string
		mesh  *settings
		svc   svc
		class gen.Class
		want  *clusterv3.Cluster_CommonLbConfig_ZoneAwareLbConfig
	}{
		{"none", newMesh(), cart(), plain, nil},
		{"none, where Envoy would", newMesh(), cart(), self, disabled},
		{"of the rule", newMesh(), rule(&zoneSetting{}), plain, enabled},
		{"of the rule, where Envoy would", newMesh(), rule(&zoneSetting{}), self, enabled},
		{"of the rule, with a least size", newMesh(), rule(&zoneSetting{MinClusterSize: wrapperspb.UInt32(3)}), self, atLeast3},
		{"of the mesh", newMesh(zonesOfMesh(&zoneSetting{MinClusterSize: wrapperspb.UInt32(3)})), cart(), self, atLeast3},
		{"turned off by the rule", newMesh(zonesOfMesh(&zoneSetting{})), rule(&zoneSetting{Enabled: wrapperspb.Bool(false)}), self, disabled},
		{"turned off by the rule, where Envoy would not", newMesh(zonesOfMesh(&zoneSetting{})), rule(&zoneSetting{Enabled: wrapperspb.Bool(false)}), plain, nil},
		{"resolved by the proxy", newMesh(), named, self, enabled},
		{"dialled as addressed", newMesh(), headless, self, nil},
		{"weighted by locality", newMesh(), weighted, self, nil},
	} {
		got := decode(t, build(t, gen.Clusters{}, c.svc.shape(c.mesh), c.class)[0]).(*clusterv3.Cluster).GetCommonLbConfig().GetZoneAwareLbConfig()
		if d := cmp.Diff(c.want, got, protocmp.Transform()); d != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, d)
		}
	}
}

// Under zone-aware balancing priorities are those of regions and labels; places within a region are Envoy's to choose.
func TestZoneAwarePriorities(t *testing.T) {
	t.Parallel()
	gold := func(e *model.Endpoint) { e.Labels = model.Labels{"tier": "gold"} }
	spread := []*model.Endpoint{
		ep("c1", "http", "10.0.0.1:80", at("r1/z1/s1"), gold), ep("c1", "http", "10.0.0.2:80", at("r1/z2")),
		ep("c1", "http", "10.0.0.3:80", at("r2/z1"), gold), ep("c1", "http", "10.0.0.4:80", at("r3/z1")),
	}
	to := []*networking.ZoneAwareLoadBalancerSetting_Failover{{From: "r1", To: "r3"}}
	svc := func(z *zoneSetting) svc {
		return underRules(cart(spread...), destination("shop", "r", zoneAware(z, nil)))
	}
	here := sidecar("c1", "shop", inZone("r1/z1/s1"))
	for _, c := range []selectCase{
		{name: "regions, without outlier detection", mesh: newMesh(), svc: svc(&zoneSetting{}), class: here, want: []string{
			"p0 r1/z1/s1 w=1: 10.0.0.1:80*1", "p0 r1/z2 w=1: 10.0.0.2:80*1", "p1 r2/z1 w=1: 10.0.0.3:80*1", "p1 r3/z1 w=1: 10.0.0.4:80*1"}},
		{name: "failover to a region", mesh: newMesh(), svc: svc(&zoneSetting{Failover: to}), class: here, want: []string{
			"p0 r1/z1/s1 w=1: 10.0.0.1:80*1", "p0 r1/z2 w=1: 10.0.0.2:80*1", "p1 r3/z1 w=1: 10.0.0.4:80*1", "p2 r2/z1 w=1: 10.0.0.3:80*1"}},
		{name: "labels, and regions among equals", mesh: newMesh(), svc: svc(&zoneSetting{Failover: to, FailoverPriority: []string{"tier=gold"}}), class: here, want: []string{
			"p0 r1/z1/s1 w=1: 10.0.0.1:80*1", "p1 r2/z1 w=1: 10.0.0.3:80*1", "p2 r1/z2 w=1: 10.0.0.2:80*1", "p3 r3/z1 w=1: 10.0.0.4:80*1"}},
		{name: "labels of a place within the region do not count", mesh: newMesh(), class: here,
			svc: svc(&zoneSetting{FailoverPriority: []string{"topology.kubernetes.io/zone", "topology.istio.io/subzone=s1", "topology.kubernetes.io/region"}}), want: []string{
				"p0 r1/z1/s1 w=1: 10.0.0.1:80*1", "p0 r1/z2 w=1: 10.0.0.2:80*1", "p1 r2/z1 w=1: 10.0.0.3:80*1", "p1 r3/z1 w=1: 10.0.0.4:80*1"}},
		{name: "proxy of unknown locality", mesh: newMesh(), svc: svc(&zoneSetting{Failover: to}), class: sidecar("c1", "shop"), want: []string{
			"p0 r1/z1/s1 w=1: 10.0.0.1:80*1", "p0 r1/z2 w=1: 10.0.0.2:80*1", "p0 r2/z1 w=1: 10.0.0.3:80*1", "p0 r3/z1 w=1: 10.0.0.4:80*1"}},
	} {
		t.Run(c.name, c.run)
	}
}

// Proxies of one region share what is made of zone-aware balancing, whatever their zones.
func TestZoneAwareTraits(t *testing.T) {
	t.Parallel()
	v := cart(ep("c1", "http", "10.0.0.1:80")).view(newMesh(zonesOfMesh(&zoneSetting{})))
	if got := (gen.Endpoints{}).Traits(v); got != gen.TraitRegion {
		t.Errorf("traits %b, want %b", got, gen.TraitRegion)
	}
	a, b := sidecar("c1", "shop", inZone("r1/z1")), sidecar("c1", "shop", inZone("r1/z2/s"))
	if a.Keep(gen.TraitRegion) != b.Keep(gen.TraitRegion) || a.Keep(gen.TraitRegion).Locality.Region != "r1" {
		t.Error("zones of a region are told apart")
	}
	if a.Keep(gen.TraitRegion|gen.TraitLocality) != a.Keep(gen.TraitLocality) {
		t.Error("the region takes the rest of the locality away")
	}
}
