package gen

import (
	"maps"
	"slices"
	"strings"

	xdscorev3 "github.com/cncf/xds/go/xds/core/v3"
	xdsmatcherv3 "github.com/cncf/xds/go/xds/type/matcher/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	snicluster "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/sni_cluster/v3"
	tcpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"
	networkinputsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/matching/common_inputs/network/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/isthmus-mesh/isthmus/pushcontext"
)

// passthroughChain is the name of the forwarding chain, in statistics too.
const passthroughChain = "passthrough"

// forwardingChain takes connections to the cluster that their server name names. The names are matched before that:
// clients choose them, and must not reach a cluster that is not for forwarding.
func (b *listenerBuilder) forwardingChain() *listenerv3.FilterChain {
	return &listenerv3.FilterChain{Filters: []*listenerv3.Filter{
		networkFilter("envoy.filters.network.sni_cluster", &snicluster.SniCluster{}),
		networkFilter("envoy.filters.network.tcp_proxy", &tcpv3.TcpProxy{
			StatPrefix: passthroughChain, ClusterSpecifier: &tcpv3.TcpProxy_Cluster{Cluster: blackHoleCluster}, AccessLog: accessLogs(b.class, b.mesh, outbound, connections)}),
	}}
}

// forwardedSuffixes are how the server names of the hosts of an AUTO_PASSTHROUGH server end, after port and subset.
func forwardedSuffixes(hosts []pushcontext.GatewayHost) []string {
	var out []string
	for _, h := range hosts {
		if suffix, wild := strings.CutPrefix(h.Host, "*"); wild {
			out = append(out, suffix)
		} else {
			out = append(out, "_."+h.Host)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// nameMatcher chooses the chain of a listener where it depends on more than what chains themselves can match.
type nameMatcher struct {
	forwarded []string          // suffixes of names of the mesh
	chains    map[string]string // by server name, pattern or "" for all
}

func (m *nameMatcher) forward(suffixes []string) { m.forwarded = append(m.forwarded, suffixes...) }

func (m *nameMatcher) choose(name, chain string) {
	if m.chains == nil {
		m.chains = map[string]string{}
	}
	m.chains[name] = chain
}

// matcher looks at names of the mesh first, then at whole names, at patterns, and takes the rest where it is for.
func (m *nameMatcher) matcher() *xdsmatcherv3.Matcher {
	slices.Sort(m.forwarded)
	list := &xdsmatcherv3.Matcher_MatcherList{Matchers: []*xdsmatcherv3.Matcher_MatcherList_FieldMatcher{
		on(meshNames(slices.Compact(m.forwarded)), passthroughChain)}}
	out := &xdsmatcherv3.Matcher{MatcherType: &xdsmatcherv3.Matcher_MatcherList_{MatcherList: list}}
	for _, n := range slices.SortedFunc(maps.Keys(m.chains), compareNames) {
		switch suffix, wild := strings.CutPrefix(n, "*"); {
		case n == "":
			out.OnNoMatch = toChain(m.chains[n])
		case wild:
			list.Matchers = append(list.Matchers, on(nameIs(endsWith(suffix)), m.chains[n]))
		default:
			is := &xdsmatcherv3.StringMatcher{MatchPattern: &xdsmatcherv3.StringMatcher_Exact{Exact: n}}
			list.Matchers = append(list.Matchers, on(nameIs(is), m.chains[n]))
		}
	}
	return out
}

// meshNames are passthrough names with one of the suffixes, of connections between workloads of the mesh.
func meshNames(suffixes []string) *predicate {
	all := []*predicate{
		nameIs(&xdsmatcherv3.StringMatcher{MatchPattern: &xdsmatcherv3.StringMatcher_Prefix{Prefix: passthroughPrefix}}),
		inputIs("envoy.matching.inputs.application_protocol", &networkinputsv3.ApplicationProtocolInput{}, meshProtocol()),
	}
	if !slices.Contains(suffixes, "") {
		var hosts []*predicate
		for _, s := range suffixes {
			hosts = append(hosts, nameIs(endsWith(s)))
		}
		all = append(all, anyOf(hosts))
	}
	return allOf(all)
}

// meshProtocol matches a list of application protocols, each in quotes, that has one of Istio's.
func meshProtocol() *xdsmatcherv3.StringMatcher {
	return &xdsmatcherv3.StringMatcher{MatchPattern: &xdsmatcherv3.StringMatcher_Contains{Contains: "'istio"}}
}

func endsWith(suffix string) *xdsmatcherv3.StringMatcher {
	return &xdsmatcherv3.StringMatcher{MatchPattern: &xdsmatcherv3.StringMatcher_Suffix{Suffix: suffix}}
}

func on(p *predicate, chain string) *xdsmatcherv3.Matcher_MatcherList_FieldMatcher {
	return &xdsmatcherv3.Matcher_MatcherList_FieldMatcher{Predicate: p, OnMatch: toChain(chain)}
}

func toChain(name string) *xdsmatcherv3.Matcher_OnMatch {
	return &xdsmatcherv3.Matcher_OnMatch{OnMatch: &xdsmatcherv3.Matcher_OnMatch_Action{Action: &xdscorev3.TypedExtensionConfig{
		Name: name, TypedConfig: pack(wrapperspb.String(name))}}}
}

type predicate = xdsmatcherv3.Matcher_MatcherList_Predicate

func nameIs(value *xdsmatcherv3.StringMatcher) *predicate {
	return inputIs("envoy.matching.inputs.server_name", &networkinputsv3.ServerNameInput{}, value)
}

func inputIs(name string, input proto.Message, value *xdsmatcherv3.StringMatcher) *predicate {
	return &predicate{MatchType: &xdsmatcherv3.Matcher_MatcherList_Predicate_SinglePredicate_{
		SinglePredicate: &xdsmatcherv3.Matcher_MatcherList_Predicate_SinglePredicate{
			Input:   &xdscorev3.TypedExtensionConfig{Name: name, TypedConfig: pack(input)},
			Matcher: &xdsmatcherv3.Matcher_MatcherList_Predicate_SinglePredicate_ValueMatch{ValueMatch: value},
		}}}
}

func allOf(list []*predicate) *predicate {
	return &predicate{MatchType: &xdsmatcherv3.Matcher_MatcherList_Predicate_AndMatcher{
		AndMatcher: &xdsmatcherv3.Matcher_MatcherList_Predicate_PredicateList{Predicate: list}}}
}

func anyOf(list []*predicate) *predicate {
	if len(list) == 1 {
		return list[0] // Envoy wants two at least
	}
	return &predicate{MatchType: &xdsmatcherv3.Matcher_MatcherList_Predicate_OrMatcher{
		OrMatcher: &xdsmatcherv3.Matcher_MatcherList_Predicate_PredicateList{Predicate: list}}}
}
