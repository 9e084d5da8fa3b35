package model

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Follow gives the status that comes after another: if its state is the same it was entered when that was. It reports whether the
// status says anything new.
func (s Status) Follow(before Status) (next Status, news bool) {
	if s.State == before.State {
		s.Since = before.Since
	}
	return s, s.State != before.State || s.Err != before.Err || !slices.Equal(s.Problems, before.Problems)
}

// ListProblems sorts problems, keeps the first, as many as most, and gives each the time at which it was first seen: now, if it was not among
// those before. What is given is changed.
func ListProblems(now time.Time, problems, before []Problem, most int) []Problem {
	slices.SortFunc(problems, func(a, b Problem) int {
		return cmp.Or(strings.Compare(a.Item, b.Item), cmp.Compare(a.Line, b.Line), strings.Compare(a.Reason, b.Reason))
	})
	problems = slices.Compact(problems)
	if more := len(problems) - most; more > 0 {
		problems = append(problems[:most:most], Problem{Reason: fmt.Sprintf("%d more problems are not listed", more)})
	}
	since := make(map[[2]string]time.Time, len(before))
	for _, p := range before {
		since[[2]string{p.Item, p.Reason}] = p.Since
	}
	for i, p := range problems {
		problems[i].Since = cmp.Or(since[[2]string{p.Item, p.Reason}], now)
	}
	return problems
}
