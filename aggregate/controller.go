package aggregate

import (
	"cmp"
	"context"
	"hash/maphash"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/pushcontext"
)

// Options configure a Controller. Zero values take the stated defaults.
type Options struct {
	Hub           *pushcontext.Hub      // required: where snapshots are published
	Log           *slog.Logger          // default: discards
	Registerer    prometheus.Registerer // nil: metrics are kept but not exported
	ConfigCluster model.ClusterID       // its definitions come first in a conflict
	Expected      []model.ShardKey      // registries that are attached later: the serving gate stays closed until each is
	DomainSuffix  string                // default "cluster.local"
	TrustDomain   string                // default: that of the mesh-wide settings, or "cluster.local"
	// OnHosts is told the DNS names of gateways, sorted, whenever they change: rows of kind ResolvedHost are
	// to tell what they stand for. It is called by the writer and must not block. Nil: names stay unresolved.
	OnHosts func([]string)

	SyncTimeout   time.Duration // how long start-up waits for one registry; 30s
	StaleAfter    time.Duration // when a stale shard's endpoints are demoted for other members; 5m
	EndpointQuiet time.Duration // 20ms
	EndpointMax   time.Duration // 200ms
	ShapeQuiet    time.Duration // 100ms
	ShapeMax      time.Duration // 1s
	PushShare     float64       // part of the machine that pushing may take before commits are spaced out; 0.25
	Budget        int           // events taken from one registry per turn; 256
	ScrubEvery    time.Duration // how often an idle controller checks some services against their rows; 10s, negative never
	BackoffMin    time.Duration // first wait before a failed registry runs again; 1s
	BackoffMax    time.Duration // 1m
	ShutdownGrace time.Duration // how long Run waits for registries to return; 10s
}

func (o Options) withDefaults() Options {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	o.DomainSuffix = cmp.Or(o.DomainSuffix, "cluster.local")
	o.SyncTimeout = cmp.Or(o.SyncTimeout, 30*time.Second)
	o.StaleAfter = cmp.Or(o.StaleAfter, 5*time.Minute)
	o.EndpointQuiet = cmp.Or(o.EndpointQuiet, 20*time.Millisecond)
	o.EndpointMax = cmp.Or(o.EndpointMax, 200*time.Millisecond)
	o.ShapeQuiet = cmp.Or(o.ShapeQuiet, 100*time.Millisecond)
	o.ShapeMax = cmp.Or(o.ShapeMax, time.Second)
	o.PushShare = cmp.Or(o.PushShare, 0.25)
	o.Budget = cmp.Or(o.Budget, 256)
	o.ScrubEvery = cmp.Or(o.ScrubEvery, 10*time.Second)
	o.BackoffMin = cmp.Or(o.BackoffMin, time.Second)
	o.BackoffMax = cmp.Or(o.BackoffMax, time.Minute)
	o.ShutdownGrace = cmp.Or(o.ShutdownGrace, 10*time.Second)
	return o
}

// Controller is the single writer: it owns every shard and publishes snapshots to the hub.
type Controller struct {
	// Read-only after New.
	opts    Options
	metrics *metrics
	wakeup  chan struct{} // cap 1
	ready   chan struct{} // closed when the serving gate opens
	exits   chan exit     // a registry's Run returned
	seed    maphash.Seed  // groups hosts for the scrub

	cost   atomic.Int64                            // ns of machine time spent pushing since the last commit
	shards atomic.Pointer[[]pushcontext.ShardInfo] // infos, for others

	mu    sync.Mutex
	ops   []op                        // guarded by mu
	boxes map[*mailbox]model.ShardKey // guarded by mu; those in use, for metrics

	// Owned by the goroutine in Run.
	state    *state
	builder  *pushcontext.Builder
	attached map[model.ShardKey]*attached
	running  sync.WaitGroup
	debounce debouncer
	basis
	clusters  []model.ClusterID // of the attached registries, sorted
	configs   []*model.Config
	infos     []pushcontext.ShardInfo              // by key; replaced, never changed
	orphans   map[model.ServiceKey][]model.LeftOut // endpoints without a service
	noService map[model.ServiceKey][]model.LeftOut // orphans as last published
	force     bool                                 // commit at once
	open      bool                                 // serving gate
	asked     time.Time                            // when the serving gate began to wait for names of gateways
	views     int                                  // services published
	oldest    time.Time                            // arrival of the oldest event applied since the last commit
	reasons   map[string]int

	regrouped     bool // a registry came or went since infos was made
	infoChanged   bool // infos differ from those published
	orphanChanged bool // orphans differ from those published

	nextScrub time.Time
	scrubbed  uint64 // passes
	pass      *pass  // under way; nil between passes
}

// op is a control operation.
type op struct {
	attach model.Registry
	detach model.ShardKey
}

// New makes a controller; nothing happens before Run.
func New(o Options) *Controller {
	o = o.withDefaults()
	c := &Controller{
		opts: o, wakeup: make(chan struct{}, 1), ready: make(chan struct{}), exits: make(chan exit), seed: maphash.MakeSeed(),
		boxes: map[*mailbox]model.ShardKey{}, state: newState(), builder: pushcontext.NewBuilder(),
		attached: map[model.ShardKey]*attached{}, basis: basis{demoted: map[model.ShardKey]bool{}}, reasons: map[string]int{},
		orphans: map[model.ServiceKey][]model.LeftOut{},
	}
	c.debounce = debouncer{share: o.PushShare, windows: [lanes]window{
		laneEndpoints: {o.EndpointQuiet, o.EndpointMax, endpointStretch}, laneShape: {o.ShapeQuiet, o.ShapeMax, shapeStretch},
	}}
	c.metrics = newMetrics(o.Registerer, c)
	return c
}

// Attach adds a registry. If one with its key is attached, the new one runs beside it and takes over
// with its first Replace; until then, however long, the old one serves.
func (c *Controller) Attach(r model.Registry) { c.enqueue(op{attach: r}) }

// Detach ends every instance of the key and removes all that it contributed.
func (c *Controller) Detach(k model.ShardKey) { c.enqueue(op{detach: k}) }

func (c *Controller) enqueue(o op) {
	c.mu.Lock()
	c.ops = append(c.ops, o)
	c.mu.Unlock()
	c.wake()
}

func (c *Controller) wake() {
	select {
	case c.wakeup <- struct{}{}:
	default:
	}
}

// Ready reports whether the serving gate is open: every registry attached so far has delivered its
// full truth, or had its time to, which the Kubernetes registry of the config cluster always has. Those that are
// expected are attached.
func (c *Controller) Ready() bool {
	select {
	case <-c.ready:
		return true
	default:
		return false
	}
}

// ReadyCh is closed when the serving gate opens.
func (c *Controller) ReadyCh() <-chan struct{} { return c.ready }

// Shards describes the attached registries, by key: as in the newest snapshot and, while the serving gate
// is closed, as they are. The slice must not be changed.
func (c *Controller) Shards() []pushcontext.ShardInfo {
	if p := c.shards.Load(); p != nil {
		return *p
	}
	return nil
}

// PushCost adds processor time that was spent on bringing a commit to proxies, summed over all
// goroutines. When it grows, commits are spaced out.
func (c *Controller) PushCost(d time.Duration) { c.cost.Add(int64(d)) }

// Run is the writer; it returns nil when ctx ends and every registry has returned.
func (c *Controller) Run(ctx context.Context) error {
	regs, cancel := context.WithCancel(ctx)
	defer cancel()
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	c.nextScrub = time.Now().Add(c.opts.ScrubEvery)
	c.running.Go(func() { c.watch(regs) })
	for ctx.Err() == nil {
		more := c.turn(regs)
		if more {
			continue
		}
		timer.Reset(time.Until(c.nextTime()))
		select {
		case <-ctx.Done():
		case <-c.wakeup:
		case <-timer.C:
		case e := <-c.exits:
			c.exited(e)
		}
	}
	cancel()
	return c.shutdown()
}

// turn does everything that is due, and reports whether more is waiting.
func (c *Controller) turn(ctx context.Context) (more bool) {
	c.metrics.turns.Inc()
	c.control(ctx)
	more = c.drain()
	now := time.Now()
	if !c.debounce.pending() {
		c.oldest = time.Time{}
	}
	c.timers(ctx, now)
	if !c.open {
		c.refreshShards()
		c.tryOpen(now)
	}
	if c.open && (c.force || c.debounce.due(now, more)) {
		c.commit(now)
	}
	if !more && !c.debounce.pending() {
		c.scrub(now)
	}
	return more
}

func (c *Controller) control(ctx context.Context) {
	c.mu.Lock()
	ops := c.ops
	c.ops = nil
	c.mu.Unlock()
	for _, o := range ops {
		if o.attach != nil {
			c.attach(ctx, o.attach)
		} else {
			c.detach(o.detach)
		}
	}
	select {
	case e := <-c.exits:
		c.exited(e)
	default:
	}
}

// drain takes one turn of every mailbox, so that no registry can starve another.
func (c *Controller) drain() (more bool) {
	now := time.Now()
	for _, m := range c.attached {
		for _, in := range m.instances() {
			if !in.resting(now) {
				more = c.receive(m, in, in.box.take(c.opts.Budget)) || more
			}
		}
	}
	return more
}

// relistShare is how many times as long as a full truth took the registry's next one waits.
const relistShare = 4

func (c *Controller) receive(m *attached, in *instance, b batch) (more bool) {
	if b.full == nil && b.status == nil && len(b.events) == 0 {
		return false
	}
	now := time.Now()
	if b.full != nil {
		c.takeFull(m, in, b.full, now)
		done := time.Now()
		in.rest = done.Add(relistShare * done.Sub(now))
	}
	if len(b.events) > 0 && m.active == in {
		c.apply(m, b.events, now)
	}
	if b.status != nil {
		c.takeStatus(m, in, *b.status, now)
	}
	if c.oldest.IsZero() || !b.oldest.IsZero() && b.oldest.Before(c.oldest) {
		c.oldest = b.oldest
	}
	return b.more
}

func (c *Controller) apply(m *attached, evs []model.Event, now time.Time) {
	sh := c.state.shard(m.key)
	m.lastEvent, m.changed = now, true
	for _, ev := range evs {
		if !c.valid(m.key)(ev.Row, ev.Obj) || !c.state.put(sh, ev.Row, ev.Obj) {
			continue
		}
		l, reason := classify(ev.Row.Kind)
		c.note(l, reason, now)
		c.metrics.received(ev)
	}
}

// classify says how urgent a row's change is and what dashboards call it.
func classify(k model.Kind) (lane, string) {
	switch k {
	case model.RowEndpoints, model.RowWorkload:
		return laneEndpoints, "endpoint"
	case model.RowConfig:
		return laneShape, "config"
	}
	return laneShape, "service"
}

func (c *Controller) note(l lane, reason string, now time.Time) {
	c.debounce.note(l, now)
	c.reasons[reason]++
}

// valid tells rows that are what their key says.
func (c *Controller) valid(k model.ShardKey) func(model.RowKey, model.Object) bool {
	return func(rk model.RowKey, obj model.Object) bool {
		if rk.Kind < model.RowKinds && (obj == nil || rowKind(obj) == rk.Kind) {
			return true
		}
		c.metrics.invalid.Inc()
		c.opts.Log.Error("row refused: its value is not of the kind of its key", "cluster", k.Cluster, "provider", k.Provider, "row", rk.Key)
		return false
	}
}

// rowKind is the kind of a non-nil value; RowKinds if it is a nil pointer or of a foreign type.
func rowKind(o model.Object) model.Kind {
	switch v := o.(type) {
	case *model.Service:
		if v != nil {
			return model.RowService
		}
	case *model.Endpoints:
		if v != nil {
			return model.RowEndpoints
		}
	case *model.Workload:
		if v != nil {
			return model.RowWorkload
		}
	case *model.Config:
		if v != nil {
			return model.RowConfig
		}
	}
	return model.RowKinds
}
