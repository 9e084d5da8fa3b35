package xds_test

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"testing"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"

	"github.com/isthmus-mesh/isthmus/xds"
	"github.com/isthmus-mesh/isthmus/xds/gen"
	"github.com/isthmus-mesh/isthmus/xds/wire"
	"github.com/isthmus-mesh/isthmus/xds/xdstest"
)

// sink is a peer that counts what it is sent and decodes nothing.
type sink struct {
	ctx    context.Context
	cancel context.CancelFunc
	in     chan []byte
	out    chan int // sizes of responses
	done   chan error
}

func newSink(s *xds.Server, p wire.Protocol) *sink {
	x := &sink{in: make(chan []byte, 64), out: make(chan int, 64), done: make(chan error, 1)}
	x.ctx, x.cancel = context.WithCancel(context.Background())
	go func() { x.done <- s.Serve(p, x) }()
	return x
}

func (x *sink) Context() context.Context { return x.ctx }

func (x *sink) SendMsg(m any) error {
	x.out <- m.(*wire.Response).Size()
	return nil
}

func (x *sink) RecvMsg(m any) error {
	select {
	case b := <-x.in:
		return m.(*wire.Request).Unmarshal(b)
	case <-x.ctx.Done():
		return io.EOF
	}
}

func (x *sink) close() {
	x.cancel()
	<-x.done
}

func encoded(m proto.Message) []byte {
	b, err := proto.Marshal(m)
	if err != nil {
		panic(err)
	}
	return b
}

func hosts(n int) (services []xdstest.Service, clusters []string) {
	for i := range n {
		h := fmt.Sprintf("service-%d.ns-%d.svc.cluster.local", i, i%50)
		services = append(services, xdstest.Service{Host: h, Namespace: "x", Ports: []uint16{uint16(8000 + i%20)}, Endpoints: ips(i)})
		clusters = append(clusters, fmt.Sprintf("outbound|%d||%s", 8000+i%20, h))
	}
	return services, clusters
}

func ips(i int) (out []string) {
	for k := range 3 {
		out = append(out, fmt.Sprintf("10.%d.%d.%d", 10+k, i/250, i%250))
	}
	return out
}

func ports() (out []string) {
	for p := range 20 {
		out = append(out, fmt.Sprint(8000+p))
	}
	return out
}

func benchServer(n int) (*xds.Server, *xdstest.Mesh, []xdstest.Service, []string) {
	s := xds.NewServer(xds.Options{Generators: xdstest.Generators(nil)})
	m := xdstest.NewMesh(s.Notify)
	s.UseHub(m.Hub)
	services, clusters := hosts(n)
	m.Set(services...)
	return s, m, services, clusters
}

// subscribe asks for all four types and waits for the four responses; nothing is ACKed but clusters.
func (x *sink) subscribe(p wire.Protocol, i int, clusters []string) (bytes int) {
	first := true
	for _, r := range []struct {
		url   string
		names []string
	}{{gen.ClusterURL, nil}, {gen.EndpointURL, clusters}, {gen.ListenerURL, nil}, {gen.RouteURL, ports()}} {
		n := node(i)
		if !first {
			n = nil
		}
		first = false
		if p == wire.SotW {
			x.in <- encoded(&discoveryv3.DiscoveryRequest{Node: n, TypeUrl: r.url, ResourceNames: r.names})
		} else {
			x.in <- encoded(&discoveryv3.DeltaDiscoveryRequest{Node: n, TypeUrl: r.url, ResourceNamesSubscribe: r.names})
		}
		bytes += <-x.out
		if r.url == gen.ClusterURL {
			x.ack(p, r.url, "1", nil)
		}
	}
	return bytes
}

func (x *sink) ack(p wire.Protocol, url, nonce string, names []string) {
	if p == wire.SotW {
		x.in <- encoded(&discoveryv3.DiscoveryRequest{TypeUrl: url, ResponseNonce: nonce, ResourceNames: names})
	} else {
		x.in <- encoded(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: url, ResponseNonce: nonce})
	}
}

// BenchmarkConnect is a proxy of a warm class that asks for everything.
func BenchmarkConnect(b *testing.B) {
	for _, n := range []int{1000, 10_000} {
		for _, p := range []wire.Protocol{wire.SotW, wire.Delta} {
			b.Run(fmt.Sprintf("%d/%s", n, p), func(b *testing.B) {
				s, _, _, clusters := benchServer(n)
				b.ReportAllocs()
				bytes := 0
				for b.Loop() {
					x := newSink(s, p)
					bytes = x.subscribe(p, 1, clusters)
					x.close()
				}
				b.ReportMetric(float64(bytes), "sent-B/op")
			})
		}
	}
}

// BenchmarkEndpointChange is one endpoint change that reaches one proxy with many names.
func BenchmarkEndpointChange(b *testing.B) {
	for _, n := range []int{1000, 10_000} {
		for _, p := range []wire.Protocol{wire.SotW, wire.Delta} {
			b.Run(fmt.Sprintf("%d/%s", n, p), func(b *testing.B) {
				s, m, services, clusters := benchServer(n)
				x := newSink(s, p)
				defer x.close()
				x.subscribe(p, 1, clusters)
				x.ack(p, gen.EndpointURL, "2", clusters)
				b.ReportAllocs()
				nonce := 4
				for i := 0; b.Loop(); i++ {
					v := services[i%n]
					v.Endpoints = []string{fmt.Sprintf("10.20.%d.%d", i/250%250, i%250)}
					m.Set(v)
					<-x.out
					nonce++
					x.ack(p, gen.EndpointURL, fmt.Sprint(nonce), clusters)
				}
			})
		}
	}
}

// BenchmarkServiceOfAPort is a new service on a port that a thousand others have a listener each on.
func BenchmarkServiceOfAPort(b *testing.B) {
	s := xds.NewServer(xds.Options{Generators: gen.All()})
	m := xdstest.NewMesh(s.Notify)
	s.UseHub(m.Hub)
	at := func(i int) xdstest.Service {
		return xdstest.Service{Host: fmt.Sprintf("db-%d.x", i), Namespace: "x", Ports: []uint16{3306}, TCP: true, Member: "c1",
			VIP: fmt.Sprintf("10.200.%d.%d", i/250, i%250)}
	}
	for i := range 1000 {
		m.Set(at(i))
	}
	x := newSink(s, wire.Delta)
	defer x.close()
	x.in <- encoded(&discoveryv3.DeltaDiscoveryRequest{Node: node(1), TypeUrl: gen.ListenerURL})
	<-x.out
	x.ack(wire.Delta, gen.ListenerURL, "1", nil)
	before := s.Counters().Types["lds"]
	b.ReportAllocs()
	n := 0
	for ; b.Loop(); n++ {
		if n%2 == 0 {
			m.Set(at(1000))
		} else {
			m.Delete(at(1000))
		}
		<-x.out
		x.ack(wire.Delta, gen.ListenerURL, fmt.Sprint(n+2), nil)
	}
	now := s.Counters().Types["lds"]
	b.ReportMetric(float64(now.Built-before.Built)/float64(n), "built/op")
	b.ReportMetric(float64(now.Sent-before.Sent)/float64(n), "sent/op")
}

// BenchmarkACK is an ACK that repeats a thousand names.
func BenchmarkACK(b *testing.B) {
	s, _, _, clusters := benchServer(1000)
	x := newSink(s, wire.SotW)
	defer x.close()
	x.subscribe(wire.SotW, 1, clusters)
	raw := encoded(&discoveryv3.DiscoveryRequest{TypeUrl: gen.EndpointURL, ResponseNonce: "2", ResourceNames: clusters})
	b.ReportAllocs()
	for b.Loop() {
		x.in <- raw
	}
}

// BenchmarkStreamMemory is the heap that one more connected proxy costs.
func BenchmarkStreamMemory(b *testing.B) {
	for _, n := range []int{1000, 10_000} {
		for _, p := range []wire.Protocol{wire.SotW, wire.Delta} {
			b.Run(fmt.Sprintf("%d/%s", n, p), func(b *testing.B) {
				s, _, _, clusters := benchServer(n)
				const streams = 50
				warm := newSink(s, p)
				defer warm.close()
				warm.subscribe(p, 0, clusters)
				for b.Loop() {
					before := heap()
					var all []*sink
					for i := range streams {
						x := newSink(s, p)
						x.subscribe(p, i, clusters)
						for j, u := range []string{gen.EndpointURL, gen.ListenerURL, gen.RouteURL} {
							names := clusters
							switch u {
							case gen.ListenerURL:
								names = nil
							case gen.RouteURL:
								names = ports()
							}
							x.ack(p, u, fmt.Sprint(j+2), names)
						}
						x.in <- encoded(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: "type.googleapis.com/istio.v1.HealthInformation"})
						all = append(all, x)
					}
					for _, x := range all {
						for len(x.in) > 0 {
							runtime.Gosched()
						}
					}
					b.ReportMetric(float64(heap()-before)/streams, "B/stream")
					for _, x := range all {
						x.close()
					}
				}
			})
		}
	}
}

func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
}
