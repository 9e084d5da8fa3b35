package aggregate

import (
	"maps"
	"slices"
	"time"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/pushcontext"
)

// scrubBatch is how many hosts one pass checks. A pass scans all rows once.
const scrubBatch = 64

// scrub checks some services against a merge that uses no index, when it is time to. A difference is
// a fault of ours: it is reported and repaired.
func (c *Controller) scrub(now time.Time) {
	if c.opts.ScrubEvery < 0 || !c.open || now.Before(c.nextScrub) {
		return
	}
	c.nextScrub = now.Add(c.opts.ScrubEvery)
	batch := c.scrubKeys()
	for k, want := range c.scan(batch) {
		c.metrics.scrubbed.Inc()
		if h := c.state.hosts[k]; h != nil && slices.EqualFunc(h.views, want, SameView) || h == nil && len(want) == 0 {
			continue
		}
		c.metrics.drift.Inc()
		c.opts.Log.Error("published service differs from its rows: repairing", "service", k.namespace+"/"+k.host)
		c.repair(k)
		c.note(laneShape, "unknown", now)
	}
}

// scrubKeys gives the next hosts in turn.
func (c *Controller) scrubKeys() map[hostKey]struct{} {
	keys := slices.SortedFunc(maps.Keys(c.state.hosts), compareHosts)
	out := map[hostKey]struct{}{}
	for range min(scrubBatch, len(keys)) {
		out[keys[c.scrubAt%len(keys)]] = struct{}{}
		c.scrubAt++
	}
	return out
}

// scan merges the hosts from shard rows alone.
func (c *Controller) scan(keys map[hostKey]struct{}) map[hostKey][]*pushcontext.ServiceView {
	r := newRebuild(keys)
	for _, sh := range c.state.sortedShards() {
		r.add(sh.key, maps.All(sh.rows))
	}
	return r.merge(c.mesh, c.demoted)
}

// repair rebuilds the index entries of a host and has it merged again.
func (c *Controller) repair(k hostKey) {
	h := &hostRows{}
	if old := c.state.hosts[k]; old != nil {
		h.views = old.views
	}
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
