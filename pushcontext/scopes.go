package pushcontext

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"weak"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
)

// Scopes is all that Sidecars and Telemetries say, and to whom. It is immutable.
type Scopes struct {
	root   *ScopeSpace // of the root namespace, which holds where a namespace has none of its own; may be nil
	spaces map[string]*ScopeSpace
	routes []*VirtualService // of sidecars, oldest first
	names  *scopeNames
	lazy   lazySidecars
}

// ScopeSpace is what the objects of one namespace say. Of each list, the first that selects a workload counts.
type ScopeSpace struct {
	Sidecars    []*SidecarRule // with a selector, oldest first
	Sidecar     *SidecarRule   // without; nil if there is none
	Telemetries []*Telemetry   // with a selector, oldest first
	Telemetry   *Telemetry     // without; nil if there is none
}

// SidecarRule is a Sidecar before it is known for which namespace it is to hold.
type SidecarRule struct {
	Source   model.Source
	Selector model.Labels
	Spec     *networking.Sidecar
	Egress   []Egress // as in Sidecar, but for imports of the workload's own namespace, which is "."
	own      bool     // some import is of the workload's own namespace
}

// NewSidecarRule reads a Sidecar.
func NewSidecarRule(source model.Source, spec *networking.Sidecar) *SidecarRule {
	r := &SidecarRule{Source: source, Selector: spec.GetWorkloadSelector().GetLabels(), Spec: spec}
	for _, e := range spec.GetEgress() {
		out := Egress{Port: e.GetPort(), Bind: e.GetBind(), Capture: e.GetCaptureMode()}
		for _, h := range e.GetHosts() {
			namespace, host, ok := strings.Cut(h, "/")
			if !ok || host == "" {
				continue
			}
			namespace, excluded := strings.CutPrefix(namespace, "~")
			list := &out.Imports
			if excluded {
				if list = &out.Excludes; namespace == "" {
					namespace = "*"
				}
			}
			*list = append(*list, Import{namespace, strings.ToLower(host)})
			r.own = r.own || namespace == "."
		}
		r.Egress = append(r.Egress, out)
	}
	if len(r.Egress) == 0 {
		r.Egress = []Egress{{Imports: []Import{{"*", "*"}}}}
	}
	return r
}

// in gives the egress listeners for workloads of a namespace.
func (r *SidecarRule) in(namespace string) []Egress {
	if !r.own {
		return r.Egress
	}
	out := slices.Clone(r.Egress)
	for i := range out {
		out[i].Imports, out[i].Excludes = importsIn(out[i].Imports, namespace), importsIn(out[i].Excludes, namespace)
	}
	return out
}

// importsIn gives imports with the workload's own namespace by name.
func importsIn(list []Import, namespace string) []Import {
	list = slices.Clone(list)
	for i := range list {
		if list[i].Namespace == "." {
			list[i].Namespace = namespace
		}
	}
	return list
}

// ImportsRoute reports whether workloads of some namespace import a VirtualService by the rule.
func (r *SidecarRule) ImportsRoute(v *VirtualService) bool {
	for _, e := range r.in(v.Namespace) {
		if e.AdmitsRoute(v) {
			return true
		}
	}
	return false
}

// scopeNames has the scopes and sidecars that somebody holds, by content, so that equal ones are one: over all
// snapshots, since whoever holds one compares it with that of the next.
type scopeNames struct {
	sidecars interned[sidecarKey, Sidecar]
	scopes   interned[scopeKey, Scope]
}

type sidecarKey struct {
	rule         *SidecarRule
	namespace    string // if it matters
	destinations string
}

type scopeKey struct {
	sidecar   *Sidecar
	telemetry [3]*Telemetry
}

// lazySidecars are those that were worked out for a snapshot.
type lazySidecars struct{ known sync.Map } // lazyKey to *Sidecar

type lazyKey struct {
	rule      *SidecarRule
	namespace string
}

// NewScopes makes the successor of old, which may be nil. The root namespace's objects without selector hold in
// every namespace. Routes are the VirtualServices of sidecars, oldest first.
func NewScopes(old *Scopes, root string, spaces map[string]*ScopeSpace, routes []*VirtualService) *Scopes {
	s := &Scopes{root: spaces[root], spaces: spaces, routes: routes}
	if old != nil {
		s.names = old.names
	} else {
		s.names = &scopeNames{}
	}
	return s
}

// Of gives what is said to a workload; nil for nothing.
func (s *Scopes) Of(k ScopeKey) *Scope {
	if s == nil {
		return nil
	}
	own := s.spaces[k.Namespace]
	if own == nil && s.root == nil {
		return nil
	}
	var key scopeKey
	if r := s.rule(own, k.Labels); r != nil && !k.Router {
		key.sidecar = s.sidecar(r, k.Namespace)
	}
	key.telemetry = s.telemetry(own, k.Labels)
	if key == (scopeKey{}) {
		return nil
	}
	if known := s.names.scopes.get(key); known != nil {
		return known
	}
	all := slices.DeleteFunc(slices.Clone(key.telemetry[:]), func(t *Telemetry) bool { return t == nil })
	return s.names.scopes.put(key, &Scope{Sidecar: key.sidecar, Telemetry: all})
}

// rule gives the Sidecar in force: the oldest that selects the workload, else that of its namespace, else that of
// the root namespace (Sidecar precedence of the Istio traffic API).
func (s *Scopes) rule(own *ScopeSpace, labels model.Labels) *SidecarRule {
	if own != nil {
		for _, r := range own.Sidecars {
			if labels.Matches(r.Selector) {
				return r
			}
		}
		if own.Sidecar != nil {
			return own.Sidecar
		}
	}
	if s.root != nil {
		return s.root.Sidecar
	}
	return nil
}

// telemetry gives what holds for a workload, each adding to or replacing those before it: that of the root
// namespace, of its own, and the oldest that selects it (Telemetry hierarchy of the Istio API).
func (s *Scopes) telemetry(own *ScopeSpace, labels model.Labels) (out [3]*Telemetry) {
	if s.root != nil {
		out[0] = s.root.Telemetry
	}
	if own == nil {
		return out
	}
	if own != s.root {
		out[1] = own.Telemetry
	}
	for _, t := range own.Telemetries {
		if labels.Matches(t.Selector) {
			out[2] = t
			break
		}
	}
	return out
}

// sidecar gives what a rule means to workloads of a namespace.
func (s *Scopes) sidecar(r *SidecarRule, namespace string) *Sidecar {
	at := lazyKey{r, namespace}
	if known, ok := s.lazy.known.Load(at); ok {
		return known.(*Sidecar)
	}
	egress := r.in(namespace)
	destinations := s.destinations(egress, namespace)
	key := sidecarKey{rule: r, destinations: fmt.Sprint(destinations)}
	if r.own {
		key.namespace = namespace
	}
	out := s.names.sidecars.get(key)
	if out == nil {
		out = &Sidecar{Source: r.Source, Spec: r.Spec, Egress: egress, destinations: make(map[string][]uint16, len(destinations))}
		for _, d := range destinations {
			out.destinations[d.Host] = append(out.destinations[d.Host], d.Port)
		}
		out = s.names.sidecars.put(key, out)
	}
	known, _ := s.lazy.known.LoadOrStore(at, out)
	return known.(*Sidecar)
}

// destinations are what VirtualServices send to that the namespace may use and imports.
func (s *Scopes) destinations(egress []Egress, namespace string) []Destination {
	var out []Destination
	for _, v := range s.routes {
		if v.Export.Includes(namespace) && slices.ContainsFunc(egress, func(e Egress) bool { return e.AdmitsRoute(v) }) {
			out = append(out, v.Destinations...)
		}
	}
	slices.SortFunc(out, Destination.Compare)
	return slices.Compact(out)
}

// interned has one value for each key for as long as somebody holds it.
type interned[K comparable, V any] struct {
	mu    sync.Mutex
	known map[K]weak.Pointer[V] // guarded by mu
	sweep int                   // guarded by mu; when known has so many, those that nobody holds go
}

// get gives the value of a key; nil if nobody holds one.
func (t *interned[K, V]) get(k K) *V {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.known[k].Value()
}

// put gives the value of a key: v, unless somebody holds one.
func (t *interned[K, V]) put(k K, v *V) *V {
	t.mu.Lock()
	defer t.mu.Unlock()
	if old := t.known[k].Value(); old != nil {
		return old
	}
	if len(t.known) >= t.sweep {
		t.clean()
	}
	t.known[k] = weak.Make(v)
	return v
}

func (t *interned[K, V]) clean() {
	live := make(map[K]weak.Pointer[V], len(t.known))
	for k, p := range t.known {
		if p.Value() != nil {
			live[k] = p
		}
	}
	t.known, t.sweep = live, max(64, 2*len(live))
}
