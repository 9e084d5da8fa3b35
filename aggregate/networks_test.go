package aggregate_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	meshconfig "istio.io/api/mesh/v1alpha1"

	"github.com/isthmus-mesh/isthmus/aggregate"
	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/clusters/memory"
	"github.com/isthmus-mesh/isthmus/pushcontext"
)

// eastWest is a gateway Service as clusters have them.
func eastWest(k model.ShardKey, network string, opts ...func(*model.Service)) *model.Service {
	return service(k, "eastwest", append([]func(*model.Service){func(s *model.Service) {
		s.Ports = []model.Port{{Name: "status", Number: 15021, Protocol: model.ProtocolHTTP}, {Name: "tls", Number: 15443, Protocol: model.ProtocolTLS}}
		s.Labels = model.Labels{"topology.istio.io/network": network}
		s.Exposed = []model.Exposure{{IP: netip.MustParseAddr("192.0.2.1")}}
	}}, opts...)...)
}

func exposed(list ...model.Exposure) func(*model.Service) {
	return func(s *model.Service) { s.Exposed = list }
}

func at(ip string, ports ...uint16) model.Exposure {
	x := model.Exposure{IP: netip.MustParseAddr(ip)}
	for i := 0; i+1 < len(ports); i += 2 {
		if x.Ports == nil {
			x.Ports = map[uint16]uint16{}
		}
		x.Ports[ports[i]] = ports[i+1]
	}
	return x
}

func label(k, v string) func(*model.Service) {
	return func(s *model.Service) { s.Labels[k] = v }
}

func resolvedHost(name string, addrs ...string) *model.Config {
	spec := &model.ResolvedHost{}
	for _, a := range addrs {
		spec.Addrs = append(spec.Addrs, netip.MustParseAddr(a))
	}
	return config(dnsKey, model.ConfigResolvedHost, "", name, spec)
}

var dnsKey = model.ShardKey{Provider: model.ProviderDNS, Cluster: "c1"}

func config(k model.ShardKey, kind, namespace, name string, spec any, opts ...func(*model.Config)) *model.Config {
	c := &model.Config{Kind: kind, Namespace: namespace, Name: name, Spec: spec,
		Source: model.Source{Shard: k, Object: model.ObjectKey{Kind: kind, Namespace: namespace, Name: name}}}
	for _, o := range opts {
		o(c)
	}
	return c
}

// networksText gives "network cluster address host", a line each.
func networksText(ns pushcontext.Networks) []string {
	out := []string{}
	for _, n := range ns {
		for _, g := range n.Gateways {
			addr := ""
			if g.Addr.IsValid() {
				addr = g.Addr.String()
			}
			out = append(out, strings.TrimRight(strings.Join([]string{g.Network, string(g.Cluster), addr, g.Host}, " "), " "))
		}
	}
	return out
}

// Gateways come from labelled Services. One without an address, or without the port that its label names, can't be
// used, and its network is still another one.
func TestGatewaysOfServices(t *testing.T) {
	t.Parallel()
	c2 := kube("c2")
	for name, tc := range map[string]struct {
		opts []func(*model.Service)
		want []string
	}{
		"load balancer":              {nil, []string{"n2 c2 192.0.2.1:15443"}},
		"port of the label":          {[]func(*model.Service){label("networking.istio.io/gatewayPort", "15021")}, []string{"n2 c2 192.0.2.1:15021"}},
		"port that it lacks":         {[]func(*model.Service){label("networking.istio.io/gatewayPort", "443")}, []string{"n2 c2"}},
		"no port":                    {[]func(*model.Service){label("networking.istio.io/gatewayPort", "tls")}, []string{"n2 c2"}},
		"empty port":                 {[]func(*model.Service){label("networking.istio.io/gatewayPort", "")}, []string{"n2 c2 192.0.2.1:15443"}},
		"the proxy itself":           {[]func(*model.Service){exposed(at("127.0.0.1"), at("::1"), at("169.254.169.254"), at("fe80::1"), at("255.255.255.255"), at("224.0.0.1"))}, []string{"n2 c2"}},
		"not exposed (incident 61)":  {[]func(*model.Service){exposed()}, []string{"n2 c2"}},
		"node ports":                 {[]func(*model.Service){exposed(at("192.0.2.8", 15021, 30021, 15443, 30443), at("192.0.2.7", 15443, 30443))}, []string{"n2 c2 192.0.2.7:30443", "n2 c2 192.0.2.8:30443"}},
		"node port of another port":  {[]func(*model.Service){exposed(at("192.0.2.8", 15021, 30021))}, []string{"n2 c2"}},
		"by name":                    {[]func(*model.Service){exposed(model.Exposure{Host: "lb.example"})}, []string{"n2 c2  lb.example"}},
		"dual stack, mapped, twice":  {[]func(*model.Service){exposed(at("2001:db8::1"), at("::ffff:192.0.2.1"), at("192.0.2.1"))}, []string{"n2 c2 192.0.2.1:15443", "n2 c2 [2001:db8::1]:15443"}},
		"an IP as a name":            {[]func(*model.Service){exposed(model.Exposure{Host: "192.0.2.3"})}, []string{"n2 c2 192.0.2.3:15443"}},
		"unspecified":                {[]func(*model.Service){exposed(at("0.0.0.0"))}, []string{"n2 c2"}},
		"no label":                   {[]func(*model.Service){func(s *model.Service) { s.Labels = nil }}, []string{}},
		"empty label":                {[]func(*model.Service){label("topology.istio.io/network", "")}, []string{}},
		"a ServiceEntry is no proof": {[]func(*model.Service){func(s *model.Service) { s.Source.Object.Kind = "ServiceEntry" }}, []string{}},
	} {
		if d := cmp.Diff(tc.want, networksText(rebuild(eastWest(c2, "n2", tc.opts...)).Networks)); d != "" {
			t.Errorf("%s: %s", name, d)
		}
	}
}

// Ports for HBONE are told. A gateway that has no other does not keep its network apart: to proxies that do not speak HBONE it is as if it
// were not there, whether it has an address or not.
func TestGatewaysThatSpeakHBONE(t *testing.T) {
	t.Parallel()
	c2 := kube("c2")
	mesh, both := []model.Port{port("mesh", 15008)}, []model.Port{port("mesh", 15008), port("tls", 15443)}
	of := func(ports []model.Port, opts ...func(*model.Service)) model.Object {
		return eastWest(c2, "n2", append([]func(*model.Service){func(s *model.Service) { s.Ports = ports }}, opts...)...)
	}
	listed := func(addrs ...model.GatewayAddr) model.Object {
		return config(c2, model.ConfigNetworkGateway, "istio-system", "gw", &model.NetworkGateway{Network: "n2", Addrs: addrs})
	}
	ip := netip.MustParseAddr("192.0.2.1")
	for name, tc := range map[string]struct {
		row   model.Object
		want  []string // address, or name, and port for HBONE
		apart bool
	}{
		"both":                       {of(both), []string{"192.0.2.1:15443 15008"}, true},
		"alone":                      {of(mesh), []string{"192.0.2.1:0 15008"}, false},
		"alone, not exposed":         {of(mesh, exposed()), nil, false},
		"alone, by name":             {of(mesh, exposed(model.Exposure{Host: "lb.example"})), []string{"lb.example 15008"}, false},
		"node ports":                 {of(both, exposed(at("192.0.2.8", 15443, 30443, 15008, 30008))), []string{"192.0.2.8:30443 30008"}, true},
		"node port of it alone":      {of(both, exposed(at("192.0.2.8", 15008, 30008))), []string{" 0", "192.0.2.8:0 30008"}, true},
		"another port that it lacks": {of(mesh, label("networking.istio.io/gatewayPort", "443")), []string{" 0", "192.0.2.1:0 15008"}, true},
		"Gateway with both":          {listed(model.GatewayAddr{IP: ip, Port: 15443}, model.GatewayAddr{IP: ip, HBONEPort: 15008}), []string{"192.0.2.1:0 15008", "192.0.2.1:15443 0"}, true},
		"Gateway with it alone":      {listed(model.GatewayAddr{IP: ip, HBONEPort: 15008}), []string{"192.0.2.1:0 15008"}, false},
		"Gateway at a useless place": {listed(model.GatewayAddr{IP: netip.MustParseAddr("127.0.0.1"), HBONEPort: 15008}), nil, false},
		"Gateway half useless":       {listed(model.GatewayAddr{IP: netip.MustParseAddr("127.0.0.1"), Port: 15443}, model.GatewayAddr{IP: ip, HBONEPort: 15008}), []string{" 0", "192.0.2.1:0 15008"}, true},
	} {
		b := rebuild(tc.row, service(kube("c1"), "a"), onNetwork(slice(c2, "a", "a-1", "10.0.0.1"), "n2"))
		var got []string
		for _, n := range b.Networks {
			for _, g := range n.Gateways {
				where := g.Host
				if g.Addr.IsValid() {
					where = g.Addr.String()
				}
				got = append(got, fmt.Sprint(where, " ", g.HBONEPort))
			}
		}
		if d := cmp.Diff(tc.want, got); d != "" {
			t.Errorf("%s: %s", name, d)
		}
		if b.Mesh.HasGateway("n2") != tc.apart || len(b.Hosts) > 0 {
			t.Errorf("%s: the network is apart: %t, names to resolve: %v", name, !tc.apart, b.Hosts)
		}
	}
}

// A Service that meshNetworks names counts in the members of the network that it names it for.
func TestGatewaysNamedByMeshNetworks(t *testing.T) {
	t.Parallel()
	network := func(registries []string, name string, port uint32) *meshconfig.Network {
		n := &meshconfig.Network{Gateways: []*meshconfig.Network_IstioNetworkGateway{
			{Gw: &meshconfig.Network_IstioNetworkGateway_RegistryServiceName{RegistryServiceName: name}, Port: port},
		}}
		for _, r := range registries {
			n.Endpoints = append(n.Endpoints, &meshconfig.Network_NetworkEndpoints{Ne: &meshconfig.Network_NetworkEndpoints_FromRegistry{FromRegistry: r}})
		}
		return n
	}
	nets := &meshconfig.MeshNetworks{Networks: map[string]*meshconfig.Network{
		"n2": network([]string{"c2", "c3"}, host("gw"), 15443),
		"n4": network([]string{"c2", "c4"}, host("gw"), 443), // c2 is n2's already
		"n5": network([]string{"c5"}, host("gw"), 70000),
		"n6": network(nil, host("gw"), 15443),
	}}
	rows := []model.Object{meshRow(nets, model.ConfigNetworks)}
	for i := 1; i <= 6; i++ {
		rows = append(rows, service(kube(model.ClusterID(fmt.Sprint("c", i))), "gw", exposed(at(fmt.Sprint("192.0.2.", i))), func(s *model.Service) {
			s.Ports = append(s.Ports, port("tls", 15443), port("https", 443), port("wrapped", 70000-65536))
		}))
	}
	want := []string{"n2 c2 192.0.2.2:15443", "n2 c3 192.0.2.3:15443", "n4 c4 192.0.2.4:443"}
	if d := cmp.Diff(want, networksText(rebuild(rows...).Networks)); d != "" {
		t.Error(d)
	}
}

// A gateway without addresses keeps its network apart too.
func TestIncident61GatewayWithoutAddressStays(t *testing.T) {
	t.Parallel()
	c2 := kube("c2")
	b := rebuild(config(c2, model.ConfigNetworkGateway, "istio-system", "gw", &model.NetworkGateway{Network: "n2"}),
		service(kube("c1"), "a"), onNetwork(slice(c2, "a", "a-1", "10.0.0.1"), "n2"))
	if !b.Mesh.HasGateway("n2") || len(b.Networks.NetworkGateways("n2", "c2", false)) != 0 {
		t.Errorf("gateways %q", networksText(b.Networks))
	}
}

// A name stands for each of its addresses; one without stays, so that its network stays apart. Proxies that
// resolve names themselves are told the name.
func TestIncident61UnresolvedGatewayStays(t *testing.T) {
	t.Parallel()
	c2 := kube("c2")
	found := config(c2, model.ConfigNetworkGateway, "istio-system", "gw", &model.NetworkGateway{Network: "n2", Addrs: []model.GatewayAddr{
		{Host: "GW.example.", Port: 15443}, {Host: "b.example", Port: 443}, {IP: netip.MustParseAddr("192.0.2.9"), Port: 15443}, {Host: "c.example"},
	}})
	dns := entry(kube("c1"), "db", func(s *model.Service) { s.Resolution = model.DNSLB })
	remote := onNetwork(slice(c2, "a", "a-1", "10.0.0.1"), "n2")
	remoteName := onNetwork(slice(kube("c1"), "db", "db-1", "10.0.0.1"), "n2")
	for name, tc := range map[string]struct {
		rows []model.Object
		want []string
	}{
		"not yet":  {nil, []string{"n2 c2  b.example", "n2 c2  gw.example", "n2 c2 192.0.2.9:15443"}},
		"one does": {[]model.Object{resolvedHost("gw.example", "192.0.2.2", "2001:db8::1")}, []string{"n2 c2  b.example", "n2 c2 192.0.2.2:15443 gw.example", "n2 c2 192.0.2.9:15443", "n2 c2 [2001:db8::1]:15443 gw.example"}},
		"one has no address": {[]model.Object{resolvedHost("gw.example"), resolvedHost("b.example", "192.0.2.3")},
			[]string{"n2 c2  gw.example", "n2 c2 192.0.2.3:443 b.example", "n2 c2 192.0.2.9:15443"}},
	} {
		b := rebuild(append(tc.rows, found, service(kube("c1"), "a"), remote, dns, remoteName)...)
		if d := cmp.Diff(tc.want, networksText(b.Networks)); d != "" {
			t.Errorf("%s: %s", name, d)
		}
		if d := cmp.Diff([]string{"b.example", "gw.example"}, b.Hosts); d != "" {
			t.Errorf("%s: %s", name, d)
		}
		for _, v := range b.Services {
			switch {
			case v.Shape.Name == "a" && (!v.Networks.Equal(b.Networks) || v.Shape.Networks != nil):
				t.Errorf("%s: a is behind %v and %v", name, networksText(v.Networks), networksText(v.Shape.Networks))
			case v.Shape.Name == "db":
				if d := cmp.Diff([]string{"n2 c2  b.example", "n2 c2  gw.example", "n2 c2 192.0.2.9:15443"}, networksText(v.Shape.Networks)); d != "" {
					t.Errorf("%s: %s", name, d)
				}
			}
		}
	}
}

// Gateways that differ in anything are in one order, whatever the order of their sources.
func TestGatewaysAreInOneOrder(t *testing.T) {
	t.Parallel()
	rows := []model.Object{
		eastWest(kube("c2"), "n2"), eastWest(kube("c3"), "n2"), eastWest(kube("c4"), "n1"),
		config(kube("c2"), model.ConfigNetworkGateway, "ns", "gw", &model.NetworkGateway{Network: "n2", Addrs: []model.GatewayAddr{{Host: "gw.example", Port: 15443}, {IP: netip.MustParseAddr("192.0.2.1"), Port: 15443}}}),
		resolvedHost("gw.example", "192.0.2.1"),
	}
	want := []string{"n1 c4 192.0.2.1:15443", "n2 c2 192.0.2.1:15443", "n2 c2 192.0.2.1:15443 gw.example", "n2 c3 192.0.2.1:15443"}
	for range 10 {
		if d := cmp.Diff(want, networksText(rebuild(rows...).Networks)); d != "" {
			t.Fatal(d)
		}
	}
}

// networked is a mesh of two networks: service a is on both, service b on its own only.
func networked(h *hub, gateways ...model.Object) (c2 *memory.Registry, dns *memory.Registry) {
	h.Attach(registry(kube("c1"), service(kube("c1"), "a"), service(kube("c1"), "b"), slice(kube("c1"), "b", "b-1", "10.0.0.9"),
		onNetwork(slice(kube("c1"), "a", "a-1", "10.0.0.1"), "n1")))
	c2 = registry(kube("c2"), append(gateways, service(kube("c2"), "a"), onNetwork(slice(kube("c2"), "a", "a-1", "10.0.0.1"), "n2"))...)
	dns = registry(dnsKey)
	h.Attach(c2)
	h.Attach(dns)
	h.start()
	h.quiet()
	return c2, dns
}

// A gateway is gone at once when its Service is, or loses its label, and comes back with it.
func TestGatewayGoesWithItsService(t *testing.T) {
	inBubble(t, aggregate.Options{ConfigCluster: "c1"}, func(h *hub) {
		c2, _ := networked(h, eastWest(kube("c2"), "n2"))
		check := func(when string, want ...string) {
			t.Helper()
			pc := h.quiet()
			if got := networksText(pc.Networks); !slices.Equal(got, want) {
				t.Errorf("%s: %q, want %q", when, got, want)
			}
			if v := h.service("a"); len(v.Networks) != min(len(want), 1) || pc.Mesh.HasGateway("n2") != (len(want) > 0) {
				t.Errorf("%s: the service is behind %v", when, networksText(v.Networks))
			}
		}
		check("first", "n2 c2 192.0.2.1:15443")
		unlabelled := eastWest(kube("c2"), "n2")
		unlabelled.Labels = nil
		c2.Put(keyOf(unlabelled), unlabelled)
		check("without its label")
		c2.Put(keyOf(unlabelled), eastWest(kube("c2"), "n2"))
		check("with it again", "n2 c2 192.0.2.1:15443")
		c2.Delete(rowOf(unlabelled))
		check("deleted")
		c2.Put(keyOf(unlabelled), eastWest(kube("c2"), "n2"))
		check("made again", "n2 c2 192.0.2.1:15443")
		h.Detach(kube("c2"))
		if pc := h.quiet(); len(pc.Networks) != 0 || pc.Mesh.MultiNetwork() {
			t.Errorf("after its member: %v", networksText(pc.Networks))
		}
	})
}

// A gateway that moves changes the endpoints of the services behind it, and nothing else: of these both the
// resolved and, for those that resolve names themselves, the named form.
func TestGatewayChangeConcernsServicesBehindIt(t *testing.T) {
	var asked [][]string
	o := aggregate.Options{ConfigCluster: "c1", OnHosts: func(hosts []string) { asked = append(asked, hosts) }}
	inBubble(t, o, func(h *hub) {
		c2, dns := networked(h, eastWest(kube("c2"), "n2", exposed(model.Exposure{Host: "gw.example"})))
		time.Sleep(10 * time.Second)
		h.quiet()
		b, a := h.service("b"), h.service("a")
		change := func(when string, do func(), want ...string) {
			t.Helper()
			h.deltas = nil
			do()
			h.quiet()
			if len(h.deltas) != 1 || !slices.Equal(h.deltas[0].Endpoints, []string{host("a")}) || len(h.deltas[0].Shape) > 0 || h.deltas[0].Mesh {
				t.Fatalf("%s: %d deltas, the last %+v", when, len(h.deltas), h.deltas[len(h.deltas)-1])
			}
			now := h.service("a")
			if d := cmp.Diff(want, networksText(now.Networks)); d != "" {
				t.Errorf("%s: %s", when, d)
			}
			if h.service("b") != b || now.Shape != a.Shape {
				t.Errorf("%s: a view was made anew for nothing", when)
			}
		}
		put := func(c *model.Config) func() { return func() { dns.Put(keyOf(c), c) } }
		change("resolved", put(resolvedHost("gw.example", "192.0.2.1")), "n2 c2 192.0.2.1:15443 gw.example")
		change("rotated", put(resolvedHost("gw.example", "192.0.2.2", "192.0.2.3")), "n2 c2 192.0.2.2:15443 gw.example", "n2 c2 192.0.2.3:15443 gw.example")
		h.deltas = nil
		put(resolvedHost("gw.example", "192.0.2.2", "192.0.2.3"))()
		put(resolvedHost("other.example", "192.0.2.2"))()
		if h.quiet(); len(h.deltas) != 0 && !h.deltas[0].Empty() {
			t.Errorf("the same again is %+v", h.deltas[0])
		}
		change("gone", put(resolvedHost("gw.example")), "n2 c2  gw.example")
		moved := eastWest(kube("c2"), "n2", exposed(at("192.0.2.4")))
		h.deltas = nil
		c2.Put(keyOf(moved), moved)
		h.quiet()
		if d := cmp.Diff([]string{"n2 c2 192.0.2.4:15443"}, networksText(h.service("a").Networks)); d != "" {
			t.Error(d)
		}
		synctest.Wait()
		if d := cmp.Diff([][]string{{"gw.example"}, nil}, asked); d != "" {
			t.Errorf("names asked for: %s", d)
		}
	})
}

// The first snapshot waits for the addresses of gateways, but not for ever.
func TestGateWaitsForNames(t *testing.T) {
	for name, answers := range map[string]bool{"answered": true, "unanswered": false} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, aggregate.Options{ConfigCluster: "c1", OnHosts: func([]string) {}}, func(h *hub) {
				_, dns := networked(h, eastWest(kube("c2"), "n2", exposed(model.Exposure{Host: "gw.example"})))
				if h.Ready() {
					t.Error("ready before the name is resolved")
				}
				if answers {
					dns.Put("h", resolvedHost("gw.example"))
					synctest.Wait()
				} else {
					time.Sleep(4 * time.Second)
					synctest.Wait()
				}
				if !h.Ready() {
					t.Error("not ready")
				}
			})
		})
	}
}
