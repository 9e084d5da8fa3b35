package gen_test

import (
	"fmt"
	"strings"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	httpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/types/known/wrapperspb"
	meshconfig "istio.io/api/mesh/v1alpha1"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/pushcontext"
	"github.com/isthmus-mesh/isthmus/xds/gen"
)

// secured proxies can be called with mutual TLS, and call others with it.
func secured(c *gen.Class) {
	certified(c)
	c.ServerTLS = c.ClientTLS
}

func demanding(m model.MTLS) func(*model.Endpoint) { return func(e *model.Endpoint) { e.MTLS = m } }

// ruled has one DestinationRule for everybody, with the TLS settings.
func ruled(t *networking.ClientTLSSettings, ports ...*networking.TrafficPolicy_PortTrafficPolicy) func(*pushcontext.ShapeView) {
	return func(s *pushcontext.ShapeView) {
		s.Policies = []*pushcontext.DestinationPolicy{{Namespace: s.Key.Namespace, Host: s.Key.Host, Export: pushcontext.Export{Public: true},
			Spec: &networking.DestinationRule{Host: s.Key.Host, TrafficPolicy: &networking.TrafficPolicy{Tls: t, PortLevelSettings: ports}}}}
	}
}

func tlsMode(m networking.ClientTLSSettings_TLSmode) *networking.ClientTLSSettings {
	return &networking.ClientTLSSettings{Mode: m}
}

var (
	simpleTLS = &networking.ClientTLSSettings{Mode: networking.ClientTLSSettings_SIMPLE, CaCertificates: "/etc/certs/root-cert.pem",
		SubjectAltNames: []string{"a.example.com", "spiffe://x/y", "10.0.0.1"}, Sni: "a.example.com"}
	mutualTLS = &networking.ClientTLSSettings{Mode: networking.ClientTLSSettings_MUTUAL, CaCertificates: "/etc/certs/root-cert.pem",
		ClientCertificate: "/etc/certs/cert-chain.pem", PrivateKey: "/etc/certs/key.pem"}
)

// crossing are the AUTO_PASSTHROUGH servers of two Gateways that share a port.
func crossing(m *settings) {
	twoNetworks(m)
	m.AutoPassthrough = []pushcontext.AutoPassthrough{
		{Namespace: "istio-system", Selector: model.Labels{"istio": "eastwestgateway"}, Port: 15443, Hosts: []string{"*.local", "*.example.com"}},
		{Namespace: "shop", Selector: model.Labels{"istio": "eastwestgateway"}, Port: 15443, Hosts: []string{"./cart.shop.svc.cluster.local"}},
		{Namespace: "shop", Selector: model.Labels{"app": "other"}, Port: 16443, Hosts: []string{"shop/*"}},
	}
}

func forwarding(servers uint64) func(*gen.Class) {
	return func(c *gen.Class) {
		c.Type, c.ExposeServices, c.Passthrough = gen.Router, false, servers
		labels := model.Labels{}
		if servers&3 != 0 {
			labels["istio"] = "eastwestgateway"
		}
		if servers&4 != 0 {
			labels["app"] = "other"
		}
		c.Labels = gen.NewLabels(labels)
	}
}

func secureServices() []svc {
	one := func(name string, p model.Port, edit func(*pushcontext.ShapeView), es ...*model.Endpoint) svc {
		return svc{host: name + ".shop.svc.cluster.local", ports: []model.Port{p}, vips: members("c1", fmt.Sprintf("10.0.1.%d", len(name))), edit: edit, endpoints: es}
	}
	accounts := func(s *pushcontext.ShapeView) { s.ServiceAccounts = []string{"spiffe://cluster.local/ns/shop/sa/api"} }
	return []svc{
		one("grpcapi", model.Port{Name: "grpc", Number: 9090, Protocol: model.ProtocolGRPC}, accounts, ep("c1", "grpc", "10.1.1.1:9090", mtls)),
		one("db", tcpPort(3306), nil, ep("c1", "tcp", "10.1.1.2:3306", mtls), ep("c1", "tcp", "10.1.1.3:3306", mtls, demanding(model.MTLSDisabled)), ep("c1", "tcp", "10.1.1.4:3306")),
		one("auto", autoPort(7000), nil, ep("c1", "any", "10.1.1.5:7000", mtls, demanding(model.MTLSStrict))),
		one("off", httpPort(81), ruled(tlsMode(networking.ClientTLSSettings_DISABLE)), ep("c1", "http", "10.1.1.6:81", mtls)),
		one("always", httpPort(82), ruled(tlsMode(networking.ClientTLSSettings_ISTIO_MUTUAL)), ep("c1", "http", "10.1.1.7:82")),
		one("simple1", httpPort(83), ruled(simpleTLS), ep("c1", "http", "10.1.1.8:83")),
		one("mutual12", httpPort(84), ruled(mutualTLS), ep("c1", "http", "10.1.1.9:84")),
		one("credential", httpPort(85), ruled(&networking.ClientTLSSettings{Mode: networking.ClientTLSSettings_SIMPLE, CredentialName: "c"}), ep("c1", "http", "10.1.1.10:85")),
		{host: "pods.shop.svc.cluster.local", ports: []model.Port{tcpPort(9042)}, resolution: model.Passthrough,
			inline: []*model.Endpoint{ep("c1", "tcp", "10.1.0.21:9042", mtls)}, endpoints: []*model.Endpoint{ep("c1", "tcp", "10.1.0.21:9042", mtls)}},
		{host: "mixed.shop.svc.cluster.local", ports: []model.Port{tcpPort(9043)}, resolution: model.Passthrough,
			inline: []*model.Endpoint{ep("c1", "tcp", "10.1.0.22:9043", mtls), ep("c1", "tcp", "10.1.0.23:9043")}},
		{host: "named.example.com", ns: "shop", ports: []model.Port{httpPort(86)}, resolution: model.DNSLB, inline: []*model.Endpoint{ep("c1", "http", "vm.example.com:86", mtls)}},
		{host: "out.example.com", ns: "shop", ports: []model.Port{httpPort(87)}, resolution: model.DNSLB, inline: []*model.Endpoint{ep("c1", "http", "out.example.com:87")},
			edit: func(s *pushcontext.ShapeView) {
				s.External = true
				ruled(&networking.ClientTLSSettings{Mode: networking.ClientTLSSettings_SIMPLE, CaCertificates: "/etc/certs/root-cert.pem"})(s)
			}},
		{host: strings.Repeat("long.", 47) + "example.com", ns: "shop", ports: []model.Port{httpPort(88)}},
	}
}

func served(modes ...model.MTLS) []pushcontext.Target {
	var out []pushcontext.Target
	for i, p := range []model.Protocol{model.ProtocolHTTP, model.ProtocolTCP, model.ProtocolUnknown} {
		for k, m := range modes {
			out = append(out, pushcontext.Target{Host: "own.shop.svc.cluster.local", Namespace: "shop", Name: "own", Port: uint16(80 + i), Protocol: p,
				Endpoint: uint16(8000 + 10*i + k), MTLS: m, OtherMTLS: modes[0]})
		}
	}
	return out
}

// secureScenarios are those of mutual TLS.
func secureScenarios() []scenario {
	strictly := func(m *settings) {
		m.Config.MeshMTLS = &meshconfig.MeshConfig_TLSConfig{MinProtocolVersion: meshconfig.MeshConfig_TLSConfig_TLSV1_3}
	}
	return []scenario{
		{name: "mtls", mesh: newMesh(), class: sidecar("c1", "shop", secured), services: secureServices(),
			targets: served(model.MTLSPermissive, model.MTLSStrict, model.MTLSDisabled)},
		{name: "mtls-strict", mesh: newMesh(strictly), class: sidecar("c1", "shop", secured), targets: served(model.MTLSStrict)},
		{name: "mtls-without-files", mesh: newMesh(), class: sidecar("c1", "shop"), services: secureServices()[3:6],
			targets: served(model.MTLSPermissive, model.MTLSStrict, model.MTLSDisabled)},
		{name: "mtls-istio-proxy", mesh: newMesh(), class: sidecar("c1", "shop", secured, func(c *gen.Class) { c.Extensions = 15 }),
			services: secureServices()[:2], targets: served(model.MTLSPermissive)[1:2]},
		{name: "sni-dnat", mesh: newMesh(crossing), class: sidecar("c2", "istio-system", forwarding(3), func(c *gen.Class) { c.Network = "n2" }),
			services: append(secureServices(), multiNetwork())},
	}
}

func cluster(t testing.TB, s svc, m *settings, c gen.Class) *clusterv3.Cluster {
	t.Helper()
	for _, r := range build(t, gen.Clusters{}, s.shape(m), c) {
		return decode(t, r).(*clusterv3.Cluster)
	}
	t.Fatal("no cluster")
	return nil
}

func upstreamTLS(t testing.TB, s *corev3.TransportSocket) *tlsv3.UpstreamTlsContext {
	t.Helper()
	out := &tlsv3.UpstreamTlsContext{}
	if err := s.GetTypedConfig().UnmarshalTo(out); err != nil {
		t.Fatal(err)
	}
	return out
}

// security writes how a cluster's connections are secured: "auto", "always" or "" and, of mutual TLS or
// TLS, the server name, what is offered and who is accepted; "closed" if it has no endpoints.
func security(t testing.TB, c *clusterv3.Cluster) string {
	t.Helper()
	socket, how := c.TransportSocket, "always"
	if ms := c.TransportSocketMatches; len(ms) > 0 {
		if len(ms) != 2 || ms[0].Match.Fields["tlsMode"].GetStringValue() != "istio" || len(ms[1].Match.GetFields()) != 0 || ms[1].TransportSocket.Name != "envoy.transport_sockets.raw_buffer" {
			t.Errorf("matches: %v", ms)
		}
		socket, how = ms[0].TransportSocket, "auto"
	}
	switch {
	case c.GetType() == clusterv3.Cluster_STATIC:
		return "closed"
	case socket == nil:
		return ""
	}
	u := upstreamTLS(t, socket)
	out := how + " " + u.Sni + " " + strings.Join(u.CommonTlsContext.AlpnProtocols, ",")
	for _, n := range u.CommonTlsContext.GetValidationContext().GetMatchTypedSubjectAltNames() {
		out += fmt.Sprintf(" %s=%s", n.SanType, n.Matcher.GetExact())
	}
	if len(u.CommonTlsContext.TlsCertificates) > 0 {
		out += " certified"
	}
	if u.CommonTlsContext.GetValidationContext().GetTrustedCa() == nil {
		out += " unverified"
	}
	return out
}

func TestClusterSecurity(t *testing.T) {
	t.Parallel()
	const sni = "outbound_.80_._.cart.shop.svc.cluster.local"
	off := func(m *settings) { m.Config.EnableAutoMtls = wrapperspb.Bool(false) }
	grpc := model.Port{Name: "http", Number: 80, Protocol: model.ProtocolGRPC}
	external := func(s *pushcontext.ShapeView) { s.External = true }
	port := func(n uint32, t *networking.ClientTLSSettings) *networking.TrafficPolicy_PortTrafficPolicy {
		return &networking.TrafficPolicy_PortTrafficPolicy{Port: &networking.PortSelector{Number: n}, Tls: t}
	}
	istioMutual, disable := tlsMode(networking.ClientTLSSettings_ISTIO_MUTUAL), tlsMode(networking.ClientTLSSettings_DISABLE)
	exchanging := func(c *gen.Class) { secured(c); c.Extensions = gen.ExtIstioMetadataExchange }
	for name, c := range map[string]struct {
		mesh  func(*settings)
		class func(*gen.Class)
		svc   svc
		want  string
	}{
		"automatic":               {svc: svc{}, want: "auto " + sni + " istio certified"},
		"HTTP/2":                  {svc: svc{ports: []model.Port{grpc}}, want: "auto " + sni + " istio,h2 certified"},
		"metadata exchange":       {class: exchanging, want: "auto " + sni + " istio-peer-exchange,istio certified"},
		"no files":                {class: func(*gen.Class) {}, want: ""},
		"turned off":              {mesh: off, want: ""},
		"outside of the mesh":     {svc: svc{edit: external}, want: ""},
		"known accounts":          {svc: svc{edit: func(s *pushcontext.ShapeView) { s.ServiceAccounts = []string{"", "spiffe://a/b"} }}, want: "auto " + sni + " istio URI=spiffe://a/b certified"},
		"rule turns off":          {svc: svc{edit: ruled(disable)}, want: ""},
		"rule demands":            {mesh: off, svc: svc{edit: ruled(istioMutual)}, want: "always " + sni + " istio certified"},
		"rule demands, no files":  {class: func(*gen.Class) {}, svc: svc{edit: ruled(istioMutual)}, want: "closed"},
		"rule of the port":        {svc: svc{edit: ruled(istioMutual, port(80, disable))}, want: ""},
		"rule of another port":    {svc: svc{edit: ruled(istioMutual, port(81, disable))}, want: "always " + sni + " istio certified"},
		"rule of the port is mum": {svc: svc{edit: ruled(disable, port(80, nil))}, want: "auto " + sni + " istio certified"},
		"rule without TLS":        {svc: svc{edit: ruled(nil)}, want: "auto " + sni + " istio certified"},
		"simple":                  {svc: svc{edit: ruled(simpleTLS)}, want: "always a.example.com  DNS=a.example.com URI=spiffe://x/y IP_ADDRESS=10.0.0.1"},
		"mutual":                  {class: func(*gen.Class) {}, svc: svc{edit: ruled(mutualTLS)}, want: "always   certified"},
		"mutual without files":    {svc: svc{edit: ruled(tlsMode(networking.ClientTLSSettings_MUTUAL))}, want: "closed"},
		"by credential":           {svc: svc{edit: ruled(&networking.ClientTLSSettings{Mode: networking.ClientTLSSettings_SIMPLE, CredentialName: "x"})}, want: "closed"},
		"unverified": {svc: svc{ports: []model.Port{grpc}, edit: ruled(&networking.ClientTLSSettings{Mode: networking.ClientTLSSettings_SIMPLE, InsecureSkipVerify: wrapperspb.Bool(true),
			SubjectAltNames: []string{"never.without.authority"}})}, want: "always  h2 unverified"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c.svc.host = "cart.shop.svc.cluster.local"
			if c.svc.ports == nil {
				c.svc.ports = []model.Port{httpPort(80)}
			}
			if c.class == nil {
				c.class = secured
			}
			if c.mesh == nil {
				c.mesh = func(*settings) {}
			}
			if got := security(t, cluster(t, c.svc, newMesh(c.mesh), sidecar("c1", "shop", c.class))); got != c.want {
				t.Errorf("got  %q\nwant %q", got, c.want)
			}
		})
	}
}

// A connection to its original destination does not know its endpoint.
func TestHeadlessIsSecuredAsAWhole(t *testing.T) {
	t.Parallel()
	plain, secure := ep("c1", "tcp", "10.1.0.1:90"), ep("c1", "tcp", "10.1.0.2:90", mtls)
	for want, inline := range map[string][]*model.Endpoint{
		"always outbound_.90_._.pods.shop.svc.cluster.local istio certified": {secure}, "": {secure, plain},
	} {
		s := svc{host: "pods.shop.svc.cluster.local", ports: []model.Port{tcpPort(90)}, resolution: model.Passthrough, inline: inline}
		if got := security(t, cluster(t, s, newMesh(), sidecar("c1", "shop", secured))); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	s := svc{host: "pods.shop.svc.cluster.local", ports: []model.Port{tcpPort(90)}, resolution: model.Passthrough}
	if got := security(t, cluster(t, s, newMesh(), sidecar("c1", "shop", secured))); got != "" {
		t.Errorf("without endpoints: %q", got)
	}
	s.edit = func(v *pushcontext.ShapeView) { v.MutualPorts = []string{"tcp"} }
	if got := security(t, cluster(t, s, newMesh(), sidecar("c1", "shop", secured))); got != "always outbound_.90_._.pods.shop.svc.cluster.local istio certified" {
		t.Errorf("whose endpoints all speak it: %q", got)
	}
	direct := underRules(svc{host: s.host, ports: s.ports, edit: s.edit}, destination("shop", "r", balanced(simply(networking.LoadBalancerSettings_PASSTHROUGH))))
	if got := security(t, cluster(t, direct, newMesh(), sidecar("c1", "shop", secured))); got != "always outbound_.90_._.pods.shop.svc.cluster.local istio certified" {
		t.Errorf("by a rule: %q", got)
	}
}

func TestAutomaticServerName(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		port   model.Port
		rule   *networking.ClientTLSSettings
		sni    bool
		verify bool
	}{
		{httpPort(80), &networking.ClientTLSSettings{Mode: networking.ClientTLSSettings_SIMPLE}, true, true},
		{httpPort(80), &networking.ClientTLSSettings{Mode: networking.ClientTLSSettings_SIMPLE, InsecureSkipVerify: wrapperspb.Bool(true)}, true, false},
		{autoPort(80), &networking.ClientTLSSettings{Mode: networking.ClientTLSSettings_SIMPLE, CaCertificates: "/ca"}, true, true},
		{httpPort(80), &networking.ClientTLSSettings{Mode: networking.ClientTLSSettings_SIMPLE, CaCertificates: "/ca", InsecureSkipVerify: wrapperspb.Bool(true)}, true, false},
		{httpPort(80), &networking.ClientTLSSettings{Mode: networking.ClientTLSSettings_SIMPLE, CaCertificates: "/ca", Sni: "x"}, false, false},
		{tcpPort(80), &networking.ClientTLSSettings{Mode: networking.ClientTLSSettings_SIMPLE, CaCertificates: "/ca"}, false, false},
	} {
		got := cluster(t, svc{host: "a.example", ns: "a", ports: []model.Port{c.port}, edit: ruled(c.rule)}, newMesh(), sidecar("c1", "shop"))
		o := &httpv3.HttpProtocolOptions{}
		if a := got.TypedExtensionProtocolOptions["envoy.extensions.upstreams.http.v3.HttpProtocolOptions"]; a != nil {
			if err := a.UnmarshalTo(o); err != nil {
				t.Fatal(err)
			}
		}
		if u := o.UpstreamHttpProtocolOptions; u.GetAutoSni() != c.sni || u.GetAutoSanValidation() != c.verify {
			t.Errorf("%v %v: %v", c.port, c.rule, u)
		}
	}
}

// Servers are verified by the authorities of the system unless a rule names others or says that they are not.
func TestAuthoritiesOfServers(t *testing.T) {
	t.Parallel()
	const system = "/etc/ssl/certs/ca-certificates.crt"
	for _, c := range []struct {
		rule *networking.ClientTLSSettings
		want string
	}{
		{&networking.ClientTLSSettings{}, system},
		{&networking.ClientTLSSettings{CaCertificates: "system"}, system},
		{&networking.ClientTLSSettings{CaCertificates: "/ca"}, "/ca"},
		{&networking.ClientTLSSettings{CaCertificates: "/ca", InsecureSkipVerify: wrapperspb.Bool(true)}, ""},
		{&networking.ClientTLSSettings{InsecureSkipVerify: wrapperspb.Bool(true)}, ""},
	} {
		c.rule.Mode, c.rule.SubjectAltNames = networking.ClientTLSSettings_SIMPLE, []string{"a.example"}
		got := cluster(t, svc{host: "a.example", ns: "a", ports: []model.Port{tcpPort(80)}, edit: ruled(c.rule)}, newMesh(), sidecar("c1", "shop"))
		tls := &tlsv3.UpstreamTlsContext{}
		if err := got.TransportSocket.GetTypedConfig().UnmarshalTo(tls); err != nil {
			t.Fatal(err)
		}
		v := tls.CommonTlsContext.GetValidationContext()
		if v.GetTrustedCa().GetFilename() != c.want || (len(v.GetMatchTypedSubjectAltNames()) > 0) != (c.want != "") {
			t.Errorf("%v: %v", c.rule, v)
		}
	}
}

// Only endpoints that take mutual TLS say so.
func TestTransportOfEndpoints(t *testing.T) {
	t.Parallel()
	v := cart(ep("c1", "http", "10.0.0.1:80"), ep("c1", "http", "10.0.0.2:80", mtls), ep("c1", "http", "10.0.0.3:80", mtls, demanding(model.MTLSDisabled)),
		ep("c1", "http", "10.0.0.4:80", mtls, demanding(model.MTLSStrict))).view(newMesh())
	var got []string
	for _, e := range assigned(t, v, sidecar("c1", "shop")).Endpoints[0].LbEndpoints {
		if m, ok := e.Metadata.FilterMetadata["envoy.transport_socket_match"]; ok {
			got = append(got, e.GetEndpoint().Address.GetSocketAddress().Address+"="+m.Fields["tlsMode"].GetStringValue())
		}
	}
	if d := cmp.Diff([]string{"10.0.0.2=istio", "10.0.0.4=istio"}, got); d != "" {
		t.Error(d)
	}
}

// Proxies that differ in their files only where those matter are of different classes.
func TestFilesCostClassesOnlyWhereTheyMatter(t *testing.T) {
	t.Parallel()
	external := cart()
	external.edit = func(s *pushcontext.ShapeView) { s.External = true }
	off := newMesh(func(m *settings) { m.Config.EnableAutoMtls = wrapperspb.Bool(false) })
	for _, c := range []struct {
		g    gen.Generator
		v    pushcontext.View
		want bool
	}{
		{gen.Clusters{}, cart().shape(newMesh()), true}, {gen.Clusters{}, external.shape(newMesh()), false}, {gen.Clusters{}, cart().shape(off), false},
		{gen.Endpoints{}, cart().view(newMesh()), false}, {gen.Endpoints{}, multiNetwork().view(newMesh(twoNetworks)), true},
		{gen.Listeners{}, portView(80, newMesh(), cart()), false}, {gen.Routes{}, portView(80, newMesh(), cart()), false},
	} {
		if got := c.g.Traits(c.v)&gen.TraitTLS != 0; got != c.want {
			t.Errorf("%T of %T: %v, want %v", c.g, c.v, got, c.want)
		}
		if c.g.Traits(c.v)&gen.TraitPassthrough != 0 {
			t.Errorf("%T of %T: tells routers apart", c.g, c.v)
		}
	}
}
