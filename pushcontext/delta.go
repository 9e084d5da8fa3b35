package pushcontext

import (
	"iter"
	"maps"
	"slices"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
)

// Delta names what differs between two versions. Every slice is sorted and free of duplicates.
type Delta struct {
	From, To  uint64
	Endpoints []string            // hosts of which only endpoints differ
	Shape     []string            // hosts of which more differs, or that came or went
	Ports     []uint16            // port numbers whose set of services or their shapes differ
	Instances []model.InstanceKey // workload addresses whose targets differ
	Mesh      bool                // mesh-wide settings differ: so does every view
	Reasons   []string            // why ("endpoint", "service", "cluster" …), for logs and metrics
}

// Empty reports whether nothing that a proxy can see differs.
func (d *Delta) Empty() bool {
	return !d.Mesh && len(d.Endpoints)+len(d.Shape)+len(d.Ports)+len(d.Instances) == 0
}

// EndpointsOnly reports whether an incremental push (EDS alone) covers the delta.
func (d *Delta) EndpointsOnly() bool {
	return !d.Mesh && len(d.Shape)+len(d.Ports)+len(d.Instances) == 0
}

// Keys yields the keys of one kind of view that may have changed for the reader. A shape change is
// a service change too; ViewTargets and ViewMesh exist once per reader.
func (d *Delta) Keys(kind ViewKind, r *Reader) iter.Seq[ViewKey] {
	return func(yield func(ViewKey) bool) {
		switch kind {
		case ViewService:
			_ = hosts(kind, d.Shape, yield) && hosts(kind, d.Endpoints, yield)
		case ViewShape:
			hosts(kind, d.Shape, yield)
		case ViewPort:
			for _, p := range d.Ports {
				if !yield(ViewKey{Kind: kind, Port: p}) {
					return
				}
			}
		case ViewTargets:
			if d.Mesh || d.touches(r.Instances) {
				yield(ViewKey{Kind: kind})
			}
		case ViewMesh:
			if d.Mesh {
				yield(ViewKey{Kind: kind})
			}
		}
	}
}

func (d *Delta) touches(keys []model.InstanceKey) bool {
	for _, k := range keys {
		if _, ok := slices.BinarySearchFunc(d.Instances, k, model.InstanceKey.Compare); ok {
			return true
		}
	}
	return false
}

func hosts(kind ViewKind, names []string, yield func(ViewKey) bool) bool {
	for _, h := range names {
		if !yield(ViewKey{Kind: kind, Host: h}) {
			return false
		}
	}
	return true
}

// merge gives the union of consecutive deltas, oldest first. A host that changed shape in one and
// endpoints in another changed shape.
func merge(ds []*Delta) *Delta {
	if len(ds) == 1 {
		return ds[0]
	}
	out := &Delta{From: ds[0].From, To: ds[len(ds)-1].To}
	endpoints, shape, reasons := map[string]struct{}{}, map[string]struct{}{}, map[string]struct{}{}
	ports, instances := map[uint16]struct{}{}, map[model.InstanceKey]struct{}{}
	for _, d := range ds {
		add(endpoints, d.Endpoints)
		add(shape, d.Shape)
		add(reasons, d.Reasons)
		add(ports, d.Ports)
		add(instances, d.Instances)
		out.Mesh = out.Mesh || d.Mesh
	}
	for h := range shape {
		delete(endpoints, h)
	}
	out.Endpoints, out.Shape = slices.Sorted(maps.Keys(endpoints)), slices.Sorted(maps.Keys(shape))
	out.Reasons, out.Ports = slices.Sorted(maps.Keys(reasons)), slices.Sorted(maps.Keys(ports))
	out.Instances = slices.SortedFunc(maps.Keys(instances), model.InstanceKey.Compare)
	return out
}

func add[T comparable](set map[T]struct{}, xs []T) {
	for _, x := range xs {
		set[x] = struct{}{}
	}
}
