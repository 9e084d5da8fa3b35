package gen_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/pushcontext"
	"github.com/isthmus-mesh/isthmus/xds/gen"
)

// elsewhere gives an endpoint alternatives, written as "network=ip:port".
func elsewhere(list ...string) func(*model.Endpoint) {
	return func(e *model.Endpoint) {
		e.Alternatives = &model.Alternatives{}
		for _, s := range list {
			network, addr, _ := strings.Cut(s, "=")
			at := netip.MustParseAddrPort(addr)
			*e.Alternatives = append(*e.Alternatives, model.Alternative{Network: network, IP: at.Addr(), Port: at.Port(), Name: "wan"})
		}
	}
}

// TestSelectAlternatives: proxies of another network dial the address that is for it, themselves.
func TestSelectAlternatives(t *testing.T) {
	t.Parallel()
	gateways := newMesh(func(m *settings) { m.gateways = []pushcontext.Gateway{gateway("n2", "", "1.1.1.1:15443")} })
	on := func(n string, edits ...func(*gen.Class)) gen.Class {
		return sidecar("c1", "shop", append(edits, onNetwork(n))...)
	}
	both := cart(ep("c2", "http", "10.0.0.1:80", network("n2"), elsewhere("n1=192.0.2.1:8080", "*=192.0.2.9:80"), weight(3), at("r2/z1")),
		ep("c2", "http", "10.0.0.2:80", network("n2"), mtls))
	for _, c := range []selectCase{
		{name: "past the gateway, whatever the mode of TLS; who has none is as ever", mesh: gateways, svc: both, class: on("n1", certified),
			want: []string{"p0  w=1: 1.1.1.1:15443*1", "p0 r2/z1 w=3: 192.0.2.1:8080*3"}},
		{name: "any other network", mesh: gateways, svc: both, class: on("n3", certified), want: []string{"p0  w=1: 1.1.1.1:15443*1", "p0 r2/z1 w=3: 192.0.2.9:80*3"}},
		{name: "the endpoint's own network", mesh: gateways, svc: both, class: on("n2"), want: []string{"p0  w=1: 10.0.0.2:80*1", "p0 r2/z1 w=3: 10.0.0.1:80*3"}},
		{name: "a proxy of no network", mesh: gateways, svc: both, class: sidecar("c1", "shop", certified), want: []string{"p0  w=1: 1.1.1.1:15443*1"},
			left: map[string]model.Reason{"10.0.0.1:80": model.ReasonNoMTLS}},
		{name: "without any gateway", mesh: newMesh(), svc: both, class: on("n1"), want: []string{"p0  w=1: 10.0.0.2:80*1", "p0 r2/z1 w=3: 192.0.2.1:8080*3"}},
		{name: "an endpoint of no network", mesh: newMesh(), svc: cart(ep("c2", "http", "10.0.0.1:80", elsewhere("n1=192.0.2.1:80"))), class: on("n1"),
			want: []string{"p0  w=1: 192.0.2.1:80*1"}},
		{name: "none for the proxy's network", mesh: gateways, svc: cart(ep("c2", "http", "10.0.0.1:80", network("n2"), mtls, elsewhere("n3=192.0.2.1:80"))), class: on("n1", certified),
			want: []string{"p0  w=1: 1.1.1.1:15443*1"}},
		{name: "of a family that the proxy has not", mesh: gateways, svc: cart(ep("c2", "http", "10.0.0.1:80", network("n2"), mtls, elsewhere("n1=[2001:db8::1]:80"))), class: on("n1", certified),
			want: []string{"p0  w=1: 1.1.1.1:15443*1"}},
		{name: "unready ones are sent as such", mesh: gateways, class: on("n1"), svc: cart(ep("c2", "http", "10.0.0.1:80", network("n2"), health(model.Unhealthy), elsewhere("*=192.0.2.1:80"))),
			want: []string{"p0  w=1: 192.0.2.1:80*1!"}},
		{name: "what the proxy does not ask for", mesh: gateways, class: on("n1", func(c *gen.Class) { c.NetworkView = "n1" }),
			svc:  cart(ep("c2", "http", "10.0.0.1:80", network("n2"), elsewhere("*=192.0.2.1:80"))),
			left: map[string]model.Reason{"10.0.0.1:80": model.ReasonNetworkView}},
		{name: "locality and failover are the endpoint's", mesh: newMesh(failover, inside), class: on("n1", inZone("r2/z1")),
			svc: cart(ep("c2", "http", "10.0.0.1:80", network("n2"), at("r1/z1"), elsewhere("*=192.0.2.1:80")),
				ep("c2", "http", "10.0.0.2:80", network("n2"), at("r2/z1"), elsewhere("*=192.0.2.2:80"))),
			want: []string{"p0 r2/z1 w=1: 192.0.2.2:80*1", "p1 r1/z1 w=1: 192.0.2.1:80*1"}},
		{name: "one address for several, with their weights", mesh: newMesh(), class: on("n1"),
			svc: cart(ep("c2", "http", "10.0.0.1:80", network("n2"), elsewhere("*=192.0.2.1:80"), weight(2)), ep("c2", "http", "10.0.0.2:80", network("n2"), elsewhere("*=192.0.2.1:80"), weight(3)),
				ep("c2", "http", "10.0.0.3:80", network("n2"), elsewhere("*=192.0.2.1:80"), health(model.Unhealthy))),
			want: []string{"p0  w=5: 192.0.2.1:80*5"}, left: map[string]model.Reason{"10.0.0.2:80": model.ReasonDuplicate, "10.0.0.3:80": model.ReasonDuplicate}},
		{name: "the address of another endpoint", mesh: newMesh(), class: on("n1"),
			svc:  cart(ep("c2", "http", "10.0.0.1:80", network("n2"), elsewhere("*=10.0.0.2:80")), ep("c2", "http", "10.0.0.2:80", network("n2"))),
			want: []string{"p0  w=1: 10.0.0.2:80*1"}, left: map[string]model.Reason{"10.0.0.2:80": model.ReasonDuplicate}},
		{name: "both families of a workload", mesh: newMesh(), class: on("n1", func(c *gen.Class) { c.IPv6 = true }),
			svc:  cart(ep("c2", "http", "10.0.0.1:80", network("n2"), elsewhere("*=[2001:db8::1]:80")), ep("c2", "http", "[fd00::1]:80", network("n2"), elsewhere("*=192.0.2.1:80"))),
			want: []string{"p0  w=1: 192.0.2.1:80+2001:db8::1*1"}},
	} {
		t.Run(c.name, c.run)
	}
}

// inside turns the failover by localities on.
func inside(m *settings) { setting(&localitySetting{})(m) }

// TestExplainAlternatives: why an endpoint is dialled elsewhere than at its address.
func TestExplainAlternatives(t *testing.T) {
	t.Parallel()
	v := cart(ep("c2", "http", "10.0.0.1:80", network("n2"), elsewhere("n1=192.0.2.1:8080")), ep("c2", "http", "10.0.0.2:80", network("n2"), elsewhere("n1=192.0.2.1:8080"))).view(newMesh())
	got := gen.ExplainEndpoints(v, sidecar("c1", "shop", onNetwork("n1")), httpPort(80))
	if v := got[0]; !v.Sent || v.Alternative == nil || v.Weight != 2 || len(v.Gateways) > 0 || v.Detail != "dialled at 192.0.2.1:8080, its address wan, as the proxy is on network n1" {
		t.Errorf("%+v", v)
	}
	if v := got[1]; v.Sent || v.Alternative != nil || v.Detail != "from the proxy's network 10.0.0.1:80 is dialled at the same address, 192.0.2.1:8080, which can be sent once only" {
		t.Errorf("%+v", v)
	}
	if v := gen.ExplainEndpoints(v, sidecar("c1", "shop", onNetwork("n2")), httpPort(80))[0]; !v.Sent || v.Alternative != nil || v.Detail != "" {
		t.Errorf("%+v", v)
	}
}

// TestAlternativesTellClassesApart: proxies of several networks get resources of their own, others share theirs.
func TestAlternativesTellClassesApart(t *testing.T) {
	t.Parallel()
	with := cart(ep("c2", "http", "10.0.0.1:80", elsewhere("n1=192.0.2.1:8080"))).view(newMesh())
	without := cart(ep("c2", "http", "10.0.0.1:80")).view(newMesh())
	if (gen.Endpoints{}).Traits(with)&gen.TraitNetwork == 0 || (gen.Endpoints{}).Traits(without)&gen.TraitNetwork != 0 {
		t.Error("the network must count where endpoints have alternatives, and there only")
	}
}
