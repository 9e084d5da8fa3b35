package file

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/clusters/kube"
)

// claim is one file's definition of an object.
type claim struct {
	file  string
	order int // within the file
	item  kube.Item
}

// claims decides which file an object is taken from: the first by path, then by place in the file.
type claims struct {
	byRef  map[model.ObjectKey][]claim
	byFile map[string][]model.ObjectKey
	shared map[model.ObjectKey]struct{} // claimed more than once
}

func newClaims() *claims {
	return &claims{byRef: map[model.ObjectKey][]claim{}, byFile: map[string][]model.ObjectKey{}, shared: map[model.ObjectKey]struct{}{}}
}

// update replaces what one file defines and gives the objects to set and to delete.
func (c *claims) update(file string, items []kube.Item) (set []kube.Object, del []model.ObjectKey) {
	before := map[model.ObjectKey]*kube.Object{}
	remember := func(ref model.ObjectKey) {
		if _, seen := before[ref]; seen {
			return
		}
		before[ref] = nil
		if cs := c.byRef[ref]; len(cs) > 0 {
			o := cs[0].item.Object
			before[ref] = &o
		}
	}
	for _, ref := range c.byFile[file] {
		remember(ref)
		c.drop(ref, file)
	}
	delete(c.byFile, file)
	for i, it := range items {
		remember(it.Object.Ref)
		c.add(claim{file: file, order: i, item: it})
	}
	for ref, old := range before {
		cs := c.byRef[ref]
		switch {
		case len(cs) == 0:
			delete(c.byRef, ref)
			del = append(del, ref)
		case old == nil || old.Revision != cs[0].item.Object.Revision:
			set = append(set, cs[0].item.Object)
		}
		if len(cs) > 1 {
			c.shared[ref] = struct{}{}
		} else {
			delete(c.shared, ref)
		}
	}
	return set, del
}

func (c *claims) drop(ref model.ObjectKey, file string) {
	c.byRef[ref] = slices.DeleteFunc(c.byRef[ref], func(cl claim) bool { return cl.file == file })
}

func (c *claims) add(cl claim) {
	ref := cl.item.Object.Ref
	at, _ := slices.BinarySearchFunc(c.byRef[ref], cl, func(a, b claim) int {
		return cmp.Or(strings.Compare(a.file, b.file), cmp.Compare(a.order, b.order))
	})
	c.byRef[ref] = slices.Insert(c.byRef[ref], at, cl)
	c.byFile[cl.file] = append(c.byFile[cl.file], ref)
}

// place is where the object that counts is defined.
func (c *claims) place(ref model.ObjectKey) (file string, line int) {
	if cs := c.byRef[ref]; len(cs) > 0 {
		return cs[0].file, cs[0].item.Line
	}
	return ref.String(), 0
}

// conflicts lists the definitions that do not count. Files that are about to go don't conflict.
func (c *claims) conflicts(leaving func(file string) bool) []model.Problem {
	var out []model.Problem
	for ref := range c.shared {
		cs := slices.DeleteFunc(slices.Clone(c.byRef[ref]), func(cl claim) bool { return leaving(cl.file) })
		for i := 1; i < len(cs); i++ {
			out = append(out, model.Problem{Item: cs[i].file, Line: cs[i].item.Line,
				Reason: fmt.Sprintf("%s is defined in %s too, and that definition counts", ref, cs[0].file)})
		}
	}
	return out
}
