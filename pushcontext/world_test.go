package pushcontext

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"time"

	meshconfig "istio.io/api/mesh/v1alpha1"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
)

func clusterID(s string) model.ClusterID { return model.ClusterID(s) }

func testMesh() *MeshView {
	return &MeshView{Config: &meshconfig.MeshConfig{}, DomainSuffix: "cluster.local"}
}

// spec is what a service is to be: views are made from it, anew or on the shape of a predecessor.
type spec struct {
	key       model.ServiceKey
	created   int
	native    bool
	export    string // "" is public
	ports     []uint16
	endpoints []specEndpoint
}

type specEndpoint struct {
	ip       string
	cluster  model.ClusterID
	locality string
	network  string
}

func (s spec) shape(m *MeshView) *ShapeView {
	v := &ShapeView{
		Key: s.key, Name: strings.Split(s.key.Host, ".")[0], Native: s.native, Export: NewExport(strings.Fields(s.export), nil, s.key.Namespace), Mesh: m,
		Created: time.Unix(int64(s.created), 0).UTC(),
	}
	for _, p := range s.ports {
		v.Ports = append(v.Ports, model.Port{Name: fmt.Sprint("p", p), Number: p, Protocol: model.ProtocolHTTP})
	}
	return v
}

// view puts the endpoints on a shape. Each port is served on its number plus 8000.
func (s spec) view(shape *ShapeView) *ServiceView {
	v := &ServiceView{Shape: shape}
	for _, p := range shape.Ports {
		by := map[string][]*model.Endpoint{}
		for _, e := range s.endpoints {
			by[e.locality] = append(by[e.locality], &model.Endpoint{
				Addr:     model.Addr{Cluster: e.cluster, AddrPort: netip.AddrPortFrom(netip.MustParseAddr(e.ip), p.Number+8000)},
				PortName: p.Name, Health: model.Healthy, Locality: model.ParseLocality(e.locality), Network: e.network,
			})
		}
		pe := PortEndpoints{Port: p.Name}
		for _, l := range slices.Sorted(maps.Keys(by)) {
			slices.SortFunc(by[l], func(a, b *model.Endpoint) int { return a.Addr.Compare(b.Addr) })
			pe.Localities = append(pe.Localities, LocalityEndpoints{model.ParseLocality(l), by[l]})
		}
		v.Endpoints = append(v.Endpoints, pe)
	}
	slices.SortFunc(v.Endpoints, func(a, b PortEndpoints) int { return cmp.Compare(a.Port, b.Port) })
	return v
}

func (s spec) fresh(m *MeshView) *ServiceView { return s.view(s.shape(m)) }

func (s spec) sameShape(o spec) bool {
	return s.key == o.key && s.created == o.created && s.native == o.native && s.export == o.export && slices.Equal(s.ports, o.ports)
}

// world is a random mesh: small name spaces, so that hosts, ports and addresses meet.
type world struct {
	r        *rand.Rand
	services map[model.ServiceKey]spec
	routes   []*VirtualService
}

// reroute has some VirtualServices of sidecars, and others.
func (w *world) reroute() {
	w.routes = nil
	for i := range w.r.IntN(3) {
		v := routesOf([]string{MeshGateway, MeshGateway, "ns/gw"}[w.r.IntN(3)])
		v.Hosts = []string{fmt.Sprint("u", i)}
		w.routes = append(w.routes, v)
	}
}

func (w *world) key() model.ServiceKey {
	return model.ServiceKey{
		Cluster:   model.ClusterID([]string{"", "", "c1", "c2"}[w.r.IntN(4)]),
		Namespace: []string{"ns1", "ns2"}[w.r.IntN(2)],
		Host:      fmt.Sprintf("h%d.example", w.r.IntN(6)),
	}
}

func (w *world) spec(k model.ServiceKey) spec {
	s := spec{key: k, created: w.r.IntN(3), native: w.r.IntN(2) == 0, export: []string{"", "", ". ns3", "~"}[w.r.IntN(4)]}
	for _, p := range []uint16{80, 443, 9000} {
		if w.r.IntN(2) == 0 {
			s.ports = append(s.ports, p)
		}
	}
	s.endpoints = w.endpoints()
	return s
}

func (w *world) endpoints() []specEndpoint {
	var out []specEndpoint
	for i := range 5 {
		for _, c := range []model.ClusterID{"c1", "c2"} {
			if w.r.IntN(4) == 0 {
				out = append(out, specEndpoint{fmt.Sprintf("10.0.0.%d", i), c, []string{"", "r/z1", "r/z2"}[w.r.IntN(3)], []string{"", "n1"}[w.r.IntN(2)]})
			}
		}
	}
	return out
}

// change alters one random service and gives its key.
func (w *world) change() model.ServiceKey {
	k := w.key()
	old, ok := w.services[k]
	switch {
	case !ok:
		w.services[k] = w.spec(k)
	case w.r.IntN(4) == 0:
		delete(w.services, k)
	case w.r.IntN(2) == 0:
		old.endpoints = w.endpoints()
		w.services[k] = old
	default:
		w.services[k] = w.spec(k)
	}
	return k
}

// commit makes the change of the named services against the newest snapshot.
func (w *world) commit(keys []model.ServiceKey, before map[model.ServiceKey]spec, prev *PushContext) Commit {
	c := Commit{VirtualServices: w.routes}
	for _, k := range keys {
		next, ok := w.services[k]
		if !ok {
			c.Services = append(c.Services, Change{Key: k})
			continue
		}
		v := next.fresh(prev.Mesh)
		if old := prev.Service(k); old != nil && next.sameShape(before[k]) {
			v = next.view(old.Shape)
		}
		c.Services = append(c.Services, Change{k, v})
	}
	return c
}

// all is a first commit, or one that changes the mesh: every service, in random order.
func (w *world) all() Commit {
	c := Commit{Mesh: testMesh(), VirtualServices: w.routes}
	for k, s := range w.services {
		c.Services = append(c.Services, Change{k, s.fresh(c.Mesh)})
	}
	w.r.Shuffle(len(c.Services), func(i, j int) { c.Services[i], c.Services[j] = c.Services[j], c.Services[i] })
	return c
}

// dump is the content of a snapshot without versions, by what a Delta can name.
type dump struct {
	Hosts     map[string]string // services with endpoints
	Shapes    map[string]string // without
	Ports     map[uint16]string
	Instances map[model.InstanceKey]string
}

func dumpOf(pc *PushContext) dump {
	d := dump{map[string]string{}, map[string]string{}, map[uint16]string{}, map[model.InstanceKey]string{}}
	for h, v := range pc.Hosts() {
		for _, s := range v.Services {
			d.Shapes[h] += dumpShape(s.Shape)
			d.Hosts[h] += dumpShape(s.Shape) + dumpEndpoints(s)
		}
	}
	for n, v := range pc.ports.all() {
		for _, s := range v.Services {
			d.Ports[n] += dumpShape(s)
		}
		for _, v := range v.Routes {
			d.Ports[n] += fmt.Sprintf("routes %p\n", v)
		}
		for _, h := range slices.Sorted(maps.Keys(v.Claims)) {
			for _, s := range v.Claims[h] {
				d.Ports[n] += "claim " + dumpShape(s)
			}
		}
	}
	for k, i := range pc.Instances() {
		d.Instances[k] = fmt.Sprintln(i.Key, i.Locality, i.Network, i.Targets.Targets)
	}
	return d
}

func dumpShape(s *ShapeView) string {
	return fmt.Sprintln(s.Key, s.Name, s.Ports, s.Native, s.Export, s.Created.Unix())
}

func dumpEndpoints(s *ServiceView) string {
	var b strings.Builder
	for _, p := range s.Endpoints {
		for _, l := range p.Localities {
			for _, e := range l.Endpoints {
				fmt.Fprintln(&b, p.Port, l.Locality, e.Addr, e.Network)
			}
		}
	}
	return b.String()
}
