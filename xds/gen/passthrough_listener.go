package gen

import (
	"maps"
	"slices"
	"strings"

	xdscorev3 "github.com/cncf/xds/go/xds/core/v3"
	xdsmatcherv3 "github.com/cncf/xds/go/xds/type/matcher/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	tlsinspectorv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/listener/tls_inspector/v3"
	snicluster "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/sni_cluster/v3"
	tcpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"
	networkinputsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/matching/common_inputs/network/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/isthmus-mesh/isthmus/pushcontext"
)

const (
	passthroughListenerPrefix = "passthrough_"
	passthroughChain          = "passthrough"
)

// passthroughListener is the name of the listener of AUTO_PASSTHROUGH servers. It differs from that of
// a service port's listener, which is made from the services that have the port.
func passthroughListener(c Class, port uint16) string {
	return passthroughListenerPrefix + listenerName(c.bind(), port)
}

func passthroughListeners(m *pushcontext.MeshView, c Class) []string {
	var names []string
	for _, port := range slices.Sorted(maps.Keys(c.servers(m))) {
		names = append(names, passthroughListener(c, port))
	}
	return names
}

// forwards reports whether a router's AUTO_PASSTHROUGH servers have the port: then services have no
// listener there.
func (c Class) forwards(m *pushcontext.MeshView, port uint16) bool {
	return len(c.servers(m)[port]) > 0
}

// passthroughPortTraits tell routers that forward on a port from others.
func passthroughPortTraits(m *pushcontext.MeshView, port uint16) Traits {
	if slices.ContainsFunc(m.AutoPassthrough, func(a pushcontext.AutoPassthrough) bool { return a.Port == port }) {
		return TraitPassthrough
	}
	return 0
}

// forwardingListener takes connections to the cluster that their server name names. The names are
// matched before that: clients choose them, and must not reach a cluster that is not for forwarding.
func forwardingListener(m *pushcontext.MeshView, c Class, name string) *listenerv3.Listener {
	bind, port, ok := parseListener(strings.TrimPrefix(name, passthroughListenerPrefix))
	servers := c.servers(m)[port]
	if !ok || bind != c.bind() || len(servers) == 0 {
		return nil
	}
	b := &listenerBuilder{class: c, mesh: m, bind: bind, port: port}
	l := b.listener(name)
	l.BindToPort = nil
	if bind.IsUnspecified() {
		l.AdditionalAddresses = otherFamily(c, port)
	}
	l.FilterChains = []*listenerv3.FilterChain{{Name: passthroughChain, Filters: []*listenerv3.Filter{
		networkFilter("envoy.filters.network.sni_cluster", &snicluster.SniCluster{}),
		networkFilter("envoy.filters.network.tcp_proxy", &tcpv3.TcpProxy{
			StatPrefix: passthroughChain, ClusterSpecifier: &tcpv3.TcpProxy_Cluster{Cluster: blackHoleCluster}, AccessLog: accessLog(m)}),
	}}}
	l.FilterChainMatcher = serverNames(servers)
	// Envoy's own timeout closes connections that say nothing.
	l.ListenerFilters = []*listenerv3.ListenerFilter{listenerFilter("envoy.filters.listener.tls_inspector", &tlsinspectorv3.TlsInspector{})}
	return l
}

// serverNames takes passthrough names of the servers' hosts to the one chain; all else is refused.
func serverNames(servers []*pushcontext.AutoPassthrough) *xdsmatcherv3.Matcher {
	var suffixes []string
	for _, s := range servers {
		for _, h := range s.Hosts {
			suffixes = append(suffixes, nameSuffix(h))
		}
	}
	slices.Sort(suffixes)
	var hosts []*predicate
	for _, s := range slices.Compact(suffixes) {
		hosts = append(hosts, nameIs(&xdsmatcherv3.StringMatcher{MatchPattern: &xdsmatcherv3.StringMatcher_Suffix{Suffix: s}}))
	}
	name := nameIs(&xdsmatcherv3.StringMatcher{MatchPattern: &xdsmatcherv3.StringMatcher_Prefix{Prefix: passthroughPrefix}})
	if !slices.Contains(suffixes, "") {
		name = both(name, anyOf(hosts))
	}
	return &xdsmatcherv3.Matcher{MatcherType: &xdsmatcherv3.Matcher_MatcherList_{MatcherList: &xdsmatcherv3.Matcher_MatcherList{
		Matchers: []*xdsmatcherv3.Matcher_MatcherList_FieldMatcher{{Predicate: name, OnMatch: &xdsmatcherv3.Matcher_OnMatch{
			OnMatch: &xdsmatcherv3.Matcher_OnMatch_Action{Action: &xdscorev3.TypedExtensionConfig{
				Name: passthroughChain, TypedConfig: pack(wrapperspb.String(passthroughChain))}}}}}}}}
}

// nameSuffix is how the server names of a host of a Gateway end: that of a whole host after the empty
// subset.
func nameSuffix(h string) string {
	_, host := splitHost(h)
	if suffix, wild := strings.CutPrefix(host, "*"); wild {
		return suffix
	}
	return "_._." + host
}

type predicate = xdsmatcherv3.Matcher_MatcherList_Predicate

func nameIs(value *xdsmatcherv3.StringMatcher) *predicate {
	return &predicate{MatchType: &xdsmatcherv3.Matcher_MatcherList_Predicate_SinglePredicate_{
		SinglePredicate: &xdsmatcherv3.Matcher_MatcherList_Predicate_SinglePredicate{
			Input:   &xdscorev3.TypedExtensionConfig{Name: "envoy.matching.inputs.server_name", TypedConfig: pack(&networkinputsv3.ServerNameInput{})},
			Matcher: &xdsmatcherv3.Matcher_MatcherList_Predicate_SinglePredicate_ValueMatch{ValueMatch: value},
		}}}
}

func both(a, b *predicate) *predicate {
	return &predicate{MatchType: &xdsmatcherv3.Matcher_MatcherList_Predicate_AndMatcher{
		AndMatcher: &xdsmatcherv3.Matcher_MatcherList_Predicate_PredicateList{Predicate: []*predicate{a, b}}}}
}

func anyOf(list []*predicate) *predicate {
	if len(list) == 1 {
		return list[0] // Envoy wants two at least
	}
	return &predicate{MatchType: &xdsmatcherv3.Matcher_MatcherList_Predicate_OrMatcher{
		OrMatcher: &xdsmatcherv3.Matcher_MatcherList_Predicate_PredicateList{Predicate: list}}}
}
