package xds

import (
	"hash/maphash"
	"sync"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/pushcontext"
)

const (
	interestShards = 16
	// wideNames is how many names of one type a stream may subscribe before it is woken for every
	// change of the kinds that the type is built from.
	wideNames = 256
	viewKinds = int(pushcontext.ViewMesh) + 1
)

// interest says which streams a change concerns. A stream that subscribes few names is found by the
// views they are made from; others are in the wide set of a kind of view.
type interest struct {
	seed   maphash.Seed
	shards [interestShards]interestShard

	mu        sync.Mutex
	wide      [][viewKinds]*roaring.Bitmap          // guarded by mu; by type
	instances map[model.InstanceKey]*roaring.Bitmap // guarded by mu
	// namespaces are those of proxies: what is addressed to workloads there concerns them.
	namespaces map[string]*roaring.Bitmap // guarded by mu
}

type interestShard struct {
	mu   sync.Mutex
	keys map[typedKey]*roaring.Bitmap // guarded by mu
}

// typedKey is a view as one type's names need it: a stream may want a view for two types.
type typedKey struct {
	typ uint8
	key pushcontext.ViewKey
}

func newInterest(types int) *interest {
	in := &interest{
		seed: maphash.MakeSeed(), wide: make([][viewKinds]*roaring.Bitmap, types), instances: map[model.InstanceKey]*roaring.Bitmap{},
		namespaces: map[string]*roaring.Bitmap{},
	}
	for i := range in.shards {
		in.shards[i].keys = map[typedKey]*roaring.Bitmap{}
	}
	for i := range in.wide {
		for k := range in.wide[i] {
			in.wide[i][k] = roaring.New()
		}
	}
	return in
}

func (in *interest) shard(k pushcontext.ViewKey) *interestShard {
	return &in.shards[maphash.Comparable(in.seed, k)%interestShards]
}

func (in *interest) add(slot uint32, typ int, k pushcontext.ViewKey) {
	s := in.shard(k)
	s.mu.Lock()
	defer s.mu.Unlock()
	put(s.keys, typedKey{uint8(typ), k}, slot)
}

func (in *interest) remove(slot uint32, typ int, k pushcontext.ViewKey) {
	s := in.shard(k)
	s.mu.Lock()
	defer s.mu.Unlock()
	drop(s.keys, typedKey{uint8(typ), k}, slot)
}

func (in *interest) setWide(slot uint32, typ int, kind pushcontext.ViewKind, on bool) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if on {
		in.wide[typ][kind].Add(slot)
	} else {
		in.wide[typ][kind].Remove(slot)
	}
}

func (in *interest) setInstances(slot uint32, keys []model.InstanceKey, on bool) {
	in.mu.Lock()
	defer in.mu.Unlock()
	for _, k := range keys {
		if on {
			put(in.instances, k, slot)
		} else {
			drop(in.instances, k, slot)
		}
	}
}

func (in *interest) setNamespace(slot uint32, namespace string, on bool) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if on {
		put(in.namespaces, namespace, slot)
	} else {
		drop(in.namespaces, namespace, slot)
	}
}

func put[K comparable](m map[K]*roaring.Bitmap, k K, slot uint32) {
	b := m[k]
	if b == nil {
		b = roaring.New()
		m[k] = b
	}
	b.Add(slot)
}

func drop[K comparable](m map[K]*roaring.Bitmap, k K, slot uint32) {
	if b := m[k]; b != nil {
		if b.Remove(slot); b.IsEmpty() {
			delete(m, k)
		}
	}
}

// touched gives the slots of the streams that the delta may concern. A delta of the mesh-wide
// settings concerns all and is not asked here.
func (in *interest) touched(d *pushcontext.Delta) *roaring.Bitmap {
	out := roaring.New()
	var r pushcontext.Reader
	for _, kind := range []pushcontext.ViewKind{
		pushcontext.ViewService, pushcontext.ViewShape, pushcontext.ViewPort, pushcontext.ViewPeers, pushcontext.ViewGateways,
		pushcontext.ViewNames, pushcontext.ViewPorts,
	} {
		some := false
		for k := range d.Keys(kind, &r) {
			some = true
			in.orKey(out, k)
		}
		if some {
			in.orWide(out, kind)
		}
	}
	in.orInstances(out, d.Instances)
	in.orNamespaces(out, d.Scopes)
	return out
}

func (in *interest) orKey(out *roaring.Bitmap, k pushcontext.ViewKey) {
	s := in.shard(k)
	s.mu.Lock()
	defer s.mu.Unlock()
	for typ := range in.wide {
		if b := s.keys[typedKey{uint8(typ), k}]; b != nil {
			out.Or(b)
		}
	}
}

func (in *interest) orWide(out *roaring.Bitmap, kind pushcontext.ViewKind) {
	in.mu.Lock()
	defer in.mu.Unlock()
	for typ := range in.wide {
		out.Or(in.wide[typ][kind])
	}
}

func (in *interest) orInstances(out *roaring.Bitmap, keys []model.InstanceKey) {
	in.mu.Lock()
	defer in.mu.Unlock()
	for _, k := range keys {
		if b := in.instances[k]; b != nil {
			out.Or(b)
		}
	}
}

// orNamespaces adds the proxies of namespaces; "*" is all.
func (in *interest) orNamespaces(out *roaring.Bitmap, namespaces []string) {
	in.mu.Lock()
	defer in.mu.Unlock()
	for _, n := range namespaces {
		if n == "*" {
			for _, b := range in.namespaces {
				out.Or(b)
			}
		} else if b := in.namespaces[n]; b != nil {
			out.Or(b)
		}
	}
}
