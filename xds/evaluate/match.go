package evaluate

import (
	"regexp"
	"strconv"
	"strings"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
)

// matches reports whether a route takes a request.
func matches(m *routev3.RouteMatch, r *Request) bool {
	p, _, _ := strings.Cut(r.Path, "?")
	if !matchesPath(m, p) {
		return false
	}
	for _, h := range m.Headers {
		if !matchesHeader(h, r) {
			return false
		}
	}
	query := queryOf(r)
	for _, q := range m.QueryParameters {
		v, there := "", query.Has(q.Name)
		if there {
			v = query.Get(q.Name)
		}
		if !matchesParameter(q, v, there) {
			return false
		}
	}
	for _, d := range m.DynamicMetadata { // no filter has set any
		if !d.Invert {
			return false
		}
	}
	if m.Grpc != nil && !strings.HasPrefix(r.Headers["content-type"], "application/grpc") {
		return false
	}
	return true
}

func matchesPath(m *routev3.RouteMatch, p string) bool {
	fold := func(s string) string { return s }
	if c := m.CaseSensitive; c != nil && !c.Value {
		fold = strings.ToLower
	}
	switch s := m.PathSpecifier.(type) {
	case *routev3.RouteMatch_Prefix:
		return strings.HasPrefix(fold(p), fold(s.Prefix))
	case *routev3.RouteMatch_Path:
		return fold(p) == fold(s.Path)
	case *routev3.RouteMatch_SafeRegex:
		return wholly(s.SafeRegex.GetRegex(), p)
	case *routev3.RouteMatch_PathSeparatedPrefix:
		rest, ok := strings.CutPrefix(fold(p), fold(s.PathSeparatedPrefix))
		return ok && (rest == "" || rest[0] == '/')
	}
	return false
}

// wholly reports whether all of a text matches.
func wholly(expression, text string) bool {
	x, err := regexp.Compile(`^(?:` + expression + `)$`)
	return err == nil && x.MatchString(text)
}

func matchesHeader(h *routev3.HeaderMatcher, r *Request) bool {
	name := strings.ToLower(h.Name)
	if name == "host" {
		name = ":authority"
	}
	v, there := r.Headers[name]
	if p, ok := h.HeaderMatchSpecifier.(*routev3.HeaderMatcher_PresentMatch); ok {
		return (there == p.PresentMatch) != h.InvertMatch
	}
	if h.HeaderMatchSpecifier == nil {
		return there != h.InvertMatch
	}
	if !there && !h.TreatMissingHeaderAsEmpty {
		return false // also of an inverted match
	}
	return matchesValue(h, v) != h.InvertMatch
}

func matchesValue(h *routev3.HeaderMatcher, v string) bool {
	switch s := h.HeaderMatchSpecifier.(type) {
	case *routev3.HeaderMatcher_StringMatch:
		return matchesString(s.StringMatch, v)
	case *routev3.HeaderMatcher_RangeMatch:
		n, err := strconv.ParseInt(v, 10, 64)
		return err == nil && n >= s.RangeMatch.Start && n < s.RangeMatch.End
	}
	return false
}

func matchesParameter(q *routev3.QueryParameterMatcher, v string, there bool) bool {
	switch s := q.QueryParameterMatchSpecifier.(type) {
	case *routev3.QueryParameterMatcher_StringMatch:
		return there && matchesString(s.StringMatch, v)
	case *routev3.QueryParameterMatcher_PresentMatch:
		return there == s.PresentMatch
	}
	return there
}

func matchesString(m *matcherv3.StringMatcher, v string) bool {
	return matchesText(m, m.GetSafeRegex().GetRegex(), v)
}

// textPattern is a matcher of text, of Envoy's own or of the xDS matchers'. Only a whole text may be empty.
type textPattern interface {
	GetExact() string
	GetPrefix() string
	GetSuffix() string
	GetContains() string
	GetIgnoreCase() bool
}

func matchesText(m textPattern, regex, v string) bool {
	fold := func(s string) string { return s }
	if m.GetIgnoreCase() {
		fold = strings.ToLower
	}
	switch {
	case regex != "":
		return wholly(regex, v)
	case m.GetPrefix() != "":
		return strings.HasPrefix(fold(v), fold(m.GetPrefix()))
	case m.GetSuffix() != "":
		return strings.HasSuffix(fold(v), fold(m.GetSuffix()))
	case m.GetContains() != "":
		return strings.Contains(fold(v), fold(m.GetContains()))
	}
	return fold(v) == fold(m.GetExact())
}

// rewritten gives the path with a new prefix, or with what an expression finds substituted.
func rewritten(m *routev3.RouteMatch, prefix string, expression *matcherv3.RegexMatchAndSubstitute, p string) string {
	bare, query, has := strings.Cut(p, "?")
	switch {
	case prefix != "":
		bare = prefix + bare[min(matchedLength(m, bare), len(bare)):]
	case expression != nil:
		x, err := regexp.Compile(expression.GetPattern().GetRegex())
		if err != nil {
			return p
		}
		bare = x.ReplaceAllString(bare, goTemplate(expression.Substitution))
	default:
		return p
	}
	if has {
		bare += "?" + query
	}
	return bare
}

// matchedLength is how much of a path a new prefix takes the place of: what matched.
func matchedLength(m *routev3.RouteMatch, p string) int {
	switch s := m.PathSpecifier.(type) {
	case *routev3.RouteMatch_Prefix:
		return len(s.Prefix)
	case *routev3.RouteMatch_PathSeparatedPrefix:
		return len(s.PathSeparatedPrefix)
	}
	return len(p)
}

// goTemplate writes a substitution of RE2 ("\1") as Go does ("${1}").
func goTemplate(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		switch {
		case s[i] == '$':
			b.WriteString("$$")
		case s[i] == '\\' && i+1 < len(s) && s[i+1] >= '0' && s[i+1] <= '9':
			i++
			b.WriteString("${" + s[i:i+1] + "}")
		case s[i] == '\\' && i+1 < len(s):
			i++
			b.WriteByte(s[i])
		default:
			b.WriteByte(s[i])
		}
	}
	return b.String()
}

// routeWhy says what a route asks for.
func routeWhy(m *routev3.RouteMatch) string {
	var asks []string
	switch s := m.PathSpecifier.(type) {
	case *routev3.RouteMatch_Prefix:
		asks = append(asks, "path "+s.Prefix+"*")
	case *routev3.RouteMatch_Path:
		asks = append(asks, "path "+s.Path)
	case *routev3.RouteMatch_SafeRegex:
		asks = append(asks, "path like "+s.SafeRegex.GetRegex())
	case *routev3.RouteMatch_PathSeparatedPrefix:
		asks = append(asks, "path "+s.PathSeparatedPrefix+" and below")
	}
	for _, h := range m.Headers {
		what := "header " + h.Name
		if h.InvertMatch {
			what = "no such " + what
		}
		asks = append(asks, what)
	}
	for _, q := range m.QueryParameters {
		asks = append(asks, "parameter "+q.Name)
	}
	return "it takes " + strings.Join(asks, ", ")
}

func uintText(n uint32) string { return strconv.FormatUint(uint64(n), 10) }
