package xds

import (
	"sync"
	"sync/atomic"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/isthmus-mesh/isthmus/pushcontext"
	"github.com/isthmus-mesh/isthmus/xds/gen"
)

// names turns resource names into small numbers, so that a stream's sets are bitmaps. One name has
// one number for all types. Names are only ever added; once a table holds far more than what was
// alive when it was young, the streams move to a fresh one and the old one is collected.
type names struct {
	era  uint32 // which table this is; from 1
	refs atomic.Int64

	mu     sync.RWMutex
	ids    map[string]uint32 // guarded by mu
	list   []string          // guarded by mu
	owners []ownerIndex      // guarded by mu; by generator

	next *translation // set before the table is replaced
}

// translation gives the numbers that a replaced table's names have in its successor, worked out once
// for all streams that move.
type translation struct {
	to  *names
	ids [][]atomic.Uint32 // by generator and old number; 0 = not known yet, else the number + 1
}

func (t *names) replace(to *names) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	t.next = &translation{to: to, ids: make([][]atomic.Uint32, len(t.owners))}
	for i := range t.next.ids {
		t.next.ids[i] = make([]atomic.Uint32, len(t.list))
	}
}

// moved gives a name's number in another table.
func (t *names) moved(id uint32, to *names, typ int, g gen.Generator) uint32 {
	if t.next == nil || t.next.to != to || int(id) >= len(t.next.ids[typ]) {
		return to.intern(typ, g, t.name(id))
	}
	known := &t.next.ids[typ][id]
	if n := known.Load(); n > 0 {
		return n - 1
	}
	n := to.intern(typ, g, t.name(id))
	known.Store(n + 1)
	return n
}

// alive counts the names that are made from something that exists.
func (t *names) alive(pc *pushcontext.PushContext) int {
	t.mu.RLock()
	defer t.mu.RUnlock()
	found := roaring.New()
	for _, o := range t.owners {
		for key, ids := range o.ids {
			if exists(pc, key) {
				found.AddMany(ids)
			}
		}
	}
	return int(found.GetCardinality())
}

// exists reports whether any proxy may have a view of the key.
func exists(pc *pushcontext.PushContext, key pushcontext.ViewKey) bool {
	switch key.Kind {
	case pushcontext.ViewService, pushcontext.ViewShape:
		return pc.Host(key.Host) != nil
	case pushcontext.ViewPort:
		return pc.Port(key.Port) != nil
	}
	return true
}

// ownerIndex says which names of one type are made from a view.
type ownerIndex struct {
	known *roaring.Bitmap
	ids   map[pushcontext.ViewKey][]uint32
}

func newNames(era uint32, types int) *names {
	t := &names{era: era, ids: map[string]uint32{}, owners: make([]ownerIndex, types)}
	for i := range t.owners {
		t.owners[i] = ownerIndex{known: roaring.New(), ids: map[pushcontext.ViewKey][]uint32{}}
	}
	return t
}

// intern gives the name's number and files it under the view that the type makes it from.
func (t *names) intern(typ int, g gen.Generator, name string) uint32 {
	if id, ok := t.find(typ, name); ok {
		return id
	}
	key, owned := keyOf(g, name)
	t.mu.Lock()
	defer t.mu.Unlock()
	id, ok := t.ids[name]
	if !ok {
		id = uint32(len(t.list))
		t.list = append(t.list, name)
		t.ids[name] = id
	}
	if o := &t.owners[typ]; !o.known.Contains(id) {
		o.known.Add(id)
		if owned {
			o.ids[key] = append(o.ids[key], id)
		}
	}
	return id
}

func (t *names) find(typ int, name string) (uint32, bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	id, ok := t.ids[name]
	return id, ok && t.owners[typ].known.Contains(id)
}

// internBytes is intern for names of a request; found is a bitmap to add the numbers to.
func (t *names) internBytes(typ int, g gen.Generator, list func(func([]byte) bool), found *roaring.Bitmap) {
	for _, n := range t.findBytes(typ, list, found) {
		found.Add(t.intern(typ, g, n))
	}
}

// findBytes adds the numbers of known names to found and gives the others.
func (t *names) findBytes(typ int, list func(func([]byte) bool), found *roaring.Bitmap) (missing []string) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	known := t.owners[typ].known
	for n := range list {
		if id, ok := t.ids[string(n)]; ok && known.Contains(id) {
			found.Add(id)
		} else {
			missing = append(missing, string(n))
		}
	}
	return missing
}

// name gives the name with a number.
func (t *names) name(id uint32) string {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.list[id]
}

// owned gives the numbers of the known names of a type that are made from a view. The slice may
// only be read.
func (t *names) owned(typ int, key pushcontext.ViewKey) []uint32 {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.owners[typ].ids[key]
}

func (t *names) size() int {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return len(t.list)
}

// minCompaction is the number of names below which a table is never replaced.
const minCompaction = 1 << 13

// nameTables is the current table and what is known of its predecessors.
type nameTables struct {
	types   int
	floor   int // minCompaction, less in tests
	current atomic.Pointer[names]

	mu   sync.Mutex
	old  *names // guarded by mu; the table that streams are leaving, nil if none
	live int    // guarded by mu; names that were in use when that was looked at last
}

func newNameTables(types int) *nameTables {
	n := &nameTables{types: types, floor: minCompaction}
	n.current.Store(newNames(1, types))
	return n
}

// join gives the current table to a stream; leave it with left.
func (n *nameTables) join() *names {
	n.mu.Lock()
	defer n.mu.Unlock()
	t := n.current.Load()
	t.refs.Add(1)
	return t
}

// left says that a stream uses the table no more.
func (n *nameTables) left(t *names) {
	if t.refs.Add(-1) > 0 {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if t == n.old && t.refs.Load() == 0 {
		n.old, n.live = nil, n.current.Load().size()
	}
}

// compact starts a new table if the current one is mostly dead: if it has doubled since that was
// looked at last, and half of it is made from nothing that exists. It reports whether it did: then every
// stream must be woken to move.
func (n *nameTables) compact(pc *pushcontext.PushContext) bool {
	t := n.current.Load()
	size := t.size()
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.old != nil || size < n.floor || size < 2*n.live || n.current.Load() != t {
		return false
	}
	if alive := t.alive(pc); size < 2*alive {
		n.live = alive
		return false
	}
	n.renew(t)
	return true
}

// manyfold is how much more than what was in use a table may hold.
const manyfold = 8

// shed starts a new table if clients have asked for very many names since the current one was young:
// names that nothing is made from, or made up for what there is. It reports like compact.
func (n *nameTables) shed() bool {
	t := n.current.Load()
	size := t.size()
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.old != nil || size < manyfold*max(n.floor, n.live) || n.current.Load() != t {
		return false
	}
	n.renew(t)
	return true
}

// renew is called with mu held.
func (n *nameTables) renew(t *names) {
	next := newNames(t.era+1, n.types)
	t.replace(next)
	n.current.Store(next)
	if n.old = t; t.refs.Load() == 0 {
		n.old, n.live = nil, 0
	}
}
