package consul

import (
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
)

// askable reports whether Consul takes requests for a service of the name: it refuses paths with what can't be printed, and
// redirects dots.
func askable(name string) bool {
	return !strings.ContainsFunc(name, func(r rune) bool { return r == utf8.RuneError || !unicode.IsPrint(r) }) && name != "." && name != ".."
}

// maxOdd bounds how many of them are told of.
const maxOdd = 100

// leaveOut notes the services that can't be asked for.
func (s *scopeState) leaveOut(items []string) {
	slices.Sort(items)
	items = items[:min(len(items), maxOdd)]
	old := s.odd
	s.odd = make([]model.Problem, len(items))
	for i, item := range items {
		s.odd[i] = model.Problem{Item: item, Reason: "left out: Consul answers no request for a service of this name", Since: time.Now()}
		at, had := slices.BinarySearchFunc(old, item, func(p model.Problem, item string) int { return strings.Compare(p.Item, item) })
		if had {
			s.odd[i].Since = old[at].Since
		}
	}
}
