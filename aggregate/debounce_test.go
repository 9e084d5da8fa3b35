package aggregate

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// trace feeds events at the given milliseconds and lists the milliseconds of commits.
func trace(d *debouncer, cost time.Duration, events map[lane][]int, until int) []int {
	zero := time.Unix(1000, 0)
	at := func(ms int) time.Time { return zero.Add(time.Duration(ms) * time.Millisecond) }
	due := map[int][]lane{}
	for l, times := range events {
		for _, ms := range times {
			due[ms] = append(due[ms], l)
		}
	}
	commits := []int{}
	for ms := range until {
		for _, l := range due[ms] {
			d.note(l, at(ms))
		}
		if when, ok := d.deadline(); ok && !at(ms).Before(when) {
			commits = append(commits, ms)
			d.commit(at(ms), cost)
		}
	}
	return commits
}

func every(from, to, step int) []int {
	var out []int
	for ms := from; ms < to; ms += step {
		out = append(out, ms)
	}
	return out
}

func newDebouncer(share float64) *debouncer {
	return &debouncer{share: share, windows: [lanes]window{
		laneEndpoints: {20 * time.Millisecond, 200 * time.Millisecond, endpointStretch},
		laneShape:     {100 * time.Millisecond, time.Second, shapeStretch},
	}}
}

func TestDebounce(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name   string
		events map[lane][]int
		want   []int
	}{
		{"nothing", nil, []int{}},
		{"the first event commits at once", map[lane][]int{laneShape: {5}}, []int{5}},
		{"so does the next after an idle period", map[lane][]int{laneEndpoints: {5, 50, 500}}, []int{5, 50, 500}},
		{"soon after a commit endpoints wait for quiet", map[lane][]int{laneEndpoints: {5, 10}}, []int{5, 30}},
		{"and shape for longer", map[lane][]int{laneShape: {5, 10}}, []int{5, 110}},
		{"a burst is two commits", map[lane][]int{laneEndpoints: every(5, 15, 1)}, []int{5, 34}},
		{"endless endpoints commit at the cap", map[lane][]int{laneEndpoints: every(0, 1000, 10)}, []int{0, 210, 420, 630, 840, 1010}},
		{"endless shape commits at its cap", map[lane][]int{laneShape: every(0, 2500, 10)}, []int{0, 1010, 2020}},
		{"incident 74: endpoints are not held up by endless configuration",
			map[lane][]int{laneShape: every(0, 500, 50), laneEndpoints: {305}}, []int{0, 305, 550}},
		{"incident 7: one commit holds both lanes", map[lane][]int{laneEndpoints: {5, 8}, laneShape: {7}}, []int{5, 28}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			if d := cmp.Diff(tc.want, trace(newDebouncer(0.25), 0, tc.events, 2500)); d != "" {
				t.Errorf("commits (-want +got):\n%s", d)
			}
		})
	}
}

// Several events taken in one turn, from several mailboxes, are due at once like a single one.
func TestDebounceFirstOfMany(t *testing.T) {
	t.Parallel()
	d := newDebouncer(0.25)
	d.commit(time.Unix(1, 0), 0)
	for i := range 5 {
		d.note(laneEndpoints, time.Unix(2, int64(i)))
	}
	if at, ok := d.deadline(); !ok || !at.Equal(time.Unix(2, 0)) {
		t.Errorf("due at %v, want at once", at)
	}
	d.commit(time.Unix(2, 5), 0)
	d.note(laneEndpoints, time.Unix(2, 10))
	if at, _ := d.deadline(); !at.Equal(time.Unix(2, 10).Add(20 * time.Millisecond)) {
		t.Errorf("what comes soon after is due at %v, want after the quiet period", at)
	}
}

// 300 changes must not be 300 pushes, and the dearer a push the fewer there are.
func TestDebounceStretchesWithCost(t *testing.T) {
	t.Parallel()
	var last int
	for i, cost := range []time.Duration{0, 10 * time.Millisecond, 20 * time.Millisecond, 40 * time.Millisecond} {
		n := len(trace(newDebouncer(0.25), cost, map[lane][]int{laneEndpoints: every(0, 9000, 30)}, 12000))
		if i > 0 && n >= last {
			t.Errorf("cost %v: %d commits, not fewer than %d", cost, n, last)
		}
		if busy := time.Duration(n) * cost; busy > 9*time.Second/4+cost {
			t.Errorf("cost %v: pushing takes %v of 9s", cost, busy)
		}
		last = n
	}
}

// However much pushing costs, a change does not wait for longer than its lane's bound.
func TestDebounceStretchIsBounded(t *testing.T) {
	t.Parallel()
	for l, most := range map[lane]int{laneEndpoints: 200, laneShape: 500} {
		for _, cost := range []time.Duration{time.Minute, time.Hour} {
			t.Run(fmt.Sprint(l, cost), func(t *testing.T) {
				t.Parallel()
				commits := trace(newDebouncer(0.25), cost, map[lane][]int{l: every(0, 3000, 150)}, 6000)
				for i := 1; i < len(commits); i++ {
					if gap := commits[i] - commits[i-1]; gap > most+150 { // the event came up to 150 ms after the commit
						t.Errorf("%d ms between commits in %v", gap, commits)
					}
				}
				if n := len(commits); n > 3000/most+2 {
					t.Errorf("%d commits: the bound is never reached", n)
				}
			})
		}
	}
}

// What a storm cost is forgotten: commit by commit, and in time.
func TestDebounceShrinksWhenCalm(t *testing.T) {
	t.Parallel()
	stormy := func() *debouncer {
		d := newDebouncer(0.25)
		trace(d, time.Second, map[lane][]int{laneEndpoints: every(0, 3000, 100)}, 3000)
		if d.pause(laneEndpoints) != endpointStretch {
			t.Fatalf("pause under load: %v", d.pause(laneEndpoints))
		}
		return d
	}
	d := stormy()
	for range 12 {
		d.commit(d.committed.Add(100*time.Millisecond), 0)
	}
	if d.pause(laneEndpoints) > 5*time.Millisecond {
		t.Errorf("pause after calm commits: %v", d.pause(laneEndpoints))
	}
	d = stormy()
	d.commit(d.committed.Add(time.Hour), 0)
	if d.pause(laneEndpoints) != 0 {
		t.Errorf("pause after an idle hour: %v", d.pause(laneEndpoints))
	}
}
