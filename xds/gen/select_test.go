package gen_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/types/known/wrapperspb"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/pushcontext"
	"github.com/isthmus-mesh/isthmus/xds/gen"
)

func cart(es ...*model.Endpoint) svc {
	return svc{host: "cart.shop.svc.cluster.local", ports: []model.Port{httpPort(80)}, endpoints: es}
}

// assignmentText writes an assignment as "p0 r1/z1 w=3: 10.0.0.1:80*2 10.0.0.2:80*1!": weights after
// the star, "!" for unhealthy, "~" for draining; further addresses of an endpoint after "+".
func assignmentText(a *endpointv3.ClusterLoadAssignment) []string {
	var out []string
	for _, l := range a.Endpoints {
		loc := model.Locality{Region: l.Locality.Region, Zone: l.Locality.Zone, Subzone: l.Locality.SubZone}
		line := fmt.Sprintf("p%d %s w=%d:", l.Priority, loc, l.LoadBalancingWeight.GetValue())
		for _, e := range l.LbEndpoints {
			sock := e.GetEndpoint().Address.GetSocketAddress()
			also := ""
			for _, a := range e.GetEndpoint().AdditionalAddresses {
				also += "+" + a.Address.GetSocketAddress().GetAddress()
			}
			line += fmt.Sprintf(" %s:%d%s*%d%s", sock.GetAddress(), sock.GetPortValue(), also, e.LoadBalancingWeight.GetValue(),
				map[int32]string{2: "!", 3: "~"}[int32(e.HealthStatus)])
		}
		out = append(out, line)
	}
	return out
}

func assigned(t testing.TB, v *pushcontext.ServiceView, c gen.Class) *endpointv3.ClusterLoadAssignment {
	t.Helper()
	for _, r := range build(t, gen.Endpoints{}, v, c) {
		return decode(t, r).(*endpointv3.ClusterLoadAssignment)
	}
	t.Fatal("no assignment")
	return nil
}

func reasons(vs []gen.Verdict) map[string]model.Reason {
	out := map[string]model.Reason{}
	for _, v := range vs {
		if !v.Sent {
			out[v.Endpoint.Addr.String()] = v.Reason
		}
	}
	return out
}

func inZone(z string) func(*gen.Class) {
	return func(c *gen.Class) { c.Locality = model.ParseLocality(z) }
}

func setting(l *networking.LocalityLoadBalancerSetting) func(*settings) {
	return func(m *settings) { m.Config.LocalityLbSetting = l }
}

type selectCase struct {
	name   string
	mesh   *settings
	svc    svc
	class  gen.Class
	demote []model.ShardKey
	want   []string
	left   map[string]model.Reason
}

func (c selectCase) run(t *testing.T) {
	t.Parallel()
	v := c.svc.view(c.mesh)
	v.Demoted = c.demote
	if d := cmp.Diff(c.want, assignmentText(assigned(t, v, c.class))); d != "" {
		t.Errorf("assignment (-want +got):\n%s", d)
	}
	left := c.left
	if left == nil {
		left = map[string]model.Reason{}
	}
	if d := cmp.Diff(left, reasons(gen.ExplainEndpoints(v, c.class, c.svc.ports[0]))); d != "" {
		t.Errorf("left out (-want +got):\n%s", d)
	}
}

func TestSelectHealth(t *testing.T) {
	t.Parallel()
	four := []*model.Endpoint{
		ep("c1", "http", "10.0.0.1:80"), ep("c1", "http", "10.0.0.2:80", health(model.Unhealthy)),
		ep("c1", "http", "10.0.0.3:80", health(model.Draining)), ep("c1", "http", "10.0.0.4:80", health(model.Terminating)),
	}
	persistent := cart(four...)
	persistent.edit = func(s *pushcontext.ShapeView) { s.Persistent = true }
	minHealth := newMesh(failover, func(m *settings) { m.Config.DefaultTrafficPolicy.OutlierDetection.MinHealthPercent = 40 })
	zone := cart(four[:2]...)
	zone.edit = func(s *pushcontext.ShapeView) { s.Traffic = model.TrafficPreferSameZone }
	for _, c := range []selectCase{
		{name: "unready sent, draining and terminating not", mesh: newMesh(), svc: cart(four...), class: sidecar("c1", "shop"),
			want: []string{"p0  w=2: 10.0.0.1:80*1 10.0.0.2:80*1!"},
			left: map[string]model.Reason{"10.0.0.3:80": model.ReasonDraining, "10.0.0.4:80": model.ReasonTerminating}},
		{name: "draining sent with session persistence", mesh: newMesh(), svc: persistent, class: sidecar("c1", "shop"),
			want: []string{"p0  w=3: 10.0.0.1:80*1 10.0.0.2:80*1! 10.0.0.3:80*1~"},
			left: map[string]model.Reason{"10.0.0.4:80": model.ReasonTerminating}},
		{name: "unready not sent with minHealthPercent", mesh: minHealth, svc: cart(four[:2]...), class: sidecar("c1", "shop"),
			want: []string{"p0  w=1: 10.0.0.1:80*1"}, left: map[string]model.Reason{"10.0.0.2:80": model.ReasonUnready}},
		{name: "traffic distribution sends unready again", mesh: minHealth, svc: zone, class: sidecar("c1", "shop"),
			want: []string{"p0  w=2: 10.0.0.1:80*1 10.0.0.2:80*1!"}},
		{name: "no endpoints", mesh: newMesh(), svc: cart(), class: sidecar("c1", "shop")},
	} {
		t.Run(c.name, c.run)
	}
}

func TestSelectFamilies(t *testing.T) {
	t.Parallel()
	families := func(v4, v6 bool) gen.Class {
		return sidecar("c1", "shop", func(c *gen.Class) { c.IPv4, c.IPv6 = v4, v6 })
	}
	four, six := ep("c1", "http", "10.0.0.1:80"), ep("c1", "http", "[2001:db8::1]:80")
	for _, c := range []selectCase{
		{name: "IPv4 proxy", mesh: newMesh(), svc: cart(four, six), class: families(true, false), want: []string{"p0  w=1: 10.0.0.1:80*1"},
			left: map[string]model.Reason{"[2001:db8::1]:80": model.ReasonIPFamily}},
		{name: "IPv6 proxy", mesh: newMesh(), svc: cart(four, six), class: families(false, true), want: []string{"p0  w=1: 2001:db8::1:80*1"},
			left: map[string]model.Reason{"10.0.0.1:80": model.ReasonIPFamily}},
		{name: "proxy of both", mesh: newMesh(), svc: cart(four, six), class: families(true, true), want: []string{"p0  w=1: 10.0.0.1:80+2001:db8::1*1"}},
		{name: "proxy of both, two workloads", mesh: newMesh(), svc: cart(four, ep("c1", "http", "[2001:db8::1]:80", workload("x"))), class: families(true, true),
			want: []string{"p0  w=2: 10.0.0.1:80*1 2001:db8::1:80*1"}},
		{name: "proxy of both, two members", mesh: newMesh(), svc: cart(four, ep("c2", "http", "[2001:db8::1]:80")), class: families(true, true),
			want: []string{"p0  w=2: 10.0.0.1:80*1 2001:db8::1:80*1"}},
		{name: "proxy of both, two ports", mesh: newMesh(), svc: cart(four, ep("c1", "http", "[2001:db8::1]:81")), class: families(true, true),
			want: []string{"p0  w=2: 10.0.0.1:80*1 2001:db8::1:81*1"}},
		{name: "proxy of both, unknown workloads", mesh: newMesh(), svc: cart(ep("c1", "http", "10.0.0.1:80", workload("")), ep("c1", "http", "[2001:db8::1]:80", workload(""))), class: families(true, true),
			want: []string{"p0  w=2: 10.0.0.1:80*1 2001:db8::1:80*1"}},
		{name: "proxy of both, one family not ready yet", mesh: newMesh(), svc: cart(four, ep("c1", "http", "[2001:db8::1]:80", health(model.Unhealthy))), class: families(true, true),
			want: []string{"p0  w=2: 10.0.0.1:80*1 2001:db8::1:80*1!"}},
		{name: "proxy of both, several addresses of each", mesh: newMesh(), class: families(true, true),
			svc:  cart(four, six, ep("c1", "http", "10.0.0.2:80"), ep("c1", "http", "[2001:db8::2]:80"), ep("c1", "http", "10.0.0.3:80", workload("x"), weight(7)), ep("c1", "http", "[2001:db8::3]:80", workload("x"), weight(7))),
			want: []string{"p0  w=9: 10.0.0.1:80+2001:db8::1*1 10.0.0.2:80+2001:db8::2*1 10.0.0.3:80+2001:db8::3*7"}},
		{name: "nothing better", mesh: newMesh(), svc: cart(six), class: families(true, false), want: []string{"p0  w=1: 2001:db8::1:80*1"}},
	} {
		t.Run(c.name, c.run)
	}
}

func TestSelectNetworks(t *testing.T) {
	t.Parallel()
	v6 := sidecar("c1", "shop", onNetwork("n1"), func(c *gen.Class) { c.IPv4, c.IPv6 = false, true })
	oneGateway := newMesh(func(m *settings) { m.gateways = []pushcontext.Gateway{gateway("n2", "", "1.1.1.1:15443")} })
	addressless := func(c string, edits ...func(*model.Endpoint)) *model.Endpoint {
		return ep(c, "http", ":80", edits...)
	}
	for _, c := range []selectCase{
		{
			// Scale = lcm(3 gateways of n2, 2 of them of c2) = 6. c2: (1+2)*6 over its two gateways; c4 has
			// none of its own, so 6 over all three, of which two are there already.
			name: "split horizon", mesh: newMesh(twoNetworks), svc: multiNetwork(), class: sidecar("c1", "shop", onNetwork("n1")),
			want: []string{
				"p0  w=6: 10.1.0.7:8080*6",
				"p0 r1/z1 w=6: 10.1.0.1:8080*6",
				"p0 r2/z1 w=22: 192.0.2.2:15443*11 192.0.2.3:15443*11",
				"p0 r2/z2 w=2: 192.0.2.1:15443*2",
			},
			left: map[string]model.Reason{"10.1.0.3:8080": model.ReasonNoMTLS, "10.1.0.4:8080": model.ReasonUnready, "10.1.0.6:8080": model.ReasonNoGateway},
		},
		{name: "no gateways, no split", mesh: newMesh(), svc: cart(ep("c2", "http", "10.0.0.1:80", network("n2"))), class: sidecar("c1", "shop", onNetwork("n1")),
			want: []string{"p0  w=1: 10.0.0.1:80*1"}},
		{name: "endpoint without network is direct", mesh: oneGateway, svc: cart(ep("c2", "http", "10.0.0.1:80")), class: sidecar("c1", "shop", onNetwork("n1")),
			want: []string{"p0  w=1: 10.0.0.1:80*1"}},
		{name: "gateway of another family", mesh: oneGateway, svc: cart(ep("c2", "http", "[2001:db8::1]:80", network("n2"), mtls)), class: v6,
			left: map[string]model.Reason{"[2001:db8::1]:80": model.ReasonIPFamily}},
		{name: "address-less without network", mesh: oneGateway, svc: cart(addressless("c1")), class: sidecar("c1", "shop"),
			left: map[string]model.Reason{":80": model.ReasonNoAddress}},
		{name: "incident 64: address-less, proxy without network", mesh: oneGateway, svc: cart(addressless("c1", network("n2"), mtls)), class: sidecar("c1", "shop", certified),
			want: []string{"p0  w=1: 1.1.1.1:15443*1"}},
		{name: "address-less within its own network", mesh: oneGateway, svc: cart(addressless("c1", network("n2"), mtls)), class: sidecar("c1", "shop", onNetwork("n2")),
			left: map[string]model.Reason{":80": model.ReasonNoAddress}},
		{name: "incident 63: unready ones add no weight to a gateway", mesh: oneGateway, class: sidecar("c1", "shop", onNetwork("n1")),
			svc: cart(ep("c2", "http", "10.0.0.1:80", network("n2"), mtls, health(model.Unhealthy)), ep("c2", "http", "10.0.0.2:80", network("n2"), mtls),
				ep("c2", "http", "10.0.0.3:80", network("n2"), mtls, weight(3))),
			want: []string{"p0  w=4: 1.1.1.1:15443*4"}, left: map[string]model.Reason{"10.0.0.1:80": model.ReasonUnready}},
		{name: "incident 63: a network of unready endpoints has no gateway", mesh: oneGateway, class: sidecar("c1", "shop", onNetwork("n1")),
			svc:  cart(ep("c2", "http", "10.0.0.1:80", network("n2"), mtls, health(model.Unhealthy))),
			left: map[string]model.Reason{"10.0.0.1:80": model.ReasonUnready}},
	} {
		t.Run(c.name, c.run)
	}
}

func TestSelectLocality(t *testing.T) {
	t.Parallel()
	spread := []*model.Endpoint{
		ep("c1", "http", "10.0.0.1:80", at("r1/z1/s1"), node("n1")), ep("c1", "http", "10.0.0.2:80", at("r1/z1/s2"), node("n2")),
		ep("c1", "http", "10.0.0.3:80", at("r1/z2")), ep("c1", "http", "10.0.0.4:80", at("r2/z1")), ep("c1", "http", "10.0.0.5:80", at("r3/z1")),
	}
	flat := []string{"p0 r1/z1/s1 w=1: 10.0.0.1:80*1", "p0 r1/z1/s2 w=1: 10.0.0.2:80*1", "p0 r1/z2 w=1: 10.0.0.3:80*1",
		"p0 r2/z1 w=1: 10.0.0.4:80*1", "p0 r3/z1 w=1: 10.0.0.5:80*1"}
	prefer := func(d model.TrafficDistribution) svc {
		s := cart(spread...)
		s.edit = func(s *pushcontext.ShapeView) { s.Traffic = d }
		return s
	}
	here := sidecar("c1", "shop", inZone("r1/z1/s1"), func(c *gen.Class) { c.Node = "n1" })
	to := setting(&networking.LocalityLoadBalancerSetting{Failover: []*networking.LocalityLoadBalancerSetting_Failover{{From: "r1", To: "r3"}}})
	off := setting(&networking.LocalityLoadBalancerSetting{Enabled: wrapperspb.Bool(false)})
	on := setting(&networking.LocalityLoadBalancerSetting{})
	byLabel := setting(&networking.LocalityLoadBalancerSetting{FailoverPriority: []string{"topology.kubernetes.io/region", "tier=gold"}})
	gold := func(e *model.Endpoint) { e.Labels = model.Labels{"tier": "gold"} }
	for _, c := range []selectCase{
		{name: "no outlier detection, no failover", mesh: newMesh(on), svc: cart(spread...), class: here, want: flat},
		{name: "setting off", mesh: newMesh(failover, off), svc: cart(spread...), class: here, want: flat},
		{name: "proxy of unknown locality", mesh: newMesh(failover, on), svc: cart(spread...), class: sidecar("c1", "shop"), want: flat},
		{name: "failover", mesh: newMesh(failover, on), svc: cart(spread...), class: here, want: []string{
			"p0 r1/z1/s1 w=1: 10.0.0.1:80*1", "p1 r1/z1/s2 w=1: 10.0.0.2:80*1", "p2 r1/z2 w=1: 10.0.0.3:80*1",
			"p3 r2/z1 w=1: 10.0.0.4:80*1", "p3 r3/z1 w=1: 10.0.0.5:80*1"}},
		{name: "failover to a region", mesh: newMesh(failover, to), svc: cart(spread...), class: here, want: []string{
			"p0 r1/z1/s1 w=1: 10.0.0.1:80*1", "p1 r1/z1/s2 w=1: 10.0.0.2:80*1", "p2 r1/z2 w=1: 10.0.0.3:80*1",
			"p3 r3/z1 w=1: 10.0.0.5:80*1", "p4 r2/z1 w=1: 10.0.0.4:80*1"}},
		{name: "priorities without gaps", mesh: newMesh(failover, to), svc: cart(spread[3:]...), class: here, want: []string{
			"p0 r3/z1 w=1: 10.0.0.5:80*1", "p1 r2/z1 w=1: 10.0.0.4:80*1"}},
		{name: "failoverPriority splits a locality", mesh: newMesh(failover, byLabel), class: here,
			svc:  cart(ep("c1", "http", "10.0.0.1:80", at("r1"), gold), ep("c1", "http", "10.0.0.2:80", at("r1")), ep("c1", "http", "10.0.0.3:80", at("r2"), gold)),
			want: []string{"p0 r1 w=1: 10.0.0.1:80*1", "p1 r1 w=1: 10.0.0.2:80*1", "p2 r2 w=1: 10.0.0.3:80*1"}},
		{name: "same zone", mesh: newMesh(), svc: prefer(model.TrafficPreferSameZone), class: here, want: []string{
			"p0 r1/z1/s1 w=1: 10.0.0.1:80*1", "p0 r1/z1/s2 w=1: 10.0.0.2:80*1", "p1 r1/z2 w=1: 10.0.0.3:80*1",
			"p2 r2/z1 w=1: 10.0.0.4:80*1", "p2 r3/z1 w=1: 10.0.0.5:80*1"}},
		{name: "same node", mesh: newMesh(), svc: prefer(model.TrafficPreferSameNode), class: here, want: []string{
			"p0 r1/z1/s1 w=1: 10.0.0.1:80*1", "p1 r1/z1/s2 w=1: 10.0.0.2:80*1", "p2 r1/z2 w=1: 10.0.0.3:80*1",
			"p3 r2/z1 w=1: 10.0.0.4:80*1", "p3 r3/z1 w=1: 10.0.0.5:80*1"}},
	} {
		t.Run(c.name, c.run)
	}
}

func TestSelectDistribute(t *testing.T) {
	t.Parallel()
	spread := func(more ...*model.Endpoint) svc {
		return cart(append(more, ep("c1", "http", "10.0.0.1:80", at("r1/z1/a"), weight(1)), ep("c1", "http", "10.0.0.2:80", at("r1/z1/b"), weight(2)),
			ep("c1", "http", "10.0.0.3:80", at("r1/z2")), ep("c1", "http", "10.0.0.4:80", at("r2/z1")))...)
	}
	rule := func(from string, to map[string]uint32) func(*settings) {
		return setting(&networking.LocalityLoadBalancerSetting{Distribute: []*networking.LocalityLoadBalancerSetting_Distribute{{From: from, To: to}}})
	}
	here := sidecar("c1", "shop", inZone("r1/z1"))
	for _, c := range []selectCase{
		{name: "shares by weight, rounded up", mesh: newMesh(rule("r1/z1/*", map[string]uint32{"r1/z1/*": 80, "r1/z2/*": 20})), svc: spread(), class: here,
			want: []string{"p0 r1/z1/a w=27: 10.0.0.1:80*1", "p0 r1/z1/b w=54: 10.0.0.2:80*2", "p0 r1/z2 w=20: 10.0.0.3:80*1"},
			left: map[string]model.Reason{"10.0.0.4:80": model.ReasonLocalityWeight}},
		{name: "narrowest pattern", mesh: newMesh(rule("*", map[string]uint32{"r1/*": 30, "r1/z2/*": 60, "*": 10})), svc: spread(), class: here,
			want: []string{"p0 r1/z1/a w=10: 10.0.0.1:80*1", "p0 r1/z1/b w=20: 10.0.0.2:80*2", "p0 r1/z2 w=60: 10.0.0.3:80*1", "p0 r2/z1 w=10: 10.0.0.4:80*1"}},
		{name: "share of zero", mesh: newMesh(rule("r1/*", map[string]uint32{"r1/z1/*": 100, "*": 0})), svc: spread(), class: here,
			want: []string{"p0 r1/z1/a w=34: 10.0.0.1:80*1", "p0 r1/z1/b w=67: 10.0.0.2:80*2"},
			left: map[string]model.Reason{"10.0.0.3:80": model.ReasonLocalityWeight, "10.0.0.4:80": model.ReasonLocalityWeight}},
		{name: "rule for another region", mesh: newMesh(rule("r9/*", map[string]uint32{"r9/*": 100})), svc: cart(ep("c1", "http", "10.0.0.1:80", at("r1"))), class: here,
			want: []string{"p0 r1 w=1: 10.0.0.1:80*1"}},
		{name: "incident 67: unknown locality comes last", mesh: newMesh(rule("r1/z1/*", map[string]uint32{"r1/z1/*": 100})), class: here,
			svc:  cart(ep("c1", "http", "10.0.0.9:80"), ep("c1", "http", "10.0.0.1:80", at("r1/z1"))),
			want: []string{"p0 r1/z1 w=100: 10.0.0.1:80*1", "p1  w=1: 10.0.0.9:80*1"}},
		{name: "incident 67: unknown locality alone serves", mesh: newMesh(rule("r1/z1/*", map[string]uint32{"r1/z1/*": 100})), class: here,
			svc: cart(ep("c1", "http", "10.0.0.9:80")), want: []string{"p0  w=1: 10.0.0.9:80*1"}},
	} {
		t.Run(c.name, c.run)
	}
}

func TestSelectMembers(t *testing.T) {
	t.Parallel()
	local := cart(ep("c1", "http", "10.0.0.1:80"), ep("c2", "http", "10.0.0.2:80"))
	local.edit = func(s *pushcontext.ShapeView) { s.Key.Cluster = "c1" }
	nodeLocal := cart(ep("c1", "http", "10.0.0.1:80", node("a")), ep("c1", "http", "10.0.0.2:80", node("b")))
	nodeLocal.edit = func(s *pushcontext.ShapeView) { s.NodeLocal = true }
	stale := []model.ShardKey{{Provider: model.ProviderKubernetes, Cluster: "c2"}}
	two := cart(ep("c1", "http", "10.0.0.1:80", at("r1")), ep("c2", "http", "10.0.0.2:80", at("r1")))
	for _, c := range []selectCase{
		{name: "cluster-local", mesh: newMesh(), svc: local, class: sidecar("c1", "shop"), want: []string{"p0  w=1: 10.0.0.1:80*1"},
			left: map[string]model.Reason{"10.0.0.2:80": model.ReasonClusterLocal}},
		{name: "node-local", mesh: newMesh(), svc: nodeLocal, class: sidecar("c1", "shop", func(c *gen.Class) { c.Node = "b" }), want: []string{"p0  w=1: 10.0.0.2:80*1"},
			left: map[string]model.Reason{"10.0.0.1:80": model.ReasonNodeLocal}},
		{name: "node-local, where another member has a node of that name", mesh: newMesh(), svc: nodeLocal, class: sidecar("c2", "shop", func(c *gen.Class) { c.Node = "b" }),
			left: map[string]model.Reason{"10.0.0.1:80": model.ReasonNodeLocal, "10.0.0.2:80": model.ReasonNodeLocal}},
		{name: "stale member, seen from another", mesh: newMesh(), svc: two, demote: stale, class: sidecar("c1", "shop"),
			want: []string{"p0 r1 w=1: 10.0.0.1:80*1", "p1 r1 w=1: 10.0.0.2:80*1"}},
		{name: "stale member, seen from within", mesh: newMesh(), svc: two, demote: stale, class: sidecar("c2", "shop"),
			want: []string{"p0 r1 w=2: 10.0.0.1:80*1 10.0.0.2:80*1"}},
	} {
		t.Run(c.name, c.run)
	}
}

// Weights near the limit of 32 bits stay within it, together, and none becomes 0.
func TestSelectHugeWeights(t *testing.T) {
	t.Parallel()
	v := cart(ep("c1", "http", "10.0.0.1:80", weight(math.MaxUint32)), ep("c1", "http", "10.0.0.2:80", weight(math.MaxUint32), at("r1")),
		ep("c1", "http", "10.0.0.3:80", weight(1))).view(newMesh(twoNetworks))
	checkWeights(t, assigned(t, v, sidecar("c1", "shop")))
}

func checkWeights(t *testing.T, a *endpointv3.ClusterLoadAssignment) {
	t.Helper()
	sums, top := map[uint32]uint64{}, uint32(0)
	for _, l := range a.Endpoints {
		sums[l.Priority] += uint64(l.LoadBalancingWeight.GetValue())
		top = max(top, l.Priority)
		if l.LoadBalancingWeight.GetValue() == 0 || len(l.LbEndpoints) == 0 {
			t.Errorf("locality %v has no weight or no endpoints", l.Locality)
		}
		own := uint64(0)
		for _, e := range l.LbEndpoints {
			own += uint64(e.LoadBalancingWeight.GetValue())
			if e.LoadBalancingWeight.GetValue() == 0 {
				t.Error("an endpoint has weight 0")
			}
		}
		if own > math.MaxUint32 {
			t.Errorf("endpoint weights of a locality sum to %d", own)
		}
	}
	for p := range top + 1 {
		if sums[p] == 0 || len(a.Endpoints) == 0 {
			t.Errorf("priority %d is empty", p)
		}
		if sums[p] > math.MaxUint32 {
			t.Errorf("locality weights of priority %d sum to %d", p, sums[p])
		}
	}
}

// Whatever the input: every endpoint is either sent or left out with a reason, what is sent is in the
// assignment, weights and priorities are what Envoy accepts, and the order of input does not matter.
func TestSelectProperties(t *testing.T) {
	t.Parallel()
	rnd := rand.New(rand.NewPCG(3, 14))
	for i := range 2000 {
		s, m, c, demoted := randomSelection(rnd)
		v := s.view(m)
		v.Demoted = demoted
		verdicts := gen.ExplainEndpoints(v, c, s.ports[0])
		if len(verdicts) != len(s.endpoints) {
			t.Fatalf("case %d: %d verdicts for %d endpoints", i, len(verdicts), len(s.endpoints))
		}
		a := assigned(t, v, c)
		checkVerdicts(t, verdicts, a)
		if len(a.Endpoints) > 0 {
			checkWeights(t, a)
		}
		rnd.Shuffle(len(s.endpoints), func(i, j int) { s.endpoints[i], s.endpoints[j] = s.endpoints[j], s.endpoints[i] })
		again := s.view(m)
		again.Demoted = demoted
		if d := cmp.Diff(assignmentText(a), assignmentText(assigned(t, again, c))); d != "" {
			t.Fatalf("case %d depends on the order of endpoints:\n%s", i, d)
		}
		if t.Failed() {
			t.Fatalf("case %d: %s", i, strings.Join(assignmentText(a), "\n"))
		}
	}
}

func checkVerdicts(t *testing.T, verdicts []gen.Verdict, a *endpointv3.ClusterLoadAssignment) {
	t.Helper()
	at := map[string]bool{}
	for _, l := range a.Endpoints {
		for _, e := range l.LbEndpoints {
			sock := e.GetEndpoint().Address.GetSocketAddress()
			addr := fmt.Sprintf("%s:%d", sock.GetAddress(), sock.GetPortValue())
			if at[addr] {
				t.Errorf("%s is sent twice: Envoy would drop one", addr)
			}
			at[addr], at[fmt.Sprintf("p%d %s", l.Priority, addr)] = true, true
		}
	}
	for _, v := range verdicts {
		addrs := []string{v.Endpoint.Addr.String()}
		if len(v.Gateways) > 0 {
			addrs = nil
		}
		for _, g := range v.Gateways {
			addrs = append(addrs, g.String())
		}
		for _, x := range addrs {
			sent := at[fmt.Sprintf("p%d %s", v.Priority, x)]
			switch {
			case v.Sent && (!sent || v.Reason != "" || v.Weight == 0):
				t.Errorf("%s is said to be sent: in the assignment %v, reason %q, weight %d", x, sent, v.Reason, v.Weight)
			case !v.Sent && v.Reason == "":
				t.Errorf("%s is left out without a reason", x)
			}
		}
	}
}

func pick[T any](r *rand.Rand, xs ...T) T { return xs[r.IntN(len(xs))] }

func randomSelection(r *rand.Rand) (svc, *settings, gen.Class, []model.ShardKey) {
	places := []string{"", "r1/z1", "r1/z1/s1", "r1/z2", "r2/z1"}
	nets := []string{"", "n1", "n2", "n3"}
	var es []*model.Endpoint
	for i := range r.IntN(12) {
		cluster, addr := pick(r, "c1", "c2", "c3"), fmt.Sprintf("10.0.0.%d:80", i/3+1)
		if slices.ContainsFunc(es, func(e *model.Endpoint) bool { return string(e.Addr.Cluster) == cluster && e.Addr.String() == addr }) {
			continue // a member lists an address once
		}
		e := ep(cluster, "http", addr, weight(pick(r, 0, 1, 7, 0.5, math.MaxUint32)), at(pick(r, places...)),
			network(pick(r, nets...)), health(pick(r, model.Healthy, model.Unhealthy, model.Draining, model.Terminating)), node(pick(r, "a", "b")))
		if r.IntN(2) == 0 {
			mtls(e)
		}
		es = append(es, e)
	}
	s := cart(es...)
	traffic, persistent, nodeLocal, owner := model.TrafficDistribution(r.IntN(3)), r.IntN(2) == 0, r.IntN(4) == 0, pick[model.ClusterID](r, "", "", "c1")
	s.edit = func(v *pushcontext.ShapeView) {
		v.Traffic, v.Persistent, v.NodeLocal, v.Key.Cluster = traffic, persistent, nodeLocal, owner
	}
	edits := slices.DeleteFunc([]func(*settings){
		pick(r, nil, twoNetworks), pick(r, nil, failover),
		setting(pick(r, nil, &networking.LocalityLoadBalancerSetting{},
			&networking.LocalityLoadBalancerSetting{FailoverPriority: []string{"topology.istio.io/network", "topology.istio.io/cluster"},
				Failover: []*networking.LocalityLoadBalancerSetting_Failover{{From: "r1", To: "r2"}}},
			&networking.LocalityLoadBalancerSetting{Distribute: []*networking.LocalityLoadBalancerSetting_Distribute{
				{From: "r1/*", To: map[string]uint32{"r1/z1/*": 70, "r1/*": 30}}}})),
	}, func(f func(*settings)) bool { return f == nil })
	c := sidecar(pick(r, "c1", "c2"), "shop", onNetwork(pick(r, nets...)), inZone(pick(r, places...)), func(c *gen.Class) { c.Node = "a" })
	if owner != "" {
		c.Cluster = owner
	}
	var demoted []model.ShardKey
	if r.IntN(3) == 0 {
		demoted = []model.ShardKey{{Provider: model.ProviderKubernetes, Cluster: "c2"}}
	}
	return s, newMesh(edits...), c, demoted
}
