package pushcontext

import (
	"maps"
	"slices"
	"time"
	"weak"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
)

// Change is one service's new view; nil removes the service.
type Change struct {
	Key  model.ServiceKey
	View *ServiceView
}

// Place is where a workload runs, which counts also if it serves nothing.
type Place struct {
	Instance model.InstanceKey
	By       string // what says so: one address may be that of several workloads
	Locality model.Locality
	Network  string
	Gone     bool
}

// Commit is the input of one new version. Views are fresh: the Builder stamps them, and panics on one
// that was published before. A ServiceView whose shape did not change carries the Shape pointer of its
// predecessor.
type Commit struct {
	Services []Change // each key once
	// Quiet are views that differ from their predecessors in nothing that a proxy is sent: they take over
	// the revision and what was built, and the delta does not name them.
	Quiet  []*ServiceView
	Places []Place   // that changed; all of them when Mesh is set
	Mesh   *MeshView // set in the first commit and when mesh-wide settings changed; then Services holds every service, of fresh shapes
	// Gateways are all Gateways: fresh if they, or the mesh-wide settings, changed; nil if there is none.
	Gateways        *GatewaysView
	VirtualServices []*VirtualService // oldest first
	Scopes          *Scopes           // in force
	Scoped          []string          // see Delta.Scopes; in any order
	Shards          []ShardInfo
	Configs         []*model.Config
	// Networks, Conflicts and NoService are handed on as they are.
	Networks  Networks
	Conflicts []Conflict
	NoService map[model.ServiceKey][]model.LeftOut
	Reasons   []string // in any order
	Time      time.Time
}

// keepBefore is after how many commits a view forgets what was built from the one that it replaced, if
// not all of that was built anew before. Readers that are further behind are sent all of the view.
const keepBefore = 16

// Builder derives each PushContext from the one before. It is owned by one goroutine.
type Builder struct {
	prev    *PushContext
	targets map[string]*sharedTargets
	follow  [keepBefore][]weak.Pointer[Memo] // of views with a predecessor, by version; nothing is kept for it
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
	for k, list := range s.said {
		s.setInstance(k, list)
	}
	for _, v := range c.Quiet {
		s.quiet(v)
	}
	for _, p := range c.Places {
		s.place(p)
	}
	s.routing(c, b.prev)
	pc := s.freeze(c)
	d := s.delta(c, b.prev)
	b.prev = pc
	b.forget(s.followed)
	return pc, d
}

// forget notes the views that got a predecessor in this commit, and separates those of long ago from theirs.
func (b *Builder) forget(followed []weak.Pointer[Memo]) {
	now := &b.follow[b.prev.Version%keepBefore]
	for _, p := range *now {
		if m := p.Value(); m != nil {
			m.forget()
		}
	}
	*now = followed
}

func (b *Builder) step(c Commit) *step {
	base := b.prev
	if c.Mesh != nil {
		c.Mesh.stamp(b.prev.Version + 1)
		b.targets = map[string]*sharedTargets{}
		base = &PushContext{Mesh: c.Mesh, noTargets: &TargetsView{Mesh: c.Mesh}}
		base.noTargets.rev = c.Mesh.rev
	}
	return &step{
		version: b.prev.Version + 1, base: base, targets: b.targets,
		hosts: base.hosts.edit(), ports: base.ports.edit(), instances: base.instances.edit(),
		said: map[model.InstanceKey][]said{}, dirtyPorts: map[uint16]*portChange{}, endpoints: map[string]struct{}{}, shape: map[string]struct{}{},
	}
}

// routing takes over what routes say, of Gateways and of hosts that no service has.
func (s *step) routing(c Commit, prev *PushContext) {
	s.routes = prev.routes
	if !slices.Equal(c.VirtualServices, prev.VirtualServices) {
		s.reroute(c.VirtualServices)
	}
	s.gateways = c.Gateways != prev.Gateways
	if s.gateways && c.Gateways != nil {
		c.Gateways.stamp(s.version)
		if prev.Gateways != nil {
			s.follow(&c.Gateways.memo, &prev.Gateways.memo)
		}
	}
}

func (s *step) reroute(all []*VirtualService) {
	var routes []*VirtualService
	for _, v := range all {
		if v.Bound(MeshGateway) && len(v.Spec.GetHttp()) > 0 {
			routes = append(routes, v)
		}
	}
	if slices.Equal(routes, s.routes) {
		return
	}
	s.routes = routes
	if _, served := s.ports.get(RoutedPort); served {
		s.port(RoutedPort)
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
	said       map[model.InstanceKey][]said
	moved      []model.InstanceKey // some more than once
	followed   []weak.Pointer[Memo]
	routes     []*VirtualService // PortView.Routes
	gateways   bool              // they changed
	names      bool              // what host names stand for changed
	buf        []byte            // scratch
}

type portChange struct {
	drop, add []*ShapeView
	hosts     []string // that these are of, or whose other services changed
}

func (s *step) service(c Change) {
	old := s.base.Service(c.Key)
	if old == c.View {
		return
	}
	changed := s.stamp(old, c.View)
	if changed {
		s.shape[c.Key.Host] = struct{}{}
		s.markPorts(old, c.View)
	} else {
		s.endpoints[c.Key.Host] = struct{}{}
	}
	s.names = s.names || changed || old.direct() || c.View.direct()
	s.setHost(c, changed)
	s.setInstances(c.Key, old, c.View)
}

// quiet puts a view in the place of another that means the same to proxies.
func (s *step) quiet(next *ServiceView) {
	old := s.base.Service(next.Shape.Key)
	next.stamp(old.rev)
	next.memo.adopt(&old.memo)
	next.setPeers(old.rev)
	next.peers.memo.adopt(&old.peers.memo)
	host := next.Shape.Key.Host
	was, _ := s.hosts.get(host)
	h := *was
	h.Services = slices.Clone(was.Services)
	h.Services[slices.Index(h.Services, old)] = next
	s.hosts.set(host, &h)
}

// stamp sets the revisions of a new view and reports whether its shape is new.
func (s *step) stamp(old, next *ServiceView) bool {
	if next == nil {
		return true
	}
	next.stamp(s.version)
	next.setPeers(s.version)
	if old != nil {
		s.follow(&next.memo, &old.memo)
		s.follow(&next.peers.memo, &old.peers.memo)
	}
	if old != nil && old.Shape == next.Shape {
		return false
	}
	next.Shape.stamp(s.version)
	if old != nil {
		s.follow(&next.Shape.memo, &old.Shape.memo)
	}
	return true
}

func (v *ServiceView) setPeers(version uint64) {
	v.peers.Shape, v.peers.Endpoints = v.Shape, v.Endpoints
	v.peers.stamp(version)
}

// follow makes the values of a view those before of the one that replaces it.
func (s *step) follow(next, old *Memo) {
	if next.follow(old) {
		s.followed = append(s.followed, weak.Make(next))
	}
}

func (s *step) setHost(c Change, shapeChanged bool) {
	h := &HostView{Host: c.Key.Host, Rev: s.version}
	if shapeChanged {
		h.ShapeRev = s.version
	}
	h.MeaningRev = s.version
	if old, ok := s.hosts.get(c.Key.Host); ok {
		h.ShapeRev = max(h.ShapeRev, old.ShapeRev)
		for _, v := range old.Services {
			if v.Shape.Key != c.Key {
				h.Services = append(h.Services, v)
			} else if c.View != nil && sameRank(v.Shape, c.View.Shape) {
				h.MeaningRev = old.MeaningRev
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
			pc := s.port(p.Number)
			pc.drop, pc.hosts = append(pc.drop, old.Shape), append(pc.hosts, old.Shape.Key.Host)
		}
	}
	if next != nil {
		for _, p := range next.Shape.Ports {
			pc := s.port(p.Number)
			pc.add, pc.hosts = append(pc.add, next.Shape), append(pc.hosts, next.Shape.Key.Host)
		}
	}
}

func (s *step) port(n uint16) *portChange {
	pc := s.dirtyPorts[n]
	if pc == nil {
		pc = &portChange{}
		s.dirtyPorts[n] = pc
	}
	return pc
}

func oldest(a, b *ShapeView) int {
	if c := model.Older(a.Created, b.Created); c != 0 {
		return c
	}
	return a.Key.Compare(b.Key)
}

func (s *step) setPort(n uint16, pc *portChange) {
	v := &PortView{Number: n, Mesh: s.base.Mesh}
	if n == RoutedPort {
		v.Routes = s.routes
	}
	v.stamp(s.version)
	if old, ok := s.ports.get(n); ok {
		v.Services, v.Claims = old.Services, old.Claims
		s.follow(&v.memo, &old.memo)
	}
	v.Services = pc.apply(v.Services)
	if len(v.Services) == 0 {
		s.ports.delete(n)
		return
	}
	v.Claims = s.claims(v, pc.hosts)
	s.ports.set(n, v)
}

// apply gives the changed copy of a sorted list: it searches for what changes and copies what lies
// between, since most services share a few port numbers.
func (pc *portChange) apply(services []*ShapeView) []*ShapeView {
	out := make([]*ShapeView, 0, len(services)+len(pc.add))
	slices.SortFunc(pc.drop, oldest)
	for _, v := range slices.Compact(pc.drop) {
		i, _ := slices.BinarySearchFunc(services, v, oldest)
		out, services = append(out, services[:i]...), services[i+1:]
	}
	out = append(out, services...)
	slices.SortFunc(pc.add, oldest)
	return mergeSorted(out, slices.Compact(pc.add))
}

// mergeSorted merges b into a, which has room for it.
func mergeSorted(a, b []*ShapeView) []*ShapeView {
	end := len(a)
	a = a[:end+len(b)]
	for n := len(b); n > 0; n-- {
		i, _ := slices.BinarySearchFunc(a[:end], b[n-1], oldest)
		copy(a[i+n:], a[i:end])
		a[i+n-1] = b[n-1]
		end = i
	}
	return a
}

func (s *step) freeze(c Commit) *PushContext {
	s.markRivals()
	for n, pc := range s.dirtyPorts {
		s.setPort(n, pc)
	}
	hosts, ports := s.hosts.freeze(), s.ports.freeze()
	return &PushContext{
		Version: s.version, Time: c.Time, Mesh: s.base.Mesh, Shards: c.Shards, Configs: c.Configs, Networks: c.Networks, Conflicts: c.Conflicts, NoService: c.NoService,
		Gateways: c.Gateways, VirtualServices: c.VirtualServices, scopes: c.Scopes, routes: s.routes, noTargets: s.base.noTargets,
		names: s.nameView(hosts), all: s.allPorts(ports),
		hosts: hosts, ports: ports, instances: s.instances.freeze(),
	}
}

// nameView looks at the hosts of the new snapshot, so that none of an old one is kept.
func (s *step) nameView(hosts cowMap[string, *HostView]) *NamesView {
	v, old := &NamesView{Mesh: s.base.Mesh, hosts: hosts}, s.base.names
	switch {
	case old == nil:
		v.stamp(s.version)
	case s.names:
		v.stamp(s.version)
		s.follow(&v.memo, &old.memo)
	default:
		v.stamp(old.rev)
		v.memo.adopt(&old.memo)
	}
	return v
}

// allPorts looks at the ports of the new snapshot, so that none of an old one is kept.
func (s *step) allPorts(ports cowMap[uint16, *PortView]) *PortsView {
	v, old := &PortsView{Mesh: s.base.Mesh, ports: ports}, s.base.all
	switch {
	case old == nil:
		v.stamp(s.version)
	case len(s.dirtyPorts) > 0:
		v.stamp(s.version)
		s.follow(&v.memo, &old.memo)
	default:
		v.stamp(old.rev)
		v.memo.adopt(&old.memo)
	}
	return v
}

// direct reports whether a service is reached at the addresses of its endpoints, which its name stands for.
func (v *ServiceView) direct() bool {
	return v != nil && v.Shape.Native && v.Shape.Resolution == model.Passthrough
}

func (s *step) delta(c Commit, prev *PushContext) *Delta {
	if c.Mesh != nil {
		addKeys(s.shape, prev.hosts)
		for k := range prev.instances.all() {
			s.moved = append(s.moved, k)
		}
	}
	for h := range s.shape {
		delete(s.endpoints, h)
	}
	slices.SortFunc(s.moved, model.InstanceKey.Compare)
	ports := maps.Clone(s.dirtyPorts)
	if c.Mesh != nil {
		for n := range prev.ports.all() {
			ports[n] = nil
		}
	}
	return &Delta{
		From: s.version - 1, To: s.version, Mesh: c.Mesh != nil, Reasons: slices.Compact(slices.Sorted(slices.Values(c.Reasons))),
		Endpoints: slices.Sorted(maps.Keys(s.endpoints)), Shape: slices.Sorted(maps.Keys(s.shape)),
		Ports: slices.Sorted(maps.Keys(ports)), Instances: slices.Compact(s.moved), Gateways: s.gateways, Names: s.names, Scopes: slices.Compact(slices.Sorted(slices.Values(c.Scoped))),
	}
}

func addKeys[K comparable, V any](set map[K]struct{}, m cowMap[K, V]) {
	for k := range m.all() {
		set[k] = struct{}{}
	}
}
