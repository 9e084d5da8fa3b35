package pushcontext

import (
	"testing"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
)

// A view that differs in nothing that a proxy is sent takes the place of its predecessor without
// anybody being told, and without anything being built again.
func TestQuietViews(t *testing.T) {
	t.Parallel()
	b, v1, specs := start()
	old := v1.Service(specs["a"].key)
	r := &Reader{Cluster: "c1", Namespace: "ns"}
	k := MemoKey{Generator: 1}
	old.Derived().Do(k, func() any { return "built" })
	next := &ServiceView{Shape: old.Shape, Endpoints: old.Endpoints, LeftOut: []model.LeftOut{{Reason: model.ReasonNoPort}}}
	v2, d := b.Commit(Commit{Quiet: []*ServiceView{next}})
	if !d.Empty() || d.To != 2 {
		t.Errorf("delta %+v", d)
	}
	if v2.Service(specs["a"].key) != next || v1.Service(specs["a"].key) != old {
		t.Error("the view is not in its place, or the old snapshot has changed")
	}
	view, rev := v2.View(ViewKey{Kind: ViewService, Host: "a"}, r)
	_, was := v1.View(ViewKey{Kind: ViewService, Host: "a"}, r)
	if view != View(next) || rev != was || next.Revision() != old.Revision() {
		t.Errorf("revision %d, was %d", rev, was)
	}
	if got := next.Derived().Do(k, func() any { return "built again" }); got != "built" {
		t.Errorf("what was built from it: %v", got)
	}
	if v2.Host("b") != v1.Host("b") {
		t.Error("another host changed")
	}
}
