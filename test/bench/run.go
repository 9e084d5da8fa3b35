package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/isthmus-mesh/isthmus/test/bench/fleet"
	"github.com/isthmus-mesh/isthmus/test/bench/floor"
	"github.com/isthmus-mesh/isthmus/test/bench/world"
)

// run measures one server in one profile over one protocol. Figures are collected by key.
type run struct {
	profile
	delta    bool
	role     string
	material floor.Material // for roleFloor
	opts     options
	progress io.Writer

	server  *child
	addr    string
	fleet   *fleet.Fleet
	nodes   [][]byte // encoded, by proxy; the last ones are those that come later
	proxies []world.Proxy
	unique  int // for markers and new services

	profiling bool

	figures map[string]float64
}

// step is one thing that is measured. Steps that others build on always run.
type step struct {
	name  string
	base  bool
	floor bool // the floor can do it too
	do    func(*run, context.Context) error
}

func steps() []step {
	return []step{
		{name: "start", base: true, floor: true, do: (*run).start},
		{name: "connect", base: true, floor: true, do: (*run).connect},
		{name: "warm", floor: true, do: (*run).warmUp},
		{name: "idle", floor: true, do: (*run).rest},
		{name: "change", floor: true, do: (*run).change},
		{name: "churn", do: (*run).changeUnderChurn},
		{name: "create", floor: true, do: (*run).create},
		{name: "burst", floor: true, do: (*run).burstOfChanges},
		{name: "memory", floor: true, do: (*run).memory},
	}
}

// measure starts the server, does all steps, and stops it.
func (r *run) measure(ctx context.Context) (err error) {
	r.figures = map[string]float64{}
	if r.server, err = spawn(ctx, r.role, r.opts.cores); err != nil {
		return err
	}
	defer func() {
		if r.fleet != nil {
			r.fleet.Close()
		}
		err = errors.Join(err, r.server.stop())
	}()
	for _, s := range steps() {
		chosen := r.opts.only == "" || r.opts.only == s.name
		if !chosen && !s.base || r.role == roleFloor && !s.floor {
			continue
		}
		r.say("%s", s.name)
		if err := r.step(ctx, s, chosen); err != nil {
			return fmt.Errorf("%s, %s, %s: %w", r.label(), r.role, s.name, err)
		}
	}
	return r.profileEnd(ctx)
}

func (r *run) step(ctx context.Context, s step, chosen bool) error {
	ctx, cancel := context.WithTimeout(ctx, r.limit)
	defer cancel()
	if chosen {
		if err := r.profileBegin(ctx); err != nil {
			return err
		}
	}
	return s.do(r, ctx)
}

func (r *run) label() string {
	if r.delta {
		return r.name + ", delta"
	}
	return r.name + ", sotw"
}

func (r *run) say(format string, args ...any) {
	_, _ = fmt.Fprintf(r.progress, "%s  %-13s %-5s  %s\n", time.Now().Format(time.TimeOnly), r.label(), r.role, fmt.Sprintf(format, args...))
}

// start loads the mesh into the server.
func (r *run) start(ctx context.Context) error {
	loaded, err := call[Setup, Loaded](ctx, r.server, "Load", Setup{Spec: r.spec, Material: r.material})
	if err != nil {
		return err
	}
	u, err := r.usage(ctx, true)
	r.addr = loaded.Addr
	r.set("start_s", loaded.Took.Seconds())
	r.set("start_heap_mib", mib(u.Heap))
	return errors.Join(err, r.makeProxies())
}

func (r *run) makeProxies() error {
	r.proxies = r.spec.Proxies(r.profile.fleet, 0, r.profile.proxies+r.warm)
	r.nodes = make([][]byte, len(r.proxies))
	for i, p := range r.proxies {
		b, err := proto.Marshal(p.Node)
		if err != nil {
			return fmt.Errorf("node of proxy %d: %w", i, err)
		}
		r.nodes[i] = b
	}
	return nil
}

func (r *run) open(ctx context.Context, from, to int, o fleet.Options) (*fleet.Fleet, error) {
	o.Addr, o.Delta = r.addr, r.delta
	for i := from; i < to; i++ {
		o.Proxies = append(o.Proxies, fleet.Proxy{Class: r.proxies[i].Class, Group: r.proxies[i].Network, Node: r.nodes[i]})
	}
	return fleet.Start(ctx, o)
}

// connect opens all streams. They outlive the step.
func (r *run) connect(ctx context.Context) error {
	before, err := r.usage(ctx, true)
	if err != nil {
		return err
	}
	if r.fleet, err = r.open(context.Background(), 0, r.profile.proxies, fleet.Options{Together: r.together, Record: r.role == roleHub}); err != nil {
		return err
	}
	defer r.watchProgress()()
	c, err := r.fleet.AwaitReady(ctx)
	if err != nil {
		return err
	}
	after, err := r.settle(ctx)
	if err != nil || r.role == roleFloor && r.light {
		return err
	}
	r.connected(c, before, after)
	return r.healthy()
}

func (r *run) connected(c fleet.Connected, before, after Usage) {
	slices.Sort(c.Each)
	t := r.fleet.Traffic()
	r.set("connect_all_s", c.All.Seconds())
	r.set("connect_p50_ms", ms(quantile(c.Each, .5)))
	r.set("connect_p99_ms", ms(quantile(c.Each, .99)))
	r.set("connect_cpu_s", (after.CPU - before.CPU).Seconds())
	r.set("connect_mib", mib(uint64(t.Received)))
	r.set("connect_refused", float64(c.Refused))
	r.set("connect_rss_mib", mib(after.RSS))
	if r.role == roleHub {
		r.set("connect_builds", float64(after.builds()))
		r.set("kept_mib", after.Kept/(1<<20))
		for typ, n := range after.Builds {
			r.set("connect_builds_"+typ, float64(n))
		}
	}
}

const progressEvery = 5 * time.Second

// watchProgress says now and then how far connecting has come, until the result is called.
func (r *run) watchProgress() (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for sleep(ctx, progressEvery) == nil {
			r.say("connect: %d of %d ready, %.0f MiB", r.fleet.Ready(), r.profile.proxies, mib(uint64(r.fleet.Traffic().Received)))
		}
	}()
	return func() {
		cancel()
		<-done
	}
}

// warmUp connects a proxy of each class once more: nothing is left to encode but what is the
// proxy's own.
func (r *run) warmUp(ctx context.Context) error {
	before, err := r.usage(ctx, false)
	if err != nil {
		return err
	}
	f, err := r.open(ctx, r.profile.proxies, len(r.proxies), fleet.Options{Together: r.together})
	if err != nil {
		return err
	}
	defer f.Close()
	c, err := f.AwaitReady(ctx)
	if err != nil {
		return err
	}
	after, err := r.settle(ctx)
	if err != nil {
		return err
	}
	slices.Sort(c.Each)
	n := float64(len(c.Each))
	r.set("warm_p50_ms", ms(quantile(c.Each, .5)))
	r.set("warm_cpu_ms", ms(after.CPU-before.CPU)/n)
	if r.role == roleHub {
		for typ, b := range after.Builds {
			r.set("warm_builds_"+typ, float64(b-before.Builds[typ])/n)
		}
	}
	return nil
}

// rest measures what the server does while nothing happens.
func (r *run) rest(ctx context.Context) error {
	if _, err := r.settle(ctx); err != nil {
		return err
	}
	before, err := r.usage(ctx, false)
	if err != nil {
		return err
	}
	if err := sleep(ctx, r.idle); err != nil {
		return err
	}
	after, err := r.usage(ctx, false)
	r.set("idle_cpu_percent", 100*float64(after.CPU-before.CPU)/float64(r.idle))
	return err
}

// memory is what the server holds in the end.
func (r *run) memory(ctx context.Context) error {
	u, err := r.usage(ctx, true)
	r.set("heap_mib", mib(u.Heap))
	r.set("rss_mib", mib(u.RSS))
	r.set("goroutines", float64(u.Goroutines))
	return errors.Join(err, r.healthy())
}

func (r *run) healthy() error {
	if n, err := r.fleet.Broken(); n > 0 {
		return fmt.Errorf("%d streams broke: %w", n, err)
	}
	return nil
}

func (r *run) usage(ctx context.Context, collect bool) (Usage, error) {
	return call[bool, Usage](ctx, r.server, "Usage", collect)
}

const (
	settleEvery = 100 * time.Millisecond
	settleCalm  = 0.04 // share of a core under which the server counts as calm
	settleTurns = 100
)

// settle waits until the server has done what was asked of it, acknowledgements included, but not
// for ever.
func (r *run) settle(ctx context.Context) (Usage, error) {
	last, err := r.usage(ctx, false)
	for range settleTurns {
		if err != nil {
			return last, err
		}
		if err := sleep(ctx, settleEvery); err != nil {
			return last, err
		}
		var u Usage
		if u, err = r.usage(ctx, false); err == nil && float64(u.CPU-last.CPU) < settleCalm*float64(settleEvery) {
			return u, nil
		}
		last = u
	}
	return last, err
}

func (r *run) set(key string, v float64) { r.figures[key] = v }

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func mib(n uint64) float64 { return float64(n) / (1 << 20) }

// quantile reads a sorted list.
func quantile(sorted []time.Duration, q float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))]
}
