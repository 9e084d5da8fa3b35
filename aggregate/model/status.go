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

// ListProblems sorts problems, those of the whole source before those of items, keeps the first, as many as most, and gives each that does
// not say since when it is the time at which it was first seen: now, if it was not among those before. How many are left out, here or in
// lists that these are from, is said by one more at the end. What is given is changed.
func ListProblems(now time.Time, problems, before []Problem, most int) []Problem {
	more := 0
	problems = slices.DeleteFunc(problems, func(p Problem) bool {
		more += p.More
		return p.More > 0
	})
	slices.SortFunc(problems, compareProblems)
	problems = slices.Compact(problems)
	if left := len(problems) - most; left > 0 {
		problems, more = problems[:most:most], more+left
	}
	if more > 0 {
		problems = append(problems, Problem{Reason: fmt.Sprintf("%d more problems are not listed", more), More: more})
	}
	since := make(map[[2]string]time.Time, len(before))
	for _, p := range before {
		since[[2]string{p.Item, p.Reason}] = p.Since
	}
	for i, p := range problems {
		problems[i].Since = cmp.Or(p.Since, since[[2]string{p.Item, p.Reason}], now)
	}
	return problems
}

func compareProblems(a, b Problem) int {
	if a.Broad != b.Broad {
		if a.Broad {
			return -1
		}
		return 1
	}
	return cmp.Or(strings.Compare(a.Item, b.Item), cmp.Compare(a.Line, b.Line), strings.Compare(a.Reason, b.Reason))
}

// CountProblems is how many there are, listed or not.
func CountProblems(list []Problem) int {
	n := len(list)
	for _, p := range list {
		n += max(0, p.More-1)
	}
	return n
}
