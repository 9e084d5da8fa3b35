package gen_test

import (
	"slices"
	"testing"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/pushcontext"
	"github.com/isthmus-mesh/isthmus/xds/gen"
)

// TestAutomaticAddresses: only a workload whose proxy answers its DNS queries ever dials them. For any other an entry without
// addresses is at its port, whatever address a name really has.
func TestAutomaticAddresses(t *testing.T) {
	t.Parallel()
	m := newMesh()
	tls := model.Port{Name: "tls", Number: 443, Protocol: model.ProtocolTLS}
	v := portView(443, m, svc{host: "api.example.com", ns: "shop", ports: []model.Port{tls}, vips: map[model.ClusterID][]string{"c1": {"240.240.0.1"}},
		edit: func(s *pushcontext.ShapeView) {
			s.Native, s.MeshAddresses, s.AutoAddresses, s.External = false, true, true, true
		}})
	names := func(c gen.Class) []string { return gen.Listeners{}.Names(v, c.Keep(gen.Listeners{}.Traits(v))) }
	if got := names(sidecar("c1", "shop")); !slices.Equal(got, []string{"0.0.0.0_443"}) {
		t.Errorf("listeners %v, want one for all addresses", got)
	}
	captures := sidecar("c1", "shop", func(c *gen.Class) { c.CapturesDNS = true })
	if got := names(captures); !slices.Equal(got, []string{"240.240.0.1_443"}) {
		t.Errorf("listeners %v of a proxy that answers DNS queries, want one at the address", got)
	}
}
