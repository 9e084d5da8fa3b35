package xds

import (
	"maps"
	"slices"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/isthmus-mesh/isthmus/pushcontext"
)

// Virtual hosts are parts of route tables. Envoy subscribes to those of all its tables at once, and has its
// own ways with them:
//
//   - It acknowledges, counts as its own and forgets a host of a table that it does not have. So the hosts of
//     a table are sent behind the table, and again whenever it is sent anew, whatever Envoy says that it has.
//     What it gave up with a table is told as removed, so that it does not say so for ever.
//   - A new table waits for the first update of hosts that is about it. One without hosts is told that a host
//     is gone that never was.
//   - It applies nothing of a response that it refuses, so the wait of every table in it goes on.

// wholes gives the watch of what a type's resources are parts of; nil if there is none.
func (st *stream) wholes(w *watch) *watch {
	if w.parts == nil {
		return nil
	}
	if i, ok := st.s.byURL[w.rule.partOf]; ok {
		return st.watches[i]
	}
	return nil
}

// partsDue reports whether wholes came or went since the parts were looked at, or wait for an update.
func (st *stream) partsDue(w *watch) bool {
	if w.parts == nil {
		return false
	}
	if len(w.ending) > 0 {
		return true
	}
	o := st.wholes(w)
	return o != nil && (!o.opened.IsEmpty() || w.told.GetCardinality() > w.told.AndCardinality(o.sent))
}

// open notes that wholes are sent. Those that the proxy is not known to have are new to it.
func (w *watch) open(ids []uint32) {
	if !w.rule.split {
		return
	}
	fresh := roaring.BitmapOf(ids...)
	fresh.AndNot(w.taken)
	w.opened.Or(fresh)
	w.taken.Or(fresh)
}

// unsettle notes that a proxy refused a response: it may not have the wholes in it, and wholes with parts in
// it still wait.
func (st *stream) unsettle(w *watch, ids []uint32, ended []string) {
	if w.rule.split {
		w.taken.AndNot(roaring.BitmapOf(ids...))
	}
	if w.parts == nil {
		return
	}
	for _, name := range ended {
		w.ending[name] = true
	}
	for _, id := range ids {
		if key, ok := keyOf(w.gen, st.t.name(id)); ok {
			w.ending[w.parts.Whole(key)] = true
		}
	}
}

// outside reports whether a view's resources are parts of what the proxy has not been sent.
func (d *differ) outside(key pushcontext.ViewKey) bool {
	if d.w.parts == nil {
		return false
	}
	if d.wholes == nil {
		return true
	}
	id, ok := d.t.find(d.wholes.typ, d.w.parts.Whole(key))
	return !ok || !d.wholes.sent.Contains(id)
}

// note adds to a roster what a view's resources are parts of; false if nobody has asked for that yet.
func (d *differ) note(r *roster, key pushcontext.ViewKey) bool {
	if d.w.parts == nil {
		return true
	}
	if d.wholes == nil {
		return false
	}
	id, ok := d.t.find(d.wholes.typ, d.w.parts.Whole(key))
	if ok {
		r.wholes.Add(id)
	}
	return ok
}

// fits reports whether the proxy has all wholes of a roster, so that it is to have all of it.
func (d *differ) fits(r *roster) bool {
	return d.w.parts == nil || d.wholes != nil && r.wholes.AndCardinality(d.wholes.sent) == r.wholes.GetCardinality()
}

// apart is outside for a name.
func (d *differ) apart(id uint32) bool {
	if d.w.parts == nil {
		return false
	}
	key, ok := keyOf(d.w.gen, d.t.name(id))
	return ok && d.outside(key)
}

// split gives the view of a whole's parts; false if it has none of this type.
func (d *differ) split(whole uint32) (pushcontext.ViewKey, bool) {
	name := d.t.name(whole)
	key, ok := keyOf(d.wholes.gen, name)
	return key, ok && d.w.parts.Whole(key) == name
}

// forgetOpened drops what a proxy says that it has of wholes that are new to it.
func (d *differ) forgetOpened() {
	if d.w.parts == nil || d.wholes == nil {
		return
	}
	for it := d.wholes.opened.Iterator(); it.HasNext(); {
		if key, ok := d.split(it.Next()); ok {
			for _, id := range d.t.owned(d.w.typ, key) {
				delete(d.w.known, id)
			}
		}
	}
}

// settleParts takes back the parts of wholes that the proxy has given up, and offers all of those that it was
// sent anew.
func (d *differ) settleParts() {
	if d.w.parts == nil || d.wholes == nil {
		return
	}
	closed := d.w.told.Clone()
	closed.AndNot(d.wholes.sent)
	for it := closed.Iterator(); it.HasNext(); {
		if key, ok := d.split(it.Next()); ok {
			d.takeBack(key)
		}
	}
	var sent *roaring.Bitmap
	for it := d.wholes.opened.Iterator(); it.HasNext(); {
		whole := it.Next()
		key, ok := d.split(whole)
		if !ok || !d.wholes.sent.Contains(whole) {
			continue
		}
		if sent == nil {
			sent = roaring.BitmapOf(d.c.ids...)
		}
		if !d.reopen(key, sent) {
			d.c.ended = append(d.c.ended, d.t.name(whole))
		}
	}
	d.wholes.opened.Clear()
	if !d.w.told.Equals(d.wholes.sent) {
		d.w.told = d.wholes.sent.Clone()
	}
}

func (d *differ) takeBack(key pushcontext.ViewKey) {
	for _, id := range d.t.owned(d.w.typ, key) {
		if d.w.sent.Contains(id) && d.c.done.CheckedAdd(id) {
			d.c.gone = append(d.c.gone, id)
		}
	}
}

// reopen offers all that a view has, and reports whether any of it is sent.
func (d *differ) reopen(key pushcontext.ViewKey, sent *roaring.Bitmap) (any bool) {
	b, _ := d.f.of(d.pc, d.w.typ, key, d.a)
	if b == nil {
		return false
	}
	before := len(d.c.send)
	for _, r := range b.resources {
		id := r.id(d.t, d.w.typ, d.w.gen)
		if d.w.wants(id) {
			d.offer(r, id)
		}
		any = any || sent.Contains(id)
	}
	return any || len(d.c.send) > before
}

// end adds to a response what ends the wait of wholes that have no part in it.
func (d *differ) end(r *reply, ended []string) {
	if d.w.parts == nil {
		return
	}
	for _, name := range ended {
		d.w.ending[name] = true
	}
	for _, id := range r.ids {
		if key, ok := keyOf(d.w.gen, d.t.name(id)); ok && len(d.w.ending) > 0 {
			delete(d.w.ending, d.w.parts.Whole(key))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(d.w.ending)) {
		r.removed, r.ended = append(r.removed, d.w.parts.None(name)), append(r.ended, name)
	}
	clear(d.w.ending)
}
