package gen

import (
	"maps"
	"slices"
	"strings"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	networking "istio.io/api/networking/v1alpha3"
)

// claimPrefix starts what stands for a claim of a JWT among the headers of a match.
const claimPrefix = "@request.auth.claims"

// routeMatch translates what a match says of requests; false if no request can match. The nil match is any.
func routeMatch(m *networking.HTTPMatchRequest) (*routev3.RouteMatch, bool) {
	out := &routev3.RouteMatch{}
	ok := matchPath(out, m.GetUri())
	if _, regex := out.PathSpecifier.(*routev3.RouteMatch_SafeRegex); m.GetIgnoreUriCase() && !regex {
		out.CaseSensitive = no()
	}
	return out, ok && matchHeaders(out, m) && matchQuery(out, m.GetQueryParams())
}

// matchesAny reports whether every value matches. "*" is no regular expression, but is used as one.
func matchesAny(s *networking.StringMatch) bool {
	switch t := s.GetMatchType().(type) {
	case *networking.StringMatch_Exact:
		return false
	case *networking.StringMatch_Prefix:
		return t.Prefix == ""
	case *networking.StringMatch_Regex:
		return t.Regex == "*" || t.Regex == ".*"
	}
	return true
}

func matchPath(out *routev3.RouteMatch, uri *networking.StringMatch) bool {
	if matchesAny(uri) {
		out.PathSpecifier = &routev3.RouteMatch_Prefix{Prefix: "/"}
		return true
	}
	switch t := uri.MatchType.(type) {
	case *networking.StringMatch_Exact:
		out.PathSpecifier = &routev3.RouteMatch_Path{Path: t.Exact}
		return t.Exact != ""
	case *networking.StringMatch_Prefix:
		out.PathSpecifier = &routev3.RouteMatch_Prefix{Prefix: t.Prefix}
	case *networking.StringMatch_Regex:
		m, ok := regex(t.Regex)
		out.PathSpecifier = &routev3.RouteMatch_SafeRegex{SafeRegex: m}
		return ok
	}
	return true
}

// matchHeaders adds headers by name, then those that must not match, then what HTTP/2 sends as headers.
func matchHeaders(out *routev3.RouteMatch, m *networking.HTTPMatchRequest) bool {
	ok := matchNamed(out, m.GetHeaders(), false) && matchNamed(out, m.GetWithoutHeaders(), true)
	for _, x := range [...]struct {
		name string
		want *networking.StringMatch
	}{{":method", m.GetMethod()}, {":authority", m.GetAuthority()}, {":scheme", m.GetScheme()}} {
		if x.want == nil {
			continue
		}
		h, valid := headerMatch(x.name, x.want)
		out.Headers, ok = append(out.Headers, h), ok && valid
	}
	return ok
}

// matchNamed leaves out the names that the traffic API says are ignored. Claims are not known, so no request is
// known to have one, nor to lack it.
func matchNamed(out *routev3.RouteMatch, headers map[string]*networking.StringMatch, invert bool) bool {
	for _, name := range slices.Sorted(maps.Keys(headers)) {
		switch {
		case strings.HasPrefix(name, claimPrefix):
			return false
		case name == "uri" || name == "scheme" || name == "method" || name == "authority":
			continue
		}
		h, ok := headerMatch(name, headers[name])
		if !ok {
			return false
		}
		if h.InvertMatch = invert; invert && h.GetStringMatch() != nil {
			h.TreatMissingHeaderAsEmpty = true // else a request without the header would not match either
		}
		out.Headers = append(out.Headers, h)
	}
	return true
}

func headerMatch(name string, s *networking.StringMatch) (*routev3.HeaderMatcher, bool) {
	h := &routev3.HeaderMatcher{Name: name}
	if matchesAny(s) {
		h.HeaderMatchSpecifier = &routev3.HeaderMatcher_PresentMatch{PresentMatch: true}
		return h, name != ""
	}
	m, ok := stringMatcher(s)
	h.HeaderMatchSpecifier = &routev3.HeaderMatcher_StringMatch{StringMatch: m}
	return h, ok && name != ""
}

func matchQuery(out *routev3.RouteMatch, params map[string]*networking.StringMatch) bool {
	for _, name := range slices.Sorted(maps.Keys(params)) {
		q := &routev3.QueryParameterMatcher{Name: name}
		if matchesAny(params[name]) {
			q.QueryParameterMatchSpecifier = &routev3.QueryParameterMatcher_PresentMatch{PresentMatch: true}
		} else {
			m, ok := stringMatcher(params[name])
			if !ok {
				return false
			}
			q.QueryParameterMatchSpecifier = &routev3.QueryParameterMatcher_StringMatch{StringMatch: m}
		}
		out.QueryParameters = append(out.QueryParameters, q)
	}
	return true
}

// stringMatcher translates a match that does not match everything; false if nothing matches it.
func stringMatcher(s *networking.StringMatch) (*matcherv3.StringMatcher, bool) {
	switch t := s.MatchType.(type) {
	case *networking.StringMatch_Exact:
		return &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Exact{Exact: t.Exact}}, true
	case *networking.StringMatch_Prefix:
		return &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Prefix{Prefix: t.Prefix}}, true
	case *networking.StringMatch_Regex:
		m, ok := regex(t.Regex)
		return &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_SafeRegex{SafeRegex: m}}, ok
	}
	return nil, false
}

// catchesAll reports whether no request is left for later routes.
func catchesAll(m *routev3.RouteMatch) bool {
	return m.GetPrefix() == "/" && len(m.Headers)+len(m.QueryParameters) == 0
}
