package pushcontext

import (
	"cmp"
	"slices"
	"strings"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
)

// Export says which namespaces may resolve a service: exportTo with "." and defaults resolved.
type Export struct {
	Public     bool
	Namespaces []string // sorted; used when not Public. Empty = nobody ("~")
}

// NewExport resolves an exportTo list of an object in a namespace. An empty list takes the mesh's
// default; an empty default is public.
func NewExport(exportTo, meshDefault []string, namespace string) Export {
	if len(exportTo) == 0 {
		exportTo = meshDefault
	}
	if len(exportTo) == 0 {
		return Export{Public: true}
	}
	var e Export
	for _, x := range exportTo {
		switch x = strings.TrimSpace(x); x {
		case "*":
			return Export{Public: true}
		case "~", "":
		case ".":
			e.Namespaces = append(e.Namespaces, namespace)
		default:
			e.Namespaces = append(e.Namespaces, x)
		}
	}
	slices.Sort(e.Namespaces)
	e.Namespaces = slices.Compact(e.Namespaces)
	return e
}

// Includes reports whether the namespace may resolve the service.
func (e Export) Includes(namespace string) bool {
	if e.Public {
		return true
	}
	_, ok := slices.BinarySearch(e.Namespaces, namespace)
	return ok
}

// Equal reports whether both admit the same namespaces.
func (e Export) Equal(o Export) bool {
	return e.Public == o.Public && slices.Equal(e.Namespaces, o.Namespaces)
}

// Visible is the one visibility rule: it decides for clusters, endpoints, listeners and routes alike
// whether a proxy of a cluster and namespace may use the service.
func (s *ShapeView) Visible(cluster model.ClusterID, namespace string) bool {
	return (s.Key.Cluster == "" || s.Key.Cluster == cluster) && s.Export.Includes(namespace)
}

// precedes orders services that share a host: services known to one member before mesh-wide ones,
// native ones before ServiceEntries, then older ones, then by key.
func precedes(a, b *ShapeView) int {
	return cmp.Or(
		-boolCompare(a.Key.Cluster != "", b.Key.Cluster != ""),
		-boolCompare(a.Native, b.Native),
		model.Older(a.Created, b.Created),
		a.Key.Compare(b.Key),
	)
}

// sameRank reports whether a service takes part in resolving its host as another form of it does.
func sameRank(a, b *ShapeView) bool {
	return a.Native == b.Native && a.Created.Equal(b.Created) && a.Export.Equal(b.Export)
}

func boolCompare(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	}
	return -1
}

// Sees reports whether a reader may use the service and has it imported.
func (r *Reader) Sees(s *ShapeView) bool {
	return s.Visible(r.Cluster, r.Namespace) && r.Scope.Imports(s)
}

// Resolve gives the service that the host means to a reader: one that it sees; among these one that its Sidecar
// names before one that only routes lead to, one of its own member before mesh-wide ones, of these one of its own
// namespace before others, then by precedence. Nil if it sees none.
func (h *HostView) Resolve(r *Reader) *ServiceView {
	if h == nil {
		return nil
	}
	w := winner{reader: r}
	var found *ServiceView
	for _, s := range h.Services {
		if w.beats(s.Shape) {
			found = s
		}
	}
	return found
}

// winner is the best for a reader of the services that it was shown, by precedence.
type winner struct {
	reader *Reader
	shape  *ShapeView
	named  bool // by the reader's Sidecar
}

// beats reports whether the next service is better than all before.
func (w *winner) beats(s *ShapeView) bool {
	r := w.reader
	if !s.Visible(r.Cluster, r.Namespace) {
		return false
	}
	imported, named := r.Scope.imports(s)
	switch {
	case !imported, w.named && !named:
		return false
	case w.shape == nil, named && !w.named:
	case s.Key.Namespace != r.Namespace || w.shape.Key.Namespace == r.Namespace || s.Key.Cluster != w.shape.Key.Cluster:
		return false
	}
	w.shape, w.named = s, named
	return true
}

// Covers reports whether all that o admits are admitted.
func (e Export) Covers(o Export) bool {
	return e.Public || !o.Public && !slices.ContainsFunc(o.Namespaces, func(n string) bool { return !e.Includes(n) })
}
