package gen

import (
	"net/netip"
	"strconv"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	httpinspectorv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/listener/http_inspector/v3"
	originaldstv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/listener/original_dst/v3"
	originalsrcv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/listener/original_src/v3"
	tlsinspectorv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/listener/tls_inspector/v3"
	tcpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
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

	direction direction
	protocol  model.Protocol // of the HTTP that is routed by host
}

// listener has no chains yet and is not bound: intercepted connections reach it through
// virtualOutbound.
func (b *listenerBuilder) listener(name string) *listenerv3.Listener {
	return &listenerv3.Listener{
		Name: name, Address: socketAddress(b.bind.String(), b.port), BindToPort: no(),
		TrafficDirection: corev3.TrafficDirection_OUTBOUND, AccessLog: refusals(b.class, b.mesh, b.direction),
	}
}

func (b *listenerBuilder) name() string { return listenerName(b.bind, b.port) }

// whole serves everything that has the port to clients that connect to the proxy itself: HTTP by host,
// TLS by server name, and the oldest of the rest.
func (b *listenerBuilder) whole(p *portPlan) *listenerv3.Listener {
	l := b.listener(b.name())
	l.BindToPort = nil
	if b.bind.IsUnspecified() {
		l.AdditionalAddresses = otherFamily(b.class, b.bind, b.port)
	}
	b.chains(l, p, "")
	return l
}

// wildcard serves what no listener of an own address does; connections that nothing claims go where
// the mesh says.
func (b *listenerBuilder) wildcard(p *portPlan) *listenerv3.Listener {
	l := b.listener(b.name())
	l.AdditionalAddresses = otherFamily(b.class, b.bind, b.port)
	b.chains(l, p, b.unknown())
	return l
}

// chains fills a listener that several services share. rest is the cluster of connections that
// nothing claims; "" refuses them.
func (b *listenerBuilder) chains(l *listenerv3.Listener, p *portPlan, rest string) {
	var rules []chainRule
	for _, n := range p.wild {
		rules = append(rules, b.rulesOf(&p.services[n], p.ranges[n], true)...)
	}
	table := ""
	if p.wildHTTP {
		table = sharedRoute(b.class, b.port)
	}
	b.fill(l, rules, table, rest)
}

// serverName reports whether Envoy can match the host as a server name: a wildcard stands for whole
// labels in front.
func serverName(host string) bool {
	return host != "" && !strings.Contains(strings.TrimPrefix(host, "*."), "*")
}

// fill makes the chains of rules, and those of the HTTP that a table routes, if there is one. rest is the cluster of
// connections that nothing claims; "" refuses them.
func (b *listenerBuilder) fill(l *listenerv3.Listener, rules []chainRule, table, rest string) {
	t := newChainTable(rules)
	inspectTLS, inspectHTTP := false, false
	matches := t.matches()
	for i, r := range rules {
		for n, m := range matches[i] {
			name := r.to.name
			if n > 0 {
				name += "-" + strconv.Itoa(n+1)
			}
			l.FilterChains = append(l.FilterChains, b.ruleChains(name, m, r)...)
			inspectTLS = inspectTLS || len(m.ServerNames) > 0
			inspectHTTP = inspectHTTP || r.table != ""
		}
	}
	fallback, ok := t.fallback()
	if table != "" {
		match := plainHTTP(b.class)
		if rest == "" && !ok {
			match = nil // nothing else to tell it apart from
		}
		l.FilterChains = append(l.FilterChains, b.http("", match, table))
		if open := t.open(); len(open) > 0 {
			match := plainHTTP(b.class)
			match.PrefixRanges = cidrs(open)
			l.FilterChains = append(l.FilterChains, b.http("ranges-http", match, table))
		}
		inspectHTTP = inspectHTTP || match != nil
	}
	switch {
	case ok:
		l.DefaultFilterChain = b.forward("", nil, rules[fallback].to)
	case rest != "":
		l.DefaultFilterChain = b.tcp("PassthroughFilterChain", nil, rest)
	}
	if len(l.FilterChains) == 0 {
		l.FilterChains, l.DefaultFilterChain = []*listenerv3.FilterChain{l.DefaultFilterChain}, nil
	}
	b.inspect(l, inspectTLS, inspectHTTP)
}

// ruleChains are those of one match.
func (b *listenerBuilder) ruleChains(name string, match *listenerv3.FilterChainMatch, r chainRule) []*listenerv3.FilterChain {
	if r.table == "" {
		return []*listenerv3.FilterChain{b.forward(name, match, r.to)}
	}
	http := plainHTTP(b.class)
	http.PrefixRanges = match.PrefixRanges
	return append([]*listenerv3.FilterChain{b.http(name+"-http", http, r.table)}, b.besideHTTP(name, match, r.to)...)
}

func cidrs(list []netip.Prefix) (out []*corev3.CidrRange) {
	for _, p := range list {
		out = append(out, cidr(p))
	}
	return out
}

// besideHTTP carries what is no HTTP where a chain with the same match is for plainHTTP. Envoy does
// not come back from the transport that plainHTTP names, so other cleartext needs a chain there too.
func (b *listenerBuilder) besideHTTP(name string, match *listenerv3.FilterChainMatch, to target) []*listenerv3.FilterChain {
	clear := proto.CloneOf(match)
	clear.TransportProtocol = plainTransport
	return []*listenerv3.FilterChain{b.forward(name+"-plain", clear, to), b.forward(name, match, to)}
}

// address serves one service at an address of its own. What is not for it goes where the mesh says.
func (b *listenerBuilder) address(s *placed) *listenerv3.Listener {
	l := b.listener(b.name())
	table := ""
	if s.port.Protocol.Sniffed() {
		table = sniffedRoute(s.shape.Key.Host, b.port)
	}
	b.fill(l, b.rulesOf(s, nil, false), table, b.unknown())
	return l
}

// unknown is the cluster of connections to destinations that the mesh does not know.
func (b *listenerBuilder) unknown() string {
	if cluster, ok := unknownTraffic(b.class, b.mesh); ok {
		return cluster
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
	return b.forward(name, match, clusterTarget(cluster))
}

// forward is a chain that forwards the byte stream.
func (b *listenerBuilder) forward(name string, match *listenerv3.FilterChainMatch, to target) *listenerv3.FilterChain {
	filters := networkExtensions(b.class, b.mesh, b.direction)
	if to.resolve != 0 {
		filters = append(filters, networkFilter("envoy.filters.network.sni_dynamic_forward_proxy", sniForwarding(b.mesh, b.class, to.resolve)))
	}
	out := &listenerv3.FilterChain{Name: name, FilterChainMatch: match,
		Filters: append(filters, networkFilter("envoy.filters.network.tcp_proxy", b.tcpProxy(to)))}
	if to.by != nil {
		out.Metadata = configMetadata(to.by)
	}
	return out
}

// idle is after what time without traffic the node has connections ended: 0 for never, nil for Envoy's default.
func (b *listenerBuilder) idle() *durationpb.Duration {
	if d := b.class.Tuning.Idle; d != 0 {
		return durationpb.New(max(d, 0))
	}
	return nil
}

// balanced spreads connections evenly over Envoy's threads, if the node wants it.
func balanced(l *listenerv3.Listener, exact bool) {
	if exact {
		l.ConnectionBalanceConfig = &listenerv3.Listener_ConnectionBalanceConfig{
			BalanceType: &listenerv3.Listener_ConnectionBalanceConfig_ExactBalance_{ExactBalance: &listenerv3.Listener_ConnectionBalanceConfig_ExactBalance{}}}
	}
}

func (b *listenerBuilder) tcpProxy(to target) *tcpv3.TcpProxy {
	out := &tcpv3.TcpProxy{
		StatPrefix: to.name, AccessLog: accessLogs(b.class, b.mesh, b.direction, connections),
		HashPolicy: to.policy.hash, IdleTimeout: to.policy.idle, TunnelingConfig: to.policy.tunnel,
	}
	if out.IdleTimeout == nil {
		out.IdleTimeout = b.idle()
	}
	if len(to.shares) == 1 {
		out.ClusterSpecifier = &tcpv3.TcpProxy_Cluster{Cluster: to.shares[0].cluster}
		return out
	}
	all := &tcpv3.TcpProxy_WeightedCluster{}
	for _, s := range to.shares {
		all.Clusters = append(all.Clusters, &tcpv3.TcpProxy_WeightedCluster_ClusterWeight{Name: s.cluster, Weight: s.weight})
	}
	out.ClusterSpecifier = &tcpv3.TcpProxy_WeightedClusters{WeightedClusters: all}
	return out
}

func networkFilter(name string, config proto.Message) *listenerv3.Filter {
	return &listenerv3.Filter{Name: name, ConfigType: &listenerv3.Filter_TypedConfig{TypedConfig: pack(config)}}
}
