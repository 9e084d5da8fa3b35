package secrets

import (
	"fmt"
	"slices"
)

// class is a kind of claims, of which a source has a bounded number.
type class struct {
	has  func(*Claim) bool
	most int
	what string // more than most of them
}

// classes gives the kinds, for a source of so many clusters at most. A claim is of the first that has it.
func classes(clusters int) []class {
	return []class{
		{func(c *Claim) bool { return c.Err == nil }, clusters, "there are more than %d clusters"},
		{func(c *Claim) bool { return ValidCluster(c.Cluster) }, clusters, "more than %d credentials can't be used"},
		{func(*Claim) bool { return true }, 20, "more than %d names can't be cluster ids"},
	}
}

// limit keeps the first claims of each kind, in their order: what can't be used pushes nothing out. One more claim
// stands for the others of a kind.
func limit(claims []Claim, clusters int) []Claim {
	all := classes(clusters)
	counts, first := make([]int, len(all)), make([]*Claim, len(all)) // first that is not kept
	var kept []Claim
	for i := range claims {
		c := &claims[i]
		k := slices.IndexFunc(all, func(k class) bool { return k.has(c) })
		switch counts[k]++; {
		case counts[k] <= all[k].most:
			kept = append(kept, *c)
		case first[k] == nil:
			first[k] = c
		}
	}
	for k, c := range first {
		if c != nil {
			kept = append(kept, Claim{Source: c.Source, Created: c.Created, Err: fmt.Errorf("this and all later ones are ignored: "+all[k].what, all[k].most)})
		}
	}
	return kept
}
