package consul

import "github.com/isthmus-mesh/isthmus/clusters/foreign"

// Memory is what a Registry leaves to the one that replaces it.
type Memory = foreign.Memory[scope, foreign.Service]

// recall has services known that were known before, as many as there is room for.
func (r *run) recall(of *scopeState) {
	for _, name := range r.opts.Before.Names(of.scope) {
		if len(r.services) < int(r.opts.Spec.Limits.MaxServices) {
			r.know(of, name)
		}
	}
}

// remember gives services that could not be read, and those of scopes that could not be listed, what was known of them before.
func (r *run) remember() {
	for _, of := range r.scopes {
		if !of.listed {
			r.recall(of)
		}
	}
	for k, s := range r.services {
		if s.settled && s.problem.Reason == "" || s.last != nil {
			continue
		}
		if s.last = r.opts.Before.Last(k.scope.scope, k.name); s.last != nil {
			s.lost = s.lost || !s.settled
			r.troubled[s] = struct{}{}
		}
	}
}
