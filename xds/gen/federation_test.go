package gen_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/pushcontext"
	"github.com/isthmus-mesh/isthmus/xds/gen"
)

// joined makes the service one of sources, called a, b, c and so on, with the weights.
func joined(p pushcontext.FederationPolicy, weights ...uint32) func(*pushcontext.ShapeView) {
	return func(s *pushcontext.ShapeView) {
		s.Federation = &pushcontext.Federation{Policy: p}
		for i, w := range weights {
			src := pushcontext.FederationSource{Name: string(rune('a' + i)), Host: fmt.Sprint("s", i), Weight: w}
			if p == pushcontext.FederateFailover {
				src.Priority = uint32(i)
			}
			s.Federation.Sources = append(s.Federation.Sources, src)
		}
	}
}

func placed(m *settings) { m.Config.LocalityLbSetting = &networking.LocalityLoadBalancerSetting{} }

func part(n uint16) func(*model.Endpoint) { return func(e *model.Endpoint) { e.Part = n } }

func global(p pushcontext.FederationPolicy, weights []uint32, es ...*model.Endpoint) svc {
	return svc{host: "cart.global", ns: "shop", ports: []model.Port{httpPort(80)}, endpoints: es, edit: joined(p, weights...)}
}

// Sources come one after the other, each with the failover between localities inside; registries out of contact come last.
func TestFederatedFailover(t *testing.T) {
	t.Parallel()
	three := []uint32{1, 1, 1}
	es := []*model.Endpoint{
		ep("c1", "http", "10.0.0.1:80", part(1), at("r2/z1")), ep("c1", "http", "10.0.0.2:80", part(1), at("r1/z1")), ep("n", "http", "10.1.0.1:80", part(2), at("r1/z1")),
		ep("n", "http", "10.1.0.2:80", part(2), at("r2/z1")), ep("dc", "http", "10.2.0.1:80", part(3), health(model.Unhealthy)), ep("dc", "http", "10.2.0.2:80", part(3), health(model.Draining)),
	}
	near := sidecar("c1", "shop", inZone("r1/z1"))
	minHealth := newMesh(failover, func(m *settings) { m.Config.DefaultTrafficPolicy.OutlierDetection.MinHealthPercent = 40 })
	draining := map[string]model.Reason{"10.2.0.2:80": model.ReasonDraining}
	for _, c := range []selectCase{
		{name: "sources", mesh: newMesh(), svc: global(pushcontext.FederateFailover, three, es...), class: near, left: draining,
			want: []string{"p0 r1/z1 w=1: 10.0.0.2:80*1", "p0 r2/z1 w=1: 10.0.0.1:80*1", "p1 r1/z1 w=1: 10.1.0.1:80*1", "p1 r2/z1 w=1: 10.1.0.2:80*1", "p2  w=1: 10.2.0.1:80*1!"}},
		{name: "sources, then localities", mesh: newMesh(failover, placed), svc: global(pushcontext.FederateFailover, three, es...), class: near, left: draining,
			want: []string{"p0 r1/z1 w=1: 10.0.0.2:80*1", "p1 r2/z1 w=1: 10.0.0.1:80*1", "p2 r1/z1 w=1: 10.1.0.1:80*1", "p3 r2/z1 w=1: 10.1.0.2:80*1", "p4  w=1: 10.2.0.1:80*1!"}},
		{name: "unready are sent whatever outlier detection says", mesh: minHealth, svc: global(pushcontext.FederateFailover, three, es[4:]...), class: near, left: draining,
			want: []string{"p0  w=1: 10.2.0.1:80*1!"}},
		{name: "out of contact", mesh: newMesh(), svc: global(pushcontext.FederateFailover, three, es[0], es[2]), class: sidecar("c2", "shop"), demote: []model.ShardKey{es[0].Source.Shard},
			want: []string{"p0 r1/z1 w=1: 10.1.0.1:80*1", "p1 r2/z1 w=1: 10.0.0.1:80*1"}},
		{name: "union", mesh: newMesh(), svc: global(pushcontext.FederateUnion, three, es[0], es[2], es[4]), class: near,
			want: []string{"p0  w=1: 10.2.0.1:80*1!", "p0 r1/z1 w=1: 10.1.0.1:80*1", "p0 r2/z1 w=1: 10.0.0.1:80*1"}},
		{name: "no source that is first", mesh: newMesh(), svc: global(pushcontext.FederateFailover, three, es[2]), class: near, want: []string{"p0 r1/z1 w=1: 10.1.0.1:80*1"}},
	} {
		t.Run(c.name, c.run)
	}
}

// Sources have shares, whatever the number of their endpoints, at each priority.
func TestFederatedShares(t *testing.T) {
	t.Parallel()
	es := []*model.Endpoint{
		ep("c1", "http", "10.0.0.1:80", part(1), at("r1/z1")), ep("c1", "http", "10.0.0.2:80", part(1), at("r1/z1"), weight(3)), ep("c1", "http", "10.0.0.3:80", part(1), at("r1/z2")),
		ep("n", "http", "10.1.0.1:80", part(2), at("r1/z1")), ep("dc", "http", "10.2.0.1:80", part(3)), ep("dc", "http", "10.2.0.2:80", part(3), health(model.Unhealthy)),
	}
	near := sidecar("c1", "shop", inZone("r1/z1"))
	spreading := newMesh(setting(&networking.LocalityLoadBalancerSetting{Distribute: []*networking.LocalityLoadBalancerSetting_Distribute{{From: "r1/z1/*", To: map[string]uint32{"r1/z1/*": 100}}}}))
	weights := []uint32{70, 20, 10}
	flat := []string{
		"p0 //@c w=100000000: 10.2.0.1:80*50000000 10.2.0.2:80*50000000!",
		"p0 r1/z1/@a w=560000000: 10.0.0.1:80*140000000 10.0.0.2:80*420000000",
		"p0 r1/z1/@b w=200000000: 10.1.0.1:80*200000000",
		"p0 r1/z2/@a w=140000000: 10.0.0.3:80*140000000",
	}
	gateways := []*model.Endpoint{
		ep("c1", "http", "10.0.0.1:80", part(1)), ep("c2", "http", "10.0.0.2:80", part(1), network("n2"), mtls), ep("c2", "http", "10.0.0.3:80", part(2), network("n2"), mtls),
		ep("c2", "http", "10.0.0.4:80", part(2), network("n2"), mtls), ep("c2", "http", "10.0.0.5:80", part(2), network("n2")),
	}
	oneGateway := newMesh(func(m *settings) { m.gateways = []pushcontext.Gateway{gateway("n2", "", "1.1.1.1:15443")} })
	for _, c := range []selectCase{
		{name: "shares", mesh: newMesh(), svc: global(pushcontext.FederateWeighted, weights, es...), class: near, want: flat},
		{name: "a distribution has no say", mesh: spreading, svc: global(pushcontext.FederateWeighted, weights, es...), class: near, want: flat},
		{name: "localities fail over within a source", mesh: newMesh(failover, placed), svc: global(pushcontext.FederateWeighted, weights, es...), class: near, want: []string{
			"p0 //@c w=100000000: 10.2.0.1:80*50000000 10.2.0.2:80*50000000!",
			"p0 r1/z1/@a w=700000000: 10.0.0.1:80*175000000 10.0.0.2:80*525000000",
			"p0 r1/z1/@b w=200000000: 10.1.0.1:80*200000000",
			"p1 r1/z2/@a w=700000000: 10.0.0.3:80*700000000",
		}},
		{name: "one is out of contact", mesh: newMesh(), svc: global(pushcontext.FederateWeighted, weights, es[0], es[3]), class: near, demote: []model.ShardKey{es[3].Source.Shard},
			want: []string{"p0 r1/z1/@a w=700000000: 10.0.0.1:80*700000000", "p1 r1/z1/@b w=200000000: 10.1.0.1:80*200000000"}},
		{name: "an address of two", mesh: newMesh(), class: near, left: map[string]model.Reason{"10.0.0.1:80": model.ReasonDuplicate},
			svc:  global(pushcontext.FederateWeighted, weights, es[0], ep("n", "http", "10.0.0.1:80", part(2)), ep("n", "http", "10.1.0.1:80", part(2))),
			want: []string{"p0 //@b w=200000000: 10.1.0.1:80*200000000", "p0 r1/z1/@a w=700000000: 10.0.0.1:80*700000000"}},
		{name: "a gateway stands for parts of two", mesh: oneGateway, svc: global(pushcontext.FederateWeighted, []uint32{50, 50}, gateways...), class: sidecar("c1", "shop", onNetwork("n1")),
			want: []string{"p0 //@a w=1000000000: 10.0.0.1:80*250000000 1.1.1.1:15443*750000000"}, left: map[string]model.Reason{"10.0.0.5:80": model.ReasonNoMTLS}},
		{name: "weights that are huge", mesh: newMesh(), svc: global(pushcontext.FederateWeighted, []uint32{math.MaxUint32, math.MaxUint32},
			ep("c1", "http", "10.0.0.1:80", part(1), weight(math.MaxUint32)), ep("c1", "http", "10.0.0.2:80", part(1), weight(math.MaxUint32)), ep("n", "http", "10.1.0.1:80", part(2))), class: near,
			want: []string{"p0 //@a w=500000000: 10.0.0.1:80*250000000 10.0.0.2:80*250000000", "p0 //@b w=500000000: 10.1.0.1:80*500000000"}},
	} {
		t.Run(c.name, c.run)
	}
}

// Priorities are without gaps, no address is there twice, weights fit, and shares of sources are what they are to be, for
// random endpoints.
func TestFederatedRandom(t *testing.T) {
	t.Parallel()
	places := []string{"", "r1/z1", "r1/z2", "r2/z1"}
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 6))
		weights := []uint32{1 + uint32(r.IntN(9)), 1 + uint32(r.IntN(9)), 1 + uint32(r.IntN(9))}
		var es []*model.Endpoint
		for i := range 1 + r.IntN(30) {
			es = append(es, ep(pick(r, "c1", "n", "dc"), "http", fmt.Sprintf("10.0.%d.%d:80", i/8, 1+i), part(uint16(1+r.IntN(3))), at(pick(r, places...)), weight(float64(r.IntN(9))/2)))
		}
		mesh := pick(r, newMesh(), newMesh(failover, placed))
		class := sidecar("c1", "shop", inZone(pick(r, places...)))
		for _, p := range []pushcontext.FederationPolicy{pushcontext.FederateUnion, pushcontext.FederateFailover, pushcontext.FederateWeighted} {
			v := global(p, weights, es...).view(mesh)
			if what := wrong(t, v, class, weights, p); what != "" {
				t.Fatalf("seed %d, %v: %s", seed, p, what)
			}
		}
	}
}

// wrong says what is wrong with an assignment, "" if nothing is.
func wrong(t *testing.T, v *pushcontext.ServiceView, c gen.Class, weights []uint32, p pushcontext.FederationPolicy) string {
	t.Helper()
	a := assigned(t, v, c)
	best := map[string]uint32{} // priorities of sources
	sums, localities := map[string]uint64{}, map[string]bool{}
	next, total := uint32(0), uint64(0)
	of := map[string]string{}
	for _, x := range gen.ExplainEndpoints(v, c, v.Shape.Ports[0]) {
		of[x.Endpoint.Addr.String()] = v.Shape.Federation.SourceOf(x.Endpoint).Name
	}
	for _, l := range a.Endpoints {
		if l.Priority > next {
			return fmt.Sprintf("priority %d comes after %d", l.Priority, next)
		}
		next = l.Priority + 1
		place := fmt.Sprint(l.Priority, l.Locality)
		if localities[place] {
			return "the locality " + place + " is there twice"
		}
		localities[place] = true
		for _, e := range l.LbEndpoints {
			sock := e.GetEndpoint().Address.GetSocketAddress()
			name := of[fmt.Sprintf("%s:%d", sock.GetAddress(), sock.GetPortValue())]
			if was, known := best[name]; !known || l.Priority < was {
				best[name] = l.Priority
			}
			if l.Priority == 0 {
				sums[name] += uint64(e.LoadBalancingWeight.GetValue())
				total += uint64(e.LoadBalancingWeight.GetValue())
			}
		}
	}
	if total > math.MaxUint32 {
		return "weights do not fit"
	}
	switch p {
	case pushcontext.FederateFailover:
		for _, l := range a.Endpoints {
			for _, e := range l.LbEndpoints {
				sock := e.GetEndpoint().Address.GetSocketAddress()
				name := of[fmt.Sprintf("%s:%d", sock.GetAddress(), sock.GetPortValue())]
				for other, first := range best {
					if other > name && first <= l.Priority {
						return fmt.Sprintf("%s has the priority %d, and %s %d", name, l.Priority, other, first)
					}
				}
			}
		}
	case pushcontext.FederateWeighted:
		shares := uint64(0)
		for name := range best {
			shares += uint64(weights[name[0]-'a'])
		}
		for name, first := range best {
			want := float64(weights[name[0]-'a']) / float64(shares)
			if got := float64(sums[name]) / float64(total); first != 0 || math.Abs(got-want) > 1e-6 {
				return fmt.Sprintf("%s begins at %d and has %g of the best priority, want %g", name, first, got, want)
			}
		}
	}
	return ""
}

func TestExplainFederatedPriority(t *testing.T) {
	t.Parallel()
	first, second := ep("c1", "http", "10.0.0.1:80", part(1)), ep("n", "http", "10.1.0.1:80", part(2))
	v := global(pushcontext.FederateFailover, []uint32{1, 1}, first, second).view(newMesh())
	c, port := sidecar("c1", "shop"), httpPort(80)
	if got := gen.ExplainPriority(v, c, port, first) + gen.ExplainPriority(v, c, port, second); got != "its source b has the priority 1" {
		t.Error(got)
	}
}

func federatedScenarios() []scenario {
	es := []*model.Endpoint{
		ep("c1", "http", "10.1.0.1:8080", part(1), at("r1/z1"), mtls), ep("c1", "http", "10.1.0.2:8080", part(1), at("r1/z2"), mtls, health(model.Unhealthy)),
		ep("n", "http", "10.2.0.1:9000", part(2), at("r1/z1"), weight(3)), ep("dc", "http", "10.3.0.1:80", part(3)),
	}
	ports := []model.Port{httpPort(80), {Name: "grpc", Number: 9090, Protocol: model.ProtocolGRPC}}
	of := func(host string, p pushcontext.FederationPolicy) svc {
		return svc{host: host, ns: "shop", ports: ports, endpoints: es, vips: map[model.ClusterID][]string{"c1": {"240.240.0.1"}}, edit: func(s *pushcontext.ShapeView) {
			joined(p, 6, 3, 1)(s)
			s.MeshAddresses, s.AutoAddresses = true, true
		}}
	}
	return []scenario{
		{name: "federated", mesh: newMesh(), class: sidecar("c1", "shop", certified, inZone("r1/z1"), func(c *gen.Class) { c.CapturesDNS = true }),
			services: []svc{of("failover.global", pushcontext.FederateFailover), of("weighted.global", pushcontext.FederateWeighted)}},
		{name: "federated-router", mesh: newMesh(failover, placed), class: router("c1", "edge", certified, inZone("r1/z1")),
			services: slices.Clip([]svc{of("union.global", pushcontext.FederateUnion), of("weighted.global", pushcontext.FederateWeighted)})},
	}
}
