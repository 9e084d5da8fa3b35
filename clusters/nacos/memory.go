package nacos

import "sync"

// Memory is what registries of one declaration leave to each other: what was last known of services. One that replaces another, with other
// credentials, has of it what it can't read, so that nothing is lost that only can't be read. The zero value is ready for use.
type Memory struct {
	mu   sync.Mutex
	last map[serviceName]*serviceInfo // guarded by mu; what they point to does not change
}

// note notes what a service is; nil if it has gone. Who has no memory notes nothing.
func (m *Memory) note(n serviceName, info *serviceInfo) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.last == nil {
		m.last = map[serviceName]*serviceInfo{}
	}
	if m.last[n] = info; info == nil {
		delete(m.last, n)
	}
}

// of is what was last known of a service; nil if nothing was.
func (m *Memory) of(n serviceName) *serviceInfo {
	if m == nil {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.last[n]
}

// names are the services of a scope.
func (m *Memory) names(sc scope) (out []string) {
	if m == nil {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for n := range m.last {
		if n.scope() == sc {
			out = append(out, n.name)
		}
	}
	return out
}
