package gen

import (
	"fmt"
	"testing"

	meshconfig "istio.io/api/mesh/v1alpha1"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/isthmus-mesh/isthmus/pushcontext"
)

// gatewaysOf is a view with a server for each list of VirtualServices.
func gatewaysOf(m *pushcontext.MeshView, old *pushcontext.GatewaysView, bound [][]*pushcontext.VirtualService, server func(i int) *networking.Server) *pushcontext.GatewaysView {
	v := &pushcontext.GatewaysView{Mesh: m}
	for i, list := range bound {
		if old != nil && sameList(old.Servers[i].Bound, list) {
			v.Servers = append(v.Servers, old.Servers[i])
			continue
		}
		spec := server(i)
		s := &pushcontext.GatewayServer{Namespace: "ns", Gateway: "gw", Index: i, Spec: spec, Bound: list, Mesh: m}
		for _, h := range spec.Hosts {
			s.Hosts = append(s.Hosts, pushcontext.GatewayHost{Namespace: "*", Host: h})
		}
		v.Servers = append(v.Servers, s)
	}
	return v
}

func sameList(a, b []*pushcontext.VirtualService) bool {
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return len(a) == len(b)
}

func numbered(i, status int) *pushcontext.VirtualService {
	host := fmt.Sprintf("h%d.example", i)
	return &pushcontext.VirtualService{Namespace: "ns", Hosts: []string{host}, Gateways: []string{"ns/gw"}, Export: pushcontext.Export{Public: true},
		Spec: &networking.VirtualService{Http: []*networking.HTTPRoute{{DirectResponse: &networking.HTTPDirectResponse{Status: uint32(status)}}}}}
}

// encodedOf are the routes that are kept of a VirtualService.
func encodedOf(v *pushcontext.VirtualService) map[routesKey]*encodedRoutes {
	return v.Derived().Do(pushcontext.MemoKey{Generator: memoGateway}, func() any { return &gatewayRoutes{} }).(*gatewayRoutes).routes
}

// An edit of one VirtualService of 2 000 on one server encodes that one's routes, and no others, for however many routers.
func TestOneVirtualServiceOfManyIsEncoded(t *testing.T) {
	t.Parallel()
	const n = 2000
	m := &pushcontext.MeshView{Config: &meshconfig.MeshConfig{}}
	all := make([]*pushcontext.VirtualService, n)
	for i := range all {
		all[i] = numbered(i, 200)
	}
	server := func(int) *networking.Server {
		return &networking.Server{Port: &networking.Port{Number: 80, Protocol: "HTTP"}, Hosts: []string{"*"}}
	}
	build := func(v *pushcontext.GatewaysView) {
		for _, ports := range []string{"", "80:8080"} { // two classes of routers
			c := Class{Type: Router, GatewayPorts: ports}
			for _, name := range (Routes{}).Names(v, c) {
				if _, err := (Routes{}).Build(v, c, name); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	first := gatewaysOf(m, nil, [][]*pushcontext.VirtualService{all}, server)
	build(first)
	before := map[*pushcontext.VirtualService]*encodedRoutes{}
	for _, v := range all {
		if len(encodedOf(v)) != 1 {
			t.Fatalf("%d encodings of one VirtualService", len(encodedOf(v)))
		}
		for _, r := range encodedOf(v) {
			before[v] = r
		}
	}
	next := append([]*pushcontext.VirtualService(nil), all...)
	next[77] = numbered(77, 201)
	build(gatewaysOf(m, first, [][]*pushcontext.VirtualService{next}, server))
	made := 0
	for _, v := range next {
		for _, r := range encodedOf(v) {
			if before[v] != r {
				made++
			}
		}
	}
	if made != 1 {
		t.Errorf("%d were encoded", made)
	}
}

// Of 2 000 servers that end TLS on one port, an edit of what is bound to one makes that one's table and chain; the rest is taken
// as it was.
func TestOneServerOfManyIsMade(t *testing.T) {
	t.Parallel()
	const n = 2000
	m := &pushcontext.MeshView{Config: &meshconfig.MeshConfig{}}
	bound := make([][]*pushcontext.VirtualService, n)
	for i := range bound {
		bound[i] = []*pushcontext.VirtualService{numbered(i, 200)}
	}
	server := func(i int) *networking.Server {
		return &networking.Server{Port: &networking.Port{Number: 443, Name: fmt.Sprint("p", i), Protocol: "HTTPS"}, Hosts: []string{fmt.Sprintf("h%d.example", i)},
			Tls: &networking.ServerTLSSettings{Mode: networking.ServerTLSSettings_SIMPLE, ServerCertificate: "/c", PrivateKey: "/k"}}
	}
	c := Class{Type: Router}
	build := func(v *pushcontext.GatewaysView) (tables map[string]*byte, chains map[*byte]bool) {
		tables, chains = map[string]*byte{}, map[*byte]bool{}
		for _, name := range (Routes{}).Names(v, c) {
			b, err := Routes{}.Build(v, c, name)
			if err != nil {
				t.Fatal(err)
			}
			tables[name] = &b[0]
		}
		for _, name := range (Listeners{}).Names(v, c) {
			if _, err := (Listeners{}).Build(v, c, name); err != nil {
				t.Fatal(err)
			}
		}
		for _, s := range v.Servers {
			kept := s.Derived().Do(pushcontext.MemoKey{Generator: memoChains}, func() any { return &chainCache{} }).(*chainCache)
			for _, list := range kept.chains {
				chains[&list[0].encoded[0]] = true
			}
		}
		return tables, chains
	}
	first := gatewaysOf(m, nil, bound, server)
	tables, chains := build(first)
	if len(tables) != n || len(chains) != n {
		t.Fatalf("%d tables and %d chains", len(tables), len(chains))
	}
	bound[77] = []*pushcontext.VirtualService{numbered(77, 201)}
	again, chained := build(gatewaysOf(m, first, bound, server))
	made := 0
	for name, b := range again {
		if tables[name] != b {
			made++
		}
	}
	for b := range chained {
		if !chains[b] {
			made++
		}
	}
	if made != 2 {
		t.Errorf("%d tables and chains were made, want one of each", made)
	}
}
