package holdback

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	api "github.com/isthmus-mesh/isthmus/api/v1alpha1"
)

// Held is what a registry holds back. The zero value is nothing.
type Held struct {
	Count int // services, and rows of configuration
	by    *gate
}

// Problems tells of each item that is held now, by the item, however many they are. Of what rows with certain keys are only, if some are
// given: one that is not held has none. A status has as many of them as it may.
func (h Held) Problems(of ...string) []model.Problem {
	if h.by == nil {
		return nil
	}
	list := h.by.copies(of)
	slices.SortFunc(list, func(a, b copied) int { return compareRows(a.row, b.row) })
	out := make([]model.Problem, len(list))
	for i := range list {
		out[i] = list[i].problem(list[i].row, h.by.opts.Policy.Mode)
	}
	return out
}

// copied is something held as it was when somebody asked.
type copied struct {
	held
	row model.RowKey
}

// copies gives what is held and told, of the rows with the keys given or all.
func (g *gate) copies(of []string) (out []copied) {
	g.mu.Lock()
	defer g.mu.Unlock()
	add := func(row model.RowKey, h *held) {
		if h != nil && h.told() {
			out = append(out, copied{*h, row})
		}
	}
	if len(of) == 0 {
		for row, h := range g.held {
			add(row, h)
		}
	}
	for _, key := range of {
		for kind := range model.RowKinds {
			row := model.RowKey{Kind: kind, Key: key}
			add(row, g.held[row])
		}
	}
	return out
}

func compareRows(a, b model.RowKey) int {
	return cmp.Or(strings.Compare(a.Key, b.Key), cmp.Compare(a.Kind, b.Kind))
}

// told reports whether it is more than a removal that waits a moment to be judged with others.
func (h *held) told() bool { return h.decided || h.doubted }

// tell reports now, or as soon as it may; it is called with mu held.
func (g *gate) tell() {
	if g.report(); g.late {
		g.wakeAt(g.quiet)
	}
}

// report gives the status with what is held back, if that is news, unless it is too early for that; it is called with mu held.
func (g *gate) report() {
	now := time.Now()
	if g.late = now.Before(g.quiet); g.late {
		return
	}
	g.quiet = now.Add(g.pace())
	problems, count := g.problems()
	if g.status.State == "" || count == g.count && slices.Equal(problems, g.reported) {
		return
	}
	g.reported, g.count = problems, count
	if !g.opts.Before.replaced(g) { // the next one tells it
		g.opts.Held(Held{count, g})
	}
	g.pass()
}

// problems names what is held, as much of it as a status may, and says how much it is.
func (g *gate) problems() (out []model.Problem, count int) {
	g.looks++
	var rows []model.RowKey
	for row, h := range g.held {
		if h.told() {
			rows = append(rows, row)
		}
	}
	slices.SortFunc(rows, compareRows)
	named := min(len(rows), maxProblems)
	for _, row := range rows[:named] {
		out = append(out, g.held[row].problem(row, g.opts.Policy.Mode))
	}
	if more := len(rows) - named; more > 0 {
		out = append(out, model.Problem{Reason: fmt.Sprintf("%d more are held back", more), Held: true, More: more})
	}
	return out, len(rows)
}

// pace is how long to wait before all that is held is looked through again.
func (g *gate) pace() time.Duration { return time.Duration(max(0, len(g.held)-few)) * perHeld }

// pass gives the registry's status with what is held.
func (g *gate) pass() {
	s := g.status
	s.Problems = slices.Concat(s.Problems, g.reported)
	g.out.Status(s)
}

func (h *held) problem(row model.RowKey, mode api.EmptyMode) model.Problem {
	return model.Problem{Item: row.Key, Reason: h.why(mode) + ", until " + h.due.UTC().Format(time.RFC3339), Since: h.since, Held: true}
}

// why is the sentence for people.
func (h *held) why(mode api.EmptyMode) string {
	if h.row != nil {
		return fmt.Sprintf("the registry says that it is gone%s: it is held by the policy %s", h.because, mode)
	}
	has := 0
	if h.now != nil {
		has = len(h.now.Endpoints)
	}
	return fmt.Sprintf("the registry says that of its %d endpoints %d are left%s: the others are held by the policy %s",
		len(h.had.Endpoints), has, h.because, mode)
}
