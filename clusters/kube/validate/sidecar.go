package validate

import (
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"

	networking "istio.io/api/networking/v1alpha3"
	networkingv1beta1 "istio.io/api/networking/v1beta1"
	selectors "istio.io/api/type/v1beta1"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
)

func sidecar(c *checker, s *networking.Sidecar) {
	c.unless(len(s.Ingress)+len(s.Egress) > 0 || s.OutboundTrafficPolicy != nil || s.InboundConnectionPool != nil,
		CodeRequired, "it says nothing: give it one of ingress, egress, outboundTrafficPolicy and inboundConnectionPool")
	if s.WorkloadSelector != nil {
		at := c.at("workloadSelector.labels")
		at.selects(s.WorkloadSelector.Labels)
		at.selector(s.WorkloadSelector.Labels)
	}
	ports := once[uint32]{}
	for i, in := range s.Ingress {
		at := c.item("ingress", i)
		sidecarPort(at.at("port"), in.GetPort(), true)
		ports.check(at.at("port"), in.GetPort().GetNumber(), CodePort, "port")
		at.at("bind").unless(in.GetBind() == "" || isAddress(in.GetBind()), CodeAddress, "%q is not an address", in.GetBind())
		if in.GetBind() != "" && in.GetCaptureMode() != networking.CaptureMode_NONE {
			at.at("bind").add(CodeIneffective, model.SeverityInfo, "connections that are intercepted come to any address: it counts at proxies without interception, or with captureMode NONE")
		}
		ingressEndpoint(at.at("defaultEndpoint"), in.GetDefaultEndpoint())
		connectionPool(at.at("connectionPool"), in.GetConnectionPool())
		ingressTLS(at, in)
		if kind := model.Opening(in.GetPort().GetProtocol(), false); in.GetConnectionPool().GetHttp() != nil && kind != model.Opening("http", false) && in.GetPort().GetProtocol() != "" {
			at.at("connectionPool.http").warn(CodeIneffective, "protocol %s is not HTTP, so only tcp has an effect", strings.ToUpper(in.GetPort().GetProtocol()))
		}
	}
	egress(c, s.Egress)
	connectionPool(c.at("inboundConnectionPool"), s.InboundConnectionPool)
	if p := s.OutboundTrafficPolicy; p.GetEgressProxy() != nil {
		at := c.at("outboundTrafficPolicy.egressProxy")
		destination(at, p.EgressProxy)
		at.at("port").unless(p.EgressProxy.Port != nil, CodeRequired, "it names no port")
		at.unless(p.Mode == networking.OutboundTrafficPolicy_ALLOW_ANY, CodeExclusive, "it goes with mode ALLOW_ANY only")
	}
}

// ingressTLS checks the TLS of a sidecar's own listener.
func ingressTLS(c *checker, in *networking.IstioIngressListener) {
	t, at := in.GetTls(), c.at("tls")
	if t == nil {
		return
	}
	kind := strings.ToLower(in.GetPort().GetProtocol())
	at.unless(kind == "https" || kind == "tls", CodeTLS, "protocol %s has no tls: use HTTPS or TLS", strings.ToUpper(kind))
	at.at("mode").unless(t.Mode != networking.ServerTLSSettings_ISTIO_MUTUAL && t.Mode != networking.ServerTLSSettings_AUTO_PASSTHROUGH,
		CodeTLS, "a sidecar's listener knows modes SIMPLE, MUTUAL and OPTIONAL_MUTUAL only")
	if t.Mode == networking.ServerTLSSettings_PASSTHROUGH {
		at.at("mode").warn(CodeIneffective, "with PASSTHROUGH the listener ends no TLS: leave tls out, or use SIMPLE, MUTUAL or OPTIONAL_MUTUAL")
	}
	for _, f := range []struct {
		field string
		set   bool
	}{{"httpsRedirect", t.HttpsRedirect}, {"subjectAltNames", len(t.SubjectAltNames) > 0}, {"credentialName", t.CredentialName != ""}, {"credentialNames", len(t.CredentialNames) > 0}, {"tlsCertificates", len(t.TlsCertificates) > 0}} {
		at.at(f.field).unless(!f.set, CodeTLS, "a sidecar's listener does not know it: leave it out")
	}
	tlsSettings(at, t)
}

func egress(c *checker, list []*networking.IstioEgressListener) {
	places, rest := once[string]{}, false
	for i, e := range list {
		at := c.item("egress", i)
		if p := e.GetPort(); p != nil {
			at.unless(!rest, CodeUnreachable, "a listener without port takes all ports before it: move that to the end")
			sidecarPort(at.at("port"), p, !isUnix(e.Bind))
			if isUnix(e.Bind) {
				at.at("bind").warn(CodeIneffective, "proxies do not listen on unix domain sockets for their workload: nothing is served there")
			}
			place := e.Bind // ports on addresses are told apart by number alone
			if p.Number != 0 {
				place = fmt.Sprint(p.Number)
			}
			places.check(at.at("port"), place, CodePort, "listener")
			at.at("captureMode").unless(!isUnix(e.Bind) || e.CaptureMode != networking.CaptureMode_IPTABLES, CodeExclusive, "nothing is intercepted on its way to a unix domain socket: use NONE")
		} else {
			at.unless(!rest, CodeDuplicate, "a second listener without port: join their hosts")
			if e.GetBind() != "" {
				at.at("bind").warn(CodeIneffective, "it goes with a port only")
			}
			rest = true
		}
		if e.GetPort() != nil {
			bind(at.at("bind"), e.GetBind())
		}
		at.at("hosts").unless(len(e.GetHosts()) > 0, CodeRequired, "it imports nothing: write \"*/*\" for all, \"~/*\" for nothing")
		seen := once[string]{}
		for j, h := range e.GetHosts() {
			importHost(at.item("hosts", j), h)
			seen.note(at.item("hosts", j), h, CodeDuplicate, "host")
			if strings.HasPrefix(h, "~") {
				continue
			}
			if namespace, _, _ := strings.Cut(h, "/"); h != namespace+"/*" && (seen[namespace+"/*"] || slices.Contains(e.GetHosts(), namespace+"/*")) || seen["*/*"] && h != "*/*" {
				at.item("hosts", j).warn(CodeDuplicate, "all hosts of the namespace are imported already: leave it out")
			}
		}
	}
}

// importHost checks "namespace/host".
func importHost(c *checker, h string) {
	namespace, host, both := strings.Cut(h, "/")
	if !c.unless(both, CodeHost, "%q names no namespace: write namespace/host, \"./host\" for the own one, \"*/host\" for any", h) {
		return
	}
	bare := strings.TrimPrefix(namespace, "~") // "~" excludes
	c.unless(namespace == "~" || bare == "*" || bare == "." || nameLabel.MatchString(bare), CodeName, "%q is not a namespace, \".\", \"*\" or \"~\"", namespace)
	if c.unless(isPattern(host), CodeHost, "%q is not a host: write a DNS name or \"*.suffix\"", host) && c.whole(host) {
		c.domain(host)
	}
}

func sidecarPort(c *checker, p *networking.SidecarPort, numbered bool) {
	if p == nil {
		c.refuse(CodeRequired, "it has no port")
		return
	}
	if numbered {
		c.at("number").port(p.Number)
	} else {
		c.at("number").unless(p.Number == 0, CodePort, "a unix domain socket has no port")
	}
	if p.Protocol != "" {
		c.at("protocol").protocol(p.Protocol)
	}
	if p.Name != "" {
		c.at("name").name(p.Name)
	}
	//lint:ignore SA1019 objects may still have it
	c.at("targetPort").unless(p.TargetPort == 0, CodeIneffective, "it has no effect: leave it out")
}

func bind(c *checker, s string) {
	switch {
	case s == "":
	case isUnix(s):
		c.unixPath(s)
	default:
		c.unless(isAddress(s), CodeAddress, "%q is neither an address nor a unix domain socket", s)
	}
}

// ingressEndpoint checks where a sidecar sends what it receives: a port of the workload, at its loopback or own address.
func ingressEndpoint(c *checker, s string) {
	if s == "" {
		return
	}
	if isUnix(s) {
		c.unixPath(s)
		return
	}
	host, port, err := net.SplitHostPort(s)
	n, bad := strconv.ParseUint(port, 10, 16)
	local := host == "" || host == "127.0.0.1" || host == "0.0.0.0" || host == "::1" || host == "::"
	c.unless(err == nil && bad == nil && n > 0 && local, CodeAddress, "%q is not an endpoint: write 127.0.0.1:PORT, 0.0.0.0:PORT, [::1]:PORT, [::]:PORT or unix:///PATH", s)
}

func proxyConfig(c *checker, p *networkingv1beta1.ProxyConfig) {
	typeSelector(c, p.GetSelector())
	if p.Concurrency != nil {
		c.at("concurrency").atLeast(int64(p.Concurrency.Value), 0)
	}
	if p.Image != nil && p.Image.ImageType == "" {
		c.at("image.imageType").warn(CodeRequired, "it names no type")
	}
	for _, k := range sorted(p.EnvironmentVariables) {
		if k == "" || strings.ContainsAny(k, "=\x00") {
			c.at("environmentVariables").warn(CodeName, "%q is not the name of a variable", k)
		}
	}
}

// typeSelector checks the selector of kinds that have one without being named after it.
func typeSelector(c *checker, s *selectors.WorkloadSelector) {
	if s != nil {
		at := c.at("selector.matchLabels")
		at.selects(s.MatchLabels)
		at.selector(s.MatchLabels)
	}
}
