package gen

import (
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	httpinspectorv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/listener/http_inspector/v3"
	tlsinspectorv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/listener/tls_inspector/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/pushcontext"
)

// inboundListener is where connections to the workload enter: a chain for each port that it serves,
// and passthrough for the others.
func inboundListener(v *pushcontext.TargetsView, c Class) *listenerv3.Listener {
	b := &listenerBuilder{class: c, mesh: v.Mesh, bind: c.wildcard(), port: inboundListenPort(v.Mesh), direction: inbound}
	l := b.listener(virtualInbound)
	l.BindToPort, l.Transparent = nil, transparent(c)
	l.AdditionalAddresses = otherFamily(c, b.bind, b.port)
	l.TrafficDirection = corev3.TrafficDirection_INBOUND
	ports := servedInbound(v, c)
	l.FilterChains = []*listenerv3.FilterChain{b.tcp("virtualInbound-blackhole", toPort(b.port), blackHoleCluster)}
	for _, p := range ports {
		if p.number != b.port {
			l.FilterChains = append(l.FilterChains, b.inboundChains(portEntry(p, v.Mesh))...)
		}
	}
	l.FilterChains = append(l.FilterChains, b.inboundChains(otherEntry(v))...)
	l.ListenerFilters = inboundFilters(c, ports)
	b.detectionTimeout(l)
	balanced(l, c.Tuning.BalanceInbound)
	return l
}

// entry is what connections to the workload may be for: one port that it serves, or all the others.
type entry struct {
	name, http string // of its chains, and of those for detected HTTP
	match      *listenerv3.FilterChainMatch
	protocol   model.Protocol
	cluster    string
	table      *routev3.RouteConfiguration
	mtls       model.MTLS
	tls        *networking.ServerTLSSettings // of clients of outside the mesh; nil for none
}

func portEntry(p inboundPort, m *pushcontext.MeshView) entry {
	name := inboundName(p.number)
	return entry{name: name, http: name + "http", match: toPort(p.number), protocol: p.protocol, cluster: name, table: inboundTable(p, m), mtls: p.mtls, tls: p.tls}
}

func otherEntry(v *pushcontext.TargetsView) entry {
	return entry{
		name: "virtualInbound", http: "virtualInbound-catchall-http", match: &listenerv3.FilterChainMatch{}, cluster: inboundPassthroughCluster, mtls: otherMTLS(v),
		table: &routev3.RouteConfiguration{Name: inboundPassthroughCluster, VirtualHosts: []*routev3.VirtualHost{
			inboundHost("inbound|http|0", inboundPassthroughCluster, v.Mesh)}, ValidateClusters: no()},
	}
}

// otherMTLS is what is demanded at ports of no service; a workload without services is not known.
func otherMTLS(v *pushcontext.TargetsView) model.MTLS {
	if len(v.Targets) == 0 {
		return model.MTLSPermissive
	}
	return v.Targets[0].OtherMTLS
}

// inboundChains are those for mutual TLS and those for cleartext, as far as both are allowed. A proxy
// without certificates takes no connections where only mutual TLS is.
func (b *listenerBuilder) inboundChains(e entry) []*listenerv3.FilterChain {
	secure := e.mtls != model.MTLSDisabled && b.class.ServerTLS.Complete()
	switch {
	case secure && e.mtls == model.MTLSStrict:
		return b.secureChains(e, false)
	case secure && e.tls != nil:
		return append(b.secureChains(e, true), b.ownTLS(e)...)
	case secure:
		return append(b.secureChains(e, true), b.clearChains(e)...)
	case e.mtls == model.MTLSStrict:
		return []*listenerv3.FilterChain{b.tcp(e.name, e.match, blackHoleCluster)}
	case e.tls != nil:
		return b.ownTLS(e)
	}
	return b.clearChains(e)
}

func (b *listenerBuilder) clearChains(e entry) []*listenerv3.FilterChain {
	switch {
	case e.protocol.IsHTTP():
		return []*listenerv3.FilterChain{b.inlineHTTP(e.name, e.match, e.protocol, e.table)}
	case e.protocol.Sniffed():
		http := plainHTTP(b.class)
		http.DestinationPort = e.match.DestinationPort
		return append([]*listenerv3.FilterChain{b.inlineHTTP(e.http, http, e.protocol, e.table)}, b.besideHTTP(e.name, e.match, clusterTarget(e.cluster))...)
	}
	return []*listenerv3.FilterChain{b.tcp(e.name, e.match, e.cluster)}
}

// inboundTable is inline, so it must not be refused because its cluster is still on the way.
func inboundTable(p inboundPort, m *pushcontext.MeshView) *routev3.RouteConfiguration {
	name := inboundName(p.number)
	return &routev3.RouteConfiguration{Name: name, ValidateClusters: no(), VirtualHosts: []*routev3.VirtualHost{
		inboundHost("inbound|http|"+itoa(p.servicePort()), name, m)}}
}

// inboundHost sends everything to one cluster. Unless the mesh says otherwise, a request is tried again only if the workload
// closed the connection before it saw the request.
func inboundHost(name, cluster string, m *pushcontext.MeshView) *routev3.VirtualHost {
	return &routev3.VirtualHost{Name: name, Domains: []string{"*"}, Routes: []*routev3.Route{{
		Name: "default", Match: prefixSlash(),
		Action: &routev3.Route_Route{Route: &routev3.RouteAction{
			ClusterSpecifier: &routev3.RouteAction_Cluster{Cluster: cluster},
			Timeout:          zero(),
			MaxStreamDuration: &routev3.RouteAction_MaxStreamDuration{
				MaxStreamDuration: zero(), GrpcTimeoutHeaderMax: zero()},
			RetryPolicy: inboundRetries(m.Config.GetDefaultInboundHttpRetryPolicy()),
		}},
	}}}
}

func inboundRetries(p *networking.HTTPRetry) *routev3.RetryPolicy {
	if p == nil {
		return &routev3.RetryPolicy{RetryOn: "reset-before-request", NumRetries: u32(2)}
	}
	return retryPolicy(p, true) // there is no other endpoint
}

// inboundFilters restore the original destination, then find out what a connection speaks on the
// ports where it may be one thing or another. On the others nothing is waited for: in some protocols
// the server speaks first.
func inboundFilters(c Class, ports []inboundPort) []*listenerv3.ListenerFilter {
	var out []*listenerv3.ListenerFilter
	if c.Interception == InterceptTProxy {
		out = append(out, originalSource())
	}
	declared := func(p inboundPort) bool { return !p.protocol.Sniffed() }
	tls := listenerFilter("envoy.filters.listener.tls_inspector", &tlsinspectorv3.TlsInspector{})
	tls.FilterDisabled = onPorts(ports, func(p inboundPort) bool {
		return declared(p) && (p.mtls == model.MTLSDisabled || !c.ServerTLS.Complete())
	})
	http := listenerFilter("envoy.filters.listener.http_inspector", &httpinspectorv3.HttpInspector{})
	http.FilterDisabled = onPorts(ports, declared)
	return append(out, originalDestination(), tls, http)
}

// onPorts matches connections to some of the ports, nil if there are none.
func onPorts(ports []inboundPort, some func(inboundPort) bool) *listenerv3.ListenerFilterChainMatchPredicate {
	var rules []*listenerv3.ListenerFilterChainMatchPredicate
	for _, p := range ports {
		if some(p) {
			rules = append(rules, onPort(p.number))
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

func onPort(port uint16) *listenerv3.ListenerFilterChainMatchPredicate {
	return &listenerv3.ListenerFilterChainMatchPredicate{Rule: &listenerv3.ListenerFilterChainMatchPredicate_DestinationPortRange{
		DestinationPortRange: &typev3.Int32Range{Start: int32(port), End: int32(port) + 1}}}
}
