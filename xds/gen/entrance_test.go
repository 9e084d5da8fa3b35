package gen_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/types/known/wrapperspb"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/pushcontext"
	"github.com/isthmus-mesh/isthmus/xds/gen"
)

func viewing(networks string) func(*gen.Class) {
	return func(c *gen.Class) { c.NetworkView = networks }
}

// REQUESTED_NETWORK_VIEW: endpoints of other networks are left out, with gateways or without; those of
// no network never.
func TestSelectNetworkView(t *testing.T) {
	t.Parallel()
	s := cart(ep("c1", "http", "10.0.0.1:80", network("n1")), ep("c2", "http", "10.0.0.2:80", network("n2"), mtls), ep("c3", "http", "10.0.0.3:80", network("n5")), ep("c1", "http", "10.0.0.4:80"))
	const out = model.ReasonNetworkView
	for _, c := range []selectCase{
		{name: "all", mesh: newMesh(), svc: s, class: sidecar("c1", "shop", onNetwork("n1")), want: []string{"p0  w=4: 10.0.0.1:80*1 10.0.0.2:80*1 10.0.0.3:80*1 10.0.0.4:80*1"}},
		{name: "its own", mesh: newMesh(), svc: s, class: sidecar("c1", "shop", onNetwork("n1"), viewing("n1")), want: []string{"p0  w=2: 10.0.0.1:80*1 10.0.0.4:80*1"},
			left: map[string]model.Reason{"10.0.0.2:80": out, "10.0.0.3:80": out}},
		{name: "two", mesh: newMesh(), svc: s, class: sidecar("c1", "shop", onNetwork("n1"), viewing("n1,n5")), want: []string{"p0  w=3: 10.0.0.1:80*1 10.0.0.3:80*1 10.0.0.4:80*1"},
			left: map[string]model.Reason{"10.0.0.2:80": out}},
		{name: "through gateways", mesh: newMesh(twoNetworks), svc: s, class: sidecar("c1", "shop", onNetwork("n1"), viewing("n2")),
			want: []string{"p0  w=12: 10.0.0.4:80*6 192.0.2.2:15443*3 192.0.2.3:15443*3"}, left: map[string]model.Reason{"10.0.0.1:80": out, "10.0.0.3:80": out}},
		{name: "not its own", mesh: newMesh(), svc: s, class: sidecar("c1", "shop", onNetwork("n1"), viewing("n9")), want: []string{"p0  w=1: 10.0.0.4:80*1"},
			left: map[string]model.Reason{"10.0.0.1:80": out, "10.0.0.2:80": out, "10.0.0.3:80": out}},
	} {
		t.Run(c.name, c.run)
	}
}

// Whether a gateway can route to an endpoint: what a DestinationRule says of mutual TLS, else what the
// endpoint speaks. The reason names what decided.
func TestSelectMutualTLS(t *testing.T) {
	t.Parallel()
	demands := func(m model.MTLS) func(*model.Endpoint) {
		return func(e *model.Endpoint) {
			e.MTLS, e.MTLSSource = m, &model.Source{Object: model.ObjectKey{Kind: model.ConfigPeerAuthentication, Namespace: "shop", Name: "off"}}
		}
	}
	remote := func(edits ...func(*model.Endpoint)) svc {
		return cart(ep("c2", "http", "10.0.0.1:80", append([]func(*model.Endpoint){network("n2")}, edits...)...))
	}
	rule := func(s svc, m networking.ClientTLSSettings_TLSmode) svc {
		return underRules(s, destination("shop", "r", inMode(m)))
	}
	external := remote(mtls)
	external.edit = func(v *pushcontext.ShapeView) { v.External = true }
	noAuto := func(m *settings) { m.Config.EnableAutoMtls = wrapperspb.Bool(false) }
	const disable, simple, mutual, istio = networking.ClientTLSSettings_DISABLE, networking.ClientTLSSettings_SIMPLE, networking.ClientTLSSettings_MUTUAL, networking.ClientTLSSettings_ISTIO_MUTUAL
	for _, c := range []struct {
		name  string
		mesh  *settings
		svc   svc
		class gen.Class
		why   string // "" if it is sent
	}{
		{name: "spoken", svc: remote(mtls)},
		{name: "strict", svc: remote(mtls, demands(model.MTLSStrict))},
		{name: "not spoken", svc: remote(), why: "label security.istio.io/tlsMode"},
		{name: "turned off by PeerAuthentication", svc: remote(mtls, demands(model.MTLSDisabled)), why: "PeerAuthentication shop/off sets mode DISABLE"},
		{name: "DISABLE", svc: rule(remote(mtls), disable), why: "DestinationRule shop/r sets TLS mode DISABLE"},
		{name: "SIMPLE", svc: rule(remote(mtls), simple), why: "DestinationRule shop/r sets TLS mode SIMPLE"},
		{name: "MUTUAL", svc: rule(remote(mtls), mutual), why: "DestinationRule shop/r sets TLS mode MUTUAL"},
		{name: "ISTIO_MUTUAL", svc: rule(remote(mtls), istio)},
		{name: "ISTIO_MUTUAL, said not to be spoken", svc: rule(remote(), istio)},
		{name: "DISABLE for another port", svc: underRules(remote(mtls), destination("shop", "r", forPort(81, inMode(disable))))},
		{name: "DISABLE for the port", svc: underRules(remote(mtls), destination("shop", "r", forPort(80, inMode(disable)))), why: "sets TLS mode DISABLE"},
		{name: "DISABLE for another client", svc: underRules(remote(mtls), destination("bank", "r", inMode(disable)))},
		{name: "no automatic mutual TLS", mesh: newMesh(twoNetworks, noAuto), svc: remote(mtls), why: "the mesh's enableAutoMtls is off"},
		{name: "no automatic mutual TLS, but ISTIO_MUTUAL", mesh: newMesh(twoNetworks, noAuto), svc: rule(remote(mtls), istio)},
		{name: "outside of the mesh", svc: external, why: "the service is outside of the mesh"},
		{name: "no certificate", svc: remote(mtls), class: sidecar("c1", "shop"), why: "no certificate"},
		{name: "no certificate for ISTIO_MUTUAL", svc: rule(remote(mtls), istio), class: sidecar("c1", "shop"), why: "DestinationRule shop/r sets TLS mode ISTIO_MUTUAL, and the proxy has no certificate"},
	} {
		if c.mesh == nil {
			c.mesh = newMesh(twoNetworks)
		}
		if c.class == (gen.Class{}) {
			c.class = sidecar("c1", "shop", onNetwork("n1"))
		}
		v := gen.ExplainEndpoints(c.svc.view(c.mesh), c.class, httpPort(80))[0]
		switch {
		case c.why == "" && (!v.Sent || len(v.Gateways) != 2):
			t.Errorf("%s: %+v", c.name, v)
		case c.why != "" && (v.Sent || v.Reason != model.ReasonNoMTLS || !strings.Contains(v.Detail, c.why)):
			t.Errorf("%s: sent %v, %s %q, want %q", c.name, v.Sent, v.Reason, v.Detail, c.why)
		}
	}
}

// Proxies that resolve a service's names resolve those of gateways too: no answer of the hub's own is
// needed.
func TestIncident61NamedGatewaysOfDNSServices(t *testing.T) {
	t.Parallel()
	mesh := newMesh(func(m *settings) {
		m.gateways = []pushcontext.Gateway{gateway("n2", "c2", "192.0.2.2:15443"), named("n2", "c2", "gw.example", 15443), named("n3", "c3", "gw3.example", 443), {Network: "n4", Host: "noport.example"},
			{Network: "n2", Cluster: "c2", Addr: netip.MustParseAddrPort("192.0.2.9:0"), HBONEPort: 15008}} // of no use to anybody, and of no weight
	})
	s := svc{host: "db.example", ns: "shop", ports: []model.Port{httpPort(80)}, resolution: model.DNSLB, inline: []*model.Endpoint{
		ep("c1", "http", "db1.example:80", network("n1")), ep("c2", "http", "db2.example:80", network("n2"), mtls), ep("c3", "http", ":80", network("n3"), mtls), ep("c4", "http", "db4.example:80", network("n4"), mtls)}}
	class := sidecar("c1", "shop", onNetwork("n1"))
	for _, r := range build(t, gen.Clusters{}, s.shape(mesh), class) {
		want := []string{"p0  w=6: db1.example:80*2 gw.example:15443*1 192.0.2.2:15443*1 gw3.example:443*2"}
		if d := cmp.Diff(want, assignmentText(decode(t, r).(*clusterv3.Cluster).LoadAssignment)); d != "" {
			t.Error(d)
		}
	}
	pushed := s
	pushed.resolution, pushed.endpoints, pushed.inline = model.ClientSideLB, []*model.Endpoint{ep("c3", "http", "10.3.0.1:80", network("n3"), mtls)}, nil
	v := gen.ExplainEndpoints(pushed.view(mesh), class, httpPort(80))[0]
	if v.Reason != model.ReasonNoGateway {
		t.Errorf("a gateway that is not resolved is sent for pushed endpoints: %+v", v)
	}
}

// Connections to a headless service go to the address that they were made to, where they are intercepted;
// elsewhere its endpoints are balanced as any.
func TestIncident66HeadlessServicesHaveNoGateways(t *testing.T) {
	t.Parallel()
	mesh := newMesh(func(m *settings) { m.gateways = []pushcontext.Gateway{gateway("n2", "c2", "192.0.2.2:15443")} })
	s := cart(ep("c2", "http", "10.2.0.1:80", network("n2"), mtls))
	s.resolution = model.Passthrough
	class := sidecar("c1", "shop", onNetwork("n1"))
	if v := gen.ExplainEndpoints(s.view(mesh), class, httpPort(80))[0]; v.Sent || v.Reason != model.ReasonNoGateway || v.Detail == "" {
		t.Errorf("intercepted: %+v, want it left out with the reason", v)
	}
	class.Interception = gen.InterceptNone
	if v := gen.ExplainEndpoints(s.view(mesh), class, httpPort(80))[0]; !v.Sent || len(v.Gateways) != 1 {
		t.Errorf("not intercepted: %+v, want it sent by its gateway", v)
	}
}

func named(network, cluster, host string, port uint16) pushcontext.Gateway {
	g := gateway(network, cluster, "0.0.0.0:0")
	g.Host, g.Addr = host, ep("c1", "", fmt.Sprintf("%s:%d", host, port)).Addr.AddrPort
	return g
}

// Gateways of both families: a proxy of one uses its own, and the weights of all together stay the same.
func TestSelectGatewayFamilies(t *testing.T) {
	t.Parallel()
	mesh := newMesh(func(m *settings) {
		m.gateways = []pushcontext.Gateway{gateway("n2", "", "192.0.2.1:15443"), gateway("n2", "", "192.0.2.2:15443"), gateway("n2", "", "[2001:db8::1]:15443")}
	})
	s := cart(ep("c1", "http", "10.0.0.1:80", network("n1")), ep("c2", "http", "10.2.0.1:80", network("n2"), mtls), ep("c2", "http", "10.2.0.2:80", network("n2"), mtls))
	families := func(v4, v6 bool) gen.Class {
		return sidecar("c1", "shop", onNetwork("n1"), func(c *gen.Class) { c.IPv4, c.IPv6 = v4, v6 })
	}
	for _, c := range []selectCase{
		{name: "IPv4", mesh: mesh, svc: s, class: families(true, false), want: []string{"p0  w=6: 10.0.0.1:80*2 192.0.2.1:15443*2 192.0.2.2:15443*2"}},
		{name: "IPv6", mesh: mesh, svc: s, class: families(false, true), want: []string{"p0  w=3: 10.0.0.1:80*1 2001:db8::1:15443*2"}},
		{name: "both", mesh: mesh, svc: s, class: families(true, true), want: []string{"p0  w=9: 10.0.0.1:80*3 192.0.2.1:15443*2 192.0.2.2:15443*2 2001:db8::1:15443*2"}},
	} {
		t.Run(c.name, c.run)
	}
}

// Headless services have listeners at the addresses that the proxy asks for.
func TestNetworkViewOfHeadlessServices(t *testing.T) {
	t.Parallel()
	s := svc{host: "db.shop.svc.cluster.local", ports: []model.Port{tcpPort(90)}, resolution: model.Passthrough, inline: []*model.Endpoint{
		ep("c1", "tcp", "10.0.0.1:90", network("n1")), ep("c1", "tcp", "10.0.0.2:90", network("n2")), ep("c1", "tcp", "10.0.0.3:90")}}
	v := portView(90, newMesh(), s)
	for view, want := range map[string][]string{"": {"10.0.0.1_90", "10.0.0.2_90", "10.0.0.3_90"}, "n2": {"10.0.0.2_90", "10.0.0.3_90"}, "n3,n9": {"10.0.0.3_90"}} {
		if d := cmp.Diff(want, names(t, gen.Listeners{}, v, sidecar("c1", "shop", viewing(view)))); d != "" {
			t.Errorf("asking for %q (-want +got):\n%s", view, d)
		}
	}
}
