package pushcontext

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
)

func ip(s string) netip.Addr { return netip.MustParseAddr(s) }

func sameInstance(a, b model.InstanceKey) bool { return a == b }

func ignoreEmpty() cmp.Option {
	return cmp.FilterValues(func(a, b []uint16) bool { return len(a)+len(b) == 0 }, cmp.Ignore())
}

func TestViewOfAReader(t *testing.T) {
	t.Parallel()
	b, _, specs := start()
	hidden := spec{key: key("c2", "ns", "far"), ports: []uint16{80}}
	pc, _ := put(b, hidden.fresh(b.prev.Mesh))
	r := &Reader{Cluster: "c1", Namespace: "ns", Instances: []model.InstanceKey{{Cluster: "c1", IP: ip("10.0.0.1")}}}
	a := pc.Service(specs["a"].key)
	for _, c := range []struct {
		name string
		key  ViewKey
		want View
		rev  uint64
	}{
		{"service", ViewKey{Kind: ViewService, Host: "a"}, a, 1},
		{"shape", ViewKey{Kind: ViewShape, Host: "a"}, a.Shape, 1},
		{"no such service", ViewKey{Kind: ViewService, Host: "x"}, nil, 0},
		{"another member's service", ViewKey{Kind: ViewService, Host: "far"}, nil, 2},
		{"another member's shape", ViewKey{Kind: ViewShape, Host: "far"}, nil, 2},
		{"port", ViewKey{Kind: ViewPort, Port: 443}, pc.Port(443), 1},
		{"no such port", ViewKey{Kind: ViewPort, Port: 1}, nil, 0},
		{"targets", ViewKey{Kind: ViewTargets}, pc.Instance(r.Instances...).Targets, 1},
		{"mesh", ViewKey{Kind: ViewMesh}, pc.Mesh, 1},
		{"no such kind", ViewKey{Kind: 99}, nil, 0},
	} {
		if v, rev := pc.View(c.key, r); v != c.want || rev != c.rev {
			t.Errorf("%s: got %v at %d, want %v at %d", c.name, v, rev, c.want, c.rev)
		}
	}
}

// A reader behind by more than the ring compares revisions. The one that fell back to its second
// address must not miss that the first serves nothing any more.
func TestViewTargetsAfterLosingTheFirstAddress(t *testing.T) {
	t.Parallel()
	b, v1, specs := start()
	r := &Reader{Cluster: "c1", Instances: []model.InstanceKey{{Cluster: "c1", IP: ip("10.0.0.1")}, {Cluster: "c1", IP: ip("10.0.0.2")}}}
	before, seen := v1.View(ViewKey{Kind: ViewTargets}, r)
	v2, d := b.Commit(Commit{Services: []Change{{Key: specs["a"].key}}})
	after, rev := v2.View(ViewKey{Kind: ViewTargets}, r)
	if before == after || rev <= seen {
		t.Errorf("rev %d after %d", rev, seen)
	}
	if n := len(slices.Collect(d.Keys(ViewTargets, r))); n != 1 {
		t.Errorf("the delta concerns %d target views", n)
	}
	v3, d := b.Commit(Commit{Services: []Change{{Key: specs["b"].key}}})
	if v, rev := v3.View(ViewKey{Kind: ViewTargets}, r); v != View(v3.noTargets) || rev != 3 {
		t.Errorf("got %v at %d", v, rev)
	}
	if n := len(slices.Collect(d.Keys(ViewTargets, &Reader{}))); n != 0 {
		t.Errorf("a reader without address is concerned %d times", n)
	}
}

func TestKeys(t *testing.T) {
	t.Parallel()
	_, pc, _ := start()
	for kind, want := range map[ViewKind]int{ViewService: 2, ViewShape: 2, ViewPort: 2, ViewTargets: 1, ViewMesh: 1, 99: 0} {
		keys := slices.Collect(pc.Keys(kind))
		if len(keys) != want {
			t.Errorf("kind %d: %v", kind, keys)
		}
		for _, k := range keys {
			if v, _ := pc.View(k, &Reader{}); k.Kind != kind || v == nil {
				t.Errorf("key %+v of kind %d means nothing", k, kind)
			}
		}
		for range pc.Keys(kind) {
			break
		}
	}
	n := 0
	for s := range pc.Services() {
		if n++; pc.Service(s.Shape.Key) != s {
			t.Errorf("%v", s.Shape.Key)
		}
	}
	for range pc.Services() {
		break
	}
	if n != 2 || pc.Service(key("", "other", "a")) != nil || pc.Service(key("", "ns", "x")) != nil {
		t.Errorf("%d services", n)
	}
}

func TestServicePorts(t *testing.T) {
	t.Parallel()
	s := spec{key: key("", "ns", "a"), ports: []uint16{80}, endpoints: []specEndpoint{{"10.0.0.1", "c1", "", ""}}}
	v := s.fresh(testMesh())
	if len(v.Port("p80")) != 1 || v.Port("x") != nil {
		t.Error("endpoints by port name")
	}
	if p, ok := v.Shape.PortNumbered(80); !ok || p.Name != "p80" {
		t.Error("port 80")
	}
	if _, ok := v.Shape.PortNumbered(81); ok {
		t.Error("port 81")
	}
	if v.Derived() == nil || v.Shape.Derived() == v.Derived() {
		t.Error("each view has a memo of its own")
	}
}
