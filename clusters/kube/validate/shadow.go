package validate

import (
	"net/http"
	"regexp"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
	networking "istio.io/api/networking/v1alpha3"
)

// earlierMatch is a match of a route before the one that is looked at.
type earlierMatch struct {
	path string
	*networking.HTTPMatchRequest
}

// shadowed warns of matches all of whose requests an earlier route takes, and gives the matches up to here. A route that
// delegates takes what its delegate takes, which is not known here.
func shadowed(c *checker, h *networking.HTTPRoute, before []earlierMatch) []earlierMatch {
	const most = 256 // comparing each with each must stay cheap
	own := before
	for i, m := range h.Match {
		at, begins := c.item("match", i), beginning(m)
		switch j := slices.IndexFunc(own, func(b earlierMatch) bool { return takes(b.HTTPMatchRequest, m, begins) }); {
		case j >= len(before):
			at.warn(CodeUnreachable, "%s has all requests that it matches: leave it out", own[j].path)
		case j >= 0:
			at.warn(CodeUnreachable, "%s takes all requests that it matches before it: move it up", own[j].path)
		}
		if m != nil && h.Delegate == nil && len(own) < most {
			own = append(own, earlierMatch{at.path, m})
		}
	}
	return own
}

// takes reports whether every request that b matches is one that a matches, as far as that can be told: each of a's
// conditions is one of b's, or is wider. All paths of b begin in one way, as far as that is known of a regular expression.
func takes(a, b *networking.HTTPMatchRequest, begins string) bool {
	return b != nil && takesURI(a, b, begins) && within(a.Scheme, b.Scheme) && within(a.Method, b.Method) && within(a.Authority, b.Authority) &&
		(a.Port == 0 || a.Port == b.Port) && (a.SourceNamespace == "" || a.SourceNamespace == b.SourceNamespace) &&
		slices.Equal(a.Gateways, b.Gateways) && someOf(a.Headers, b.Headers) && someOf(a.WithoutHeaders, b.WithoutHeaders) &&
		someOf(a.QueryParams, b.QueryParams) && labelsAmong(a.SourceLabels, b.SourceLabels)
}

// beginning is what all paths begin with that a regular expression matches; "" for other conditions.
func beginning(m *networking.HTTPMatchRequest) string {
	re, err := regexp.Compile(m.GetUri().GetRegex())
	if err != nil {
		return ""
	}
	begins, _ := re.LiteralPrefix()
	return begins
}

func takesURI(a, b *networking.HTTPMatchRequest, begins string) bool {
	if allPaths(a.Uri) {
		return true
	}
	if b.Uri == nil || b.IgnoreUriCase && !a.IgnoreUriCase {
		return false
	}
	fold := func(s string) string {
		if a.IgnoreUriCase {
			return strings.ToLower(s)
		}
		return s
	}
	if _, ok := a.Uri.MatchType.(*networking.StringMatch_Prefix); ok {
		prefix := fold(a.Uri.GetPrefix())
		switch b.Uri.MatchType.(type) {
		case *networking.StringMatch_Prefix:
			return strings.HasPrefix(fold(b.Uri.GetPrefix()), prefix)
		case *networking.StringMatch_Exact:
			return strings.HasPrefix(fold(b.Uri.GetExact()), prefix)
		case *networking.StringMatch_Regex:
			return strings.HasPrefix(fold(begins), prefix)
		}
		return false
	}
	return proto.Equal(a.Uri, b.Uri)
}

// within reports whether condition a is none, or b's.
func within(a, b *networking.StringMatch) bool { return a == nil || proto.Equal(a, b) }

// someOf reports whether the conditions of a are among those of b.
func someOf(a, b map[string]*networking.StringMatch) bool {
	for k, v := range a {
		if w, ok := b[k]; !ok || !proto.Equal(v, w) {
			return false
		}
	}
	return true
}

func labelsAmong(a, b map[string]string) bool {
	for k, v := range a {
		if w, ok := b[k]; !ok || w != v {
			return false
		}
	}
	return true
}

// matchesAll reports whether a route takes every request.
func matchesAll(h *networking.HTTPRoute) bool {
	if h.Delegate != nil {
		return false
	}
	if len(h.Match) == 0 {
		return true
	}
	return slices.ContainsFunc(h.Match, func(m *networking.HTTPMatchRequest) bool {
		if allPaths(m.GetUri()) {
			rest := proto.CloneOf(m)
			rest.Uri, rest.Name, rest.StatPrefix, rest.IgnoreUriCase = nil, "", "", false
			return proto.Equal(rest, &networking.HTTPMatchRequest{})
		}
		return false
	})
}

// allPaths reports whether a condition is one of all paths. Regular expressions are for whole paths.
func allPaths(m *networking.StringMatch) bool {
	switch x := m.GetMatchType().(type) {
	case *networking.StringMatch_Prefix:
		return x.Prefix == "/"
	case *networking.StringMatch_Regex:
		return strings.TrimPrefix(strings.TrimSuffix(strings.TrimPrefix(x.Regex, "^"), "$"), "/") == ".*"
	}
	return m == nil
}

// impossible warns of conditions that no request fulfils.
func impossible(c *checker, m *networking.HTTPMatchRequest) {
	for _, path := range []string{m.Uri.GetExact(), m.Uri.GetPrefix()} {
		switch i := strings.IndexAny(path, "?#"); {
		case path == "" || path == "*": // that of OPTIONS for the whole server
		case path[0] != '/':
			c.at("uri").warn(CodeUnreachable, "no request matches it, for paths begin with a slash: write %q", "/"+path)
		case i >= 0 && path[i] == '?':
			c.at("uri").warn(CodeUnreachable, "no request matches it, for the path ends where the query begins: leave %q out, and use queryParams", path[i:])
		case i >= 0:
			c.at("uri").warn(CodeUnreachable, "no request matches it, for clients send no fragments: leave %q out", path[i:])
		}
	}
	if is, be := m.Method.GetExact(), strings.ToUpper(m.Method.GetExact()); is != be && slices.Contains(methods(), be) {
		c.at("method").warn(CodeUnreachable, "no request matches it, for the case of methods counts: write %s", be)
	}
}

// methods are those of HTTP.
func methods() []string {
	return []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodConnect, http.MethodOptions, http.MethodTrace}
}
