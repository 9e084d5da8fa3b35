package lastgood_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/clusters/lastgood"
	"github.com/isthmus-mesh/isthmus/clusters/memory"
)

// runOn starts a registry that is declared as of says, and has something aside.
func (h *hub) runOn(of *string, aside func() []byte) *instance {
	r := memory.New(east)
	in := &instance{Registry: r, h: h, wrapped: h.store.Wrap(r, lastgood.Terms{Restore: true, Of: func() string { return *of }, Aside: aside})}
	in.start()
	return in
}

// TestRowsOfAnotherDeclaration: what was said under one declaration is not served under another, which is told until the truth comes.
func TestRowsOfAnotherDeclaration(t *testing.T) {
	inBubble(t, func(h *hub) {
		one, two := "one", "two"
		in := h.runOn(&one, nil)
		in.Registry.Replace(state("a"))
		h.pass(time.Minute)
		h.restart() // killed, after another declaration was made: nothing is written any more
		edited := h.runOn(&two, nil)
		edited.Registry.Status(model.Status{State: model.StateTimeout, Err: "refused"})
		edited.want("", model.StateTimeout, "refused")
		problems, _ := edited.problems()
		if len(problems) != 1 || problems[0].Item != "state-dir" || !strings.Contains(problems[0].Reason, "what was kept is not served: it is what the registry said as it was declared before") {
			t.Errorf("%+v", problems)
		}
		if _, err := h.store.Kept(east, two); !errors.Is(err, lastgood.ErrOther) {
			t.Error(err)
		}
		if k, err := h.store.Kept(east, one); err != nil || k.Rows.Len() != 1 || k.Aside != nil {
			t.Errorf("%+v %v", k, err)
		}
		edited.Registry.Replace(state("b"))
		edited.Registry.Status(model.Status{State: model.StateLive})
		edited.want("b", model.StateLive, "")
		if problems, _ := edited.problems(); len(problems) > 0 {
			t.Errorf("%+v", problems)
		}
		h.pass(time.Minute)
		edited.stop()
		in.stop()
		h.restart()
		again := h.runOn(&two, nil)
		again.Registry.Status(model.Status{State: model.StateTimeout, Err: "refused"})
		again.want("b", model.StateStale, "refused")
		again.stop()
	})
}

// TestDeclaredLater: what a registry is declared as counts when rows are read and written, not when it is wrapped.
func TestDeclaredLater(t *testing.T) {
	inBubble(t, func(h *hub) {
		of, two := "one", "two"
		in := h.runOn(&of, nil)
		of = two
		in.Registry.Replace(state("a"))
		h.pass(time.Minute)
		in.stop()
		h.restart()
		if _, err := h.store.Kept(east, two); err != nil {
			t.Error(err)
		}
	})
}

// TestWhatIsKeptAside is written when what is held back changes, though rows do not.
func TestWhatIsKeptAside(t *testing.T) {
	inBubble(t, func(h *hub) {
		of, aside := "one", ""
		in := h.runOn(&of, func() []byte { return []byte(aside) })
		in.Registry.Replace(state("a"))
		h.pass(time.Minute)
		kept := func(want string) {
			t.Helper()
			h.pass(11 * time.Second)
			h.restart() // as after a kill
			if k, err := h.store.Kept(east, of); err != nil || string(k.Aside) != want || k.Rows.Len() != 1 {
				t.Errorf("%q, err %v, want %q", k.Aside, err, want)
			}
		}
		kept("")
		live := model.Status{State: model.StateLive, Problems: []model.Problem{{Item: "a", Reason: "it is gone", Held: true}}}
		aside = "a is held"
		in.Registry.Status(live)
		kept("a is held")
		aside = "not told"
		in.Registry.Status(live)
		kept("a is held")
		in.Registry.Status(model.Status{State: model.StateLive})
		kept("not told")
		in.stop()
	})
}
