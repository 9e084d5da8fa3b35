package aggregate

import (
	"maps"
	"reflect"
	"slices"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/pushcontext"
)

// refreshShards describes the registries anew, those of which anything changed.
func (c *Controller) refreshShards() {
	stale := c.regrouped
	c.infoChanged = c.infoChanged || c.regrouped
	for _, m := range c.attached {
		if !m.changed {
			continue
		}
		next := c.shardInfo(m)
		c.infoChanged = c.infoChanged || !sameInfo(m.info, next)
		m.info, m.changed, stale = next, false, true
	}
	if !stale {
		return
	}
	c.regrouped = false
	out := make([]pushcontext.ShardInfo, 0, len(c.attached))
	for _, m := range c.attached {
		out = append(out, m.info)
	}
	slices.SortFunc(out, func(a, b pushcontext.ShardInfo) int { return a.Key.Compare(b.Key) })
	c.infos = out
	c.shards.Store(&out)
}

// sameInfo reports whether two infos differ in nothing that is worth a version.
func sameInfo(a, b pushcontext.ShardInfo) bool {
	a.LastEvent, a.SyncedAt = b.LastEvent, b.SyncedAt
	return reflect.DeepEqual(a, b)
}

func (c *Controller) shardInfo(m *attached) pushcontext.ShardInfo {
	sh := c.state.shard(m.key)
	i := pushcontext.ShardInfo{
		Key: m.key, Status: m.active.status, Synced: m.active.synced, SyncedAt: m.syncedAt, LastEvent: m.lastEvent, Rows: sh.counts,
		NoService: m.orphans,
	}
	if len(sh.notServed) > 0 {
		i.NotServed = make(map[string]int, len(sh.notServed))
		for k, n := range sh.notServed {
			i.NotServed[k] = n
		}
	}
	switch {
	case m.active.synced:
	case !m.active.late.IsZero():
		i.Status.State, i.Status.Since = model.StateTimeout, m.active.late
	case i.Status.State != model.StateStale: // live is claimed, but the rows are not here yet
		i.Status.State = model.StateSyncing
	}
	if m.shadow != nil {
		var failing bool
		i.Replacement, failing = m.shadow.why()
		if failing && i.Status.State == model.StateLive {
			i.Status.State, i.Status.Err = model.StateDegraded, "replacement: "+i.Replacement
		}
	}
	return i
}

// why says why a replacement has not taken over, and whether that is a fault.
func (in *instance) why() (string, bool) {
	switch {
	case in.status.Err != "":
		return in.status.Err, true
	case !in.late.IsZero():
		return "not synced in time", true
	}
	return "syncing", false
}

// failing reports whether that is a fault.
func (in *instance) failing() bool {
	_, fault := in.why()
	return fault
}

// orphan lists the endpoints of a service that nobody defines.
func (m *merged) orphan(in *mergeInput) {
	var out []model.LeftOut
	for _, r := range in.endpoints {
		for i := range r.obj.Endpoints {
			e := &r.obj.Endpoints[i]
			out = append(out, model.LeftOut{Addr: e.Addr, Port: e.PortName, Reason: model.ReasonNoService, Source: *sourceOf(e, r.obj)})
		}
		out = append(out, r.obj.LeftOut...)
	}
	if len(out) == 0 {
		return
	}
	slices.SortFunc(out, compareLeftOut)
	if m.orphans == nil {
		m.orphans = map[model.ServiceKey][]model.LeftOut{}
	}
	m.orphans[in.key] = out
}

// setOrphans remembers what came of a host.
func (c *Controller) setOrphans(h *hostRows, next map[model.ServiceKey][]model.LeftOut) {
	for _, k := range h.orphans {
		if next[k] == nil {
			delete(c.orphans, k)
			c.orphanChanged = true
		}
	}
	h.orphans = nil
	for k, list := range next {
		h.orphans = append(h.orphans, k)
		if !slices.EqualFunc(c.orphans[k], list, sameLeftOut) {
			c.orphans[k] = list
			c.orphanChanged = true
		}
	}
}

// refreshOrphans gives the endpoints without a service, and counts them by registry.
func (c *Controller) refreshOrphans() map[model.ServiceKey][]model.LeftOut {
	if !c.orphanChanged {
		return c.noService
	}
	c.orphanChanged, c.infoChanged = false, true
	c.noService = maps.Clone(c.orphans)
	count := map[model.ShardKey]int{}
	for _, list := range c.orphans {
		for i := range list {
			count[list[i].Source.Shard]++
		}
	}
	for k, m := range c.attached {
		m.changed = m.changed || m.orphans != count[k]
		m.orphans = count[k]
	}
	return c.noService
}
