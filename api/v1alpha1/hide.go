package v1alpha1

import (
	"regexp"
	"strings"
)

// hiddenUser stands for a user and a password.
const hiddenUser = "…"

var schemeOf = regexp.MustCompile(`^[a-zA-Z][a-zA-Z0-9+.-]*://`)

// HideUser gives an address or a URL without the user and the password that it may have: "http://…@host:80". They belong into Secrets, so
// that addresses can be shown; what is left is refused as it was.
func HideUser(address string) string {
	at := strings.LastIndex(address, "@")
	if at < 0 {
		return address
	}
	return schemeOf.FindString(address[:at]) + hiddenUser + address[at:]
}

// HideUsers hides those of all its addresses. It is for a spec that was just read, before anybody quotes it.
func (s *RegistrySpec) HideUsers() {
	for i, a := range s.Addresses {
		s.Addresses[i] = HideUser(a)
	}
	if s.Nacos != nil {
		s.Nacos.AddressServer = HideUser(s.Nacos.AddressServer)
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
