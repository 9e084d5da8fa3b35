package aggregate

import (
	"fmt"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/pushcontext"
)

// A mesh of 50 members, 10k services and 100k endpoints.
const (
	benchClusters = 50
	benchServices = 10_000
	benchPerSlice = 10
)

func benchKey(c int) model.ShardKey {
	return model.ShardKey{Provider: model.ProviderKubernetes, Cluster: model.ClusterID(fmt.Sprintf("c%02d", c))}
}

func benchService(c, i int) *model.Service {
	name := fmt.Sprintf("svc-%d", i)
	return &model.Service{
		Host: name + ".ns.svc.cluster.local", Namespace: "ns", Name: name,
		Ports:    []model.Port{{Name: "http", Number: uint16(80 + i%20), Protocol: model.ProtocolHTTP, TargetPort: 8080}},
		Selector: model.Selector{Labels: model.Labels{"app": name}},
		Source:   model.Source{Shard: benchKey(c), Object: model.ObjectKey{Kind: "Service", Namespace: "ns", Name: name}},
	}
}

func benchSlice(c, i, generation int) *model.Endpoints {
	svc := benchService(c, i)
	e := &model.Endpoints{Host: svc.Host, Namespace: "ns", Source: svc.Source}
	e.Source.Object.Kind = "EndpointSlice"
	e.Source.Time = time.Unix(int64(generation), 0)
	for n := range benchPerSlice {
		ip := netip.AddrFrom4([4]byte{10, byte(i >> 8), byte(i), byte(n)})
		if n == 0 {
			ip = netip.AddrFrom4([4]byte{byte(11 + generation%200), byte(i >> 8), byte(i), 1})
		}
		e.Endpoints = append(e.Endpoints, model.Endpoint{
			Addr: model.Addr{Cluster: benchKey(c).Cluster, AddrPort: netip.AddrPortFrom(ip, 8080)}, PortName: "http", Health: model.Healthy,
			Labels: model.Labels{"app": svc.Name, "version": "v1"}, Locality: model.Locality{Region: "r", Zone: fmt.Sprintf("z%d", n%3)},
			ServiceAccount: "spiffe://cluster.local/ns/ns/sa/default", Source: &e.Source,
		})
	}
	return e
}

func benchController() *Controller {
	c := New(Options{Hub: pushcontext.NewHub(nil)})
	for i := range benchServices {
		sh := c.state.shard(benchKey(i % benchClusters))
		s, e := benchService(i%benchClusters, i), benchSlice(i%benchClusters, i, 0)
		c.state.put(sh, model.RowKey{Kind: model.RowService, Key: s.Source.Object.String()}, s)
		c.state.put(sh, model.RowKey{Kind: model.RowEndpoints, Key: e.Source.Object.String()}, e)
	}
	c.commit(time.Now())
	return c
}

// BenchmarkApply is one event from the sink to writer-owned rows: 1s / (ns/op) events per second.
func BenchmarkApply(b *testing.B) {
	c := benchController()
	const distinct = 4096
	events := make([]model.Event, distinct)
	for i := range events {
		e := benchSlice(i%benchClusters, i, i+1)
		events[i] = model.Event{Row: model.RowKey{Kind: model.RowEndpoints, Key: e.Source.Object.String()}, Obj: e}
	}
	other := make([]model.Event, distinct)
	for i := range other {
		e := benchSlice(i%benchClusters, i, i+2)
		other[i] = model.Event{Row: events[i].Row, Obj: e}
	}
	sets := [][]model.Event{events, other}
	m := &attached{key: benchKey(0)}
	in := &instance{key: m.key, box: newMailbox(func() {})}
	m.active = in
	in.box.Replace(model.NewShardBuilder().Build())
	c.receive(m, in, in.box.take(1))
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		in.box.Put(sets[n/distinct%2][n%distinct])
		if n++; n%256 == 0 {
			c.receive(m, in, in.box.take(256))
			clear(c.state.dirty)
		}
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "events/s")
}

// cpuTime sums processor time, which unlike elapsed time does not depend on what else the machine does.
type cpuTime time.Duration

func (u *cpuTime) commit(c *Controller) {
	before := processorTime()
	c.commit(time.Now())
	*u += cpuTime(processorTime() - before)
}

func (u *cpuTime) report(b *testing.B) {
	b.ReportMetric(float64(*u)/float64(b.N), "cpu-ns/op")
}

func processorTime() time.Duration {
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		return 0
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

// BenchmarkCommit100 is a commit in which 100 services changed one endpoint each.
func BenchmarkCommit100(b *testing.B) {
	c := benchController()
	generation, used := 0, cpuTime(0)
	b.ReportAllocs()
	for b.Loop() {
		b.StopTimer()
		generation++
		for n := range 100 {
			i := (generation*100 + n*97) % benchServices
			e := benchSlice(i%benchClusters, i, generation)
			c.state.put(c.state.shard(benchKey(i%benchClusters)), model.RowKey{Kind: model.RowEndpoints, Key: e.Source.Object.String()}, e)
		}
		b.StartTimer()
		used.commit(c)
	}
	used.report(b)
}

// BenchmarkCommit1 is a commit in which one service changed one endpoint.
func BenchmarkCommit1(b *testing.B) {
	c := benchController()
	generation, used := 0, cpuTime(0)
	b.ReportAllocs()
	for b.Loop() {
		b.StopTimer()
		generation++
		i := generation % benchServices
		e := benchSlice(i%benchClusters, i, generation)
		c.state.put(c.state.shard(benchKey(i%benchClusters)), model.RowKey{Kind: model.RowEndpoints, Key: e.Source.Object.String()}, e)
		b.StartTimer()
		used.commit(c)
	}
	used.report(b)
}

// BenchmarkScrub is one pass of the idle check.
func BenchmarkScrub(b *testing.B) {
	c := benchController()
	c.open = true
	used, longest := cpuTime(0), time.Duration(0)
	for b.Loop() {
		before := processorTime()
		for begun := false; !begun || c.pass != nil; begun = true {
			step := time.Now()
			c.nextScrub = step
			c.scrub(step)
			longest = max(longest, time.Since(step))
		}
		used += cpuTime(processorTime() - before)
	}
	used.report(b)
	b.ReportMetric(float64(longest), "longest-step-ns")
}

// BenchmarkStart takes the whole mesh from full truths to the first snapshot.
func BenchmarkStart(b *testing.B) {
	states := make([]*model.ShardBuilder, benchClusters)
	for i := range states {
		states[i] = model.NewShardBuilder()
	}
	for i := range benchServices {
		s, e := benchService(i%benchClusters, i), benchSlice(i%benchClusters, i, 0)
		states[i%benchClusters].Add(s.Source.Object.String(), s).Add(e.Source.Object.String(), e)
	}
	full := make([]*model.ShardState, benchClusters)
	for i := range states {
		full[i] = states[i].Build()
	}
	used := cpuTime(0)
	b.ReportAllocs()
	for b.Loop() {
		c := New(Options{Hub: pushcontext.NewHub(nil)})
		for i, s := range full {
			c.state.replace(c.state.shard(benchKey(i)), s, c.valid(benchKey(i)))
		}
		used.commit(c)
	}
	used.report(b)
}

// BenchmarkMerge is one service with ten endpoints in five members, of which one endpoint changed.
func BenchmarkMerge(b *testing.B) {
	c := newTestController()
	const members = 5
	slice := func(m, generation int) *model.Endpoints {
		e := benchSlice(m, 1, generation)
		e.Endpoints = e.Endpoints[:2]
		return e
	}
	put := func(m int, e *model.Endpoints) {
		c.state.put(c.state.shard(benchKey(m)), model.RowKey{Kind: model.RowEndpoints, Key: e.Source.Object.String()}, e)
	}
	for m := range members {
		s := benchService(m, 1)
		c.state.put(c.state.shard(benchKey(m)), model.RowKey{Kind: model.RowService, Key: s.Source.Object.String()}, s)
		put(m, slice(m, 0))
	}
	c.commit(time.Now())
	put(2, slice(2, 1))
	key := hostKey{"ns", benchService(0, 1).Host}
	b.ReportAllocs()
	for b.Loop() {
		c.mergeHost(key)
	}
}

// BenchmarkPlaces is a commit in which 100k workloads came, one for each endpoint.
func BenchmarkPlaces(b *testing.B) {
	c := benchController()
	used := cpuTime(0)
	for b.Loop() {
		b.StopTimer()
		used.places(c)
		b.StartTimer()
		used.commit(c)
	}
	used.report(b)
}

// places moves every workload of the benchmark's mesh.
func (u *cpuTime) places(c *Controller) {
	zone := fmt.Sprint("z", *u)
	for i := range benchServices * benchPerSlice {
		svc := i / benchPerSlice
		k := benchKey(svc % benchClusters)
		w := &model.Workload{
			Kind: model.KindPod, Namespace: "ns", Name: fmt.Sprint("p", i), Locality: model.Locality{Region: "r", Zone: zone}, Source: model.Source{Shard: k},
			Address: model.Addr{Cluster: k.Cluster, AddrPort: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, byte(svc >> 8), byte(svc), byte(i % benchPerSlice)}), 0)},
		}
		c.state.put(c.state.shard(k), model.RowKey{Kind: model.RowWorkload, Key: "Pod/ns/" + w.Name}, w)
	}
}
