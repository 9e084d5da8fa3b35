package xds

import (
	"context"
	"hash/maphash"
	"log/slog"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/pushcontext"
	"github.com/isthmus-mesh/isthmus/xds/gen"
	"github.com/isthmus-mesh/isthmus/xds/wire"
)

// Options configure a Server. Hub and Generators are needed; everything else has a default.
type Options struct {
	Hub        *pushcontext.Hub // may be set later, before the first stream, with UseHub
	Generators []gen.Generator  // of types in the table of order.go
	Log        *slog.Logger
	Registerer prometheus.Registerer

	// Ready is the serving gate: streams are refused until it reports true. Default: when the hub has
	// a snapshot.
	Ready func() bool
	// KnownClusters are those that proxies may be of. Default: any.
	KnownClusters func() []model.ClusterID
	// ClusterAliases maps names that nodes use to the clusters that are meant.
	ClusterAliases map[model.ClusterID]model.ClusterID
	// Workloads is told of proxies that ask to be registered; may be nil.
	Workloads Workloads
	// InlineHosts keeps virtual hosts in their route tables for proxies, too, that take them one by one.
	InlineHosts bool
	// OnPushCost is told the processor time that bringing one proxy up to a commit takes: working out and
	// encoding what is new to it, as measured, and sending it, as a flat rate; not waiting for its turn or
	// for the proxy to read.
	OnPushCost func(time.Duration)

	MaxNames   int // names of one type that one stream may subscribe; 250 000
	MaxRequest int // encoded size of one request in bytes; 4 MiB and 160 for each of MaxNames
	// MemoBytes of encoded resources are kept for reuse; 2 GiB. What is beyond is made anew for each
	// proxy: correct, and slower.
	MemoBytes   int64
	IntroWait   time.Duration // how long a stream may take until it has sent its node; 10 s
	GateWait    time.Duration // how long listeners and routes wait for clusters; 1 s
	SendTimeout time.Duration // after which a peer that does not read loses its stream; 20 s
	MaxAge      time.Duration // of a stream, jittered by a fifth; 0 is no limit
	StreamRate  float64       // new streams per second; 1000
	StreamBurst int           // new streams at once; 5000
	StreamWait  time.Duration // how long a new stream may queue; 1 s
	Workers     int           // concurrent generations; GOMAXPROCS

	Now func() time.Time
}

func (o Options) withDefaults() Options {
	def(&o.Log, slog.New(slog.DiscardHandler))
	def(&o.MaxNames, defaultNames)
	def(&o.MaxRequest, 4<<20+o.MaxNames*nameBytes)
	def(&o.MemoBytes, DefaultMemoBytes)
	def(&o.IntroWait, 10*time.Second)
	def(&o.GateWait, time.Second)
	def(&o.SendTimeout, 20*time.Second)
	def(&o.StreamRate, 1000)
	def(&o.StreamBurst, 5000)
	def(&o.StreamWait, time.Second)
	def(&o.Workers, runtime.GOMAXPROCS(0))
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Ready == nil {
		o.Ready = func() bool { return true }
	}
	return o
}

// Defaults of Options that programs show.
const (
	DefaultMaxRequest = 4<<20 + defaultNames*nameBytes
	DefaultMemoBytes  = 2 << 30

	defaultNames = 250_000
)

// nameBytes is what one name takes in the largest request that a proxy sends: one of a delta reconnect
// has it twice, once with its version.
const nameBytes = 160

func def[T comparable](p *T, v T) {
	var zero T
	if *p == zero {
		*p = v
	}
}

// Server serves the aggregated discovery service.
type Server struct {
	discoveryv3.UnimplementedAggregatedDiscoveryServiceServer

	// Read-only after NewServer.
	opt      Options
	log      *slog.Logger
	hub      *pushcontext.Hub // see UseHub
	rules    []rule           // by generator
	byURL    map[string]int
	unserved map[string]bool
	seed     maphash.Seed
	lists    *wire.NameLists
	factory  *factory
	classes  *classes
	tables   *nameTables
	interest *interest
	metrics  *metrics
	admitted *admission
	slots    chan struct{} // one token per running generation
	draining context.Context
	drain    context.CancelFunc
	kept     atomic.Int64
	wakes    atomic.Uint64

	mu       sync.RWMutex
	streams  []*stream            // guarded by mu; by slot
	free     []uint32             // guarded by mu
	failures []Failure            // guarded by mu; the last few
	faults   throttle             // guarded by mu; of logged panics
	turned   map[string]*throttle // guarded by mu; of logged refusals, by reason

	running sync.WaitGroup
}

// NewServer makes a server. Types of generators that have no row in the order table are not served.
func NewServer(o Options) *Server {
	s := &Server{
		opt: o.withDefaults(), hub: o.Hub, faults: throttle{every: panicLogEvery}, unserved: unserved(), byURL: map[string]int{}, seed: maphash.MakeSeed(), classes: newClasses(),
		turned: map[string]*throttle{},
	}
	s.log, s.lists = s.opt.Log, wire.NewNameLists(s.seed)
	s.order()
	n := len(s.rules)
	s.tables, s.interest = newNameTables(n), newInterest(n)
	s.metrics = newMetrics(o.Registerer, s.rules)
	s.observe(o.Registerer)
	s.admitted = newAdmission(&s.opt)
	s.slots = make(chan struct{}, s.opt.Workers)
	s.draining, s.drain = context.WithCancel(context.Background())
	s.factory = &factory{
		generators: s.opt.Generators, budget: s.opt.MemoBytes, kept: &s.kept, rosters: newRosters(), metrics: s.metrics, failed: s.failed,
	}
	return s
}

// order puts the generators in the order of the table.
func (s *Server) order() {
	var gens []gen.Generator
	for _, r := range rules() {
		i := slices.IndexFunc(s.opt.Generators, func(g gen.Generator) bool { return g.TypeURL() == r.url })
		if i < 0 {
			continue
		}
		s.byURL[r.url] = len(s.rules)
		s.rules = append(s.rules, r)
		gens = append(gens, s.opt.Generators[i])
	}
	s.opt.Generators = gens
	for _, r := range s.rules {
		if i, ok := s.byURL[r.partOf]; ok {
			s.rules[i].split = true
		}
	}
}

// virtualHosts reports whether virtual hosts are served one by one.
func (s *Server) virtualHosts() bool {
	_, ok := s.byURL[gen.VirtualHostURL]
	return ok && !s.opt.InlineHosts
}

// UseHub sets the hub, for when the hub's notify is this server's Notify. It comes before the first
// stream.
func (s *Server) UseHub(h *pushcontext.Hub) { s.hub = h }

// window is how many bytes of requests may be on their way: a SotW request with 10 000 names is half as
// long, and a longer one gets more as it is read.
const window = 1 << 20

// GRPCServerOptions are the options that a gRPC server needs for this service; other services on
// the same server are not affected.
func (s *Server) GRPCServerOptions() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.ForceServerCodecV2(wire.NewCodec()),
		grpc.MaxRecvMsgSize(s.opt.MaxRequest),
		grpc.MaxConcurrentStreams(100_000),
		// Fewer and larger writes; a connection holds a buffer only while it writes.
		grpc.WriteBufferSize(128 << 10),
		// Windows that adapt cost a ping, there and back, for each request.
		grpc.StaticStreamWindowSize(window), grpc.StaticConnWindowSize(window),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: 30 * time.Second, Timeout: 10 * time.Second}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 15 * time.Second, PermitWithoutStream: true}),
	}
}

// Register adds the service to a gRPC server made with GRPCServerOptions.
func (s *Server) Register(r grpc.ServiceRegistrar) {
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(r, s)
}

// StreamAggregatedResources serves state-of-the-world ADS.
func (s *Server) StreamAggregatedResources(g discoveryv3.AggregatedDiscoveryService_StreamAggregatedResourcesServer) error {
	return s.Serve(wire.SotW, g)
}

// DeltaAggregatedResources serves delta ADS.
func (s *Server) DeltaAggregatedResources(g discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesServer) error {
	return s.Serve(wire.Delta, g)
}

// Serve serves one stream until the peer ends it or a rule does; the error is a gRPC status.
func (s *Server) Serve(p wire.Protocol, peer Peer) error {
	if s.hub.Current() == nil || !s.opt.Ready() {
		return s.turnedAway(refusedNotReady, "", remote(peer.Context()), errNotReady)
	}
	if err := s.admitted.admit(peer.Context()); err == errBusy {
		return s.turnedAway(refusedBusy, "", remote(peer.Context()), err)
	} else if err != nil {
		return err // it left while it waited
	}
	st := s.newStream(p, peer)
	if !s.enter(st) {
		return s.turnedAway(refusedDraining, "", remote(peer.Context()), errDraining)
	}
	go func() {
		defer close(st.requests)
		if err := st.contain(st.receive); err != nil {
			st.cancel(err)
		}
	}()
	done := make(chan error, 1)
	go func() {
		defer s.running.Done()
		err := st.contain(st.run)
		_ = st.contain(st.gone)
		_ = st.contain(st.end)
		_ = st.contain(func() error { return s.leave(st) })
		_ = st.contain(s.tidy)
		_ = st.contain(func() error { st.departed(err); return nil })
		done <- err
	}()
	// A write that hangs can only be ended by returning from here.
	select {
	case err := <-done:
		st.cancel(err)
		return err
	case <-st.ctx.Done():
		err := context.Cause(st.ctx)
		if err == errSlow {
			s.metrics.writeTimeouts.Inc()
		}
		return err
	}
}

// enter takes a stream in; false once the server is shutting down. Whoever waits for running to end
// does so after the last stream was counted.
func (s *Server) enter(st *stream) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.draining.Err() != nil {
		return false
	}
	s.running.Add(1)
	if n := len(s.free); n > 0 {
		st.slot = s.free[n-1]
		s.free = s.free[:n-1]
		s.streams[st.slot] = st
		return true
	}
	st.slot = uint32(len(s.streams))
	s.streams = append(s.streams, st)
	return true
}

func (s *Server) leave(st *stream) error {
	defer s.vacate(st)
	if st.counted != nil {
		st.counted()
	}
	for _, w := range st.watches {
		if w != nil {
			w.recovered()
		}
	}
	return nil
}

func (s *Server) vacate(st *stream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.streams[st.slot] = nil
	s.free = append(s.free, st.slot)
}

func (s *Server) all() []*stream {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return slices.DeleteFunc(slices.Clone(s.streams), func(st *stream) bool { return st == nil })
}

// Notify wakes the streams that a commit concerns; it is the hub's notify and does not block.
func (s *Server) Notify(pc *pushcontext.PushContext, d *pushcontext.Delta) {
	s.factory.rosters.drop()
	if d.Mesh || s.tables.compact(pc) {
		s.wakeAll()
		return
	}
	touched := s.interest.touched(d)
	s.mu.RLock()
	defer s.mu.RUnlock()
	for it := touched.Iterator(); it.HasNext(); {
		if slot := int(it.Next()); slot < len(s.streams) && s.streams[slot] != nil {
			s.poke(s.streams[slot])
		}
	}
}

func (s *Server) wakeAll() {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, st := range s.streams {
		if st != nil {
			s.poke(st)
		}
	}
}

// tidy looks at the name table when clients have changed what it holds, for there may be no commit that
// does.
func (s *Server) tidy() error {
	if s.tables.shed() {
		s.wakeAll()
	}
	return nil
}

func (s *Server) poke(st *stream) {
	select {
	case st.wake <- struct{}{}:
		s.wakes.Add(1)
	default:
	}
}

// Shutdown ends all streams with Unavailable, so that proxies turn to another replica, and waits
// until they have ended.
func (s *Server) Shutdown(ctx context.Context) error {
	s.mu.Lock()
	s.drain()
	s.mu.Unlock()
	for _, st := range s.all() {
		st.cancel(errDraining)
	}
	done := make(chan struct{})
	go func() {
		s.running.Wait()
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// work takes a slot for generating; call the result to give it back.
func (s *Server) work() func() {
	release := func() { <-s.slots }
	select {
	case s.slots <- struct{}{}:
		s.metrics.queue.Observe(0)
		return release
	default:
	}
	start := s.now()
	s.slots <- struct{}{}
	s.metrics.queue.Observe(s.now().Sub(start).Seconds())
	return release
}

func (s *Server) now() time.Time { return s.opt.Now() }

// age starts a stream's maximum age; the channel is nil when there is none.
func (s *Server) age() (<-chan time.Time, func()) {
	if s.opt.MaxAge <= 0 {
		return nil, func() {}
	}
	jitter := 0.8 + 0.4*rand.Float64()
	t := time.NewTimer(time.Duration(float64(s.opt.MaxAge) * jitter))
	return t.C, func() { t.Stop() }
}

// keptFailures bounds Failures.
const keptFailures = 64

func (s *Server) failed(f Failure) {
	s.log.Error("resource can't be generated; proxies keep their last good one", "type", f.TypeURL, "resource", f.Name, "err", f.Err)
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.failures) == keptFailures {
		s.failures = append(s.failures[:0], s.failures[1:]...)
	}
	s.failures = append(s.failures, f)
}

// Failures gives the last resources that could not be generated, oldest first.
func (s *Server) Failures() []Failure {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return slices.Clone(s.failures)
}
