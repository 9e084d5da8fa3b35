package main

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/clusters/file"
	"github.com/isthmus-mesh/isthmus/pushcontext"
)

// starting stands between registries and the controller, and knows how far each has come while
// there is no snapshot that says so. Once the serving gate is open it only passes things on.
type starting struct {
	file.Lifecycle
	now func() time.Time

	mu     sync.Mutex
	shards map[model.ShardKey]*pushcontext.ShardInfo // guarded by mu; nil once the gate is open
}

func newStarting(to file.Lifecycle, now func() time.Time) *starting {
	return &starting{Lifecycle: to, now: now, shards: map[model.ShardKey]*pushcontext.ShardInfo{}}
}

// Attach implements file.Lifecycle.
func (s *starting) Attach(r model.Registry) {
	key := r.Key()
	s.mu.Lock()
	if s.shards != nil {
		s.shards[key] = &pushcontext.ShardInfo{Key: key, Status: model.Status{State: model.StateSyncing, Since: s.now()}}
		r = observed{r, s}
	}
	s.mu.Unlock()
	s.Lifecycle.Attach(r)
}

// Detach implements file.Lifecycle.
func (s *starting) Detach(k model.ShardKey) {
	s.mu.Lock()
	delete(s.shards, k)
	s.mu.Unlock()
	s.Lifecycle.Detach(k)
}

// open ends it: snapshots tell from now on.
func (s *starting) open() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.shards = nil
}

// infos describes the registries, by key.
func (s *starting) infos() []pushcontext.ShardInfo {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []pushcontext.ShardInfo
	for _, i := range s.shards {
		out = append(out, *i)
	}
	slices.SortFunc(out, func(a, b pushcontext.ShardInfo) int { return a.Key.Compare(b.Key) })
	return out
}

// note records what a registry says.
func (s *starting) note(k model.ShardKey, change func(*pushcontext.ShardInfo)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := s.shards[k]; i != nil {
		change(i)
	}
}

// missing names the registries that have not delivered everything yet.
func (s *starting) missing() []string {
	var out []string
	for _, i := range s.infos() {
		if !i.Synced {
			out = append(out, i.Key.String())
		}
	}
	return out
}

// errWaiting says what the serving gate waits for.
func (s *starting) errWaiting() error {
	missing := s.missing()
	if len(missing) == 0 {
		return errors.New("not ready: everything is read, and about to be published")
	}
	return errors.New("not ready: waiting for " + strings.Join(missing, ", "))
}

// progress logs what is awaited until the gate opens.
func (s *starting) progress(ctx context.Context, opened <-chan struct{}, log *slog.Logger) {
	t := time.NewTicker(5 * time.Second)
	defer t.Stop()
	for {
		select {
		case <-opened:
			s.open()
			return
		case <-ctx.Done():
			return
		case <-t.C:
			for _, i := range s.infos() {
				if !i.Synced {
					log.Info("waiting for a registry before serving", "cluster", i.Key.Cluster, "provider", i.Key.Provider,
						"for", s.now().Sub(i.Status.Since).Round(time.Second), "err", i.Status.Err)
				}
			}
		}
	}
}

// observed is a registry whose first steps are noted.
type observed struct {
	model.Registry
	s *starting
}

// Run implements model.Registry.
func (o observed) Run(ctx context.Context, out model.Sink) error {
	return o.Registry.Run(ctx, noting{out, o.s, o.Key()})
}

type noting struct {
	model.Sink
	s   *starting
	key model.ShardKey
}

// Replace implements model.Sink.
func (n noting) Replace(full *model.ShardState) {
	n.s.note(n.key, func(i *pushcontext.ShardInfo) { i.Synced, i.SyncedAt = true, n.s.now() })
	n.Sink.Replace(full)
}

// Status implements model.Sink.
func (n noting) Status(st model.Status) {
	n.s.note(n.key, func(i *pushcontext.ShardInfo) { i.Status = st })
	n.Sink.Status(st)
}
