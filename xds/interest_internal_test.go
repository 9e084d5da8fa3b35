package xds

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/pushcontext"
)

// What is addressed to the workloads of a namespace concerns the sidecars there, and Gateways concern those
// who asked for what is made of them.
func TestInterest(t *testing.T) {
	t.Parallel()
	in := newInterest(2)
	in.setNamespace(1, "a", true)
	in.setNamespace(2, "a", true)
	in.setNamespace(3, "b", true)
	in.setWide(4, 1, pushcontext.ViewGateways, true)
	in.setInstances(5, []model.InstanceKey{{Cluster: "c1", IP: netip.MustParseAddr("10.0.0.1")}}, true)
	check := func(d pushcontext.Delta, want ...uint32) {
		t.Helper()
		if got := in.touched(&d).ToArray(); !slices.Equal(got, want) {
			t.Errorf("%+v concerns %v, want %v", d, got, want)
		}
	}
	check(pushcontext.Delta{Scopes: []string{"a"}}, 1, 2)
	check(pushcontext.Delta{Scopes: []string{"b", "c"}}, 3)
	check(pushcontext.Delta{Scopes: []string{"*"}}, 1, 2, 3)
	check(pushcontext.Delta{Gateways: true}, 4)
	check(pushcontext.Delta{Instances: []model.InstanceKey{{Cluster: "c1", IP: netip.MustParseAddr("10.0.0.1")}}}, 5)
	in.setNamespace(1, "a", false)
	in.setNamespace(2, "a", false)
	in.setNamespace(3, "b", false)
	if check(pushcontext.Delta{Scopes: []string{"*"}}); len(in.namespaces) > 0 {
		t.Errorf("%v is kept of sidecars that are gone", in.namespaces)
	}
}

// A router is reached at the ports of its own services: at its own port of each number, of the first service
// that has it.
func TestGatewayPorts(t *testing.T) {
	t.Parallel()
	of := func(targets ...pushcontext.Target) *pushcontext.InstanceView {
		return &pushcontext.InstanceView{Targets: &pushcontext.TargetsView{Targets: targets}}
	}
	for want, in := range map[string]*pushcontext.InstanceView{
		"": nil,
		"80:8080,443:8443": of(pushcontext.Target{Port: 443, Endpoint: 8443, Host: "b"}, pushcontext.Target{Port: 80, Endpoint: 8080, Host: "a"},
			pushcontext.Target{Port: 80, Endpoint: 9090, Host: "c"}, pushcontext.Target{Port: 53, Endpoint: 5353, Protocol: model.ProtocolUDP},
			pushcontext.Target{Port: 81, Endpoint: 8081, OwnPort: true}),
	} {
		if got := gatewayPorts(in); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
