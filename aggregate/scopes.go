package aggregate

import (
	"maps"
	"slices"

	networking "istio.io/api/networking/v1alpha3"
	telemetry "istio.io/api/telemetry/v1alpha1"

	"google.golang.org/protobuf/proto"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/pushcontext"
)

// scopes is what Sidecars and Telemetries say. Immutable.
type scopes struct {
	published *pushcontext.Scopes // nil if there are none
	root      string
	spaces    map[string]*pushcontext.ScopeSpace
	routes    map[*pushcontext.VirtualService]struct{} // of sidecars
	sidecars  map[string]*pushcontext.SidecarRule      // by "namespace/name"
	telemetry map[string]*pushcontext.Telemetry        // by "namespace/name"
	conflicts []pushcontext.Conflict
}

// scopeRows are the objects that are addressed to workloads.
type scopeRows struct{ sidecars, telemetries []row[*model.Config] }

// newScopes reads Sidecars and Telemetries. What says the same as in old keeps its pointer.
func newScopes(rows scopeRows, m *mesh, old *scopes) *scopes {
	if old == nil {
		old = &scopes{}
	}
	out := &scopes{root: m.view.Config.GetRootNamespace(), spaces: map[string]*pushcontext.ScopeSpace{}}
	out.sidecars = sidecarObjects.read(out, rows.sidecars, m.view.ConfigCluster, old.sidecars)
	out.telemetry = telemetryObjects.read(out, rows.telemetries, m.view.ConfigCluster, old.telemetry)
	slices.SortFunc(out.conflicts, compareConflicts)
	return out
}

// bind joins what is said with the VirtualServices of sidecars. It tells the namespaces in which something else may be
// said to workloads than in old.
func (s scopes) bind(rs *routes, old *scopes) (*scopes, []string) {
	if old == nil {
		old = &scopes{}
	}
	var list []*pushcontext.VirtualService
	s.routes = map[*pushcontext.VirtualService]struct{}{}
	for _, v := range rs.all {
		if v.Bound(pushcontext.MeshGateway) {
			list = append(list, v)
			s.routes[v] = struct{}{}
		}
	}
	scoped := s.differs(old)
	switch {
	case len(s.spaces) == 0:
		s.published = nil
	case len(scoped) == 0:
		s.published = old.published
	default:
		s.published = pushcontext.NewScopes(old.published, s.root, s.spaces, list)
	}
	return &s, scoped
}

func (s *scopes) space(namespace string) *pushcontext.ScopeSpace {
	if s.spaces[namespace] == nil {
		s.spaces[namespace] = &pushcontext.ScopeSpace{}
	}
	return s.spaces[namespace]
}

// addressed tells how objects of one kind, of which the spec is an S, are read to an R.
type addressed[S proto.Message, R any] struct {
	kind  string
	make  func(model.Source, S) *R
	parts func(*R) (model.Source, model.Labels, S)
	// place is where those of a namespace are: with a selector, and the one without.
	place func(*pushcontext.ScopeSpace) (selecting *[]*R, all **R)
}

var sidecarObjects = addressed[*networking.Sidecar, pushcontext.SidecarRule]{
	kind: model.ConfigSidecar,
	make: pushcontext.NewSidecarRule,
	parts: func(r *pushcontext.SidecarRule) (model.Source, model.Labels, *networking.Sidecar) {
		return r.Source, r.Selector, r.Spec
	},
	place: func(at *pushcontext.ScopeSpace) (*[]*pushcontext.SidecarRule, **pushcontext.SidecarRule) {
		return &at.Sidecars, &at.Sidecar
	},
}

var telemetryObjects = addressed[*telemetry.Telemetry, pushcontext.Telemetry]{
	kind: model.ConfigTelemetry,
	make: func(source model.Source, spec *telemetry.Telemetry) *pushcontext.Telemetry {
		return &pushcontext.Telemetry{Source: source, Selector: spec.GetSelector().GetMatchLabels(), Spec: spec}
	},
	parts: func(t *pushcontext.Telemetry) (model.Source, model.Labels, *telemetry.Telemetry) {
		return t.Source, t.Selector, t.Spec
	},
	place: func(at *pushcontext.ScopeSpace) (*[]*pushcontext.Telemetry, **pushcontext.Telemetry) {
		return &at.Telemetries, &at.Telemetry
	},
}

// read puts objects where they belong, oldest first, and gives them by name; old are those before.
func (k addressed[S, R]) read(s *scopes, rows []row[*model.Config], config model.ClusterID, old map[string]*R) map[string]*R {
	objects, conflicts := inForce(rows, config)
	s.conflicts = append(s.conflicts, conflicts...)
	out := map[string]*R{}
	for _, c := range objects {
		spec, ok := c.Spec.(S)
		if !ok {
			continue
		}
		name := c.Namespace + "/" + c.Name
		r := k.settle(old[name], c, spec)
		out[name] = r
		source, selector, _ := k.parts(r)
		selecting, all := k.place(s.space(c.Namespace))
		switch {
		case len(selector) > 0:
			for _, o := range *selecting {
				winner, older, _ := k.parts(o)
				s.overlap(k.kind, winner, source, older, selector)
			}
			*selecting = append(*selecting, r)
		case *all != nil:
			winner, _, _ := k.parts(*all)
			s.lost(k.kind, winner, source, "the namespace has one without a selector already: the later one is not used")
		default:
			*all = r
		}
	}
	return out
}

// settle gives the old one if the object says the same.
func (k addressed[S, R]) settle(old *R, c *model.Config, spec S) *R {
	if old != nil {
		if source, _, was := k.parts(old); sameSource(&source, &c.Source) && (any(was) == any(spec) || proto.Equal(was, spec)) {
			return old
		}
	}
	return k.make(c.Source, spec)
}

func (s *scopes) lost(kind string, winner, loser model.Source, why string) {
	s.conflicts = append(s.conflicts, pushcontext.Conflict{Field: kind, Winner: winner, Loser: loser, Detail: why})
}

// overlap notes that all workloads that one object selects, another selects too.
func (s *scopes) overlap(kind string, winner, loser model.Source, older, younger model.Labels) {
	if younger.Matches(older) || older.Matches(younger) {
		s.lost(kind, winner, loser, "both select workloads with "+model.Labels(union(older, younger)).String()+": the later one is not used for these")
	}
}

// differs tells the namespaces in which workloads may have another scope than before.
func (s *scopes) differs(old *scopes) (out []string) {
	if s.root != old.root && len(s.spaces)+len(old.spaces) > 0 {
		return []string{"*"}
	}
	changed := s.reimported(old)
	for namespace, is := range s.spaces {
		if was := old.spaces[namespace]; was == nil || !sameSpace(is, was) || slices.ContainsFunc(changed, imports(is)) {
			out = append(out, s.reach(namespace, is, was, changed))
		}
	}
	for namespace, was := range old.spaces {
		if s.spaces[namespace] == nil {
			out = append(out, s.reach(namespace, nil, was, changed))
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// reach tells whom a changed namespace concerns: all, if what the root namespace says to all has changed.
func (s *scopes) reach(namespace string, is, was *pushcontext.ScopeSpace, changed []*pushcontext.VirtualService) string {
	if namespace != s.root {
		return namespace
	}
	if is == nil || was == nil {
		return "*"
	}
	sidecar := is.Sidecar
	if sidecar != was.Sidecar || is.Telemetry != was.Telemetry || sidecar != nil && slices.ContainsFunc(changed, sidecar.ImportsRoute) {
		return "*"
	}
	return namespace
}

func sameSpace(a, b *pushcontext.ScopeSpace) bool {
	return a.Sidecar == b.Sidecar && a.Telemetry == b.Telemetry && slices.Equal(a.Sidecars, b.Sidecars) && slices.Equal(a.Telemetries, b.Telemetries)
}

// imports tells VirtualServices that some Sidecar of a namespace imports.
func imports(at *pushcontext.ScopeSpace) func(*pushcontext.VirtualService) bool {
	return func(v *pushcontext.VirtualService) bool {
		return at.Sidecar != nil && at.Sidecar.ImportsRoute(v) || slices.ContainsFunc(at.Sidecars, func(r *pushcontext.SidecarRule) bool { return r.ImportsRoute(v) })
	}
}

// reimported gives the VirtualServices that may lead sidecars to other hosts than before, as they are and as they
// were.
func (s *scopes) reimported(old *scopes) (out []*pushcontext.VirtualService) {
	if len(s.sidecars) == 0 {
		return nil
	}
	before := map[string]*pushcontext.VirtualService{}
	for v := range old.routes {
		if _, still := s.routes[v]; !still {
			before[v.Namespace+"/"+v.Source.Object.Name] = v
		}
	}
	for v := range s.routes {
		if _, known := old.routes[v]; known {
			continue
		}
		name := v.Namespace + "/" + v.Source.Object.Name
		was := before[name]
		if was != nil && sameImport(v, was) {
			delete(before, name)
			continue
		}
		out = append(out, v)
	}
	return slices.AppendSeq(out, maps.Values(before))
}

// sameImport reports whether two forms of a VirtualService lead the same sidecars to the same hosts.
func sameImport(a, b *pushcontext.VirtualService) bool {
	return slices.Equal(a.Hosts, b.Hosts) && slices.Equal(a.Destinations, b.Destinations) && a.Export.Equal(b.Export)
}
