package gen_test

import (
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	"github.com/google/go-cmp/cmp"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/pushcontext"
	"github.com/isthmus-mesh/isthmus/xds/gen"
)

// An address is sent once, however many members list it.
func TestSelectUniqueAddresses(t *testing.T) {
	t.Parallel()
	const dup = model.ReasonDuplicate
	sick := health(model.Unhealthy)
	twice := func(edits ...func(*model.Endpoint)) svc {
		return cart(ep("c1", "http", "10.0.0.1:80", weight(2)), ep("c2", "http", "10.0.0.1:80", append(edits, weight(3))...), ep("c2", "http", "10.0.0.2:80"))
	}
	left := map[string]model.Reason{"10.0.0.1:80": dup}
	gateways := newMesh(func(m *settings) {
		m.gateways = []pushcontext.Gateway{gateway("n2", "c2", "192.0.2.2:15443"), gateway("n2", "c3", "192.0.2.2:15443"), gateway("n2", "c3", "192.0.2.3:15443")}
	})
	n1 := sidecar("c1", "shop", onNetwork("n1"))
	near := sidecar("c1", "shop", onNetwork("n1"), inZone("r1/z1"))
	for _, c := range []selectCase{
		{name: "that of the proxy's own member", mesh: newMesh(), svc: twice(), class: sidecar("c1", "shop"), left: left,
			want: []string{"p0  w=3: 10.0.0.1:80*2 10.0.0.2:80*1"}},
		{name: "seen from the other", mesh: newMesh(), svc: twice(), class: sidecar("c2", "shop"), left: left,
			want: []string{"p0  w=4: 10.0.0.1:80*3 10.0.0.2:80*1"}},
		{name: "its own even if unhealthy", mesh: newMesh(), svc: twice(sick), class: sidecar("c2", "shop"), left: left,
			want: []string{"p0  w=4: 10.0.0.1:80*3! 10.0.0.2:80*1"}},
		{name: "from a third, the first", mesh: newMesh(), svc: twice(), class: sidecar("c3", "shop"), left: left,
			want: []string{"p0  w=3: 10.0.0.1:80*2 10.0.0.2:80*1"}},
		{name: "from a third, the healthier", mesh: newMesh(), class: sidecar("c3", "shop"), left: left,
			svc:  cart(ep("c1", "http", "10.0.0.1:80", sick), ep("c2", "http", "10.0.0.1:80", weight(3))),
			want: []string{"p0  w=3: 10.0.0.1:80*3"}},
		{name: "in different localities", mesh: newMesh(), class: sidecar("c2", "shop"), left: left,
			svc:  cart(ep("c1", "http", "10.0.0.1:80", at("r1")), ep("c2", "http", "10.0.0.1:80", at("r2"))),
			want: []string{"p0 r2 w=1: 10.0.0.1:80*1"}},
		{name: "from a third, that of a member that is not stale", mesh: newMesh(), class: sidecar("c3", "shop"), left: left,
			demote: []model.ShardKey{{Provider: model.ProviderKubernetes, Cluster: "c1"}}, svc: twice(),
			want: []string{"p0  w=4: 10.0.0.1:80*3 10.0.0.2:80*1"}},
		{name: "one of them left out anyway", mesh: newMesh(), svc: twice(health(model.Terminating)), class: sidecar("c2", "shop"),
			want: []string{"p0  w=3: 10.0.0.1:80*2 10.0.0.2:80*1"}, left: map[string]model.Reason{"10.0.0.1:80": model.ReasonTerminating}},
		{name: "of different networks, only one is dialled", mesh: newMesh(twoNetworks), class: n1,
			svc:  cart(ep("c1", "http", "10.0.0.1:80", network("n1")), ep("c2", "http", "10.0.0.1:80", network("n2"), mtls)),
			want: []string{"p0  w=12: 10.0.0.1:80*6 192.0.2.2:15443*3 192.0.2.3:15443*3"}},
		{name: "a gateway of two members", mesh: gateways, class: n1,
			svc:  cart(ep("c2", "http", "10.2.0.1:80", network("n2"), mtls), ep("c3", "http", "10.3.0.1:80", network("n2"), mtls)),
			want: []string{"p0  w=12: 192.0.2.2:15443*9 192.0.2.3:15443*3"}},
		{name: "a gateway for two priorities", mesh: newMesh(twoNetworks, failover, setting(&networking.LocalityLoadBalancerSetting{})), class: near,
			svc:  cart(ep("c2", "http", "10.2.0.1:80", network("n2"), mtls, at("r1/z1")), ep("c2", "http", "10.2.0.2:80", network("n2"), mtls, at("r2/z1"))),
			want: []string{"p0 r1/z1 w=6: 192.0.2.2:15443*3 192.0.2.3:15443*3"}, left: map[string]model.Reason{"10.2.0.2:80": dup}},
	} {
		t.Run(c.name, c.run)
	}
}

// The proxy's member is a trait of a service only where it decides between equal addresses.
func TestUniqueAddressesCostClassesOnlyWhereTheyMatter(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name      string
		mesh      *settings
		endpoints []*model.Endpoint
		want      bool
	}{
		{"distinct", newMesh(), []*model.Endpoint{ep("c1", "http", "10.0.0.1:80"), ep("c2", "http", "10.0.0.2:80")}, false},
		{"another port", newMesh(), []*model.Endpoint{ep("c1", "http", "10.0.0.1:80"), ep("c2", "http", "10.0.0.1:81")}, false},
		{"equal", newMesh(), []*model.Endpoint{ep("c1", "http", "10.0.0.1:80"), ep("c2", "http", "10.0.0.1:80")}, true},
		{"equal, networks without gateways", newMesh(), []*model.Endpoint{ep("c1", "http", "10.0.0.1:80", network("n1")), ep("c2", "http", "10.0.0.1:80", network("n2"))}, true},
		{"equal in one member, networks without gateways", newMesh(), []*model.Endpoint{ep("c1", "http", "10.0.0.1:80", network("n1")), ep("c1", "http", "10.0.0.1:80", network("n2"))}, true},
		{"equal, one network behind a gateway", newMesh(twoNetworks), []*model.Endpoint{ep("c1", "http", "10.0.0.1:80", network("n1")), ep("c2", "http", "10.0.0.1:80", network("n2"))}, true},
		{"equal, networks behind gateways", newMesh(twoNetworks), []*model.Endpoint{ep("c1", "http", "10.0.0.1:80", network("n3")), ep("c2", "http", "10.0.0.1:80", network("n2"))}, false},
		{"equal, one network", newMesh(twoNetworks), []*model.Endpoint{ep("c1", "http", "10.0.0.1:80", network("n2")), ep("c2", "http", "10.0.0.1:80", network("n2"))}, true},
		{"without address", newMesh(), []*model.Endpoint{ep("c1", "http", ":80"), ep("c2", "http", ":80")}, false},
	} {
		v := cart(c.endpoints...).view(c.mesh)
		if got := (gen.Endpoints{}).Traits(v)&gen.TraitCluster != 0; got != c.want {
			t.Errorf("%s: the member is a trait: %v", c.name, got)
		}
	}
}

// What proxies resolve themselves is in the cluster, where names count as addresses.
func TestUniqueNames(t *testing.T) {
	t.Parallel()
	s := svc{host: "a.example", ns: "shop", ports: []model.Port{httpPort(80)}, resolution: model.DNSLB, inline: []*model.Endpoint{
		ep("c1", "http", "b.example:80", weight(2)), ep("c2", "http", "b.example:80", weight(3)), ep("c2", "http", "b.example:81")}}
	for class, want := range map[string][]string{"c1": {"p0  w=3: b.example:80*2 b.example:81*1"}, "c2": {"p0  w=4: b.example:80*3 b.example:81*1"}} {
		for _, r := range build(t, gen.Clusters{}, s.shape(newMesh()), sidecar(class, "shop")) {
			if d := cmp.Diff(want, assignmentText(decode(t, r).(*clusterv3.Cluster).LoadAssignment)); d != "" {
				t.Errorf("proxy of %s:\n%s", class, d)
			}
		}
	}
}
