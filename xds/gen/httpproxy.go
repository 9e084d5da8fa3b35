package gen

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/pushcontext"
)

// An HTTP proxy is where a workload sends requests for any host and port, as programs do that are told of one
// (http_proxy=…). A sidecar is one at the mesh's proxyHttpPort, or at that of node metadata HTTP_PROXY_PORT, and at egress
// listeners of its Sidecar of protocol HTTP_PROXY.

// httpProxyName is the route table of the mesh's, and begins the names of what else there is of HTTP proxies.
const httpProxyName = "http_proxy"

// httpProxy is one of them.
type httpProxy struct {
	bind   netip.Addr
	port   uint16
	bound  bool                // the workload connects to it; else intercepted connections come to it by their destination
	egress *pushcontext.Egress // of the Sidecar; nil for the mesh's
}

// httpProxiesOf are those of a proxy, each address once: the Sidecar's before the mesh's.
func httpProxiesOf(c Class, m *pushcontext.MeshView) (out []httpProxy) {
	if c.Type != Sidecar {
		return nil
	}
	add := func(p httpProxy) {
		taken := reserved(m, p.port) || ingressAt(m, c, p.bind, p.port)
		if !taken && !slices.ContainsFunc(out, func(o httpProxy) bool { return o.port == p.port && c.meet(o.bind, p.bind) }) {
			out = append(out, p)
		}
	}
	if c.Scope != nil && c.Scope.Sidecar != nil {
		for i := range c.Scope.Sidecar.Egress {
			e := &c.Scope.Sidecar.Egress[i]
			s := site{egress: *e, bound: !c.intercepts() || e.Capture == networking.CaptureMode_NONE}
			if !s.proxies() {
				continue
			}
			if bind, ok := s.address(c); ok {
				add(httpProxy{bind: bind, port: uint16(e.Port.Number), bound: s.bound, egress: e})
			}
		}
	}
	if port := cmp.Or(c.Tuning.HTTPProxy, portOr(m.Config.GetProxyHttpPort(), 0)); port != 0 {
		add(httpProxy{bind: c.loopback(), port: port, bound: true})
	}
	return out
}

// proxies reports whether the listener is an HTTP proxy.
func (s *site) proxies() bool {
	return s.egress.Port != nil && portProtocol(s.egress.Port.Protocol) == model.ProtocolHTTPProxy
}

// httpProxyAt reports whether a proxy has an HTTP proxy at an address: Envoy refuses another listener there.
func httpProxyAt(m *pushcontext.MeshView, c Class, bind netip.Addr, port uint16) bool {
	return slices.ContainsFunc(httpProxiesOf(c, m), func(p httpProxy) bool { return p.port == port && c.meet(p.bind, bind) })
}

// isHTTPProxy reports whether a listener or route table is of an HTTP proxy.
func isHTTPProxy(name string) bool {
	return name == httpProxyName || strings.HasPrefix(name, httpProxyName+".")
}

// listener is the name of its listener.
func (p *httpProxy) listener() string { return httpProxyName + "." + listenerName(p.bind, p.port) }

// table is the name of its route table.
func (p *httpProxy) table() string {
	if p.egress == nil {
		return httpProxyName
	}
	return p.listener()
}

// forwards reports whether the proxy sends requests for unknown hosts where their names lead: there is no destination of
// the connection to pass them on to.
func (p *httpProxy) forwards(c Class, m *pushcontext.MeshView) bool {
	cluster, ok := unknownTraffic(c, m)
	return ok && cluster == passthroughCluster
}

func httpProxyListeners(m *pushcontext.MeshView, c Class) (names []string) {
	for _, p := range httpProxiesOf(c, m) {
		names = append(names, p.listener())
	}
	return names
}

// httpProxyListener makes one of the listeners, nil if there is none of the name.
func httpProxyListener(m *pushcontext.MeshView, c Class, name string) *listenerv3.Listener {
	for _, p := range httpProxiesOf(c, m) {
		if p.listener() != name {
			continue
		}
		b := &listenerBuilder{class: c, mesh: m, bind: p.bind, port: p.port, protocol: model.ProtocolHTTPProxy}
		l := b.listener(name)
		if p.bound {
			l.BindToPort = nil
		}
		l.AdditionalAddresses = otherFamily(c, p.bind, p.port)
		manager := b.manager("outbound_"+b.name(), outbound, b.protocol)
		manager.HttpProtocolOptions = &corev3.Http1ProtocolOptions{AllowAbsoluteUrl: yes(), AcceptHttp_10: c.HTTP10}
		manager.RouteSpecifier = &hcmv3.HttpConnectionManager_Rds{Rds: &hcmv3.Rds{ConfigSource: ads(), RouteConfigName: p.table()}}
		l.FilterChains = []*listenerv3.FilterChain{managerChain("", nil, manager)}
		return l
	}
	return nil
}

// httpProxyCluster resolves the hosts of requests that no service is for.
const httpProxyCluster = "HttpProxyCluster"

func hasHTTPProxyCluster(m *pushcontext.MeshView, c Class) bool {
	return slices.ContainsFunc(httpProxiesOf(c, m), func(p httpProxy) bool { return p.forwards(c, m) })
}

// narrowToHTTPProxies keeps of node metadata and Sidecar what they say of HTTP proxies.
func narrowToHTTPProxies(m *pushcontext.MeshView, c Class) Class {
	c.Extensions, c.HTTP10, c.Tuning = 0, false, Tuning{HTTPProxy: c.Tuning.HTTPProxy}
	if len(httpProxiesOf(c, m)) == 0 {
		c.Scope, c.Tuning = nil, Tuning{}
	}
	return c
}
