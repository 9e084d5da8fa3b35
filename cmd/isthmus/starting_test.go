package main

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
)

// fakeRegistry does what it is told.
type fakeRegistry struct {
	key model.ShardKey
	do  func(model.Sink)
}

func (r fakeRegistry) Key() model.ShardKey { return r.key }

func (r fakeRegistry) Run(_ context.Context, out model.Sink) error {
	r.do(out)
	return nil
}

type nowhere struct{}

func (nowhere) Replace(*model.ShardState) {}
func (nowhere) Put(model.Event)           {}
func (nowhere) Status(model.Status)       {}

// lifecycle runs what is attached.
type lifecycle struct {
	t    *testing.T
	seen []model.ShardKey
}

func (l *lifecycle) Attach(r model.Registry) {
	l.seen = append(l.seen, r.Key())
	if err := r.Run(l.t.Context(), nowhere{}); err != nil {
		l.t.Error(err)
	}
}

func (l *lifecycle) Detach(k model.ShardKey) { l.seen = append(l.seen, k) }

func fileKey(c model.ClusterID) model.ShardKey {
	return model.ShardKey{Provider: model.ProviderFile, Cluster: c}
}

func TestStartingKnowsWhatIsMissing(t *testing.T) {
	t.Parallel()
	s := newStarting(&lifecycle{t: t}, time.Now)
	s.Attach(fakeRegistry{fileKey("east"), func(out model.Sink) { out.Replace(model.NewShardBuilder().Build()) }})
	s.Attach(fakeRegistry{fileKey("west"), func(out model.Sink) {
		out.Status(model.Status{State: model.StateStale, Err: "the folder is locked"})
	}})
	if got := s.errWaiting().Error(); got != "not ready: waiting for file/west" {
		t.Errorf("waiting: %q", got)
	}
	if i := s.infos(); len(i) != 2 || !i[0].Synced || i[1].Status.Err != "the folder is locked" {
		t.Errorf("infos: %+v", i)
	}
	s.Detach(fileKey("west"))
	if got := s.errWaiting().Error(); !strings.Contains(got, "about to be published") {
		t.Errorf("with nothing missing: %q", got)
	}
	s.open()
	if i := s.infos(); len(i) != 0 {
		t.Errorf("open, and still infos: %+v", i)
	}
	s.Attach(fakeRegistry{fileKey("north"), func(out model.Sink) { out.Replace(model.NewShardBuilder().Build()) }})
	if i := s.infos(); len(i) != 0 {
		t.Errorf("attached later, and noted: %+v", i)
	}
}

func TestStartingLogsProgress(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var text bytes.Buffer
		s := newStarting(&lifecycle{t: t}, time.Now)
		s.Attach(fakeRegistry{fileKey("west"), func(model.Sink) {}})
		opened, done := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(done)
			s.progress(t.Context(), opened, slog.New(slog.NewTextHandler(&text, nil)))
		}()
		<-time.After(11 * time.Second) // of the bubble's own time
		synctest.Wait()
		close(opened)
		<-done
		if n := strings.Count(text.String(), "waiting for a registry"); n != 2 || !strings.Contains(text.String(), "cluster=west") {
			t.Errorf("%d lines:\n%s", n, &text)
		}
	})
}

func TestStartingEndsWithItsContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	newStarting(&lifecycle{t: t}, time.Now).progress(ctx, make(chan struct{}), slog.New(slog.DiscardHandler))
}
