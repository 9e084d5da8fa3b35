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
