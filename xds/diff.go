package xds

import (
	"slices"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/isthmus-mesh/isthmus/pushcontext"
)

// change is what one type's next response must say.
type change struct {
	send  []*resource
	ids   []uint32        // of send
	sums  []uint64        // content hashes, of send
	done  *roaring.Bitmap // names that are decided; each is in a response once
	empty []uint32        // names to be answered with nothing
	gone  []uint32        // names that the proxy has and should not
	ended []string        // wholes that wait for an update and have no part in send
}

func (c *change) grow(n int) {
	c.send, c.ids, c.sums = make([]*resource, 0, n), make([]uint32, 0, n), make([]uint64, 0, n)
}

func (c *change) none() bool { return len(c.send)+len(c.empty)+len(c.gone) == 0 }

// once leaves out of what is gone what is there already: Envoy refuses a response that names something twice.
func (c *change) once() {
	if len(c.gone) == 0 {
		return
	}
	told := roaring.BitmapOf(c.empty...)
	c.gone = slices.DeleteFunc(c.gone, func(id uint32) bool { return !told.CheckedAdd(id) })
}

// differ works out changes of one type for one proxy.
type differ struct {
	f  *factory
	t  *names
	pc *pushcontext.PushContext
	a  *audience
	w  *watch
	c  *change
	// wholes is the watch of what the resources are parts of; nil if there is none, see parts.go.
	wholes *watch
}

// differ makes one for a type.
func (st *stream) differ(w *watch, pc *pushcontext.PushContext) *differ {
	return &differ{f: st.s.factory, t: st.t, pc: pc, a: st.aud, w: w, c: &change{done: roaring.New()}, wholes: st.wholes(w)}
}

// collect compares the snapshot with what the proxy has.
func (d *differ) collect(hub *pushcontext.Hub) *change {
	w, pc := d.w, d.pc
	d.forgetOpened()
	if w.last == 0 || w.old != nil || w.widened {
		d.everything(w.last)
	} else if w.last < pc.Version {
		if delta, ok := hub.Between(w.last, pc.Version); ok {
			d.changed(delta)
		} else {
			d.everything(w.last)
		}
	}
	d.owed()
	d.settleParts()
	d.c.once()
	return d.c
}

// everything looks at all that the proxy subscribes.
func (d *differ) everything(since uint64) {
	var whole *roster
	if since == 0 && d.w.old == nil && d.w.untouched() {
		if whole = d.roster(); whole != nil && d.fits(whole) {
			d.take(whole)
		} else {
			whole = nil
		}
	}
	if !d.w.wildcard {
		if whole != nil {
			d.own()
			return
		}
		all := d.w.sub.Clone()
		all.Or(d.w.sent)
		d.c.grow(int(all.GetCardinality()))
		for it := all.Iterator(); it.HasNext(); {
			d.one(it.Next(), since)
		}
		return
	}
	live := roaring.New()
	if whole != nil {
		live = whole.all.Clone()
	} else if since == 0 { // most of the names are those that others hold too
		d.c.grow(d.t.size())
	}
	for _, kind := range d.w.gen.Kinds() {
		if whole != nil && !kind.OfReader() {
			continue
		}
		for key := range d.pc.Keys(kind) {
			d.view(key, since, live)
		}
	}
	lost := d.w.sent.Clone()
	for id := range d.w.known {
		lost.Add(id)
	}
	lost.AndNot(live)
	d.c.gone = append(d.c.gone, lost.ToArray()...)
}

// own offers what a roster of subscribed names leaves out: what is made from views of the proxy's own workload.
func (d *differ) own() {
	for _, kind := range d.w.gen.Kinds() {
		if !kind.OfReader() {
			continue
		}
		for _, id := range d.t.owned(d.w.typ, pushcontext.ViewKey{Kind: kind}) {
			if d.w.sub.Contains(id) {
				d.one(id, 0)
			}
		}
	}
}

// view offers what a view has now and adds it to live.
func (d *differ) view(key pushcontext.ViewKey, since uint64, live *roaring.Bitmap) {
	if d.outside(key) {
		return
	}
	b, rev := d.f.of(d.pc, d.w.typ, key, d.a)
	if b == nil {
		return
	}
	if b.unlisted {
		live.AddMany(d.t.owned(d.w.typ, key))
		return
	}
	var before *built
	if d.w.old != nil {
		before, _ = d.f.of(d.pc, d.w.typ, key, d.w.old)
	}
	for i, r := range b.resources {
		id := r.id(d.t, d.w.typ, d.w.gen)
		live.Add(id)
		if d.news(key, r, id, rev, since) || d.w.old != nil && !same(before, r, i) {
			d.offer(r, id)
		}
	}
}

// same reports whether a proxy of the class before has the resource as it is; it stood at index i.
func same(before *built, r *resource, i int) bool {
	if before == nil || r.failed() {
		return false
	}
	o := before.at(i, r.name)
	return o != nil && !o.failed() && o.Version == r.Version
}

// news reports whether a proxy that was last looked at in version since lacks the resource as it is.
// If its class has changed since then, what is known of the resource is that of another class.
func (d *differ) news(key pushcontext.ViewKey, r *resource, id uint32, rev, since uint64) bool {
	switch {
	case !d.w.sent.Contains(id):
		return true
	case rev <= since:
		return false
	case d.w.old != nil:
		return true
	}
	return r.rev > since || d.pc.SameSince(key, &d.a.reader) > since
}

// one looks at one subscribed name.
func (d *differ) one(id uint32, since uint64) {
	name := d.t.name(id)
	r, rev, sure := d.lookup(d.a, name)
	key, _ := keyOf(d.w.gen, name)
	switch {
	case !sure:
	case r == nil:
		if d.w.sent.Contains(id) {
			d.c.gone = append(d.c.gone, id)
		}
	case d.news(key, r, id, rev, since):
		d.offer(r, id)
	case d.w.old != nil:
		if o, _, _ := d.lookup(d.w.old, name); o == nil || o.failed() || r.failed() || o.Version != r.Version {
			d.offer(r, id)
		}
	}
}

// lookup finds a resource by name; sure is false if its view can't be listed.
func (d *differ) lookup(a *audience, name string) (r *resource, rev uint64, sure bool) {
	key, ok := keyOf(d.w.gen, name)
	if !ok {
		return nil, 0, true
	}
	b, rev := d.f.of(d.pc, d.w.typ, key, a)
	if b != nil && b.unlisted {
		return nil, rev, false
	}
	return b.find(name), rev, true
}

// changed looks at the views that a delta names.
func (d *differ) changed(delta *pushcontext.Delta) {
	for _, kind := range d.w.gen.Kinds() {
		for key := range delta.Keys(kind, &d.a.reader) {
			d.key(key)
		}
	}
}

func (d *differ) key(key pushcontext.ViewKey) {
	owned := d.t.owned(d.w.typ, key)
	if !d.w.wildcard && !anyOf(owned, d.w.sub) || d.outside(key) {
		return
	}
	b, rev := d.f.of(d.pc, d.w.typ, key, d.a)
	if b != nil && b.unlisted {
		return
	}
	if d.steps(b, key) {
		d.step(b.step)
		return
	}
	var same *roaring.Bitmap // mostly none: a view that changed has changed for the proxy
	if b != nil {
		for _, r := range b.resources {
			switch id := r.id(d.t, d.w.typ, d.w.gen); {
			case !d.w.wants(id):
			case d.news(key, r, id, rev, d.w.last):
				d.offer(r, id)
			default:
				if same == nil {
					same = roaring.New()
				}
				same.Add(id)
			}
		}
	}
	for _, id := range owned { // what is wanted and still listed was offered, or is as it was
		if !d.c.done.Contains(id) && d.w.sent.Contains(id) && (same == nil || !same.Contains(id)) {
			d.c.gone = append(d.c.gone, id)
		}
	}
}

// steps reports whether the proxy was brought to exactly what was made of the view before, for the class that it
// still has: then only what differs from that needs to be looked at, of possibly thousands of resources.
func (d *differ) steps(b *built, key pushcontext.ViewKey) bool {
	return b != nil && b.step != nil && b.step.from <= d.w.last && d.w.last < b.rev && d.pc.SameSince(key, &d.a.reader) <= d.w.last
}

func (d *differ) step(s *step) {
	for _, r := range s.news {
		if id := r.id(d.t, d.w.typ, d.w.gen); d.w.wants(id) {
			d.offer(r, id)
		}
	}
	for _, name := range s.lost {
		if id, ok := d.t.find(d.w.typ, name); ok && d.w.sent.Contains(id) && d.c.done.CheckedAdd(id) {
			d.c.gone = append(d.c.gone, id)
		}
	}
}

func anyOf(ids []uint32, set *roaring.Bitmap) bool {
	for _, id := range ids {
		if set.Contains(id) {
			return true
		}
	}
	return false
}

// offer takes a resource into the response unless the proxy has it, refused it, or there is none.
func (d *differ) offer(r *resource, id uint32) {
	if !d.c.done.CheckedAdd(id) {
		return
	}
	switch {
	case r.failed():
		return
	case d.w.suspect.Contains(id):
		d.w.putOff.Add(id)
		return
	case d.w.refused(r, id):
		return
	case d.w.known[id] == r.Version:
		d.w.sent.Add(id)
		return
	}
	d.c.send = append(d.c.send, r)
	d.c.ids = append(d.c.ids, id)
	d.c.sums = append(d.c.sums, r.Sum)
}

// owed answers the names that must be answered whatever happened.
func (d *differ) owed() {
	if d.w.must.IsEmpty() {
		return
	}
	for it := d.w.must.Iterator(); it.HasNext(); {
		id := it.Next()
		if d.c.done.Contains(id) || !d.w.wants(id) || d.apart(id) {
			continue
		}
		r, _, sure := d.lookup(d.a, d.t.name(id))
		switch {
		case !sure:
		case r != nil:
			d.offer(r, id)
		case d.c.done.CheckedAdd(id):
			d.c.empty = append(d.c.empty, id)
		}
	}
}
