package validate

import (
	"fmt"
	"net"
	"strconv"
	"strings"

	networking "istio.io/api/networking/v1alpha3"
	networkingv1beta1 "istio.io/api/networking/v1beta1"

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
		bind(at.at("bind"), in.GetBind())
		if in.GetBind() != "" && in.GetCaptureMode() != networking.CaptureMode_NONE {
			at.at("bind").add(CodeIneffective, model.SeverityInfo, "connections that are intercepted come to any address: it counts at proxies without interception, or with captureMode NONE")
		}
		ingressEndpoint(at.at("defaultEndpoint"), in.GetDefaultEndpoint())
		connectionPool(at.at("connectionPool"), in.GetConnectionPool())
		if t := in.GetTls(); t != nil {
			at.at("tls").unless(t.Mode == networking.ServerTLSSettings_SIMPLE || t.Mode == networking.ServerTLSSettings_MUTUAL || t.Mode == networking.ServerTLSSettings_OPTIONAL_MUTUAL,
				CodeTLS, "a sidecar's listener knows modes SIMPLE, MUTUAL and OPTIONAL_MUTUAL only")
			at.at("tls.httpsRedirect").unless(!t.HttpsRedirect, CodeTLS, "a sidecar does not redirect")
			tlsSettings(at.at("tls"), t)
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
			places.check(at.at("port"), fmt.Sprintf("%s:%d", e.Bind, p.Number), CodePort, "listener")
		} else {
			at.unless(!rest, CodeDuplicate, "a second listener without port: join their hosts")
			at.at("bind").unless(e.GetBind() == "", CodeExclusive, "it goes with a port only")
			rest = true
		}
		bind(at.at("bind"), e.GetBind())
		at.at("hosts").unless(len(e.GetHosts()) > 0, CodeRequired, "it imports nothing: write \"*/*\" for all, \"~/*\" for nothing")
		for j, h := range e.GetHosts() {
			importHost(at.item("hosts", j), h)
		}
	}
}

// importHost checks "namespace/host".
func importHost(c *checker, h string) {
	namespace, host, both := strings.Cut(h, "/")
	if !c.unless(both, CodeHost, "%q names no namespace: write namespace/host, \"./host\" for the own one, \"*/host\" for any", h) {
		return
	}
	c.unless(namespace == "*" || namespace == "." || namespace == "~" || nameLabel.MatchString(namespace), CodeName, "%q is not a namespace, \".\", \"*\" or \"~\"", namespace)
	c.host(host)
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
	local := host == "127.0.0.1" || host == "0.0.0.0" || host == "::1" || host == "::"
	c.unless(err == nil && bad == nil && n > 0 && local, CodeAddress, "%q is not an endpoint: write 127.0.0.1:PORT, 0.0.0.0:PORT, [::1]:PORT, [::]:PORT or unix:///PATH", s)
}

func proxyConfig(c *checker, p *networkingv1beta1.ProxyConfig) {
	c.at("selector.matchLabels").selector(p.GetSelector().GetMatchLabels())
	if p.Concurrency != nil {
		c.at("concurrency").atLeast(int64(p.Concurrency.Value), 0)
	}
	if p.Image != nil {
		c.at("image.imageType").unless(p.Image.ImageType != "", CodeRequired, "it names no type")
	}
	for _, k := range sorted(p.EnvironmentVariables) {
		c.at("environmentVariables").unless(k != "" && !strings.ContainsAny(k, "=\x00"), CodeName, "%q is not the name of a variable", k)
	}
}
