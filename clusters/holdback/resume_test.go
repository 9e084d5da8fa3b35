package holdback_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	api "github.com/isthmus-mesh/isthmus/api/v1alpha1"
	"github.com/isthmus-mesh/isthmus/clusters/holdback"
	"github.com/isthmus-mesh/isthmus/clusters/memory"
)

// process is a registry as a hub runs it, with what the hub before has kept of it.
type process struct {
	*world
	before *holdback.Handover
	end    func()
}

// startProcess begins with what a process before served, and held.
func startProcess(t *testing.T, p api.EmptyPolicy, before *holdback.Handover, now *model.ShardState) *process {
	w := &world{Registry: memory.New(key), sink: &sink{}, t: t}
	wrapped := holdback.Wrap(w.Registry, holdback.Options{Policy: p, Before: before})
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = wrapped.Run(ctx, w.sink) })
	w.Registry.Replace(now)
	w.Registry.Status(model.Status{State: model.StateLive})
	synctest.Wait()
	return &process{w, before, func() { cancel(); running.Wait() }}
}

// restart ends it, and begins another that reads the same of the registry.
func (p *process) restart(policy api.EmptyPolicy, now *model.ShardState) *process {
	b := model.NewShardBuilder()
	for k, o := range p.settled() {
		b.Add(k.Key, o)
	}
	was := p.before.Held()
	p.end()
	return startProcess(p.t, policy, holdback.Resume(b.Build(), was, policy.Duration.Duration), now)
}

// TestRestartsDoNotProlong: what is held goes when it would have gone, however often the hub restarts meanwhile.
func TestRestartsDoNotProlong(t *testing.T) {
	t.Parallel()
	full := map[string][]int{"a": four, "b": four, "c": four, "d": four}
	for name, test := range map[string]struct {
		policy api.EmptyPolicy
		left   map[string][]int
		until  time.Duration
		want   string
	}{
		"most, by protect": {api.EmptyPolicy{}, map[string][]int{"a": four}, 5 * time.Minute, "a=4/4"},
		"few, by protect":  {api.EmptyPolicy{}, map[string][]int{"a": four, "b": four, "c": four}, time.Minute, "a=4/4 b=4/4 c=4/4"},
		"parts":            {api.EmptyPolicy{}, map[string][]int{"a": {1}, "b": {2}, "c": {3}, "d": {4}}, 5 * time.Minute, "a=1/1 b=1/1 c=1/1 d=1/1"},
		"all, by hold":     {api.EmptyPolicy{Mode: api.EmptyHold}, nil, 5 * time.Minute, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				policy := *api.RegistrySpec{Empty: &test.policy}.Effective("ns").Empty
				now := all(test.left)
				p := startProcess(t, policy, &holdback.Handover{}, all(full))
				p.reconnect()
				p.Registry.Replace(now)
				began := time.Now()
				for time.Since(began)+25*time.Second < test.until {
					p.after(20*time.Second, everything)
					p = p.restart(policy, now)
				}
				p.after(0, everything)
				p.after(test.until-time.Since(began)+5*time.Second, test.want)
				p.end()
			})
		})
	}
}

// TestHeldWhileTheHubWasDown: what has come back is held no more, what was over meanwhile goes at once, and configuration is no exception.
func TestHeldWhileTheHubWasDown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		policy := *api.RegistrySpec{}.Effective("ns").Empty
		full := all(map[string][]int{"a": four, "b": four, "c": four, "d": four})
		p := startProcess(t, policy, &holdback.Handover{}, full)
		p.configure()
		p.reconnect()
		p.gone(model.ConfigVirtualService, "p", "q", "r", "s")
		for _, name := range []string{"a", "b", "c"} {
			p.remove(name)
		}
		p.after(90*time.Second, everything)
		now := model.NewShardBuilder()
		for k, o := range all(map[string][]int{"a": four, "d": four}).Rows() {
			now.Add(k.Key, o)
		}
		now.Add(configured(model.ConfigVirtualService, "q").Row.Key, configured(model.ConfigVirtualService, "q").Obj)
		left := now.Build()
		p = p.restart(policy, left)
		p.after(10*time.Second, everything)
		p.configs(0, "p q r s", model.ConfigVirtualService)
		time.Sleep(5 * time.Minute)
		p.after(0, "a=4/4 d=4/4")
		p.configs(0, "q", model.ConfigVirtualService)
		p.end()
	})
}

// TestWhatCantBeResumed: whatever is kept of what was held, rows are begun with.
func TestWhatCantBeResumed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		policy := *api.RegistrySpec{}.Effective("ns").Empty
		for _, was := range []string{"", "{}", "[7]", `[{"Kind":"none","Key":"Service/ns/a"}]`, `[{"Kind":"endpoints","Key":"Service/ns/z"}]`, `[{"Kind":"workload","Key":"Instance/ns/a/1"}]`} {
			p := startProcess(t, policy, holdback.Resume(all(map[string][]int{"a": four, "b": four}), []byte(was), time.Minute), all(nil))
			p.after(50*time.Second, "a=4/4 b=4/4")
			p.end()
		}
		// A clock that was wrong prolongs nothing.
		late := fmt.Sprintf(`[{"Kind":"endpoints","Key":"Service/ns/a","Due":%q,"Decided":true}]`, time.Now().Add(1000*time.Hour).Format(time.RFC3339))
		p := startProcess(t, policy, holdback.Resume(all(map[string][]int{"a": four, "b": four}), []byte(late), 5*time.Minute), all(map[string][]int{"b": four}))
		p.after(4*time.Minute, "a=4/4 b=4/4")
		p.after(2*time.Minute, "b=4/4")
		p.end()
	})
}

// FuzzResume: whatever is kept, it is read or not.
func FuzzResume(f *testing.F) {
	rows := all(map[string][]int{"a": four})
	f.Add([]byte(`[{"Kind":"endpoints","Key":"Service/ns/a","Due":"2000-01-01T00:00:00Z"}]`))
	f.Fuzz(func(t *testing.T, was []byte) {
		if h := holdback.Resume(rows, was, time.Minute); h == nil {
			t.Error("nothing to begin with")
		}
	})
}
