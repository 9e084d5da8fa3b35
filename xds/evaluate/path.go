package evaluate

import (
	"slices"
	"strconv"
	"strings"

	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
)

// normalise does to the path what the filter does before it routes; false if it refuses the request for it.
func normalise(m *hcmv3.HttpConnectionManager, r *Request) bool {
	p, query, has := strings.Cut(r.Path, "?")
	if strings.Contains(r.Path, "#") {
		return false
	}
	if plain := escapedSlashes.Replace(p); plain != p {
		switch m.PathWithEscapedSlashesAction {
		case hcmv3.HttpConnectionManager_REJECT_REQUEST:
			return false
		case hcmv3.HttpConnectionManager_UNESCAPE_AND_FORWARD, hcmv3.HttpConnectionManager_UNESCAPE_AND_REDIRECT:
			p = plain
		}
	}
	if m.NormalizePath.GetValue() {
		if strings.Contains(strings.ToLower(p), "%00") {
			return false
		}
		p = canonicalPath(p)
	}
	for m.MergeSlashes && strings.Contains(p, "//") {
		p = strings.ReplaceAll(p, "//", "/")
	}
	if r.Path = p; has {
		r.Path += "?" + query
	}
	r.Headers[":path"] = r.Path
	return true
}

var escapedSlashes = strings.NewReplacer("%2F", "/", "%2f", "/", "%5C", `\`, "%5c", `\`)

// canonicalPath takes "." and ".." out of a path, which may be escaped, and escapes what needs it and nothing else, as browsers
// do (WHATWG URL, section 4.4; RFC 3986, section 6.2.2). An escape that is kept is kept as it is.
func canonicalPath(p string) string {
	segments := strings.Split(strings.ReplaceAll(p, `\`, "/"), "/")[1:]
	var out []string
	for i, s := range segments {
		switch strings.ReplaceAll(strings.ReplaceAll(s, "%2e", "."), "%2E", ".") {
		case ".":
		case "..":
			out = out[:max(len(out)-1, 0)]
		default:
			out = append(out, canonicalSegment(s))
			continue
		}
		if i == len(segments)-1 {
			out = append(out, "")
		}
	}
	return "/" + strings.Join(out, "/")
}

func canonicalSegment(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '%' && i+2 < len(s) {
			if n, err := strconv.ParseUint(s[i+1:i+3], 16, 8); err == nil && unreserved(byte(n)) {
				b.WriteByte(byte(n))
				i += 2
				continue
			}
		}
		if escaped(s[i]) {
			b.WriteString("%" + strings.ToUpper(strconv.FormatUint(0x100+uint64(s[i]), 16)[1:]))
		} else {
			b.WriteByte(s[i])
		}
	}
	return b.String()
}

// unreserved characters stand for themselves.
func unreserved(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || strings.IndexByte("-._~", c) >= 0
}

func escaped(c byte) bool {
	return c <= ' ' || c >= 0x7f || slices.Contains([]byte("\"#<>?^`{|}"), c)
}
