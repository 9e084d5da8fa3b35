package aggregate

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/pushcontext"
)

// doing is a registry that runs a function.
type doing struct {
	key model.ShardKey
	run func(context.Context, model.Sink) error
}

func (d doing) Key() model.ShardKey                           { return d.key }
func (d doing) Run(ctx context.Context, out model.Sink) error { return d.run(ctx, out) }

func untilDone(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

// The writer sleeps whatever it waits for: it takes a turn when something came or is due, and no other.
func TestWriterDoesNotSpin(t *testing.T) {
	t.Parallel()
	full := func(out model.Sink) { out.Replace(model.NewShardBuilder().Build()) }
	for name, tc := range map[string]struct {
		run  func(context.Context, model.Sink) error
		most int // turns in 10 s
	}{
		"idle": {func(ctx context.Context, out model.Sink) error {
			full(out)
			return untilDone(ctx)
		}, 110},
		"a scrub is due while pushing delays a commit": {func(ctx context.Context, out model.Sink) error {
			full(out)
			tick := time.NewTicker(70 * time.Millisecond)
			defer tick.Stop()
			for n := 0; ; n++ {
				select {
				case <-ctx.Done():
					return ctx.Err()
				case <-tick.C:
				}
				rk, s := svcRow(benchKey(0), "a", model.Labels{"n": time.Duration(n).String()})
				s.Ports[0].Number = uint16(1 + n)
				out.Put(model.Event{Row: rk, Obj: s})
			}
		}, 400},
		"the gate is closed": {func(ctx context.Context, out model.Sink) error {
			out.Status(model.Status{State: model.StateStale, Err: "no contact"})
			return untilDone(ctx)
		}, 10},
		"stale": {func(ctx context.Context, out model.Sink) error {
			full(out)
			out.Status(model.Status{State: model.StateStale})
			return untilDone(ctx)
		}, 110},
		"failing": {func(context.Context, model.Sink) error { return errors.New("no") }, 40},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := New(Options{Hub: pushcontext.NewHub(nil), ScrubEvery: 100 * time.Millisecond, StaleAfter: 5 * time.Second})
				ctx, cancel := context.WithCancel(t.Context())
				c.Attach(doing{benchKey(0), tc.run})
				if turns := c.follow(ctx, 10*time.Second, tc.most+1); turns > tc.most {
					t.Errorf("more than %d turns in 10 s", tc.most)
				}
				cancel()
				if err := c.shutdown(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// follow takes turns as Run does, for some time and up to a number, and gives the number taken.
func (c *Controller) follow(ctx context.Context, d time.Duration, most int) (turns int) {
	for end := time.Now().Add(d); time.Now().Before(end) && turns < most; turns++ {
		c.PushCost(time.Minute)
		if c.turn(ctx) {
			continue
		}
		select {
		case <-c.wakeup:
		case e := <-c.exits:
			c.exited(e)
		case <-time.After(time.Until(c.nextTime())):
		}
	}
	return turns
}

func counted(t *testing.T, c prometheus.Counter) float64 {
	t.Helper()
	r := prometheus.NewRegistry()
	r.MustRegister(c)
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	return families[0].Metric[0].GetCounter().GetValue()
}

// A check of many rows lets the writer go between steps, and leaves alone what changes meanwhile.
func TestScrubTakesSteps(t *testing.T) {
	t.Parallel()
	c := newTestController()
	for i := range 3 {
		sh := c.state.shard(benchKey(i))
		rk, s := svcRow(benchKey(i), fmt.Sprint("s", i), model.Labels{"app": "x"})
		c.state.put(sh, rk, s)
		for n := range scrubStep {
			c.state.put(sh, model.RowKey{Kind: model.RowWorkload, Key: fmt.Sprint(n)}, &model.Workload{Kind: model.KindPod, Namespace: "other"})
		}
	}
	c.commit(time.Now())
	later := time.Now().Add(time.Hour)
	steps, checked := 0, func() float64 { return counted(t, c.metrics.scrubbed) }
	for c.scrub(later); c.pass != nil; c.scrub(c.nextScrub) {
		if steps++; steps != 2 {
			continue
		}
		rk, s := svcRow(benchKey(0), "s0", nil) // selects no more
		c.state.put(c.state.shard(benchKey(0)), rk, s)
		c.commit(later)
	}
	if steps != 6 {
		t.Errorf("%d steps, want one for each shard and phase", steps)
	}
	if checked() != 2 || counted(t, c.metrics.drift) != 0 {
		t.Errorf("%v checked, %v drifted, want 2 and none", checked(), counted(t, c.metrics.drift))
	}
	c.nextScrub = time.Time{}
	for c.scrub(later); c.pass != nil; c.scrub(c.nextScrub) {
		w := &model.Workload{Kind: model.KindPod, Namespace: "ns", Name: "new"}
		c.state.put(c.state.shard(benchKey(1)), model.RowKey{Kind: model.RowWorkload, Key: "new"}, w)
	}
	if checked() != 2 {
		t.Errorf("%v checked although a workload of their namespace changed", checked()-2)
	}
	c.nextScrub = time.Time{}
	c.scrub(later)
	c.attach(t.Context(), doing{benchKey(9), func(ctx context.Context, _ model.Sink) error { return untilDone(ctx) }})
	if c.pass != nil {
		t.Error("a check goes on although a registry came")
	}
	if err := c.shutdown(); err != nil {
		t.Error(err)
	}
}

// TestGateSeesWhatIsAboutToBeAttached: what was given to Attach since the turn began is waited for, since a registry
// that has synced in the same turn may have been the reason.
func TestGateSeesWhatIsAboutToBeAttached(t *testing.T) {
	t.Parallel()
	c := New(Options{Hub: pushcontext.NewHub(func(*pushcontext.PushContext, *pushcontext.Delta) {})})
	c.Attach(doing{key: model.ShardKey{Provider: model.ProviderMemory, Cluster: "c1"}})
	if c.tryOpen(time.Now()); c.Ready() {
		t.Error("ready before the registry is attached")
	}
	c.ops = nil
	if c.tryOpen(time.Now()); !c.Ready() {
		t.Error("not ready although nothing is waited for")
	}
}
