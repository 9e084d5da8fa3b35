package pushcontext

import (
	"iter"
	"time"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
)

// PushContext is one published state of the mesh. It is immutable and safe for any number of
// readers.
type PushContext struct {
	Version uint64
	Time    time.Time // when it was committed
	Mesh    *MeshView
	// Gateways are all Gateways; nil if there is none.
	Gateways *GatewaysView
	Shards   []ShardInfo // by key
	// Networks are those that are entered through gateways, with names resolved. A service holds those it needs.
	Networks Networks
	Configs  []*model.Config // configuration objects, the mesh's own too, by shard, kind, namespace, name
	// VirtualServices are all in force, oldest first, those too that no proxy is sent anything of.
	VirtualServices []*VirtualService
	// Conflicts are configuration objects that are not used, wholly or in part, in favour of others. Those of
	// services are in their shapes.
	Conflicts []Conflict
	// NoService lists endpoints for services that nobody defines; proxies see nothing of them.
	NoService map[model.ServiceKey][]model.LeftOut

	hosts     cowMap[string, *HostView]
	ports     cowMap[uint16, *PortView]
	instances cowMap[model.InstanceKey, *InstanceView]
	noTargets *TargetsView
	names     *NamesView
	all       *PortsView
	scopes    *Scopes
	routes    []*VirtualService // PortView.Routes
}

// Reader is what view resolution needs to know of a proxy.
type Reader struct {
	Cluster   model.ClusterID
	Namespace string
	Instances []model.InstanceKey // its addresses, primary first
	Scope     *Scope              // as ScopeOf gives it; nil for a router
}

// ScopeOf gives what is addressed to a workload; nil if nothing is.
func (p *PushContext) ScopeOf(k ScopeKey) *Scope { return p.scopes.Of(k) }

// Host gives every service with the host name; nil if there is none.
func (p *PushContext) Host(host string) *HostView {
	h, _ := p.hosts.get(host)
	return h
}

// Hosts yields every host, in no particular order.
func (p *PushContext) Hosts() iter.Seq2[string, *HostView] { return p.hosts.all() }

// Services yields every service, in no particular order.
func (p *PushContext) Services() iter.Seq[*ServiceView] {
	return func(yield func(*ServiceView) bool) {
		for _, h := range p.hosts.all() {
			for _, s := range h.Services {
				if !yield(s) {
					return
				}
			}
		}
	}
}

// Service gives the service of the key; nil if there is none.
func (p *PushContext) Service(key model.ServiceKey) *ServiceView {
	h := p.Host(key.Host)
	if h == nil {
		return nil
	}
	for _, s := range h.Services {
		if s.Shape.Key == key {
			return s
		}
	}
	return nil
}

// Port gives the services that have a port number; nil if none has.
func (p *PushContext) Port(n uint16) *PortView {
	v, _ := p.ports.get(n)
	return v
}

// Instance gives what is known of the first of the addresses that serves anything, or else of the first
// that is known; nil if none is.
func (p *PushContext) Instance(keys ...model.InstanceKey) *InstanceView {
	var known *InstanceView
	for _, k := range keys {
		v, ok := p.instances.get(k)
		switch {
		case !ok:
		case len(v.Targets.Targets) > 0:
			return v
		case known == nil:
			known = v
		}
	}
	return known
}

// Has reports whether a place makes no difference to the snapshot.
func (p *PushContext) Has(place *Place) bool {
	v, _ := p.instances.get(place.Instance)
	return v.says(place)
}

// Instances yields every workload address, in no particular order.
func (p *PushContext) Instances() iter.Seq2[model.InstanceKey, *InstanceView] {
	return p.instances.all()
}

// View resolves a key for a reader. It reports the view and a version since which the key means the
// same to every reader. A nil view means that the reader has no such view; its version may be 0 even if
// there was one.
func (p *PushContext) View(key ViewKey, r *Reader) (v View, rev uint64) {
	switch key.Kind {
	case ViewService, ViewShape:
		return p.hostView(key, r)
	case ViewPort:
		if v := p.Port(key.Port); v != nil {
			return v, v.rev
		}
	case ViewTargets:
		return p.targets(r)
	case ViewPeers:
		return p.peers(r)
	case ViewGateways:
		if v := p.Gateways; v != nil {
			return v, v.rev
		}
	case ViewNames:
		return p.names, p.names.rev
	case ViewPorts:
		return p.all, p.all.rev
	case ViewMesh:
		return p.Mesh, p.Mesh.rev
	}
	return nil, 0
}

// SameSince gives a version since which the key means the same thing to the reader, changed or not: any
// views that it resolved to since then replaced one another (see [Memo.Before]).
func (p *PushContext) SameSince(key ViewKey, r *Reader) uint64 {
	switch key.Kind {
	case ViewService, ViewShape:
		if h := p.Host(key.Host); h != nil {
			return h.MeaningRev
		}
	case ViewTargets, ViewPeers: // which service the peers serve changes with the targets only
		_, rev := p.targets(r)
		return rev
	}
	return 0
}

// targets resolves what the reader's workload serves. An address that serves nothing leaves no trace
// of when it last did, so a reader that has one may just have changed.
func (p *PushContext) targets(r *Reader) (View, uint64) {
	switch i := p.Instance(r.Instances...); {
	case i == nil:
		return p.noTargets, p.Version
	case i.Key != r.Instances[0], len(i.Targets.Targets) == 0 && len(r.Instances) > 1:
		return i.Targets, p.Version
	default:
		return i.Targets, i.Rev
	}
}

// peers resolves the first service that the reader's workload serves; who serves none has no peers.
func (p *PushContext) peers(r *Reader) (View, uint64) {
	i := p.Instance(r.Instances...)
	if i == nil || len(i.Targets.Targets) == 0 {
		return nil, p.Version
	}
	_, rev := p.targets(r)
	v := p.Service(i.Targets.Targets[0].service())
	return &v.peers, max(rev, v.rev)
}

func (p *PushContext) hostView(key ViewKey, r *Reader) (View, uint64) {
	h := p.Host(key.Host)
	if h == nil {
		return nil, 0
	}
	rev := h.Rev
	if key.Kind == ViewShape {
		rev = h.ShapeRev
	}
	switch s := h.Resolve(r); {
	case s == nil:
		return nil, rev
	case key.Kind == ViewShape:
		return s.Shape, rev
	default:
		return s, rev
	}
}

// Keys yields the key of every view of a kind, in no particular order.
func (p *PushContext) Keys(kind ViewKind) iter.Seq[ViewKey] {
	return func(yield func(ViewKey) bool) {
		switch kind {
		case ViewService, ViewShape:
			for h := range p.hosts.all() {
				if !yield(ViewKey{Kind: kind, Host: h}) {
					return
				}
			}
		case ViewPort:
			for n := range p.ports.all() {
				if !yield(ViewKey{Kind: kind, Port: n}) {
					return
				}
			}
		case ViewTargets, ViewPeers, ViewGateways, ViewNames, ViewPorts, ViewMesh:
			yield(ViewKey{Kind: kind})
		}
	}
}
