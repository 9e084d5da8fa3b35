package holdback

import (
	"encoding/json"
	"time"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
)

// resumed is something held, as it is written for a run of another process. What it was is among the rows that are kept with it.
type resumed struct {
	Kind, Key        string // of its row
	Since, Due       time.Time
	Decided, Doubted bool   `json:",omitempty"`
	Because          string `json:",omitempty"`
}

// Held is what is held, for Resume; nil if nothing is.
func (h *Handover) Held() []byte {
	h.mu.Lock()
	g := h.last
	h.mu.Unlock()
	if g == nil {
		return nil
	}
	var out []resumed
	g.mu.Lock()
	for row, x := range g.held {
		out = append(out, resumed{row.Kind.String(), row.Key, x.since, x.due, x.decided, x.doubted, x.because})
	}
	g.mu.Unlock()
	if out == nil {
		return nil
	}
	text, _ := json.Marshal(out) // plain structs: no error
	return text
}

// Resume begins with rows that were kept, and with what of them was held then, as Held gave it: that goes when it would have gone, if the
// registry still does not have it, and within the time given in any case. What can't be read is as if it were not held.
func Resume(s *model.ShardState, was []byte, most time.Duration) *Handover {
	out := Begin(s)
	var list []resumed
	if json.Unmarshal(was, &list) != nil {
		return out
	}
	g, latest := out.last, time.Now().Add(most)
	g.held = map[model.RowKey]*held{}
	kinds := map[string]model.Kind{}
	for k := range model.RowKinds {
		kinds[k.String()] = k
	}
	for _, r := range list {
		kind, known := kinds[r.Kind]
		row := model.RowKey{Kind: kind, Key: r.Key}
		o := g.rows[row]
		if !known || o == nil || kindOf(o) == "" {
			continue
		}
		h := &held{row: o, since: r.Since, due: r.Due, decided: r.Decided, doubted: r.Doubted, because: r.Because}
		if e, ok := o.(*model.Endpoints); ok {
			h.row, h.had, h.now = nil, e, e
			h.others, h.bare = map[model.RowKey]model.Object{}, map[model.RowKey]model.Object{}
		}
		if h.due.After(latest) {
			h.due = latest
		}
		g.held[row] = h
	}
	return out
}
