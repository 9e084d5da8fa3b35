package gen_test

import (
	meshconfig "istio.io/api/mesh/v1alpha1"
	networking "istio.io/api/networking/v1alpha3"

	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/isthmus-mesh/isthmus/pushcontext"
	"github.com/isthmus-mesh/isthmus/xds/gen"
)

// gatewayScenarios are routers with Gateways.
func gatewayScenarios() []scenario {
	only := []gen.Generator{gen.Listeners{}, gen.Routes{}}
	made := func(name string, m *settings, c gen.Class, servers []*pushcontext.GatewayServer, routes ...*pushcontext.VirtualService) scenario {
		return scenario{name: "gateway-" + name, mesh: m, class: c, only: only, gateways: bound(m, servers, routes...)}
	}
	fronted := func(m *settings) {
		m.Config.AccessLogFile = "/dev/stdout"
		m.Config.DefaultConfig = &meshconfig.ProxyConfig{GatewayTopology: &meshconfig.Topology{NumTrustedProxies: 2,
			ForwardClientCertDetails: meshconfig.ForwardClientCertDetails_APPEND_FORWARD, ProxyProtocol: &meshconfig.Topology_ProxyProtocolConfiguration{}}}
	}
	return []scenario{
		made("http", newMesh(), edge(), httpGateways(), httpGatewayRoutes()...),
		made("tls", newMesh(), edge(secured), tlsGateways()),
		made("streams", newMesh(), edge(), streamGateways(), streamGatewayRoutes()...),
		made("fronted", newMesh(fronted), edge(func(c *gen.Class) { c.IPv6, c.HTTP10 = true, true }), gatewayOf("web", httpServer(80, "*"))),
		made("istio-proxy", newMesh(), edge(func(c *gen.Class) { c.Extensions = 15 }), join(gatewayOf("web", server(80, "GRPC-Web", "*")), streamGateways()), streamGatewayRoutes()...),
	}
}

func httpGateways() []*pushcontext.GatewayServer {
	redirect := httpServer(80, "a.example", "*.secure.example")
	redirect.Tls = &networking.ServerTLSSettings{HttpsRedirect: true}
	return join(gatewayOf("web", redirect, httpServer(80, "b.example")), gatewayOf("more", httpServer(8080, "*.c.example", "a.example"), httpServer(81, "*")),
		gatewayOf("local", bindTo("127.0.0.1", httpServer(82, "*"))))
}

func httpGatewayRoutes() []*pushcontext.VirtualService {
	return []*pushcontext.VirtualService{
		routedTo("cart", "istio-system/web", "a.example, b.example", `http: [{match: [{uri: {prefix: /cart}}], route: [{destination: {host: cart.shop.svc.cluster.local, port: {number: 80}}}]}, {redirect: {uri: /cart}}]`),
		routedTo("more", "istio-system/more", "'*'", `http: [{match: [{headers: {x: {exact: here}}}], rewrite: {uri: /z}, route: [{destination: {host: cart.shop.svc.cluster.local}}]}]`),
	}
}

func tlsGateways() []*pushcontext.GatewayServer {
	tuned := fileTLS()
	tuned.MinProtocolVersion, tuned.MaxProtocolVersion = networking.ServerTLSSettings_TLSV1_2, networking.ServerTLSSettings_TLSV1_2
	tuned.CipherSuites, tuned.EcdhCurves, tuned.AlpnProtocols = []string{"ECDHE-RSA-AES128-GCM-SHA256", "NONE"}, []string{"P-256", "X"}, []string{"http/1.1"}
	two := &networking.ServerTLSSettings{Mode: networking.ServerTLSSettings_SIMPLE, TlsCertificates: []*networking.ServerTLSSettings_TLSCertificate{
		{ServerCertificate: "/etc/certs/cert-chain.pem", PrivateKey: "/etc/certs/key.pem"}}}
	names := tlsOf(networking.ServerTLSSettings_MUTUAL)
	names.SubjectAltNames = []string{"spiffe://cluster.local/ns/shop/sa/test", "client.example"}
	names.VerifyCertificateHash = []string{"DF:6F:F7:2F:E9:11:65:21:26:8F:6F:2D:D4:96:6F:51:DF:47:98:83:FE:70:37:B3:9F:75:91:6A:C3:04:9D:1A"}
	names.VerifyCertificateSpki = []string{"NvqYIYSbgK2vCJpQhObf77vv+bQWtc5ek5RIOwPiC9A="}
	lax := tlsOf(networking.ServerTLSSettings_OPTIONAL_MUTUAL)
	lax.InsecureSkipVerify = wrapperspb.Bool(true)
	at := func(name string, t *networking.ServerTLSSettings, hosts ...string) *networking.Server {
		return portNamed(name, tlsServer(443, t, hosts...))
	}
	return gatewayOf("web", at("simple", fileTLS(), "simple.example"), at("tuned", tuned, "tuned.example"), at("two", two, "two.example", "*.two.example"),
		at("mutual", names, "mutual.example"), at("optional", tlsOf(networking.ServerTLSSettings_OPTIONAL_MUTUAL), "optional.example"), at("lax", lax, "lax.example"),
		at("mesh", &networking.ServerTLSSettings{Mode: networking.ServerTLSSettings_ISTIO_MUTUAL}, "mesh.example"), at("rest", fileTLS(), "*"))
}

func streamGateways() []*pushcontext.GatewayServer {
	ending := server(9443, "TLS", "db.example")
	ending.Tls = fileTLS()
	auto := server(15443, "TLS", "*.local")
	auto.Tls = &networking.ServerTLSSettings{Mode: networking.ServerTLSSettings_AUTO_PASSTHROUGH}
	return gatewayOf("tcp", server(3306, "TCP", "*"), ending, portNamed("pass", tlsServer(9443, through(), "*.example")), auto, portNamed("beside", tlsServer(15443, fileTLS(), "a.example", "*.b.example")))
}

func streamGatewayRoutes() []*pushcontext.VirtualService {
	return []*pushcontext.VirtualService{
		routedTo("db", "istio-system/tcp", "'*'", `tcp: [{match: [{port: 3306}], route: [{destination: {host: db.shop.svc.cluster.local, subset: v1}, weight: 90}, {destination: {host: db.shop.svc.cluster.local, subset: v2}, weight: 10}]}, {match: [{port: 9443}], route: [{destination: {host: db.shop.svc.cluster.local, port: {number: 3306}}}]}]`),
		routedTo("api", "istio-system/tcp", "'*.example'", `tls: [{match: [{sniHosts: [api.example, '*.api.example']}], route: [{destination: {host: api.shop.svc.cluster.local, port: {number: 443}}}]}]`),
	}
}
