package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/isthmus-mesh/isthmus/test/bench/fleet"
)

// cost is what a number of changes cost, from newCost until end.
type cost struct {
	run    *run
	usage  Usage
	bytes  fleet.Traffic
	began  time.Time
	prefix string
}

func (r *run) newCost(ctx context.Context, prefix string) (*cost, error) {
	u, err := r.settle(ctx)
	return &cost{run: r, usage: u, bytes: r.fleet.Traffic(), began: time.Now(), prefix: prefix}, err
}

// end sets figures per change.
func (c *cost) end(ctx context.Context, changes int) error {
	u, err := c.run.settle(ctx)
	if err != nil {
		return err
	}
	r, n, t := c.run, float64(changes), c.run.fleet.Traffic()
	r.set(c.prefix+"_cpu_ms", ms(u.CPU-c.usage.CPU)/n)
	r.set(c.prefix+"_mib", mib(uint64(t.Received-c.bytes.Received))/n)
	r.set(c.prefix+"_sent_mib", mib(uint64(t.Sent-c.bytes.Sent))/n)
	r.set(c.prefix+"_messages", float64(t.Messages-c.bytes.Messages)/n)
	r.set(c.prefix+"_builds", float64(u.builds()-c.usage.builds())/n)
	r.set(c.prefix+"_busy", float64(u.CPU-c.usage.CPU)/float64(time.Since(c.began)))
	return nil
}

// delays are how long changes took to reach proxies.
type delays struct {
	each []time.Duration // of every proxy and change
	last []time.Duration // of the last proxy of every change
}

func (d *delays) add(sorted []time.Duration) {
	d.each = append(d.each, sorted...)
	d.last = append(d.last, sorted[len(sorted)-1])
}

func (d *delays) set(r *run, prefix string) {
	slices.Sort(d.each)
	slices.Sort(d.last)
	r.set(prefix+"_p50_ms", ms(quantile(d.each, .5)))
	r.set(prefix+"_p99_ms", ms(quantile(d.each, .99)))
	r.set(prefix+"_last_p50_ms", ms(quantile(d.last, .5)))
	r.set(prefix+"_last_p99_ms", ms(quantile(d.last, .99)))
}

// address gives a marker that no other change has.
func (r *run) address() string {
	r.unique++
	return fmt.Sprintf("10.25%d.1%02d.1%02d", r.unique/10000, r.unique/100%100, r.unique%100)
}

// timed gives the number of a service whose changes are timed, and other one whose changes are not: what
// came after a timed change must not take its place before it was sent.
func timed(services int) int { return rand.IntN((services+1)/2) * 2 }

func other(services int) int { return rand.IntN(services/2)*2 + 1 }

// once makes one change and waits until it is everywhere.
func (r *run) once(ctx context.Context, count int, d *delays) error {
	c := Change{Service: timed(r.spec.Services), Count: count, Every: r.burstEvery, Marker: r.address()}
	w := r.fleet.Watch(c.Marker, fleet.EndpointURL, r.group())
	defer w.Stop()
	at, err := call[Change, int64](ctx, r.server, "Change", c)
	if err != nil {
		return err
	}
	took, err := w.Await(ctx, time.Unix(0, at))
	if err != nil {
		return err
	}
	d.add(took)
	return nil
}

// group is the proxies that are sent a changed address: those of other networks know its gateway
// only. The floor sends to all.
func (r *run) group() string {
	if r.role == roleFloor {
		return ""
	}
	return r.spec.MainNetwork()
}

func (r *run) pause(ctx context.Context) error {
	return sleep(ctx, r.gap/2+rand.N(r.gap))
}

// change times isolated endpoint changes.
func (r *run) change(ctx context.Context) error {
	return r.isolated(ctx, "change", r.changes, func(d *delays) error { return r.once(ctx, 1, d) })
}

func (r *run) isolated(ctx context.Context, prefix string, n int, do func(*delays) error) error {
	c, err := r.newCost(ctx, prefix)
	if err != nil {
		return err
	}
	var d delays
	for range n {
		if err := do(&d); err != nil {
			return err
		}
		if err := r.pause(ctx); err != nil {
			return err
		}
	}
	d.set(r, prefix)
	return c.end(ctx, n)
}

// changeUnderChurn times changes while others happen.
func (r *run) changeUnderChurn(ctx context.Context) error {
	c, err := r.newCost(ctx, "churn")
	if err != nil {
		return err
	}
	if _, err := call[int, int](ctx, r.server, "Churn", r.churn); err != nil {
		return err
	}
	var d delays
	for range r.churnChanges {
		if err := r.pause(ctx); err != nil {
			return err
		}
		if err := r.once(ctx, 1, &d); err != nil {
			return err
		}
	}
	made, err := call[int, int](ctx, r.server, "Churn", 0)
	if err != nil {
		return err
	}
	d.set(r, "churn")
	return c.end(ctx, made+r.churnChanges)
}

// create times new services: until their cluster, and until their route, is at every proxy.
func (r *run) create(ctx context.Context) error {
	var routes delays
	err := r.isolated(ctx, "create", r.creates, func(d *delays) error { return r.createOne(ctx, d, &routes) })
	routes.set(r, "create_route")
	return err
}

func (r *run) createOne(ctx context.Context, clusters, routes *delays) error {
	n := r.spec.Services + r.unique
	for _, ok := r.spec.Home(n); !ok; _, ok = r.spec.Home(n) {
		n++
	}
	r.unique = n - r.spec.Services + 1
	host := r.spec.Host(n)
	cds, rds := r.fleet.Watch(host, fleet.ClusterURL, ""), r.fleet.Watch(host, r.routes(), "")
	defer cds.Stop()
	defer rds.Stop()
	at, err := call[Create, int64](ctx, r.server, "Create", Create{Service: n, Marker: host})
	if err != nil {
		return err
	}
	for w, d := range map[*fleet.Watch]*delays{cds: clusters, rds: routes} {
		took, err := w.Await(ctx, time.Unix(0, at))
		if err != nil {
			return err
		}
		d.add(took)
	}
	return nil
}

// routes is the type that brings a new service's routes. Streams of the floor may have been given one table only,
// and not know.
func (r *run) routes() string {
	if len(r.material.Bodies[fleet.VirtualHostURL]) > 0 {
		return fleet.VirtualHostURL
	}
	return r.fleet.Routes()
}

// burstOfChanges makes many changes at the pace of an API server and times the last of them.
func (r *run) burstOfChanges(ctx context.Context) error {
	c, err := r.newCost(ctx, "burst")
	if err != nil {
		return err
	}
	var d delays
	if err := r.once(ctx, r.burst, &d); err != nil {
		return err
	}
	d.set(r, "burst")
	return c.end(ctx, 1)
}
