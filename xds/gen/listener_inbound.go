package gen

import (
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	httpinspectorv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/listener/http_inspector/v3"
	tlsinspectorv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/listener/tls_inspector/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/pushcontext"
)

// inboundListener is where connections to the workload enter: a chain for each port that it serves,
// and passthrough for the others.
func inboundListener(v *pushcontext.TargetsView, c Class) *listenerv3.Listener {
	b := &listenerBuilder{class: c, mesh: v.Mesh, bind: c.wildcard(), port: inboundListenPort(v.Mesh)}
	l := b.listener(virtualInbound)
	l.BindToPort, l.Transparent = nil, transparent(c)
	l.AdditionalAddresses = otherFamily(c, b.port)
	l.TrafficDirection = corev3.TrafficDirection_INBOUND
	ports := inboundPorts(v)
	l.FilterChains = []*listenerv3.FilterChain{b.tcp("virtualInbound-blackhole", toPort(b.port), blackHoleCluster)}
	for _, p := range ports {
		if p.number != b.port {
			l.FilterChains = append(l.FilterChains, b.inboundChains(p)...)
		}
	}
	table := &routev3.RouteConfiguration{Name: inboundPassthroughCluster, VirtualHosts: []*routev3.VirtualHost{
		inboundHost("inbound|http|0", inboundPassthroughCluster)}, ValidateClusters: no()}
	l.FilterChains = append(l.FilterChains, b.inlineHTTP("virtualInbound-catchall-http", plainHTTP(c), model.ProtocolUnknown, table))
	l.FilterChains = append(l.FilterChains, b.besideHTTP("virtualInbound", &listenerv3.FilterChainMatch{}, inboundPassthroughCluster)...)
	l.ListenerFilters = inboundFilters(c, ports)
	b.detectionTimeout(l)
	return l
}

func (b *listenerBuilder) inboundChains(p inboundPort) []*listenerv3.FilterChain {
	name := inboundName(p.number)
	http := func(chain string, match *listenerv3.FilterChainMatch) *listenerv3.FilterChain {
		match.DestinationPort = u32(uint32(p.number))
		return b.inlineHTTP(chain, match, p.protocol, inboundTable(p))
	}
	switch {
	case p.protocol.IsHTTP():
		return []*listenerv3.FilterChain{http(name, &listenerv3.FilterChainMatch{})}
	case p.protocol.Sniffed():
		return append([]*listenerv3.FilterChain{http(name+"http", plainHTTP(b.class))}, b.besideHTTP(name, toPort(p.number), name)...)
	}
	return []*listenerv3.FilterChain{b.tcp(name, toPort(p.number), name)}
}

// inboundTable is inline, so it must not be refused because its cluster is still on the way.
func inboundTable(p inboundPort) *routev3.RouteConfiguration {
	name := inboundName(p.number)
	return &routev3.RouteConfiguration{Name: name, ValidateClusters: no(), VirtualHosts: []*routev3.VirtualHost{
		inboundHost("inbound|http|"+itoa(p.targets[0].Port), name)}}
}

// inboundHost sends everything to one cluster. A request is tried again only if the workload closed
// the connection before it saw the request.
func inboundHost(name, cluster string) *routev3.VirtualHost {
	return &routev3.VirtualHost{Name: name, Domains: []string{"*"}, Routes: []*routev3.Route{{
		Name: "default", Match: prefixSlash(),
		Action: &routev3.Route_Route{Route: &routev3.RouteAction{
			ClusterSpecifier: &routev3.RouteAction_Cluster{Cluster: cluster},
			Timeout:          zero(),
			MaxStreamDuration: &routev3.RouteAction_MaxStreamDuration{
				MaxStreamDuration: zero(), GrpcTimeoutHeaderMax: zero()},
			RetryPolicy: &routev3.RetryPolicy{RetryOn: "reset-before-request", NumRetries: u32(2)},
		}},
	}}}
}

// inboundFilters restore the original destination, then find out what a connection speaks on the
// ports where nobody has said so. On the others nothing is waited for: in some protocols the server
// speaks first.
func inboundFilters(c Class, ports []inboundPort) []*listenerv3.ListenerFilter {
	var out []*listenerv3.ListenerFilter
	if c.Interception == InterceptTProxy {
		out = append(out, originalSource())
	}
	off := declared(ports)
	tls := listenerFilter("envoy.filters.listener.tls_inspector", &tlsinspectorv3.TlsInspector{})
	http := listenerFilter("envoy.filters.listener.http_inspector", &httpinspectorv3.HttpInspector{})
	tls.FilterDisabled, http.FilterDisabled = off, off
	return append(out, originalDestination(), tls, http)
}

// declared matches the ports whose protocol is known.
func declared(ports []inboundPort) *listenerv3.ListenerFilterChainMatchPredicate {
	var rules []*listenerv3.ListenerFilterChainMatchPredicate
	for _, p := range ports {
		if !p.protocol.Sniffed() {
			rules = append(rules, portRule(p.number))
		}
	}
	switch len(rules) {
	case 0:
		return nil
	case 1:
		return rules[0]
	}
	return &listenerv3.ListenerFilterChainMatchPredicate{Rule: &listenerv3.ListenerFilterChainMatchPredicate_OrMatch{
		OrMatch: &listenerv3.ListenerFilterChainMatchPredicate_MatchSet{Rules: rules}}}
}

func portRule(port uint16) *listenerv3.ListenerFilterChainMatchPredicate {
	return &listenerv3.ListenerFilterChainMatchPredicate{Rule: &listenerv3.ListenerFilterChainMatchPredicate_DestinationPortRange{
		DestinationPortRange: &typev3.Int32Range{Start: int32(port), End: int32(port) + 1}}}
}
