package pushcontext

import (
	"fmt"
	"net/netip"
	"runtime"
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
)

// The mesh of the budgets: 10 000 services, each with 10 workloads spread over 50 members.
const benchServices, benchEndpoints, benchClusters = 10_000, 10, 50

func benchSpec(i, generation int) spec {
	s := spec{
		key:   key("", fmt.Sprintf("ns%d", i%100), fmt.Sprintf("svc-%d.ns%d.svc.cluster.local", i, i%100)),
		ports: []uint16{80, 9090, uint16(10_000 + i%1000)}, created: i,
	}
	for e := range benchEndpoints {
		n := i*benchEndpoints + e
		s.endpoints = append(s.endpoints, specEndpoint{
			ip:       netip.AddrFrom4([4]byte{10, byte(generation), byte(n >> 8), byte(n)}).String(),
			cluster:  clusterID(fmt.Sprint("c", n%benchClusters)),
			locality: fmt.Sprintf("r%d/z%d", n%3, n%9),
		})
	}
	return s
}

func benchMesh(tb testing.TB) (*Builder, *PushContext) {
	tb.Helper()
	b := NewBuilder()
	c := Commit{Mesh: testMesh()}
	for i := range benchServices {
		s := benchSpec(i, i>>12)
		c.Services = append(c.Services, Change{s.key, s.fresh(c.Mesh)})
	}
	pc, _ := b.Commit(c)
	return b, pc
}

func benchCommit(b *testing.B, dirty int, view func(n int, s spec, pc *PushContext) *ServiceView) {
	builder, pc := benchMesh(b)
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		b.StopTimer()
		var c Commit
		for range dirty {
			i := n * 97 % benchServices
			n++
			s := benchSpec(i, i>>12)
			c.Services = append(c.Services, Change{s.key, view(n, s, pc)})
		}
		b.StartTimer()
		pc, _ = builder.Commit(c)
	}
}

// moveOne gives one workload another address.
func moveOne(n int, s spec, pc *PushContext) *ServiceView {
	s.endpoints[0].ip = netip.AddrFrom4([4]byte{11, byte(n >> 16), byte(n >> 8), byte(n)}).String()
	return s.view(pc.Service(s.key).Shape)
}

// The budget of a commit of 100 dirty services, merge included, is 5 ms.
func BenchmarkCommitEndpoints(b *testing.B)   { benchCommit(b, 100, moveOne) }
func BenchmarkCommitOneEndpoint(b *testing.B) { benchCommit(b, 1, moveOne) }

func BenchmarkCommitShapes(b *testing.B) {
	benchCommit(b, 100, func(_ int, s spec, pc *PushContext) *ServiceView { return s.fresh(pc.Mesh) })
}

func BenchmarkCommitHealthOnly(b *testing.B) {
	benchCommit(b, 100, func(_ int, s spec, pc *PushContext) *ServiceView { return s.view(pc.Service(s.key).Shape) })
}

// Every workload of 100 services gets another address.
func BenchmarkCommitRollout(b *testing.B) {
	benchCommit(b, 100, func(n int, s spec, pc *PushContext) *ServiceView {
		for i := range s.endpoints {
			s.endpoints[i].ip = netip.AddrFrom4([4]byte{11, byte(n >> 12), byte(n >> 4), byte(n<<4 + i)}).String()
		}
		return s.view(pc.Service(s.key).Shape)
	})
}

func BenchmarkCommitEverything(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		b.StopTimer()
		c := Commit{Mesh: testMesh()}
		for i := range benchServices {
			s := benchSpec(i, i>>12)
			c.Services = append(c.Services, Change{s.key, s.fresh(c.Mesh)})
		}
		b.StartTimer()
		NewBuilder().Commit(c)
	}
}

// One large service of which one endpoint changes.
func BenchmarkCommitLargeService(b *testing.B) {
	m := testMesh()
	big := spec{key: key("", "ns", "big"), ports: []uint16{80, 443}}
	for i := range 10_000 {
		big.endpoints = append(big.endpoints, specEndpoint{ip: netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)}).String(), cluster: "c1"})
	}
	builder := NewBuilder()
	pc, _ := builder.Commit(Commit{Mesh: m, Services: []Change{{big.key, big.fresh(m)}}})
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		b.StopTimer()
		n++
		big.endpoints[n%10_000].ip = netip.AddrFrom4([4]byte{11, byte(n >> 16), byte(n >> 8), byte(n)}).String()
		c := Commit{Services: []Change{{big.key, big.view(pc.Service(big.key).Shape)}}}
		b.StartTimer()
		pc, _ = builder.Commit(c)
	}
}

func BenchmarkBetween(b *testing.B) {
	h := NewHub(nil)
	for v := uint64(1); v <= 2000; v++ {
		d := &Delta{From: v - 1, To: v, Reasons: []string{"endpoint"}}
		for i := range 10 {
			n := int(v)*7 + i*131
			d.Endpoints = append(d.Endpoints, fmt.Sprintf("svc-%05d.ns.svc.cluster.local", n%benchServices))
			d.Instances = append(d.Instances, model.InstanceKey{Cluster: "c1", IP: netip.AddrFrom4([4]byte{10, 0, byte(n >> 8), byte(n)})})
		}
		h.Publish(&PushContext{Version: v}, d)
	}
	for _, steps := range []uint64{1, 2, 100, 1024} {
		b.Run(fmt.Sprint(steps), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, ok := h.Between(2000-steps, 2000); !ok {
					b.Fatal("overflow")
				}
			}
		})
	}
}

func BenchmarkCurrentHost(b *testing.B) {
	_, pc := benchMesh(b)
	s := benchSpec(4711, 1)
	r := &Reader{Cluster: "c1", Namespace: "ns1"}
	for b.Loop() {
		if v, _ := pc.View(ViewKey{Kind: ViewShape, Host: s.key.Host}, r); v == nil {
			b.Fatal("no view")
		}
	}
}

// Reports the heap of the whole snapshot, endpoints included, and that of what the Builder derives.
func BenchmarkHeap(b *testing.B) {
	for b.Loop() {
		start := heap()
		c := Commit{Mesh: testMesh(), Time: time.Now()}
		for i := range benchServices {
			s := benchSpec(i, i>>12)
			c.Services = append(c.Services, Change{s.key, s.fresh(c.Mesh)})
		}
		views := heap()
		builder := NewBuilder()
		pc, _ := builder.Commit(c)
		all := heap()
		b.ReportMetric(float64(all-start)/1e6, "MB/snapshot")
		b.ReportMetric(float64(all-views)/1e6, "MB/derived")
		runtime.KeepAlive(pc)
		runtime.KeepAlive(builder)
		runtime.KeepAlive(c)
	}
}

func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// BenchmarkScopeOf is what a stream does when the scopes of its namespace changed: 20 Sidecars select workloads there, of
// 1 000 namespaces with one each.
func BenchmarkScopeOf(b *testing.B) {
	spaces := map[string]*ScopeSpace{"root": {Sidecar: sidecarRule("./*", "root/*")}}
	for i := range 1000 {
		spaces[fmt.Sprint("ns", i)] = &ScopeSpace{Sidecar: sidecarRule("./*")}
	}
	for i := range 20 {
		r := NewSidecarRule(model.Source{}, sidecarSpec("./*"))
		r.Selector = model.Labels{"app": fmt.Sprint("a", i)}
		spaces["ns0"].Sidecars = append(spaces["ns0"].Sidecars, r)
	}
	var routes []*VirtualService
	for i := range 500 {
		routes = append(routes, &VirtualService{Namespace: fmt.Sprint("ns", i), Hosts: []string{"h"}, Destinations: []Destination{{Host: fmt.Sprint("d", i)}}, Export: Export{Public: true}})
	}
	s := NewScopes(nil, "root", spaces, routes)
	key := ScopeKey{Namespace: "ns0", Labels: model.Labels{"app": "other", "version": "v1"}}
	held := s.Of(key)
	b.ReportAllocs()
	for b.Loop() {
		if s.Of(key) != held {
			b.Fatal("another scope")
		}
	}
}
