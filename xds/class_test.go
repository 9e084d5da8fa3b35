package xds

import (
	"fmt"
	"testing"

	"github.com/isthmus-mesh/isthmus/xds/gen"
)

// TestClassesAreForgotten: proxies of ever new classes leave no more than a bounded number behind.
func TestClassesAreForgotten(t *testing.T) {
	t.Parallel()
	c := newClasses()
	stays := &audience{class: gen.Class{Node: "stays"}, classes: c}
	id := stays.number(stays.reduce(gen.TraitNode))
	seen := map[uint32]bool{id: true}
	for i := range 10 * idleClasses {
		a := &audience{class: gen.Class{Node: fmt.Sprint(i)}, classes: c}
		n := a.number(a.reduce(gen.TraitNode))
		if seen[n] {
			t.Fatalf("number %d was given twice", n)
		}
		seen[n] = true
		if a.number(a.reduce(gen.TraitNode)) != n || c.count() != 2 {
			t.Fatalf("%d classes in use", c.count())
		}
		a.reduce(gen.TraitIP) // without resources that are kept for it, it is no class
		a.leave()
		if c.count() != 1 || len(c.members) > idleClasses+1 {
			t.Fatalf("%d classes in use, %d known", c.count(), len(c.members))
		}
	}
	back := &audience{class: gen.Class{Node: fmt.Sprint(10*idleClasses - 1)}, classes: c}
	if n := back.number(back.reduce(gen.TraitNode)); n != c.last {
		t.Errorf("a class that left just now has the new number %d", n)
	}
	if stays.number(stays.reduce(gen.TraitNode)) != id {
		t.Error("a class in use was given another number")
	}
}

// TestReducedClassesAreForgotten: a proxy that stays while policies come and go keeps the classes that it needs.
func TestReducedClassesAreForgotten(t *testing.T) {
	t.Parallel()
	c := newClasses()
	a := &audience{class: gen.Class{Node: "n"}, classes: c}
	id := a.number(a.reduce(gen.TraitNode))
	narrowed := func(i int) *reducedClass { return a.narrow(gen.TraitPolicy, gen.Class{Node: fmt.Sprint(i)}) }
	for i := range 10_000 {
		n := a.number(narrowed(i))
		if a.number(narrowed(i)) != n {
			t.Fatal("a class in use was given another number")
		}
		if a.number(a.reduce(gen.TraitNode)) != id {
			t.Fatal("a class that is always asked for was given another number")
		}
		if n := len(a.reduced); n > manyReduced || c.count() > n {
			t.Fatalf("%d classes are kept, %d numbered, of 2 in use", n, c.count())
		}
	}
	for range 3 {
		for i := range 10 * fewReduced {
			a.number(narrowed(i))
		}
	}
	joined := c.last
	for i := range 10 * fewReduced {
		a.number(narrowed(i))
	}
	if c.last != joined {
		t.Errorf("of %d classes that are all in use %d were numbered anew", 10*fewReduced, c.last-joined)
	}
	a.leave()
	if c.count() != 0 {
		t.Errorf("%d classes are in use by nobody", c.count())
	}
}
