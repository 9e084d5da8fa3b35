package holdback

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	api "github.com/isthmus-mesh/isthmus/api/v1alpha1"
)

const (
	// settle is how long a removal waits for others, to be judged together with them.
	settle = 2 * time.Second
	// doubtful is how long after contact was lost, or after a full read, instances may still be coming back.
	doubtful = time.Minute
	// maxProblems bounds how much of what is held a status names; Held names all.
	maxProblems = 100
	// maxHeld bounds what is held; what goes beyond that is believed.
	maxHeld = 1_000_000
	// few is how much may be held until all of it is looked through at a pace: once in perHeld for each.
	few, perHeld = 100, 20 * time.Microsecond
)

// Options configure Wrap.
type Options struct {
	Policy api.EmptyPolicy // with defaults
	Held   func(Held)      // told of what is held back, when that changes; may be nil. Must not block, nor ask for problems
	// Before is shared with registries that this one replaces, or that replace it, and are to say the same; may be nil.
	Before *Handover
}

// Wrap gives a registry that holds removals back as the policy says.
func Wrap(inner model.Registry, o Options) model.Registry {
	if o.Policy.Mode == api.EmptyImmediate {
		return inner
	}
	if o.Held == nil {
		o.Held = func(Held) {}
	}
	return &registry{Registry: inner, opts: o}
}

type registry struct {
	model.Registry
	opts Options
}

// Run implements model.Registry.
func (r *registry) Run(ctx context.Context, out model.Sink) error {
	g := &gate{opts: r.opts, out: out, rows: map[model.RowKey]model.Object{}, total: map[string]int{}, held: map[model.RowKey]*held{}, owners: map[part]*held{}, wake: make(chan struct{}, 1)}
	own, cancel := context.WithCancel(ctx)
	var timer sync.WaitGroup
	timer.Go(func() { g.keepTime(own) })
	err := r.Registry.Run(ctx, g)
	g.end()
	cancel()
	timer.Wait()
	if !r.opts.Before.replaced(g) {
		r.opts.Held(Held{})
	}
	return err
}

// end notes that nobody is in contact with the registry any more.
func (g *gate) end() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.status.State = ""
}

// gate is the sink of one run.
type gate struct {
	opts Options
	out  model.Sink
	wake chan struct{} // cap 1: next has changed

	mu       sync.Mutex
	rows     map[model.RowKey]model.Object // guarded by mu: what proxies are served
	total    map[string]int                // guarded by mu: what rows weigh, by kind
	held     map[model.RowKey]*held        // guarded by mu: by the row of endpoints, or the row that is held by itself
	owners   map[part]*held                // guarded by mu: of what belongs to the endpoints that are held
	synced   bool                          // guarded by mu
	doubt    time.Time                     // guarded by mu: until when it is doubtful that the registry knows all instances
	status   model.Status                  // guarded by mu: as the registry gave it
	reported []model.Problem               // guarded by mu: what the last status said is held
	count    int                           // guarded by mu: how much that was
	quiet    time.Time                     // guarded by mu: until when nothing is reported
	late     bool                          // guarded by mu: there may be something to report
	next     time.Time                     // guarded by mu: when something is to be done
	rest     time.Time                     // guarded by mu: until when nothing is
	looks    int                           // guarded by mu: how often all that is held was looked through; tests count them
}

// held are the endpoints of an object, which the registry has no more, or fewer of; or a row that it has no more.
type held struct {
	row     model.Object                  // that is held by itself; nil if endpoints are
	had     *model.Endpoints              // as they were before
	now     *model.Endpoints              // as the registry has them; nil if it does not have the object
	others  map[model.RowKey]model.Object // the service and the workloads, if they are to go with it
	bare    map[model.RowKey]model.Object // the service, if it is served with ports that the registry knows no more
	since   time.Time
	due     time.Time // when it is decided, or over
	decided bool      // that it is held for as long as the policy says, not only until it is judged
	doubted bool      // it began when it was doubtful that the registry knows all instances
	because string    // what makes it doubtful, for why; "" if the policy alone does
}

func (h *held) lost() int {
	switch {
	case h.row != nil:
		return 1
	case h.now == nil:
		return len(h.had.Endpoints)
	}
	return max(0, len(h.had.Endpoints)-len(h.now.Endpoints))
}

// served is what proxies get of it: what the registry has, and what it had.
func (h *held) served() model.Object {
	switch {
	case h.row != nil:
		return h.row
	case h.now == nil || len(h.now.Endpoints) == 0:
		return h.had
	}
	type dialled struct {
		addr model.Addr
		port string
	}
	has := map[dialled]struct{}{}
	for i := range h.now.Endpoints {
		has[dialled{h.now.Endpoints[i].Addr, h.now.Endpoints[i].PortName}] = struct{}{}
	}
	row := *h.now
	row.Endpoints = slices.Clone(row.Endpoints)
	for _, e := range h.had.Endpoints {
		if _, known := has[dialled{e.Addr, e.PortName}]; !known {
			row.Endpoints = append(row.Endpoints, e)
		}
	}
	return &row
}

// Replace implements model.Sink. What proxies are served and the registry no longer has is a removal like any other.
func (g *gate) Replace(s *model.ShardState) {
	g.mu.Lock()
	defer g.mu.Unlock()
	contact := g.status.State == model.StateLive
	if !g.synced {
		g.synced = true
		before := g.opts.Before.next(g)
		if before == nil {
			g.rows, g.total = kept(s)
			g.out.Replace(s)
			return
		}
		contact = g.inherit(before)
	}
	defer g.judging(contact)()
	rows := maps.Collect(s.Rows())
	var events []model.Event
	for k := range g.rows {
		if _, still := rows[k]; !still {
			events = append(events, model.Event{Row: k})
		}
	}
	for k, o := range rows {
		events = append(events, model.Event{Row: k, Obj: o})
	}
	for _, ev := range g.judge(events) {
		if ev.Obj == nil {
			delete(rows, ev.Row)
		} else {
			rows[ev.Row] = ev.Obj
		}
	}
	for row, h := range g.held {
		maps.Copy(rows, h.others)
		rows[row] = h.served()
	}
	b := model.NewShardBuilder()
	for k, o := range rows {
		b.Add(k.Key, o)
	}
	g.out.Replace(b.Build())
	g.tell()
}

// judging has a full read judged as one that may be of less than there is, and gives what ends that. While there was contact, like when
// credentials change, what goes afterwards goes for itself.
func (g *gate) judging(contact bool) (end func()) {
	was := g.doubt
	g.doubt = time.Now().Add(doubtful)
	return func() {
		if contact {
			g.doubt = was
		}
	}
}

// kept are the rows that may be held back one day, and what they weigh.
func kept(s *model.ShardState) (rows map[model.RowKey]model.Object, total map[string]int) {
	rows, total = maps.Collect(s.Rows()), map[string]int{}
	for _, o := range rows {
		total[kindOf(o)] += weight(o)
	}
	return rows, total
}

// Put implements model.Sink.
func (g *gate) Put(events ...model.Event) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.synced {
		g.out.Put(events...)
		return
	}
	if pass := g.judge(events); len(pass) > 0 {
		g.out.Put(pass...)
	}
	g.tell()
}

// Status implements model.Sink. Contact that is lost makes what comes after it doubtful.
func (g *gate) Status(s model.Status) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if s.State == model.StateStale || g.status.State == model.StateStale {
		g.doubt = time.Now().Add(doubtful)
	}
	g.status = s
	g.pass()
	g.tell()
}

// keepTime lets go of what is due until ctx ends.
func (g *gate) keepTime(ctx context.Context) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		timer.Reset(g.release())
		select {
		case <-ctx.Done():
			return
		case <-g.wake:
		case <-timer.C:
		}
	}
}

// wakeAt has somebody look at the time given, or before, but not before it is time to look again at all.
func (g *gate) wakeAt(at time.Time) {
	if at.Before(g.rest) {
		at = g.rest
	}
	if !at.Before(g.next) {
		return
	}
	g.next = at
	select {
	case g.wake <- struct{}{}:
	default:
	}
}

// release decides about what is due, if something may be, passes on what is over, and gives the time until something is.
func (g *gate) release() time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := time.Now()
	if now.Before(g.next) {
		return g.next.Sub(now)
	}
	g.looks++
	g.decide(now)
	var pass []model.Event
	g.next = now.Add(time.Hour)
	for row, h := range g.held {
		if !h.due.After(now) {
			pass = append(pass, g.letGo(row)...)
		} else if h.due.Before(g.next) {
			g.next = h.due
		}
	}
	if len(pass) > 0 {
		g.out.Put(pass...)
	}
	g.report()
	if g.late && g.quiet.Before(g.next) {
		g.next = g.quiet
	}
	if g.rest = now.Add(g.pace()); g.next.Before(g.rest) {
		g.next = g.rest
	}
	return g.next.Sub(now)
}

// decide judges the removals that have waited for others, and those with them, kind by kind.
func (g *gate) decide(now time.Time) {
	kinds := map[string]*loss{}
	of := func(kind string) *loss {
		if kinds[kind] == nil {
			kinds[kind] = &loss{}
		}
		return kinds[kind]
	}
	for _, h := range g.held {
		long := h.decided && now.Sub(h.since) > doubtful
		l := of(h.kind())
		l.add(long, h.lost())
		for _, o := range h.others {
			of(kindOf(o)).add(long, weight(o))
		}
		if long {
			continue
		}
		l.due = l.due || !h.decided && !h.due.After(now)
		l.doubted = l.doubted || h.doubted
		l.several = l.several || l.object != (model.ObjectKey{}) && l.object != h.object()
		l.object = h.object()
	}
	for _, h := range g.held {
		l := kinds[h.kind()]
		total := g.total[h.kind()] - l.before
		if h.decided || !l.due || !l.several && !l.doubted || l.lost*100 <= int(*g.opts.Policy.Percent)*total {
			continue
		}
		g.hold(h, fmt.Sprintf(", and %d of the %d %s went together", l.lost, total, plural(h.kind())))
	}
}

// loss is what is gone of a kind.
type loss struct {
	before, lost int             // what it weighs: what went long before, and what went together
	object       model.ObjectKey // one that it is of
	several      bool            // it is of others too
	due, doubted bool            // one of them is
}

// add counts what went, long before or with what is judged now.
func (l *loss) add(long bool, weight int) {
	if long {
		l.before += weight
	} else {
		l.lost += weight
	}
}

// hold decides that something is held; because says why, and may be "".
func (g *gate) hold(h *held, because string) {
	h.decided, h.due, h.because = true, h.since.Add(g.opts.Policy.Duration.Duration), because
}
