package dns

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/miekg/dns"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
)

// How long an answer holds: its own time to live within bounds. A failed lookup is tried again sooner.
const (
	MinTTL   = 30 * time.Second
	MaxTTL   = time.Hour
	retryMin = 5 * time.Second
	retryMax = time.Minute
)

// Bounds on what names and servers can make of us.
const (
	maxNames    = 1000
	maxParallel = 16
	maxAddrs    = 64 // of one name
)

// Family is an address family.
type Family int

// The families, in the order of Resolver's answers.
const (
	IPv4 Family = iota
	IPv6
	families
)

// Answer is what a name has in one family. None is an answer too: authoritatively nothing.
type Answer struct {
	Addrs []netip.Addr
	TTL   time.Duration
}

// Resolver looks one name up in one family. An error means that nothing is known.
type Resolver interface {
	Lookup(ctx context.Context, name string, f Family) (Answer, error)
}

// Options configure a Registry.
type Options struct {
	Cluster  model.ClusterID // of the key: the config cluster
	Resolver Resolver        // default: NewClient with the machine's own files
	Log      *slog.Logger    // discards if nil
}

// Registry resolves names. Make one with New.
type Registry struct {
	key      model.ShardKey
	resolver Resolver
	log      *slog.Logger
	wake     chan struct{} // cap 1

	mu     sync.Mutex
	wanted []string // guarded by mu
}

// New gives the registry with the key dns/<cluster>.
func New(o Options) *Registry {
	r := &Registry{
		key: model.ShardKey{Provider: model.ProviderDNS, Cluster: o.Cluster}, resolver: o.Resolver, log: o.Log, wake: make(chan struct{}, 1),
	}
	if r.resolver == nil {
		r.resolver = NewClient(Files{})
	}
	if r.log == nil {
		r.log = slog.New(slog.DiscardHandler)
	}
	return r
}

// Key implements model.Registry.
func (r *Registry) Key() model.ShardKey { return r.key }

// Want sets the names to resolve; others are forgotten. It does not block, and the last call counts.
func (r *Registry) Want(names []string) {
	r.mu.Lock()
	r.wanted = slices.Clone(names)
	r.mu.Unlock()
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// names gives the names wanted now, in one spelling, and those that can't be looked up.
func (r *Registry) names() (good []string, bad map[string]string) {
	r.mu.Lock()
	wanted := slices.Clone(r.wanted)
	r.mu.Unlock()
	bad = map[string]string{}
	for _, n := range wanted {
		n = strings.ToLower(strings.TrimSuffix(n, "."))
		if _, ok := dns.IsDomainName(n); !ok || n == "" || len(n) > 253 {
			bad[n] = "it is not a DNS name"
			continue
		}
		good = append(good, n)
	}
	slices.Sort(good)
	good = slices.Compact(good)
	for _, n := range good[min(len(good), maxNames):] {
		bad[n] = fmt.Sprintf("only %d names are resolved", maxNames)
	}
	return good[:min(len(good), maxNames)], bad
}

// Run implements model.Registry.
func (r *Registry) Run(ctx context.Context, out model.Sink) error {
	ctx, cancel := context.WithCancel(ctx)
	n := &names{Registry: r, out: out, entries: map[string]*entry{}, results: make(chan result)}
	out.Replace(model.NewShardBuilder().Build())
	n.want()
	n.report()
	timer := time.NewTimer(MaxTTL)
	defer timer.Stop()
	for ctx.Err() == nil {
		timer.Reset(n.start(ctx))
		select {
		case <-ctx.Done():
		case <-r.wake:
			n.want()
			n.report()
		case res := <-n.results:
			n.take(res)
			n.report()
		case <-timer.C:
		}
	}
	cancel()
	n.running.Wait()
	return ctx.Err()
}

// names are the names being resolved in one run. They belong to Run's goroutine.
type names struct {
	*Registry
	out      model.Sink
	entries  map[string]*entry
	bad      map[string]string // names that can't be looked up, and why
	reported []model.Problem
	results  chan result
	active   int // lookups under way
	running  sync.WaitGroup
}

// entry is one name.
type entry struct {
	name    string
	due     time.Time
	busy    bool
	addrs   [families][]netip.Addr // as last answered
	known   bool                   // there is a row
	row     []netip.Addr           // as last reported
	failure string
	since   time.Time // of failure
	backoff time.Duration
}

// result is the outcome of looking a name up.
type result struct {
	entry   *entry
	answers [families]Answer
	errs    [families]error
}

// want takes the wanted names over.
func (n *names) want() {
	var good []string
	good, n.bad = n.names()
	for name := range n.entries {
		if _, still := slices.BinarySearch(good, name); !still {
			n.drop(name)
		}
	}
	now := time.Now()
	for _, name := range good {
		if n.entries[name] == nil {
			n.entries[name] = &entry{name: name, due: now}
		}
	}
}

func (n *names) drop(name string) {
	if n.entries[name].known {
		n.out.Put(model.Event{Row: rowKey(name)})
	}
	delete(n.entries, name)
}

// start begins the lookups that are due, and gives the time until the next is.
func (n *names) start(ctx context.Context) time.Duration {
	now, next := time.Now(), time.Now().Add(MaxTTL)
	for _, name := range slices.Sorted(maps.Keys(n.entries)) {
		e := n.entries[name]
		switch {
		case e.busy:
		case e.due.After(now):
			next = earlier(next, e.due)
		case n.active < maxParallel:
			e.busy = true
			n.active++
			n.running.Go(func() { n.lookup(ctx, e) })
		} // else one that ends makes room
	}
	return next.Sub(now)
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// lookup asks for both families side by side.
func (n *names) lookup(ctx context.Context, e *entry) {
	res := result{entry: e}
	var both sync.WaitGroup
	for f := range families {
		both.Go(func() { res.answers[f], res.errs[f] = n.resolver.Lookup(ctx, e.name, f) })
	}
	both.Wait()
	select {
	case n.results <- res:
	case <-ctx.Done():
	}
}

// take applies an answer. What failed keeps its last addresses.
func (n *names) take(res result) {
	n.active--
	e, now := res.entry, time.Now()
	e.busy = false
	if n.entries[e.name] != e {
		return // no longer wanted
	}
	ttl, answered := MaxTTL, false
	for f := range families {
		if res.errs[f] == nil {
			e.addrs[f], answered = res.answers[f].Addrs, true
			ttl = min(ttl, res.answers[f].TTL)
		}
	}
	e.due = now.Add(max(ttl, MinTTL))
	n.fail(e, res.errs, now)
	if answered {
		n.put(e, now)
	}
}

// fail notes why a name could not be looked up, wholly or in part.
func (n *names) fail(e *entry, errs [families]error, now time.Time) {
	text := ""
	for f, word := range [families]string{"IPv4", "IPv6"} {
		if errs[f] != nil {
			text += "; " + word + ": " + errs[f].Error()
		}
	}
	if text == "" {
		e.failure, e.backoff = "", 0
		return
	}
	e.backoff = min(max(2*e.backoff, retryMin), retryMax)
	e.due = earlier(e.due, now.Add(e.backoff))
	if e.failure == "" {
		e.since = now
		n.log.Warn("name not resolved, its last addresses stay", "host", e.name, "err", text[2:], "addresses", len(e.row))
	}
	e.failure = text[2:]
}

// put reports the addresses of a name if they are not those reported last.
func (n *names) put(e *entry, now time.Time) {
	addrs := slices.Concat(e.addrs[IPv4], e.addrs[IPv6])
	slices.SortFunc(addrs, netip.Addr.Compare)
	addrs = slices.Compact(addrs)
	if len(addrs) > maxAddrs {
		n.log.Warn("name has too many addresses", "host", e.name, "addresses", len(addrs), "used", maxAddrs)
		addrs = addrs[:maxAddrs]
	}
	if e.known && slices.Equal(e.row, addrs) {
		return
	}
	e.known, e.row = true, addrs
	n.out.Put(model.Event{Row: rowKey(e.name), Obj: &model.Config{
		Kind: model.ConfigResolvedHost, Name: e.name, Spec: &model.ResolvedHost{Addrs: addrs},
		Source: model.Source{Shard: n.key, Object: objectKey(e.name), Time: now},
	}})
}

func objectKey(name string) model.ObjectKey {
	return model.ObjectKey{Kind: model.ConfigResolvedHost, Name: name}
}

func rowKey(name string) model.RowKey {
	return model.RowKey{Kind: model.RowConfig, Key: objectKey(name).String()}
}

// report tells which names are not resolved, if that is news.
func (n *names) report() {
	problems := []model.Problem{}
	for name, why := range n.bad {
		problems = append(problems, model.Problem{Item: name, Reason: "not resolved: " + why})
	}
	for _, e := range n.entries {
		if e.failure != "" {
			problems = append(problems, model.Problem{Item: e.name, Reason: "not resolved: " + e.failure, Since: e.since})
		}
	}
	slices.SortFunc(problems, func(a, b model.Problem) int { return strings.Compare(a.Item, b.Item) })
	if n.reported != nil && slices.Equal(n.reported, problems) {
		return
	}
	n.reported = problems
	n.out.Status(model.Status{State: model.StateLive, Problems: problems})
}
