package xds

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/isthmus-mesh/isthmus/pushcontext"
	"github.com/isthmus-mesh/isthmus/xds/wire"
)

// answered takes the ACK or NACK part of a request. A nonce that is not one of the unanswered
// responses is outdated and says nothing.
func (st *stream) answered(w *watch, nonce string, f *wire.Fault) {
	n, err := strconv.ParseUint(nonce, 10, 64)
	if err != nil {
		st.s.metrics.expired(w.typ)
		return
	}
	p, ok := w.ack(n)
	if !ok {
		st.s.metrics.expired(w.typ)
		return
	}
	st.openGate(w, n)
	if f != nil {
		st.refused(w, p, f)
		return
	}
	st.status.acked(w, nonce, p.version)
	if w.nacked && len(w.rejected) == 0 {
		w.nacked, w.patience = false, 0
		w.recovered()
	}
	progress := w.rule.retried && st.progress(w, p)
	if p.whole != nil {
		w.good = p.whole
	}
	if p.probe {
		w.settleProbe(p.ids)
	}
	if progress {
		w.retry()
	}
}

// What a proxy refuses for a reason that may pass, and that nothing tells the hub of, is tried again after
// a while: a port that another process has for a moment.
const (
	retryFirst = 5 * time.Second
	retryLast  = 5 * time.Minute
)

// progress reports whether an accepted response gave the proxy, or took from it, what may have been in the
// way of something that it refused.
func (st *stream) progress(w *watch, p pending) bool {
	switch {
	case len(w.rejected) == 0:
		return false
	case p.whole != nil:
		return len(w.good) != len(p.whole) || len(st.unaccepted(w, p.whole)) > 0
	}
	return len(p.gone)+len(p.ids) > 0
}

// retry lets what was refused be sent again as it is. It ends: if it is refused once more, there is no
// progress before something else changes.
func (w *watch) retry() {
	for id := range w.rejected {
		w.must.Add(id)
	}
	clear(w.rejected)
}

// openGate lets listeners and routes go once the proxy has processed the last new clusters: it says
// so by answering them, or by answering endpoints that were sent behind them.
func (st *stream) openGate(w *watch, nonce uint64) {
	if st.gate.nonce == 0 {
		return
	}
	clusters := w.rule.lateRemoval && !w.rule.emptied && nonce >= st.gate.nonce
	behind := w.rule.follows != "" && nonce > st.gate.nonce
	if clusters || behind {
		st.gate.nonce = 0
	}
}

// refused handles a NACK. What is at fault is remembered and not sent again until it changes; the
// rest of the response may or may not have been applied, so it is sent again.
func (st *stream) refused(w *watch, p pending, f *wire.Fault) {
	ids := p.ids
	if p.whole != nil && !p.probe {
		ids = st.unaccepted(w, p.whole)
	}
	st.record(w, p, f)
	if p.probe {
		w.settleProbe(p.ids)
	}
	if len(ids) > 0 { // the proxy may have taken away what is gone, and still say that it has it
		w.untold.AddMany(p.gone)
	}
	st.unsettle(w, ids, p.ended)
	guilty, rest := st.blame(ids, f.Message)
	if len(guilty) == 0 && len(ids) > 1 {
		half := len(ids) / 2
		w.suspects(slices.Clone(ids[:half]), slices.Clone(ids[half:]))
		return
	}
	if len(guilty) == 0 {
		guilty = ids
	}
	for _, id := range guilty {
		st.reject(w, id, p)
	}
	if w.rule.retried {
		w.patience = min(max(2*w.patience, retryFirst), retryLast)
		st.again.Reset(w.patience)
	}
	if w.rule.whole && st.protocol == wire.SotW {
		w.answer = w.answer || len(ids) > 0
		return
	}
	w.must.AddMany(rest)
}

// refusalLogEvery is how often refusals of one type by one stream are logged; all are counted.
const refusalLogEvery = 10 * time.Second

// record counts, shows and logs a refusal.
func (st *stream) record(w *watch, p pending, f *wire.Fault) {
	w.nacked = true
	w.recovered()
	w.counted = st.s.metrics.rejected(w.typ, st.id.id, f)
	message := clip(f.Message, maxMessage)
	st.status.nacked(w, Nack{Nonce: formatNonce(p.nonce), Version: p.version, Code: f.Code, Message: message, Time: st.s.now()})
	if held, ok := w.warned.pass(st.s.now()); ok {
		st.s.log.Warn("proxy refused a response", "proxy", st.id.id, "type", w.rule.short, "version", p.version, "err", message, "unlogged", held)
	}
}

// recovered ends the count of a refusal: the proxy accepted something, refused something else, or left.
func (w *watch) recovered() {
	if w.counted != nil {
		w.counted()
		w.counted = nil
	}
}

// unaccepted gives what a full-state response had beyond what the proxy last accepted.
func (st *stream) unaccepted(w *watch, whole []*resource) (ids []uint32) {
	good := make(map[string]string, len(w.good))
	for _, r := range w.good {
		good[r.name] = r.Version
	}
	for _, r := range whole {
		if v, ok := good[r.name]; !ok || v != r.Version {
			ids = append(ids, r.id(st.t, w.typ, w.gen))
		}
	}
	return ids
}

// blame finds the names that a message is about: Envoy lists refused clusters and listeners as
// "Error adding/updating cluster(s) a: why, b: why". Other messages name nothing.
func (st *stream) blame(ids []uint32, message string) (guilty, rest []uint32) {
	named := namesIn(message[:min(len(message), maxBlame)])
	if len(named) == 0 {
		return nil, ids
	}
	for _, id := range ids {
		if named[st.t.name(id)] {
			guilty = append(guilty, id)
		} else {
			rest = append(rest, id)
		}
	}
	return guilty, rest
}

// namesIn gives the words of a message that stand where a name would: after the opening, a comma or
// a line break, and before a colon.
func namesIn(message string) map[string]bool {
	const opening = "Error adding/updating "
	_, list, ok := strings.Cut(message, opening)
	if !ok {
		return nil
	}
	if _, list, ok = strings.Cut(list, "(s) "); !ok {
		return nil
	}
	out := map[string]bool{}
	for line := range strings.SplitSeq(list, "\n") {
		for part := range strings.SplitSeq(line, ", ") {
			for at := 0; ; { // names may hold ": " themselves
				i := strings.Index(part[at:], ": ")
				if i < 0 || at+i > maxName {
					break
				}
				out[part[:at+i]] = true
				at += i + 2
			}
		}
	}
	return out
}

// reject remembers the content of a name that the proxy refused.
func (st *stream) reject(w *watch, id uint32, p pending) {
	sum, ok := uint64(0), false
	if i := slices.Index(p.ids, id); i >= 0 {
		sum, ok = p.sums[i], true
	} else {
		name := st.t.name(id)
		if i := slices.IndexFunc(p.whole, func(r *resource) bool { return r.name == name }); i >= 0 {
			sum, ok = p.whole[i].Sum, true
		}
	}
	if !ok {
		return
	}
	if w.rejected == nil {
		w.rejected = map[uint32]uint64{}
	}
	w.rejected[id] = sum
}

// suspects queues groups of names of which some are at fault. Each is sent alone until it is clear
// which.
func (w *watch) suspects(groups ...[]uint32) {
	for _, g := range groups {
		g = slices.DeleteFunc(g, w.suspect.Contains) // it is in a group that waits
		if len(g) == 0 {
			continue
		}
		w.suspect.AddMany(g)
		w.probes = append(w.probes, g)
	}
}

func (w *watch) settleProbe(ids []uint32) {
	for _, id := range ids {
		w.suspect.Remove(id)
		if w.putOff.CheckedRemove(id) {
			w.must.Add(id)
		}
	}
}

// probe sends the next group of suspects alone. Groups of which nothing is left are passed over.
func (st *stream) probe(w *watch, pc *pushcontext.PushContext) error {
	for len(w.probes) > 0 {
		group := w.probes[0]
		w.probes = w.probes[1:]
		if r := st.work(w, func() *reply { return st.probeReply(w, pc, group) }); r != nil {
			return st.send(w, r)
		}
		w.settleProbe(group)
	}
	return nil
}

func (st *stream) probeReply(w *watch, pc *pushcontext.PushContext, group []uint32) *reply {
	r := &reply{version: pc.Version, probe: true}
	d := st.differ(w, pc)
	for _, id := range group {
		x, _, _ := d.lookup(st.aud, st.t.name(id))
		if x == nil || x.failed() || !w.wants(id) || d.apart(id) {
			w.suspect.Remove(id)
			w.must.Add(id) // is answered in the ordinary way
			continue
		}
		w.putOff.Remove(id)
		r.resources, r.ids, r.sums = append(r.resources, x), append(r.ids, id), append(r.sums, x.Sum)
	}
	if len(r.ids) == 0 {
		return nil
	}
	if w.parts != nil { // what is gone may be in the way of the group
		st.repeat(w, r)
		d.end(r, nil)
	}
	if st.protocol == wire.SotW && w.rule.whole {
		held := w.suspect.Clone()
		held.AndNot(roaring.BitmapOf(r.ids...))
		r.resources, _ = st.full(w, pc, held)
		r.whole = r.resources
	}
	return r
}
