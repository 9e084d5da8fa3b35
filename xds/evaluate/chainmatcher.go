package evaluate

import (
	"strings"

	xdsmatcherv3 "github.com/cncf/xds/go/xds/type/matcher/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	networkv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/matching/common_inputs/network/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// chosen finds the filter chain that a listener's own matcher names (Listener.filter_chain_matcher), which takes the place
// of what chains match; nil if it names none.
func chosen(l *listenerv3.Listener, r *seen) *listenerv3.FilterChain {
	name := choose(l.FilterChainMatcher, r)
	for _, c := range l.FilterChains {
		if c.Name == name && name != "" {
			return c
		}
	}
	return l.DefaultFilterChain
}

// choose gives the name that a matcher ends at, "" for none.
func choose(m *xdsmatcherv3.Matcher, r *seen) string {
	for _, f := range m.GetMatcherList().GetMatchers() {
		if satisfied(f.GetPredicate(), r) {
			return outcome(f.GetOnMatch(), r)
		}
	}
	return outcome(m.GetOnNoMatch(), r)
}

func outcome(o *xdsmatcherv3.Matcher_OnMatch, r *seen) string {
	if next := o.GetMatcher(); next != nil {
		return choose(next, r)
	}
	return decode(o.GetAction().GetTypedConfig(), &wrapperspb.StringValue{}).GetValue()
}

func satisfied(p *xdsmatcherv3.Matcher_MatcherList_Predicate, r *seen) bool {
	switch x := p.GetMatchType().(type) {
	case *xdsmatcherv3.Matcher_MatcherList_Predicate_AndMatcher:
		for _, q := range x.AndMatcher.GetPredicate() {
			if !satisfied(q, r) {
				return false
			}
		}
		return true
	case *xdsmatcherv3.Matcher_MatcherList_Predicate_OrMatcher:
		for _, q := range x.OrMatcher.GetPredicate() {
			if satisfied(q, r) {
				return true
			}
		}
		return false
	case *xdsmatcherv3.Matcher_MatcherList_Predicate_NotMatcher:
		return !satisfied(x.NotMatcher, r)
	case *xdsmatcherv3.Matcher_MatcherList_Predicate_SinglePredicate_:
		v, known := input(x.SinglePredicate, r)
		return known && textMatches(x.SinglePredicate.GetValueMatch(), v)
	}
	return false
}

// input gives what a predicate looks at; false if the connection has no such thing.
func input(p *xdsmatcherv3.Matcher_MatcherList_Predicate_SinglePredicate, r *seen) (string, bool) {
	switch config := p.GetInput().GetTypedConfig(); {
	case is(config, &networkv3.ServerNameInput{}):
		return r.serverName, r.serverName != ""
	case is(config, &networkv3.TransportProtocolInput{}):
		return r.transport, true
	case is(config, &networkv3.ApplicationProtocolInput{}): // as Envoy writes the list: 'h2','http/1.1'
		return "'" + strings.Join(r.protocols, "','") + "'", len(r.protocols) > 0
	case is(config, &networkv3.DestinationPortInput{}):
		return portText(r.Destination.Port()), true
	case is(config, &networkv3.DestinationIPInput{}):
		return r.Destination.Addr().String(), true
	}
	return "", false
}

func textMatches(m *xdsmatcherv3.StringMatcher, v string) bool {
	return matchesText(m, m.GetSafeRegex().GetRegex(), v)
}
