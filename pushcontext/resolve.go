package pushcontext

import (
	"slices"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
)

// ResolveShape gives the one of several shapes of one host that [HostView.Resolve] gives for the
// reader, nil if none is visible. The order of the shapes does not matter.
func ResolveShape(shapes []*ShapeView, cluster model.ClusterID, namespace string) *ShapeView {
	sorted := slices.SortedFunc(slices.Values(shapes), precedes)
	h := HostView{Services: make([]*ServiceView, len(sorted))}
	for i, s := range sorted {
		h.Services[i] = &ServiceView{Shape: s}
	}
	if v := h.Resolve(cluster, namespace); v != nil {
		return v.Shape
	}
	return nil
}
