package xds

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/isthmus-mesh/isthmus/pushcontext"
	"github.com/isthmus-mesh/isthmus/xds/gen"
	"github.com/isthmus-mesh/isthmus/xds/wire"
)

// Peer is the transport of one stream: the part of grpc.ServerStream that is used. RecvMsg is given
// a *wire.Request and SendMsg a *wire.Response.
type Peer interface {
	Context() context.Context
	SendMsg(m any) error
	RecvMsg(m any) error
}

// requestBacklog is how many requests may wait while a turn runs.
const requestBacklog = 4

// stream is one proxy's connection. Its fields belong to the goroutine of run, but for those said to
// be shared.
type stream struct {
	s        *Server
	protocol wire.Protocol
	peer     Peer
	slot     uint32

	// Shared with other goroutines; set once.
	wake     chan struct{} // cap 1: the snapshot changed
	requests chan *wire.Request
	asks     chan func()
	ctx      context.Context
	cancel   context.CancelCauseFunc
	status   *streamStatus
	deadline *time.Timer // fires when a write takes too long

	id       *identity
	refusal  string // why the stream is refused, while it has no id
	claimed  string // the id that a refused node gives
	told     bool   // Options.Workloads was told of it
	counted  func() // ends the count of the stream in pilot_xds; nil before it has introduced itself
	aud      *audience
	past     []*audience // earlier ones that some type has yet to get over
	t        *names
	watches  []*watch // by generator, nil if not watched
	unserved map[string]uint64
	nonce    uint64
	opened   time.Time
	gate     gate
	again    *time.Timer // when listeners that were refused are tried again
	timer    *time.Timer // end of the gate, or of the wait for types that a new stream will ask for
	scratch  []*watch
	alarm    <-chan time.Time // of timer while it runs
	seen     uint64           // version that aud is of
	wrote    time.Time        // end of the last write
	woken    bool             // a commit concerns the stream, and is not wholly sent
}

func (s *Server) newStream(p wire.Protocol, peer Peer) *stream {
	st := &stream{
		s: s, protocol: p, peer: peer, wake: make(chan struct{}, 1), requests: make(chan *wire.Request, requestBacklog),
		asks: make(chan func()), watches: make([]*watch, len(s.rules)), t: s.tables.join(),
		opened: s.now(),
	}
	st.ctx, st.cancel = context.WithCancelCause(peer.Context())
	st.status = newStreamStatus(p, peer.Context(), s.now())
	st.timer = time.NewTimer(time.Hour)
	st.timer.Stop()
	st.again = time.NewTimer(time.Hour)
	st.again.Stop()
	st.deadline = time.AfterFunc(time.Hour, func() { st.cancel(errSlow) })
	st.deadline.Stop()
	return st
}

// receive passes requests on until the stream ends; nil if the peer ended it.
func (st *stream) receive() error {
	repeats := st.s.lists.Stream()
	for {
		r := &wire.Request{Protocol: st.protocol, Repeats: repeats}
		if err := st.peer.RecvMsg(r); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		select {
		case st.requests <- r:
		case <-st.ctx.Done():
			return nil
		}
	}
}

// run is the stream's goroutine.
func (st *stream) run() error {
	age, stop := st.s.age()
	defer stop()
	intro := time.NewTimer(st.s.opt.IntroWait)
	defer intro.Stop()
	late := intro.C
	for {
		if st.id != nil {
			late = nil
		}
		select {
		case r, ok := <-st.requests:
			if !ok {
				return context.Cause(st.ctx)
			}
			if err := st.handle(r); err != nil {
				return err
			}
		case <-st.wake:
			st.woken = true
		case <-st.alarm:
			st.alarm, st.gate.nonce = nil, 0
		case <-st.again.C:
			for _, w := range st.watches {
				if w != nil && w.rule.retried {
					w.retry()
				}
			}
		case f := <-st.asks:
			f()
			continue
		case <-late:
			st.refusal = refusedSilent
			return status.Errorf(codes.DeadlineExceeded, "the stream has not had a request with a node within %v", st.s.opt.IntroWait)
		case <-age:
			return errAge
		case <-st.ctx.Done():
			return context.Cause(st.ctx)
		}
		if err := st.turn(); err != nil {
			return err
		}
	}
}

// arm sets the timer. While it does not run its channel is left out of what run waits for, which costs
// at every turn.
func (st *stream) arm(d time.Duration) {
	st.timer.Reset(d)
	st.alarm = st.timer.C
}

// end gives back what the stream has of the server, as much as can be if it failed.
func (st *stream) end() error {
	defer st.s.tables.left(st.t)
	defer st.leaveClasses()
	st.timer.Stop()
	st.again.Stop()
	st.deadline.Stop()
	for _, w := range st.watches {
		if w != nil {
			st.forget(w)
		}
	}
	if st.id != nil {
		st.concern(false)
	}
	return nil
}

func (st *stream) leaveClasses() {
	if st.aud != nil {
		st.past = append(st.past, st.aud)
	}
	for _, a := range st.past {
		a.leave()
	}
}

// handle takes one request into the state; the turn that follows answers it.
func (st *stream) handle(r *wire.Request) error {
	st.s.metrics.request(r.Size)
	if r.TypeURL == healthURL {
		return st.health(r)
	}
	if st.id == nil {
		if err := st.introduce(r); err != nil {
			return err
		}
	}
	if err := st.excessive(r); err != nil {
		return err
	}
	typ, ok := st.s.byURL[r.TypeURL]
	if !ok {
		return st.foreign(r)
	}
	w, first := st.watches[typ], false
	if w == nil {
		w, first = newWatch(typ, &st.s.rules[typ], st.s.opt.Generators[typ]), true
		if st.watches[typ] = w; w.rule.partOf != "" && st.protocol == wire.Delta {
			w.parts, _ = w.gen.(gen.Parts)
		}
	}
	if !first && r.Nonce != "" {
		st.answered(w, r.Nonce, r.Fault)
	}
	if st.protocol == wire.Delta {
		st.resubscribe(w, r, first)
	} else if w.list(st.t, r, r.Names.Hash(st.s.seed)) {
		st.note(w)
	} else if r.Nonce == "" && !first {
		w.must.Or(w.sub) // asked again from scratch
		w.answer = true
	}
	if n := w.sub.GetCardinality(); n > uint64(st.s.opt.MaxNames) {
		return status.Errorf(codes.ResourceExhausted, "%d names of type %s are subscribed; the limit is %d", n, r.TypeURL, st.s.opt.MaxNames)
	}
	return st.s.tidy()
}

func (st *stream) resubscribe(w *watch, r *wire.Request, first bool) {
	if !first && r.Subscribe.Count+r.Unsubscribe.Count == 0 {
		return
	}
	w.unsubscribe(st.t, r)
	w.subscribe(st.t, r, first, r.Subscribe.Hash(st.s.seed))
	if first && w.rule.follows != "" {
		st.owedFirst(w)
	}
	st.note(w)
}

// owedFirst drops the versions that a reconnecting proxy holds of what it waits for all the same: a
// cluster that it was just sent warms until its endpoints come, changed or not. One that does not ask
// for clusters first holds one that warms already.
func (st *stream) owedFirst(w *watch) {
	i, ok := st.s.byURL[w.rule.follows]
	switch {
	case !ok:
	case st.watches[i] == nil:
		w.known = nil
	default:
		w.unknow(st.watches[i].early)
		st.watches[i].early.Clear()
	}
}

// introduce takes the node of the first request.
func (st *stream) introduce(r *wire.Request) error {
	st.refusal = refusedNode
	if r.Node == nil {
		return errNoNode
	}
	id, err := parseNode(r.Node, st.s.opt.ClusterAliases)
	if err != nil {
		st.claimed = claimedID(r.Node)
		return err
	}
	if err := st.s.checkCluster(id); err != nil {
		st.refusal, st.claimed = refusedCluster, id.id
		return err
	}
	id.class.VHDS = id.vhds && st.protocol == wire.Delta && id.class.Type == gen.Sidecar && st.s.virtualHosts()
	st.id = id
	st.concern(true)
	st.status.introduced(id)
	st.arrived()
	st.counted = st.s.metrics.connected.join(versionLabel(id.version))
	if id.ignored {
		st.s.log.Warn("a proxy has more addresses than are looked at", "proxy", id.id, "limit", maxAddresses)
	}
	st.s.log.LogAttrs(st.ctx, slog.LevelInfo, "proxy connected", slog.String("proxy", id.id), slog.String("cluster", string(id.class.Cluster)),
		slog.String("protocol", st.protocol.String()))
	return nil
}

// concern says which changes may change the proxy's class, or ends that.
func (st *stream) concern(on bool) {
	st.s.interest.setInstances(st.slot, st.id.instances, on)
	st.s.interest.setNamespace(st.slot, st.id.class.Namespace, on)
}

// checkCluster refuses proxies of clusters that are not known.
func (s *Server) checkCluster(id *identity) error {
	if s.opt.KnownClusters == nil {
		return nil
	}
	known := s.opt.KnownClusters()
	if slices.Contains(known, id.class.Cluster) {
		return nil
	}
	const some = 10
	var names []string
	for _, c := range known[:min(len(known), some)] {
		names = append(names, string(c))
	}
	if len(known) > some {
		names = append(names, fmt.Sprintf("and %d more", len(known)-some))
	}
	return invalid("node %s is of cluster %q, which this hub does not know; it knows %s: check the node metadata CLUSTER_ID, or let the hub take it for one of these with --cluster-aliases",
		id.id, id.class.Cluster, strings.Join(names, ", "))
}

// foreign answers a type that has no resources: with nothing, once per subscription.
func (st *stream) foreign(r *wire.Request) error {
	if !st.s.unserved[r.TypeURL] {
		return invalid("resource type %q is not known", clip(r.TypeURL, maxQuoted))
	}
	if st.unserved == nil {
		st.unserved = map[string]uint64{}
	}
	list := &r.Names
	if st.protocol == wire.Delta {
		list = &r.Subscribe
	}
	hash := list.Hash(st.s.seed)
	if last, seen := st.unserved[r.TypeURL]; seen && (last == hash || st.protocol == wire.Delta && list.Count == 0) {
		return nil
	}
	st.unserved[r.TypeURL] = hash
	st.s.metrics.unserved.WithLabelValues(r.TypeURL).Inc()
	return st.nothing(r.TypeURL, list)
}

func (st *stream) nothing(url string, list *wire.List) error {
	st.nonce++
	h := wire.Head{Protocol: st.protocol, Version: "0", TypeURL: url, Nonce: formatNonce(st.nonce)}
	if st.protocol == wire.Delta {
		for n := range list.All() {
			if !isStar(n) {
				h.Removed = append(h.Removed, string(n))
			}
		}
	}
	return st.write(nil, wire.NewResponse(h), 0)
}

// write sends one response. A peer that does not take it in time loses its stream.
func (st *stream) write(w *watch, msg *wire.Response, resources int) error {
	st.deadline.Reset(st.s.opt.SendTimeout)
	start := st.s.now()
	err := st.peer.SendMsg(msg)
	st.deadline.Stop()
	st.wrote = st.s.now()
	if w != nil {
		st.s.metrics.sent(w.typ, resources, msg.Size(), st.wrote.Sub(start), err)
	}
	if cause := context.Cause(st.ctx); err != nil && cause != nil {
		return cause
	}
	return err
}

// converged reports how long a commit took to reach the proxy. What has to wait for an ACK still counts
// as owed to it.
func (st *stream) converged(pc *pushcontext.PushContext, before uint64) {
	if st.woken && st.nonce > before {
		st.s.metrics.convergence.Observe(st.wrote.Sub(pc.Time).Seconds())
	}
	st.woken = st.woken && slices.ContainsFunc(st.watches, func(w *watch) bool { return w != nil && w.last < pc.Version })
}

// note brings the stream's interest in views up to date with a subscription. It comes before the
// snapshot is read: a change after that wakes the stream.
func (st *stream) note(w *watch) {
	if w.wildcard || w.sub.GetCardinality() > wideNames {
		st.widen(w)
		return
	}
	if w.wide {
		st.forget(w)
	}
	now := map[pushcontext.ViewKey]int{}
	for it := w.sub.Iterator(); it.HasNext(); {
		if k, ok := keyOf(w.gen, st.t.name(it.Next())); ok {
			now[k]++
		}
	}
	for k := range now {
		if w.keys[k] == 0 {
			st.s.interest.add(st.slot, w.typ, k)
		}
	}
	for k := range w.keys {
		if now[k] == 0 {
			st.s.interest.remove(st.slot, w.typ, k)
		}
	}
	w.keys = now
}

func (st *stream) widen(w *watch) {
	if w.wide {
		return
	}
	st.forget(w)
	w.wide = true
	for _, k := range w.gen.Kinds() {
		if k == pushcontext.ViewGateways && st.id.class.Type != gen.Router {
			continue // nothing is made of it for a sidecar
		}
		st.s.interest.setWide(st.slot, w.typ, k, true)
	}
}

func (st *stream) forget(w *watch) {
	for k := range w.keys {
		st.s.interest.remove(st.slot, w.typ, k)
	}
	clear(w.keys)
	if w.wide {
		w.wide = false
		for _, k := range w.gen.Kinds() {
			st.s.interest.setWide(st.slot, w.typ, k, false)
		}
	}
}
