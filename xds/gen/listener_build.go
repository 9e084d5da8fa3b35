package gen

import (
	"net/netip"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	httpinspectorv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/listener/http_inspector/v3"
	originaldstv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/listener/original_dst/v3"
	originalsrcv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/listener/original_src/v3"
	tlsinspectorv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/listener/tls_inspector/v3"
	tcpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"
	"google.golang.org/protobuf/proto"
	meshconfig "istio.io/api/mesh/v1alpha1"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/pushcontext"
)

// listenerBuilder makes the listeners of one address and port.
type listenerBuilder struct {
	class Class
	mesh  *pushcontext.MeshView
	bind  netip.Addr
	port  uint16

	protocol model.Protocol // of the HTTP that is routed by host
}

// listener has no chains yet and is not bound: intercepted connections reach it through
// virtualOutbound.
func (b *listenerBuilder) listener(name string) *listenerv3.Listener {
	return &listenerv3.Listener{
		Name: name, Address: socketAddress(b.bind.String(), b.port), BindToPort: no(),
		TrafficDirection: corev3.TrafficDirection_OUTBOUND,
	}
}

func (b *listenerBuilder) name() string { return listenerName(b.bind, b.port) }

// whole serves everything that has the port to clients that connect to the proxy itself: HTTP by host,
// TLS by server name, and the oldest of the rest.
func (b *listenerBuilder) whole(p *portPlan) *listenerv3.Listener {
	l := b.listener(b.name())
	l.BindToPort = nil
	if b.bind.IsUnspecified() {
		l.AdditionalAddresses = otherFamily(b.class, b.port)
	}
	b.chains(l, p, "")
	return l
}

// wildcard serves what no listener of an own address does; connections that nothing claims go where
// the mesh says.
func (b *listenerBuilder) wildcard(p *portPlan) *listenerv3.Listener {
	l := b.listener(b.name())
	l.AdditionalAddresses = otherFamily(b.class, b.port)
	b.chains(l, p, b.unknown())
	return l
}

// chains fills a listener that several services share. rest is the cluster of connections that
// nothing claims; "" refuses them.
func (b *listenerBuilder) chains(l *listenerv3.Listener, p *portPlan, rest string) {
	c := &sharedChains{names: map[string]bool{}, ranges: map[netip.Prefix]bool{}}
	for _, n := range p.wild {
		b.share(c, &p.services[n], p.ranges[n])
	}
	l.FilterChains = c.list
	if p.http {
		match := plainHTTP(b.class)
		if rest == "" && c.rest == "" {
			match = nil // nothing else to tell it apart from
		}
		l.FilterChains = append(l.FilterChains, b.http("", match, sharedRoute(b.class, b.port)))
		c.inspectHTTP = c.inspectHTTP || match != nil
	}
	switch {
	case c.rest != "":
		l.DefaultFilterChain = b.tcp("", nil, c.rest)
	case rest != "":
		l.DefaultFilterChain = b.tcp("PassthroughFilterChain", nil, rest)
	}
	if len(l.FilterChains) == 0 {
		l.FilterChains, l.DefaultFilterChain = []*listenerv3.FilterChain{l.DefaultFilterChain}, nil
	}
	b.inspect(l, c.inspectTLS, c.inspectHTTP)
}

// sharedChains collects the chains of a shared listener. Two chains of equal matches would make Envoy
// refuse all of it: the older service has the match.
type sharedChains struct {
	list                    []*listenerv3.FilterChain
	names                   map[string]bool
	ranges                  map[netip.Prefix]bool
	rest                    string // cluster of the oldest service that only its port tells apart
	inspectTLS, inspectHTTP bool
}

func (b *listenerBuilder) share(c *sharedChains, s *placed, ranges []netip.Prefix) {
	cluster := outboundName(s.port.Number, s.shape.Key.Host)
	free := ranges[:0:0]
	for _, r := range ranges {
		if !c.ranges[r] {
			c.ranges[r] = true
			free = append(free, r)
		}
	}
	secure := s.port.Protocol == model.ProtocolTLS || s.port.Protocol == model.ProtocolHTTPS
	switch {
	case len(ranges) > 0 && len(free) == 0:
	case len(free) > 0:
		b.shareRanges(c, s, free, cluster)
	case secure:
		if name := canonical(s.shape.Key.Host); !c.names[name] && serverName(name) {
			c.names[name], c.inspectTLS = true, true
			match := &listenerv3.FilterChainMatch{ServerNames: []string{name}}
			c.list = append(c.list, b.tcp(cluster, match, cluster))
		}
	case c.rest == "":
		c.rest = cluster
	}
}

// serverName reports whether Envoy can match the host as a server name: a wildcard stands for whole
// labels in front.
func serverName(host string) bool {
	return host != "" && !strings.Contains(strings.TrimPrefix(host, "*."), "*")
}

func (b *listenerBuilder) shareRanges(c *sharedChains, s *placed, ranges []netip.Prefix, cluster string) {
	tcp := &listenerv3.FilterChainMatch{}
	for _, r := range ranges {
		tcp.PrefixRanges = append(tcp.PrefixRanges, cidr(r))
	}
	if !s.port.Protocol.Sniffed() {
		c.list = append(c.list, b.tcp(cluster, tcp, cluster))
		return
	}
	http := plainHTTP(b.class)
	http.PrefixRanges = tcp.PrefixRanges
	c.list = append(c.list, b.http(cluster+"-http", http, sniffedRoute(s.shape.Key.Host, b.port)))
	c.list = append(c.list, b.besideHTTP(cluster, tcp, cluster)...)
	c.inspectHTTP = true
}

// besideHTTP carries what is no HTTP where a chain with the same match is for plainHTTP. Envoy does
// not come back from the transport that plainHTTP names, so other cleartext needs a chain there too.
func (b *listenerBuilder) besideHTTP(name string, match *listenerv3.FilterChainMatch, cluster string) []*listenerv3.FilterChain {
	clear := proto.CloneOf(match)
	clear.TransportProtocol = plainTransport
	return []*listenerv3.FilterChain{b.tcp(name+"-plain", clear, cluster), b.tcp(name, match, cluster)}
}

// address serves one service at an address of its own.
func (b *listenerBuilder) address(s *placed) *listenerv3.Listener {
	l := b.listener(b.name())
	cluster := outboundName(s.port.Number, s.shape.Key.Host)
	if !s.port.Protocol.Sniffed() {
		l.FilterChains = []*listenerv3.FilterChain{b.tcp("", nil, cluster)}
		return l
	}
	l.FilterChains = []*listenerv3.FilterChain{b.http("", plainHTTP(b.class), sniffedRoute(s.shape.Key.Host, b.port))}
	l.DefaultFilterChain = b.tcp("", nil, cluster)
	b.inspect(l, false, true)
	return l
}

// unknown is the cluster of connections to destinations that the mesh does not know.
func (b *listenerBuilder) unknown() string {
	if allowAny(b.mesh) {
		return passthroughCluster
	}
	return blackHoleCluster
}

// allowAny reports whether the mesh passes unknown destinations through: everything but REGISTRY_ONLY.
func allowAny(m *pushcontext.MeshView) bool {
	p := m.Config.GetOutboundTrafficPolicy()
	return p == nil || p.Mode != meshconfig.MeshConfig_OutboundTrafficPolicy_REGISTRY_ONLY
}

// plainTransport is Envoy's word for connections without TLS.
const plainTransport = "raw_buffer"

// plainHTTP matches cleartext that the inspector has recognised as HTTP.
func plainHTTP(c Class) *listenerv3.FilterChainMatch {
	m := &listenerv3.FilterChainMatch{TransportProtocol: plainTransport, ApplicationProtocols: []string{"http/1.1", "h2c"}}
	if c.HTTP10 {
		m.ApplicationProtocols = []string{"http/1.0", "http/1.1", "h2c"}
	}
	return m
}

// inspect adds the listener filters that find out what a connection speaks. Telling plain HTTP from
// the rest needs both: the transport is only known once TLS is ruled out.
func (b *listenerBuilder) inspect(l *listenerv3.Listener, tls, http bool) {
	if tls || http {
		l.ListenerFilters = append(l.ListenerFilters, listenerFilter("envoy.filters.listener.tls_inspector", &tlsinspectorv3.TlsInspector{}))
	}
	if http {
		l.ListenerFilters = append(l.ListenerFilters, listenerFilter("envoy.filters.listener.http_inspector", &httpinspectorv3.HttpInspector{}))
	}
	if tls || http {
		b.detectionTimeout(l)
	}
}

// detectionTimeout bounds how long a silent client is waited for; none by default.
func (b *listenerBuilder) detectionTimeout(l *listenerv3.Listener) {
	l.ListenerFiltersTimeout = atLeast(0, b.mesh.Config.GetProtocolDetectionTimeout(), 0)
	l.ContinueOnListenerFiltersTimeout = true
}

func listenerFilter(name string, config proto.Message) *listenerv3.ListenerFilter {
	return &listenerv3.ListenerFilter{Name: name, ConfigType: &listenerv3.ListenerFilter_TypedConfig{TypedConfig: pack(config)}}
}

func originalDestination() *listenerv3.ListenerFilter {
	return listenerFilter("envoy.filters.listener.original_dst", &originaldstv3.OriginalDst{})
}

// originalSource lets the workload see the caller's address under TPROXY; the mark keeps these
// connections from being intercepted again.
func originalSource() *listenerv3.ListenerFilter {
	return listenerFilter("envoy.filters.listener.original_src", &originalsrcv3.OriginalSrc{Mark: 1337})
}

// tcp is a chain that forwards the byte stream to a cluster.
func (b *listenerBuilder) tcp(name string, match *listenerv3.FilterChainMatch, cluster string) *listenerv3.FilterChain {
	proxy := &tcpv3.TcpProxy{
		StatPrefix: cluster, ClusterSpecifier: &tcpv3.TcpProxy_Cluster{Cluster: cluster}, AccessLog: accessLog(b.mesh),
	}
	filters := append(networkExtensions(b.class), networkFilter("envoy.filters.network.tcp_proxy", proxy))
	return &listenerv3.FilterChain{Name: name, FilterChainMatch: match, Filters: filters}
}

func networkFilter(name string, config proto.Message) *listenerv3.Filter {
	return &listenerv3.Filter{Name: name, ConfigType: &listenerv3.Filter_TypedConfig{TypedConfig: pack(config)}}
}
