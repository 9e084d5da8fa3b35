package holdback

import (
	"maps"
	"sync"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
)

// Handover is what the runs of a registry, and those of registries that are to say the same, leave to each other: what proxies are served,
// and what of it is held. Without it each run would believe its first full truth, be that of a registry that has just restarted empty.
// The zero value is ready for use.
type Handover struct {
	mu   sync.Mutex
	last *gate // guarded by mu: of the run that was the last to give a first full truth
}

// Begin gives the Handover of a registry whose rows were kept, and are served, though no run of this process has told them.
func Begin(s *model.ShardState) *Handover {
	g := &gate{}
	g.rows, g.total = kept(s)
	return &Handover{last: g}
}

// next makes a run the last one, and gives the one before; nil if there is none.
func (h *Handover) next(g *gate) (before *gate) {
	if h == nil {
		return nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	before, h.last = h.last, g
	return before
}

// replaced reports whether another run has taken over.
func (h *Handover) replaced(g *gate) bool {
	if h == nil {
		return false
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.last != nil && h.last != g
}

// inherit takes over what a run before serves, and reports whether that one is in contact with the registry; it is called with mu held, and
// locks only what is older.
func (g *gate) inherit(before *gate) (contact bool) {
	before.mu.Lock()
	defer before.mu.Unlock()
	g.rows, g.total, g.count = maps.Clone(before.rows), maps.Clone(before.total), before.count
	g.doubt = before.doubt
	for row, h := range before.held {
		own := *h
		own.others, own.bare = maps.Clone(h.others), maps.Clone(h.bare)
		g.keep(row, &own)
	}
	return before.status.State == model.StateLive
}
