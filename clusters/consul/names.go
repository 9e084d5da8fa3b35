package consul

import (
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

// leaveOut notes the services that can't be asked for.
func (s *scopeState) leaveOut(items []string) {
	problems := make([]model.Problem, len(items))
	for i, item := range items {
		problems[i] = model.Problem{Item: item, Reason: "left out: Consul answers no request for a service of this name"}
	}
	s.odd = model.ListProblems(time.Now(), problems, s.odd, maxListed)
}
