package xds

import (
	"slices"
	"sync"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/pushcontext"
	"github.com/isthmus-mesh/isthmus/xds/gen"
)

// roster is all that one type has in one snapshot for the proxies of a class, but for what their own
// workloads serve; or, for a subscription by names, the same of what those names mean. It is worked out once, so
// that one more proxy of a class costs no look-ups. It is immutable.
type roster struct {
	resources []*resource // each name once
	ids       []uint32
	sums      []uint64
	all       *roaring.Bitmap // of ids
	faulty    bool            // some could not be built
	wholes    *roaring.Bitmap // of a type of parts: what they are parts of
}

// rosters keeps those of the newest snapshot.
type rosters struct {
	mu      sync.Mutex
	version uint64                       // guarded by mu
	era     uint32                       // guarded by mu; of the name table
	groups  map[rosterGroup]*rosterClass // guarded by mu
	names   int                          // guarded by mu; in all of groups
}

// rosterGroup says which views a roster is made from: those that a proxy of the cluster and namespace
// with the scope may see or, if names is not 0, those that the list of names with this hash is made from.
type rosterGroup struct {
	typ       int
	cluster   model.ClusterID
	namespace string
	scope     *pushcontext.Scope
	names     uint64
}

// rosterClass holds the rosters of a group by class, reduced to what its views depend on.
type rosterClass struct {
	traits gen.Traits
	labels []string // of TraitPolicy, those that some view asks for; sorted
	lists  map[gen.Class]*roster
}

func (k *rosterClass) reduce(c gen.Class) gen.Class {
	c = c.Keep(k.traits)
	c.Labels = c.Labels.Only(k.labels)
	return c
}

func newRosters() *rosters { return &rosters{groups: map[rosterGroup]*rosterClass{}} }

// drop lets everything go, for the snapshot has changed.
func (s *rosters) drop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clear()
}

// clear is called with mu held.
func (s *rosters) clear() {
	clear(s.groups)
	s.names = 0
}

// current makes the set that of a snapshot; false if it is that of a newer one.
func (s *rosters) current(version uint64, era uint32) bool {
	if version < s.version || era < s.era {
		return false
	}
	if version > s.version || era > s.era {
		s.version, s.era = version, era
		s.clear()
	}
	return true
}

// find gives a roster; nil if it has not been worked out. It reports false if that is of no use: what
// the group is made of is different for every proxy, or the snapshot is an old one.
func (s *rosters) find(version uint64, era uint32, g rosterGroup, c gen.Class) (*roster, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.current(version, era) {
		return nil, false
	}
	k := s.groups[g]
	switch {
	case k == nil:
		return nil, true
	case k.traits&perProxy != 0:
		return nil, false
	}
	return k.lists[k.reduce(c)], true
}

func (s *rosters) store(version uint64, era uint32, g rosterGroup, a *audience, r *roster) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.current(version, era) {
		return
	}
	if s.names += 1 + len(r.ids); s.names > maxRostered { // clients choose groups and classes
		s.clear()
	}
	k := s.groups[g]
	if k == nil {
		k = &rosterClass{lists: map[gen.Class]*roster{}}
		s.groups[g] = k
	}
	if k.traits, k.labels = a.used, a.labels; k.traits&perProxy == 0 {
		k.lists[k.reduce(a.class)] = r
	}
}

// roster gives what the proxy is to have of the type, but for what its own workload serves. It is nil
// if nobody else would have the same, or if a view can't be listed.
func (d *differ) roster() *roster {
	g := rosterGroup{typ: d.w.typ, cluster: d.a.reader.Cluster, namespace: d.a.reader.Namespace, scope: d.a.reader.Scope}
	if !d.w.wildcard {
		if g.names = d.w.subject; g.names == 0 {
			return nil
		}
	}
	r, useful := d.f.rosters.find(d.pc.Version, d.t.era, g, d.a.class)
	if r != nil || !useful || d.f.kept.Load() > d.f.budget {
		return r
	}
	used, labels := d.a.used, d.a.labels
	d.a.used, d.a.labels = 0, nil
	if r = d.enrol(); r != nil {
		d.f.rosters.store(d.pc.Version, d.t.era, g, d.a, r)
	}
	d.a.used |= used
	d.a.labels = slices.Clone(d.a.labels) // the roster has the old list
	d.a.name(labels)
	return r
}

// enrol works out a roster; nil if a view can't be listed.
func (d *differ) enrol() *roster {
	r := &roster{all: roaring.New(), wholes: roaring.New()}
	if !d.w.wildcard {
		for it := d.w.sub.Iterator(); it.HasNext(); {
			id := it.Next()
			name := d.t.name(id)
			if k, ok := keyOf(d.w.gen, name); ok && k.Kind.OfReader() {
				continue
			}
			x, _, sure := d.lookup(d.a, name)
			if !sure {
				return nil
			}
			if x != nil {
				r.add(x, id)
			}
		}
		return r
	}
	for _, kind := range d.w.gen.Kinds() {
		if kind.OfReader() {
			continue
		}
		for key := range d.pc.Keys(kind) {
			b, _ := d.f.of(d.pc, d.w.typ, key, d.a)
			if b == nil {
				continue
			}
			if b.unlisted || len(b.resources) > 0 && !d.note(r, key) {
				return nil
			}
			for _, x := range b.resources {
				r.add(x, x.id(d.t, d.w.typ, d.w.gen))
			}
		}
	}
	return r
}

func (r *roster) add(x *resource, id uint32) {
	if !r.all.CheckedAdd(id) {
		return
	}
	sum := uint64(0)
	if x.failed() {
		r.faulty = true
	} else {
		sum = x.Sum
	}
	r.resources, r.ids, r.sums = append(r.resources, x), append(r.ids, id), append(r.sums, sum)
}

// take offers a whole roster to a proxy that has nothing yet.
func (d *differ) take(r *roster) {
	if r.faulty || len(d.w.known) > 0 {
		for i, x := range r.resources {
			d.offer(x, r.ids[i])
		}
		return
	}
	d.c.send, d.c.ids, d.c.sums = append(d.c.send, r.resources...), append(d.c.ids, r.ids...), append(d.c.sums, r.sums...)
	d.c.done.Or(r.all)
}

// untouched reports whether the proxy has nothing of the type, and nothing was refused.
func (w *watch) untouched() bool {
	return w.sent.IsEmpty() && w.suspect.IsEmpty() && len(w.rejected) == 0
}
