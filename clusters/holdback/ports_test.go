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

// TestPortsOfPartsThatAreHeld: a service that comes back with some of its ports has those of endpoints that are still held, too, as long
// as they are.
func TestPortsOfPartsThatAreHeld(t *testing.T) {
	t.Parallel()
	http, grpc := model.Port{Name: "http", Number: 80, Protocol: model.ProtocolHTTP}, model.Port{Name: "grpc", Number: 90, Protocol: model.ProtocolGRPC}
	spare := model.Port{Name: "spare", Number: 91, Protocol: model.ProtocolTCP}
	with := func(at []int, ports ...model.Port) []model.Event {
		evs := events("a", at)
		evs[0].Obj.(*model.Service).Ports = ports
		for i, e := range evs[1].Obj.(*model.Endpoints).Endpoints {
			if i >= 2 {
				e.PortName = "grpc"
				evs[1].Obj.(*model.Endpoints).Endpoints[i] = e
			}
		}
		return evs
	}
	moved := http
	moved.Number = 90
	for name, test := range map[string]struct {
		then  []model.Port
		want  string // while endpoints of the port grpc are held
		after string
	}{
		"one port is back":                     {[]model.Port{http}, "http:80 grpc:90", "http:80"},
		"one port has the number of the other": {[]model.Port{moved}, "http:90", "http:90"},
		"all ports are back":                   {[]model.Port{http, grpc}, "http:80 grpc:90", "http:80 grpc:90"},
	} {
		story(t, name, api.EmptyPolicy{}, func(w *world) {
			ports := func() string {
				var out []string
				for _, p := range w.settled()[model.RowKey{Kind: model.RowService, Key: "Service/ns/a"}].(*model.Service).Ports {
					out = append(out, fmt.Sprint(p.Name, ":", p.Number))
				}
				return strings.Join(out, " ")
			}
			w.Registry.Apply(with(four, http, grpc, spare)...)
			w.reconnect()
			w.Registry.Apply(with([]int{1, 2}, test.then...)...)
			time.Sleep(5 * time.Second) // of the fake clock
			if got := ports(); got != test.want {
				w.t.Errorf("while endpoints are held: %s, want %s", got, test.want)
			}
			w.Registry.Apply(with([]int{1, 2}, test.then...)...) // told again
			if got := ports(); got != test.want {
				w.t.Errorf("told again: %s, want %s", got, test.want)
			}
			time.Sleep(10 * time.Minute)
			if got := ports(); got != test.after {
				w.t.Errorf("in the end: %s, want %s", got, test.after)
			}
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
