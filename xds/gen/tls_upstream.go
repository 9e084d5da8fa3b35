package gen

import (
	"net/netip"
	"slices"
	"strings"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	rawbufferv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/raw_buffer/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	httpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
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
func applyTLS(out *clusterv3.Cluster, s *pushcontext.ShapeView, port model.Port, c Class) {
	rule := clientTLS(s, port, c.Namespace)
	switch mode := mutual(s, port, c.Namespace); {
	case !securable(mode, rule, c):
		unreachable(out)
	case mode == tlsOwn:
		applyOwnTLS(out, rule, port)
	case mode == tlsOff, !c.ClientTLS.Complete():
	case mode == tlsMutual:
		out.TransportSocket = tlsSocket(meshTLS(s, port, c, rule))
	case out.GetType() == clusterv3.Cluster_ORIGINAL_DST:
		if allSpeakMutual(inlineCandidates(s, port)) {
			out.TransportSocket = tlsSocket(meshTLS(s, port, c, nil))
		}
	default:
		out.TransportSocketMatches = matchTLSMode(tlsSocket(meshTLS(s, port, c, nil)))
	}
}

// securable reports whether a proxy of the class can do what the mode demands. A credential by name
// would have to come from a Secret, which proxies are not sent.
func securable(mode tlsMode, rule *networking.ClientTLSSettings, c Class) bool {
	switch mode {
	case tlsMutual:
		return c.ClientTLS.Complete()
	case tlsOwn:
		return rule.CredentialName == "" && (rule.Mode != networking.ClientTLSSettings_MUTUAL || rule.ClientCertificate != "" && rule.PrivateKey != "")
	}
	return true
}

// unreachable makes the cluster one without endpoints.
func unreachable(out *clusterv3.Cluster) {
	out.ClusterDiscoveryType = &clusterv3.Cluster_Type{Type: clusterv3.Cluster_STATIC}
	out.LbPolicy = clusterv3.Cluster_LEAST_REQUEST
	out.EdsClusterConfig, out.LoadAssignment = nil, nil
}

// allSpeakMutual reports whether every endpoint behind an original destination takes mutual TLS: there
// a connection does not know its endpoint, so all are treated alike.
func allSpeakMutual(in candidates) bool {
	for _, l := range in.localities {
		if slices.ContainsFunc(l.Endpoints, func(e *model.Endpoint) bool { return !speaksMutual(e) }) {
			return false
		}
	}
	return len(in.localities) > 0
}

// matchTLSMode is mutual TLS for endpoints whose metadata says that they speak it.
func matchTLSMode(mtls *corev3.TransportSocket) []*clusterv3.Cluster_TransportSocketMatch {
	plain := &corev3.TransportSocket{Name: "envoy.transport_sockets.raw_buffer",
		ConfigType: &corev3.TransportSocket_TypedConfig{TypedConfig: pack(&rawbufferv3.RawBuffer{})}}
	return []*clusterv3.Cluster_TransportSocketMatch{
		{Name: "tlsMode-" + model.TLSIstio, TransportSocket: mtls, Match: structOf(map[string]*structpb.Value{"tlsMode": stringValue(model.TLSIstio)})},
		{Name: "tlsMode-" + model.TLSDisabled, TransportSocket: plain, Match: structOf(nil)},
	}
}

const tlsSocketName = "envoy.transport_sockets.tls"

func tlsSocket(t *tlsv3.UpstreamTlsContext) *corev3.TransportSocket {
	return &corev3.TransportSocket{Name: tlsSocketName, ConfigType: &corev3.TransportSocket_TypedConfig{TypedConfig: pack(t)}}
}

// maxServerName is the longest server name that Envoy takes. A service with a longer one is reached
// directly only.
const maxServerName = 255

// meshTLS is mutual TLS with a workload of the mesh. The server name tells gateways on the way which
// service port is meant.
func meshTLS(s *pushcontext.ShapeView, port model.Port, c Class, rule *networking.ClientTLSSettings) *tlsv3.UpstreamTlsContext {
	common := commonTLS(s.Mesh, c.ClientTLS)
	names := s.ServiceAccounts
	sni := passthroughName(port.Number, s.Key.Host)
	if len(rule.GetSubjectAltNames()) > 0 {
		names = rule.SubjectAltNames
	}
	if rule.GetSni() != "" {
		sni = rule.Sni
	}
	if len(sni) > maxServerName {
		sni = ""
	}
	common.GetValidationContext().MatchTypedSubjectAltNames = subjects(names)
	common.AlpnProtocols = []string{"istio"}
	if c.Extensions&ExtIstioMetadataExchange != 0 { // or else nothing would be there to send what it announces
		common.AlpnProtocols = meshStreams()
	}
	if port.Protocol.IsHTTP2() {
		common.AlpnProtocols = append(common.AlpnProtocols, "h2")
	}
	return &tlsv3.UpstreamTlsContext{CommonTlsContext: common, Sni: sni}
}

// applyOwnTLS is TLS as a DestinationRule describes it, with files on the proxy's machine. Names can be
// verified only where authorities are: Envoy refuses one without the other.
func applyOwnTLS(out *clusterv3.Cluster, rule *networking.ClientTLSSettings, port model.Port) {
	common := &tlsv3.CommonTlsContext{TlsParams: tlsVersions(tlsv3.TlsParameters_TLSv1_2)}
	if rule.Mode == networking.ClientTLSSettings_MUTUAL {
		common.TlsCertificates = certificate(rule.ClientCertificate, rule.PrivateKey)
	}
	verified := rule.CaCertificates != "" && !rule.GetInsecureSkipVerify().GetValue()
	if verified {
		common.ValidationContextType = authorities(rule.CaCertificates)
		common.GetValidationContext().MatchTypedSubjectAltNames = subjects(rule.SubjectAltNames)
	}
	if port.Protocol.IsHTTP2() {
		common.AlpnProtocols = []string{"h2"}
	}
	out.TransportSocket = tlsSocket(&tlsv3.UpstreamTlsContext{CommonTlsContext: common, Sni: rule.Sni})
	if rule.Sni == "" && (port.Protocol.IsHTTP() || port.Protocol.Sniffed()) {
		automaticSNI(out, verified && len(rule.SubjectAltNames) == 0)
	}
}

// automaticSNI takes the server name, and if asked the name to verify, from each request.
func automaticSNI(out *clusterv3.Cluster, verify bool) {
	o := &httpv3.HttpProtocolOptions{}
	if a := out.TypedExtensionProtocolOptions[httpOptionsKey]; a == nil || a.UnmarshalTo(o) != nil {
		o.UpstreamProtocolOptions = &httpv3.HttpProtocolOptions_ExplicitHttpConfig_{ExplicitHttpConfig: &httpv3.HttpProtocolOptions_ExplicitHttpConfig{
			ProtocolConfig: &httpv3.HttpProtocolOptions_ExplicitHttpConfig_HttpProtocolOptions{HttpProtocolOptions: &corev3.Http1ProtocolOptions{}}}}
	}
	o.UpstreamHttpProtocolOptions = &corev3.UpstreamHttpProtocolOptions{AutoSni: true, AutoSanValidation: verify}
	setHTTPOptions(out, o)
}

// commonTLS is what both sides of mutual TLS have: files to show and files to verify by.
func commonTLS(m *pushcontext.MeshView, f TLSFiles) *tlsv3.CommonTlsContext {
	least := tlsv3.TlsParameters_TLSv1_2
	if m.Config.GetMeshMTLS().GetMinProtocolVersion() == meshconfig.MeshConfig_TLSConfig_TLSV1_3 {
		least = tlsv3.TlsParameters_TLSv1_3
	}
	return &tlsv3.CommonTlsContext{
		TlsParams: tlsVersions(least), TlsCertificates: certificate(f.Chain, f.Key), ValidationContextType: authorities(f.Root),
	}
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
