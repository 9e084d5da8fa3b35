package xds

import (
	"fmt"
	"testing"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/pushcontext"
	"github.com/isthmus-mesh/isthmus/xds/gen"
)

// worldOf is a snapshot with n hosts.
func worldOf(n int) *pushcontext.PushContext {
	mesh := &pushcontext.MeshView{}
	c := pushcontext.Commit{Mesh: mesh}
	for i := range n {
		k := model.ServiceKey{Namespace: "x", Host: fmt.Sprintf("s%d.x", i)}
		c.Services = append(c.Services, pushcontext.Change{Key: k, View: &pushcontext.ServiceView{
			Shape: &pushcontext.ShapeView{Key: k, Mesh: mesh, Export: pushcontext.Export{Public: true}},
		}})
	}
	pc, _ := pushcontext.NewBuilder().Commit(c)
	return pc
}

func assignmentOf(i int) string { return fmt.Sprintf("outbound|80||s%d.x", i) }

// A table is replaced when half of its names are of what is gone, not because it has grown.
func TestCompactionLooksAtWhatExists(t *testing.T) {
	t.Parallel()
	n := newNameTables(1)
	n.floor = 10
	table := n.join()
	for i := range 100 {
		table.intern(0, gen.Endpoints{}, assignmentOf(i))
	}
	if n.compact(worldOf(100)) {
		t.Error("a table of names in use was replaced")
	}
	for i := range 150 {
		table.intern(0, gen.Endpoints{}, assignmentOf(100+i))
	}
	if n.compact(worldOf(140)) {
		t.Error("a table was replaced although more than half is in use")
	}
	for i := range 100 {
		table.intern(0, gen.Endpoints{}, assignmentOf(250+i))
	}
	if !n.compact(worldOf(140)) {
		t.Error("a table that is mostly dead was kept")
	}
	n.left(table)
}

func TestMovedNamesKeepTheirMeaning(t *testing.T) {
	t.Parallel()
	from, to := newNames(1, 1), newNames(2, 1)
	for i := range 20 {
		from.intern(0, gen.Endpoints{}, assignmentOf(i))
	}
	from.replace(to)
	late := from.intern(0, gen.Endpoints{}, "outbound|80||late.x")
	for range 2 { // worked out, then remembered
		for _, id := range []uint32{7, 3, 19, late} {
			if got := to.name(from.moved(id, to, 0, gen.Endpoints{})); got != from.name(id) {
				t.Errorf("%q became %q", from.name(id), got)
			}
		}
	}
	if to.size() != 4 {
		t.Errorf("%d names moved, want 4", to.size())
	}
}
