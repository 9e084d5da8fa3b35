package health

import (
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	meshconfig "istio.io/api/mesh/v1alpha1"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/pushcontext"
	"github.com/isthmus-mesh/isthmus/test/golden"
	"github.com/isthmus-mesh/isthmus/xds/gen"
)

// service is a view of a service that nothing is wrong with.
func service(host string, ports ...model.Port) *pushcontext.ServiceView {
	v := &pushcontext.ServiceView{Shape: &pushcontext.ShapeView{
		Key: model.ServiceKey{Namespace: "shop", Host: host}, Name: host, Ports: ports, Export: pushcontext.Export{Public: true},
	}}
	for i, p := range ports {
		e := &model.Endpoint{
			Addr: model.Addr{Cluster: "c1", AddrPort: netip.AddrPortFrom(netip.MustParseAddr("10.0.0.1"), 1000+uint16(i))}, PortName: p.Name, Health: model.Healthy,
		}
		v.Endpoints = append(v.Endpoints, pushcontext.PortEndpoints{Port: p.Name, Localities: []pushcontext.LocalityEndpoints{{Endpoints: []*model.Endpoint{e}}}})
	}
	return v
}

func port(name string, number uint16, p model.Protocol) model.Port {
	return model.Port{Name: name, Number: number, Protocol: p}
}

var (
	web = port("http", 80, model.ProtocolHTTP)
	tcp = port("tcp", 3306, model.ProtocolTCP)
	tls = port("tls", 443, model.ProtocolTLS)
)

// with changes a view.
func with(v *pushcontext.ServiceView, change ...func(*pushcontext.ServiceView)) *pushcontext.ServiceView {
	for _, c := range change {
		c(v)
	}
	return v
}

func in(cluster, namespace string) func(*pushcontext.ServiceView) {
	return func(v *pushcontext.ServiceView) {
		v.Shape.Key.Cluster, v.Shape.Key.Namespace = model.ClusterID(cluster), namespace
	}
}

func only(namespaces ...string) func(*pushcontext.ServiceView) {
	return func(v *pushcontext.ServiceView) { v.Shape.Export = pushcontext.Export{Namespaces: namespaces} }
}

func at(cluster string, addrs ...string) func(*pushcontext.ServiceView) {
	return func(v *pushcontext.ServiceView) {
		if v.Shape.Addresses == nil {
			v.Shape.Addresses = map[model.ClusterID][]netip.Prefix{}
		}
		for _, a := range addrs {
			v.Shape.Addresses[model.ClusterID(cluster)] = append(v.Shape.Addresses[model.ClusterID(cluster)], netip.MustParsePrefix(a))
		}
	}
}

func anywhereAt(v *pushcontext.ServiceView) { v.Shape.MeshAddresses = true }

func resolved(r model.Resolution) func(*pushcontext.ServiceView) {
	return func(v *pushcontext.ServiceView) { v.Shape.Resolution, v.Shape.Native = r, r == model.Passthrough }
}

func bare(v *pushcontext.ServiceView) { v.Endpoints = nil }

// odd makes every endpoint unready and adds candidates whose pod is unknown.
func odd(v *pushcontext.ServiceView) {
	for _, p := range v.Endpoints {
		for _, l := range p.Localities {
			for _, e := range l.Endpoints {
				e.Health = model.Unhealthy
			}
		}
	}
	for _, a := range []string{"10.0.0.8:80", "10.0.0.8:81", "10.0.0.9:80"} {
		v.LeftOut = append(v.LeftOut, model.LeftOut{Addr: model.Addr{Cluster: "c1", AddrPort: netip.MustParseAddrPort(a)}, Reason: model.ReasonPodUnknown})
	}
	v.LeftOut = append(v.LeftOut, model.LeftOut{Reason: model.ReasonDuplicate})
}

func snapshot(b *pushcontext.Builder, views ...*pushcontext.ServiceView) *pushcontext.PushContext {
	c := pushcontext.Commit{Mesh: &pushcontext.MeshView{Config: &meshconfig.MeshConfig{}}, Configs: []*model.Config{
		{Kind: "VirtualService", NotServed: true}, {Kind: "Gateway", NotServed: true}, {Kind: model.ConfigMesh},
	}}
	for i, v := range views {
		v.Shape.Created, v.Shape.Mesh = time.Unix(int64(i), 0), c.Mesh
		c.Services = append(c.Services, pushcontext.Change{Key: v.Shape.Key, View: v})
	}
	pc, _ := b.Commit(c)
	return pc
}

func TestChecks(t *testing.T) {
	t.Parallel()
	views := func(vs ...*pushcontext.ServiceView) []*pushcontext.ServiceView { return vs }
	for _, tc := range []struct {
		name  string
		count func(*pushcontext.PushContext) int
		mesh  []*pushcontext.ServiceView
		want  int
	}{
		{"virtual services", virtualServices, nil, 1},
		{"ports with endpoints", emptyPorts, views(service("a", web, tcp)), 0},
		{"ports without endpoints", emptyPorts, views(with(service("a", web, tcp), bare)), 2},
		{"UDP has no cluster", emptyPorts, views(with(service("a", port("dns", 53, model.ProtocolUDP)), bare)), 0},
		{"headless and DNS services are pushed no endpoints", emptyPorts, views(with(service("a", web), bare, resolved(model.Passthrough)), with(service("b", web), bare, resolved(model.DNSLB))), 0},
		{"DNS without names", emptyNames, views(with(service("a", web), bare, resolved(model.DNSLB)), with(service("b", web), resolved(model.DNSRoundRobin)), with(service("c", web), bare)), 1},
		{"unready endpoints", notReady, views(with(service("a", web, tcp), odd), service("b", web)), 2},
		{"candidates without pod, by service", withoutPod, views(with(service("a", web), odd), with(service("b", web), odd)), 6},
		{"candidates without pod, by address", pendingPods, views(with(service("a", web), odd), with(service("b", web), odd)), 2},

		{"one host, two namespaces", hiddenClusters, views(service("a", web, tcp), with(service("a", web), in("", "bank"))), 1},
		{"other ports do not meet", hiddenClusters, views(service("a", tcp), with(service("a", web), in("", "bank"))), 0},
		{"private to two namespaces", hiddenClusters, views(with(service("a", web), only("shop")), with(service("a", web), in("", "bank"), only("bank"))), 0},
		{"private beside public", hiddenClusters, views(with(service("a", web), only("shop")), with(service("a", web), in("", "bank"))), 1},
		{"local to two clusters", hiddenClusters, views(with(service("a", web), in("c1", "shop")), with(service("a", web), in("c2", "shop"))), 0},
		{"local beside mesh-wide", hiddenClusters, views(with(service("a", web), in("c1", "shop")), service("a", web)), 1},
		{"one number for UDP and TCP", hiddenClusters, views(service("a", port("u", 80, model.ProtocolUDP), web), service("b", web)), 0},

		{"one kind of protocol", inboundConflicts, views(service("a", web), service("b", port("grpc", 90, model.ProtocolGRPC))), 0},
		{"two kinds of protocol", inboundConflicts, views(service("a", web), service("b", tcp), service("c", port("any", 9, model.ProtocolUnknown))), 1},
		{"UDP does not listen", inboundConflicts, views(service("a", web), service("b", port("u", 53, model.ProtocolUDP))), 0},

		{"HTTP shares its port", outboundConflicts, views(service("a", web), service("b", web)), 0},
		{"TCP without addresses", outboundConflicts, views(service("a", tcp), service("b", tcp), service("c", tcp)), 2},
		{"TLS is told apart by name", outboundConflicts, views(service("a", tls), service("b", tls)), 0},
		{"addresses of their own", outboundConflicts, views(with(service("a", tcp), at("c1", "10.1.0.1/32")), with(service("b", tcp), at("c1", "10.1.0.2/32"))), 0},
		{"one address for two", outboundConflicts, views(with(service("a", tcp), at("c1", "10.1.0.1/32")), with(service("b", tcp), at("c1", "10.1.0.1/32"))), 1},
		{"one address in two clusters", outboundConflicts, views(with(service("a", tcp), at("c1", "10.1.0.1/32")), with(service("b", tcp), at("c2", "10.1.0.1/32"))), 0},
		{"a mesh-wide address", outboundConflicts, views(with(service("a", tcp), at("c1", "10.1.0.1/32")), with(service("b", tcp), at("c2", "10.1.0.1/32"), anywhereAt)), 1},
		{"a mesh-wide address named twice", outboundConflicts, views(with(service("a", tcp), at("c1", "10.1.0.1/32"), at("c2", "10.1.0.1/32"), anywhereAt)), 0},
		{"one address, never seen together", outboundConflicts, views(
			with(service("a", tcp), at("c1", "10.1.0.1/32"), only("shop")), with(service("b", tcp), at("c1", "10.1.0.1/32"), only("bank"))), 0},
		{"one host twice", outboundConflicts, views(service("a", tcp), with(service("a", tcp), in("", "bank"))), 0},
		{"headless", outboundConflicts, views(service("a", tcp), with(service("b", tcp), resolved(model.Passthrough))), 0},
		{"no address in particular", outboundConflicts, views(service("a", tcp), with(service("b", tcp), at("c1", "0.0.0.0/32"))), 1},
		{"undeclared beside TCP", outboundConflicts, views(service("a", tcp), service("b", port("any", 3306, model.ProtocolUnknown))), 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			if got := tc.count(snapshot(pushcontext.NewBuilder(), tc.mesh...)); got != tc.want {
				t.Errorf("%d, want %d", got, tc.want)
			}
		})
	}
}

func shards() []pushcontext.ShardInfo {
	return []pushcontext.ShardInfo{{Status: model.Status{Problems: make([]model.Problem, 2)}}, {Status: model.Status{Problems: make([]model.Problem, 1)}}}
}

// sidecars are one that backs services and one that backs none.
func sidecars() []pushcontext.Reader {
	at := func(ip string) pushcontext.Reader {
		return pushcontext.Reader{Cluster: "c1", Instances: []model.InstanceKey{{Cluster: "c1", IP: netip.MustParseAddr(ip)}}}
	}
	return []pushcontext.Reader{at("10.0.0.1"), at("10.0.0.99")}
}

func nobody() []gen.Class { return nil }

func scrape(t *testing.T, c *Collector) string {
	t.Helper()
	r := prometheus.NewPedanticRegistry()
	r.MustRegister(c)
	w := httptest.NewRecorder()
	promhttp.HandlerFor(r, promhttp.HandlerOpts{}).ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	return w.Body.String()
}

func TestExposition(t *testing.T) {
	t.Parallel()
	pc := snapshot(pushcontext.NewBuilder(), with(service("a", web, tcp), odd), service("b", tcp), with(service("b", tcp), in("", "bank"), bare),
		with(service("c", web), bare, resolved(model.DNSLB)))
	c := &Collector{Snapshot: func() *pushcontext.PushContext { return pc }, Shards: shards, Sidecars: sidecars, Classes: nobody}
	golden.Compare(t, "testdata/metrics.golden", scrape(t, c))
}

// Servers that a connected router can't serve are counted once, however many routers there are; those that only lack routes are not.
func TestDroppedServersAreCounted(t *testing.T) {
	t.Parallel()
	server := func(index int, protocol string) *pushcontext.GatewayServer {
		return &pushcontext.GatewayServer{Namespace: "shop", Gateway: "a", Index: index, Selector: model.Labels{"app": "gw"}, Mesh: &pushcontext.MeshView{Config: &meshconfig.MeshConfig{}},
			Hosts: []pushcontext.GatewayHost{{Host: "*"}}, Spec: &networking.Server{Port: &networking.Port{Number: 80, Protocol: protocol, Name: "p"}, Hosts: []string{"*"}}}
	}
	pc := snapshot(pushcontext.NewBuilder(), service("a", web))
	idle := server(2, "TCP")
	idle.Spec.Port.Number = 81
	pc.Gateways = &pushcontext.GatewaysView{Servers: []*pushcontext.GatewayServer{server(0, "HTTP"), server(1, "TCP"), idle}, Labels: []string{"app"}, Mesh: &pushcontext.MeshView{Config: &meshconfig.MeshConfig{}}}
	classes := func() []gen.Class {
		labels := gen.NewLabels(model.Labels{"app": "gw"})
		return []gen.Class{{Type: gen.Router, Labels: labels, IPv4: true}, {Type: gen.Router, Labels: labels, IPv4: true, Namespace: "x"}, {Type: gen.Sidecar, IPv4: true}}
	}
	c := &Collector{Snapshot: func() *pushcontext.PushContext { return pc }, Shards: func() []pushcontext.ShardInfo { return nil }, Sidecars: sidecars, Classes: classes}
	if got := scrape(t, c); !strings.Contains(got, "pilot_total_rejected_configs 1\n") {
		t.Error(got)
	}
}

func TestNothingBeforeTheFirstSnapshot(t *testing.T) {
	t.Parallel()
	c := &Collector{Snapshot: func() *pushcontext.PushContext { return nil }, Shards: shards, Sidecars: sidecars, Classes: nobody}
	if got := scrape(t, c); got != "" {
		t.Errorf("got %s", got)
	}
}

// A snapshot is counted once, however often it is scraped.
func TestOnceForEachVersion(t *testing.T) {
	t.Parallel()
	b := pushcontext.NewBuilder()
	pc := snapshot(b, service("a", web))
	c := &Collector{Snapshot: func() *pushcontext.PushContext { return pc }, Shards: shards, Sidecars: sidecars, Classes: nobody}
	first := scrape(t, c)
	counted := c.newest.Load()
	if again := scrape(t, c); again != first || c.newest.Load() != counted {
		t.Errorf("counted again, or other numbers:\n%s\n%s", first, again)
	}
	pc = snapshot(b, with(service("a", web), bare))
	if now := scrape(t, c); !strings.Contains(now, "pilot_eds_no_instances 1") || c.newest.Load() == counted {
		t.Errorf("the numbers are of version %d, not %d:\n%s", c.newest.Load().version, pc.Version, now)
	}
}
