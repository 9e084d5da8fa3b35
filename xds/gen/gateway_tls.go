package gen

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/pushcontext"
)

// withoutRoutes says why the connections of a server lead nowhere; "" if they don't.
func withoutRoutes(s *routerServer) string {
	t := s.tls()
	switch {
	case t != nil && t.Mode == networking.ServerTLSSettings_AUTO_PASSTHROUGH:
	case t != nil && len(s.serverNames()) == 0:
		return "none of its hosts can be a server name"
	case s.table == "" && len(s.streams) == 0:
		return "no VirtualService that is bound to the Gateway has a TCP or TLS route for it"
	}
	return ""
}

// withoutFiles says what proxies of the class lack to end TLS for a server; "" if nothing. Connections are refused then, for
// cleartext, or TLS under another server's certificate, would be worse.
func withoutFiles(t *networking.ServerTLSSettings, c Class) string {
	mutual := t.Mode == networking.ServerTLSSettings_MUTUAL || t.Mode == networking.ServerTLSSettings_OPTIONAL_MUTUAL
	switch {
	case t.CredentialName != "" || len(t.CredentialNames) > 0 || t.CaCertCredentialName != "":
		return "credentials by name (credentialName) are not served: name files on the router's machine"
	case t.Mode == networking.ServerTLSSettings_ISTIO_MUTUAL && !c.ServerTLS.Complete():
		return "ISTIO_MUTUAL needs the router's own certificate (node metadata TLS_SERVER_*)"
	case t.Mode == networking.ServerTLSSettings_ISTIO_MUTUAL:
	case len(certificatesOf(t)) == 0:
		return "it names no serverCertificate and privateKey"
	case mutual && authoritiesOf(t) == "" && !t.InsecureSkipVerify.GetValue():
		return "it names no caCertificates to verify clients by"
	}
	if s := slices.IndexFunc(t.VerifyCertificateSpki, func(x string) bool {
		b, err := base64.StdEncoding.DecodeString(x)
		return err != nil || len(b) != sha256.Size
	}); s >= 0 {
		return fmt.Sprintf("verifyCertificateSpki[%d] is no SHA-256 in base64", s)
	}
	if s := slices.IndexFunc(t.VerifyCertificateHash, func(x string) bool {
		b, err := hex.DecodeString(strings.ReplaceAll(x, ":", ""))
		return err != nil || len(b) != sha256.Size || len(x) != 64 && len(x) != 95
	}); s >= 0 {
		return fmt.Sprintf("verifyCertificateHash[%d] is no SHA-256 in hexadecimal digits", s)
	}
	return ""
}

// certificatesOf are those to show: one, or one for each kind of key.
func certificatesOf(t *networking.ServerTLSSettings) []*tlsv3.TlsCertificate {
	var out []*tlsv3.TlsCertificate
	if t.ServerCertificate != "" && t.PrivateKey != "" {
		out = certificate(t.ServerCertificate, t.PrivateKey)
	}
	for _, x := range t.TlsCertificates {
		if x.GetServerCertificate() != "" && x.GetPrivateKey() != "" {
			out = append(out, certificate(x.ServerCertificate, x.PrivateKey)...)
		}
	}
	return out
}

func authoritiesOf(t *networking.ServerTLSSettings) string {
	if t.CaCertificates != "" {
		return t.CaCertificates
	}
	for _, x := range t.TlsCertificates {
		if x.GetCaCertificates() != "" {
			return x.CaCertificates
		}
	}
	return ""
}

// serverSocket ends TLS as a server says.
func (b *listenerBuilder) serverSocket(t *networking.ServerTLSSettings, http bool) *corev3.TransportSocket {
	var common *tlsv3.CommonTlsContext
	if t.Mode == networking.ServerTLSSettings_ISTIO_MUTUAL {
		common = b.meshServerTLS()
	} else {
		common = &tlsv3.CommonTlsContext{TlsCertificates: certificatesOf(t)}
		if path := authoritiesOf(t); path != "" && t.Mode != networking.ServerTLSSettings_SIMPLE {
			common.ValidationContextType = authorities(path)
		}
		common.TlsParams = serverParameters(t, b.mesh)
	}
	if t.Mode != networking.ServerTLSSettings_SIMPLE {
		verifyClients(common, t)
	}
	if common.AlpnProtocols = t.AlpnProtocols; len(t.AlpnProtocols) == 0 && http {
		common.AlpnProtocols = httpProtocols()
	}
	out := &tlsv3.DownstreamTlsContext{CommonTlsContext: common, RequireClientCertificate: no()}
	if t.Mode == networking.ServerTLSSettings_MUTUAL || t.Mode == networking.ServerTLSSettings_ISTIO_MUTUAL {
		out.RequireClientCertificate = yes()
	}
	return &corev3.TransportSocket{Name: tlsSocketName, ConfigType: &corev3.TransportSocket_TypedConfig{TypedConfig: pack(out)}}
}

// verifyClients says which certificates of clients are accepted. With insecureSkipVerify all are: who gets them from
// the header is to look at them.
func verifyClients(common *tlsv3.CommonTlsContext, t *networking.ServerTLSSettings) {
	v := common.GetValidationContext()
	if v == nil {
		v = &tlsv3.CertificateValidationContext{}
		common.ValidationContextType = &tlsv3.CommonTlsContext_ValidationContext{ValidationContext: v}
	}
	v.VerifyCertificateSpki, v.VerifyCertificateHash = t.VerifyCertificateSpki, t.VerifyCertificateHash
	if v.TrustedCa != nil {
		v.MatchTypedSubjectAltNames = subjects(t.SubjectAltNames)
		if t.CaCrl != "" {
			v.Crl = file(t.CaCrl)
		}
	}
	if t.InsecureSkipVerify.GetValue() && t.Mode != networking.ServerTLSSettings_ISTIO_MUTUAL {
		v.TrustChainVerification = tlsv3.CertificateValidationContext_ACCEPT_UNTRUSTED
	}
}

var serverVersions = map[networking.ServerTLSSettings_TLSProtocol]tlsv3.TlsParameters_TlsProtocol{
	networking.ServerTLSSettings_TLSV1_0: tlsv3.TlsParameters_TLSv1_0,
	networking.ServerTLSSettings_TLSV1_1: tlsv3.TlsParameters_TLSv1_1,
	networking.ServerTLSSettings_TLSV1_2: tlsv3.TlsParameters_TLSv1_2,
	networking.ServerTLSSettings_TLSV1_3: tlsv3.TlsParameters_TLSv1_3,
}

// serverParameters are versions, ciphers and curves: of the server, else of the mesh. TLS 1.2 is the least unless the
// server says otherwise.
func serverParameters(t *networking.ServerTLSSettings, m *pushcontext.MeshView) *tlsv3.TlsParameters {
	out := tlsParameters(m.Config.GetTlsDefaults())
	if v, ok := serverVersions[t.MinProtocolVersion]; ok {
		out.TlsMinimumProtocolVersion = v
	}
	if v, ok := serverVersions[t.MaxProtocolVersion]; ok && v >= out.TlsMinimumProtocolVersion {
		out.TlsMaximumProtocolVersion = v
	}
	if len(t.CipherSuites) > 0 {
		out.CipherSuites = known(t.CipherSuites, model.CipherSuites())
	}
	if len(t.EcdhCurves) > 0 {
		out.EcdhCurves = known(t.EcdhCurves, model.Curves())
	}
	return out
}

// known leaves out what Envoy would refuse the whole listener for.
func known(list, valid []string) (out []string) {
	for _, x := range list {
		if slices.Contains(valid, x) {
			out = append(out, x)
		}
	}
	return out
}
