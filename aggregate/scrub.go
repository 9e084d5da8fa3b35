package aggregate

import (
	"hash/maphash"
	"maps"
	"slices"
	"time"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/pushcontext"
)

// scrubBatch is about how many hosts one pass checks. A pass scans all rows once.
const scrubBatch = 64

// scrub checks some of the published services against a merge that uses no index, when it is time to.
// A difference, there or in the writer's own books, is a fault of ours: it is reported and repaired.
func (c *Controller) scrub(now time.Time) {
	if c.opts.ScrubEvery < 0 || !c.open || now.Before(c.nextScrub) {
		return
	}
	c.nextScrub = now.Add(c.opts.ScrubEvery)
	groups := uint64(len(c.state.hosts)/scrubBatch + 1)
	group := c.scrubbed % groups
	c.scrubbed++
	for k, want := range c.scan(func(k hostKey) bool { return maphash.Comparable(c.seed, k)%groups == group }) {
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

// scan merges hosts from shard rows alone. Hosts that are published without rows are in the result
// too.
func (c *Controller) scan(only func(hostKey) bool) map[hostKey][]*pushcontext.ServiceView {
	r := newRebuild(only)
	for _, sh := range c.state.sortedShards() {
		r.add(sh.key, maps.All(sh.rows))
	}
	out := r.merge(c.mesh, c.demoted)
	for v := range c.opts.Hub.Current().Services() {
		if k := (hostKey{v.Shape.Key.Namespace, v.Shape.Key.Host}); only(k) && out[k] == nil {
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
	c.state.hosts[k] = h
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
}
