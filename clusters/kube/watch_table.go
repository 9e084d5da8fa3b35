package kube

import (
	"fmt"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/kubeapi"
)

// queue holds the keys of objects that changed since they were last taken.
type queue struct {
	wake chan struct{} // has one element when there is something to do

	mu    sync.Mutex
	keys  map[model.ObjectKey]*table
	wrong bool // what is wrong has changed
}

func newQueue() *queue {
	return &queue{wake: make(chan struct{}, 1), keys: map[model.ObjectKey]*table{}}
}

// poke makes the reader look, also when no key has changed.
func (q *queue) poke() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

func (q *queue) add(k model.ObjectKey, t *table) {
	q.mu.Lock()
	q.keys[k] = t
	q.mu.Unlock()
	q.poke()
}

// complain notes that what is wrong, with objects or with how they are read, may have changed.
func (q *queue) complain() {
	q.mu.Lock()
	q.wrong = true
	q.mu.Unlock()
	q.poke()
}

// complaints reports whether there was one since it was last asked.
func (q *queue) complaints() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	wrong := q.wrong
	q.wrong = false
	return wrong
}

// take removes up to n keys.
func (q *queue) take(n int) map[model.ObjectKey]*table {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.keys) <= n {
		all := q.keys
		q.keys = map[model.ObjectKey]*table{}
		return all
	}
	some := make(map[model.ObjectKey]*table, n)
	for k, t := range q.keys {
		if len(some) == n {
			break
		}
		some[k] = t
		delete(q.keys, k)
	}
	return some
}

// table holds the objects of one kind as they are in the API server, and queues the keys of those that
// change. Values are shared with the Store that converts them. It is safe for concurrent use.
type table struct {
	kind  string
	limit int // of objects
	queue *queue
	event func(kind, event string) // counts

	mu     sync.Mutex
	rows   map[string]map[string]Object // by namespace and name
	count  int
	full   bool // something was left out since the last full content
	faults map[model.ObjectKey][]string
	synced bool
}

func newTable(kind string, limit int, q *queue, event func(kind, event string)) *table {
	return &table{kind: kind, limit: limit, queue: q, event: event, rows: map[string]map[string]Object{}, faults: map[model.ObjectKey][]string{}}
}

func (t *table) key(namespace, name string) model.ObjectKey {
	if t.kind == KindNamespace || t.kind == KindNode {
		namespace = ""
	}
	return model.ObjectKey{Kind: t.kind, Namespace: namespace, Name: name}
}

// Complete implements kubeapi.Store: whatever else there was has gone.
func (t *table) Complete(seen map[types.NamespacedName]struct{}) {
	kept := 0
	for _, k := range t.all() {
		if _, ok := seen[types.NamespacedName{Namespace: k.Namespace, Name: k.Name}]; ok {
			kept++
		} else {
			t.drop(k)
		}
	}
	t.mu.Lock()
	t.full, t.synced = kept < len(seen), true
	t.mu.Unlock()
	t.queue.complain()
}

// Lacking implements kubeapi.Store.
func (t *table) Lacking() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.full && t.count+len(t.faults) < t.limit
}

// Remove implements kubeapi.Store.
func (t *table) Remove(n types.NamespacedName) { t.drop(t.key(n.Namespace, n.Name)) }

// Set implements kubeapi.Store: an object that can't be decoded leaves the last good one in force.
func (t *table) Set(n types.NamespacedName, obj runtime.Object) {
	key := t.key(n.Namespace, n.Name)
	o, faults, ok := t.decode(key, obj)
	event, wrong := t.put(key, o, faults, ok)
	if wrong {
		t.queue.complain()
	}
	switch event {
	case "":
	case "updatesame":
		t.event(t.kind, event)
	default:
		t.event(t.kind, event)
		t.queue.add(key, t)
	}
}

// put keeps an object, if it could be decoded, and what is wrong with it. It gives what that was: "add",
// "update" or "updatesame"; "" if nothing was kept; and whether what is wrong has changed.
func (t *table) put(key model.ObjectKey, o Object, faults []string, ok bool) (event string, wrong bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	old, known := t.rows[key.Namespace][key.Name]
	if !known && t.count+len(t.faults) >= t.limit {
		wrong, t.full = !t.full, true
		return "", wrong
	}
	if known && !ok {
		faults[0] += "; its last good content stays"
	}
	wrong = !slices.Equal(t.faults[key], faults)
	if t.faults[key] = faults; len(faults) == 0 {
		delete(t.faults, key)
	}
	switch {
	case !ok:
		return "", wrong
	case known && old.Revision == o.Revision && o.Revision != "":
		return "updatesame", wrong
	case known:
		t.rows[key.Namespace][key.Name] = o
		return "update", wrong
	}
	if t.rows[key.Namespace] == nil {
		t.rows[key.Namespace] = map[string]Object{}
	}
	t.rows[key.Namespace][key.Name] = o
	t.count++
	return "add", wrong
}

// decode gives the object, and what is wrong with it: without ok it can't be used at all.
func (t *table) decode(key model.ObjectKey, obj runtime.Object) (o Object, faults []string, ok bool) {
	if why := oddName(key); why != "" {
		return Object{}, []string{why}, false
	}
	o, faults, ok = t.decodeAny(obj)
	if ok && o.Ref != key {
		return Object{}, []string{"its metadata can be read in two ways"}, false
	}
	return o, faults, ok
}

// decodeAny is decode for an object whose key was not looked at.
func (t *table) decodeAny(obj runtime.Object) (o Object, faults []string, ok bool) {
	if raw, custom := obj.(*kubeapi.RawObject); custom {
		o, faults, err := DecodeJSON(raw.Text)
		if err != nil {
			return Object{}, []string{err.Error()}, false
		}
		if _, m := metaOf(o.Ref.Kind, o.Value); m != nil {
			trimMeta(m)
		}
		return o, faults, true
	}
	trim(obj)
	if o, ok = NewObject(t.kind, obj); !ok {
		faults = []string{fmt.Sprintf("unexpected %T", obj)}
	}
	return o, faults, ok
}

func (t *table) drop(key model.ObjectKey) {
	t.mu.Lock()
	_, known := t.rows[key.Namespace][key.Name]
	_, faulty := t.faults[key]
	if delete(t.rows[key.Namespace], key.Name); known {
		t.count--
	}
	if len(t.rows[key.Namespace]) == 0 {
		delete(t.rows, key.Namespace)
	}
	delete(t.faults, key)
	t.mu.Unlock()
	if known {
		t.event(t.kind, "delete")
		t.queue.add(key, t)
	}
	if faulty {
		t.queue.complain()
	}
}

// all lists the keys, also of objects that never could be decoded.
func (t *table) all() []model.ObjectKey {
	t.mu.Lock()
	defer t.mu.Unlock()
	var out []model.ObjectKey
	for ns, rows := range t.rows {
		for n := range rows {
			out = append(out, t.key(ns, n))
		}
	}
	for k := range t.faults {
		if _, ok := t.rows[k.Namespace][k.Name]; !ok {
			out = append(out, k)
		}
	}
	return out
}

// clear removes everything: the kind is not served any more.
func (t *table) clear() {
	for _, k := range t.all() {
		t.drop(k)
	}
	t.mu.Lock()
	t.synced = false
	t.mu.Unlock()
}

// requeue queues everything in a namespace.
func (t *table) requeue(namespace string) {
	t.mu.Lock()
	names := make([]string, 0, len(t.rows[namespace]))
	for n := range t.rows[namespace] {
		names = append(names, n)
	}
	t.mu.Unlock()
	for _, n := range names {
		t.queue.add(t.key(namespace, n), t)
	}
}

// get gives an object as it is now.
func (t *table) get(k model.ObjectKey) (Object, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	o, ok := t.rows[k.Namespace][k.Name]
	return o, ok
}

// ready reports whether the table has had its first full content.
func (t *table) ready() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.synced
}

// eachFault yields what is wrong with objects.
func (t *table) eachFault(yield func(model.ObjectKey, []string)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.full {
		yield(model.ObjectKey{Kind: t.kind}, []string{fmt.Sprintf("the cluster has more than %d of these objects; the others are left out", t.limit)})
	}
	for k, f := range t.faults {
		yield(k, f)
	}
}
