package pushcontext

import (
	"net/netip"
	"testing"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
)

// TestEqualAddressesServeOnce: a workload whose address is listed on two networks serves each port once.
func TestEqualAddressesServeOnce(t *testing.T) {
	t.Parallel()
	var list []*model.Endpoint
	for _, n := range []string{"n2", "n3"} {
		list = append(list, &model.Endpoint{Network: n, PortName: "http",
			Addr: model.Addr{Cluster: "c1", AddrPort: netip.MustParseAddrPort("10.0.0.5:8080")}})
	}
	v := &ServiceView{
		Shape:     &ShapeView{Ports: []model.Port{{Name: "http", Number: 80}}},
		Endpoints: []PortEndpoints{{Port: "http", Localities: []LocalityEndpoints{{Endpoints: list}}}},
	}
	for k, in := range v.served(nil) {
		if len(in.targets) != 1 {
			t.Errorf("%v has %d targets", k, len(in.targets))
		}
	}
}
