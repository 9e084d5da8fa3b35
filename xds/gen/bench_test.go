package gen_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/pushcontext"
	"github.com/isthmus-mesh/isthmus/xds/gen"
)

func manyServices(n int, port model.Port) []svc {
	out := make([]svc, n)
	for i := range out {
		out[i] = svc{host: fmt.Sprintf("svc-%d.ns-%d.svc.cluster.local", i, i%100), ports: []model.Port{port},
			vips: map[model.ClusterID][]string{"c1": {fmt.Sprintf("10.%d.%d.1", i/250, i%250)}, "c2": {fmt.Sprintf("11.%d.%d.1", i/250, i%250)}}}
	}
	return out
}

// BenchmarkRouteTable10k rebuilds a table of 10 000 hosts after one service has changed: the others
// keep their shapes, and with them their encoded virtual hosts.
func BenchmarkRouteTable10k(b *testing.B) {
	m := newMesh()
	services := manyServices(10_000, httpPort(80))
	v := portView(80, m, services...)
	g, c := gen.Routes{}, sidecar("c1", "ns-1")
	c = c.Keep(g.Traits(v))
	table, err := g.Build(v, c, "80")
	if err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64(len(table)), "table-bytes")
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		changed := &pushcontext.PortView{Number: 80, Mesh: m.MeshView, Services: append([]*pushcontext.ShapeView(nil), v.Services...)}
		at := slices.IndexFunc(v.Services, func(s *pushcontext.ShapeView) bool { return s.Key.Host == services[i%len(services)].host })
		changed.Services[at] = services[i%len(services)].shape(m)
		if got := len(g.Names(changed, c)); got != 1 {
			b.Fatal(got)
		}
		if _, err := g.Build(changed, c, "80"); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkRouteTable10kRouted is BenchmarkRouteTable10k where each service has a VirtualService that looks at labels,
// and one is for a host that no service has.
func BenchmarkRouteTable10kRouted(b *testing.B) {
	m := newMesh()
	services := manyServices(10_000, httpPort(80))
	spec := "http: [{match: [{sourceLabels: {app: web}, uri: {prefix: /a}}], redirect: {uri: /b}}, {route: [{destination: {host: x.example}}]}]"
	for i := range services {
		services[i].edit = routedBy(virtualService(b, "v", spec))
	}
	v := unclaimed(portView(80, m, services...), answers(b, "v", []string{"nowhere.example"}))
	g, c := gen.Routes{}, sidecar("c1", "ns-1", withLabels(model.Labels{"app": "web", "pod": "1"}))
	c = g.Narrow(v, c.Keep(g.Traits(v)))
	if _, err := g.Build(v, c, "80"); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		changed := &pushcontext.PortView{Number: 80, Mesh: m.MeshView, Services: slices.Clone(v.Services), Routes: v.Routes}
		at := i % len(services)
		changed.Services[at] = services[at].shape(m)
		if _, err := g.Build(changed, c, "80"); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkRouteTable10kCold is the first table for a class.
func BenchmarkRouteTable10kCold(b *testing.B) {
	m := newMesh()
	services := manyServices(10_000, httpPort(80))
	g, c := gen.Routes{}, sidecar("c1", "ns-1")
	b.ReportAllocs()
	for b.Loop() {
		b.StopTimer()
		v := portView(80, m, services...)
		b.StartTimer()
		if _, err := g.Build(v, c.Keep(g.Traits(v)), "80"); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkListeners10k makes the listeners of 10 000 TCP services of one port.
func BenchmarkListeners10k(b *testing.B) {
	m := newMesh()
	services := manyServices(10_000, tcpPort(80))
	g := gen.Listeners{}
	b.ReportAllocs()
	for b.Loop() {
		v := portView(80, m, services...)
		c := sidecar("c1", "ns-1").Keep(g.Traits(v))
		for _, n := range g.Names(v, c) {
			if _, err := g.Build(v, c, n); err != nil {
				b.Fatal(err)
			}
		}
	}
}

// BenchmarkAssignment100 makes one assignment of 100 endpoints.
func BenchmarkAssignment100(b *testing.B) {
	s := svc{host: "a.ns.svc.cluster.local", ports: []model.Port{httpPort(80)}}
	for i := range 100 {
		s.endpoints = append(s.endpoints, ep("c1", "http", fmt.Sprintf("10.0.%d.%d:80", i/10, i), at(fmt.Sprintf("r/z%d", i%3))))
	}
	v := s.view(newMesh())
	g, c := gen.Endpoints{}, gen.Class{}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := g.Build(v, c, "outbound|80||a.ns.svc.cluster.local"); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkSelect1000 decides about 1 000 endpoints of a service, nothing special about any.
func BenchmarkSelect1000(b *testing.B) {
	v, c := thousand(newMesh(), ""), sidecar("c1", "ns", inZone("r/z1"))
	b.ReportAllocs()
	for b.Loop() {
		gen.ExplainEndpoints(v, c, v.Shape.Ports[0])
	}
}

// BenchmarkSelect1000Networks has half of them on another network, behind three gateways.
func BenchmarkSelect1000Networks(b *testing.B) {
	v, c := thousand(newMesh(twoNetworks), "n2"), sidecar("c1", "ns", onNetwork("n1"), inZone("r/z1"))
	b.ReportAllocs()
	for b.Loop() {
		gen.ExplainEndpoints(v, c, v.Shape.Ports[0])
	}
}

func thousand(m *settings, other string) *pushcontext.ServiceView {
	s := svc{host: "a.ns.svc.cluster.local", ports: []model.Port{httpPort(80)}}
	for i := range 1000 {
		e := ep("c1", "http", fmt.Sprintf("10.0.%d.%d:80", i/250, i%250), at(fmt.Sprintf("r/z%d", i%3)), mtls)
		if i%2 == 1 {
			e.Network = other
		}
		s.endpoints = append(s.endpoints, e)
	}
	return s.view(m)
}

// BenchmarkCluster makes the cluster of one service port.
func BenchmarkCluster(b *testing.B) {
	s := manyServices(1, httpPort(80))[0].shape(newMesh())
	g := gen.Clusters{}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := g.Build(s, gen.Class{}, "outbound|80||"+s.Key.Host); err != nil {
			b.Fatal(err)
		}
	}
}
