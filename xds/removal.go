package xds

import (
	"maps"
	"slices"

	"github.com/RoaringBitmap/roaring/v2"

	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"google.golang.org/protobuf/proto"

	"github.com/isthmus-mesh/isthmus/pushcontext"
	"github.com/isthmus-mesh/isthmus/xds/gen"
	"github.com/isthmus-mesh/isthmus/xds/wire"
)

// late puts off what is gone where that has to wait for other types.
func (st *stream) late(w *watch, c *change) {
	if !w.rule.lateRemoval || len(c.gone) == 0 {
		return
	}
	w.gone.AddMany(c.gone)
	c.gone = nil
}

// negatives answers subscribed names that do not exist.
func (st *stream) negatives(w *watch, ids []uint32, r *reply) {
	for _, id := range ids {
		name := st.t.name(id)
		switch {
		case w.rule.emptied:
			x := st.s.emptyResource(name)
			r.resources = append(r.resources, x)
			if w.sub.Contains(id) { // else it was given up, and may come again with everything
				r.ids, r.sums = append(r.ids, id), append(r.sums, x.Sum)
			}
		case w.parts != nil && w.sub.Contains(id): // a request may wait for it, which a removal does not end
			r.resources = append(r.resources, &resource{Resource: wire.NewAbsent(name), name: name})
		case st.protocol == wire.Delta:
			r.removed, r.gone = append(r.removed, name), append(r.gone, id)
		}
		w.lost(id)
		w.gone.Remove(id)
	}
}

// removals tells that names are gone.
func (st *stream) removals(w *watch, ids []uint32, r *reply) {
	for _, id := range ids {
		w.lost(id)
		if w.rule.emptied && !w.wants(id) {
			continue
		}
		name := st.t.name(id)
		switch {
		case w.rule.emptied:
			r.resources, r.gone = append(r.resources, st.s.emptyResource(name)), append(r.gone, id)
		case st.protocol == wire.Delta:
			r.removed, r.gone = append(r.removed, name), append(r.gone, id)
		}
	}
}

// repeat tells once more that names are gone, if they still are.
func (st *stream) repeat(w *watch, r *reply) {
	w.untold.AndNot(w.sent)
	w.untold.AndNot(roaring.BitmapOf(r.ids...))
	w.untold.AndNot(roaring.BitmapOf(r.gone...))
	if !w.wildcard {
		w.untold.And(w.sub)
	}
	refused := maps.Clone(w.rejected) // is there again, and refused: stays so
	st.removals(w, w.untold.ToArray(), r)
	maps.Copy(w.rejected, refused)
	w.untold.Clear()
}

// emptyResource is the explicit answer for a name without endpoints. Leaving the name out, or
// removing it, would keep a new cluster warming and an old one on its old endpoints.
func (s *Server) emptyResource(name string) *resource {
	body, _ := proto.Marshal(&endpointv3.ClusterLoadAssignment{ClusterName: name})
	return &resource{Resource: wire.NewResource(gen.EndpointURL, name, body), name: name}
}

// early reports whether types that name clusters have yet to come up to the snapshot. A proxy that has
// just connected will ask for them, and may hold routes from before.
func (st *stream) early(pc *pushcontext.PushContext) bool {
	unasked := false
	for typ, w := range st.watches {
		switch {
		case !st.s.rules[typ].afterClusters:
		case w == nil:
			unasked = unasked || st.s.rules[typ].partOf == "" || st.id.class.VHDS
		case w.last < pc.Version:
			return true
		}
	}
	left := st.s.opt.GateWait - st.s.now().Sub(st.opened)
	if !unasked || left <= 0 {
		return false
	}
	if st.gate.nonce == 0 {
		st.arm(left)
	}
	return true
}

// removeLate sends the removals that had to wait for listeners and routes.
func (st *stream) removeLate(pc *pushcontext.PushContext) error {
	none := func(w *watch) bool { return w == nil || w.gone.IsEmpty() }
	if !slices.ContainsFunc(st.watches, func(w *watch) bool { return !none(w) }) || st.early(pc) {
		return nil
	}
	for i := len(st.watches) - 1; i >= 0; i-- { // endpoints before their clusters
		w := st.watches[i]
		if none(w) {
			continue
		}
		r := st.work(w, func() *reply { return st.lateReply(w, pc) })
		if r == nil {
			continue
		}
		if err := st.send(w, r); err != nil {
			return err
		}
	}
	return nil
}

// lateReply tells what is gone; nil if the proxy need not be told.
func (st *stream) lateReply(w *watch, pc *pushcontext.PushContext) *reply {
	if st.protocol == wire.SotW && w.rule.whole {
		for it := w.gone.Iterator(); it.HasNext(); {
			w.lost(it.Next())
		}
		w.gone.Clear()
		return st.wholeReply(w, pc, &change{})
	}
	r := &reply{version: pc.Version}
	st.removals(w, w.gone.ToArray(), r)
	w.gone.Clear()
	if len(r.resources)+len(r.removed) == 0 {
		return nil
	}
	return r
}
