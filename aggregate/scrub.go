package aggregate

import (
	"hash/maphash"
	"maps"
	"slices"
	"time"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/pushcontext"
)

// scrubBatch is about how many hosts one pass checks; scrubStep is about how many rows it reads before
// it lets the writer see to other things.
const (
	scrubBatch = 64
	scrubStep  = 10_000
	// scrubRest is how many times as long as a step took the controller is left alone before the next:
	// however many rows there are, checking them takes less than 0.2 % of a processor.
	scrubRest = 500
)

// pass is one check of some hosts: it reads the rows of all shards, a few shards at a time, first
// definitions and endpoints, then the workloads that those may select. What changes meanwhile is left
// to a later pass.
type pass struct {
	only      func(hostKey) bool
	rows      *rebuild
	rest      []model.ShardKey // still to be read in this phase
	workloads bool             // the second phase
	selecting func(*model.Workload) bool
	touched   *touched
}

// touched is what changed since a pass began.
type touched struct {
	hosts  map[hostKey]struct{}
	spaces map[string]struct{} // namespaces of changed workloads
}

func (t *touched) has(k hostKey) bool {
	_, host := t.hosts[k]
	_, space := t.spaces[k.namespace]
	return host || space
}

// scrub checks some of the published services against a merge that uses no index, when it is time to.
// It reads so many rows, and goes on when it is called again.
func (c *Controller) scrub(now time.Time) {
	if c.opts.ScrubEvery < 0 || !c.open || now.Before(c.nextScrub) {
		return
	}
	begin := time.Now()
	if c.pass == nil {
		c.beginPass()
	}
	for budget := scrubStep; budget > 0; {
		switch p := c.pass; {
		case len(p.rest) > 0:
			budget -= p.read(c.state)
		case !p.workloads:
			p.workloads, p.rest, p.selecting = true, c.state.shardKeys(), p.rows.selecting()
		default:
			c.check(now)
			c.endPass()
			c.nextScrub = now.Add(max(c.opts.ScrubEvery, scrubRest*time.Since(begin)))
			return
		}
	}
	c.nextScrub = now.Add(scrubRest * time.Since(begin))
}

func (c *Controller) beginPass() {
	groups := uint64(len(c.state.hosts)/scrubBatch + 1)
	group := c.scrubbed % groups
	c.scrubbed++
	only := func(k hostKey) bool { return maphash.Comparable(c.seed, k)%groups == group }
	c.pass = &pass{
		only: only, rows: newRebuild(only, c.federations), rest: c.state.shardKeys(),
		touched: &touched{hosts: map[hostKey]struct{}{}, spaces: map[string]struct{}{}},
	}
	c.state.touched = c.pass.touched
}

// endPass ends a pass, finished or not: one does not outlive a change of the registries.
func (c *Controller) endPass() { c.pass, c.state.touched = nil, nil }

// read takes the rows of one shard and gives their number.
func (p *pass) read(s *state) int {
	sh := s.shards[p.rest[0]]
	p.rest = p.rest[1:]
	if p.workloads {
		p.rows.addWorkloads(sh.key, maps.All(sh.rows), p.selecting)
	} else {
		p.rows.add(sh.key, maps.All(sh.rows))
	}
	return len(sh.rows)
}

// check compares. A difference, there or in the writer's own books, is a fault of ours: it is reported
// and repaired.
func (c *Controller) check(now time.Time) {
	for k, want := range c.scanned() {
		if c.pass.touched.has(k) {
			continue
		}
		c.metrics.scrubbed.Inc()
		var known []*pushcontext.ServiceView
		if h := c.state.hosts[k]; h != nil {
			known = h.views
		}
		if now := c.published(k); slices.Equal(now, known) && slices.EqualFunc(now, want, SameView) {
			continue
		}
		c.metrics.drift.Inc()
		c.opts.Log.Error("published service differs from its rows: repairing", "service", k.namespace+"/"+k.host)
		c.repair(k)
		c.note(laneShape, "unknown", now)
	}
}

// scanned gives the views of the pass's hosts from shard rows alone. Hosts that are published without
// rows are in the result too.
func (c *Controller) scanned() map[hostKey][]*pushcontext.ServiceView {
	b := c.basis
	b.linear = true
	out := c.pass.rows.merge(&b)
	for v := range c.opts.Hub.Current().Services() {
		if k := (hostKey{v.Shape.Key.Namespace, v.Shape.Key.Host}); c.pass.only(k) && out[k] == nil {
			out[k] = nil
		}
	}
	return out
}

// published gives what readers see of a host, by key.
func (c *Controller) published(k hostKey) []*pushcontext.ServiceView {
	h := c.opts.Hub.Current().Host(k.host)
	if h == nil {
		return nil
	}
	var out []*pushcontext.ServiceView
	for _, v := range h.Services {
		if v.Shape.Key.Namespace == k.namespace {
			out = append(out, v)
		}
	}
	slices.SortFunc(out, func(a, b *pushcontext.ServiceView) int { return a.Shape.Key.Compare(b.Shape.Key) })
	return out
}

// repair rebuilds the index entries of a host from rows and what is published, and has it merged
// again.
func (c *Controller) repair(k hostKey) {
	h := &hostRows{views: c.published(k)}
	if old := c.state.hosts[k]; old != nil {
		h.orphans = old.orphans
		c.views -= len(old.views)
	}
	c.views += len(h.views)
	for _, sh := range c.state.shards {
		for rk, o := range sh.rows {
			switch o := o.(type) {
			case *model.Service:
				if (hostKey{o.Namespace, o.Host}) == k {
					h.services = insertRow(h.services, rowID{sh.key, rk.Key}, o)
				}
			case *model.Endpoints:
				if (hostKey{o.Namespace, o.Host}) == k {
					h.endpoints = insertRow(h.endpoints, rowID{sh.key, rk.Key}, o)
				}
			}
		}
	}
	*c.state.host(k) = *h
	c.state.reselect()
	c.state.mark(k)
}

// reselect builds the selector indexes anew.
func (s *state) reselect() {
	s.sel = newSelector()
	for _, kind := range replaceOrder {
		for _, sh := range s.shards {
			for rk, o := range sh.rows {
				if rk.Kind != kind {
					continue
				}
				switch o := o.(type) {
				case *model.Service:
					s.sel.addService(rowID{sh.key, rk.Key}, o)
				case *model.Workload:
					s.sel.addWorkload(rowID{sh.key, rk.Key}, o)
				}
			}
		}
	}
	for k := range s.federations.keys() {
		s.federations.byKey[k].each(s.sel.addService)
	}
}
