package foreign

import (
	"fmt"
	"testing"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	api "github.com/isthmus-mesh/isthmus/api/v1alpha1"
)

// TestWorkloadsHaveAlternatives: with the port of the instance's, if it is another one and the instance has no others.
func TestWorkloadsHaveAlternatives(t *testing.T) {
	t.Parallel()
	conv := converterOf(api.RegistrySpec{})
	for port, ports := range map[uint16][]NamedPort{0: nil, 8080: nil, 81: {{Name: "web", Port: 90}}} {
		i := with(up("10.0.0.1", 80), elsewhere("dmz", "192.0.2.1", port))
		i.Ports = ports
		s := orders(i)
		want := port
		if ports != nil {
			want = 0
		}
		a := conv.workload(s, &s.Instances[0], nil, model.Source{}).Alternatives
		if got := fmt.Sprint(a.For("dmz").Addr("")); got != fmt.Sprint("192.0.2.1:", want) {
			t.Errorf("%d, %v: %s", port, ports, got)
		}
	}
	s := orders(up("10.0.0.1", 80))
	if w := conv.workload(s, &s.Instances[0], nil, model.Source{}); w.Alternatives != nil {
		t.Errorf("%+v", w)
	}
}
