package kube

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/kubeapi"
)

// session is what one Run of a registry has to do with an API server: its connections, what is read over
// them, and how that goes.
type session struct {
	opts     Options
	key      model.ShardKey
	out      model.Sink
	api      *kubeapi.Client
	queue    *queue
	runs     []func(context.Context) // what reads from the start to the end
	reporter reporter                // owned by the worker
}

func newSession(o Options, key model.ShardKey, out model.Sink) (*session, error) {
	s := &session{opts: o, key: key, out: out, queue: newQueue(), reporter: reporter{log: o.Log, key: key, replaces: o.Needs != nil}}
	api, err := kubeapi.Connect(kubeapi.Options{
		Config: o.Config, QPS: o.QPS, Burst: o.Burst, Timing: o.Timing.Timing, MaxObjects: o.MaxObjects, Role: o.role(),
		Failed:  func(feed string, f kubeapi.Failure) { o.Metrics.failed(o.Cluster, feed, f) },
		Listed:  func(objects int, took time.Duration) { o.Metrics.listed(o.Cluster, objects, took) },
		Changed: s.queue.complain,
	})
	if err != nil {
		return nil, fmt.Errorf("the credential can't be used: %w", err)
	}
	s.api = api
	return s, nil
}

// role is the manifest with the rights that the credential needs.
func (o Options) role() string {
	if o.ConfigCluster {
		return "deploy/rbac-primary.yaml"
	}
	return "deploy/rbac-remote.yaml"
}

// read reads a built-in kind, and gives the table that it is read into.
func (s *session) read(b builtin, need kubeapi.Need) *table {
	t := s.table(b.kind)
	s.runs = append(s.runs, s.api.Feed(b.name(), b.at, need, b.page, t).Run)
	return t
}

func (s *session) table(kind string) *table {
	return newTable(kind, s.opts.MaxObjects, s.queue, s.opts.Metrics.event)
}

// follow reads, and takes a turn whenever something has changed, until ctx ends. All that it started has ended when
// it returns.
func (s *session) follow(ctx context.Context, turn func()) error {
	var reading sync.WaitGroup
	defer reading.Wait()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	reading.Go(func() { s.api.Run(ctx, s.runs...) })
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

// report tells the sink how it stands, if that has changed, with problems as the reporter lists them. Before
// the first full truth a reason of the registry's own may say what it waits for.
func (s *session) report(synced bool, waiting string, problems []model.Problem) {
	state, why := model.StateLive, s.api.Lost()
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
