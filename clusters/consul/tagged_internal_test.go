package consul

import (
	"fmt"
	"strings"
	"testing"

	api "github.com/isthmus-mesh/isthmus/api/v1alpha1"
)

// TestTaggedAddresses: which of its addresses are for whom, by what the instance and its node have.
func TestTaggedAddresses(t *testing.T) {
	t.Parallel()
	own, nodes := decode(t, full).list[0], decode(t, full).list[0]
	nodes.Service.Address, nodes.Service.TaggedAddresses = "", nil
	same, natted, apart := nodes, nodes, nodes
	same.Service.Address, natted.Service.Address, apart.Service.Address = "10.1.10.12", "198.51.100.12", "172.17.0.2"
	portless := own
	portless.Service.TaggedAddresses = map[string]taggedAddress{"wan": {Address: "wan.example"}, "odd": {Address: "198.51.100.1", Port: 70000}}
	for name, c := range map[string]struct {
		e    entry
		tags map[string]string
		want string
	}{
		"as it was":                             {own, nil, ""},
		"the service's own, with its port":      {own, map[string]string{"dmz": "wan"}, "dmz=wan:198.51.100.22:80"},
		"for several":                           {own, map[string]string{"dmz": "wan", "*": "lan"}, "*=lan:10.1.10.23:8001 dmz=wan:198.51.100.22:80"},
		"one that it has not":                   {own, map[string]string{"dmz": "vpn", "*": "wan"}, "*=wan:198.51.100.22:80"},
		"without port, and by name":             {portless, map[string]string{"dmz": "wan"}, "dmz=wan:wan.example:8000"},
		"with a port that is none":              {portless, map[string]string{"dmz": "odd"}, "dmz=odd:198.51.100.1:8000"},
		"the node's":                            {nodes, map[string]string{"dmz": "wan"}, "dmz=wan:198.51.100.12:8000"},
		"the node's, with the node's address":   {same, map[string]string{"dmz": "wan"}, "dmz=wan:198.51.100.12:8000"},
		"the node's, with another of them":      {natted, map[string]string{"dmz": "wan"}, "dmz=wan:198.51.100.12:8000"},
		"not the node's of a service elsewhere": {apart, map[string]string{"dmz": "wan"}, ""},
		"not for the registry's own network":    {own, map[string]string{"home": "wan", "dmz": "wan"}, "dmz=wan:198.51.100.22:80"},
	} {
		conv := converterOf(func(s *api.RegistrySpec) {
			s.Network, s.Consul = "home", &api.ConsulSpec{TaggedAddresses: c.tags}
		})
		var got []string
		for _, a := range conv.instance(&c.e).Alternatives {
			got = append(got, fmt.Sprintf("%s=%s:%s:%d", a.Network, a.Name, a.Address, a.Port))
			if odd := a.Name == "odd"; odd != (a.Odd == "its port 70000 is none: that of the instance is used") {
				t.Errorf("%s: %q", name, a.Odd)
			}
		}
		if text := strings.Join(got, " "); text != c.want {
			t.Errorf("%s: %q, want %q", name, text, c.want)
		}
	}
}

// TestTaggedAddressesThatNobodyDials are refused when the registry is made.
func TestTaggedAddressesThatNobodyDials(t *testing.T) {
	t.Parallel()
	for _, tag := range []string{"virtual", "consul-virtual"} {
		for _, s := range []*api.ConsulSpec{{TaggedAddress: tag}, {TaggedAddresses: map[string]string{"dmz": tag}}} {
			if _, err := New(Options{Name: "legacy", Spec: spec(func(r *api.RegistrySpec) { r.Consul = s })}); err == nil || !strings.Contains(err.Error(), tag) {
				t.Errorf("%+v: %v", s, err)
			}
		}
	}
}
