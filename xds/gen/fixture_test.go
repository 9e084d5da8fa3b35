package gen_test

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	meshconfig "istio.io/api/mesh/v1alpha1"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/pushcontext"
	"github.com/isthmus-mesh/isthmus/xds/gen"
)

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// settings are those of a mesh, and its gateways, which are not part of them.
type settings struct {
	*pushcontext.MeshView
	gateways []pushcontext.Gateway
}

func newMesh(edits ...func(*settings)) *settings {
	m := &settings{MeshView: &pushcontext.MeshView{Config: &meshconfig.MeshConfig{}, DomainSuffix: "cluster.local", ConfigCluster: "c1"}}
	for _, e := range edits {
		e(m)
	}
	for _, n := range pushcontext.NewNetworks(m.gateways, nil) {
		m.GatewayNetworks = append(m.GatewayNetworks, n.Name)
	}
	return m
}

// networks are those with gateways that the endpoints are on.
func (m *settings) networks(ports []pushcontext.PortEndpoints) pushcontext.Networks {
	used := map[string]bool{}
	for _, p := range ports {
		for _, l := range p.Localities {
			for _, e := range l.Endpoints {
				used[e.Network] = true
			}
		}
	}
	return pushcontext.NewNetworks(slices.DeleteFunc(slices.Clone(m.gateways), func(g pushcontext.Gateway) bool { return !used[g.Network] }), nil)
}

// svc is a short notation for a service in tests.
type svc struct {
	host       string
	ns         string
	ports      []model.Port
	vips       map[model.ClusterID][]string
	resolution model.Resolution
	edit       func(*pushcontext.ShapeView)
	inline     []*model.Endpoint
	endpoints  []*model.Endpoint
	age        int // hours before epoch: more is older
}

func httpPort(n uint16) model.Port {
	return model.Port{Name: "http", Number: n, Protocol: model.ProtocolHTTP}
}
func tcpPort(n uint16) model.Port {
	return model.Port{Name: "tcp", Number: n, Protocol: model.ProtocolTCP}
}
func autoPort(n uint16) model.Port { return model.Port{Name: "any", Number: n} }

func prefix(s string) netip.Prefix {
	if strings.Contains(s, "/") {
		return netip.MustParsePrefix(s)
	}
	a := netip.MustParseAddr(s)
	return netip.PrefixFrom(a, a.BitLen())
}

func (s svc) shape(m *settings) *pushcontext.ShapeView {
	ns := s.ns
	name, rest, _ := strings.Cut(s.host, ".")
	if ns == "" {
		ns, _, _ = strings.Cut(rest, ".")
	}
	out := &pushcontext.ShapeView{
		Key: model.ServiceKey{Namespace: ns, Host: s.host}, Name: name, Ports: s.ports, Resolution: s.resolution,
		Export: pushcontext.Export{Public: true}, Created: epoch.Add(-time.Duration(s.age) * time.Hour), Mesh: m.MeshView,
		Native: strings.HasSuffix(s.host, ".svc.cluster.local"), Inline: group(s.inline),
	}
	for c, list := range s.vips {
		if out.Addresses == nil {
			out.Addresses = map[model.ClusterID][]netip.Prefix{}
		}
		for _, v := range list {
			out.Addresses[c] = append(out.Addresses[c], prefix(v))
		}
	}
	if s.resolution.IsDNS() {
		out.Networks = m.networks(out.Inline)
	}
	if s.edit != nil {
		s.edit(out)
	}
	return out
}

func (s svc) view(m *settings) *pushcontext.ServiceView {
	v := &pushcontext.ServiceView{Shape: s.shape(m), Endpoints: group(s.endpoints)}
	v.Networks = m.networks(v.Endpoints)
	return v
}

// group sorts endpoints the way the merge does.
func group(es []*model.Endpoint) []pushcontext.PortEndpoints {
	var out []pushcontext.PortEndpoints
	es = slices.Clone(es)
	slices.SortFunc(es, func(a, b *model.Endpoint) int {
		if c := strings.Compare(a.PortName, b.PortName); c != 0 {
			return c
		}
		if c := a.Locality.Compare(b.Locality); c != 0 {
			return c
		}
		return a.Addr.Compare(b.Addr)
	})
	for _, e := range es {
		if n := len(out); n == 0 || out[n-1].Port != e.PortName {
			out = append(out, pushcontext.PortEndpoints{Port: e.PortName})
		}
		p := &out[len(out)-1]
		if n := len(p.Localities); n == 0 || p.Localities[n-1].Locality != e.Locality {
			p.Localities = append(p.Localities, pushcontext.LocalityEndpoints{Locality: e.Locality})
		}
		l := &p.Localities[len(p.Localities)-1]
		l.Endpoints = append(l.Endpoints, e)
	}
	return out
}

func ep(cluster, port, addr string, edits ...func(*model.Endpoint)) *model.Endpoint {
	e := &model.Endpoint{
		PortName: port, Health: model.Healthy,
		Workload: model.ObjectKey{Kind: "Pod", Namespace: "shop", Name: "w"},
		Source:   &model.Source{Shard: model.ShardKey{Provider: model.ProviderKubernetes, Cluster: model.ClusterID(cluster)}},
	}
	switch a, err := netip.ParseAddrPort(addr); {
	case err == nil:
		e.Addr = model.Addr{AddrPort: a}
	case strings.HasPrefix(addr, "unix://"):
		e.Addr = model.Addr{Host: addr}
	default:
		host, p, _ := strings.Cut(addr, ":")
		a := netip.MustParseAddrPort("0.0.0.0:" + p)
		e.Addr = model.Addr{Host: host, AddrPort: netip.AddrPortFrom(netip.Addr{}, a.Port())}
	}
	e.Addr.Cluster = model.ClusterID(cluster)
	for _, f := range edits {
		f(e)
	}
	return e
}

func workload(n string) func(*model.Endpoint)     { return func(e *model.Endpoint) { e.Workload.Name = n } }
func weight(w float64) func(*model.Endpoint)      { return func(e *model.Endpoint) { e.Weight = w } }
func health(h model.Health) func(*model.Endpoint) { return func(e *model.Endpoint) { e.Health = h } }
func mtls(e *model.Endpoint)                      { e.TLSMode = model.TLSIstio }
func network(n string) func(*model.Endpoint)      { return func(e *model.Endpoint) { e.Network = n } }
func node(n string) func(*model.Endpoint)         { return func(e *model.Endpoint) { e.Node = n } }
func at(l string) func(*model.Endpoint) {
	return func(e *model.Endpoint) { e.Locality = model.ParseLocality(l) }
}

// portView holds the services that have the port, in the order of a snapshot.
func portView(n uint16, m *settings, list ...svc) *pushcontext.PortView {
	v := &pushcontext.PortView{Number: n, Mesh: m.MeshView}
	hosts := map[string][]*pushcontext.ShapeView{}
	for _, s := range list {
		shape := s.shape(m)
		hosts[s.host] = append(hosts[s.host], shape)
		if _, ok := shape.PortNumbered(n); ok {
			v.Services = append(v.Services, shape)
		}
	}
	v.Claims = claims(hosts)
	slices.SortFunc(v.Services, func(a, b *pushcontext.ShapeView) int {
		if c := a.Created.Compare(b.Created); c != 0 {
			return c
		}
		return a.Key.Compare(b.Key)
	})
	return v
}

// claims are the hosts of several services, of no registry's own.
func claims(hosts map[string][]*pushcontext.ShapeView) map[string][]*pushcontext.ShapeView {
	maps.DeleteFunc(hosts, func(_ string, list []*pushcontext.ShapeView) bool { return len(list) < 2 })
	for _, list := range hosts {
		slices.SortFunc(list, func(a, b *pushcontext.ShapeView) int {
			return cmp.Or(cmp.Compare(b.Key.Cluster, a.Key.Cluster), a.Created.Compare(b.Created), a.Key.Compare(b.Key))
		})
	}
	return hosts
}

func sidecar(cluster, ns string, edits ...func(*gen.Class)) gen.Class {
	c := gen.Class{Type: gen.Sidecar, Cluster: model.ClusterID(cluster), Namespace: ns, DNSDomain: ns + ".svc.cluster.local", IPv4: true}
	for _, e := range edits {
		e(&c)
	}
	return c
}

func noInterception(c *gen.Class) { c.Interception = gen.InterceptNone }

func router(cluster, ns string, edits ...func(*gen.Class)) gen.Class {
	return sidecar(cluster, ns, append([]func(*gen.Class){func(c *gen.Class) { c.Type, c.ExposeServices = gen.Router, true }}, edits...)...)
}

// resource is one built resource.
type resource struct {
	url, name string
	bytes     []byte
}

// build makes all resources of a generator for a view, the way the engine does.
func build(t testing.TB, g gen.Generator, v pushcontext.View, c gen.Class) []resource {
	t.Helper()
	c = c.Keep(g.Traits(v))
	var out []resource
	seen := map[string]bool{}
	for _, n := range g.Names(v, c) {
		if seen[n] {
			t.Fatalf("%s is listed twice", n)
		}
		seen[n] = true
		if _, ok := g.Key(n); !ok {
			t.Fatalf("the name %q has no key", n)
		}
		b, err := g.Build(v, c, n)
		if err != nil {
			t.Fatalf("build %s: %v", n, err)
		}
		out = append(out, resource{g.TypeURL(), n, b})
	}
	return out
}
