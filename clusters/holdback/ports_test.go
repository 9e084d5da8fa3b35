package holdback_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	api "github.com/isthmus-mesh/isthmus/api/v1alpha1"
	"github.com/isthmus-mesh/isthmus/clusters/holdback"
	"github.com/isthmus-mesh/isthmus/clusters/memory"
)

// ported are the rows of a service with ports, if it has instances: a registry has those of its instances.
func ported(name string, at ...int) []model.Event {
	if at == nil {
		at = []int{}
	}
	out := events(name, at)
	if s := out[0].Obj.(*model.Service); len(at) > 0 {
		s.Ports = []model.Port{{Name: "http", Number: 80, Protocol: model.ProtocolHTTP}}
	}
	return out
}

func stateOf(list ...[]model.Event) *model.ShardState {
	b := model.NewShardBuilder()
	for _, events := range list {
		for _, ev := range events {
			if ev.Obj != nil {
				b.Add(ev.Row.Key, ev.Obj)
			}
		}
	}
	return b.Build()
}

// portsOf are those of the service a as it is served.
func (s *sink) portsOf() string {
	o, ok := s.served()[model.RowKey{Kind: model.RowService, Key: "Service/ns/a"}].(*model.Service)
	if !ok {
		return "no service"
	}
	return fmt.Sprint(len(o.Ports), " ports")
}

// TestPortsOfWhatIsHeld: a registry that restarts empty knows no ports of its services either. Their endpoints would back none: those
// that they had stay as long as the endpoints do.
func TestPortsOfWhatIsHeld(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		then []model.Event // while it is held
		want string        // in force then, and once it is over
	}{
		"until it is over":      {nil, "1 ports, 0 ports"},
		"told again":            {ported("a"), "1 ports, 0 ports"},
		"instances come back":   {ported("a", 1, 2, 3, 4), "1 ports, 1 ports"},
		"some of them":          {ported("a", 1), "1 ports, 1 ports"},
		"the service goes too":  {events("a", nil), "1 ports, no service"},
		"it has others instead": {ported("a", 7, 8, 9), "1 ports, 1 ports"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				out, reg := &sink{}, memory.New(key)
				wrapped := holdback.Wrap(reg, holdback.Options{
					Policy: *api.RegistrySpec{}.Effective("ns").Empty, Before: holdback.Begin(stateOf(ported("a", 1, 2, 3, 4), ported("b", 1, 2, 3, 4))),
				})
				ctx, cancel := context.WithCancel(t.Context())
				var running sync.WaitGroup
				running.Go(func() { _ = wrapped.Run(ctx, out) })
				reg.Replace(stateOf(ported("a"), ported("b")))
				reg.Status(model.Status{State: model.StateLive})
				synctest.Wait()
				if got := out.portsOf(); got != "1 ports" {
					t.Errorf("at first: %s", got)
				}
				reg.Apply(test.then...)
				time.Sleep(30 * time.Second)
				synctest.Wait()
				got := out.portsOf()
				time.Sleep(10 * time.Minute)
				synctest.Wait()
				if got += ", " + out.portsOf(); got != test.want {
					t.Errorf("%s, want %s", got, test.want)
				}
				cancel()
				running.Wait()
			})
		})
	}
}

// TestPortsOutliveAReplacement: what is held, and with which ports, is handed over; the last run lets go of both.
func TestPortsOutliveAReplacement(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		out, before := &sink{}, holdback.Begin(stateOf(ported("a", 1, 2), ported("b", 1, 2)))
		for _, pause := range []time.Duration{time.Minute, 10 * time.Minute} {
			reg := memory.New(key)
			wrapped := holdback.Wrap(reg, holdback.Options{Policy: *api.RegistrySpec{}.Effective("ns").Empty, Before: before})
			ctx, cancel := context.WithCancel(t.Context())
			var running sync.WaitGroup
			running.Go(func() { _ = wrapped.Run(ctx, out) })
			reg.Replace(stateOf(ported("a"), ported("b")))
			reg.Status(model.Status{State: model.StateLive})
			synctest.Wait()
			if got := out.portsOf(); got != "1 ports" {
				t.Errorf("before %s: %s", pause, got)
			}
			time.Sleep(pause)
			cancel()
			running.Wait()
		}
		if got := out.portsOf(); got != "0 ports" {
			t.Errorf("in the end: %s", got)
		}
	})
}

// TestWhyFollowsWhatIsLeft: the sentence about what is held has the numbers of now.
func TestWhyFollowsWhatIsLeft(t *testing.T) {
	story(t, "hold", api.EmptyPolicy{Mode: api.EmptyHold}, func(w *world) {
		says := func(want string) {
			w.t.Helper()
			synctest.Wait()
			if ps := w.problems(); len(ps) != 1 || !strings.Contains(ps[0].Reason, want) {
				w.t.Errorf("%+v, want %q", ps, want)
			}
		}
		w.put("a")
		says("of its 4 endpoints 0 are left")
		w.put("a", 1)
		says("of its 4 endpoints 1 are left")
		w.put("a", 1, 2, 3)
		says("of its 4 endpoints 3 are left")
		w.put("a")
		says("of its 4 endpoints 0 are left")
	})
}
