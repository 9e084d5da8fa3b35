package gen_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	tcpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"
	"github.com/google/go-cmp/cmp"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/pushcontext"
	"github.com/isthmus-mesh/isthmus/xds/gen"
)

// edge is a router that Gateways select.
func edge(edits ...func(*gen.Class)) gen.Class {
	return router("c1", "istio-system", append([]func(*gen.Class){func(c *gen.Class) {
		c.ExposeServices, c.GatewayPorts = false, "80:8080,443:8443"
	}}, edits...)...)
}

// plansOf says for each server where it is served, or why it is not.
func plansOf(v *pushcontext.GatewaysView, c gen.Class) []string {
	var out []string
	for _, x := range gen.ExplainGateways(v, c) {
		s := fmt.Sprintf("%s/%d: ", x.Server.Gateway, x.Server.Index)
		switch {
		case x.Reason != "":
			s += "not served: " + x.Reason
		case x.Table != "":
			s += x.Listener + " " + x.Table
		default:
			s += x.Listener
		}
		out = append(out, s)
	}
	return out
}

func bindTo(address string, s *networking.Server) *networking.Server { s.Bind = address; return s }

const (
	toCart = `http: [{route: [{destination: {host: cart.shop.svc.cluster.local, port: {number: 80}}}]}]`
	toDB   = `tcp: [{route: [{destination: {host: db.shop.svc.cluster.local, port: {number: 3306}}}]}]`
)

// endOf gives the table or the cluster of a chain, or its weighted clusters.
func endOf(t testing.TB, f *listenerv3.FilterChain) string {
	t.Helper()
	m, err := f.Filters[len(f.Filters)-1].GetTypedConfig().UnmarshalNew()
	if err != nil {
		t.Fatal(err)
	}
	switch m := m.(type) {
	case *hcmv3.HttpConnectionManager:
		return m.GetRds().GetRouteConfigName()
	case *tcpv3.TcpProxy:
		out := []string{m.GetCluster()}
		for _, c := range m.GetWeightedClusters().GetClusters() {
			out = append(out, fmt.Sprintf("%s*%d", c.Name, c.Weight))
		}
		return strings.TrimSpace(strings.Join(out, " "))
	}
	t.Fatalf("a chain ends in a %T", m)
	return ""
}

// Which servers share a socket, and what becomes of those that can't.
func TestGatewaysShareSockets(t *testing.T) {
	t.Parallel()
	tls := func(port uint32, name string, hosts ...string) *networking.Server {
		return portNamed(name, tlsServer(port, fileTLS(), hosts...))
	}
	db := routedTo("db", "istio-system/tcp", "'*'", toDB)
	for name, c := range map[string]struct {
		servers []*pushcontext.GatewayServer
		class   func(*gen.Class)
		want    []string
	}{
		"ports are those of the router's own services": {
			gatewayOf("a", httpServer(80, "*"), httpServer(8080, "*"), httpServer(81, "*"), tls(443, "https", "*")), nil,
			[]string{"a/0: gateway_0.0.0.0_8080 http.8080", "a/1: gateway_0.0.0.0_8080 http.8080", "a/2: gateway_0.0.0.0_81 http.81",
				"a/3: gateway_0.0.0.0_8443 https.443.https.a.istio-system"}},
		"HTTP is merged by host, TLS by server name": {
			join(gatewayOf("a", httpServer(80, "a.example"), tls(443, "https", "a.example")), gatewayOf("b", server(80, "GRPC", "b.example"), tls(443, "https", "b.example", "*.a.example"))), nil,
			[]string{"a/0: gateway_0.0.0.0_8080 http.8080", "a/1: gateway_0.0.0.0_8443 https.443.https.a.istio-system",
				"b/0: gateway_0.0.0.0_8080 http.8080", "b/1: gateway_0.0.0.0_8443 https.443.https.b.istio-system"}},
		"a host of a TLS port is the older Gateway's": {
			join(gatewayOf("a", tls(443, "https", "x/a.example")), gatewayOf("b", tls(443, "https", "b.example", "y/a.example"), tls(443, "two", "b.example"))), nil,
			[]string{"a/0: gateway_0.0.0.0_8443 https.443.https.a.istio-system",
				"b/0: not served: host a.example on this port is for server 0 of Gateway istio-system/a", "b/1: gateway_0.0.0.0_8443 https.443.two.b.istio-system"}},
		"port names tell TLS servers apart": {
			gatewayOf("a", tls(443, "https", "a.example"), tls(443, "https", "b.example"), tls(443, "b", "b.example")), nil,
			[]string{"a/0: gateway_0.0.0.0_8443 https.443.https.a.istio-system",
				"a/1: not served: server 0 of the Gateway has a port of the same name, by which TLS servers are told apart",
				"a/2: gateway_0.0.0.0_8443 https.443.b.a.istio-system"}},
		"other protocols share nothing": {
			bound(newMesh(), join(gatewayOf("tcp", server(80, "TCP", "*"), server(443, "TCP", "*"), server(443, "MYSQL", "*")), gatewayOf("z", httpServer(80, "*"), tls(443, "https", "*"))), db), nil,
			[]string{"tcp/0: gateway_0.0.0.0_8080", "tcp/1: gateway_0.0.0.0_8443",
				"tcp/2: not served: server 1 of Gateway istio-system/tcp has the port, with protocol tcp",
				"z/0: not served: server 0 of Gateway istio-system/tcp has the port, with protocol tcp",
				"z/1: not served: server 1 of Gateway istio-system/tcp has the port, with protocol tcp"}},
		"HTTP and TLS do not": {
			gatewayOf("a", httpServer(443, "a.example"), tls(443, "https", "b.example")), nil,
			[]string{"a/0: gateway_0.0.0.0_8443 http.8443", "a/1: not served: server 0 of Gateway istio-system/a has the port, with protocol http"}},
		"addresses are sockets of their own": {
			gatewayOf("a", httpServer(80, "*"), bindTo("10.0.0.1", httpServer(80, "*")), bindTo("0.0.0.0", httpServer(80, "*")), bindTo("2001:db8::1", httpServer(80, "*")),
				bindTo("unix:///run/gw.sock", httpServer(80, "*")), bindTo("unix:///run/gw.sock", httpServer(81, "*")), bindTo("gw.example", httpServer(80, "*"))), nil,
			[]string{"a/0: gateway_0.0.0.0_8080 http.8080", "a/1: gateway_10.0.0.1_8080 http.8080.10.0.0.1", "a/2: gateway_0.0.0.0_8080 http.8080",
				"a/3: not served: the router has no address of the family of 2001:db8::1", "a/4: gateway_unix:///run/gw.sock_80 http.80.unix:///run/gw.sock",
				"a/5: not served: unix:///run/gw.sock is used for port 80", `a/6: not served: "gw.example" is no address to bind to`}},
		"a path needs no port": {
			gatewayOf("a", bindTo("unix:///run/gw.sock", httpServer(0, "a.example")), bindTo("unix:///run/gw.sock", httpServer(0, "b.example")), bindTo("unix:///run/secure", tls(0, "https", "*"))), nil,
			[]string{"a/0: gateway_unix:///run/gw.sock_0 http.0.unix:///run/gw.sock", "a/1: gateway_unix:///run/gw.sock_0 http.0.unix:///run/gw.sock",
				"a/2: gateway_unix:///run/secure_0 https.0.https.a.istio-system.unix:///run/secure"}},
		"a proxy on a loopback address binds there": {
			gatewayOf("a", httpServer(80, "*"), bindTo("127.0.0.9", httpServer(80, "*"))), func(c *gen.Class) { c.Bind = netip.MustParseAddr("127.0.0.9") },
			[]string{"a/0: gateway_127.0.0.9_8080 http.8080", "a/1: gateway_127.0.0.9_8080 http.8080"}},
		"what can't be served": {
			gatewayOf("a", httpServer(0, "*"), httpServer(15021, "*"), httpServer(80), server(80, "UDP", "*"), server(80, "QUIC", "*"), server(80, "HTTPS", "*"), server(81, "TCP", "*"),
				&networking.Server{Hosts: []string{"*"}}), nil,
			[]string{"a/0: not served: it has no port", "a/1: not served: port 15021 is the proxy's own", "a/2: not served: it has no hosts",
				`a/3: not served: protocol "UDP" is not served`, `a/4: not served: protocol "QUIC" is not served`, "a/5: not served: protocol HTTPS needs TLS settings",
				"a/6: not served: no VirtualService that is bound to the Gateway has a TCP or TLS route for it", "a/7: not served: it has no port"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMesh()
			class := edge()
			if c.class != nil {
				c.class(&class)
			}
			v := gatewaysView(m, c.servers)
			if d := cmp.Diff(c.want, plansOf(v, class)); d != "" {
				t.Error(d)
			}
			agree(t, v, class)
		})
	}
}

// agree checks that listeners and tables are those that the verdicts name, and that a sidecar has none of them.
func agree(t *testing.T, v *pushcontext.GatewaysView, c gen.Class) {
	t.Helper()
	want := map[string]bool{}
	for _, x := range gen.ExplainGateways(v, c) {
		for _, n := range []string{x.Listener, x.Table} {
			want[n] = n != ""
		}
	}
	got := map[string]bool{"": false}
	for _, r := range append(build(t, gen.Listeners{}, v, c), build(t, gen.Routes{}, v, c)...) {
		got[r.name] = true
	}
	delete(want, "")
	delete(got, "")
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("names:\n%s", d)
	}
	if n := names(t, gen.Listeners{}, v, sidecar("c1", "istio-system")); n != nil {
		t.Errorf("a sidecar has %v", n)
	}
}

// A server without usable certificates takes no traffic: neither in cleartext nor under another server's certificate. Its hosts are
// not free for others, also where a pattern of another server covers them.
func TestGatewaysWithoutCertificates(t *testing.T) {
	t.Parallel()
	edit := func(f func(*networking.ServerTLSSettings)) *networking.ServerTLSSettings {
		s := fileTLS()
		f(s)
		return s
	}
	for want, tls := range map[string]*networking.ServerTLSSettings{
		"credentials by name":            edit(func(s *networking.ServerTLSSettings) { s.CredentialName = "cert" }),
		"credentials by name (":          edit(func(s *networking.ServerTLSSettings) { s.CredentialNames = []string{"a", "b"} }),
		"no serverCertificate":           {Mode: networking.ServerTLSSettings_SIMPLE},
		"no serverCertificate and":       edit(func(s *networking.ServerTLSSettings) { s.PrivateKey = "" }),
		"no caCertificates":              edit(func(s *networking.ServerTLSSettings) { s.Mode = networking.ServerTLSSettings_MUTUAL }),
		"no caCertificates to":           edit(func(s *networking.ServerTLSSettings) { s.Mode = networking.ServerTLSSettings_OPTIONAL_MUTUAL }),
		"the router's own certificate":   {Mode: networking.ServerTLSSettings_ISTIO_MUTUAL},
		"verifyCertificateSpki[0] is no": edit(func(s *networking.ServerTLSSettings) { s.VerifyCertificateSpki = []string{"x"} }),
		"verifyCertificateHash[1] is no SH": edit(func(s *networking.ServerTLSSettings) {
			s.VerifyCertificateHash = []string{strings.Repeat("ab", 32), "abc"}
		}),
	} {
		v := gatewaysView(newMesh(), join(gatewayOf("a", tlsServer(443, tls, "a.example")), gatewayOf("b", tlsServer(443, fileTLS(), "a.example"), portNamed("c", tlsServer(443, fileTLS(), "*.example")))))
		got := plansOf(v, edge())
		if !strings.Contains(got[0], "not served") || !strings.Contains(got[0], want) || !strings.Contains(got[1], "is for server 0 of Gateway istio-system/a") {
			t.Errorf("%s: %v", want, got)
		}
		l := decode(t, build(t, gen.Listeners{}, v, edge())[0]).(*listenerv3.Listener)
		chains := map[string]string{}
		for _, f := range l.FilterChains {
			chains[strings.Join(f.GetFilterChainMatch().GetServerNames(), ",")] = endOf(t, f)
		}
		if d := cmp.Diff(map[string]string{"a.example": "BlackHoleCluster", "*.example": "https.443.c.b.istio-system"}, chains); d != "" || l.DefaultFilterChain != nil {
			t.Errorf("%s:\n%s", want, d)
		}
		agree(t, v, edge())
	}
}

// gatewayTable builds a table of a router.
func gatewayTable(t testing.TB, v *pushcontext.GatewaysView, c gen.Class, name string) *routev3.RouteConfiguration {
	t.Helper()
	for _, r := range build(t, gen.Routes{}, v, c) {
		if r.name == name {
			return decode(t, r).(*routev3.RouteConfiguration)
		}
	}
	t.Fatalf("no table %s", name)
	return nil
}

// hostsText says which routes each virtual host of a table has.
func hostsText(m *routev3.RouteConfiguration) []string {
	var out []string
	for _, h := range m.VirtualHosts {
		s := h.Name + " " + strings.Join(h.Domains, ",")
		for _, r := range h.Routes {
			s += " " + r.Name
		}
		if h.RequireTls != routev3.VirtualHost_NONE {
			s += " " + h.RequireTls.String()
		}
		out = append(out, s)
	}
	return out
}

// The virtual hosts of a table: what servers and VirtualServices have in common, the narrower of both.
func TestGatewayHosts(t *testing.T) {
	t.Parallel()
	vs := func(name, hosts string, edits ...func(*pushcontext.VirtualService)) *pushcontext.VirtualService {
		v := routedTo(name, "istio-system/a", hosts, `http: [{name: `+name+`-exact, match: [{uri: {exact: /`+name+`}}], directResponse: {status: 200}}, {name: `+name+`, directResponse: {status: 200}}]`)
		for _, e := range edits {
			e(v)
		}
		return v
	}
	private := func(v *pushcontext.VirtualService) { v.Export = pushcontext.NewExport([]string{"."}, nil, "shop") }
	redirecting := func(s *networking.Server) *networking.Server {
		s.Tls = &networking.ServerTLSSettings{HttpsRedirect: true}
		return s
	}
	for name, c := range map[string]struct {
		servers []*networking.Server
		routes  []*pushcontext.VirtualService
		want    []string
	}{
		"a host of all hosts": {[]*networking.Server{httpServer(80, "*")}, []*pushcontext.VirtualService{vs("v", "a.example, b.example")}, []string{"a.example:80 a.example v-exact v", "b.example:80 b.example v-exact v"}},
		"hosts of a pattern":  {[]*networking.Server{httpServer(80, "a.example", "b.test", "*.x.example")}, []*pushcontext.VirtualService{vs("v", "'*.example'")}, []string{"*.x.example:80 *.x.example v-exact v", "a.example:80 a.example v-exact v"}},
		"a star within a label": {[]*networking.Server{httpServer(80, "*.example", "b-eu.test")}, []*pushcontext.VirtualService{vs("v", "'*-eu.example'"), vs("w", "'*u.test', '*e'"), vs("x", "'*.net'")},
			[]string{"*-eu.example:80 *-eu.example v-exact v", "*.example:80 *.example w-exact w", "b-eu.test:80 b-eu.test w-exact w"}},
		"nothing in common":        {[]*networking.Server{httpServer(80, "a.example")}, []*pushcontext.VirtualService{vs("v", "b.example")}, []string{"blackhole:80 *"}},
		"of another namespace":     {[]*networking.Server{httpServer(80, "other/*")}, []*pushcontext.VirtualService{vs("v", "b.example")}, []string{"blackhole:80 *"}},
		"of its namespace":         {[]*networking.Server{httpServer(80, "shop/*")}, []*pushcontext.VirtualService{vs("v", "b.example")}, []string{"b.example:80 b.example v-exact v"}},
		"not exported":             {[]*networking.Server{httpServer(80, "*")}, []*pushcontext.VirtualService{vs("v", "b.example", private)}, []string{"blackhole:80 *"}},
		"several for one host":     {[]*networking.Server{httpServer(80, "*")}, []*pushcontext.VirtualService{vs("v", "a.example"), vs("w", "a.example")}, []string{"a.example:80 a.example v-exact w-exact v"}},
		"of servers that are one":  {[]*networking.Server{httpServer(80, "a.example"), httpServer(8080, "b.example")}, []*pushcontext.VirtualService{vs("v", "'*'")}, []string{"a.example:80 a.example v-exact v", "b.example:8080 b.example v-exact v"}},
		"redirects without routes": {[]*networking.Server{redirecting(httpServer(80, "a.example", "*"))}, []*pushcontext.VirtualService{vs("v", "a.example")}, []string{"*:80 * ALL", "a.example:80 a.example v-exact v ALL"}},
		"nothing but TCP":          {[]*networking.Server{httpServer(80, "*")}, []*pushcontext.VirtualService{routedTo("v", "istio-system/a", "a.example", toDB)}, []string{"blackhole:80 *"}},
		"in any case":              {[]*networking.Server{httpServer(80, "a.example.")}, []*pushcontext.VirtualService{vs("v", "'*'")}, []string{"a.example:80 a.example v-exact v"}},
	} {
		v := gatewaysView(newMesh(), gatewayOf("a", c.servers...), c.routes...)
		if d := cmp.Diff(c.want, hostsText(gatewayTable(t, v, edge(), "http.8080"))); d != "" {
			t.Errorf("%s:\n%s", name, d)
		}
	}
}

// Rules may be for some gateways, and for some of the servers' ports.
func TestGatewayRulesByPort(t *testing.T) {
	t.Parallel()
	v := virtualService(t, "v", `{hosts: [a.example], gateways: [istio-system/a, istio-system/b, mesh], http: [
		{name: a, match: [{gateways: [istio-system/a]}], directResponse: {status: 200}}, {name: mesh, match: [{gateways: [mesh]}], directResponse: {status: 200}},
		{name: at81, match: [{port: 81}], directResponse: {status: 200}}, {name: shop, match: [{sourceLabels: {app: edge}}], directResponse: {status: 200}}]}`)
	slices.Sort(v.Gateways)
	view := gatewaysView(newMesh(), join(gatewayOf("a", httpServer(80, "*")), gatewayOf("b", httpServer(81, "*"), httpServer(82, "*"))), v)
	for name, want := range map[string][]string{"http.8080": {"a.example:80 a.example a"}, "http.81": {"a.example:81 a.example at81"}, "http.82": {"blackhole:82 *"}} {
		if d := cmp.Diff(want, hostsText(gatewayTable(t, view, edge(), name))); d != "" {
			t.Errorf("%s:\n%s", name, d)
		}
	}
	labelled := edge(withLabels(model.Labels{"app": "edge", "other": "x"}))
	if d := cmp.Diff([]string{"a.example:82 a.example shop"}, hostsText(gatewayTable(t, view, labelled, "http.82"))); d != "" {
		t.Error(d)
	}
	narrow := gen.Routes{}.Narrow(view, labelled.Keep(gen.Routes{}.Traits(view)))
	if narrow.Labels != gen.NewLabels(model.Labels{"app": "edge"}) || narrow.Namespace != "istio-system" {
		t.Errorf("narrowed to %+v", narrow)
	}
}

// Connections of servers that are not HTTP.
func TestGatewayStreams(t *testing.T) {
	t.Parallel()
	dest := func(host string) string {
		return `{destination: {host: ` + host + `.shop.svc.cluster.local, port: {number: 443}}}`
	}
	tls := func(name, gateway, sni string, more string) *pushcontext.VirtualService {
		return routedTo(name, gateway, "'*.example'", `tls: [{match: [{sniHosts: [`+sni+`]`+more+`}], route: [`+dest(name)+`]}]`)
	}
	weighted := routedTo("w", "istio-system/a", "'*'", `tcp: [{match: [{port: 81}], route: [`+dest("no")+`]}, {route: [{destination: {host: a}, weight: 1}, {destination: {host: b}, weight: 3}, {destination: {host: c}}]}]`)
	cluster := func(name string) string { return "outbound|443||" + name + ".shop.svc.cluster.local" }
	passing := func(hosts ...string) *networking.Server { return tlsServer(443, through(), hosts...) }
	ending := func(protocol string, hosts ...string) *networking.Server {
		s := server(443, protocol, hosts...)
		s.Tls = fileTLS()
		return s
	}
	for name, c := range map[string]struct {
		servers []*networking.Server
		routes  []*pushcontext.VirtualService
		want    map[string]string // server names → where they lead
	}{
		"passed through by name": {[]*networking.Server{passing("*.example")}, []*pushcontext.VirtualService{tls("one", "istio-system/a", "a.example, b.example", ""), tls("two", "istio-system/a", "'*.c.example'", "")},
			map[string]string{"a.example,b.example": cluster("one"), "*.c.example": cluster("two")}},
		"the older has a name": {[]*networking.Server{passing("*.example")}, []*pushcontext.VirtualService{tls("one", "istio-system/a", "a.example", ""), tls("two", "istio-system/a", "a.example, b.example", "")},
			map[string]string{"a.example": cluster("one"), "b.example": cluster("two")}},
		"of its port and gateway": {[]*networking.Server{passing("*.example")}, []*pushcontext.VirtualService{tls("one", "istio-system/a", "a.example", ", port: 444"), tls("two", "istio-system/a", "a.example", ", gateways: [mesh]"), tls("three", "istio-system/a", "a.example", ", port: 443, gateways: [istio-system/a]")},
			map[string]string{"a.example": cluster("three")}},
		"passed through by TCP route": {[]*networking.Server{passing("a.example")}, []*pushcontext.VirtualService{routedTo("t", "istio-system/a", "a.example", `tcp: [{route: [`+dest("t")+`]}]`)},
			map[string]string{"a.example": cluster("t")}},
		"any name": {[]*networking.Server{passing("*")}, []*pushcontext.VirtualService{tls("one", "istio-system/a", "'*'", "")}, map[string]string{"": cluster("one")}},
		"TLS that ends": {[]*networking.Server{ending("TLS", "a.example")}, []*pushcontext.VirtualService{routedTo("t", "istio-system/a", "a.example", `tcp: [{route: [`+dest("t")+`]}]`)},
			map[string]string{"a.example": cluster("t")}},
		"TLS that ends beside some that passes": {[]*networking.Server{ending("TCP", "a.example"), passing("*.example")},
			[]*pushcontext.VirtualService{tls("one", "istio-system/a", "a.example, b.example", ""), routedTo("t", "istio-system/a", "a.example", `tcp: [{route: [`+dest("t")+`]}]`)},
			map[string]string{"a.example": cluster("t"), "b.example": cluster("one")}},
		"by weight": {[]*networking.Server{server(443, "TCP", "*")}, []*pushcontext.VirtualService{weighted}, map[string]string{"": "outbound|443||a*1 outbound|443||b*3"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v := gatewaysView(newMesh(), gatewayOf("a", c.servers...), c.routes...)
			l := decode(t, build(t, gen.Listeners{}, v, edge())[0]).(*listenerv3.Listener)
			got := map[string]string{}
			for _, f := range l.FilterChains {
				got[strings.Join(f.GetFilterChainMatch().GetServerNames(), ",")] = endOf(t, f)
				if f.Metadata.GetFilterMetadata()["istio"].GetFields()["config"] == nil {
					t.Errorf("a chain does not name its VirtualService: %v", f)
				}
			}
			if d := cmp.Diff(c.want, got); d != "" {
				t.Error(d)
			}
		})
	}
}

// AUTO_PASSTHROUGH servers share a port with others: names of the mesh are forwarded, then whole names count before patterns.
func TestGatewayForwardsBesideOthers(t *testing.T) {
	t.Parallel()
	auto := server(15443, "TLS", "*.local")
	auto.Tls = &networking.ServerTLSSettings{Mode: networking.ServerTLSSettings_AUTO_PASSTHROUGH}
	v := gatewaysView(newMesh(), gatewayOf("a", portNamed("x", tlsServer(15443, fileTLS(), "*.example")), auto, portNamed("y", tlsServer(15443, fileTLS(), "a.example")), portNamed("z", tlsServer(15443, fileTLS(), "*"))))
	l := decode(t, build(t, gen.Listeners{}, v, edge())[0]).(*listenerv3.Listener)
	tables := map[string]string{"passthrough": "passthrough"}
	for _, f := range l.FilterChains {
		if f.Name != "passthrough" {
			tables[f.Name] = endOf(t, f)
		}
		if f.FilterChainMatch != nil {
			t.Errorf("%s has a match beside the matcher", f.Name)
		}
	}
	for name, want := range map[string]string{"outbound_.80_._.cart.shop.svc.cluster.local": "passthrough", "a.example": "https.15443.y.a.istio-system", "b.example": "https.15443.x.a.istio-system", "other": "https.15443.z.a.istio-system"} {
		if got := tables[chosen(t, l, name, true)]; !strings.HasPrefix(got, want) {
			t.Errorf("%s: %q, want %s", name, got, want)
		}
	}
	if got := tables[chosen(t, l, "outbound_.80_._.cart.shop.svc.cluster.local", false)]; strings.HasPrefix(got, "passthrough") {
		t.Errorf("outside callers are forwarded")
	}
}
