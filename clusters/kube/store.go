package kube

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
)

// Store holds the objects of one member and the rows they make. It is owned by one goroutine.
//
// An object with an error is in quarantine: what its last version without errors made stays until it is put right
// or deleted.
//
// While an object is converted, the store notes everything that was looked up, found or not; a later
// change of any of it converts the object again. So rows depend on the objects alone, and the work
// of a change is that of the objects it touches.
type Store struct {
	conv       *Converter
	objects    map[model.ObjectKey]*stored
	rows       map[model.RowKey]model.Object
	problems   map[model.ObjectKey][]string
	wrong      bool // problems have changed
	dependents map[fact]*refSet
	look       recorder

	services   map[name]*ServiceFacts
	pods       map[name]*PodFacts
	podsByIP   map[podAt]map[string]*PodFacts
	nodes      map[string]*NodeFacts
	namespaces map[string]*NamespaceFacts
	exports    map[name]*ExportFacts
	imports    map[name]*ImportFacts
	nodeIndex  nodeIndex
	trust      trust
}

type stored struct {
	obj   Object
	good  *Object // of a kind that is checked: the last version without errors, which is in force
	facts []fact  // looked up by its conversion
	rows  []model.RowKey
}

type name struct{ namespace, name string }

type podAt struct {
	namespace string
	ip        netip.Addr
}

// fact names something that a conversion may look up.
type fact struct {
	kind string // of the object; factNodes with a label; "" for pods by IP
	name name
	ip   netip.Addr
}

// NewStore starts an empty store. Empty fields of c take their defaults.
func NewStore(c Converter) *Store {
	s := &Store{
		conv: c.withDefaults(), objects: map[model.ObjectKey]*stored{}, rows: map[model.RowKey]model.Object{},
		problems: map[model.ObjectKey][]string{}, dependents: map[fact]*refSet{}, services: map[name]*ServiceFacts{}, pods: map[name]*PodFacts{},
		podsByIP: map[podAt]map[string]*PodFacts{}, nodes: map[string]*NodeFacts{}, namespaces: map[string]*NamespaceFacts{},
		exports: map[name]*ExportFacts{}, imports: map[name]*ImportFacts{}, nodeIndex: newNodeIndex(), trust: newTrust(c.Revision),
	}
	s.look = recorder{Store: s, seen: map[fact]struct{}{}}
	return s
}

// Set adds or replaces one object and gives the rows that changed.
func (s *Store) Set(o Object) []model.Event { return s.Apply([]Object{o}, nil) }

// Delete removes one object and gives the rows that changed.
func (s *Store) Delete(ref model.ObjectKey) []model.Event {
	return s.Apply(nil, []model.ObjectKey{ref})
}

// Apply removes and sets objects as one step and gives the rows that differ after it, each once, in
// the order of their keys. A row that differs in nothing but its source's revision is not given: it
// keeps the revision that made it.
func (s *Store) Apply(set []Object, del []model.ObjectKey) []model.Event {
	dirty := map[model.ObjectKey]struct{}{}
	for _, ref := range del {
		if st := s.objects[ref]; st != nil {
			s.index(st.obj, Object{}, dirty)
			s.forget(ref, st)
			dirty[ref] = struct{}{}
			st.obj.Value, st.good = nil, nil
		}
	}
	for _, o := range set {
		st := s.objects[o.Ref]
		if st == nil {
			st = &stored{}
			s.objects[o.Ref] = st
		}
		s.index(st.obj, o, dirty)
		st.obj = o
		dirty[o.Ref] = struct{}{}
	}
	return s.reconvert(dirty)
}

// State is all rows.
func (s *Store) State() *model.ShardState {
	b := model.NewShardBuilder()
	for k, o := range s.rows {
		b.Add(k.Key, o)
	}
	return b.Build()
}

// Problems gives what is wrong with each object that has something wrong with it, until the next change.
func (s *Store) Problems() map[model.ObjectKey][]string { return s.problems }

// ProblemsChanged reports whether Problems would give something else than when this was last asked.
func (s *Store) ProblemsChanged() bool {
	wrong := s.wrong
	s.wrong = false
	return wrong
}

func (s *Store) forget(ref model.ObjectKey, st *stored) {
	for _, f := range st.facts {
		if s.dependents[f].remove(ref) {
			delete(s.dependents, f)
		}
	}
	st.facts = nil
}

func (s *Store) reconvert(dirty map[model.ObjectKey]struct{}) []model.Event {
	changed := map[model.RowKey]model.Object{}
	for ref := range dirty {
		st := s.objects[ref]
		if st == nil {
			continue
		}
		before, wrong := st.rows, s.problems[ref]
		st.rows = nil
		delete(s.problems, ref)
		if st.obj.Value == nil {
			delete(s.objects, ref)
		} else {
			s.convert(ref, st, changed)
		}
		s.wrong = s.wrong || !slices.Equal(wrong, s.problems[ref])
		for _, k := range before {
			if !slices.Contains(st.rows, k) {
				delete(s.rows, k)
				changed[k] = nil
			}
		}
	}
	return sorted(changed)
}

func (s *Store) convert(ref model.ObjectKey, st *stored, changed map[model.RowKey]model.Object) {
	s.forget(ref, st)
	clear(s.look.seen)
	res := s.conv.Convert(st.obj, &s.look)
	if res.Refused {
		res = s.conv.quarantine(st.obj, res.Findings, st.good, &s.look)
	} else if _, checked := specOf(st.obj.Value); checked {
		good := st.obj
		st.good = &good
	}
	if len(res.Problems) > 0 {
		s.problems[ref] = res.Problems
	}
	st.facts = make([]fact, 0, len(s.look.seen))
	for f := range s.look.seen {
		st.facts = append(st.facts, f)
		if s.dependents[f] == nil {
			s.dependents[f] = &refSet{}
		}
		s.dependents[f].add(ref)
	}
	for _, ev := range res.Rows {
		st.rows = append(st.rows, ev.Row)
		if old, ok := s.rows[ev.Row]; ok && model.SameRow(old, ev.Obj) {
			continue
		}
		s.rows[ev.Row] = ev.Obj
		changed[ev.Row] = ev.Obj
	}
}

// sorted gives the events by kind and key, deletions last: whatever is split between two readers,
// new homes exist before old ones go.
func sorted(changed map[model.RowKey]model.Object) []model.Event {
	out := make([]model.Event, 0, len(changed))
	for k, o := range changed {
		out = append(out, model.Event{Row: k, Obj: o})
	}
	slices.SortFunc(out, func(a, b model.Event) int {
		if (a.Obj == nil) != (b.Obj == nil) {
			if b.Obj == nil {
				return -1
			}
			return 1
		}
		return cmp.Or(cmp.Compare(a.Row.Kind, b.Row.Kind), strings.Compare(a.Row.Key, b.Row.Key))
	})
	return out
}

func (s *Store) touch(f fact, dirty map[model.ObjectKey]struct{}) {
	if refs := s.dependents[f]; refs != nil {
		refs.addTo(dirty)
	}
}

// index brings the facts up to date with one object and marks what looked up those that changed.
func (s *Store) index(before, after Object, dirty map[model.ObjectKey]struct{}) {
	kind, value := after.Ref.Kind, after.Value
	ref := after.Ref
	if value == nil {
		kind, ref = before.Ref.Kind, before.Ref
	}
	key := name{ref.Namespace, ref.Name}
	f := fact{kind: kind, name: key}
	switch kind {
	case KindService:
		replace(s, s.services, key, f, factsOf(value, serviceFacts), dirty)
	case KindNode:
		replace(s, s.nodes, ref.Name, f, factsOf(value, nodeFacts), dirty)
		for _, at := range s.nodeIndex.set(ref.Name, factsOf(value, nodeExposure)) {
			s.touch(fact{kind: factNodes, name: name{at.key, at.value}}, dirty)
		}
	case KindNamespace:
		replace(s, s.namespaces, ref.Name, f, factsOf(value, namespaceFacts), dirty)
	case KindPod:
		s.indexPod(key, f, factsOf(value, podFacts), dirty)
	case KindServiceExport:
		replace(s, s.exports, key, f, factsOf(value, exportFacts), dirty)
	case KindServiceImport:
		replace(s, s.imports, key, f, factsOf(value, importFacts), dirty)
	case KindConfigMap:
		if ref.Namespace == s.conv.SystemNamespace && s.trust.set(ref.Name, factsOf(value, trustFacts)) {
			s.touchAll(dirty)
		}
	}
}

// touchAll marks every object.
func (s *Store) touchAll(dirty map[model.ObjectKey]struct{}) {
	for ref := range s.objects {
		dirty[ref] = struct{}{}
	}
}

// factsOf reduces an object to facts, nil if there is none (or it is not what its kind says).
func factsOf[O, F any](value any, reduce func(*O) *F) *F {
	if o, ok := value.(*O); ok && o != nil {
		return reduce(o)
	}
	return nil
}

func replace[K comparable, F any](s *Store, m map[K]*F, key K, f fact, next *F, dirty map[model.ObjectKey]struct{}) bool {
	old := m[key]
	if old == nil && next == nil || old != nil && next != nil && same(old, next) {
		return false
	}
	if next == nil {
		delete(m, key)
	} else {
		m[key] = next
	}
	s.touch(f, dirty)
	return true
}

func (s *Store) indexPod(key name, f fact, next *PodFacts, dirty map[model.ObjectKey]struct{}) {
	old := s.pods[key]
	if !replace(s, s.pods, key, f, next, dirty) {
		return
	}
	if old != nil && !old.Gone {
		for _, ip := range old.IPs {
			at := podAt{key.namespace, ip}
			delete(s.podsByIP[at], key.name)
			if len(s.podsByIP[at]) == 0 {
				delete(s.podsByIP, at)
			}
			s.touch(fact{name: name{namespace: key.namespace}, ip: ip}, dirty)
		}
	}
	if next != nil && !next.Gone {
		for _, ip := range next.IPs {
			at := podAt{key.namespace, ip}
			if s.podsByIP[at] == nil {
				s.podsByIP[at] = map[string]*PodFacts{}
			}
			s.podsByIP[at][key.name] = next
			s.touch(fact{name: name{namespace: key.namespace}, ip: ip}, dirty)
		}
	}
}
