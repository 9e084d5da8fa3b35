package gen_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	"github.com/google/go-cmp/cmp"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/xds/gen"
)

func TestRouterListensOnlyWhenTold(t *testing.T) {
	t.Parallel()
	told, quiet := router("c1", "a"), router("c1", "a", func(c *gen.Class) { c.ExposeServices = false })
	for _, c := range []struct {
		port model.Port
		want []string
	}{
		{httpPort(80), []string{"0.0.0.0_80", "exposed.80"}},
		{tcpPort(80), []string{"0.0.0.0_80"}},
		{autoPort(80), []string{"0.0.0.0_80", "exposed.80"}},
	} {
		v := portView(80, newMesh(), svc{host: "a.a.svc.cluster.local", ports: []model.Port{c.port}, vips: members("c1", "10.0.0.1")})
		if got := append(names(t, gen.Listeners{}, v, quiet), names(t, gen.Routes{}, v, quiet)...); got != nil {
			t.Errorf("%s: not told to: %v", c.port.Name, got)
		}
		if d := cmp.Diff(c.want, append(names(t, gen.Listeners{}, v, told), names(t, gen.Routes{}, v, told)...)); d != "" {
			t.Errorf("%s:\n%s", c.port.Name, d)
		}
	}
}

// What an exposing router does with the connections to a port: by SNI, by detected HTTP, and the rest.
func TestRouterSharesPorts(t *testing.T) {
	t.Parallel()
	of := func(host string, p model.Port, age int) svc {
		return svc{host: host + ".a.svc.cluster.local", ports: []model.Port{p}, vips: members("c1", "10.0.0.1"), age: age}
	}
	tls := model.Port{Name: "tls", Number: 5000, Protocol: model.ProtocolTLS}
	https := model.Port{Name: "https", Number: 5000, Protocol: model.ProtocolHTTPS}
	cluster := func(host string) string { return "outbound|5000||" + host + ".a.svc.cluster.local" }
	const cleartext, secure = "http/1.1,h2c", "%s.a.svc.cluster.local"
	for _, c := range []struct {
		name     string
		services []svc
		want     map[string]string // what a chain matches → where it leads; "" = all, "*" = the rest
	}{
		{"http alone needs no detection", []svc{of("web", httpPort(5000), 0)}, map[string]string{"": "http"}},
		{"tcp alone", []svc{of("db", tcpPort(5000), 0)}, map[string]string{"": cluster("db")}},
		{"of several, the oldest", []svc{of("a", tcpPort(5000), 1), of("b", tcpPort(5000), 2)}, map[string]string{"": cluster("b")}},
		{"http and tcp", []svc{of("web", httpPort(5000), 2), of("db", tcpPort(5000), 1)}, map[string]string{cleartext: "http", "*": cluster("db")}},
		{"sniffed", []svc{of("any", autoPort(5000), 1)}, map[string]string{cleartext: "http", "*": cluster("any")}},
		{"tls", []svc{of("a", tls, 1), of("b", https, 2)}, map[string]string{fmt.Sprintf(secure, "a"): cluster("a"), fmt.Sprintf(secure, "b"): cluster("b")}},
		{"http and tls", []svc{of("web", httpPort(5000), 1), of("a", tls, 1)}, map[string]string{"": "http", fmt.Sprintf(secure, "a"): cluster("a")}},
		{"all", []svc{of("web", httpPort(5000), 1), of("a", tls, 1), of("db", tcpPort(5000), 1), of("any", autoPort(5000), 0)},
			map[string]string{cleartext: "http", fmt.Sprintf(secure, "a"): cluster("a"), "*": cluster("db")}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			v := portView(5000, newMesh(), c.services...)
			for bind, class := range map[string]gen.Class{
				"0.0.0.0": router("c1", "edge"), "::": router("c1", "edge", func(c *gen.Class) { c.IPv4, c.IPv6 = false, true }),
				"127.0.0.9": router("c1", "edge", func(c *gen.Class) { c.Bind = netip.MustParseAddr("127.0.0.9") }),
			} {
				list := build(t, gen.Listeners{}, v, class)
				if len(list) != 1 || list[0].name != bind+"_5000" {
					t.Fatalf("%d listeners, want %s_5000", len(list), bind)
				}
				l := decode(t, list[0]).(*listenerv3.Listener)
				if d := cmp.Diff(c.want, chainsOf(t, l)); d != "" || l.BindToPort != nil {
					t.Errorf("%s (bound: %v):\n%s", l.Name, l.BindToPort == nil, d)
				}
			}
		})
	}
}

// chainsOf maps what each chain of a listener matches to where it leads.
func chainsOf(t testing.TB, l *listenerv3.Listener) map[string]string {
	t.Helper()
	out := map[string]string{}
	if l.DefaultFilterChain != nil {
		out["*"] = proxied(t, l.DefaultFilterChain)
	}
	for _, f := range l.FilterChains {
		out[strings.Join(append(f.GetFilterChainMatch().GetServerNames(), f.GetFilterChainMatch().GetApplicationProtocols()...), ",")] = proxied(t, f)
	}
	return out
}
