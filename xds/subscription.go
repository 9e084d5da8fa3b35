package xds

import (
	"slices"
	"time"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/isthmus-mesh/isthmus/pushcontext"
	"github.com/isthmus-mesh/isthmus/xds/gen"
	"github.com/isthmus-mesh/isthmus/xds/wire"
)

// watch is one stream's state of one resource type. Sets hold numbers of the stream's name table.
type watch struct {
	typ  int
	rule *rule
	gen  gen.Generator

	// What the proxy asked for.
	wildcard bool
	named    bool // has ever subscribed by name: then an empty SotW list is no wildcard
	listed   bool // a SotW list has been read; names is its hash
	names    uint64
	sub      *roaring.Bitmap
	subject  uint64 // hash of the list of names that sub is made of; 0 if it is made of several

	// What it has.
	sent *roaring.Bitmap
	last uint64      // version it has been brought to; 0 before the first response
	good []*resource // SotW full-state types: what it last accepted, by number
	// rejected versions, not sent again until the content changes, or rule.retried says so.
	rejected map[uint32]uint64
	nacked   bool          // its last answer was a refusal
	counted  func()        // ends the count of that in pilot_xds_*_reject; nil if it is not counted
	warned   throttle      // of logged refusals
	patience time.Duration // until what is refused is tried again; 0 if nothing is
	shown    bool          // the status lists names of rejected
	// known versions of a reconnecting proxy, until the first response.
	known map[uint32]string
	// Of a split type, see parts.go: what the proxy has taken, as far as is known, and what it was sent anew, so
	// that all parts of it are due.
	taken, opened *roaring.Bitmap
	// Of a type of parts: its generator, nil for any other; wholes whose parts the proxy is told, and those that wait for an update of theirs.
	parts  gen.Parts
	told   *roaring.Bitmap
	ending map[string]bool
	// early is what it was sent before it asked for the type that follows this one.
	early *roaring.Bitmap

	// What it is owed.
	must    *roaring.Bitmap // names to be answered, changed or not
	gone    *roaring.Bitmap // names to be told as removed, late
	untold  *roaring.Bitmap // names that a refused response said are gone
	answer  bool            // a response is due even if it is empty
	widened bool            // everything is subscribed since the last response
	old     *audience       // the class changed: resources may differ from those of this audience

	pending []pending // responses without ACK or NACK, oldest first
	probes  [][]uint32
	suspect *roaring.Bitmap // union of probes and of the probe on its way
	putOff  *roaring.Bitmap // suspects that are due again once they are settled

	// Interest in views, see interest.go.
	keys map[pushcontext.ViewKey]int
	wide bool
}

// pending is a response that the proxy has not answered.
type pending struct {
	nonce   uint64
	version uint64 // snapshot that it was made from
	ids     []uint32
	sums    []uint64    // content hashes, by ids
	whole   []*resource // the full state, for types that send it
	gone    []uint32    // names that it says are gone
	ended   []string    // wholes that it ends the wait of
	probe   bool
}

func newWatch(typ int, r *rule, g gen.Generator) *watch {
	return &watch{
		typ: typ, rule: r, gen: g, answer: true,
		sub: roaring.New(), sent: roaring.New(), must: roaring.New(), gone: roaring.New(), suspect: roaring.New(), putOff: roaring.New(), early: roaring.New(), untold: roaring.New(),
		taken: roaring.New(), opened: roaring.New(), told: roaring.New(), ending: map[string]bool{},
		keys: map[pushcontext.ViewKey]int{}, warned: throttle{every: refusalLogEvery},
	}
}

func (w *watch) wants(id uint32) bool { return w.wildcard || w.sub.Contains(id) }

func isStar(b []byte) bool { return len(b) == 1 && b[0] == '*' }

// subscribe adds names of a delta request. The first request of a type that names nothing
// subscribes to everything, where the type allows that.
func (w *watch) subscribe(t *names, r *wire.Request, first bool, hash uint64) {
	w.remember(t, r)
	asked := roaring.New()
	star := false
	t.internBytes(w.typ, w.gen, func(yield func([]byte) bool) {
		for n := range r.Subscribe.All() {
			if isStar(n) {
				star = true
			} else if !yield(n) {
				return
			}
		}
	}, asked)
	if star || first && w.rule.wildcard && r.Subscribe.Count == 0 {
		w.star()
	}
	if first && !w.wildcard {
		for id := range w.known { // a proxy that lists what it holds still wants it
			asked.Add(id)
		}
	}
	w.sub.Or(asked)
	w.owe(asked)
	if w.subject = 0; first && len(w.known) == 0 && r.Unsubscribe.Count == 0 {
		w.subject = hash
	}
}

// owe makes the next response answer names, even with content that was refused before: the proxy
// waits.
func (w *watch) owe(ids *roaring.Bitmap) {
	w.must.Or(ids)
	for id := range w.rejected {
		if ids.Contains(id) {
			delete(w.rejected, id)
		}
	}
}

func (w *watch) star() {
	if !w.wildcard {
		w.wildcard, w.answer, w.widened = true, true, true
	}
}

// remember takes the versions that a reconnecting proxy holds.
func (w *watch) remember(t *names, r *wire.Request) {
	for n, v := range r.Versions() {
		if w.known == nil {
			w.known = make(map[uint32]string, r.InitialVersions.Count)
		}
		id := t.intern(w.typ, w.gen, string(n))
		if w.known[id] = string(v); w.rule.split {
			w.taken.Add(id)
		}
	}
}

// unknow forgets versions that the proxy holds, so that they are sent again.
func (w *watch) unknow(ids *roaring.Bitmap) {
	for it := ids.Iterator(); it.HasNext(); {
		delete(w.known, it.Next())
	}
}

// unsubscribe drops names of a delta request. A name given up while everything is subscribed is
// answered: the proxy can't know whether it still gets it.
func (w *watch) unsubscribe(t *names, r *wire.Request) {
	dropped := roaring.New()
	star := false
	t.findBytes(w.typ, func(yield func([]byte) bool) {
		for n := range r.Unsubscribe.All() {
			if isStar(n) {
				star = true
			} else if !yield(n) {
				return
			}
		}
	}, dropped)
	dropped.And(w.sub)
	w.sub.AndNot(dropped)
	if star {
		w.wildcard = false
		w.keepOnly(w.sub)
	}
	if w.wildcard {
		w.must.Or(dropped)
	} else {
		w.drop(dropped)
	}
}

func (w *watch) drop(ids *roaring.Bitmap) {
	w.sent.AndNot(ids)
	w.must.AndNot(ids)
	w.gone.AndNot(ids)
	w.taken.AndNot(ids)
	for id := range w.rejected {
		if ids.Contains(id) {
			delete(w.rejected, id)
		}
	}
}

func (w *watch) keepOnly(ids *roaring.Bitmap) {
	all := w.sent.Clone()
	all.Or(w.must)
	all.AndNot(ids)
	w.drop(all)
}

// list takes the whole subscription of a SotW request. It reports whether it differs from before.
func (w *watch) list(t *names, r *wire.Request, hash uint64) bool {
	if w.listed && hash == w.names {
		return false
	}
	w.listed, w.names, w.subject = true, hash, hash
	now, star := roaring.New(), false
	t.internBytes(w.typ, w.gen, func(yield func([]byte) bool) {
		for n := range r.Names.All() {
			if isStar(n) {
				star = true
			} else if !yield(n) {
				return
			}
		}
	}, now)
	w.named = w.named || r.Names.Count > 0
	if star || w.rule.wildcard && !w.named {
		w.star()
	} else {
		w.wildcard = false
	}
	w.replace(now)
	return true
}

func (w *watch) replace(now *roaring.Bitmap) {
	added := now.Clone()
	added.AndNot(w.sub)
	removed := w.sub
	w.sub = now
	if !w.wildcard {
		removed.AndNot(now)
		w.drop(removed)
		w.keepOnly(now)
	}
	w.owe(added)
	w.answer = w.answer || w.rule.whole
}

// ack finds the response that a request answers and takes it, with all before it, off the pending
// ones. It reports false for an outdated nonce.
func (w *watch) ack(nonce uint64) (p pending, ok bool) {
	for i := range w.pending {
		if w.pending[i].nonce == nonce {
			p = w.pending[i]
			w.pending = slices.Delete(w.pending, 0, i+1)
			return p, true
		}
	}
	return p, false
}

// maxPending bounds what is remembered of responses whose ACK the proxy withholds.
const maxPending = 16

func (w *watch) sentOut(p pending) {
	if len(w.pending) < maxPending {
		w.pending = append(w.pending, p)
		return
	}
	// The two oldest become one.
	a, b := w.pending[0], w.pending[1]
	merged := pending{nonce: b.nonce, version: b.version, ids: b.ids, sums: b.sums, whole: b.whole, probe: a.probe || b.probe, gone: slices.Concat(a.gone, b.gone), ended: slices.Concat(a.ended, b.ended)}
	later := roaring.BitmapOf(b.ids...)
	for i, id := range a.ids {
		if !later.Contains(id) && (a.probe || w.holds(id)) {
			merged.ids, merged.sums = append(merged.ids, id), append(merged.sums, a.sums[i])
		}
	}
	w.pending = append(slices.Replace(w.pending, 0, 2, merged), p)
}

// probing reports whether a probe is on its way.
func (w *watch) probing() bool {
	for i := range w.pending {
		if w.pending[i].probe {
			return true
		}
	}
	return false
}

// holds reports whether the proxy may have the name, or asked for it.
func (w *watch) holds(id uint32) bool { return w.sub.Contains(id) || w.sent.Contains(id) }

// shorten drops what the proxy gave up: nobody asks whether it accepted that.
func (p *pending) shorten(w *watch) {
	ids, sums := p.ids, p.sums
	p.ids, p.sums = nil, nil
	p.gone = slices.DeleteFunc(p.gone, func(id uint32) bool { return !w.wants(id) })
	for i, id := range ids {
		if w.holds(id) {
			p.ids, p.sums = append(p.ids, id), append(p.sums, sums[i])
		}
	}
}

// move carries the sets over to a younger name table.
func (w *watch) move(from, to *names) {
	for i := range w.pending {
		if !w.pending[i].probe { // which is settled as a whole
			w.pending[i].shorten(w)
		}
	}
	one := func(id uint32) uint32 { return from.moved(id, to, w.typ, w.gen) }
	set := func(b *roaring.Bitmap) *roaring.Bitmap {
		out := roaring.New()
		for it := b.Iterator(); it.HasNext(); {
			out.Add(one(it.Next()))
		}
		return out
	}
	list := func(ids []uint32) {
		for i := range ids {
			ids[i] = one(ids[i])
		}
	}
	w.sub, w.sent, w.must, w.gone = set(w.sub), set(w.sent), set(w.must), set(w.gone)
	w.suspect, w.putOff, w.early, w.untold = set(w.suspect), set(w.putOff), set(w.early), set(w.untold)
	w.taken, w.opened, w.told = set(w.taken), set(w.opened), set(w.told)
	w.rejected, w.known = moved(w.rejected, one), moved(w.known, one)
	for i := range w.pending {
		list(w.pending[i].ids)
		list(w.pending[i].gone)
	}
	for _, p := range w.probes {
		list(p)
	}
}

func moved[V any](m map[uint32]V, one func(uint32) uint32) map[uint32]V {
	if m == nil {
		return nil
	}
	out := make(map[uint32]V, len(m))
	for id, v := range m {
		out[one(id)] = v
	}
	return out
}

// lost forgets a name that the proxy is no longer to have.
func (w *watch) lost(id uint32) {
	w.sent.Remove(id)
	w.taken.Remove(id)
	delete(w.rejected, id)
}

// refused reports whether the proxy refused the resource as it is.
func (w *watch) refused(r *resource, id uint32) bool {
	sum, ok := w.rejected[id]
	return ok && sum == r.Sum
}
