package gen

import (
	"fmt"
	"testing"

	meshconfig "istio.io/api/mesh/v1alpha1"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/pushcontext"
)

// encodings counts how many virtual hosts are encoded for the first time.
type encodings map[*byte]bool

func (e encodings) of(t *testing.T, v *pushcontext.PortView, c Class) (made int) {
	t.Helper()
	c = c.Keep(Routes{}.Traits(v))
	hosts, _, err := encodedHosts(v, Routes{}.Narrow(v, c))
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range hosts {
		if !e[&h[0]] {
			made++
		}
		e[&h[0]] = true
	}
	return made
}

func redirects(uri string, hosts ...string) *pushcontext.VirtualService {
	return &pushcontext.VirtualService{Hosts: hosts, Export: pushcontext.Export{Public: true}, Gateways: []string{pushcontext.MeshGateway},
		Spec: &networking.VirtualService{Http: []*networking.HTTPRoute{{Redirect: &networking.HTTPRedirect{Uri: uri}}}}}
}

func shapeRoutedBy(m *pushcontext.MeshView, host string, list ...*pushcontext.VirtualService) *pushcontext.ShapeView {
	return &pushcontext.ShapeView{Key: model.ServiceKey{Namespace: "ns", Host: host}, Ports: []model.Port{{Name: "http", Number: 80, Protocol: model.ProtocolHTTP}},
		Export: pushcontext.Export{Public: true}, Mesh: m, VirtualServices: list}
}

// One edit of a VirtualService encodes the virtual hosts anew that are made from it, and no others.
func TestAnEditEncodesItsHostsOnly(t *testing.T) {
	t.Parallel()
	m := &pushcontext.MeshView{Config: &meshconfig.MeshConfig{}, DomainSuffix: "cluster.local"}
	seen := encodings{}
	c := Class{Type: Sidecar, Namespace: "a", DNSDomain: "a.svc.cluster.local", IPv4: true, Labels: NewLabels(model.Labels{"app": "x"})}
	v := &pushcontext.PortView{Number: 80, Mesh: m}
	for i := range 100 {
		host := fmt.Sprintf("s%d.ns.svc.cluster.local", i)
		v.Services = append(v.Services, shapeRoutedBy(m, host, redirects("/1", host)))
	}
	for i := range 10 {
		vs := redirects("/1", fmt.Sprintf("a%d.example", i), fmt.Sprintf("b%d.example", i))
		v.Routes = append(v.Routes, vs)
	}
	if n := seen.of(t, v, c); n != 120 {
		t.Fatalf("%d virtual hosts, want 120", n)
	}
	other := c
	other.Namespace, other.DNSDomain, other.Labels = "b", "b.svc.cluster.local", NewLabels(model.Labels{"app": "y"})
	other.Scope = &pushcontext.Scope{Sidecar: &pushcontext.Sidecar{Spec: &networking.Sidecar{}, Egress: []pushcontext.Egress{
		{Imports: []pushcontext.Import{{Namespace: "*", Host: "*"}}}}}}
	for _, vs := range v.Routes {
		vs.Namespace = "x"
	}
	if n := seen.of(t, v, other); n != 0 {
		t.Errorf("%d virtual hosts are encoded for a class that sees the same", n)
	}
	edited := &pushcontext.PortView{Number: 80, Mesh: m, Services: append([]*pushcontext.ShapeView(nil), v.Services...), Routes: v.Routes}
	host := v.Services[7].Key.Host
	edited.Services[7] = shapeRoutedBy(m, host, redirects("/2", host))
	if n := seen.of(t, edited, c) + seen.of(t, edited, other); n != 1 {
		t.Errorf("%d virtual hosts are encoded after an edit of the routes of one service", n)
	}
	vs := redirects("/2", v.Routes[3].Hosts...)
	vs.Namespace = "x"
	edited = &pushcontext.PortView{Number: 80, Mesh: m, Services: edited.Services, Routes: append([]*pushcontext.VirtualService(nil), v.Routes...)}
	edited.Routes[3] = vs
	if n := seen.of(t, edited, c); n != 2 {
		t.Errorf("%d virtual hosts are encoded after an edit of a VirtualService for two hosts", n)
	}
}

// Hosts of no service are kept for the newest settings of the mesh only.
func TestHostsOfOlderSettingsAreLetGo(t *testing.T) {
	t.Parallel()
	vs := redirects("/", "a.example")
	for range 3 {
		v := &pushcontext.PortView{Number: 80, Mesh: &pushcontext.MeshView{Config: &meshconfig.MeshConfig{}}, Routes: []*pushcontext.VirtualService{vs}}
		if n := (encodings{}).of(t, v, Class{}); n != 1 {
			t.Fatal(n)
		}
		kept := vs.Derived().Do(pushcontext.MemoKey{Generator: memoForeign}, nil).(*unclaimedCache)
		if len(kept.bytes) != 1 || kept.mesh != v.Mesh {
			t.Errorf("%d are kept", len(kept.bytes))
		}
	}
}
