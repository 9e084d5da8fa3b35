package registries_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/secrets"
)

// history is a random life of some registries: declared well, badly, with and without Secrets that come and go.
type history struct {
	*world
	r        *rand.Rand
	declared map[string]string // addresses by name
	served   map[string]bool   // has been served since it was declared: that must not end
	secret   bool              // the Secret is there
}

var names = []string{"a", "b", "c"}

func (h *history) step() {
	switch name := names[h.r.IntN(len(names))]; h.r.IntN(6) {
	case 0:
		delete(h.declared, name)
		delete(h.served, name)
	case 1:
		h.Secret("s", secrets.Secret{})
	case 2:
		h.Secret("s", token(fmt.Sprint(h.r.IntN(3))))
		h.secret = true
	case 3:
		h.Secret("s", secrets.Secret{Err: "forbidden"})
	default:
		h.declared[name] = fmt.Sprintf("%s%d:1", []string{"good", "good", "dead", "bad", "odd"}[h.r.IntN(5)], h.r.IntN(3))
	}
	var rows []*model.Config
	for name, address := range h.declared {
		more := ""
		if name == "a" {
			more = ", credentials: {secretName: s}"
		}
		rows = append(rows, registry(h.t, name, address, more))
	}
	h.declare(rows...)
}

// check compares with what must hold whatever happened.
func (h *history) check() {
	h.t.Helper()
	running := map[model.ShardKey]int{}
	for _, s := range h.made {
		running[s.Key()] += s.Running()
	}
	got := hosts(h.hub.Current())
	for _, name := range names {
		if n := running[key(name)]; n > 2 || n > 0 && h.declared[name] == "" {
			h.t.Fatalf("%d instances of %s run, which is declared with %q", n, name, h.declared[name])
		}
		is := slices.Contains(got, name+".consul")
		if h.served[name] && !is {
			h.t.Fatalf("%s is served no more, which is declared with %q", name, h.declared[name])
		}
		if h.declared[name] == "" && is {
			h.t.Fatalf("%s is served, which is not declared", name)
		}
		h.served[name] = is
	}
	if len(h.List()) != len(h.declared) {
		h.t.Fatalf("%d are listed, of %d", len(h.List()), len(h.declared))
	}
}

// TestRandomRegistries: whatever is declared in whatever order, what works goes on working for as long as it is declared, what is declared no
// more goes, and in the end everything is as it was declared last.
func TestRandomRegistries(t *testing.T) {
	for seed := range uint64(20) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			inWorld(t, func(w *world) {
				h := &history{world: w, r: rand.New(rand.NewPCG(seed, 1)), declared: map[string]string{}, served: map[string]bool{}}
				w.declare()
				for range 60 {
					h.step()
					h.check()
				}
				h.Secret("s", token("last"))
				var rows []*model.Config
				for _, name := range names {
					h.declared[name] = "good:9"
					more := ""
					if name == "a" {
						more = ", credentials: {secretName: s}"
					}
					rows = append(rows, registry(t, name, "good:9", more))
				}
				h.declare(rows...)
				h.Secret("s", token("last"))
				h.want("a.consul", "b.consul", "c.consul")
				for _, name := range names {
					if s := h.of(name); s.Running() != 1 || s.plan.Spec.Addresses[0] != "good:9" {
						t.Errorf("%s runs %d times, with %v", name, s.Running(), s.plan.Spec.Addresses)
					}
					h.wantState(key(name), "live")
				}
				if n := h.running(); n != len(names) {
					t.Errorf("%d run", n)
				}
			})
		})
	}
}
