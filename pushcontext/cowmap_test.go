package pushcontext

import (
	"maps"
	"math/rand/v2"
	"testing"
)

// model of one frozen copy: what it held when it was made.
type frozen struct {
	m    cowMap[int, int]
	want map[int]int
}

func (f frozen) check(t *testing.T) {
	t.Helper()
	got := map[int]int{}
	for k, v := range f.m.all() {
		if _, dup := got[k]; dup {
			t.Fatalf("key %d is yielded twice", k)
		}
		got[k] = v
	}
	if !maps.Equal(got, f.want) || f.m.count != len(f.want) {
		t.Fatalf("got %d entries (count %d), want %d", len(got), f.m.count, len(f.want))
	}
	for k, v := range f.want {
		if g, ok := f.m.get(k); !ok || g != v {
			t.Fatalf("get(%d) = %d %v, want %d", k, g, ok, v)
		}
	}
}

func TestCowMapEqualsPlainMapAndOldCopiesNeverChange(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 1))
		plain, copies := map[int]int{}, []frozen{}
		var m cowMap[int, int]
		for range 60 {
			e := m.edit()
			for range r.IntN(80) {
				k := r.IntN(700)
				if r.IntN(3) == 0 {
					e.delete(k)
					delete(plain, k)
				} else {
					v := r.Int()
					e.set(k, v)
					plain[k] = v
				}
				if g, ok := e.get(k); ok != has(plain, k) || g != plain[k] {
					t.Fatalf("seed %d: within an edit get(%d) = %d %v", seed, k, g, ok)
				}
			}
			m = e.freeze()
			copies = append(copies, frozen{m, maps.Clone(plain)})
		}
		for _, f := range copies {
			f.check(t)
		}
	}
}

func has(m map[int]int, k int) bool { _, ok := m[k]; return ok }

func TestCowMapSharesWhatItDoesNotTouch(t *testing.T) {
	t.Parallel()
	var m cowMap[int, int]
	e := m.edit()
	for k := range 1000 {
		e.set(k, k)
	}
	m = e.freeze()
	if n := m.edit().freeze(); &n.buckets[0] != &m.buckets[0] {
		t.Error("an edit without change copies the table")
	}
	e = m.edit()
	e.delete(5000)
	if n := e.freeze(); &n.buckets[0] != &m.buckets[0] {
		t.Error("deleting an absent key copies the table")
	}
	e = m.edit()
	e.set(7, -7)
	n, copied := e.freeze(), 0
	for i := range n.buckets {
		if &n.buckets[i][0] != &m.buckets[i][0] {
			copied++
		}
	}
	if copied != 1 {
		t.Errorf("one set copies %d buckets", copied)
	}
}

func TestCowMapZeroValueIsEmpty(t *testing.T) {
	t.Parallel()
	var m cowMap[string, int]
	if _, ok := m.get("x"); ok {
		t.Error("found something")
	}
	e := m.edit()
	e.delete("x")
	m = e.freeze()
	for range m.all() {
		t.Error("yields something")
	}
}

func TestCowMapIterationStops(t *testing.T) {
	t.Parallel()
	var m cowMap[int, int]
	e := m.edit()
	for k := range 100 {
		e.set(k, k)
	}
	m = e.freeze()
	n := 0
	for range m.all() {
		if n++; n == 3 {
			break
		}
	}
	if n != 3 {
		t.Errorf("yielded %d", n)
	}
}
