package workloadgroup

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/time/rate"
	networking "istio.io/api/networking/v1alpha3"
)

// ErrConflict is what Entries say when an entry is not as it was read: it is looked at again.
var ErrConflict = errors.New("the entry has changed meanwhile")

// Entries are where WorkloadEntries are kept. They are called from one goroutine at a time.
type Entries interface {
	// Get gives an entry, nil if there is none.
	Get(ctx context.Context, k Key) (*Entry, error)
	// Put creates or replaces an entry, its condition too, and gives its new version; ErrConflict if it is not at its Version
	// any more.
	Put(ctx context.Context, e *Entry) (version string, err error)
	// Delete removes an entry, of which its Key and Version are enough; ErrConflict if it is not at that any more.
	Delete(ctx context.Context, e *Entry) error
	// List gives the entries that are made of groups.
	List(ctx context.Context) ([]*Entry, error)
	// Alive says that the controller lives, and gives those that do, it among them.
	Alive(ctx context.Context, controller string) (map[string]bool, error)
}

// Options configure a Keeper.
type Options struct {
	Entries    Entries
	Controller string // what the replica is called in entries; it must be another for each
	// Group gives a WorkloadGroup, nil if there is none. It is called from the keeper's goroutine.
	Group func(namespace, name string) *networking.WorkloadGroup
	Grace time.Duration // how long an entry outlives its proxy; 10s
	Sweep time.Duration // how often entries of replicas that are gone are looked for; 20s
	Limit int           // entries that proxies may have at once; 10000
	Rate  rate.Limit    // writes per second; 50. rate.Inf where entries cost nothing to write
	Log   *slog.Logger  // discards if nil
}

func (o Options) withDefaults() Options {
	o.Grace, o.Sweep, o.Limit = cmp.Or(o.Grace, 10*time.Second), cmp.Or(o.Sweep, 20*time.Second), cmp.Or(o.Limit, 10000)
	o.Rate = cmp.Or(o.Rate, perSecond)
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return o
}

// How fast entries are written, and how long a failed write waits.
const (
	perSecond = 50
	burst     = 50
	retryMin  = time.Second
	retryMax  = time.Minute
	conflict  = 100 * time.Millisecond // how long what somebody else has changed waits at first
	patience  = 10 * time.Second       // with where entries are kept
)

// Keeper sees to it that the proxies that are connected have their entries. Its methods Connected, Disconnected and Health
// never block and may be called from any goroutine; the work is done by Run.
type Keeper struct {
	opts  Options
	limit *rate.Limiter
	wake  chan struct{} // cap 1

	mu    sync.Mutex
	known map[Key]*known        // guarded by mu
	due   map[Key]time.Time     // guarded by mu: keys to look at, and when
	waits map[Key]time.Duration // guarded by mu: of keys that failed
}

// known is what there is to know of an entry.
type known struct {
	streams map[*Proxy]struct{} // of proxies that are connected
	last    *Proxy              // that connected last
	since   time.Time           // when it did
	gone    time.Time           // when the last one left; zero while one is there
	health  *Health
	version string // of an entry of a group, as this replica has left it; "" if that is not known
}

// New gives a Keeper that knows of no proxy.
func New(o Options) *Keeper {
	return &Keeper{
		opts: o.withDefaults(), limit: rate.NewLimiter(o.withDefaults().Rate, burst), wake: make(chan struct{}, 1),
		known: map[Key]*known{}, due: map[Key]time.Time{}, waits: map[Key]time.Duration{},
	}
}

// Connected is told of a proxy that has introduced itself.
func (k *Keeper) Connected(p *Proxy) {
	key := p.key()
	k.mu.Lock()
	defer k.mu.Unlock()
	e := k.known[key]
	if e == nil {
		if len(k.known) >= k.opts.Limit {
			k.opts.Log.Warn("a workload is not registered: there are too many", "proxy", p.ID, "limit", k.opts.Limit)
			return
		}
		e = &known{streams: map[*Proxy]struct{}{}}
		k.known[key] = e
	}
	e.streams[p] = struct{}{}
	e.last, e.since, e.gone = p, time.Now(), time.Time{}
	k.soon(key, 0)
}

// Disconnected is told of a proxy whose stream has ended.
func (k *Keeper) Disconnected(p *Proxy) {
	key := p.key()
	k.mu.Lock()
	defer k.mu.Unlock()
	e := k.known[key]
	if e == nil {
		return
	}
	delete(e.streams, p)
	if len(e.streams) == 0 {
		e.gone, e.health = time.Now(), nil
		k.soon(key, 0)
	}
}

// Health is told what a proxy says of its workload.
func (k *Keeper) Health(p *Proxy, healthy bool, message string) {
	key := p.key()
	k.mu.Lock()
	defer k.mu.Unlock()
	e := k.known[key]
	if e == nil {
		return
	}
	if _, connected := e.streams[p]; connected {
		e.health = &Health{Healthy: healthy, Message: message}
		k.soon(key, 0)
	}
}

// GroupsChanged is told that WorkloadGroups have changed.
func (k *Keeper) GroupsChanged() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for key := range k.known {
		k.soon(key, 0)
	}
}

// soon is called with mu held.
func (k *Keeper) soon(key Key, after time.Duration) {
	at := time.Now().Add(after)
	if was, ok := k.due[key]; ok && was.Before(at) {
		return
	}
	k.due[key] = at
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

// Run does the work until ctx ends. Entries of connected proxies stay: they go on to another replica.
func (k *Keeper) Run(ctx context.Context) error {
	sweep := time.NewTicker(k.opts.Sweep)
	defer sweep.Stop()
	k.sweep(ctx)
	for {
		select { // also while there is much to write: sweeping tells others that this replica lives
		case <-sweep.C:
			k.sweep(ctx)
		default:
		}
		key, wait := k.next()
		if wait == 0 {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			k.settle(ctx, key)
			continue
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		case <-k.wake:
		case <-timer.C:
		case <-sweep.C:
			k.sweep(ctx)
		}
		timer.Stop()
	}
}

// next takes a key whose time has come, the most urgent; else it says how long to wait.
func (k *Keeper) next() (key Key, wait time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	now, wait := time.Now(), time.Hour
	first := lastUrgency + 1
	for x, at := range k.due {
		left := at.Sub(now)
		if left > 0 {
			wait = min(wait, left)
		} else if u := k.urgency(x); u < first {
			key, first = x, u
		}
	}
	if first > lastUrgency {
		return Key{}, wait
	}
	delete(k.due, key)
	return key, 0
}

// How urgent a key is: requests are still sent to a workload that has gone, but few to one that is not there yet.
const (
	toRemove = iota // its proxy has been away for long enough
	toNote          // it has gone
	toWrite
	lastUrgency // it has failed before
)

// urgency is called with mu held.
func (k *Keeper) urgency(key Key) int {
	e := k.known[key]
	switch {
	case e != nil && len(e.streams) == 0 && k.overdue(e.gone):
		return toRemove
	case k.waits[key] > 0:
		return lastUrgency
	case e != nil && len(e.streams) == 0:
		return toNote
	}
	return toWrite
}
