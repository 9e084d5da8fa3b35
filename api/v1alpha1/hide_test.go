package v1alpha1_test

import (
	"strings"
	"testing"

	api "github.com/isthmus-mesh/isthmus/api/v1alpha1"
)

func TestHideUser(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"": "", "host:80": "host:80", "https://host/a": "https://host/a",
		"http://u:p@host:80/a": "http://…@host:80/a", "u:p@host": "…@host", "u@host": "…@host", "xds://u:p/q@[::1]:1": "xds://…@[::1]:1",
		"u:p@ftp://host": "…@ftp://host", "u:p://q@host": "…@host", "http://u:p@q@host": "http://…@host", "http://…@host": "http://…@host",
		"h:1?token=t": "h:1?…", "http://h/a#b?c": "http://h/a#…", "h?…": "h?…", "http://u:p@h:1?q=r": "http://…@h:1?…", "h?a=b@c": "…@…", "http://h#x@y": "http://…@…",
	} {
		if got := api.HideUser(in); got != want {
			t.Errorf("%s: %s, want %s", in, got, want)
		}
	}
}

func TestHideUsers(t *testing.T) {
	t.Parallel()
	r := spec[api.RegistrySpec](t, `{provider: nacos, addresses: ["u:hush@a:1", "http://u:hush@a:1", b:2, "c:3?token=hush", "http://d:4/#hush"], nacos: {addressServer: "http://u:hush@a/l"}}`)
	r.HideUsers()
	b := spec[api.McpBridgeSpec](t, `{registries: [{type: static, name: s, port: 80, domain: "10.0.0.1:1,u:hush@10.0.0.2:2,10.0.0.3:3?token=hush"}, {type: nacos, name: n, nacosAddressServer: "u:hush@a"}, {type: nacos, name: q, nacosAddressServer: "a?key=hush"}]}`)
	b.HideUsers()
	for _, address := range append(r.Addresses, r.Nacos.AddressServer, b.Registries[0].Domain, b.Registries[1].NacosAddressServer, b.Registries[2].NacosAddressServer) {
		if strings.Contains(address, "hush") {
			t.Error(address)
		}
	}
	if got := b.Registries[0].Bridge().Static; got == nil || len(got.Addresses) != 1 {
		t.Errorf("the other address is %+v", got)
	}
	if _, refused := api.Refuses(r.Validate()); !refused {
		t.Error("it is not refused any more")
	}
}

// The query of an address server is what it is asked with; where it is shown it is hidden.
func TestQueriesOfAddressServers(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"http://a/l?key=hush": "http://a/l?key=hush", "http://a/l": "http://a/l", "http://u:hush@a/l?k=v": "http://…@a/l?…", "http://a/l?key=hush#x": "http://a/l?…",
	} {
		r := spec[api.RegistrySpec](t, `{provider: nacos, addresses: [], nacos: {addressServer: "`+in+`"}}`)
		r.HideUsers()
		if r.Nacos.AddressServer != want {
			t.Errorf("%s: %s, want %s", in, r.Nacos.AddressServer, want)
		}
		if _, refused := api.Refuses(r.Validate()); refused == (in == want) {
			t.Errorf("%s: refused %v", in, refused)
		}
	}
}

func FuzzHideUser(f *testing.F) {
	f.Add("http://", "user:pass", "host:80")
	f.Fuzz(func(t *testing.T, scheme, user, host string) {
		got := api.HideUser(scheme + user + "@" + host)
		if again := api.HideUser(got); again != got {
			t.Errorf("%q, and then %q", got, again)
		}
		if !strings.HasSuffix(got, "@"+host) && !strings.ContainsAny(scheme+user+host, "@?#") || !strings.Contains(got, "…@") {
			t.Errorf("%q %q %q: %q", scheme, user, host, got)
		}
	})
}
