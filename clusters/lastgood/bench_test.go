package lastgood_test

import (
	"context"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/clusters/lastgood"
	"github.com/isthmus-mesh/isthmus/clusters/memory"
)

// large is a cluster of 100 000 endpoints in 10 000 services, each with its pod.
func large() *model.ShardState {
	b := model.NewShardBuilder()
	for s := range 10_000 {
		name := fmt.Sprint("service-", s)
		src := model.Source{Shard: east, Object: model.ObjectKey{Kind: "EndpointSlice", Namespace: "ns", Name: name}, Revision: "123456", Time: time.Unix(1e9, 0)}
		b.Add(name, &model.Service{Host: name + ".ns.svc.cluster.local", Namespace: "ns", Name: name, Ports: []model.Port{{Name: "http", Number: 80}}, Source: src})
		e := &model.Endpoints{Host: name + ".ns.svc.cluster.local", Namespace: "ns", Source: src}
		for p := range 10 {
			labels := model.Labels{"app": name, "version": "v1", "pod-template-hash": "5d4f8c7b9", "topology.kubernetes.io/zone": "zone-a"}
			ip := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, byte(s >> 8), byte(s), byte(p)}), 8080)
			e.Endpoints = append(e.Endpoints, model.Endpoint{
				Addr: model.Addr{Cluster: "east", AddrPort: ip}, PortName: "http", Health: model.Healthy, Labels: labels, Locality: model.Locality{Region: "region", Zone: "zone-a"},
				Network: "network-1", TLSMode: model.TLSIstio, ServiceAccount: "spiffe://cluster.local/ns/ns/sa/" + name, Node: "node-1", Source: &e.Source,
			})
			pod := fmt.Sprintf("%s-%d", name, p)
			b.Add(pod, &model.Workload{Kind: model.KindPod, Namespace: "ns", Name: pod, Labels: labels, Address: model.Addr{Cluster: "east", AddrPort: ip},
				ServiceAccount: "default", Source: model.Source{Shard: east, Object: model.ObjectKey{Kind: "Pod", Namespace: "ns", Name: pod}}})
		}
		b.Add(name, e)
	}
	return b.Build()
}

// silent is a sink that drops everything, and tells of full truths.
type silent struct{ replaced chan struct{} }

func (s silent) Replace(*model.ShardState) { s.replaced <- struct{}{} }
func (silent) Put(...model.Event)          {}
func (silent) Status(model.Status)         {}

// keepLarge runs a registry with 100 000 endpoints until they are kept.
func keepLarge(b *testing.B, dir string) {
	b.Helper()
	store, err := lastgood.Open(lastgood.Options{Dir: dir})
	if err != nil {
		b.Fatal(err)
	}
	reg := memory.New(east)
	reg.Replace(large())
	ctx, cancel := context.WithCancel(b.Context())
	out, done := silent{make(chan struct{}, 1)}, make(chan error, 1)
	go func() { done <- store.Wrap(reg, lastgood.Terms{Restore: true}).Run(ctx, out) }()
	<-out.replaced
	b.StartTimer()
	cancel() // which makes it write
	<-done
	b.StopTimer()
}

// BenchmarkWrite100k is one write of 100 000 endpoints, in the background.
func BenchmarkWrite100k(b *testing.B) {
	b.StopTimer()
	for range b.N {
		keepLarge(b, b.TempDir())
	}
}

// BenchmarkRestore100k is what a hub pays that starts while the API server is down.
func BenchmarkRestore100k(b *testing.B) {
	b.StopTimer()
	dir := b.TempDir()
	keepLarge(b, dir)
	b.ResetTimer()
	for range b.N {
		store, err := lastgood.Open(lastgood.Options{Dir: dir})
		if err != nil {
			b.Fatal(err)
		}
		reg := memory.New(east)
		ctx, cancel := context.WithCancel(b.Context())
		out, done := silent{make(chan struct{}, 1)}, make(chan error, 1)
		go func() { done <- store.Wrap(refusing{reg}, lastgood.Terms{Restore: true}).Run(ctx, out) }()
		b.StartTimer()
		<-out.replaced
		b.StopTimer()
		cancel()
		<-done
	}
}

// refusing is a registry that has no hope.
type refusing struct{ model.Registry }

// Run implements model.Registry.
func (r refusing) Run(ctx context.Context, out model.Sink) error {
	out.Status(model.Status{State: model.StateTimeout, Err: "no hope"})
	<-ctx.Done()
	return ctx.Err()
}

// BenchmarkPut100k is what a change costs a registry of 100 000 endpoints, while others are written.
func BenchmarkPut100k(b *testing.B) {
	store, err := lastgood.Open(lastgood.Options{Dir: b.TempDir(), Every: time.Millisecond})
	if err != nil {
		b.Fatal(err)
	}
	reg := memory.New(east)
	reg.Replace(large())
	ctx, cancel := context.WithCancel(b.Context())
	out, done := silent{make(chan struct{}, 1)}, make(chan error, 1)
	go func() { done <- store.Wrap(reg, lastgood.Terms{Restore: true}).Run(ctx, out) }()
	<-out.replaced
	row := service("a").Service
	for b.Loop() {
		reg.Put("a", row)
	}
	cancel()
	<-done
}
