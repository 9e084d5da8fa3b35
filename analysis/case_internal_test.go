package analysis

import (
	"testing"

	networking "istio.io/api/networking/v1alpha3"

	meshconfig "istio.io/api/mesh/v1alpha1"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/pushcontext"
)

// Services of foreign registries may have capitals, which objects that name them need not repeat.
func TestCaseDoesNotCount(t *testing.T) {
	t.Parallel()
	m := &pushcontext.MeshView{Config: &meshconfig.MeshConfig{}}
	key := model.ServiceKey{Namespace: "ns", Host: "pay.DEFAULT-GROUP.nacos"}
	service := &pushcontext.ServiceView{Shape: &pushcontext.ShapeView{Key: key, Export: pushcontext.Export{Public: true}, Mesh: m, Ports: []model.Port{{Number: 80}}}}
	object := func(kind string, spec any) *model.Config {
		return &model.Config{Kind: kind, Namespace: "ns", Name: "x", Spec: spec, Source: model.Source{Object: model.ObjectKey{Kind: kind, Namespace: "ns", Name: "x"}}}
	}
	v := &pushcontext.VirtualService{Namespace: "ns", Hosts: []string{"pay.default-group.nacos"}, Gateways: []string{pushcontext.MeshGateway}, Export: pushcontext.Export{Public: true},
		Spec: &networking.VirtualService{Http: []*networking.HTTPRoute{{Route: []*networking.HTTPRouteDestination{{Destination: &networking.Destination{Host: key.Host}}}}}}}
	pc, _ := pushcontext.NewBuilder().Commit(pushcontext.Commit{
		Mesh: m, Services: []pushcontext.Change{{Key: key, View: service}}, VirtualServices: []*pushcontext.VirtualService{v},
		Configs: []*model.Config{object(model.ConfigDestinationRule, &networking.DestinationRule{Host: "pay.default-group.nacos"}),
			object(model.ConfigSidecar, &networking.Sidecar{Egress: []*networking.IstioEgressListener{{Hosts: []string{"ns/Pay.Default-Group.nacos", "ns/*.nacos"}}}})},
	})
	for _, f := range Findings(pc) {
		if f.Code != CodeNoEndpoints {
			t.Errorf("%+v", f)
		}
	}
}
