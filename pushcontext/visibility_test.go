package pushcontext

import (
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
)

// Incident 92: one rule for exportTo, its default, and lists of both.
func TestNewExport(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name           string
		exportTo, mesh []string
		want           Export
	}{
		{"nothing said", nil, nil, Export{Public: true}},
		{"star", []string{"*"}, []string{"."}, Export{Public: true}},
		{"own", []string{"."}, nil, Export{Namespaces: []string{"own"}}},
		{"none", []string{"~"}, nil, Export{}},
		{"none beside own", []string{"~", "."}, nil, Export{Namespaces: []string{"own"}}},
		{"star beside others", []string{"a", "*"}, nil, Export{Public: true}},
		{"list", []string{"b", "a", "b", "."}, nil, Export{Namespaces: []string{"a", "b", "own"}}},
		{"mesh default own", nil, []string{"."}, Export{Namespaces: []string{"own"}}},
		{"mesh default list", nil, []string{".", "ns2"}, Export{Namespaces: []string{"ns2", "own"}}},
		{"mesh default none", nil, []string{"~"}, Export{}},
		{"object over default", []string{"a"}, []string{"*"}, Export{Namespaces: []string{"a"}}},
		{"spaces", []string{" a ", ""}, nil, Export{Namespaces: []string{"a"}}},
	} {
		if got := NewExport(c.exportTo, c.mesh, "own"); !got.Equal(c.want) {
			t.Errorf("%s: got %+v, want %+v", c.name, got, c.want)
		}
	}
}

func TestExportIncludes(t *testing.T) {
	t.Parallel()
	list := Export{Namespaces: []string{"a", "c"}}
	for _, c := range []struct {
		e    Export
		ns   string
		want bool
	}{
		{Export{Public: true}, "x", true}, {Export{}, "x", false}, {Export{}, "", false},
		{list, "a", true}, {list, "b", false}, {list, "c", true},
	} {
		if got := c.e.Includes(c.ns); got != c.want {
			t.Errorf("%+v includes %q: %v", c.e, c.ns, got)
		}
	}
	if list.Equal(Export{Namespaces: []string{"a"}}) || list.Equal(Export{Public: true}) {
		t.Error("unequal exports are equal")
	}
}

func TestVisible(t *testing.T) {
	t.Parallel()
	public := Export{Public: true}
	for _, c := range []struct {
		name   string
		key    model.ServiceKey
		export Export
		want   bool
	}{
		{"mesh-wide", model.ServiceKey{}, public, true},
		{"own member", model.ServiceKey{Cluster: "c1"}, public, true},
		{"other member", model.ServiceKey{Cluster: "c2"}, public, false},
		{"hidden", model.ServiceKey{}, Export{}, false},
		{"own member, hidden", model.ServiceKey{Cluster: "c1"}, Export{}, false},
		{"exported to us", model.ServiceKey{}, Export{Namespaces: []string{"ns"}}, true},
	} {
		s := &ShapeView{Key: c.key, Export: c.export}
		if got := s.Visible("c1", "ns"); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}

func TestResolve(t *testing.T) {
	t.Parallel()
	at := func(day int) time.Time { return time.Date(2026, 1, day, 0, 0, 0, 0, time.UTC) }
	svc := func(cluster model.ClusterID, ns string, native bool, day int, export ...string) *ServiceView {
		return &ServiceView{Shape: &ShapeView{
			Key: model.ServiceKey{Cluster: cluster, Namespace: ns, Host: "h"}, Native: native, Created: at(day),
			Export: NewExport(export, nil, ns),
		}}
	}
	for _, c := range []struct {
		name     string
		services []*ServiceView
		want     int // index into services, -1 for none
	}{
		{"none", nil, -1},
		{"hidden", []*ServiceView{svc("", "a", true, 1, "~")}, -1},
		{"other member's", []*ServiceView{svc("c2", "a", true, 1)}, -1},
		{"older", []*ServiceView{svc("", "a", false, 2), svc("", "b", false, 1)}, 1},
		{"native before older", []*ServiceView{svc("", "a", false, 1), svc("", "b", true, 2)}, 1},
		{"equal age: by key", []*ServiceView{svc("", "b", true, 1), svc("", "a", true, 1)}, 1},
		{"own namespace before older", []*ServiceView{svc("", "a", false, 1), svc("", "mine", false, 2)}, 1},
		{"own namespace before native", []*ServiceView{svc("", "a", true, 1), svc("", "mine", false, 2)}, 1},
		{"own member before own namespace", []*ServiceView{svc("", "mine", true, 1), svc("c1", "a", true, 2)}, 1},
		{"own member and namespace", []*ServiceView{svc("c1", "a", true, 1), svc("c1", "mine", true, 2)}, 1},
		{"other member's is skipped", []*ServiceView{svc("c2", "mine", true, 1), svc("", "a", false, 2)}, 1},
		{"hidden is skipped", []*ServiceView{svc("", "a", true, 1, "."), svc("", "b", false, 2)}, 1},
	} {
		b := NewBuilder()
		changes := make([]Change, len(c.services))
		for i, s := range c.services {
			changes[i] = Change{s.Shape.Key, s}
		}
		pc, _ := b.Commit(Commit{Services: changes, Mesh: testMesh()})
		var want *ServiceView
		if c.want >= 0 {
			want = c.services[c.want]
		}
		if got := pc.Host("h").Resolve(&Reader{Cluster: "c1", Namespace: "mine"}); got != want {
			t.Errorf("%s: got %v", c.name, got)
		}
	}
}
