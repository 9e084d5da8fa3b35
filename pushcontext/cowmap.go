package pushcontext

import (
	"hash/maphash"
	"iter"
)

// bucketLoad is the mean bucket size at which a cowMap doubles its table.
const bucketLoad = 16

type entry[K comparable, V any] struct {
	hash uint64
	key  K
	val  V
}

// cowMap is an immutable hash map: a table of small immutable buckets. A changed copy shares all
// buckets that it does not touch, so a commit costs the table plus the dirty buckets. The zero value
// is empty.
type cowMap[K comparable, V any] struct {
	seed    maphash.Seed
	buckets [][]entry[K, V]
	count   int
}

func (m *cowMap[K, V]) get(k K) (v V, ok bool) {
	if m.count == 0 {
		return v, false
	}
	h := maphash.Comparable(m.seed, k)
	for _, e := range m.buckets[h&uint64(len(m.buckets)-1)] {
		if e.hash == h && e.key == k {
			return e.val, true
		}
	}
	return v, false
}

func (m *cowMap[K, V]) all() iter.Seq2[K, V] {
	return func(yield func(K, V) bool) {
		for _, b := range m.buckets {
			for _, e := range b {
				if !yield(e.key, e.val) {
					return
				}
			}
		}
	}
}

// edit is a cowMap under change; it copies the table on first use and each bucket once.
type edit[K comparable, V any] struct {
	m     cowMap[K, V]
	owned []bool // buckets already copied; nil until the first change
}

func (m cowMap[K, V]) edit() *edit[K, V] { return &edit[K, V]{m: m} }

// own makes the bucket of hash h private and returns its index.
func (e *edit[K, V]) own(h uint64) int {
	if e.owned == nil {
		e.m.buckets = append([][]entry[K, V](nil), e.m.buckets...)
		e.owned = make([]bool, len(e.m.buckets))
	}
	i := int(h & uint64(len(e.m.buckets)-1))
	if !e.owned[i] {
		e.m.buckets[i] = append(make([]entry[K, V], 0, len(e.m.buckets[i])+1), e.m.buckets[i]...)
		e.owned[i] = true
	}
	return i
}

func (e *edit[K, V]) get(k K) (V, bool) { return e.m.get(k) }

func (e *edit[K, V]) set(k K, v V) {
	if len(e.m.buckets) == 0 {
		e.m = cowMap[K, V]{seed: maphash.MakeSeed(), buckets: make([][]entry[K, V], 8)}
	}
	h := maphash.Comparable(e.m.seed, k)
	i := e.own(h)
	for j := range e.m.buckets[i] {
		if b := &e.m.buckets[i][j]; b.hash == h && b.key == k {
			b.val = v
			return
		}
	}
	e.m.buckets[i] = append(e.m.buckets[i], entry[K, V]{h, k, v})
	if e.m.count++; e.m.count > bucketLoad*len(e.m.buckets) {
		e.grow()
	}
}

func (e *edit[K, V]) delete(k K) {
	if _, ok := e.m.get(k); !ok {
		return
	}
	h := maphash.Comparable(e.m.seed, k)
	i := e.own(h)
	b := e.m.buckets[i]
	for j := range b {
		if b[j].hash == h && b[j].key == k {
			b[j] = b[len(b)-1]
			b[len(b)-1] = entry[K, V]{}
			e.m.buckets[i] = b[:len(b)-1]
			break
		}
	}
	e.m.count--
}

func (e *edit[K, V]) grow() {
	old := e.m.buckets
	e.m.buckets = make([][]entry[K, V], 2*len(old))
	for _, b := range old {
		for _, x := range b {
			i := x.hash & uint64(len(e.m.buckets)-1)
			e.m.buckets[i] = append(e.m.buckets[i], x)
		}
	}
	e.owned = make([]bool, len(e.m.buckets))
	for i := range e.owned {
		e.owned[i] = true
	}
}

func (e *edit[K, V]) freeze() cowMap[K, V] { return e.m }
