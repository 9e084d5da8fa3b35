package envoytest_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/isthmus-mesh/isthmus/test/envoy/envoytest"
)

func TestTrafficCounts(t *testing.T) {
	t.Parallel()
	var calls atomic.Int64
	first := errors.New("the tenth")
	tr := envoytest.StartTraffic(t, 1, func(context.Context) error {
		switch n := calls.Add(1); {
		case n == 10:
			return first
		case n%10 == 0:
			return errors.New("a later one")
		}
		return nil
	})
	for range 2 {
		if err := tr.Wait(t.Context(), 50); err != nil {
			t.Fatal(err)
		}
	}
	got := tr.Stop()
	if got.OK+got.Failed < 100 || got.Failed != (got.OK+got.Failed)/10 || !errors.Is(got.First, first) {
		t.Errorf("got %+v", got)
	}
	if err := tr.Wait(t.Context(), 1); !errors.Is(err, envoytest.ErrTrafficEnded) {
		t.Errorf("waiting after the end gives %v", err)
	}
}

// Requests that the end of the load cuts are no failures.
func TestTrafficStopCutsQuietly(t *testing.T) {
	t.Parallel()
	started := make(chan struct{})
	tr := envoytest.StartTraffic(t, 3, func(ctx context.Context) error {
		started <- struct{}{}
		<-ctx.Done()
		return ctx.Err()
	})
	for range 3 {
		<-started
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := tr.Wait(ctx, 1); !errors.Is(err, context.Canceled) {
		t.Errorf("waiting gives %v, want the end of its context", err)
	}
	if got := tr.Stop(); got != (envoytest.Report{}) {
		t.Errorf("got %+v, want nothing counted", got)
	}
}
