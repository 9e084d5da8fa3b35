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
	} {
		if got := api.HideUser(in); got != want {
			t.Errorf("%s: %s, want %s", in, got, want)
		}
	}
}

func TestHideUsers(t *testing.T) {
	t.Parallel()
	r := spec[api.RegistrySpec](t, `{provider: nacos, addresses: ["u:hush@a:1", "http://u:hush@a:1", b:2], nacos: {addressServer: "http://u:hush@a/l"}}`)
	r.HideUsers()
	b := spec[api.McpBridgeSpec](t, `{registries: [{type: static, name: s, port: 80, domain: "10.0.0.1:1,u:hush@10.0.0.2:2"}, {type: nacos, name: n, nacosAddressServer: "u:hush@a"}]}`)
	b.HideUsers()
	for _, address := range append(r.Addresses, r.Nacos.AddressServer, b.Registries[0].Domain, b.Registries[1].NacosAddressServer) {
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

func FuzzHideUser(f *testing.F) {
	f.Add("http://", "user:pass", "host:80")
	f.Fuzz(func(t *testing.T, scheme, user, host string) {
		got := api.HideUser(scheme + user + "@" + host)
		if again := api.HideUser(got); again != got {
			t.Errorf("%q, and then %q", got, again)
		}
		if !strings.HasSuffix(got, "@"+host) && !strings.Contains(host, "@") || !strings.Contains(got, "…@") {
			t.Errorf("%q %q %q: %q", scheme, user, host, got)
		}
	})
}
