package v1alpha1

import (
	"regexp"
	"strings"
)

// hidden stands for a user and a password, a query or a fragment.
const hidden = "…"

var schemeOf = regexp.MustCompile(`^[a-zA-Z][a-zA-Z0-9+.-]*://`)

// HideUser gives an address or a URL without the user and the password that it may have, and without query and fragment: "http://…@host:80?…".
// Credentials belong into Secrets, so that addresses can be shown; what is left is refused as it was.
func HideUser(address string) string {
	start, rest := "", address
	if at := strings.LastIndex(address, "@"); at >= 0 {
		start, rest = schemeOf.FindString(address[:at])+hidden+"@", address[at+1:]
		if strings.ContainsAny(address[:at], "?#") {
			return start + hidden // it may be of a query
		}
	}
	if i := strings.IndexAny(rest, "?#"); i >= 0 {
		rest = rest[:i+1] + hidden
	}
	return start + rest
}

// keepQuery is HideUser, but for the query of a URL that is asked with it.
func keepQuery(address string) string {
	if _, query, _ := strings.Cut(address, "?"); query != "" && !strings.ContainsAny(address, "@#") {
		return address
	}
	return HideUser(address)
}

// HideUsers hides those of all its addresses, but the query of an address server, which is asked with it. It is for a spec that was just read, before anybody quotes it.
func (s *RegistrySpec) HideUsers() {
	for i, a := range s.Addresses {
		s.Addresses[i] = HideUser(a)
	}
	if s.Nacos != nil {
		s.Nacos.AddressServer = keepQuery(s.Nacos.AddressServer)
	}
}

// HideUsers does the same.
func (s *McpBridgeSpec) HideUsers() {
	for i := range s.Registries {
		r := &s.Registries[i]
		list := strings.Split(r.Domain, ",")
		for i, a := range list {
			list[i] = HideUser(a)
		}
		r.Domain = strings.Join(list, ",")
		r.NacosAddressServer, r.McpServerBaseURL = HideUser(r.NacosAddressServer), HideUser(r.McpServerBaseURL)
	}
}
