package debug

import (
	"bytes"
	"regexp"
)

// serverQuery is the query of an address server of Nacos, which may have a credential.
var serverQuery = regexp.MustCompile(`("(?:nacosA|a)ddressServer": ?"[^"?]*\?)(?:[^"\\]|\\.)+"`)

// hideUsers takes users and passwords out of the URLs in a text of JSON: "https://…@host/". Where objects have URLs, whatever their kind, somebody may
// have written down credentials. Queries are hidden where some are asked with, others may be of a rule.
func hideUsers(js []byte) []byte {
	js = serverQuery.ReplaceAll(js, []byte(`$1…"`))
	if !bytes.Contains(js, []byte("@")) {
		return js
	}
	var out []byte
	for {
		i := bytes.Index(js, []byte("://"))
		if i < 0 {
			return append(out, js...)
		}
		i += len("://")
		out = append(out, js[:i]...)
		if js = js[i:]; userEnd(js) > 0 {
			out, js = append(out, "…"...), js[userEnd(js):]
		}
	}
}

// userEnd is where the last "@" of a URL's authority is; 0 if it has none.
func userEnd(js []byte) (at int) {
	for i := 0; i < len(js); i++ {
		switch js[i] {
		case '\\':
			i++
		case '/', '?', '"', ' ':
			return at
		case '@':
			at = i
		}
	}
	return at
}
