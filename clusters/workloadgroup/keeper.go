package workloadgroup

import (
	"cmp"
	"context"
	"errors"
	"fmt"
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

// settle makes an entry what it is to be now. What fails is tried again.
func (k *Keeper) settle(ctx context.Context, key Key) {
	k.mu.Lock()
	var now known
	if e := k.known[key]; e != nil {
		now = *e
	}
	connected := len(now.streams) > 0
	k.mu.Unlock()
	if now.last == nil {
		return
	}
	var group *networking.WorkloadGroup
	if connected {
		var ok bool
		if group, ok = k.groupOf(key, now.last); !ok {
			return
		}
	}
	if k.limit.Wait(ctx) != nil {
		return
	}
	work, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var version string
	var after time.Duration
	var err error
	if connected {
		version, err = k.register(work, key, &now, group)
	} else {
		version, after, err = k.leave(work, key, &now)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if e := k.known[key]; e != nil {
		e.version = version
	}
	if err != nil {
		k.failed(ctx, key, err)
		return
	}
	delete(k.waits, key)
	switch e := k.known[key]; {
	case after > 0:
		k.soon(key, after)
	case e != nil && len(e.streams) == 0 && !connected:
		delete(k.known, key)
	}
}

// groupOf gives the group of a proxy, nil if it names none. False means that there is none from which the entry could be made: it is
// looked at again when groups change.
func (k *Keeper) groupOf(key Key, p *Proxy) (*networking.WorkloadGroup, bool) {
	if p.Group == "" {
		return nil, true
	}
	if g := k.opts.Group(p.Namespace, p.Group); g != nil {
		return g, true
	}
	k.opts.Log.Warn("a workload is not registered: there is no such WorkloadGroup; add it, or mend AUTO_REGISTER_GROUP", "workloadEntry", key.String(),
		"group", p.Namespace+"/"+p.Group, "proxy", p.ID)
	return nil, false
}

// failed is called with mu held.
func (k *Keeper) failed(ctx context.Context, key Key, err error) {
	least, quiet := retryMin, false
	if errors.Is(err, ErrConflict) {
		least, quiet = conflict, k.waits[key] < retryMin
	}
	wait := min(max(2*k.waits[key], least), retryMax)
	k.waits[key] = wait
	if !quiet && ctx.Err() == nil {
		k.opts.Log.Warn("a workload is not registered as it should be; it is tried again", "workloadEntry", key.String(), "err", err)
	}
	k.soon(key, wait)
}

// register makes or mends the entry of a connected proxy, and gives the version that is this replica's.
func (k *Keeper) register(ctx context.Context, key Key, now *known, group *networking.WorkloadGroup) (string, error) {
	have, err := k.opts.Entries.Get(ctx, key)
	if err != nil {
		return "", err
	}
	want, err := k.wanted(have, now, group)
	switch {
	case err != nil:
		return "", err
	case have != nil && have.same(want):
		return have.removable(), nil
	case have != nil && k.moved(have, now.since):
		return "", nil
	}
	k.opts.Log.Debug("a workload is registered", "workloadEntry", key.String(), "proxy", now.last.ID)
	return k.put(ctx, want)
}

// put gives the version of what is written, as removable does.
func (k *Keeper) put(ctx context.Context, e *Entry) (string, error) {
	version, err := k.opts.Entries.Put(ctx, e)
	if err != nil || !e.ofGroup() {
		return "", err
	}
	return version, nil
}

// moved reports whether the proxy has come to another replica since it came to this one, which an open stream need not know.
func (k *Keeper) moved(have *Entry, since time.Time) bool {
	at, err := time.Parse(time.RFC3339Nano, have.Annotations[AnnotationConnected])
	_, gone := have.goneSince()
	return err == nil && !gone && have.Annotations[AnnotationController] != k.opts.Controller && at.After(since)
}

// wanted gives the entry as it is to be.
func (k *Keeper) wanted(have *Entry, now *known, group *networking.WorkloadGroup) (*Entry, error) {
	p := now.last
	var want *Entry
	switch {
	case group != nil:
		if have != nil && !have.ofGroup() {
			return nil, fmt.Errorf("there is a WorkloadEntry of that name that is not of a group: remove or rename it")
		}
		want = made(group, p, k.opts.Controller, now.since)
	case have == nil:
		return nil, fmt.Errorf("there is no such WorkloadEntry: add it, or mend WORKLOAD_ENTRY of %s", p.ID)
	default:
		want = have.clone()
		want.connect(k.opts.Controller, now.since)
	}
	if have != nil {
		want.Version, want.Health = have.Version, have.Health
	}
	if now.health != nil {
		want.Health = now.health
	}
	return want, nil
}

// leave notes that a proxy has gone, and removes the entry once it has been away for long enough. It gives how long to
// wait until then. To remove an entry that is as this replica has left it takes no more than that: when many go at once, all
// of them are to be gone soon.
func (k *Keeper) leave(ctx context.Context, key Key, now *known) (version string, after time.Duration, err error) {
	if now.version != "" && k.overdue(now.gone) {
		return "", 0, k.remove(ctx, &Entry{Key: key, Version: now.version})
	}
	have, err := k.opts.Entries.Get(ctx, key)
	if err != nil || have == nil || have.Annotations[AnnotationController] != k.opts.Controller {
		return "", 0, err // removed, or its proxy has come to another replica
	}
	if have.ofGroup() && k.overdue(now.gone) {
		return "", 0, k.remove(ctx, have)
	}
	version = have.removable()
	if _, noted := have.goneSince(); !noted {
		next := have.clone()
		next.Annotations[AnnotationDisconnected] = now.gone.UTC().Format(time.RFC3339Nano)
		if have.Annotations[annotationHealthChecks] == "true" {
			next.Health = &Health{Message: "the proxy is not connected"}
		}
		if version, err = k.put(ctx, next); err != nil {
			return "", 0, err
		}
	}
	if !have.ofGroup() {
		return "", 0, nil
	}
	return version, max(time.Until(now.gone.Add(k.opts.Grace)), time.Nanosecond), nil
}

func (k *Keeper) remove(ctx context.Context, e *Entry) error {
	k.opts.Log.Debug("a workload is registered no more", "workloadEntry", e.String())
	return k.opts.Entries.Delete(ctx, e)
}

// overdue reports whether a proxy has been away for so long that its entry is to go.
func (k *Keeper) overdue(gone time.Time) bool {
	return !gone.IsZero() && time.Since(gone) >= k.opts.Grace
}

// sweep looks for entries whose proxies have gone for good: a replica noted it and did not live to remove them, or did not
// live to note it.
func (k *Keeper) sweep(ctx context.Context) {
	if err := k.sweepAll(ctx); err != nil && ctx.Err() == nil {
		k.opts.Log.Warn("entries of workloads that are gone are not all removed; it is tried again", "err", err)
	}
}

func (k *Keeper) sweepAll(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 6*patience)
	defer cancel()
	alive, err := k.opts.Entries.Alive(ctx, k.opts.Controller)
	if err != nil {
		return fmt.Errorf("find out which replicas live: %w", err)
	}
	list, err := k.opts.Entries.List(ctx)
	if err != nil {
		return err
	}
	k.mend(list)
	var failed []error
	for _, e := range list {
		if err := k.abandoned(ctx, e, alive); err != nil && !errors.Is(err, ErrConflict) {
			failed = append(failed, fmt.Errorf("WorkloadEntry %s: %w", e, err))
		}
	}
	return errors.Join(failed...)
}

// mend has entries of connected proxies looked at that are not as they were left: another replica may have taken this one for
// dead.
func (k *Keeper) mend(list []*Entry) {
	have := make(map[Key]*Entry, len(list))
	for _, e := range list {
		have[e.Key] = e
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for key, e := range k.known {
		if len(e.streams) == 0 || e.last.Group == "" {
			continue
		}
		x := have[key]
		if x == nil {
			k.soon(key, 0)
		} else if _, gone := x.goneSince(); gone || x.Annotations[AnnotationController] != k.opts.Controller && !k.moved(x, e.since) {
			k.soon(key, 0)
		}
	}
}

// abandoned notes or removes an entry that nobody sees to.
func (k *Keeper) abandoned(ctx context.Context, e *Entry, alive map[string]bool) error {
	at, gone := e.goneSince()
	switch {
	case k.knows(e.Key):
		return nil
	case gone && time.Since(at) >= 2*k.opts.Grace: // who noted it would have removed it by now
		return k.opts.Entries.Delete(ctx, e)
	case gone, alive[e.Annotations[AnnotationController]] && e.Annotations[AnnotationController] != k.opts.Controller:
		return nil
	}
	next := e.clone()
	next.Annotations[AnnotationDisconnected] = time.Now().UTC().Format(time.RFC3339Nano)
	_, err := k.opts.Entries.Put(ctx, next)
	return err
}

func (k *Keeper) knows(key Key) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	_, ok := k.known[key]
	return ok
}
