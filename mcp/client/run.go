package client

import (
	"context"
	"fmt"
	"hash/maphash"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/clusters/kube"
)

// Client is the registry of an MCP server, or of several with the same configuration.
type Client struct{ opts Options }

// New gives the registry with the key mcp/<name>.
func New(o Options) *Client { return &Client{o.withDefaults()} }

// Key implements model.Registry.
func (c *Client) Key() model.ShardKey {
	return model.ShardKey{Provider: model.ProviderMCP, Cluster: c.opts.Name}
}

// Run implements model.Registry. The first Replace comes when every kind has been answered for, or had its time.
func (c *Client) Run(ctx context.Context, out model.Sink) error {
	r := newRun(&c.opts, c.Key(), out)
	again := backoff{least: c.opts.Timing.Retry, most: c.opts.Timing.RetryMax}
	for {
		for _, address := range c.opts.Addresses {
			began := time.Now()
			err := r.converse(ctx, address)
			if ctx.Err() != nil {
				return ctx.Err()
			}
			r.lost(address, err)
			if r.live && time.Since(began) >= again.most { // else it may well do so again, and each time it sends everything
				again.reset()
			}
			if r.live { // it worked, so the first is to be tried first
				break
			}
		}
		timer := time.NewTimer(c.opts.Jitter(again.wait()))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		}
	}
}

// run is the state of one Run, owned by its goroutine.
type run struct {
	opts     *Options
	key      model.ShardKey
	out      model.Sink
	reader   reader
	store    *kube.Store
	kinds    []*kind
	byURL    map[string]*feed
	full     map[string]bool // servers, by address, that have the state of the world only
	mesh     *model.Config   // the mesh-wide settings; nil if there are none
	count    int             // of objects
	skipped  map[skip]int
	synced   bool   // the first full truth has been given
	why      string // there is no contact; "" if there is
	news     bool   // what is wrong may have changed, apart from objects
	reporter reporter

	// Of the stream at hand, or the last one.
	live       bool      // all has been said
	given      bool      // something has been said
	answeredAt time.Time // when a type was last asked for, or answered for the first time
	pending    map[*feed]later
}

func newRun(o *Options, key model.ShardKey, out model.Sink) *run {
	r := &run{
		opts: o, key: key, out: out, full: map[string]bool{}, skipped: map[skip]int{},
		reader: reader{hub: o.Hub, revision: o.Revision, seed: maphash.MakeSeed()},
		store: kube.NewStore(kube.Converter{Shard: key, DomainSuffix: o.DomainSuffix, TrustDomain: o.TrustDomain,
			SystemNamespace: o.SystemNamespace, ConfigCluster: o.ConfigCluster}),
		reporter: reporter{log: o.Log.With("cluster", key.Cluster, "provider", key.Provider)},
	}
	for _, address := range o.Addresses {
		r.full[address] = o.NoDelta
	}
	r.kinds, r.byURL = newKinds()
	return r
}

// taken is what came of a response.
type taken struct {
	names    []string // of the objects in it
	refusals []string
	changed  bool // it has said something new
}

func (t *taken) refuse(f *feed, name, why string) {
	if why = shortened(why); f.faults[name] != why && len(f.faults) < maxFaults {
		f.faults[name], t.changed = why, true
	}
	t.refusals = append(t.refusals, why)
}

const maxFaults = 1000

// take brings what a type URL holds up to date.
func (r *run) take(f *feed, m *message) (t taken) {
	seen, whole := map[string]bool{}, m.full
	for _, res := range m.resources {
		name, it, err := r.reader.read(f.kind, res, f.objects)
		if err == nil && f.objects[name] == nil && r.count >= r.opts.Limits.Objects {
			err = fmt.Errorf("%s: there are more than %d objects", name, r.opts.Limits.Objects)
		}
		seen[name] = true
		if err != nil {
			t.refuse(f, name, err.Error())
			whole = whole && name != "" // else it may be any object that is not in the list
			continue
		}
		t.changed = r.put(f, name, it) || t.changed
		t.names = append(t.names, name)
	}
	for _, name := range m.removed {
		t.changed = r.drop(f, name) || t.changed
	}
	if whole {
		for name := range f.objects {
			if !seen[name] {
				t.changed = r.drop(f, name) || t.changed
			}
		}
	}
	if m.full {
		maps.DeleteFunc(f.faults, func(name, _ string) bool { return !seen[name] })
	}
	r.opts.Metrics.skips(r.key.Cluster, r.skipped)
	return t
}

// put notes an object, and reports whether it is another one.
func (r *run) put(f *feed, name string, it *item) bool {
	delete(f.faults, name)
	if f.objects[name] == it {
		return false
	}
	r.drop(f, name)
	f.objects[name], f.kind.touched[name] = it, struct{}{}
	r.count++
	r.skipped[it.skip]++
	return true
}

// drop forgets an object, and reports whether there was one.
func (r *run) drop(f *feed, name string) bool {
	delete(f.faults, name)
	it := f.objects[name]
	if it == nil {
		return false
	}
	delete(f.objects, name)
	f.kind.touched[name] = struct{}{}
	r.count--
	r.skipped[it.skip]--
	return true
}

// settle notes that the server has said what there is of a kind, if it has. What it held under versions that were not
// asked for, or not answered, it holds under others now, or no more.
func (r *run) settle(k *kind, enough bool) {
	if k.settled || !k.said(enough) {
		return
	}
	k.settled, r.news = true, true
	for _, f := range k.feeds {
		if f.answered {
			continue
		}
		for name := range f.objects {
			r.drop(f, name)
		}
	}
}

// reconcile puts in force what the server says of a kind, once it has said all.
func (r *run) reconcile(k *kind) {
	if !k.settled || len(k.touched) == 0 {
		return
	}
	events := r.store.Apply(k.change())
	if r.synced && len(events) > 0 {
		r.out.Put(events...)
	}
	r.opts.Metrics.holds(r.key.Cluster, k.Name, len(k.applied))
}

// refused says which objects of a response are not in force, and why.
func (r *run) refused(k *kind, names []string) (out []string) {
	for _, name := range names {
		it := k.applied[name]
		if it == nil {
			continue
		}
		for _, f := range r.store.Refused(it.object.Ref) {
			if f.Severity != model.SeverityError {
				break
			}
			why := f.Message
			if f.Field != "" {
				why = f.Field + ": " + why
			}
			out = append(out, shortened(name+": "+why))
		}
	}
	return out
}

// enough reports whether kinds without an answer have had their time.
func (r *run) enough(now time.Time) bool {
	return !now.Before(r.answeredAt.Add(r.opts.Timing.Answer))
}

// sync notes that all has been said, and gives the first full truth.
func (r *run) sync() {
	r.live, r.why = true, ""
	if r.synced {
		return
	}
	r.synced = true
	state := r.store.State()
	if r.mesh != nil {
		state = state.With(model.Event{Row: meshRow, Obj: r.mesh})
	}
	r.out.Replace(state)
}

// lost notes why there is no contact.
func (r *run) lost(address string, err error) {
	r.why = shortened(address + ": " + r.opts.hide(reason(err)))
	r.report(time.Now())
}

const maxTold = 20

// told is what a server is told of what was refused.
func told(refusals []string) string {
	if more := len(refusals) - maxTold; more > 0 {
		refusals = append(slices.Clone(refusals[:maxTold]), fmt.Sprintf("and %d more", more))
	}
	return strings.Join(refusals, "; ")
}

// shortened bounds what others say, and makes it fit to be shown: a terminal would obey some characters. Valid names stay as they are.
func shortened(s string) string {
	const most = 512
	end := ""
	if len(s) > most {
		s, end = strings.ToValidUTF8(s[:most], ""), "…"
	}
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '\uFFFD'
		}
		return r
	}, s) + end
}
