package xdstest

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	meshconfig "istio.io/api/mesh/v1alpha1"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/pushcontext"
)

// Mesh publishes snapshots made by hand. One goroutine uses it.
type Mesh struct {
	Hub     *pushcontext.Hub
	builder *pushcontext.Builder
	views   map[model.ServiceKey]*pushcontext.ServiceView
	mesh    *pushcontext.MeshView
	scopes  *pushcontext.Scopes
	now     func() time.Time

	gateways *pushcontext.GatewaysView                                       // nil for none
	servers  func(*pushcontext.MeshView) (list []*pushcontext.GatewayServer) // makes those of gateways; may be nil
}

// NewMesh publishes a first snapshot without services. notify is the hub's.
func NewMesh(notify func(*pushcontext.PushContext, *pushcontext.Delta)) *Mesh {
	m := &Mesh{
		Hub: pushcontext.NewHub(notify), builder: pushcontext.NewBuilder(), now: time.Now,
		views: map[model.ServiceKey]*pushcontext.ServiceView{},
	}
	m.SetMesh()
	return m
}

// SetMesh commits new mesh-wide settings: every view is made anew.
func (m *Mesh) SetMesh(edits ...func(*pushcontext.MeshView)) {
	m.mesh = &pushcontext.MeshView{Config: &meshconfig.MeshConfig{}, DomainSuffix: "cluster.local"}
	for _, f := range edits {
		f(m.mesh)
	}
	m.makeGateways()
	var all []pushcontext.Change
	for k, v := range m.views {
		m.views[k] = m.renew(v)
		all = append(all, pushcontext.Change{Key: k, View: m.views[k]})
	}
	m.publish(pushcontext.Commit{Services: all, Mesh: m.mesh})
}

func (m *Mesh) renew(v *pushcontext.ServiceView) *pushcontext.ServiceView {
	s := m.shape(v.Shape.Key, len(v.Shape.ServiceAccounts))
	s.Ports, s.Addresses = slices.Clone(v.Shape.Ports), v.Shape.Addresses
	s.Native, s.Resolution, s.Inline, s.Policies = v.Shape.Native, v.Shape.Resolution, v.Shape.Inline, v.Shape.Policies
	return &pushcontext.ServiceView{Shape: s, Endpoints: v.Endpoints}
}

// SetSidecars commits what the Sidecars of namespaces import ("NAMESPACE/HOST"); a namespace that is not there has
// none. scoped are the namespaces of which that changed.
func (m *Mesh) SetSidecars(imports map[string][]string, scoped ...string) {
	spaces := map[string]*pushcontext.ScopeSpace{}
	for namespace, hosts := range imports {
		spec := &networking.Sidecar{Egress: []*networking.IstioEgressListener{{Hosts: hosts}}}
		source := model.Source{Object: model.ObjectKey{Kind: model.ConfigSidecar, Namespace: namespace, Name: "default"}}
		spaces[namespace] = &pushcontext.ScopeSpace{Sidecar: pushcontext.NewSidecarRule(source, spec)}
	}
	m.scopes = pushcontext.NewScopes(m.scopes, "", spaces, nil)
	m.publish(pushcontext.Commit{Scoped: scoped})
}

// SetGateways commits the servers of all Gateways.
func (m *Mesh) SetGateways(servers func(*pushcontext.MeshView) []*pushcontext.GatewayServer) {
	m.servers = servers
	m.makeGateways()
	m.publish(pushcontext.Commit{})
}

func (m *Mesh) makeGateways() {
	if m.gateways = nil; m.servers == nil {
		return
	}
	list, labels := m.servers(m.mesh), map[string]bool{}
	for _, s := range list {
		for k := range s.Selector {
			labels[k] = true
		}
	}
	if len(list) > 0 {
		m.gateways = &pushcontext.GatewaysView{Servers: list, Labels: slices.Sorted(maps.Keys(labels)), Mesh: m.mesh}
	}
}

func (m *Mesh) publish(c pushcontext.Commit) {
	c.Time, c.Scopes, c.Gateways = m.now(), m.scopes, m.gateways
	m.Hub.Publish(m.builder.Commit(c))
}

// Service says what a service is to be.
type Service struct {
	Host, Namespace string
	Cluster         model.ClusterID // for a cluster-local service
	Ports           []uint16
	TCP             bool         // or else HTTP
	VIP             string       // its address, "" for none
	Headless        bool         // reached at the addresses of its endpoints
	Generation      int          // another number is another shape
	Endpoints       []string     // IP addresses; each backs all ports
	Mutual          bool         // they speak mutual TLS
	Labels          model.Labels // of the first of them alone
	Policies        []*pushcontext.DestinationPolicy
	Member          model.ClusterID
	Locality        model.Locality
	Export          []string
}

func (s *Service) key() model.ServiceKey {
	return model.ServiceKey{Cluster: s.Cluster, Namespace: s.Namespace, Host: s.Host}
}

// Set commits services as they are given; the shape of one that differs only in its endpoints stays.
func (m *Mesh) Set(list ...Service) {
	var all []pushcontext.Change
	for _, s := range list {
		v := m.view(s)
		m.views[s.key()] = v
		all = append(all, pushcontext.Change{Key: s.key(), View: v})
	}
	m.publish(pushcontext.Commit{Services: all})
}

// Delete commits the removal of services.
func (m *Mesh) Delete(list ...Service) {
	var all []pushcontext.Change
	for _, s := range list {
		delete(m.views, s.key())
		all = append(all, pushcontext.Change{Key: s.key()})
	}
	m.publish(pushcontext.Commit{Services: all})
}

func (m *Mesh) shape(k model.ServiceKey, generation int) *pushcontext.ShapeView {
	return &pushcontext.ShapeView{
		Key: k, Name: k.Host, Export: pushcontext.Export{Public: true}, Mesh: m.mesh, ServiceAccounts: make([]string, generation),
	}
}

func (m *Mesh) view(s Service) *pushcontext.ServiceView {
	shape := m.shape(s.key(), s.Generation)
	shape.Export, shape.Policies = pushcontext.NewExport(s.Export, nil, s.Namespace), s.Policies
	protocol := model.ProtocolHTTP
	if s.TCP {
		protocol = model.ProtocolTCP
	}
	for _, p := range s.Ports {
		shape.Ports = append(shape.Ports, model.Port{Name: fmt.Sprintf("http-%d", p), Number: p, Protocol: protocol})
	}
	if s.VIP != "" {
		a := netip.MustParseAddr(s.VIP)
		shape.Addresses = map[model.ClusterID][]netip.Prefix{s.Member: {netip.PrefixFrom(a, a.BitLen())}}
	}
	if old := m.views[s.key()]; old != nil && !s.Headless && sameShape(old.Shape, shape) {
		shape = old.Shape
	}
	v := &pushcontext.ServiceView{Shape: shape}
	for _, p := range shape.Ports {
		v.Endpoints = append(v.Endpoints, pushcontext.PortEndpoints{Port: p.Name, Localities: s.localities(p)})
	}
	slices.SortFunc(v.Endpoints, func(a, b pushcontext.PortEndpoints) int { return slices.Compare([]byte(a.Port), []byte(b.Port)) })
	if s.Headless {
		shape.Native, shape.Resolution, shape.Inline = true, model.Passthrough, v.Endpoints
	}
	return v
}

func sameShape(a, b *pushcontext.ShapeView) bool {
	return slices.Equal(a.Ports, b.Ports) && a.Export.Equal(b.Export) && len(a.ServiceAccounts) == len(b.ServiceAccounts) &&
		a.Resolution == b.Resolution && slices.Equal(a.Policies, b.Policies) && maps.EqualFunc(a.Addresses, b.Addresses, slices.Equal)
}

func (s *Service) localities(p model.Port) []pushcontext.LocalityEndpoints {
	if len(s.Endpoints) == 0 {
		return nil
	}
	l := pushcontext.LocalityEndpoints{Locality: s.Locality}
	for i, ip := range s.Endpoints {
		at := netip.AddrPortFrom(netip.MustParseAddr(ip), p.Number)
		l.Endpoints = append(l.Endpoints, &model.Endpoint{
			Addr: model.Addr{Cluster: s.Member, AddrPort: at}, PortName: p.Name, Health: model.Healthy, Locality: s.Locality,
			TLSMode: map[bool]string{true: model.TLSIstio}[s.Mutual], Labels: map[bool]model.Labels{true: s.Labels}[i == 0],
		})
	}
	return []pushcontext.LocalityEndpoints{l}
}
