package gen

import (
	"net/netip"
	"slices"
	"strings"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	proxyprotocolv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/proxy_protocol/v3"
	rawbufferv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/raw_buffer/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/protobuf/types/known/structpb"
	meshconfig "istio.io/api/mesh/v1alpha1"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/pushcontext"
)

// tlsTraits are those that decide how connections to a service are secured.
func tlsTraits(s *pushcontext.ShapeView) Traits {
	switch {
	case len(s.Policies) > 0:
		return TraitTLS | TraitExtensions | scopeOf(s).traits&TraitPolicy
	case s.External, !autoMTLS(s.Mesh):
		return 0
	}
	return TraitTLS | TraitExtensions
}

// applyTLS secures the connections of a cluster whose type is set. Where nothing safe can be made of
// what a DestinationRule demands, the cluster is one without endpoints: cleartext would be worse.
func applyTLS(out *draft, d destination, c Class) {
	switch mode := d.secured(); {
	case !securable(mode, d.rule.tls, c):
		unreachable(out)
		return
	case mode == tlsOwn:
		applyOwnTLS(out, d)
	case mode == tlsOff, !c.ClientTLS.Complete():
	case mode == tlsMutual:
		out.TransportSocket = tlsSocket(meshTLS(out, d, c))
	case out.GetType() == clusterv3.Cluster_ORIGINAL_DST:
		if d.speaksMutual() {
			out.TransportSocket = tlsSocket(meshTLS(out, d, c))
		}
	default:
		out.TransportSocketMatches = matchTLSMode(tlsSocket(meshTLS(out, d, c)))
	}
	applyProxyProtocol(out, d.rule.proxy)
}

// securable reports whether a proxy of the class can do what the mode demands. A credential by name
// would have to come from a Secret, which proxies are not sent.
func securable(mode tlsMode, rule *networking.ClientTLSSettings, c Class) bool {
	switch mode {
	case tlsMutual:
		return c.ClientTLS.Complete()
	case tlsOwn:
		return rule.CredentialName == "" && rule.CaCertCredentialName == "" &&
			(rule.Mode != networking.ClientTLSSettings_MUTUAL || rule.ClientCertificate != "" && rule.PrivateKey != "")
	}
	return true
}

// unreachable makes the cluster one without endpoints.
func unreachable(out *draft) {
	out.ClusterDiscoveryType = &clusterv3.Cluster_Type{Type: clusterv3.Cluster_STATIC}
	out.EdsClusterConfig, out.LoadAssignment = nil, nil
	if out.LbPolicy == clusterv3.Cluster_CLUSTER_PROVIDED {
		out.LbPolicy = clusterv3.Cluster_LEAST_REQUEST
	}
}

// speaksMutual reports whether every endpoint of an original destination takes mutual TLS: there
// a connection does not know its endpoint, so all are treated alike.
func (d destination) speaksMutual() bool {
	in := inlineCandidates(d).localities
	if len(in) == 0 {
		return slices.Contains(d.shape.MutualPorts, d.port.Name)
	}
	for _, l := range in {
		if slices.ContainsFunc(l.Endpoints, func(e *model.Endpoint) bool { return !speaksMutual(e) }) {
			return false
		}
	}
	return true
}

// matchTLSMode is mutual TLS for endpoints whose metadata says that they speak it.
func matchTLSMode(mtls *corev3.TransportSocket) []*clusterv3.Cluster_TransportSocketMatch {
	return []*clusterv3.Cluster_TransportSocketMatch{
		{Name: "tlsMode-" + model.TLSIstio, TransportSocket: mtls, Match: structOf(map[string]*structpb.Value{"tlsMode": stringValue(model.TLSIstio)})},
		{Name: "tlsMode-" + model.TLSDisabled, TransportSocket: plainSocket(), Match: structOf(nil)},
	}
}

func plainSocket() *corev3.TransportSocket {
	return &corev3.TransportSocket{Name: "envoy.transport_sockets.raw_buffer",
		ConfigType: &corev3.TransportSocket_TypedConfig{TypedConfig: pack(&rawbufferv3.RawBuffer{})}}
}

const tlsSocketName = "envoy.transport_sockets.tls"

func tlsSocket(t *tlsv3.UpstreamTlsContext) *corev3.TransportSocket {
	return &corev3.TransportSocket{Name: tlsSocketName, ConfigType: &corev3.TransportSocket_TypedConfig{TypedConfig: pack(t)}}
}

// maxServerName is the longest server name that Envoy takes. A service with a longer one is reached
// directly only.
const maxServerName = 255

// meshTLS is mutual TLS with a workload of the mesh. The server name tells gateways on the way which
// service port is meant, and which subset.
func meshTLS(out *draft, d destination, c Class) *tlsv3.UpstreamTlsContext {
	common := commonTLS(d.shape.Mesh, c.ClientTLS)
	names, sni := d.shape.ServiceAccounts, d.serverName()
	if own := d.rule.tls.GetSubjectAltNames(); len(own) > 0 {
		names = own
	}
	if own := d.rule.tls.GetSni(); own != "" {
		sni = own
	}
	common.GetValidationContext().MatchTypedSubjectAltNames = subjects(names)
	common.AlpnProtocols = []string{"istio"}
	if c.Extensions&ExtIstioMetadataExchange != 0 { // or else nothing would be there to send what it announces
		common.AlpnProtocols = meshStreams()
	}
	if out.onlyHTTP2() {
		common.AlpnProtocols = append(common.AlpnProtocols, "h2")
	}
	return upstreamTLS(common, sni)
}

func upstreamTLS(common *tlsv3.CommonTlsContext, serverName string) *tlsv3.UpstreamTlsContext {
	if len(serverName) > maxServerName || strings.Contains(serverName, "\x00") {
		serverName = ""
	}
	return &tlsv3.UpstreamTlsContext{CommonTlsContext: common, Sni: serverName}
}

// applyOwnTLS is TLS as a DestinationRule describes it, with files on the proxy's machine.
func applyOwnTLS(out *draft, d destination) {
	rule := d.rule.tls
	common := &tlsv3.CommonTlsContext{TlsParams: tlsParameters(d.shape.Mesh.Config.GetTlsDefaults())}
	if rule.Mode == networking.ClientTLSSettings_MUTUAL {
		common.TlsCertificates = certificate(rule.ClientCertificate, rule.PrivateKey)
	}
	verified := !rule.GetInsecureSkipVerify().GetValue()
	if verified {
		common.ValidationContextType = authorities(authoritiesFile(rule))
		common.GetValidationContext().MatchTypedSubjectAltNames = subjects(d.verifiedNames())
		if rule.CaCrl != "" {
			common.GetValidationContext().Crl = file(rule.CaCrl)
		}
	}
	if out.onlyHTTP2() {
		common.AlpnProtocols = []string{"h2"}
	}
	out.TransportSocket = tlsSocket(upstreamTLS(common, rule.Sni))
	if rule.Sni == "" && (d.port.Protocol.IsHTTP() || d.port.Protocol.Sniffed() || out.onlyHTTP2()) {
		// the name to verify, too, is taken from each request, unless names are known
		out.options().UpstreamHttpProtocolOptions = &corev3.UpstreamHttpProtocolOptions{AutoSni: true, AutoSanValidation: verified && len(rule.SubjectAltNames) == 0}
	}
}

// systemAuthorities is where the certificates of public authorities are on Debian, Ubuntu, Alpine and distroless images, Envoy's
// and Istio's among them. Envoy can't be told to look for them itself.
const systemAuthorities = "/etc/ssl/certs/ca-certificates.crt"

// authoritiesFile has the certificates that servers are verified by: those of the system unless the rule names others.
func authoritiesFile(rule *networking.ClientTLSSettings) string {
	if rule.CaCertificates == "" || rule.CaCertificates == "system" {
		return systemAuthorities
	}
	return rule.CaCertificates
}

// verifiedNames are those that the server may have: the rule's, else those of the ServiceEntry.
func (d destination) verifiedNames() []string {
	if own := d.rule.tls.GetSubjectAltNames(); len(own) > 0 || d.shape.Native {
		return own
	}
	return d.shape.ServiceAccounts
}

// applyProxyProtocol has each connection start with the client's address.
func applyProxyProtocol(out *draft, p *networking.TrafficPolicy_ProxyProtocol) {
	if p == nil {
		return
	}
	if len(out.TransportSocketMatches) == 0 {
		if out.TransportSocket == nil {
			out.TransportSocket = plainSocket()
		}
		out.TransportSocket = withProxyProtocol(p, out.TransportSocket)
	}
	for _, m := range out.TransportSocketMatches {
		m.TransportSocket = withProxyProtocol(p, m.TransportSocket)
	}
}

func withProxyProtocol(p *networking.TrafficPolicy_ProxyProtocol, inner *corev3.TransportSocket) *corev3.TransportSocket {
	version := corev3.ProxyProtocolConfig_V1
	if p.Version == networking.TrafficPolicy_ProxyProtocol_V2 {
		version = corev3.ProxyProtocolConfig_V2
	}
	return &corev3.TransportSocket{Name: "envoy.transport_sockets.upstream_proxy_protocol", ConfigType: &corev3.TransportSocket_TypedConfig{
		TypedConfig: pack(&proxyprotocolv3.ProxyProtocolUpstreamTransport{Config: &corev3.ProxyProtocolConfig{Version: version}, TransportSocket: inner})}}
}

// commonTLS is what both sides of mutual TLS have: files to show and files to verify by.
func commonTLS(m *pushcontext.MeshView, f TLSFiles) *tlsv3.CommonTlsContext {
	params := tlsParameters(m.Config.GetMeshMTLS())
	params.EcdhCurves = nil // the reference of MeshConfig has it that mutual TLS of the mesh does not look at them
	return &tlsv3.CommonTlsContext{TlsParams: params, TlsCertificates: certificate(f.Chain, f.Key), ValidationContextType: authorities(f.Root)}
}

// tlsParameters are versions, ciphers and curves as the mesh has them.
func tlsParameters(t *meshconfig.MeshConfig_TLSConfig) *tlsv3.TlsParameters {
	out := tlsVersions(tlsv3.TlsParameters_TLSv1_2)
	if t.GetMinProtocolVersion() == meshconfig.MeshConfig_TLSConfig_TLSV1_3 {
		out.TlsMinimumProtocolVersion = tlsv3.TlsParameters_TLSv1_3
	}
	out.CipherSuites, out.EcdhCurves = known(t.GetCipherSuites(), model.CipherSuites()), known(t.GetEcdhCurves(), model.Curves())
	return out
}

func tlsVersions(least tlsv3.TlsParameters_TlsProtocol) *tlsv3.TlsParameters {
	return &tlsv3.TlsParameters{TlsMinimumProtocolVersion: least, TlsMaximumProtocolVersion: tlsv3.TlsParameters_TLSv1_3}
}

func certificate(chain, key string) []*tlsv3.TlsCertificate {
	return []*tlsv3.TlsCertificate{{CertificateChain: file(chain), PrivateKey: file(key)}}
}

func authorities(path string) *tlsv3.CommonTlsContext_ValidationContext {
	return &tlsv3.CommonTlsContext_ValidationContext{ValidationContext: &tlsv3.CertificateValidationContext{TrustedCa: file(path)}}
}

func file(path string) *corev3.DataSource {
	return &corev3.DataSource{Specifier: &corev3.DataSource_Filename{Filename: path}}
}

// subjects match a peer that has one of the names: URIs as workloads of the mesh have, IP addresses or
// DNS names.
func subjects(names []string) []*tlsv3.SubjectAltNameMatcher {
	var out []*tlsv3.SubjectAltNameMatcher
	for _, n := range names {
		kind := tlsv3.SubjectAltNameMatcher_DNS
		if strings.Contains(n, "://") {
			kind = tlsv3.SubjectAltNameMatcher_URI
		} else if _, err := netip.ParseAddr(n); err == nil {
			kind = tlsv3.SubjectAltNameMatcher_IP_ADDRESS
		}
		if n != "" {
			out = append(out, &tlsv3.SubjectAltNameMatcher{SanType: kind,
				Matcher: &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Exact{Exact: n}}})
		}
	}
	return out
}
