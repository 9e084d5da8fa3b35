package pushcontext

import (
	"cmp"
	"iter"
	"slices"
	"strings"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
)

// Delta names what differs between two versions; it may name a little more. Every slice is sorted and
// free of duplicates.
type Delta struct {
	From, To  uint64
	Endpoints []string            // hosts of which only endpoints differ
	Shape     []string            // hosts of which more differs, or that came or went
	Ports     []uint16            // port numbers whose set of services or their shapes differ
	Instances []model.InstanceKey // workload addresses whose targets, locality or network differ
	Scopes    []string            // namespaces in which workloads may have another scope; "*" for all
	Gateways  bool                // some Gateway differs, or what is bound to one
	Names     bool                // some service differs, or an address of an endpoint that is dialed by name
	Mesh      bool                // mesh-wide settings differ: so does every view
	Reasons   []string            // why ("endpoint", "service", "cluster" …), for logs and metrics
}

// Empty reports whether nothing that a proxy can see differs.
func (d *Delta) Empty() bool {
	return !d.Mesh && !d.Gateways && len(d.Endpoints)+len(d.Shape)+len(d.Ports)+len(d.Instances)+len(d.Scopes) == 0
}

// Keys yields the keys of one kind of view that may have changed for the reader. A shape change is
// a service change too; ViewTargets, ViewPeers, ViewGateways, ViewNames, ViewPorts and ViewMesh exist once per
// reader. Which service a reader's peers serve is not known here: any that changed may be it.
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
			if d.Moves(r.Instances) {
				yield(ViewKey{Kind: kind})
			}
		case ViewPeers:
			if len(d.Shape)+len(d.Endpoints) > 0 || d.Moves(r.Instances) {
				yield(ViewKey{Kind: kind})
			}
		case ViewGateways:
			if d.Gateways || d.Mesh {
				yield(ViewKey{Kind: kind})
			}
		case ViewNames:
			if d.Names || d.Mesh {
				yield(ViewKey{Kind: kind})
			}
		case ViewPorts:
			if len(d.Ports) > 0 || d.Mesh {
				yield(ViewKey{Kind: kind})
			}
		case ViewMesh:
			if d.Mesh {
				yield(ViewKey{Kind: kind})
			}
		}
	}
}

// Scoped reports whether workloads of the namespace may have another scope.
func (d *Delta) Scoped(namespace string) bool {
	_, ok := slices.BinarySearch(d.Scopes, namespace)
	return ok || d.Mesh || len(d.Scopes) > 0 && d.Scopes[0] == "*"
}

// Moves reports whether what is known of any of the workload addresses may differ.
func (d *Delta) Moves(keys []model.InstanceKey) bool { return d.Mesh || d.touches(keys) }

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
	out := &Delta{
		From: ds[0].From, To: ds[len(ds)-1].To,
		Mesh:      slices.ContainsFunc(ds, func(d *Delta) bool { return d.Mesh }),
		Gateways:  slices.ContainsFunc(ds, func(d *Delta) bool { return d.Gateways }),
		Names:     slices.ContainsFunc(ds, func(d *Delta) bool { return d.Names }),
		Scopes:    union(ds, strings.Compare, func(d *Delta) []string { return d.Scopes }),
		Endpoints: union(ds, strings.Compare, func(d *Delta) []string { return d.Endpoints }),
		Shape:     union(ds, strings.Compare, func(d *Delta) []string { return d.Shape }),
		Ports:     union(ds, cmp.Compare, func(d *Delta) []uint16 { return d.Ports }),
		Instances: union(ds, model.InstanceKey.Compare, func(d *Delta) []model.InstanceKey { return d.Instances }),
		Reasons:   union(ds, strings.Compare, func(d *Delta) []string { return d.Reasons }),
	}
	out.Endpoints = slices.DeleteFunc(out.Endpoints, func(h string) bool {
		_, ok := slices.BinarySearch(out.Shape, h)
		return ok
	})
	return out
}

func union[T comparable](ds []*Delta, compare func(T, T) int, field func(*Delta) []T) []T {
	var all []T
	for _, d := range ds {
		all = append(all, field(d)...)
	}
	slices.SortFunc(all, compare)
	return slices.Compact(all)
}
