package kube

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	meshconfig "istio.io/api/mesh/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/kubeapi"
)

// run is the state of one Run of a Registry. The goroutine that called Run is the worker: it alone reads
// the tables, converts and speaks to the sink.
type run struct {
	*session
	discovery func(op string, err error)
	kinds     *kinds
	tables    map[string]*table // of the built-in kinds
	optional  []string          // built-in kinds that can be done without
	replaced  atomic.Bool       // the first full truth has been given
	uid       atomic.Pointer[types.UID]

	// owned by the worker
	store    *Store
	selects  []labels.Selector
	selected map[string]bool // namespaces, while there are selectors
	synced   bool
	began    time.Time
	found    complaints
}

// complaints are what is wrong, as it was when that was last looked at.
type complaints struct {
	problems []model.Problem
	stale    bool
	next     time.Time   // when to look again, at the earliest
	later    *time.Timer // that looks then; nil if there is none
}

// batch is how many objects are converted as one step.
const batch = 4096

func newRun(o Options, key model.ShardKey, out model.Sink) (*run, error) {
	selects, err := selectors(o.Selectors)
	if err != nil {
		return nil, fmt.Errorf("discoverySelectors: %w", err)
	}
	s, err := newSession(o, key, out)
	if err != nil {
		return nil, err
	}
	r := &run{
		session: s, tables: map[string]*table{}, selects: selects, selected: map[string]bool{}, began: time.Now(),
		store: NewStore(Converter{Shard: key, DomainSuffix: o.DomainSuffix, TrustDomain: o.TrustDomain,
			SystemNamespace: o.SystemNamespace, Revision: o.Revision, MCS: o.MCS, ConfigCluster: o.ConfigCluster}),
	}
	r.discovery = r.api.Track(discovery, kubeapi.Place{}, kubeapi.Optional)
	r.kinds = newKinds(r)
	r.runs = append(r.runs, r.kinds.definitions().Run, r.kinds.follow)
	for _, b := range required() {
		r.tables[b.kind] = r.read(b, kubeapi.Required)
	}
	for _, name := range settingsNames(o.Revision) {
		b := configMap(o.SystemNamespace, name)
		r.tables[b.name()] = r.read(b, kubeapi.Optional)
		r.optional = append(r.optional, b.name())
	}
	return r, nil
}

// loop follows the cluster until ctx ends; all that it started has ended when it returns.
func (r *run) loop(ctx context.Context) error {
	defer time.AfterFunc(r.opts.Timing.Explain, r.queue.poke).Stop()
	return r.follow(ctx, r.turn)
}

// turn brings the rows up to date. Whether all kinds have their first content is asked before the queue
// is drained: what they held is in the queue by then.
func (r *run) turn() {
	ready := r.synced || len(r.waiting()) == 0
	for keys := r.queue.take(batch); len(keys) > 0; keys = r.queue.take(batch) {
		events := r.store.Apply(r.now(keys))
		if r.synced && len(events) > 0 {
			r.out.Put(events...)
		}
	}
	if ready && !r.synced {
		r.synced = true
		r.out.Replace(r.store.State())
		r.replaced.Store(true)
	}
	r.report()
}

// now gives what the keys stand for.
func (r *run) now(keys map[model.ObjectKey]*table) (set []Object, del []model.ObjectKey) {
	for k, t := range keys {
		o, ok := t.get(k)
		if k.Kind == KindNamespace {
			r.identify(k.Name, o)
			r.choose(k.Name, o, ok)
		}
		if ok && r.wanted(k) {
			set = append(set, o)
		} else {
			del = append(del, k)
		}
	}
	return set, del
}

// waiting says what is missing before the first full truth can be given, in words.
func (r *run) waiting() []string {
	var out []string
	for kind, t := range r.tables {
		given := slices.Contains(r.optional, kind) && r.api.Of(kind).Hopeless() && !slices.Contains(r.opts.Needs, kind)
		if !t.ready() && !given {
			out = append(out, r.api.Of(kind).What)
		}
	}
	for _, c := range r.kinds.wanted {
		st := r.kinds.state(c.kind)
		if st == kindPending || st == kindHopeless && slices.Contains(r.opts.Needs, c.kind) {
			out = append(out, c.definition())
		}
	}
	slices.Sort(out)
	return out
}

// hasRead reports whether a kind was ever read.
func (r *run) hasRead(kind string) bool {
	if t := r.tables[kind]; t != nil {
		return t.ready()
	}
	return r.kinds.state(kind) == kindRead
}

// serves lists the optional kinds that are read. One that may no longer be read, though what was read stays,
// is not among them: whoever took the right can go on to replace the credential.
func (r *run) serves() []string {
	out := []string{}
	for _, kind := range r.optional {
		if r.tables[kind].ready() && !r.api.Of(kind).Revoked() {
			out = append(out, kind)
		}
	}
	for _, c := range r.kinds.wanted {
		if r.kinds.state(c.kind) == kindRead && !r.api.Of(c.kind).Revoked() {
			out = append(out, c.kind)
		}
	}
	slices.Sort(out)
	return out
}

// identify notes which cluster this is: the UID of its namespace kube-system tells it from all others.
func (r *run) identify(namespace string, o Object) {
	if _, m := metaOf(KindNamespace, o.Value); namespace == metav1.NamespaceSystem && m != nil {
		r.uid.Store(&m.UID)
	}
}

// choose notes whether a namespace is read, and reads it again or drops it if that has changed.
func (r *run) choose(namespace string, o Object, exists bool) {
	if len(r.selects) == 0 {
		return
	}
	now := false
	if _, m := metaOf(KindNamespace, o.Value); exists && m != nil {
		now = slices.ContainsFunc(r.selects, func(s labels.Selector) bool { return s.Matches(labels.Set(m.Labels)) })
	}
	if now == r.selected[namespace] {
		return
	}
	if now {
		r.selected[namespace] = true
	} else {
		delete(r.selected, namespace)
	}
	r.found.stale = true
	for _, t := range r.tables {
		t.requeue(namespace)
	}
	r.kinds.each(func(t *table) { t.requeue(namespace) })
}

// wanted reports whether an object is read: those of namespaces that are not selected are not. The system
// namespace always is: its label puts all endpoints on a network, of which its Services are the gateways,
// and a network whose gateways are not seen would be taken for one that can be reached without.
func (r *run) wanted(k model.ObjectKey) bool {
	return len(r.selects) == 0 || k.Namespace == "" || k.Namespace == r.opts.SystemNamespace || r.selected[k.Namespace]
}

// report tells the sink how it stands, if that has changed.
func (r *run) report() {
	r.complaints(time.Now())
	r.session.report(r.synced, r.unsynced(), r.found.problems)
}

// complaints looks at what is wrong if that has changed. However many odd objects a cluster has, and however
// often they change, no more than a twentieth of the time goes into it.
func (r *run) complaints(now time.Time) {
	c := &r.found
	queue, store := r.queue.complaints(), r.store.ProblemsChanged()
	c.stale = c.stale || queue || store
	switch {
	case !c.stale:
	case now.Before(c.next):
		if c.later == nil {
			c.later = time.AfterFunc(c.next.Sub(now), r.queue.poke)
		}
	default:
		c.problems, c.stale, c.later = r.reporter.listed(now, r.problems()), false, nil
		c.next = now.Add(20 * time.Since(now))
	}
}

// unsynced says what the first sync waits for: a right that it needs, or, if it takes long, whatever it is.
func (r *run) unsynced() string {
	if r.synced {
		return ""
	}
	for _, h := range r.api.Hopeless() {
		if slices.Contains(r.opts.Needs, h.Name) {
			return h.Text + "; what this replaces could read it"
		}
	}
	if waiting := r.waiting(); len(waiting) > 0 && time.Since(r.began) >= r.opts.Timing.Explain {
		const some = 3
		if more := len(waiting) - some; more > 0 {
			waiting = append(waiting[:some:some], fmt.Sprintf("%d more kinds", more))
		}
		return stillReading + strings.Join(waiting, ", ")
	}
	return ""
}

// stillReading begins what is said of a first sync that goes on.
const stillReading = "still reading "

// problems lists what is wrong with objects, and the kinds that may not be read.
func (r *run) problems() []model.Problem {
	var out []model.Problem
	for _, h := range r.api.Hopeless() {
		reason := h.Text
		if r.hasRead(h.Name) {
			reason += "; what was read before stays"
		}
		out = append(out, model.Problem{Item: h.What, Reason: reason, Broad: true})
	}
	add := func(k model.ObjectKey, reasons []string) {
		if !r.wanted(k) {
			return
		}
		for _, why := range reasons {
			out = append(out, model.Problem{Item: shownKey(k), Reason: why})
		}
	}
	for _, t := range r.tables {
		t.eachFault(add)
	}
	r.kinds.each(func(t *table) { t.eachFault(add) })
	for k, reasons := range r.store.Problems() {
		add(k, reasons)
	}
	return out
}

// selectors turns Istio's form into Kubernetes'.
func selectors(in []*meshconfig.LabelSelector) ([]labels.Selector, error) {
	var out []labels.Selector
	for _, s := range in {
		k := &metav1.LabelSelector{MatchLabels: s.GetMatchLabels()}
		for _, e := range s.GetMatchExpressions() {
			k.MatchExpressions = append(k.MatchExpressions, metav1.LabelSelectorRequirement{
				Key: e.GetKey(), Operator: metav1.LabelSelectorOperator(e.GetOperator()), Values: e.GetValues()})
		}
		sel, err := metav1.LabelSelectorAsSelector(k)
		if err != nil {
			return nil, err
		}
		out = append(out, sel)
	}
	return out, nil
}
