package model

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// A status is as old as its state, and news if it says something else.
func TestStatusFollows(t *testing.T) {
	t.Parallel()
	at := func(s int64) time.Time { return time.Unix(s, 0) }
	before := Status{State: StateStale, Since: at(1), Err: "gone", Problems: []Problem{{Item: "a", Since: at(1)}}}
	for name, tc := range map[string]struct {
		change func(*Status)
		since  time.Time
		news   bool
	}{
		"the same":      {func(*Status) {}, at(1), false},
		"another state": {func(s *Status) { s.State = StateLive }, at(9), true},
		"another error": {func(s *Status) { s.Err = "refused" }, at(1), true},
		"no problem":    {func(s *Status) { s.Problems = nil }, at(1), true},
	} {
		s := before
		s.Since = at(9)
		tc.change(&s)
		if next, news := s.Follow(before); !next.Since.Equal(tc.since) || news != tc.news {
			t.Errorf("%s: since %v, news %t", name, next.Since.Unix(), news)
		}
	}
}

// Problems are in one order, each once, as old as they are, and no more than may be.
func TestListProblems(t *testing.T) {
	t.Parallel()
	first, now := time.Unix(1, 0), time.Unix(9, 0)
	before := []Problem{{Item: "b", Line: 2, Reason: "y", Since: first}}
	given := []Problem{{Item: "c"}, {Item: "b", Line: 3, Reason: "y"}, {Item: "b", Line: 1, Reason: "z"}, {Item: "c"}, {Item: "a"}}
	want := []Problem{{Item: "a", Since: now}, {Item: "b", Line: 1, Reason: "z", Since: now}, {Item: "b", Line: 3, Reason: "y", Since: first}, {Reason: "1 more problems are not listed", Since: now, More: 1}}
	if d := cmp.Diff(want, ListProblems(now, given, before, 3)); d != "" {
		t.Error(d)
	}
	if got := ListProblems(now, nil, before, 3); len(got) != 0 {
		t.Errorf("%v", got)
	}
}

// What concerns the whole source is never what is left out, and lists that are put together and cut again count what was left out of each.
func TestListProblemsOfSources(t *testing.T) {
	t.Parallel()
	first, now := time.Unix(1, 0), time.Unix(9, 0)
	var given []Problem
	for _, item := range []string{"a", "b", "c"} {
		given = append(given, Problem{Item: item, Reason: "bad"})
	}
	given = append(given, Problem{Item: "limits.maxServices", Reason: "5 services are not read", Broad: true, Since: first})
	once := ListProblems(now, given, nil, 2)
	want := []Problem{
		{Item: "limits.maxServices", Reason: "5 services are not read", Broad: true, Since: first}, {Item: "a", Reason: "bad", Since: now},
		{Reason: "2 more problems are not listed", Since: now, More: 2},
	}
	if d := cmp.Diff(want, once); d != "" {
		t.Error(d)
	}
	twice := ListProblems(now, append(once, Problem{Item: "d"}, Problem{More: 7}), nil, 2)
	want[2].More, want[2].Reason = 10, "10 more problems are not listed"
	if d := cmp.Diff(want, twice); d != "" {
		t.Error(d)
	}
	if n := CountProblems(twice); n != 12 || CountProblems(nil) != 0 {
		t.Errorf("%d problems", n)
	}
}
