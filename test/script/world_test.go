package script

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/isthmus-mesh/isthmus/aggregate"
	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/clusters/dns"
	"github.com/isthmus-mesh/isthmus/cmd/isthmus/debug"
	"github.com/isthmus-mesh/isthmus/pushcontext"
	"github.com/isthmus-mesh/isthmus/xds"
	"github.com/isthmus-mesh/isthmus/xds/gen"
)

// world is a hub and everything around it. It is owned by the script's goroutine.
type world struct {
	ctx        context.Context
	log        *journal
	metrics    *prometheus.Registry
	hub        *pushcontext.Hub
	controller *aggregate.Controller
	server     *xds.Server
	resolver   *resolver
	running    sync.WaitGroup
	started    bool

	instances map[model.ShardKey][]*registry // oldest first
	mesh      map[string]*model.Config
	mcs       bool // members attached from now on have the Multi-Cluster Services API on
	proxies   map[string]*proxy
	counted   map[string]float64 // at the last "count"
}

// configCluster is the member whose definitions come first.
const configCluster = "c1"

func newWorld(ctx context.Context) *world {
	w := &world{
		ctx: ctx, log: &journal{}, metrics: prometheus.NewRegistry(), instances: map[model.ShardKey][]*registry{},
		mesh: map[string]*model.Config{}, proxies: map[string]*proxy{}, counted: map[string]float64{},
		resolver: &resolver{},
	}
	log := slog.New(slog.NewTextHandler(w.log, nil))
	w.server = xds.NewServer(xds.Options{
		Generators: gen.All(), Log: log, Registerer: w.metrics, Ready: func() bool { return w.controller.Ready() },
	})
	w.hub = pushcontext.NewHub(func(pc *pushcontext.PushContext, d *pushcontext.Delta) {
		w.log.published(d)
		w.server.Notify(pc, d)
	})
	w.server.UseHub(w.hub)
	w.metrics.MustRegister(&debug.Collector{Shards: w.shards, ConfigCluster: configCluster, Version: "script", Started: time.Now(), Now: time.Now})
	names := dns.New(dns.Options{Cluster: configCluster, Resolver: w.resolver, Log: log})
	w.controller = aggregate.New(aggregate.Options{Hub: w.hub, Log: log, Registerer: w.metrics, ConfigCluster: configCluster, OnHosts: names.Want})
	w.controller.Attach(names)
	return w
}

func (w *world) shards() []pushcontext.ShardInfo {
	if pc := w.hub.Current(); pc != nil {
		return pc.Shards
	}
	return nil
}

// start lets the hub run; what was attached before is what start-up waits for.
func (w *world) start() {
	if w.started {
		return
	}
	w.started = true
	w.running.Go(func() {
		if err := w.controller.Run(w.ctx); err != nil {
			w.log.note("controller: " + err.Error())
		}
	})
	w.settle()
}

// settle waits until everybody waits for somebody or for time.
func (w *world) settle() { synctest.Wait() }

// advance lets time pass.
func (w *world) advance(d time.Duration) {
	w.start()
	w.settle()
	time.Sleep(d)
	w.settle()
}

// watchers are two proxies that every scenario has, one of each protocol.
func (w *world) watchers() error {
	if w.proxies["watcher-sotw.default"] != nil || !w.controller.Ready() {
		return nil
	}
	return errors.Join(
		w.connect("watcher-sotw.default", "sotw", []string{"ip=10.250.0.250"}),
		w.connect("watcher-delta.default", "delta", []string{"ip=10.250.0.251"}))
}

// quiet lets everything come to rest and then checks invariant I6: each proxy holds what is generated
// for it from the snapshot, and was sent nothing that the protocol forbids.
func (w *world) quiet() error {
	w.start()
	faults := []error{w.watchers()}
	w.advance(3 * time.Second)
	for _, p := range w.proxies {
		faults = append(faults, p.check(w.hub.Current()))
	}
	return errors.Join(faults...)
}

// end stops everything.
func (w *world) end(cancel context.CancelFunc) {
	for _, p := range w.proxies {
		p.disconnect()
	}
	cancel()
	if err := w.server.Shutdown(context.Background()); err != nil {
		w.log.note("server: " + err.Error())
	}
	w.running.Wait()
}

// journal keeps what the hub logs and publishes.
type journal struct {
	mu     sync.Mutex
	buf    bytes.Buffer
	deltas []*pushcontext.Delta
}

func (j *journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.buf.Write(p)
}

func (j *journal) note(line string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.buf.WriteString(line + "\n")
}

func (j *journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.buf.String()
}

func (j *journal) published(d *pushcontext.Delta) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.deltas = append(j.deltas, d)
}

// take gives the deltas published since the last call.
func (j *journal) take() []*pushcontext.Delta {
	j.mu.Lock()
	defer j.mu.Unlock()
	out := j.deltas
	j.deltas = nil
	return out
}
