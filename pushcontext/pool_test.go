package pushcontext

import (
	"net/netip"
	"testing"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
)

// A workload is told of the connection pool that the rule for its service's own namespace has; a rule that changes
// something else, or is made anew with the same pool, leaves what it serves as it is.
func TestTargetsHaveThePoolOfTheirRule(t *testing.T) {
	t.Parallel()
	pool := func(n int32) *networking.ConnectionPoolSettings {
		return &networking.ConnectionPoolSettings{Tcp: &networking.ConnectionPoolSettings_TCPSettings{MaxConnections: n}}
	}
	rule := func(namespace string, p *networking.TrafficPolicy) *DestinationPolicy {
		return &DestinationPolicy{Namespace: namespace, Export: Export{Public: true}, Spec: &networking.DestinationRule{TrafficPolicy: p}}
	}
	port := model.Port{Name: "http", Number: 80, Protocol: model.ProtocolHTTP}
	m := testMesh()
	view := func(policies ...*DestinationPolicy) *ServiceView {
		s := &ShapeView{Key: model.ServiceKey{Namespace: "ns", Host: "a.ns"}, Name: "a", Ports: []model.Port{port}, Export: Export{Public: true}, Mesh: m, Policies: policies}
		e := &model.Endpoint{Addr: model.Addr{Cluster: "c1", AddrPort: netip.MustParseAddrPort("10.0.0.1:8080")}, PortName: "http"}
		return &ServiceView{Shape: s, Endpoints: []PortEndpoints{{Port: "http", Localities: []LocalityEndpoints{{Endpoints: []*model.Endpoint{e}}}}}}
	}
	b := NewBuilder()
	b.Commit(Commit{Mesh: m})
	var last *TargetsView
	for _, c := range []struct {
		name     string
		policies []*DestinationPolicy
		want     int32
		same     bool // as before
	}{
		{"no rule", nil, 0, false},
		{"of another namespace", []*DestinationPolicy{rule("client", &networking.TrafficPolicy{ConnectionPool: pool(9)})}, 0, true},
		{"of its own", []*DestinationPolicy{rule("ns", &networking.TrafficPolicy{ConnectionPool: pool(1)})}, 1, false},
		{"made anew", []*DestinationPolicy{rule("ns", &networking.TrafficPolicy{ConnectionPool: pool(1), Tls: &networking.ClientTLSSettings{}})}, 1, true},
		{"of the port", []*DestinationPolicy{rule("ns", &networking.TrafficPolicy{ConnectionPool: pool(1), PortLevelSettings: []*networking.TrafficPolicy_PortTrafficPolicy{
			{Port: &networking.PortSelector{Number: 80}, ConnectionPool: pool(2)}}})}, 2, false},
		{"of another port", []*DestinationPolicy{rule("ns", &networking.TrafficPolicy{ConnectionPool: pool(3), PortLevelSettings: []*networking.TrafficPolicy_PortTrafficPolicy{
			{Port: &networking.PortSelector{Number: 81}, ConnectionPool: pool(2)}}})}, 3, false},
		{"no more", nil, 0, false},
	} {
		pc, _ := b.Commit(Commit{Services: []Change{{Key: model.ServiceKey{Namespace: "ns", Host: "a.ns"}, View: view(c.policies...)}}})
		got := pc.Instance(model.InstanceKey{Cluster: "c1", IP: ip("10.0.0.1")}).Targets
		if n := got.Targets[0].Pool.GetTcp().GetMaxConnections(); n != c.want || c.same != (got == last) {
			t.Errorf("%s: %d, the view is the last one: %v", c.name, n, got == last)
		}
		last = got
	}
}
