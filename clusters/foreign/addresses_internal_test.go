package foreign

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	api "github.com/isthmus-mesh/isthmus/api/v1alpha1"
)

// elsewhere gives an instance an address for other networks.
func elsewhere(network, address string, port uint16) func(*Instance) {
	return func(i *Instance) {
		i.Alternatives = append(i.Alternatives, Alternative{Network: network, Name: "wan", Address: address, Port: port})
	}
}

// alternativesOf are those of a service's endpoints, by "ip:port/port name", as "network=ip:port".
func alternativesOf(t *testing.T, out converted) map[string]string {
	t.Helper()
	got := map[string]string{}
	for _, o := range out.rows {
		e, ok := o.(*model.Endpoints)
		if !ok {
			continue
		}
		for _, e := range e.Endpoints {
			var list []string
			if e.Alternatives != nil {
				for _, a := range *e.Alternatives {
					list = append(list, a.Network+"="+a.Addr("").String()+" "+a.Name)
				}
			}
			got[e.Addr.String()+"/"+e.PortName] = strings.Join(list, ", ")
		}
	}
	return got
}

func TestAlternatives(t *testing.T) {
	t.Parallel()
	r := resolved{
		"two.example": {netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")}, "none.example": {},
		"both.example": {netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2"), netip.MustParseAddr("10.0.0.3")},
	}
	for name, c := range map[string]struct {
		instance Instance
		want     map[string]string
		problem  string
	}{
		"none":          {up("10.0.0.1", 80), map[string]string{"10.0.0.1:80/http": ""}, ""},
		"with a port":   {with(up("10.0.0.1", 80), elsewhere("dmz", "192.0.2.1", 8080)), map[string]string{"10.0.0.1:80/http": "dmz=192.0.2.1:8080 wan"}, ""},
		"without a one": {with(up("10.0.0.1", 80), elsewhere("*", "192.0.2.1", 0)), map[string]string{"10.0.0.1:80/http": "*=192.0.2.1:80 wan"}, ""},
		"several": {with(with(up("10.0.0.1", 80), elsewhere("*", "::ffff:192.0.2.1", 0)), elsewhere("dmz", "2001:db8::1", 81)),
			map[string]string{"10.0.0.1:80/http": "*=192.0.2.1:80 wan, dmz=[2001:db8::1]:81 wan"}, ""},
		"of named ports": {with(with(up("10.0.0.1", 80), elsewhere("dmz", "192.0.2.1", 8080)), func(i *Instance) {
			i.Ports = []NamedPort{{Name: "web", Port: 81}, {Name: "admin", Port: 82}}
		}), map[string]string{"10.0.0.1:81/web": "dmz=192.0.2.1:81 wan", "10.0.0.1:82/admin": "dmz=192.0.2.1:82 wan"}, ""},
		"a name":               {with(up("10.0.0.1", 80), elsewhere("dmz", "Two.example.", 0)), map[string]string{"10.0.0.1:80/http": "dmz=192.0.2.1:80 wan"}, ""},
		"a name for each":      {with(up("both.example", 80), elsewhere("dmz", "two.example", 0)), map[string]string{"10.0.0.1:80/http": "dmz=192.0.2.1:80 wan", "10.0.0.2:80/http": "dmz=192.0.2.2:80 wan", "10.0.0.3:80/http": "dmz=192.0.2.1:80 wan"}, ""},
		"a name of nothing":    {with(up("10.0.0.1", 80), elsewhere("dmz", "none.example", 0)), map[string]string{"10.0.0.1:80/http": ""}, ""},
		"a name not known":     {with(up("10.0.0.1", 80), elsewhere("dmz", "new.example", 0)), map[string]string{"10.0.0.1:80/http": ""}, ""},
		"nobody's, beside one": {with(with(up("10.0.0.1", 80), elsewhere("a", "0.0.0.0", 0)), elsewhere("b", "192.0.2.1", 0)), map[string]string{"10.0.0.1:80/http": "b=192.0.2.1:80 wan"}, "without an address for other networks, 10.0.0.1:80: wan: 0.0.0.0 stands for all addresses of a machine, and is none to dial"},
		"neither IP nor name":  {with(with(up("10.0.0.1", 80), elsewhere("a", "not a host", 0)), elsewhere("b", "192.0.2.1", 0)), map[string]string{"10.0.0.1:80/http": "b=192.0.2.1:80 wan"}, "without an address for other networks, 10.0.0.1:80: wan: its address is neither an IP address nor a DNS name"},
		"odd, and of use": {with(with(up("10.0.0.1", 80), elsewhere("a", "192.0.2.1", 0)), func(i *Instance) { i.Alternatives[0].Odd = "its port 70000 is none" }),
			map[string]string{"10.0.0.1:80/http": "a=192.0.2.1:80 wan"}, "with an odd address for other networks, 10.0.0.1:80: wan: its port 70000 is none"},
		"of who is not served":  {with(with(up("10.0.0.1", 80), elsewhere("a", "192.0.2.1", 0)), func(i *Instance) { i.Disabled = true }), map[string]string{}, ""},
		"a loopback address is": {with(up("10.0.0.1", 80), elsewhere("a", "127.0.0.2", 0)), map[string]string{"10.0.0.1:80/http": "a=127.0.0.2:80 wan"}, ""},
	} {
		conv := converterOf(api.RegistrySpec{Provider: api.Consul})
		out := conv.rows(orders(c.instance), nil, r, holders{"G@@orders", "G@@orders"}, model.Source{})
		if d := cmp.Diff(c.want, alternativesOf(t, out)); d != "" || out.problem != c.problem {
			t.Errorf("%s: %s\nproblem %q", name, d, out.problem)
		}
	}
	if got := dnsNames([]Instance{with(up("b.example", 80), elsewhere("dmz", "A.example", 0))}); !cmp.Equal(got, []string{"a.example", "b.example"}) {
		t.Errorf("%v", got)
	}
}

// TestAddressesThatAreNobodys: what nobody can dial is no endpoint; whoever registered it is told what to correct.
func TestAddressesThatAreNobodys(t *testing.T) {
	t.Parallel()
	consul := " is none to dial: correct the address of its registration, or the advertise_addr of its agent if it registers none"
	for name, c := range map[string]struct {
		provider  api.Provider
		instances []Instance
		want      []string
	}{
		"unspecified": {api.Consul, []Instance{up("0.0.0.0", 80), up("10.0.0.1", 80)}, []string{"service orders.g.public.nacos http:80/http", "endpoint 10.0.0.1:80 http healthy weight=1 ",
			"without 0.0.0.0:80 http: Invalid 0.0.0.0 stands for all addresses of a machine, and" + consul,
			"problem left out, 0.0.0.0:80: 0.0.0.0 stands for all addresses of a machine, and" + consul}},
		"several, in other forms": {api.Nacos, []Instance{up("::", 80), up("::ffff:0.0.0.0", 81), up("fe80::1%eth0", 82), up("169.254.1.1", 83), up("224.0.0.1", 84), up("ff02::1", 85)}, []string{
			"service orders.g.public.nacos http:80/http",
			"without 169.254.1.1:83 http: Invalid 169.254.1.1 means something on one link only: " + nacosRemedy,
			"without 224.0.0.1:84 http: Invalid 224.0.0.1 is an address of a group, and not of an instance: " + nacosRemedy,
			"without [::]:80 http: Invalid :: stands for all addresses of a machine, and is none to dial: " + nacosRemedy,
			"without [::ffff:0.0.0.0]:81 http: Invalid 0.0.0.0 stands for all addresses of a machine, and is none to dial: " + nacosRemedy,
			"without [fe80::1%eth0]:82 http: Invalid fe80::1 means something on one link only: " + nacosRemedy,
			"without [ff02::1]:85 http: Invalid ff02::1 is an address of a group, and not of an instance: " + nacosRemedy,
			"problem left out, 169.254.1.1:83 and 5 more: 169.254.1.1 means something on one link only: " + nacosRemedy}},
		"broadcast": {api.Nacos, []Instance{up("255.255.255.255", 80)}, []string{"service orders.g.public.nacos http:80/http",
			"without 255.255.255.255:80 http: Invalid 255.255.255.255 stands for all machines of a network, and is none to dial: " + nacosRemedy,
			"problem left out, 255.255.255.255:80: 255.255.255.255 stands for all machines of a network, and is none to dial: " + nacosRemedy}},
		"loopback, which is served": {api.Nacos, []Instance{up("127.0.0.1", 80), up("::1", 80)}, []string{"service orders.g.public.nacos http:80/http", "endpoint 127.0.0.1:80 http healthy weight=1 ",
			"endpoint [::1]:80 http healthy weight=1 ", "problem at a loopback address, 127.0.0.1:80 and 1 more: 127.0.0.1 is right only if all proxies run on the same machine; else " + nacosRemedy}},
		"a name of both": {api.Consul, []Instance{up("some.example", 80)}, []string{"service orders.g.public.nacos http:80/http", "endpoint 10.0.0.7:80 http healthy weight=1 "}},
		"disabled":       {api.Consul, []Instance{with(up("0.0.0.0", 80), func(i *Instance) { i.Disabled = true })}, []string{"service orders.g.public.nacos http:80/http", "without 0.0.0.0:80 http: Disabled "}},
	} {
		conv := converterOf(api.RegistrySpec{Provider: c.provider})
		r := resolved{"some.example": {netip.MustParseAddr("0.0.0.0"), netip.MustParseAddr("10.0.0.7")}}
		out := conv.rows(orders(c.instances...), nil, r, holders{"G@@orders", "G@@orders"}, model.Source{})
		if d := cmp.Diff(c.want, shown(out)); d != "" {
			t.Errorf("%s: %s", name, d)
		}
		for _, o := range out.rows {
			if w, ok := o.(*model.Workload); ok && nobodys(w.Address.AddrPort.Addr()) != "" {
				t.Errorf("%s: %+v is a workload", name, w)
			}
		}
	}
}

const nacosRemedy = "correct the ip of its registration (spring.cloud.nacos.discovery.ip, or the network interface that the client chooses)"
