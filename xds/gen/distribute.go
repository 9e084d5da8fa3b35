package gen

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
)

// patternsBySpecificity orders locality patterns so that the first that matches is the narrowest.
func patternsBySpecificity(shares map[string]uint32) []string {
	return slices.SortedFunc(maps.Keys(shares), func(a, b string) int {
		return cmp.Or(cmp.Compare(specificity(b), specificity(a)), strings.Compare(a, b))
	})
}

func specificity(pattern string) int {
	n := 0
	for part := range strings.SplitSeq(pattern, "/") {
		if part == "*" || part == "" {
			break
		}
		n++
	}
	return n
}

// pattern gives the narrowest pattern of the distribution that covers a locality.
func (s *selector) pattern(l model.Locality) (string, bool) {
	for _, p := range s.patterns {
		if localityMatches(l, p) {
			return p, true
		}
	}
	return "", false
}

// share is what the distribution gives the localities that match the same pattern as l.
func (s *selector) share(l model.Locality) uint32 {
	p, _ := s.pattern(l)
	return s.shares[p]
}

// distribute replaces the groups' weights by their parts of the shares: a pattern's share is split by
// the weights of the groups that it covers, rounded up. Endpoints whose locality is unknown and not
// covered keep their weight: they are one priority behind, so they serve when nothing else can.
func (s *selector) distribute(groups []*group) {
	type bucket struct {
		priority uint32
		pattern  string
	}
	totals := map[bucket]uint64{}
	of := func(g *group) (bucket, bool) {
		p, ok := s.pattern(g.locality)
		return bucket{g.priority, p}, ok && s.shares[p] > 0
	}
	for _, g := range groups {
		if b, ok := of(g); ok {
			totals[b] += uint64(g.weight)
		}
	}
	for _, g := range groups {
		if b, ok := of(g); ok {
			g.weight = clip((uint64(g.weight)*uint64(s.shares[b.pattern]) + totals[b] - 1) / totals[b])
		}
	}
}
