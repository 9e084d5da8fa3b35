package validate

import (
	"fmt"
	"slices"
	"strings"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
)

func gateway(c *checker, s *networking.Gateway) {
	c.at("selector").selectable(s.Selector)
	if len(s.Servers) == 0 {
		c.at("servers").refuse(CodeRequired, "it has no servers")
	}
	names, ports := once[string]{}, once[string]{}
	protocols := map[string]string{} // by port and address: which protocol the first server has there
	for i, v := range s.Servers {
		at := c.item("servers", i)
		if v == nil {
			at.refuse(CodeRequired, "the server is empty")
			continue
		}
		server(at, v)
		if v.Name != "" {
			names.check(at.at("name"), v.Name, CodeDuplicate, "server")
		}
		if name := v.GetPort().GetName(); name != "" {
			ports.check(at.at("port.name"), name, CodeDuplicate, "port")
		}
		place := fmt.Sprintf("%s:%d", v.Bind, v.GetPort().GetNumber())
		if kind := listens(v); protocols[place] == "" {
			protocols[place] = kind
		} else if protocols[place] != kind {
			at.at("port").warn(CodePort, "an earlier server speaks %s at port %d, this one %s: it can't be served there", protocols[place], v.GetPort().GetNumber(), kind)
		}
	}
}

// listens is what connections to a server begin with.
func listens(v *networking.Server) string {
	return model.Opening(v.GetPort().GetProtocol(), v.Tls != nil)
}

func server(c *checker, v *networking.Server) {
	gatewayPort(c.at("port"), v.Port, !isUnix(v.Bind))
	if v.Bind != "" {
		at := c.at("bind")
		if isUnix(v.Bind) {
			at.unixPath(v.Bind)
		} else {
			at.unless(isAddress(v.Bind), CodeAddress, "%q is neither an address nor a unix domain socket", v.Bind)
		}
	}
	if v.DefaultEndpoint != "" {
		c.at("defaultEndpoint").warn(CodeIneffective, "a gateway has no default endpoint: route with a VirtualService")
	}
	c.at("hosts").unless(len(v.Hosts) > 0, CodeRequired, "it has no hosts: write \"*\" for all")
	for i, h := range v.Hosts {
		gatewayHost(c.item("hosts", i), h)
	}
	serverTLS(c, v)
}

// gatewayPort checks the port of a server, which has a number unless it is a unix domain socket.
func gatewayPort(c *checker, p *networking.Port, numbered bool) {
	if p == nil {
		c.refuse(CodeRequired, "it has no port")
		return
	}
	if numbered {
		c.at("number").port(p.Number)
	} else {
		c.at("number").unless(p.Number == 0, CodePort, "a unix domain socket has no port: write 0, or leave it out")
	}
	//lint:ignore SA1019 objects may still have it
	c.at("targetPort").unless(p.TargetPort == 0, CodeIneffective, "it has no effect: the gateway's own Service says the target port")
	if c.at("protocol").unless(p.Protocol != "", CodeRequired, "the port has no protocol") {
		c.at("protocol").protocol(p.Protocol)
	}
	c.at("name").unless(p.Name != "", CodeRequired, "the port has no name")
}

// gatewayHost checks "host" and "namespace/host".
func gatewayHost(c *checker, h string) {
	namespace, host, both := strings.Cut(h, "/")
	if !both {
		namespace, host = "*", h
	}
	c.unless(namespace == "*" || namespace == "." || nameLabel.MatchString(namespace), CodeName, "%q is not a namespace, \".\" or \"*\"", namespace)
	if c.host(host) && c.whole(host) {
		c.domain(host)
	}
}

// domain refuses names without domain, which would be taken for others in other places.
func (c *checker) domain(host string) {
	c.unless(host == "*" || strings.Contains(host, "."), CodeHost, "%q has no domain: write the whole name", host)
}

func serverTLS(c *checker, v *networking.Server) {
	t, kind := v.Tls, strings.ToLower(v.GetPort().GetProtocol())
	at := c.at("tls")
	ends := kind == "https" || kind == "tls"
	if t == nil {
		c.unless(!ends, CodeTLS, "protocol %s needs tls", strings.ToUpper(kind))
		return
	}
	switch {
	case ends && t.HttpsRedirect:
		at.at("httpsRedirect").warn(CodeIneffective, "only a server of plain HTTP redirects to HTTPS")
	case ends, kind == "": // that a port has no protocol is told already
	case model.Opening(kind, false) != model.Opening("http", false):
		at.refuse(CodeTLS, "protocol %s has no tls: use protocol TLS", strings.ToUpper(kind))
		return
	case passes(t) && t.ServerCertificate == "" && t.PrivateKey == "" && t.CaCertificates == "":
		if !t.HttpsRedirect {
			at.warn(CodeIneffective, "protocol %s is plain, so only httpsRedirect has an effect; use protocol HTTPS", strings.ToUpper(kind))
		}
	default:
		at.refuse(CodeTLS, "protocol %s is plain: only httpsRedirect may stand here; use protocol HTTPS", strings.ToUpper(kind))
		return
	}
	tlsSettings(at, t)
}

// passes reports whether no TLS is ended.
func passes(t *networking.ServerTLSSettings) bool {
	return t.Mode == networking.ServerTLSSettings_PASSTHROUGH || t.Mode == networking.ServerTLSSettings_AUTO_PASSTHROUGH
}

// tlsSettings checks the TLS of a server, of a gateway or of a sidecar.
func tlsSettings(c *checker, t *networking.ServerTLSSettings) {
	versions(c, t)
	secret := t.CredentialName != "" || len(t.CredentialNames) > 0
	files := t.ServerCertificate != "" || t.PrivateKey != "" || len(t.TlsCertificates) > 0
	if t.Mode == networking.ServerTLSSettings_ISTIO_MUTUAL {
		c.unless(!secret && !files && t.CaCertificates == "", CodeTLS, "mode ISTIO_MUTUAL uses the mesh's own certificates: leave certificates, keys and credentialName out")
		return
	}
	if passes(t) {
		if secret || files || t.CaCertificates != "" || t.CaCrl != "" {
			c.warn(CodeIneffective, "mode %s ends no TLS, so certificates, keys and credentialName do nothing", t.Mode)
		}
		c.at("caCrl").unless(t.CaCrl == "" || t.CredentialName == "", CodeTLS, "credentialName has the revocation list of its authority: leave it out")
	}
	sources := 0
	for _, set := range []bool{t.ServerCertificate != "" && t.PrivateKey != "", t.CredentialName != "", len(t.CredentialNames) > 0, len(t.TlsCertificates) > 0} {
		if set {
			sources++
		}
	}
	c.unless(sources <= 1, CodeTLS, "credentialName, credentialNames, tlsCertificates, and serverCertificate with privateKey exclude each other: keep one of them")
	switch {
	case passes(t):
	case secret:
		if files || t.CaCertificates != "" || t.CaCrl != "" {
			c.warn(CodeIneffective, "beside credentialName files do nothing: keep one of them")
		}
	default:
		fileCertificates(c, t)
	}
	for _, l := range []struct {
		field string
		n     int
	}{{"credentialNames", len(t.CredentialNames)}, {"tlsCertificates", len(t.TlsCertificates)}} {
		if l.n > 2 {
			c.at(l.field).warn(CodeTLS, "at most two count: one RSA and one ECDSA certificate")
		}
	}
}

// fileCertificates checks TLS that is ended with certificates in files.
func fileCertificates(c *checker, t *networking.ServerTLSSettings) {
	if len(t.TlsCertificates) == 0 {
		certificate(c, t.Mode, t.ServerCertificate, t.PrivateKey)
	}
	for i, x := range t.TlsCertificates {
		certificate(c.item("tlsCertificates", i), t.Mode, x.GetServerCertificate(), x.GetPrivateKey())
	}
	if t.Mode == networking.ServerTLSSettings_SIMPLE {
		c.at("caCrl").unless(t.CaCrl == "", CodeTLS, "mode SIMPLE looks at no certificate of clients: use MUTUAL, or leave it out")
		return
	}
	c.at("caCertificates").unless(t.CaCertificates != "", CodeTLS, "mode %s needs certificates of the clients' authorities: caCertificates", t.Mode)
}

func certificate(c *checker, mode networking.ServerTLSSettings_TLSmode, certificate, key string) {
	c.at("serverCertificate").unless(certificate != "", CodeTLS, "mode %s needs a certificate: serverCertificate or credentialName", mode)
	c.at("privateKey").unless(key != "", CodeTLS, "mode %s needs the key of its certificate: privateKey or credentialName", mode)
}

// unknown warns of names that proxies don't know, which are left out.
func unknown(c *checker, field string, list, known []string) {
	if len(list) > 0 && !slices.ContainsFunc(list, func(s string) bool { return slices.Contains(known, s) }) {
		c.at(field).warn(CodeTLS, "proxies know none of them, so their own choice holds: name some of %s", strings.Join(known, ", "))
		return
	}
	for i, s := range list {
		if !slices.Contains(known, s) {
			c.item(field, i).warn(CodeTLS, "proxies don't know %q, so it is left out", s)
		}
	}
}

func versions(c *checker, t *networking.ServerTLSSettings) {
	low, high := t.MinProtocolVersion, t.MaxProtocolVersion
	if low != networking.ServerTLSSettings_TLS_AUTO && high != networking.ServerTLSSettings_TLS_AUTO {
		c.at("minProtocolVersion").unless(low <= high, CodeTLS, "it is newer than maxProtocolVersion")
	}
	if low == networking.ServerTLSSettings_TLSV1_0 || low == networking.ServerTLSSettings_TLSV1_1 {
		c.at("minProtocolVersion").warn(CodeTLS, "%s is not safe any more", low)
	}
	seen := once[string]{}
	for i, s := range t.CipherSuites {
		seen.note(c.item("cipherSuites", i), s, CodeDuplicate, "cipher suite")
	}
	unknown(c, "cipherSuites", t.CipherSuites, model.CipherSuites())
	unknown(c, "ecdhCurves", t.EcdhCurves, model.Curves())
	for _, l := range []struct {
		field string
		list  []string
	}{{"verifyCertificateHash", t.VerifyCertificateHash}, {"verifyCertificateSpki", t.VerifyCertificateSpki}} {
		for i, h := range l.list {
			c.item(l.field, i).unless(h != "", CodeTLS, "the hash is empty")
		}
	}
}
