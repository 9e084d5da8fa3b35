package pushcontext

import (
	"fmt"
	"testing"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
)

func placed(addr, by, locality, network string) Place {
	return Place{Instance: model.InstanceKey{Cluster: "c1", IP: ip(addr)}, By: by, Locality: model.ParseLocality(locality), Network: network}
}

func gone(addr, by string) Place {
	p := placed(addr, by, "", "")
	p.Gone = true
	return p
}

func instanceText(i *InstanceView) string {
	if i == nil {
		return "unknown"
	}
	return fmt.Sprintf("%s %s serves %d", i.Locality, i.Network, len(i.Targets.Targets))
}

// A workload's place is known whether it serves anything or not, and whatever else has its address.
func TestPlaces(t *testing.T) {
	t.Parallel()
	svc := spec{key: key("", "ns", "a"), ports: []uint16{80}, endpoints: []specEndpoint{{"10.0.0.1", "c1", "r/z9", "n9"}}}
	b := NewBuilder()
	pc, _ := b.Commit(Commit{Mesh: testMesh(), Places: []Place{placed("10.0.0.1", "pod", "r/z1", "n1")}})
	at := model.InstanceKey{Cluster: "c1", IP: ip("10.0.0.1")}
	for i, step := range []struct {
		name   string
		commit func() Commit
		want   string
		moved  bool
	}{
		{"the same again", func() Commit { return Commit{Places: []Place{placed("10.0.0.1", "pod", "r/z1", "n1")}} }, "r/z1 n1 serves 0", false},
		{"another zone", func() Commit { return Commit{Places: []Place{placed("10.0.0.1", "pod", "r/z2", "n1")}} }, "r/z2 n1 serves 0", true},
		{"a service has the word", func() Commit { return Commit{Services: []Change{{svc.key, svc.fresh(pc.Mesh)}}} }, "r/z9 n9 serves 1", true},
		{"moved behind it", func() Commit { return Commit{Places: []Place{placed("10.0.0.1", "pod", "r/z3", "n1")}} }, "r/z9 n9 serves 1", true},
		{"the service goes", func() Commit { return Commit{Services: []Change{{Key: svc.key}}} }, "r/z3 n1 serves 0", true},
		{"a second workload", func() Commit { return Commit{Places: []Place{placed("10.0.0.1", "a pod", "r/z4", "n1")}} }, "r/z4 n1 serves 0", true},
		{"the second goes", func() Commit { return Commit{Places: []Place{gone("10.0.0.1", "a pod")}} }, "r/z3 n1 serves 0", true},
		{"one goes that never came", func() Commit { return Commit{Places: []Place{gone("10.0.0.1", "x"), gone("10.0.0.7", "x")}} }, "r/z3 n1 serves 0", false},
		{"the first goes", func() Commit { return Commit{Places: []Place{gone("10.0.0.1", "pod")}} }, "unknown", true},
	} {
		c := step.commit()
		for _, p := range c.Places {
			if pc.Has(&p) == step.moved {
				t.Errorf("%d %s: Has gives %v", i, step.name, !step.moved)
			}
		}
		var d *Delta
		pc, d = b.Commit(c)
		if got := instanceText(pc.Instance(at)); got != step.want || len(d.Instances) == 1 != step.moved {
			t.Errorf("%d %s: %s, delta %v; want %s, moved %v", i, step.name, got, d.Instances, step.want, step.moved)
		}
	}
}

// New settings come with every place; one that does not come again is gone.
func TestPlacesUnderNewSettings(t *testing.T) {
	t.Parallel()
	b := NewBuilder()
	b.Commit(Commit{Mesh: testMesh(), Places: []Place{placed("10.0.0.1", "a", "r/z1", ""), placed("10.0.0.2", "b", "r/z1", "")}})
	pc, d := b.Commit(Commit{Mesh: testMesh(), Places: []Place{placed("10.0.0.1", "a", "r/z1", "n2")}})
	one, two := pc.Instance(model.InstanceKey{Cluster: "c1", IP: ip("10.0.0.1")}), pc.Instance(model.InstanceKey{Cluster: "c1", IP: ip("10.0.0.2")})
	if instanceText(one) != "r/z1 n2 serves 0" || two != nil || len(d.Instances) != 2 {
		t.Errorf("%s, %s, delta %v", instanceText(one), instanceText(two), d.Instances)
	}
}

// Of a proxy's addresses, one that serves something counts before one that only is somewhere, and what
// the proxy serves never seems older than it is.
func TestPlaceDoesNotHideTargets(t *testing.T) {
	t.Parallel()
	svc := spec{key: key("", "ns", "a"), ports: []uint16{80}, endpoints: []specEndpoint{{"10.0.0.2", "c1", "r/z2", ""}}}
	b := NewBuilder()
	pc, _ := b.Commit(Commit{Mesh: testMesh(), Places: []Place{placed("10.0.0.1", "pod", "r/z1", "")}})
	both := &Reader{Cluster: "c1", Instances: []model.InstanceKey{{Cluster: "c1", IP: ip("10.0.0.1")}, {Cluster: "c1", IP: ip("10.0.0.2")}}}
	first := &Reader{Cluster: "c1", Instances: both.Instances[:1]}
	check := func(r *Reader, want string, rev uint64) {
		t.Helper()
		v, got := pc.View(ViewKey{Kind: ViewTargets}, r)
		if instanceText(pc.Instance(r.Instances...)) != want || got != rev || v == nil {
			t.Errorf("%s at %d, want %s at %d", instanceText(pc.Instance(r.Instances...)), got, want, rev)
		}
	}
	check(first, "r/z1  serves 0", 1)
	pc, _ = put(b, svc.fresh(pc.Mesh))
	check(both, "r/z2  serves 1", 2)
	check(first, "r/z1  serves 0", 1)
	pc, _ = b.Commit(Commit{Services: []Change{{Key: svc.key}}})
	check(both, "r/z1  serves 0", 3)
	check(first, "r/z1  serves 0", 1)
}
