package xds

import (
	"slices"
	"strconv"
	"time"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/isthmus-mesh/isthmus/pushcontext"
	"github.com/isthmus-mesh/isthmus/xds/wire"
)

// gate holds back listeners and routes until the proxy has processed new clusters.
type gate struct {
	nonce uint64 // of the clusters' response; 0 when open
	until time.Time
}

func formatNonce(n uint64) string { return strconv.FormatUint(n, 10) }

// turn brings every type that may be sent up to the current snapshot.
func (st *stream) turn() error {
	pc := st.s.hub.Current()
	st.move()
	if pc == nil || st.id == nil {
		return nil
	}
	st.settle(pc)
	before := st.nonce
	for _, w := range st.ordered() {
		if err := st.push(w, pc); err != nil {
			return err
		}
	}
	if err := st.removeLate(pc); err != nil {
		return err
	}
	st.showRejected()
	st.letGo()
	st.converged(pc, before)
	return nil
}

// letGo lets earlier audiences go that no type was left at.
func (st *stream) letGo() {
	st.past = slices.DeleteFunc(st.past, func(a *audience) bool {
		if slices.ContainsFunc(st.watches, func(w *watch) bool { return w != nil && w.old == a }) {
			return false
		}
		a.leave()
		return true
	})
}

// settled reports whether the proxy's class is known to be that of the turn before: the class depends on
// the snapshot by the proxy's own addresses and by what is addressed to its workload only.
func (st *stream) settled(pc *pushcontext.PushContext) bool {
	seen := st.seen
	st.seen = pc.Version
	switch {
	case st.aud == nil || pc.Version < seen:
		return false
	case pc.Version == seen:
		return true
	case pc.Version > seen+1: // looking it up is as quick
		return false
	}
	d, ok := st.s.hub.Between(seen, pc.Version)
	return ok && !d.Moves(st.id.instances) && !d.Scoped(st.id.class.Namespace) && !(d.Gateways && st.id.class.ExposeServices)
}

// settle makes the proxy's class current.
func (st *stream) settle(pc *pushcontext.PushContext) {
	if st.settled(pc) {
		// as it was
	} else if a := st.id.audience(pc, st.s.classes); st.aud == nil || a.class != st.aud.class {
		for _, w := range st.watches {
			if w != nil && w.last > 0 && w.old == nil {
				w.old = st.aud
			}
		}
		if st.aud != nil {
			st.past = append(st.past, st.aud)
		}
		st.aud = a
		st.status.class(a.class)
	}
}

// move makes the name table current.
func (st *stream) move() {
	if t := st.s.tables.current.Load(); t != st.t {
		old := st.t
		st.t = st.s.tables.join()
		for _, w := range st.watches {
			if w != nil {
				w.move(old, st.t)
			}
		}
		st.s.tables.left(old)
	}
}

// ordered gives the watched types in the order in which they are served.
func (st *stream) ordered() []*watch {
	out := st.scratch[:0]
	for _, w := range st.watches {
		if w != nil {
			out = append(out, w)
		}
	}
	st.scratch = out
	return out
}

// gated reports whether a type must wait.
func (st *stream) gated(w *watch) bool {
	if w.rule.afterClusters && st.gate.nonce > 0 {
		return true
	}
	if !w.rule.ackGate || len(w.pending) == 0 {
		return false
	}
	return !w.rule.urgent || w.must.IsEmpty()
}

// idle reports whether there is nothing to work out for a type.
func (w *watch) idle(pc *pushcontext.PushContext) bool {
	return w.last >= pc.Version && w.must.IsEmpty() && !w.answer && !w.widened && w.old == nil && len(w.probes) == 0 && w.untold.IsEmpty()
}

func (st *stream) push(w *watch, pc *pushcontext.PushContext) error {
	if w.idle(pc) && !st.partsDue(w) || st.gated(w) {
		return nil
	}
	if len(w.probes) > 0 && !w.probing() {
		if err := st.probe(w, pc); err != nil {
			return err
		}
		if st.gated(w) {
			return nil
		}
	}
	start := st.s.now()
	r := st.work(w, func() *reply { return st.prepare(w, pc) })
	if r == nil {
		return nil
	}
	err := st.send(w, r)
	st.s.metrics.types[w.typ].pushTime.Observe(st.wrote.Sub(start).Seconds())
	return err
}

// reply is one response.
type reply struct {
	resources []*resource
	ids       []uint32 // of what is new in it
	sums      []uint64 // content hashes, by ids
	removed   []string
	gone      []uint32 // of what is removed, or empty
	whole     []*resource
	version   uint64
	ended     []string // wholes that it ends the wait of
	probe     bool
	fresh     bool // holds names that the proxy did not have

	nonce uint64 // set with head and msg once it is encoded
	head  wire.Head
	msg   *wire.Response
}

// sendCost is about what the transport takes for a small response and its ACK, on goroutines and in
// system calls that are not measured.
const sendCost = 30 * time.Microsecond

// work makes and encodes a reply while it holds one of the server's slots. The time that the slot is
// held, not the wait for it, and what sending it will take are what the reply costs.
func (st *stream) work(w *watch, reply func() *reply) *reply {
	release := st.s.work()
	defer release()
	start := st.s.now()
	r := reply()
	sending := time.Duration(0)
	if r != nil {
		st.encode(w, r)
		sending = sendCost
	}
	if f := st.s.opt.OnPushCost; f != nil && st.woken {
		f(st.s.now().Sub(start) + sending)
	}
	return r
}

func (st *stream) encode(w *watch, r *reply) {
	st.nonce++
	r.nonce = st.nonce
	r.head = wire.Head{
		Protocol: st.protocol, Version: strconv.FormatUint(r.version, 10), TypeURL: w.rule.url,
		Nonce: formatNonce(st.nonce), Removed: r.removed, Count: len(r.resources),
	}
	r.msg = wire.NewResponse(r.head)
	for _, x := range r.resources {
		r.msg.Add(st.protocol, x.Resource)
	}
}

// prepare works out a type's next response and counts it as told; nil if there is none to send.
func (st *stream) prepare(w *watch, pc *pushcontext.PushContext) *reply {
	first := w.last == 0
	d := st.differ(w, pc)
	c := d.collect(st.s.hub)
	st.late(w, c)
	owed := w.answer || (!w.must.IsEmpty() && first)
	w.last, w.old, w.known, w.answer, w.widened = pc.Version, nil, nil, false, false
	w.must.Clear()
	if st.protocol == wire.SotW && w.rule.whole {
		w.untold.Clear() // what a full state leaves out is gone
		if c.none() && !owed {
			return nil
		}
		return st.wholeReply(w, pc, c)
	}
	r := &reply{resources: c.send, ids: c.ids, sums: c.sums, version: pc.Version, fresh: fresh(w, c.ids)}
	st.negatives(w, c.empty, r)
	st.removals(w, c.gone, r)
	st.repeat(w, r)
	d.end(r, c.ended)
	if len(r.resources)+len(r.removed) == 0 && !owed {
		return nil
	}
	return r
}

func fresh(w *watch, ids []uint32) bool {
	return slices.ContainsFunc(ids, func(id uint32) bool { return !w.sent.Contains(id) })
}

// wholeReply makes a response that holds all that the proxy is to have. What can't be built, or was
// refused, stays as the proxy last accepted it; and so does what is gone, until it may be taken away.
func (st *stream) wholeReply(w *watch, pc *pushcontext.PushContext, c *change) *reply {
	r := &reply{version: pc.Version, ids: c.ids, sums: c.sums, fresh: fresh(w, c.ids)}
	all, ids := st.full(w, pc, w.suspect)
	for _, id := range c.gone {
		w.lost(id)
	}
	all, ids = st.keep(w, all, ids)
	st.forgetRefusals(w, pc)
	w.sent = roaring.BitmapOf(ids...)
	r.resources, r.whole = all, all
	return r
}

// keep adds to a full state what is gone and has to wait for other types, as the proxy last accepted it.
func (st *stream) keep(w *watch, all []*resource, ids []uint32) ([]*resource, []uint32) {
	w.gone.AndNot(roaring.BitmapOf(ids...)) // is there again
	if w.gone.IsEmpty() {
		return all, ids
	}
	good := w.goodByName()
	for it := w.gone.Clone().Iterator(); it.HasNext(); {
		id := it.Next()
		if r := good[st.t.name(id)]; r != nil {
			all, ids = append(all, r), append(ids, id)
		} else {
			w.lost(id)
			w.gone.Remove(id)
		}
	}
	return all, ids
}

// forgetRefusals drops what was refused and is no more; it was never part of what the proxy holds.
func (st *stream) forgetRefusals(w *watch, pc *pushcontext.PushContext) {
	if len(w.rejected) == 0 {
		return
	}
	live := roaring.New()
	each(st.s.factory, st.t, pc, st.aud, w, func(_ *resource, id uint32) { live.Add(id) })
	for id := range w.rejected {
		if !live.Contains(id) {
			delete(w.rejected, id)
		}
	}
}

// full lists the state to send for a type: the current resources, but for held ones and those that
// can't be sent the last accepted form.
func (st *stream) full(w *watch, pc *pushcontext.PushContext, held *roaring.Bitmap) (all []*resource, ids []uint32) {
	var good map[string]*resource
	each(st.s.factory, st.t, pc, st.aud, w, func(r *resource, id uint32) {
		if r.failed() || held.Contains(id) || w.refused(r, id) {
			if good == nil {
				good = w.goodByName()
			}
			if r = good[r.name]; r == nil {
				return
			}
		}
		all, ids = append(all, r), append(ids, id)
	})
	return all, ids
}

func (w *watch) goodByName() map[string]*resource {
	m := make(map[string]*resource, len(w.good))
	for _, r := range w.good {
		m[r.name] = r
	}
	return m
}

// send sends a response and notes that it did.
func (st *stream) send(w *watch, r *reply) error {
	if err := st.write(w, r.msg, len(r.resources)); err != nil {
		return err
	}
	w.sent.AddMany(r.ids)
	for _, id := range r.ids {
		w.gone.Remove(id)
		delete(w.rejected, id)
	}
	w.sentOut(pending{nonce: r.nonce, version: r.version, ids: r.ids, sums: r.sums, whole: r.whole, probe: r.probe, gone: r.gone, ended: r.ended})
	w.open(r.ids)
	st.status.sent(w, r.head, r.version, st.wrote)
	st.follow(w, r)
	return nil
}

// follow makes the types that a sent resource waits for answer at once, and closes the gate behind
// new clusters.
func (st *stream) follow(w *watch, r *reply) {
	for typ, o := range st.watches {
		switch {
		case st.s.rules[typ].follows != w.rule.url || len(r.ids) == 0:
		case o == nil:
			w.early.AddMany(r.ids)
		default:
			ids := roaring.BitmapOf(r.ids...)
			ids.And(o.sub)
			o.owe(ids)
			o.unknow(ids)
		}
	}
	if r.fresh && w.rule.lateRemoval && !w.rule.emptied {
		if st.gate.nonce == 0 {
			st.gate.until = st.s.now().Add(st.s.opt.GateWait)
			st.arm(st.s.opt.GateWait)
		}
		st.gate.nonce = r.nonce
	}
}

// each yields what the proxy subscribes and exists, built or not.
func each(f *factory, t *names, pc *pushcontext.PushContext, a *audience, w *watch, yield func(*resource, uint32)) {
	d := differ{f: f, t: t, pc: pc, a: a, w: w}
	if w.wildcard {
		d.all(yield)
		return
	}
	for it := w.sub.Iterator(); it.HasNext(); {
		id := it.Next()
		if r, _, _ := d.lookup(a, t.name(id)); r != nil {
			yield(r, id)
		}
	}
}

// all yields everything that exists.
func (d *differ) all(yield func(*resource, uint32)) {
	whole := d.roster()
	if whole != nil {
		for i, r := range whole.resources {
			yield(r, whole.ids[i])
		}
	}
	for _, kind := range d.w.gen.Kinds() {
		if whole != nil && !kind.OfReader() {
			continue
		}
		for key := range d.pc.Keys(kind) {
			b, _ := d.f.of(d.pc, d.w.typ, key, d.a)
			if b == nil {
				continue
			}
			for _, r := range b.resources {
				yield(r, r.id(d.t, d.w.typ, d.w.gen))
			}
		}
	}
}
