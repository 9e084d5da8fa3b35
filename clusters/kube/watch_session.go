package kube

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
)

// session is what one Run of a registry has to do with an API server: its connections, what is read over
// them, and how that goes.
type session struct {
	opts     Options
	key      model.ShardKey
	out      model.Sink
	api      *api
	queue    *queue
	contact  *contact
	feeds    []*feed  // that run from the start to the end
	reporter reporter // owned by the worker
}

func newSession(o Options, key model.ShardKey, out model.Sink) (*session, error) {
	cfg := rest.CopyConfig(o.Config)
	cfg.QPS, cfg.Burst, cfg.UserAgent = o.QPS, o.Burst, "isthmus"
	cfg.WarningHandler, cfg.WarningHandlerWithContext = rest.NoWarnings{}, nil
	a, err := connect(cfg, o.Timing)
	if err != nil {
		return nil, fmt.Errorf("the credential can't be used: %w", err)
	}
	s := &session{opts: o, key: key, out: out, api: a, queue: newQueue(), reporter: reporter{log: o.Log, key: key, replaces: o.Needs != nil}}
	s.contact = newContact(a.host, func(kind string, f failure) { o.Metrics.failed(o.Cluster, kind, f) }, s.queue.complain)
	return s, nil
}

// read adds a feed of a built-in kind and gives the table that it fills.
func (s *session) read(b builtin, need need) *table {
	t := s.table(b.kind)
	s.feeds = append(s.feeds, s.feed(b.at, s.api.core, b.page, t, s.contact.track(b.name(), b.at, need)))
	return t
}

func (s *session) table(kind string) *table {
	return newTable(kind, s.opts.MaxObjects, s.queue, s.opts.Metrics.event)
}

func (s *session) feed(at place, c *rest.RESTClient, page func() runtime.Object, to store, outcome func(string, error)) *feed {
	listed := func(objects int, took time.Duration) { s.opts.Metrics.listed(s.opts.Cluster, objects, took) }
	return &feed{api: s.api, timing: s.api.timing, limit: s.opts.MaxObjects, at: at, client: c, page: page, store: to, outcome: outcome, pause: s.contact.pause, listed: listed}
}

// follow runs the feeds, and others, and takes a turn whenever something has changed, until ctx ends. All
// that it started has ended when it returns.
func (s *session) follow(ctx context.Context, turn func(), others ...func(context.Context)) error {
	var all sync.WaitGroup
	ctx, stop := context.WithCancel(klog.NewContext(ctx, logr.Discard())) // how requests went is told by us, once
	defer s.api.close()
	defer all.Wait()
	defer stop()
	for _, f := range s.feeds {
		others = append(others, f.run)
	}
	all.Go(func() {
		if s.knock(ctx) {
			for _, run := range others {
				all.Go(func() { run(ctx) })
			}
		}
	})
	s.queue.poke()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-s.queue.wake:
			turn()
		}
	}
}

// knock waits for the API server's first answer, whatever it is, so that all that follows shares the
// connection. It reports whether ctx has not ended meanwhile.
func (s *session) knock(ctx context.Context) bool {
	const first = "first answer"
	outcome := s.contact.track(first, place{}, helpfulKind)
	defer s.contact.forget(first)
	for retry := s.api.timing.backoff(); ; {
		err := s.api.ping(ctx)
		if f, _ := s.contact.explain(place{}, "get", err); f != failContact || ctx.Err() != nil {
			return ctx.Err() == nil
		}
		outcome("get", err)
		if !s.contact.pause(ctx, retry.after(err)) {
			return false
		}
	}
}

// report tells the sink how it stands, if that has changed, with problems as the reporter lists them. Before
// the first full truth a reason of the registry's own may say what it waits for.
func (s *session) report(synced bool, waiting string, problems []model.Problem) {
	state, why := model.StateLive, s.contact.lost()
	switch {
	case !synced:
		state = model.StateSyncing
		if why == "" {
			why = waiting
		}
	case why != "":
		state = model.StateStale
	}
	if st, changed := s.reporter.report(time.Now(), state, why, problems); changed {
		s.out.Status(st)
	}
}
