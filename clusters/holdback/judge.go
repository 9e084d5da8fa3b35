package holdback

import (
	"cmp"
	"slices"
	"time"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	api "github.com/isthmus-mesh/isthmus/api/v1alpha1"
)

// judge takes events in, and gives those that pass. The endpoints come first: the service and the workloads of one that is held stay
// with it. All else is judged by itself.
func (g *gate) judge(events []model.Event) (pass []model.Event) {
	events = slices.Clone(events)
	slices.SortStableFunc(events, func(a, b model.Event) int { return rank(a) - rank(b) })
	for _, ev := range events {
		if ev.Row.Kind == model.RowEndpoints {
			pass = append(pass, g.endpoints(ev)...)
		} else if !g.keeps(ev) && !g.stays(ev) && !g.begins(ev) {
			pass = append(pass, g.serve(g.ported(ev)))
		}
	}
	return pass
}

func rank(ev model.Event) int {
	if ev.Row.Kind == model.RowEndpoints {
		return 0
	}
	return 1
}

// serve notes that an event is passed on.
func (g *gate) serve(ev model.Event) model.Event {
	if old := g.rows[ev.Row]; old != nil {
		g.total[kindOf(old)] -= weight(old)
	}
	if ev.Obj == nil {
		delete(g.rows, ev.Row)
		return ev
	}
	g.rows[ev.Row] = ev.Obj
	g.total[kindOf(ev.Obj)] += weight(ev.Obj)
	return ev
}

// endpoints judges what the registry says of the endpoints of one object.
func (g *gate) endpoints(ev model.Event) []model.Event {
	now, _ := ev.Obj.(*model.Endpoints)
	if h := g.held[ev.Row]; h != nil {
		h.now = now
		if h.lost() == 0 {
			return g.letGo(ev.Row)
		}
		return g.show(ev.Row, h)
	}
	had, _ := g.rows[ev.Row].(*model.Endpoints)
	if had == nil || !g.suspicious(had, now) || len(g.held) >= maxHeld {
		return []model.Event{g.serve(ev)}
	}
	h := &held{had: had, now: now, others: map[model.RowKey]model.Object{}, bare: map[model.RowKey]model.Object{}}
	g.start(ev.Row, h)
	return g.show(ev.Row, h)
}

// start begins to hold: for as long as the policy says, as it is doubtful what the registry knows, or as it takes to be judged with others.
func (g *gate) start(row model.RowKey, h *held) {
	h.since = time.Now()
	h.due = h.since.Add(settle)
	switch doubt := g.doubtful(h.since); {
	case g.opts.Policy.Mode == api.EmptyHold:
		g.hold(h, "")
	case h.since.Before(doubt):
		h.doubted, h.due = true, h.since.Add(g.opts.Policy.Duration.Duration)
		if doubt.Before(h.due) {
			h.due = doubt
		}
		h.because = ", a short time after contact was lost"
	}
	g.keep(row, h)
}

// doubtful is until when it is doubtful that the registry knows all there is. One that speaks while contact counts as lost is only coming
// back.
func (g *gate) doubtful(now time.Time) time.Time {
	if g.status.State == model.StateStale {
		return now.Add(doubtful)
	}
	return g.doubt
}

// show gives the event by which proxies get what there is of something held, if that is another than before.
func (g *gate) show(row model.RowKey, h *held) []model.Event {
	s := h.served()
	if old := g.rows[row]; old != nil && model.SameRow(old, s) {
		return nil
	}
	return []model.Event{g.serve(model.Event{Row: row, Obj: s})}
}

// keep begins to hold, and tells who keeps the time.
func (g *gate) keep(row model.RowKey, h *held) {
	g.held[row] = h
	for _, p := range h.parts() {
		g.owners[p] = h
	}
	g.wakeAt(h.due)
}

// suspicious reports whether what the registry has now may be less than there is.
func (g *gate) suspicious(had, now *model.Endpoints) bool {
	switch {
	case len(had.Endpoints) == 0:
		return false
	case now == nil || len(now.Endpoints) == 0:
		return true
	}
	at := time.Now()
	return g.opts.Policy.Mode == api.EmptyProtect && len(now.Endpoints) < len(had.Endpoints) && at.Before(g.doubtful(at))
}

// stays reports whether a service or workload is to go, but belongs to endpoints that are held. One that is there again
// goes no more.
func (g *gate) stays(ev model.Event) bool {
	old := g.rows[ev.Row]
	h := g.owners[partOf(old)]
	if h == nil || old == nil {
		return false
	}
	delete(h.bare, ev.Row)
	if ev.Obj != nil {
		delete(h.others, ev.Row)
		return false
	}
	h.others[ev.Row] = old
	return true
}

// ported gives a service whose endpoints are held those of its ports that they need, and the registry, which knows less of its
// instances, does not have: all that there were, if it has none.
func (g *gate) ported(ev model.Event) model.Event {
	old, had := g.rows[ev.Row].(*model.Service)
	s, has := ev.Obj.(*model.Service)
	if !had || !has {
		return ev
	}
	h := g.owners[partOf(old)]
	if h == nil {
		return ev
	}
	with := *s
	with.Ports = slices.Concat(s.Ports, h.lacking(s.Ports, old.Ports))
	if len(with.Ports) == len(s.Ports) {
		return ev
	}
	h.bare[ev.Row] = s
	return model.Event{Row: ev.Row, Obj: &with}
}

// lacking are the ports of a service that endpoints which are held are of, and that can be among those that the registry has.
func (h *held) lacking(has, had []model.Port) (out []model.Port) {
	named := map[string]bool{}
	for i := range h.had.Endpoints {
		named[h.had.Endpoints[i].PortName] = true
	}
	for _, p := range had {
		taken := slices.ContainsFunc(has, func(q model.Port) bool { return q.Name == p.Name || q.Number == p.Number })
		if !taken && (len(has) == 0 || named[p.Name]) {
			out = append(out, p)
		}
	}
	return out
}

// part names what belongs to the endpoints of a service: itself and its other names by their host, workloads by themselves.
type part struct {
	namespace, host string
	workload        model.ObjectKey
}

// partOf is the part that a row is.
func partOf(o model.Object) part {
	switch o := o.(type) {
	case *model.Service:
		return part{namespace: o.Namespace, host: cmp.Or(o.AliasOf, o.Host)}
	case *model.Workload:
		return part{workload: o.Source.Object}
	}
	return part{}
}

// parts are those of what is held.
func (h *held) parts() []part {
	if h.row != nil {
		return nil
	}
	out := []part{{namespace: h.had.Namespace, host: h.had.Host}}
	for i := range h.had.Endpoints {
		if w := h.had.Endpoints[i].Workload; w != (model.ObjectKey{}) {
			out = append(out, part{workload: w})
		}
	}
	return out
}

// letGo gives the events by which what was held becomes what the registry says.
func (g *gate) letGo(row model.RowKey) []model.Event {
	h := g.held[row]
	delete(g.held, row)
	for _, p := range h.parts() {
		delete(g.owners, p)
	}
	ev := model.Event{Row: row}
	if h.now != nil {
		ev.Obj = h.now
	}
	out := []model.Event{g.serve(ev)}
	for k := range h.others {
		out = append(out, g.serve(model.Event{Row: k}))
	}
	for k, o := range h.bare {
		out = append(out, g.serve(model.Event{Row: k, Obj: o}))
	}
	return out
}
