package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"

	"github.com/isthmus-mesh/isthmus/aggregate"
	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/pushcontext"
	"github.com/isthmus-mesh/isthmus/test/bench/world"
	"github.com/isthmus-mesh/isthmus/xds"
	"github.com/isthmus-mesh/isthmus/xds/gen"
)

// hubServer is the process that is measured: controller and xDS server as `serve` builds them, with
// registries that report a synthetic mesh.
type hubServer struct {
	profiler
	mesh    *mesh
	xds     *xds.Server
	metrics *prometheus.Registry

	mu        sync.Mutex
	stopChurn context.CancelFunc // guarded by mu
	churned   chan int           // guarded by mu; how many changes were made
}

// Load builds the hub and waits until it would serve.
func (h *hubServer) Load(s Setup, out *Loaded) error {
	begin := time.Now()
	h.metrics = prometheus.NewRegistry()
	hub, err := h.build(s.Spec)
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	go func() { _ = hub.Serve(l) }() // ends with the process
	*out = Loaded{Addr: l.Addr().String(), Took: time.Since(begin)}
	return nil
}

// Change puts one endpoint row, or several after one another.
func (h *hubServer) Change(c Change, at *int64) error {
	services := h.mesh.spec.Services
	for k := 1; k < c.Count; k++ {
		if err := h.mesh.change((c.Service+k)%services, scratch(k)); err != nil {
			return err
		}
		time.Sleep(c.Every)
	}
	marker, err := netip.ParseAddr(c.Marker)
	if err != nil {
		return err
	}
	*at = time.Now().UnixNano()
	return h.mesh.change(c.Service, marker)
}

// Create puts the rows of a new service.
func (h *hubServer) Create(c Create, at *int64) error {
	*at = time.Now().UnixNano()
	return h.mesh.create(c.Service)
}

// Churn changes endpoints of random services so many times per second, until it is called with 0;
// then it gives the number of changes made.
func (h *hubServer) Churn(perSecond int, out *int) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if perSecond > 0 {
		ctx, cancel := context.WithCancel(context.Background())
		h.stopChurn, h.churned = cancel, make(chan int, 1)
		go h.churn(ctx, time.Second/time.Duration(perSecond), h.churned)
		return nil
	}
	if h.stopChurn == nil {
		return errors.New("there is no churn")
	}
	h.stopChurn()
	*out = <-h.churned
	h.stopChurn = nil
	return nil
}

func (h *hubServer) churn(ctx context.Context, every time.Duration, made chan<- int) {
	t := time.NewTicker(every)
	defer t.Stop()
	n := 0
	for {
		select {
		case <-ctx.Done():
			made <- n
			return
		case <-t.C:
			n++
			if h.mesh.change(other(h.mesh.spec.Services), scratch(n)) != nil {
				n--
			}
		}
	}
}

// scratch gives an address that no marker has.
func scratch(n int) netip.Addr { return netip.AddrFrom4([4]byte{10, 249, byte(n >> 8), byte(n)}) }

// Usage reads what the process has used.
func (h *hubServer) Usage(collect bool, out *Usage) (err error) {
	if *out, err = usage(collect); err != nil {
		return err
	}
	if h.xds != nil {
		out.Builds = map[string]uint64{}
		for t, c := range h.xds.Counters().Types {
			out.Builds[t] = c.Built
		}
	}
	return h.gather(out)
}

func (h *hubServer) gather(out *Usage) error {
	families, err := h.metrics.Gather()
	if err != nil {
		return fmt.Errorf("metrics: %w", err)
	}
	for _, f := range families {
		switch f.GetName() {
		case "isthmus_commit_seconds":
			hist := f.GetMetric()[0].GetHistogram()
			out.Commits, out.CommitSeconds = float64(hist.GetSampleCount()), hist.GetSampleSum()
		case "isthmus_xds_memo_bytes":
			out.Kept = f.GetMetric()[0].GetGauge().GetValue()
		}
	}
	return nil
}

// mesh is a controller with the registries of a synthetic mesh.
type mesh struct {
	spec       world.Spec
	controller *aggregate.Controller
	members    []*member
}

func newMesh(s world.Spec, o aggregate.Options) *mesh {
	m := &mesh{spec: s, controller: aggregate.New(o)}
	for i, state := range s.States() {
		m.members = append(m.members, &member{key: s.Shard(i), state: state, ready: make(chan model.Sink, 1)})
	}
	return m
}

// run starts the controller and waits until every registry has delivered.
func (m *mesh) run(ctx context.Context) error {
	m.controller.Attach(&member{key: m.spec.MeshShard(), state: m.spec.Mesh(), ready: make(chan model.Sink, 1)})
	for _, x := range m.members {
		m.controller.Attach(x)
	}
	go func() { _ = m.controller.Run(ctx) }() // ends with the process
	for _, x := range m.members {
		x.sink = <-x.ready
	}
	select {
	case <-m.controller.ReadyCh():
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// change gives the service's first endpoint in a member of the main network another address.
func (m *mesh) change(service int, first netip.Addr) error {
	home, ok := m.spec.Home(service)
	if !ok {
		return fmt.Errorf("service %d is in no member of the main network", service)
	}
	m.members[home].sink.Put(m.spec.Endpoints(service, home, first))
	return nil
}

func (m *mesh) create(service int) error {
	home, ok := m.spec.Home(service)
	if !ok {
		return fmt.Errorf("service %d has no member of the main network", service)
	}
	for _, ev := range m.spec.Create(service, home) {
		m.members[home].sink.Put(ev)
	}
	return nil
}

// member is a registry that delivers a state and then whatever is put into its sink.
type member struct {
	key   model.ShardKey
	state *model.ShardState
	ready chan model.Sink // cap 1
	sink  model.Sink      // set once ready
}

// Key implements model.Registry.
func (m *member) Key() model.ShardKey { return m.key }

// Run implements model.Registry.
func (m *member) Run(ctx context.Context, out model.Sink) error {
	out.Replace(m.state)
	out.Status(model.Status{State: model.StateLive})
	m.state = nil
	m.ready <- out
	<-ctx.Done()
	return ctx.Err()
}

// build makes the hub's parts and their server, in the way of the command line's serve.
func (h *hubServer) build(s world.Spec) (*grpc.Server, error) {
	var controller *aggregate.Controller
	h.xds = xds.NewServer(xds.Options{
		Generators: gen.All(), Registerer: h.metrics,
		Ready:      func() bool { return controller.Ready() },
		OnPushCost: func(d time.Duration) { controller.PushCost(d) },
	})
	hub := pushcontext.NewHub(h.xds.Notify)
	h.xds.UseHub(hub)
	h.mesh = newMesh(s, aggregate.Options{Hub: hub, Registerer: h.metrics, ConfigCluster: s.Member(0)})
	controller = h.mesh.controller
	if err := h.mesh.run(context.Background()); err != nil {
		return nil, err
	}
	server := grpc.NewServer(h.xds.GRPCServerOptions()...)
	h.xds.Register(server)
	return server, nil
}
