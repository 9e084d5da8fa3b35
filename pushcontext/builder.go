package pushcontext

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
)

// Change is one service's new view; nil removes the service.
type Change struct {
	Key  model.ServiceKey
	View *ServiceView
}

// Commit is the input of one new version. Views in Services are fresh: the Builder stamps them.
// A ServiceView whose shape did not change carries the Shape pointer of its predecessor.
type Commit struct {
	Services []Change
	Mesh     *MeshView // non-nil when mesh-wide settings changed; then Services holds every service
	Shards   []ShardInfo
	Configs  []*model.Config
	Reasons  []string
	Time     time.Time
}

// Builder derives each PushContext from the one before. It is owned by one goroutine.
type Builder struct {
	prev    *PushContext
	targets map[string]*sharedTargets
}

type sharedTargets struct {
	view *TargetsView
	refs int
}

// NewBuilder starts at version 0 with no services.
func NewBuilder() *Builder {
	return &Builder{prev: &PushContext{}, targets: map[string]*sharedTargets{}}
}

// Commit makes the next version. Its cost is that of the changed services, not of the mesh, except
// when the mesh-wide settings change.
func (b *Builder) Commit(c Commit) (*PushContext, *Delta) {
	s := b.step(c)
	for _, ch := range c.Services {
		s.service(ch)
	}
	pc := s.freeze(c)
	d := s.delta(c, b.prev)
	b.prev = pc
	return pc, d
}

func (b *Builder) step(c Commit) *step {
	base := b.prev
	if c.Mesh != nil {
		c.Mesh.rev = b.prev.Version + 1
		b.targets = map[string]*sharedTargets{}
		base = &PushContext{Mesh: c.Mesh, noTargets: &TargetsView{Mesh: c.Mesh}}
		base.noTargets.rev = c.Mesh.rev
	}
	return &step{
		version: b.prev.Version + 1, base: base, targets: b.targets,
		hosts: base.hosts.edit(), ports: base.ports.edit(), instances: base.instances.edit(),
		dirtyPorts: map[uint16]*portChange{}, endpoints: map[string]struct{}{}, shape: map[string]struct{}{},
		moved: map[model.InstanceKey]struct{}{},
	}
}

// step is one commit in the making.
type step struct {
	version    uint64
	base       *PushContext
	targets    map[string]*sharedTargets
	hosts      *edit[string, *HostView]
	ports      *edit[uint16, *PortView]
	instances  *edit[model.InstanceKey, *InstanceView]
	dirtyPorts map[uint16]*portChange
	endpoints  map[string]struct{}
	shape      map[string]struct{}
	moved      map[model.InstanceKey]struct{}
}

type portChange struct {
	drop map[*ShapeView]struct{}
	add  []*ShapeView
}

func (s *step) service(c Change) {
	old := s.base.Service(c.Key)
	if old == nil && c.View == nil {
		return
	}
	changed := s.stamp(old, c.View)
	if changed {
		s.shape[c.Key.Host] = struct{}{}
		s.markPorts(old, c.View)
	} else {
		s.endpoints[c.Key.Host] = struct{}{}
	}
	s.setHost(c, changed)
	s.setInstances(c.Key, old, c.View)
}

// stamp sets the revisions of a new view and reports whether its shape is new.
func (s *step) stamp(old, next *ServiceView) bool {
	if next == nil {
		return true
	}
	next.rev = s.version
	if old != nil && old.Shape == next.Shape {
		return false
	}
	next.Shape.rev = s.version
	return true
}

func (s *step) setHost(c Change, shapeChanged bool) {
	h := &HostView{Host: c.Key.Host, Rev: s.version}
	if shapeChanged {
		h.ShapeRev = s.version
	}
	if old, ok := s.hosts.get(c.Key.Host); ok {
		h.ShapeRev = max(h.ShapeRev, old.ShapeRev)
		for _, v := range old.Services {
			if v.Shape.Key != c.Key {
				h.Services = append(h.Services, v)
			}
		}
	}
	if c.View != nil {
		h.Services = append(h.Services, c.View)
	}
	if len(h.Services) == 0 {
		s.hosts.delete(c.Key.Host)
		return
	}
	slices.SortFunc(h.Services, func(a, b *ServiceView) int { return precedes(a.Shape, b.Shape) })
	s.hosts.set(c.Key.Host, h)
}

func (s *step) markPorts(old, next *ServiceView) {
	if old != nil {
		for _, p := range old.Shape.Ports {
			s.port(p.Number).drop[old.Shape] = struct{}{}
		}
	}
	if next != nil {
		for _, p := range next.Shape.Ports {
			pc := s.port(p.Number)
			pc.add = append(pc.add, next.Shape)
		}
	}
}

func (s *step) port(n uint16) *portChange {
	pc := s.dirtyPorts[n]
	if pc == nil {
		pc = &portChange{drop: map[*ShapeView]struct{}{}}
		s.dirtyPorts[n] = pc
	}
	return pc
}

func oldest(a, b *ShapeView) int {
	if c := a.Created.Compare(b.Created); c != 0 {
		return c
	}
	return a.Key.Compare(b.Key)
}

func (s *step) setPort(n uint16, pc *portChange) {
	old, _ := s.ports.get(n)
	var kept []*ShapeView
	if old != nil {
		kept = make([]*ShapeView, 0, len(old.Services)+len(pc.add))
		for _, v := range old.Services {
			if _, gone := pc.drop[v]; !gone {
				kept = append(kept, v)
			}
		}
	}
	slices.SortFunc(pc.add, oldest)
	v := &PortView{Number: n, Services: mergeSorted(kept, slices.Compact(pc.add)), Mesh: s.base.Mesh}
	v.rev = s.version
	if len(v.Services) == 0 {
		s.ports.delete(n)
		return
	}
	s.ports.set(n, v)
}

func mergeSorted(a, b []*ShapeView) []*ShapeView {
	if len(b) == 0 {
		return a
	}
	out := make([]*ShapeView, 0, len(a)+len(b))
	for len(a) > 0 && len(b) > 0 {
		if oldest(a[0], b[0]) <= 0 {
			out, a = append(out, a[0]), a[1:]
		} else {
			out, b = append(out, b[0]), b[1:]
		}
	}
	return append(append(out, a...), b...)
}

func (s *step) setInstances(key model.ServiceKey, old, next *ServiceView) {
	before, after := served(old), served(next)
	for k := range before {
		if _, still := after[k]; !still {
			s.setInstance(k, key, instance{})
		}
	}
	for k, in := range after {
		was, had := before[k]
		if had && was.locality == in.locality && was.network == in.network && slices.Equal(was.targets, in.targets) {
			continue
		}
		s.setInstance(k, key, in)
	}
}

// instance is what one service says of one workload address.
type instance struct {
	targets  []Target
	locality model.Locality
	network  string
}

func served(v *ServiceView) map[model.InstanceKey]instance {
	if v == nil {
		return nil
	}
	out := map[model.InstanceKey]instance{}
	for _, port := range v.Shape.Ports {
		for _, l := range v.Port(port.Name) {
			for _, e := range l.Endpoints {
				if !e.Addr.AddrPort.Addr().IsValid() {
					continue
				}
				k := model.InstanceKey{Cluster: e.Addr.Cluster, IP: e.Addr.AddrPort.Addr()}
				in := out[k]
				in.locality, in.network = e.Locality, e.Network
				in.targets = append(in.targets, Target{Host: v.Shape.Key.Host, Namespace: v.Shape.Key.Namespace, Name: v.Shape.Name,
					Port: port.Number, PortName: port.Name, Protocol: port.Protocol, Endpoint: e.Addr.AddrPort.Port()})
				out[k] = in
			}
		}
	}
	return out
}

func (s *step) setInstance(k model.InstanceKey, key model.ServiceKey, in instance) {
	old, _ := s.instances.get(k)
	targets := in.targets
	next := &InstanceView{Key: k, Locality: in.locality, Network: in.network, Rev: s.version}
	if old != nil {
		for _, t := range old.Targets.Targets {
			if t.Host != key.Host || t.Namespace != key.Namespace {
				targets = append(targets[:len(targets):len(targets)], t)
			}
		}
		if len(in.targets) == 0 {
			next.Locality, next.Network = old.Locality, old.Network
		}
	}
	s.swapInstance(k, old, next, targets)
}

func (s *step) swapInstance(k model.InstanceKey, old, next *InstanceView, targets []Target) {
	if len(targets) == 0 {
		s.instances.delete(k)
	} else {
		slices.SortFunc(targets, compareTargets)
		next.Targets = s.share(slices.Compact(targets))
		s.instances.set(k, next)
	}
	if old != nil {
		s.release(old.Targets.Targets)
	}
	s.moved[k] = struct{}{}
}

func compareTargets(a, b Target) int {
	switch {
	case a.Endpoint != b.Endpoint:
		return int(a.Endpoint) - int(b.Endpoint)
	case a.Host != b.Host:
		return strings.Compare(a.Host, b.Host)
	case a.Namespace != b.Namespace:
		return strings.Compare(a.Namespace, b.Namespace)
	case a.Port != b.Port:
		return int(a.Port) - int(b.Port)
	}
	return strings.Compare(a.PortName, b.PortName)
}

func targetsKey(ts []Target) string {
	var b strings.Builder
	for _, t := range ts {
		fmt.Fprintf(&b, "%s/%s/%d/%s/%d/%d;", t.Host, t.Namespace, t.Port, t.PortName, t.Protocol, t.Endpoint)
	}
	return b.String()
}

func (s *step) share(ts []Target) *TargetsView {
	key := targetsKey(ts)
	e := s.targets[key]
	if e == nil {
		e = &sharedTargets{view: &TargetsView{Targets: ts, Mesh: s.base.Mesh}}
		e.view.rev = s.version
		s.targets[key] = e
	}
	e.refs++
	return e.view
}

func (s *step) release(ts []Target) {
	key := targetsKey(ts)
	if e := s.targets[key]; e != nil {
		if e.refs--; e.refs == 0 {
			delete(s.targets, key)
		}
	}
}

func (s *step) freeze(c Commit) *PushContext {
	for n, pc := range s.dirtyPorts {
		s.setPort(n, pc)
	}
	return &PushContext{
		Version: s.version, Time: c.Time, Mesh: s.base.Mesh, Shards: c.Shards, Configs: c.Configs, noTargets: s.base.noTargets,
		hosts: s.hosts.freeze(), ports: s.ports.freeze(), instances: s.instances.freeze(),
	}
}

func (s *step) delta(c Commit, prev *PushContext) *Delta {
	if c.Mesh != nil {
		addKeys(s.shape, prev.hosts)
		addKeys(s.moved, prev.instances)
	}
	for h := range s.shape {
		delete(s.endpoints, h)
	}
	ports := maps.Clone(s.dirtyPorts)
	if c.Mesh != nil {
		for n := range prev.ports.all() {
			ports[n] = nil
		}
	}
	return &Delta{
		From: s.version - 1, To: s.version, Mesh: c.Mesh != nil, Reasons: c.Reasons,
		Endpoints: slices.Sorted(maps.Keys(s.endpoints)), Shape: slices.Sorted(maps.Keys(s.shape)),
		Ports: slices.Sorted(maps.Keys(ports)), Instances: slices.SortedFunc(maps.Keys(s.moved), model.InstanceKey.Compare),
	}
}

func addKeys[K comparable, V any](set map[K]struct{}, m cowMap[K, V]) {
	for k := range m.all() {
		set[k] = struct{}{}
	}
}
