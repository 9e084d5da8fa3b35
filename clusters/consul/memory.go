package consul

import (
	"sync"

	"github.com/isthmus-mesh/isthmus/clusters/foreign"
)

// Memory is what registries of one declaration leave to each other: the services that were last known. One that replaces another, with
// other credentials, has of it what it can't read yet, so that nothing is lost that only can't be read. The zero value is ready for use.
type Memory struct {
	mu sync.Mutex
	of map[scope]map[string]*foreign.Service // guarded by mu: by name
}

// note notes what a service is; nil if there is none. Who has no memory notes nothing.
func (m *Memory) note(of scope, name string, s *foreign.Service) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if s == nil {
		delete(m.of[of], name)
		return
	}
	if m.of == nil {
		m.of = map[scope]map[string]*foreign.Service{}
	}
	if m.of[of] == nil {
		m.of[of] = map[string]*foreign.Service{}
	}
	m.of[of][name] = s
}

// known are the services of a scope, by name.
func (m *Memory) known(of scope) map[string]*foreign.Service {
	out := map[string]*foreign.Service{}
	if m == nil {
		return out
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for name, s := range m.of[of] {
		out[name] = s
	}
	return out
}

// remember gives services that could not be read, and those of scopes that could not be listed, what was known of them before.
func (r *run) remember() {
	for _, of := range r.scopes {
		for name, last := range r.opts.Before.known(of.scope) {
			if !of.listed {
				r.know(of, name)
			}
			if s := r.services[serviceKey{of, name}]; s != nil && !s.settled {
				s.last, s.lost = last, true
				r.troubled[s] = struct{}{}
			}
		}
	}
}
