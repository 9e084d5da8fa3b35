package pushcontext

import "testing"

// A view that replaces another remembers what was built from it; one that comes anew does not.
func TestViewsFollowTheirPredecessors(t *testing.T) {
	t.Parallel()
	b, v1, specs := start()
	k := MemoKey{Class: 1}
	a, bs := specs["a"], specs["b"]
	build := func(pc *PushContext, value string) {
		for _, v := range []View{pc.Service(a.key), pc.Service(a.key).Shape, pc.Port(80)} {
			v.Derived().Do(k, func() any { return value })
		}
	}
	build(v1, "one")
	old := v1.Service(a.key)
	v2, _ := put(b, a.view(old.Shape))
	if s := v2.Service(a.key); s.Derived().Before(k) != "one" || v2.SameSince(ViewKey{Kind: ViewService, Host: "a"}, &Reader{}) != 1 {
		t.Error("endpoints changed: the service's value before is lost")
	}
	a.ports = []uint16{80, 81}
	v3, _ := put(b, a.fresh(v1.Mesh))
	if s := v3.Service(a.key); s.Shape.Derived().Before(k) != "one" || v3.Port(80).Derived().Before(k) != "one" || v3.Port(81).Derived().Before(k) != nil {
		t.Error("shape changed: the values before are lost")
	}
	b.Commit(Commit{Services: []Change{{Key: a.key}}})
	v5, _ := put(b, a.fresh(v1.Mesh), bs.fresh(v1.Mesh))
	if s := v5.Service(a.key); s.Derived().Before(k) != nil || s.Shape.Derived().Before(k) != nil || v5.SameSince(ViewKey{Kind: ViewShape, Host: "a"}, &Reader{}) != 5 {
		t.Error("a service that came anew has a predecessor")
	}
}

// What was built before is not kept for ever, even if nobody asks for it again.
func TestViewsForgetTheirPredecessors(t *testing.T) {
	t.Parallel()
	b, v1, specs := start()
	k := MemoKey{Class: 1}
	a := specs["a"]
	v1.Service(a.key).Derived().Do(k, func() any { return "one" })
	v1.Port(80).Derived().Do(k, func() any { return "one" })
	a.ports = []uint16{80, 81}
	pc, _ := put(b, a.fresh(v1.Mesh))
	kept := []*Memo{pc.Service(a.key).Derived(), pc.Port(80).Derived()}
	for i := range keepBefore {
		for _, m := range kept {
			if m.Before(k) != "one" {
				t.Fatalf("forgotten after %d commits", i)
			}
		}
		b.Commit(Commit{})
	}
	for _, m := range kept {
		if m.Before(k) != nil {
			t.Errorf("still kept after %d commits", keepBefore)
		}
	}
}
