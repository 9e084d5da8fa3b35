package main

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	meshconfig "istio.io/api/mesh/v1alpha1"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/clusters/memory"
)

// follow runs a settings box and notes what it gives; "" stands for the defaults.
func follow(t *testing.T, s *settings) (got chan string, stop func()) {
	t.Helper()
	got = make(chan string, 10)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- s.follow(ctx, func(m *meshconfig.MeshConfig) { got <- m.GetTrustDomain() }, func() { got <- "" })
	}()
	return got, func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

// TestSettingsWaitForCredentials: who reads the settings goes on only when all sources have told their claims,
// though not for ever.
func TestSettingsWaitForCredentials(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSettings([]string{"a", "b"})
		got, stop := follow(t, s)
		defer stop()
		taken := make(chan struct{})
		go func() {
			s.take(&meshconfig.MeshConfig{TrustDomain: "one"})
			close(taken)
		}()
		if m := <-got; m != "one" {
			t.Errorf("configured with %q", m)
		}
		s.told.tick("a")
		s.told.tick("a")
		s.told.tick("nobody")
		synctest.Wait()
		select {
		case <-taken:
			t.Fatal("source b was not waited for")
		default:
		}
		s.told.tick("b")
		<-taken
		s.take(&meshconfig.MeshConfig{TrustDomain: "two"}) // at once now
		if m := <-got; m != "two" {
			t.Errorf("configured with %q", m)
		}
	})
}

func TestSettingsDoNotWaitForEver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSettings([]string{"silent"})
		got, stop := follow(t, s)
		start := time.Now()
		s.take(nil)
		if waited := time.Since(start); waited != settingsWait {
			t.Errorf("waited %s", waited)
		}
		<-got
		stop()
		s.take(nil) // nobody follows any more
	})
}

func TestSettingsThatDoNotCome(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSettings(nil)
		got, stop := follow(t, s)
		defer stop()
		start := time.Now()
		if m := <-got; m != "" || time.Since(start) != settingsWait {
			t.Errorf("configured with %q after %s", m, time.Since(start))
		}
		s.take(&meshconfig.MeshConfig{TrustDomain: "late"})
		if m := <-got; m != "late" {
			t.Errorf("configured with %q", m)
		}
	})
}

// TestAwaitedRegistry: it runs what it is given, however late, and only the first.
func TestAwaitedRegistry(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		key := model.ShardKey{Provider: model.ProviderMesh, Cluster: "east"}
		a := &awaited{key: key, ready: make(chan struct{})}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- a.Run(ctx, nil) }()
		synctest.Wait()
		cancel()
		if err := <-ended; err == nil {
			t.Error("it ended well without a registry")
		}
		first := &counted{Registry: memory.New(key)}
		if !a.use(first) || a.use(&counted{}) || a.Key() != key {
			t.Error("the first registry is not the one")
		}
		for range 2 { // a run that fails is tried again
			if err := a.Run(t.Context(), nil); err != nil {
				t.Error(err)
			}
		}
		if first.runs != 2 {
			t.Errorf("it ran %d times", first.runs)
		}
	})
}

// counted counts its runs.
type counted struct {
	model.Registry
	runs int
}

// Run implements model.Registry.
func (c *counted) Run(context.Context, model.Sink) error {
	c.runs++
	return nil
}
