package gen

import (
	"maps"
	"slices"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	networking "istio.io/api/networking/v1alpha3"
)

// headers are changes of headers in Envoy's terms.
type headers struct {
	request, response             []*corev3.HeaderValueOption
	requestRemove, responseRemove []string
	authority                     string // of requests; Envoy does not take it for a header
}

// headersOf translates changes of headers, by name: set ones, then added ones.
func headersOf(h *networking.Headers) headers {
	var out headers
	out.request, out.authority = headerOptions(h.GetRequest())
	out.response, _ = headerOptions(h.GetResponse())
	out.requestRemove, out.responseRemove = removable(h.GetRequest()), removable(h.GetResponse())
	return out
}

func headerOptions(o *networking.Headers_HeaderOperations) (list []*corev3.HeaderValueOption, authority string) {
	for _, x := range [...]struct {
		values map[string]string
		action corev3.HeaderValueOption_HeaderAppendAction
	}{
		{o.GetSet(), corev3.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD},
		{o.GetAdd(), corev3.HeaderValueOption_APPEND_IF_EXISTS_OR_ADD},
	} {
		for _, k := range slices.Sorted(maps.Keys(x.values)) {
			switch v := x.values[k]; {
			case isAuthority(k):
				authority = v
			case isToken(k) && len(v) <= maxHeader && headerValue(v):
				list = append(list, &corev3.HeaderValueOption{AppendAction: x.action,
					Header: &corev3.HeaderValue{Key: k, Value: headerFormat(v)}})
			}
		}
	}
	return list, authority
}

func removable(o *networking.Headers_HeaderOperations) []string {
	var out []string
	for _, k := range o.GetRemove() {
		if isToken(k) && !isAuthority(k) {
			out = append(out, k)
		}
	}
	return out
}

// addHeaders puts the changes of a route behind those that it has.
func addHeaders(out *routev3.Route, h headers) {
	out.RequestHeadersToAdd = append(out.RequestHeadersToAdd, h.request...)
	out.ResponseHeadersToAdd = append(out.ResponseHeadersToAdd, h.response...)
	out.RequestHeadersToRemove = append(out.RequestHeadersToRemove, h.requestRemove...)
	out.ResponseHeadersToRemove = append(out.ResponseHeadersToRemove, h.responseRemove...)
}

// maxHeader is the most bytes that Envoy takes for a name or a value.
const maxHeader = 16384

func isAuthority(name string) bool { return name == ":authority" || strings.EqualFold(name, "host") }

// isToken reports whether a name can be that of a header (RFC 9110, 5.6.2).
func isToken(name string) bool {
	return name != "" && len(name) <= maxHeader && strings.IndexFunc(name, func(r rune) bool {
		return !(r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || strings.ContainsRune("!#$%&'*+-.^_`|~", r))
	}) < 0
}

func headerValue(v string) bool { return !strings.ContainsAny(v, "\x00\r\n") }
