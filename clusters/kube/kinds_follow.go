package kube

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/isthmus-mesh/isthmus/kubeapi"
)

// The feeds that tell which kinds there are.
const (
	discovery   = "discovery"
	definitions = "CustomResourceDefinition"
)

// kinds follows which custom kinds the API server serves, and runs a feed for each. Definitions of kinds
// tell when to look; without the right to read them it looks from time to time. It is owned by the
// goroutine that runs it, but for what mu guards.
type kinds struct {
	run     *run
	wanted  []custom
	defined *defined
	changed chan struct{} // what is served may have changed
	feeds   map[string]*customFeed
	doubts  map[string]func(op string, err error) // outcomes of looks for kinds that are not known to be served or not

	mu      sync.Mutex
	looked  bool            // the first look has been
	doubted map[string]bool // the keys of doubts
	running map[string]*table
}

// customFeed is a feed that runs.
type customFeed struct {
	version string
	table   *table
	stop    context.CancelFunc
	done    chan struct{}
	missing time.Time // since when it is not served; zero if it is
}

// kindState is what is known of a custom kind.
type kindState int

const (
	kindPending  kindState = iota
	kindAbsent             // it is not served
	kindHopeless           // it is served, or may be, and can't be read
	kindRead
)

func newKinds(r *run) *kinds {
	k := &kinds{run: r, wanted: optional(r.opts), changed: make(chan struct{}, 1),
		feeds: map[string]*customFeed{}, doubts: map[string]func(string, error){}, doubted: map[string]bool{}, running: map[string]*table{}}
	k.defined = &defined{changed: k.poke, names: map[string]bool{}}
	return k
}

// definitions reads the names of the definitions of custom kinds, and nothing else of them.
func (k *kinds) definitions() *kubeapi.Feed {
	at := kubeapi.Place{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	return k.run.api.Feed(definitions, at, kubeapi.Helpful, func() runtime.Object { return &metav1.PartialObjectMetadataList{} }, k.defined)
}

// poke makes it look soon.
func (k *kinds) poke() {
	select {
	case k.changed <- struct{}{}:
	default:
	}
}

// follow looks at what is served until ctx ends, and joins its feeds.
func (k *kinds) follow(ctx context.Context) {
	defer func() {
		for _, f := range k.feeds {
			f.end()
		}
	}()
	t := k.run.opts.Timing
	retry := k.run.api.Backoff()
	for ctx.Err() == nil {
		wait := kubeapi.Jitter(t.Discovery)
		found, failed, err := k.discover(ctx)
		if ctx.Err() != nil {
			return
		}
		if err == nil {
			if k.apply(ctx, found, failed, time.Now()) {
				wait = min(wait, t.Absent)
			}
			k.doubt(failed)
			err = anyOf(failed)
		}
		if err != nil {
			wait = min(wait, retry.After(err))
		} else {
			retry.Reset()
		}
		k.await(ctx, wait)
	}
}

// doubt notes after a look which kinds could not be looked for.
func (k *kinds) doubt(failed map[string]error) {
	for _, c := range k.wanted {
		err, outcome := failed[c.kind], k.doubts[c.kind]
		switch {
		case err != nil && k.feeds[c.kind] != nil: // it is read in the version that is known
		case err != nil:
			if outcome == nil {
				outcome = k.run.api.Track(c.kind, kubeapi.Place{Group: c.group, Resource: c.resource}, kubeapi.Optional)
				k.doubts[c.kind] = outcome
			}
			outcome(kubeapi.Look, err)
		case outcome != nil:
			delete(k.doubts, c.kind)
			if k.feeds[c.kind] == nil {
				k.run.api.Forget(c.kind)
			}
		}
	}
	k.mu.Lock()
	k.looked, k.doubted = true, map[string]bool{}
	for kind := range k.doubts {
		k.doubted[kind] = true
	}
	k.mu.Unlock()
	k.run.queue.poke()
}

// anyOf gives one of the errors; they are of one server.
func anyOf(errs map[string]error) error {
	for _, err := range errs {
		return err
	}
	return nil
}

// await waits for the time of the next look. Definitions come in groups, so they are given a moment.
func (k *kinds) await(ctx context.Context, wait time.Duration) {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	case <-k.run.api.Back():
	case <-k.changed:
		k.run.api.Pause(ctx, k.run.api.Timing().Retry)
	}
}

// apply starts and stops feeds. It reports whether a kind may be going.
func (k *kinds) apply(ctx context.Context, found map[string]string, failed map[string]error, now time.Time) (doubt bool) {
	for _, c := range k.wanted {
		f, v := k.feeds[c.kind], found[c.kind]
		switch {
		case f == nil && v == "", failed[c.kind] != nil:
		case f == nil:
			k.start(ctx, c, v, k.run.table(c.kind))
		case v == f.version:
			f.missing = time.Time{}
		case v != "": // the other version holds the same objects
			f.end()
			k.start(ctx, c, v, f.table)
		case k.gone(c, f, now):
			f.end()
			k.drop(c.kind)
			f.table.clear()
		default:
			doubt = true
		}
	}
	return doubt
}

// gone decides whether a kind that is not served at the moment is so for good: its definition is known
// not to exist, or it has been missing for long enough. A server that starts may not serve it yet.
func (k *kinds) gone(c custom, f *customFeed, now time.Time) bool {
	if f.missing.IsZero() {
		f.missing = now
	}
	if k.run.api.Of(definitions).OK() {
		if exists, known := k.defined.has(c.definition()); known {
			return !exists
		}
	}
	return now.Sub(f.missing) >= k.run.opts.Timing.Absent
}

func (k *kinds) start(ctx context.Context, c custom, v string, t *table) {
	ctx, stop := context.WithCancel(ctx)
	at := kubeapi.Place{Group: c.group, Version: v, Resource: c.resource}
	f := k.run.api.Feed(c.kind, at, kubeapi.Optional, func() runtime.Object { return kubeapi.NewRawList(c.group+"/"+v, c.served()) }, t)
	f.Missing = k.poke
	cf := &customFeed{version: v, table: t, stop: stop, done: make(chan struct{})}
	k.feeds[c.kind] = cf
	k.mu.Lock()
	k.running[c.kind] = t
	k.mu.Unlock()
	go func() {
		defer close(cf.done)
		f.Run(ctx)
	}()
}

// end stops the feed and waits for it.
func (f *customFeed) end() {
	f.stop()
	<-f.done
}

// drop forgets a kind whose feed has ended.
func (k *kinds) drop(kind string) {
	delete(k.feeds, kind)
	k.mu.Lock()
	delete(k.running, kind)
	k.mu.Unlock()
	k.run.api.Forget(kind)
}

// state gives what is known of a kind.
func (k *kinds) state(kind string) kindState {
	k.mu.Lock()
	t, looked, doubted := k.running[kind], k.looked, k.doubted[kind]
	k.mu.Unlock()
	switch {
	case t != nil && t.ready():
		return kindRead
	case t == nil && looked && !doubted:
		return kindAbsent
	case k.run.api.Of(kind).Hopeless(), !looked && k.run.api.Of(discovery).Refused():
		return kindHopeless
	}
	return kindPending
}

// each yields the tables of the kinds that are read.
func (k *kinds) each(yield func(*table)) {
	k.mu.Lock()
	tables := slices.Collect(maps.Values(k.running))
	k.mu.Unlock()
	for _, t := range tables {
		yield(t)
	}
}

// served is the kind as the server has it.
func (c custom) served() string {
	if c.kind == KindKubernetesGateway {
		return "Gateway"
	}
	return c.kind
}

// definition is the name of a kind's definition.
func (c custom) definition() string { return c.resource + "." + c.group }
