package holdback

import "github.com/isthmus-mesh/isthmus/aggregate/model"

// kindEndpoints is the kind of all endpoints. Of these counts how many there are, of other kinds how many rows.
const kindEndpoints = "Endpoints"

// kindOf is what a row is judged together with; "" if it goes at once, unless it belongs to endpoints that are held. By themselves are
// judged the rows of configuration: objects that say something, and those that describe services and workloads.
func kindOf(o model.Object) string {
	switch o := o.(type) {
	case *model.Endpoints:
		return kindEndpoints
	case *model.Config:
		if o.Spec != nil {
			return o.Kind
		}
	case *model.Service:
		if o.Source.Object.Kind == model.ConfigServiceEntry {
			return model.ConfigServiceEntry
		}
	case *model.Workload:
		if o.Kind == model.KindWorkloadEntry {
			return model.ConfigWorkloadEntry
		}
	}
	return ""
}

// weight is what a row counts for in its kind.
func weight(o model.Object) int {
	if e, ok := o.(*model.Endpoints); ok {
		return len(e.Endpoints)
	}
	return 1
}

// plural is what a kind consists of, in words.
func plural(kind string) string {
	switch kind {
	case kindEndpoints:
		return "endpoints of all services"
	case model.ConfigServiceEntry:
		return "services of ServiceEntries"
	}
	return "objects of its kind"
}

func (h *held) kind() string {
	if h.row != nil {
		return kindOf(h.row)
	}
	return kindEndpoints
}

// object is what it is of. One object may have many rows.
func (h *held) object() model.ObjectKey {
	switch o := h.row.(type) {
	case *model.Config:
		return o.Source.Object
	case *model.Service:
		return o.Source.Object
	case *model.Workload:
		return o.Source.Object
	}
	return h.had.Source.Object
}

// keeps reports whether the event is about a row that is held by itself, and goes on to be. One that is there again is let go of.
func (g *gate) keeps(ev model.Event) bool {
	if g.held[ev.Row] == nil {
		return false
	}
	if ev.Obj != nil {
		delete(g.held, ev.Row)
	}
	return ev.Obj == nil
}

// begins reports whether the event takes away a row that is judged by itself, which is held from now on.
func (g *gate) begins(ev model.Event) bool {
	old := g.rows[ev.Row]
	if ev.Obj != nil || old == nil || kindOf(old) == "" || len(g.held) >= maxHeld {
		return false
	}
	g.start(ev.Row, &held{row: old})
	return true
}
