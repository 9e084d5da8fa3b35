package aggregate

import (
	"maps"
	"slices"
	"time"

	security "istio.io/api/security/v1beta1"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/pushcontext"
)

// auth is what PeerAuthentications demand of inbound connections. Immutable.
type auth struct {
	mesh      demand
	spaces    map[string]*authSpace // namespaces with policies of their own
	conflicts []pushcontext.Conflict
}

type authSpace struct {
	mode      demand
	workloads []authWorkload // oldest first
}

// authWorkload is a policy with a selector.
type authWorkload struct {
	selector model.Labels
	mode     demand
	ports    map[uint32]*demand // by workload port
}

// demand is a mode, or none: then that of the next wider policy holds.
type demand struct {
	set  bool
	mode model.MTLS
	by   model.Source // who says so, at whatever revision
}

func (d *demand) or(wider *demand) *demand {
	if d != nil && d.set {
		return d
	}
	return wider
}

// source is who says so, nil if nobody does.
func (d *demand) source() *model.Source {
	if d.set {
		return &d.by
	}
	return nil
}

func demandOf(m *security.PeerAuthentication_MutualTLS, from model.Source) demand {
	from.Revision, from.Time = "", time.Time{}
	switch m.GetMode() {
	case security.PeerAuthentication_MutualTLS_DISABLE:
		return demand{true, model.MTLSDisabled, from}
	case security.PeerAuthentication_MutualTLS_PERMISSIVE:
		return demand{true, model.MTLSPermissive, from}
	case security.PeerAuthentication_MutualTLS_STRICT:
		return demand{true, model.MTLSStrict, from}
	}
	return demand{}
}

// newAuth reads PeerAuthentications. Without selector, one of the root namespace holds in the whole mesh
// and any other in its namespace; with one, for the workloads of its namespace. Of several for the same the
// oldest counts. One with a selector in the root namespace has no effect, as with Istio.
func newAuth(rows []row[*model.Config], m *mesh) *auth {
	objects, conflicts := inForce(rows, m.view.ConfigCluster)
	out := &auth{spaces: map[string]*authSpace{}, conflicts: conflicts}
	root, whole := m.view.Config.GetRootNamespace(), map[string]bool{}
	for _, c := range objects {
		spec, ok := c.Spec.(*security.PeerAuthentication)
		selector := spec.GetSelector().GetMatchLabels()
		switch {
		case !ok || len(selector) == 0 && whole[c.Namespace] || len(selector) > 0 && c.Namespace == root:
		case c.Namespace == root:
			whole[root] = true
			out.mesh = demandOf(spec.Mtls, c.Source)
		case len(selector) == 0:
			whole[c.Namespace] = true
			out.space(c.Namespace).mode = demandOf(spec.Mtls, c.Source)
		default:
			w := authWorkload{selector: selector, mode: demandOf(spec.Mtls, c.Source), ports: map[uint32]*demand{}}
			for port, mode := range spec.PortLevelMtls {
				d := demandOf(mode, c.Source)
				w.ports[port] = &d
			}
			s := out.space(c.Namespace)
			s.workloads = append(s.workloads, w)
		}
	}
	return out
}

func (a *auth) space(namespace string) *authSpace {
	s := a.spaces[namespace]
	if s == nil {
		s = &authSpace{}
		a.spaces[namespace] = s
	}
	return s
}

// demands gives what is demanded of connections to a workload port. The namespace is that of a service, and so of
// its workloads.
func (a *auth) demands(namespace string, labels model.Labels, port uint16) *demand {
	s := a.spaces[namespace]
	if s == nil {
		return &a.mesh
	}
	mode := s.mode.or(&a.mesh)
	for i := range s.workloads {
		if w := &s.workloads[i]; labels.Matches(w.selector) {
			return w.ports[uint32(port)].or(w.mode.or(mode))
		}
	}
	return mode
}

// differs tells the namespaces in which something else may be demanded than before.
func (a *auth) differs(old *auth) func(namespace string) bool {
	if old == nil || a.mesh != old.mesh {
		return func(string) bool { return true }
	}
	return func(namespace string) bool {
		x, y := a.spaces[namespace], old.spaces[namespace]
		if x == nil || y == nil {
			return x != y
		}
		return x.mode != y.mode || !slices.EqualFunc(x.workloads, y.workloads, sameAuthWorkload)
	}
}

func sameAuthWorkload(a, b authWorkload) bool {
	return a.mode == b.mode && a.selector.Equal(b.selector) && maps.EqualFunc(a.ports, b.ports, func(x, y *demand) bool { return *x == *y })
}
