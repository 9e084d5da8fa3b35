package aggregate

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/pushcontext"
)

func benchConfig(c *Controller, k model.ShardKey, kind, name string, spec any) {
	key := model.ObjectKey{Kind: kind, Namespace: "ns", Name: name}
	cfg := &model.Config{Kind: kind, Namespace: "ns", Name: name, Spec: spec, Source: model.Source{Shard: k, Object: key}}
	if kind == model.ConfigResolvedHost {
		cfg.Namespace = ""
	}
	c.state.put(c.state.shard(k), model.RowKey{Kind: model.RowConfig, Key: key.String()}, cfg)
}

// BenchmarkGatewayRotates is a commit after the name of one member's gateway was resolved to something else:
// each member is a network of its own, so one in fifty services is behind it.
func BenchmarkGatewayRotates(b *testing.B) {
	c := New(Options{Hub: benchController().opts.Hub})
	for i := range benchServices {
		k := benchKey(i % benchClusters)
		s, e := benchService(i%benchClusters, i), benchSlice(i%benchClusters, i, 0)
		for j := range e.Endpoints {
			e.Endpoints[j].Network = string(k.Cluster)
		}
		c.state.put(c.state.shard(k), model.RowKey{Kind: model.RowService, Key: s.Source.Object.String()}, s)
		c.state.put(c.state.shard(k), model.RowKey{Kind: model.RowEndpoints, Key: e.Source.Object.String()}, e)
	}
	for i := range benchClusters {
		host := fmt.Sprintf("gw-%d.example", i)
		benchConfig(c, benchKey(i), model.ConfigNetworkGateway, "gw", &model.NetworkGateway{
			Network: string(benchKey(i).Cluster), Addrs: []model.GatewayAddr{{Host: host, Port: 15443}},
		})
	}
	c.commit(time.Now())
	generation, used := 0, cpuTime(0)
	b.ReportAllocs()
	for b.Loop() {
		b.StopTimer()
		generation++
		addr := netip.AddrFrom4([4]byte{192, 0, byte(generation >> 8), byte(generation)})
		benchConfig(c, benchKey(0), model.ConfigResolvedHost, "gw-7.example", &model.ResolvedHost{Addrs: []netip.Addr{addr}})
		b.StartTimer()
		used.commit(c)
		if n := len(c.opts.Hub.Current().Networks); n != benchClusters {
			b.Fatalf("%d networks", n)
		}
	}
	used.report(b)
}

// BenchmarkRuleChange is a commit in which one of 5 000 DestinationRules changed.
func BenchmarkRuleChange(b *testing.B) {
	c := benchController()
	put := func(i, generation int) {
		benchConfig(c, benchKey(0), model.ConfigDestinationRule, fmt.Sprint("r", i), &networking.DestinationRule{
			Host: benchService(0, i).Host, Subsets: []*networking.Subset{{Name: fmt.Sprint("v", generation)}},
		})
	}
	for i := range benchServices / 2 {
		put(i, 0)
	}
	c.commit(time.Now())
	generation, used := 0, cpuTime(0)
	b.ReportAllocs()
	for b.Loop() {
		b.StopTimer()
		generation++
		put(generation%(benchServices/2), generation)
		b.StartTimer()
		used.commit(c)
	}
	used.report(b)
}

// routedMesh has so many services and VirtualServices, each of a service, in a mesh with Gateways and Sidecars. Put
// edits the VirtualService of service i.
func routedMesh(services, routes int) (c *Controller, put func(i, generation int)) {
	c = New(Options{Hub: pushcontext.NewHub(nil)})
	k := benchKey(0)
	for i := range services {
		s := benchService(0, i)
		c.state.put(c.state.shard(k), model.RowKey{Kind: model.RowService, Key: s.Source.Object.String()}, s)
	}
	put = func(i, generation int) {
		benchConfig(c, k, model.ConfigVirtualService, fmt.Sprint("v", i), &networking.VirtualService{
			Hosts: []string{fmt.Sprint("svc-", i)}, Gateways: []string{"mesh", fmt.Sprint("gw-", i%10)},
			Http: []*networking.HTTPRoute{{Name: fmt.Sprint("r", generation), Route: []*networking.HTTPRouteDestination{
				{Destination: &networking.Destination{Host: fmt.Sprint("svc-", i)}, Weight: 50}, {Destination: &networking.Destination{Host: fmt.Sprint("svc-", i+1)}, Weight: 50},
			}}},
		})
	}
	for i := range routes {
		put(i, 0)
	}
	for i := range 10 {
		benchConfig(c, k, model.ConfigGateway, fmt.Sprint("gw-", i), &networking.Gateway{Servers: []*networking.Server{{Hosts: []string{"*"}}}})
		benchConfig(c, k, model.ConfigSidecar, fmt.Sprint("s-", i), &networking.Sidecar{
			WorkloadSelector: &networking.WorkloadSelector{Labels: map[string]string{"app": fmt.Sprint(i)}},
			Egress:           []*networking.IstioEgressListener{{Hosts: []string{"./*"}}},
		})
	}
	c.commit(time.Now())
	return c, put
}

// BenchmarkRouteChange is a commit in which one of 500 VirtualServices of 1 000 services changed.
func BenchmarkRouteChange(b *testing.B) {
	c, put := routedMesh(1000, 500)
	generation, used := 0, cpuTime(0)
	b.ReportAllocs()
	for b.Loop() {
		b.StopTimer()
		generation++
		put(generation%500, generation)
		b.StartTimer()
		used.commit(c)
	}
	used.report(b)
}

// An edited VirtualService costs the merge of its hosts, and is compiled alone.
func TestRouteChangeCostsItsHosts(t *testing.T) {
	t.Parallel()
	c, put := routedMesh(1000, 500)
	was, servers := c.routes.made, c.gateways.view.Servers
	for generation := range 5 {
		put(7, 1+generation)
		c.refreshBasis()
		if n := len(c.state.dirty); n != 1 {
			t.Errorf("%d hosts are merged", n)
		}
		compiled := 0
		for name, r := range c.routes.made {
			if was[name] != r {
				compiled++
			}
		}
		remade := 0
		for i, s := range c.gateways.view.Servers {
			if servers[i] != s {
				remade++
			}
		}
		if compiled != 1 || remade != 1 || len(c.scoped) != 0 {
			t.Errorf("%d VirtualServices and %d servers are made anew, scopes of %q", compiled, remade, c.scoped)
		}
		was, servers = c.routes.made, c.gateways.view.Servers
		c.commit(time.Now())
	}
	s := benchService(0, 900) // of no VirtualService
	s.Ports = nil
	before := c.routes
	c.state.put(c.state.shard(benchKey(0)), model.RowKey{Kind: model.RowService, Key: s.Source.Object.String()}, s)
	c.commit(time.Now())
	if c.routes != before {
		t.Error("a service that no VirtualService is about makes routes anew")
	}
}

// hostedMesh has a Gateway with so many hosts, and a VirtualService for each of them. Put edits the one of host i.
func hostedMesh(hosts int) (c *Controller, put func(i, generation int)) {
	c = New(Options{Hub: pushcontext.NewHub(nil)})
	put = func(i, generation int) {
		benchConfig(c, benchKey(0), model.ConfigVirtualService, fmt.Sprint("v", i), &networking.VirtualService{
			Hosts: []string{fmt.Sprintf("h%d.example", i)}, Gateways: []string{"gw"}, Http: []*networking.HTTPRoute{{
				Name: fmt.Sprint("r", generation), Route: []*networking.HTTPRouteDestination{{Destination: &networking.Destination{Host: "svc-1"}}},
			}},
		})
	}
	var list []string
	for i := range hosts {
		put(i, 0)
		list = append(list, fmt.Sprintf("h%d.example", i))
	}
	benchConfig(c, benchKey(0), model.ConfigGateway, "gw", &networking.Gateway{Servers: []*networking.Server{{Hosts: list}, {Hosts: []string{"*.other"}}}})
	c.commit(time.Now())
	return c, put
}

// BenchmarkHostedRouteChange is a commit in which one of 5 000 VirtualServices of a Gateway with 5 000 hosts changed.
func BenchmarkHostedRouteChange(b *testing.B) {
	c, put := hostedMesh(5000)
	generation, used := 0, cpuTime(0)
	b.ReportAllocs()
	for b.Loop() {
		b.StopTimer()
		generation++
		put(generation%5000, generation)
		b.StartTimer()
		used.commit(c)
	}
	used.report(b)
}

// An edited VirtualService is looked up at the servers of its Gateways, and no other is; what is for others costs nothing.
func TestHostedRouteChangeCostsItsHosts(t *testing.T) {
	t.Parallel()
	c, put := hostedMesh(100)
	if n := len(c.gateways.view.Servers[0].Bound); n != 100 || c.gateways.asked != 200 {
		t.Fatalf("%d VirtualServices are bound, %d looked up", n, c.gateways.asked)
	}
	put(7, 1)
	c.commit(time.Now())
	bound := c.gateways.view.Servers[0].Bound
	if c.gateways.asked != 2 || len(bound) != 100 || !slices.Contains(bound, c.routes.made["ns/v7"].VirtualService) {
		t.Errorf("%d are looked up after an edit, %d bound", c.gateways.asked, len(bound))
	}
	before := c.gateways
	benchConfig(c, benchKey(0), model.ConfigVirtualService, "mesh", &networking.VirtualService{Hosts: []string{"x"}})
	c.commit(time.Now())
	if c.gateways.asked != 0 || c.gateways.view != before.view {
		t.Errorf("%d are looked up after an edit for sidecars", c.gateways.asked)
	}
	before, routes := c.gateways, c.routes
	s := benchService(0, 1) // what they send to
	s.Ports = append(s.Ports, model.Port{Name: "other", Number: 9999})
	c.state.put(c.state.shard(benchKey(0)), model.RowKey{Kind: model.RowService, Key: s.Source.Object.String()}, s)
	c.commit(time.Now())
	if c.routes != routes || c.gateways != before {
		t.Error("a service that changes nothing of them makes routes, or Gateways, anew")
	}
}

// A server's index of hosts gives what a look at each of them gives.
func TestServerHostsAdmit(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	hosts := []string{"*", "a.example", "*.example", "b.a.example", "*.a.example", "example", "*.com", "a.com", "*x.example", ".example", "*.", "a", "*.b.a.example"}
	spaces := []string{"*", "ns", "other"}
	admitted := 0
	for range 20_000 {
		var all []pushcontext.GatewayHost
		for range 1 + r.IntN(3) {
			all = append(all, pushcontext.GatewayHost{Namespace: spaces[r.IntN(3)], Host: hosts[r.IntN(len(hosts))]})
		}
		v := &pushcontext.VirtualService{Namespace: spaces[1+r.IntN(2)]}
		for range 1 + r.IntN(2) {
			v.Hosts = append(v.Hosts, hosts[r.IntN(len(hosts))])
		}
		want := newServerHosts(all, true).admit(v)
		if got := newServerHosts(all, false).admit(v); got != want {
			t.Fatalf("%v admit %v of %s: %v", all, v.Hosts, v.Namespace, got)
		}
		if want {
			admitted++
		}
	}
	if admitted < 5000 || admitted > 15_000 {
		t.Errorf("%d are admitted", admitted)
	}
}
