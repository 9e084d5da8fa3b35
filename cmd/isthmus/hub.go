package main

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"google.golang.org/grpc"
	"k8s.io/client-go/rest"

	"github.com/isthmus-mesh/isthmus/aggregate"
	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/clusters"
	"github.com/isthmus-mesh/isthmus/clusters/dns"
	"github.com/isthmus-mesh/isthmus/clusters/registries"
	"github.com/isthmus-mesh/isthmus/cmd/isthmus/debug"
	"github.com/isthmus-mesh/isthmus/cmd/isthmus/health"
	"github.com/isthmus-mesh/isthmus/mcp/client"
	"github.com/isthmus-mesh/isthmus/pushcontext"
	"github.com/isthmus-mesh/isthmus/xds"
	"github.com/isthmus-mesh/isthmus/xds/gen"
)

// hub is the graph: sources attach registries to the controller, the controller publishes
// snapshots, the xDS server and the debug endpoints read them.
type hub struct {
	// Read-only after newHub.
	opts       *serveOptions
	log        *slog.Logger
	metrics    *prometheus.Registry
	snapshots  *pushcontext.Hub
	controller *aggregate.Controller
	xds        *xds.Server
	sources    []source
	names      *dns.Registry // of gateways
	findings   *debug.Findings
	registered *registration // nil without --auto-registration
	status     *statusWriter // nil without --write-status
	held       *heldBack

	stopping atomic.Bool
}

func newHub(o *serveOptions, log *slog.Logger) *hub {
	h := &hub{opts: o, log: log, metrics: prometheus.NewRegistry()}
	h.held = newHeldBack(h.metrics)
	var workloads xds.Workloads
	replica := replicaName()
	if o.autoRegistration {
		h.registered = newRegistration(o, func() *pushcontext.PushContext { return h.snapshots.Current() }, h.inForce, replica, log)
		workloads = h.registered
	}
	h.xds = xds.NewServer(xds.Options{
		Generators: gen.All(), Log: log, Registerer: h.metrics, MaxAge: o.maxConnectionAge,
		MaxRequest: o.maxRequestBytes, MemoBytes: max(o.encodedCacheBytes, 1), // 0 would be the default
		Ready: func() bool { return h.ready() == nil }, KnownClusters: h.clusters, ClusterAliases: o.clusterAliases(),
		InlineHosts: !o.vhds, Workloads: workloads,
		OnPushCost: func(d time.Duration) { h.controller.PushCost(d) },
	})
	servers, _ := o.resolvers() // checked before
	h.names = dns.New(dns.Options{Cluster: model.ClusterID(o.clusterID), Resolver: dns.NewClient(dns.Files{}, servers...), Log: log})
	h.snapshots = pushcontext.NewHub(h.publish)
	h.xds.UseHub(h.snapshots)
	h.controller = aggregate.New(aggregate.Options{
		Hub: h.snapshots, Log: log, Registerer: h.metrics, ConfigCluster: model.ClusterID(o.clusterID), Expected: o.expected(), DomainSuffix: o.domain, TrustDomain: o.trustDomain, OnHosts: h.names.Want,
		SyncTimeout: orNever(o.syncTimeout), StaleAfter: orNever(o.staleAfter),
		EndpointQuiet: orAtOnce(o.endpointQuiet), EndpointMax: orAtOnce(o.endpointMax),
		ShapeQuiet: orAtOnce(o.configQuiet), ShapeMax: orAtOnce(o.configMax),
	})
	h.findings = &debug.Findings{Snapshot: h.snapshots.Current, Now: time.Now, More: o.declarationFindings}
	if o.writeStatus {
		h.status = newStatusWriter(o, h.findings, func(pc *pushcontext.PushContext) []debug.Registry {
			return debug.Registries(h.controller.Shards(), pc, h.declared(), h.held.of)
		}, h.inForce, replica, log)
	}
	h.metrics.MustRegister(
		h.findings,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		&debug.Collector{Shards: h.controller.Shards, ConfigCluster: model.ClusterID(o.clusterID), Members: h.members, Version: version, Started: time.Now(), Now: time.Now},
		&health.Collector{Snapshot: h.snapshots.Current, Shards: h.controller.Shards, Sidecars: h.sidecars, Classes: h.classes},
	)
	var life model.Lifecycle = h.controller
	if o.watch != nil {
		life = o.watch(life)
	}
	deps := sourceDeps{opts: o, life: &settings{Lifecycle: life}, log: log, registerer: h.metrics, upstreams: client.NewMetrics(h.metrics), held: h.held, ready: h.controller.ReadyCh(), primary: h.usePrimary}
	kinds := sources()
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		if s := kinds[kind](deps); s != nil {
			h.sources = append(h.sources, s)
		}
	}
	return h
}

// publish is told of each snapshot.
func (h *hub) publish(pc *pushcontext.PushContext, d *pushcontext.Delta) {
	h.xds.Notify(pc, d)
	if h.registered != nil {
		h.registered.published(pc)
	}
	if h.status != nil {
		h.status.published()
	}
}

// usePrimary is told of each credential of the config cluster, which may be no good.
func (h *hub) usePrimary(cfg *rest.Config) {
	if r := h.registries(); r != nil {
		r.usePrimary(cfg)
	}
}

// inForce are the credentials that clusters are read with.
func (h *hub) inForce() map[model.ClusterID]*rest.Config {
	for _, s := range h.sources {
		if k, ok := s.(*kubeSource); ok && k.manager != nil {
			return k.manager.InForce()
		}
	}
	return nil
}

// orNever makes 0 a time that does not come.
func orNever(d time.Duration) time.Duration {
	if d == 0 {
		return 100 * 365 * 24 * time.Hour
	}
	return d
}

// orAtOnce makes 0 no time at all, where the controller would take its default.
func orAtOnce(d time.Duration) time.Duration { return max(d, 1) }

func (o *serveOptions) clusterAliases() map[model.ClusterID]model.ClusterID {
	out := map[model.ClusterID]model.ClusterID{}
	for alias, cluster := range o.aliases {
		out[model.ClusterID(alias)] = model.ClusterID(cluster)
	}
	return out
}

// clusters are those that are attached, sorted: a proxy of any other would be in none. Foreign registries are none, but for an
// MCP server that stands for the config cluster.
func (h *hub) clusters() (out []model.ClusterID) {
	for _, s := range h.controller.Shards() {
		if k := s.Key; !k.Provider.OfHub() && (!k.Provider.Foreign() || string(k.Cluster) == h.opts.clusterID) {
			out = append(out, k.Cluster)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// sidecars are where the connected ones are.
func (h *hub) sidecars() []pushcontext.Reader {
	var out []pushcontext.Reader
	for _, c := range h.xds.Connections() {
		if c.Class.Type == gen.Sidecar {
			out = append(out, c.Reader())
		}
	}
	return out
}

// classes are those of connected proxies.
func (h *hub) classes() []gen.Class {
	var out []gen.Class
	for _, c := range h.xds.Connections() {
		out = append(out, c.Class)
	}
	return out
}

func (h *hub) ready() error {
	switch {
	case h.stopping.Load():
		return errors.New("not ready: shutting down")
	case !h.controller.Ready():
		return errWaiting(h.controller.Shards(), h.opts.expected())
	}
	return nil
}

// serve runs a hub until ctx ends.
func serve(ctx context.Context, o *serveOptions, log *slog.Logger) error {
	ls, err := listen(ctx, o)
	if err != nil {
		return err
	}
	defer ls.close()
	h := newHub(o, log)
	h.controller.Attach(h.names)
	if h.registered != nil && h.registered.rows != nil {
		h.controller.Attach(h.registered.rows)
	}
	for _, s := range h.sources {
		if err := s.Scan(); err != nil {
			return err
		}
	}
	return h.run(ctx, ls)
}

// registries is the source of registries that are declared, nil if there is none.
func (h *hub) registries() *registrySource {
	for _, s := range h.sources {
		if r, ok := s.(*registrySource); ok {
			return r
		}
	}
	return nil
}

// declared are the registries that are.
func (h *hub) declared() []registries.Info {
	if r := h.registries(); r != nil {
		return r.manager.List()
	}
	return nil
}

// members are the credentials of all sources.
func (h *hub) members() (out []clusters.Member) {
	for _, s := range h.sources {
		out = append(out, s.Members()...)
	}
	return out
}

// run starts everything, waits for the end of ctx or of any part, and ends in the order that costs
// proxies least: not ready, streams told to go elsewhere, then the rest.
func (h *hub) run(ctx context.Context, ls listeners) error {
	work, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	ended := make(chan struct{}) // closed when a part ends by itself
	g := &parts{log: h.log, ended: ended}
	rpc := grpc.NewServer(h.xds.GRPCServerOptions()...)
	h.xds.Register(rpc)
	h.start(work, g, ls, rpc)
	at := ls.addresses()
	h.log.Info("hub started", "build", version, "cluster", h.opts.clusterID, "dir", h.opts.dir, "grpc", at.grpc, "http", at.http, "monitoring", at.monitoring)
	if h.opts.opened != nil {
		h.opts.opened(at)
	}
	select {
	case <-ctx.Done():
	case <-ended:
	}
	h.stop(work, rpc)
	cancel()
	g.wait()
	h.log.Info("hub stopped")
	return g.err
}

func (h *hub) start(ctx context.Context, g *parts, ls listeners, rpc *grpc.Server) {
	g.run(ctx, h.controller.Run)
	for _, s := range h.sources {
		g.run(ctx, s.Run)
	}
	if h.registered != nil {
		g.run(ctx, h.registered.keeper.Run)
	}
	if h.status != nil {
		g.run(ctx, h.status.Run)
	}
	g.run(ctx, func(ctx context.Context) error {
		logWaiting(ctx, h.controller.ReadyCh(), h.controller.Shards, h.log)
		<-ctx.Done()
		return nil
	})
	if ls.grpc != nil {
		g.run(ctx, func(context.Context) error { return rpc.Serve(ls.grpc) })
	}
	if ls.http != nil {
		g.run(ctx, func(ctx context.Context) error {
			return serveHTTP(ctx, ls.http, h.debug(), h.opts.shutdownGrace, h.log)
		})
	}
	if ls.monitoring != nil {
		g.run(ctx, func(ctx context.Context) error {
			return serveHTTP(ctx, ls.monitoring, h.monitoring(), h.opts.shutdownGrace, h.log)
		})
	}
}

// stop refuses new streams and ends those that there are.
func (h *hub) stop(ctx context.Context, rpc *grpc.Server) {
	h.stopping.Store(true)
	h.log.Info("shutting down", "proxies", len(h.xds.Connections()), "grace", h.opts.shutdownGrace)
	ctx, cancel := context.WithTimeout(ctx, h.opts.shutdownGrace)
	defer cancel()
	if err := h.xds.Shutdown(ctx); err != nil {
		h.log.Warn("streams have not ended in time; they are cut", "err", err)
	}
	stop := context.AfterFunc(ctx, rpc.Stop)
	defer stop()
	rpc.GracefulStop()
}

func (h *hub) debug() http.Handler {
	return debug.New(debug.Options{
		Snapshot: h.snapshots.Current, Between: h.snapshots.Between, Shards: h.controller.Shards, Ready: h.ready,
		Proxies: debug.XDS{Server: h.xds}, ConfigCluster: model.ClusterID(h.opts.clusterID), Members: h.members, Findings: h.findings,
		Declared: h.declared, HeldBack: h.held.of,
	})
}

func (h *hub) monitoring() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(h.metrics, promhttp.HandlerOpts{ErrorLog: slog.NewLogLogger(h.log.Handler(), slog.LevelError)}))
	mux.HandleFunc("GET /version", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(build()) // an error means that the caller has gone
	})
	return mux
}

// parts are the goroutines of a hub.
type parts struct {
	log     *slog.Logger
	running sync.WaitGroup
	once    sync.Once
	ended   chan struct{}
	err     error // of the part that ended first; read after wait
}

// run starts a part. One that ends before ctx does ends them all.
func (p *parts) run(ctx context.Context, part func(context.Context) error) {
	p.running.Go(func() {
		err := part(ctx)
		if ctx.Err() != nil {
			if err != nil && !errors.Is(err, context.Canceled) {
				p.log.Warn("a part of the hub did not end well", "err", err)
			}
			return
		}
		p.once.Do(func() {
			p.err = err
			close(p.ended)
		})
	})
}

func (p *parts) wait() { p.running.Wait() }
