package gen

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/durationpb"
	meshconfig "istio.io/api/mesh/v1alpha1"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/pushcontext"
)

type hashLB = networking.LoadBalancerSettings_ConsistentHashLB

func hashing(h *hashLB) *networking.TrafficPolicy {
	return &networking.TrafficPolicy{LoadBalancer: &networking.LoadBalancerSettings{LbPolicy: &networking.LoadBalancerSettings_ConsistentHash{ConsistentHash: h}}}
}

func byCookie(c *networking.LoadBalancerSettings_ConsistentHashLB_HTTPCookie) *hashLB {
	return &hashLB{HashKey: &networking.LoadBalancerSettings_ConsistentHashLB_HttpCookie{HttpCookie: c}}
}

func byHeader(name string) *hashLB {
	return &hashLB{HashKey: &networking.LoadBalancerSettings_ConsistentHashLB_HttpHeaderName{HttpHeaderName: name}}
}

// What of a request is hashed, and of a connection.
func TestHashPolicies(t *testing.T) {
	t.Parallel()
	type cookie = networking.LoadBalancerSettings_ConsistentHashLB_HTTPCookie
	type attribute = networking.LoadBalancerSettings_ConsistentHashLB_HTTPCookie_Attribute
	source := func(on bool) *hashLB {
		return &hashLB{HashKey: &networking.LoadBalancerSettings_ConsistentHashLB_UseSourceIp{UseSourceIp: on}}
	}
	query := func(n string) *hashLB {
		return &hashLB{HashKey: &networking.LoadBalancerSettings_ConsistentHashLB_HttpQueryParameterName{HttpQueryParameterName: n}}
	}
	for _, c := range []struct {
		hash *hashLB
		want string
		tcp  bool
	}{
		{nil, "", false},
		{&hashLB{}, "", false},
		{byHeader("x-user"), `{"header":{"headerName":"x-user"}}`, false},
		{byHeader(""), "", false},
		{query("q"), `{"queryParameter":{"name":"q"}}`, false},
		{query(""), "", false},
		{source(true), `{"connectionProperties":{"sourceIp":true}}`, true},
		{source(false), "", false},
		{byCookie(nil), "", false},
		{byCookie(&cookie{}), "", false},
		{byCookie(&cookie{Name: "s"}), `{"cookie":{"name":"s"}}`, false},
		{byCookie(&cookie{Name: "s", Path: "/a", Ttl: &durationpb.Duration{}}), `{"cookie":{"name":"s","ttl":"0s","path":"/a"}}`, false},
		{byCookie(&cookie{Name: "s", Ttl: &durationpb.Duration{Seconds: -1}}), `{"cookie":{"name":"s"}}`, false},
		{byCookie(&cookie{Name: "s", Attributes: []*attribute{{Name: "SameSite", Value: "Lax"}, {Value: "x"}, {Name: "Secure"}}}),
			`{"cookie":{"name":"s","attributes":[{"name":"SameSite","value":"Lax"},{"name":"Secure"}]}}`, false},
	} {
		got := ""
		for _, p := range hashPolicies(c.hash) {
			if err := p.ValidateAll(); err != nil {
				t.Errorf("%v: %v", c.hash, err)
			}
			got += strings.ReplaceAll(protojson.MarshalOptions{}.Format(p), " ", "")
		}
		if got != c.want {
			t.Errorf("%v: %s, want %s", c.hash, got, c.want)
		}
		if tcp := len(tcpHashPolicies(c.hash)) == 1; tcp != c.tcp {
			t.Errorf("%v: hashed over TCP: %v", c.hash, tcp)
		}
	}
}

// Which hash is in force: a port's, a subset's.
func TestConsistentHash(t *testing.T) {
	t.Parallel()
	p := &pushcontext.DestinationPolicy{Spec: &networking.DestinationRule{TrafficPolicy: hashing(byHeader("all")), Subsets: []*networking.Subset{
		{Name: "v1", TrafficPolicy: hashing(byHeader("v1"))}, {Name: "v2"}, {Name: "v1", TrafficPolicy: hashing(byHeader("late"))}}}}
	p.Spec.TrafficPolicy.PortLevelSettings = []*networking.TrafficPolicy_PortTrafficPolicy{
		{Port: &networking.PortSelector{Number: 90}, LoadBalancer: hashing(byHeader("port")).LoadBalancer}, {Port: &networking.PortSelector{Number: 91}}}
	for _, c := range []struct {
		port   uint16
		subset string
		want   string
	}{{80, "", "all"}, {80, "v1", "v1"}, {80, "v2", "all"}, {80, "none", ""}, {90, "", "port"}, {90, "v1", "v1"}, {90, "v2", "port"}, {91, "", ""}, {91, "v1", "v1"}} {
		if got := consistentHash(p, c.port, c.subset).GetHttpHeaderName(); got != c.want {
			t.Errorf("%d %q: %q, want %q", c.port, c.subset, got, c.want)
		}
	}
	if consistentHash(nil, 80, "") != nil {
		t.Error("a hash without a rule")
	}
}

// What a rule adds to TCP proxies.
func TestTCPPolicy(t *testing.T) {
	t.Parallel()
	type tunnel = networking.TrafficPolicy_TunnelSettings
	tunnelled := func(x *tunnel) *networking.TrafficPolicy { return &networking.TrafficPolicy{Tunnel: x} }
	idle := &networking.TrafficPolicy{ConnectionPool: &networking.ConnectionPoolSettings{Tcp: &networking.ConnectionPoolSettings_TCPSettings{IdleTimeout: &durationpb.Duration{Seconds: 5}}}}
	for name, c := range map[string]struct {
		policy, subset *networking.TrafficPolicy
		name           string
		tunnel         string
		idle           int64
		hashed         bool
	}{
		"nothing":                  {},
		"no such subset":           {policy: idle, name: "v2"},
		"idle timeout":             {policy: idle, idle: 5},
		"of a subset":              {subset: idle, name: "v1", idle: 5},
		"hash":                     {policy: hashing(&hashLB{HashKey: &networking.LoadBalancerSettings_ConsistentHashLB_UseSourceIp{UseSourceIp: true}}), hashed: true},
		"tunnel":                   {policy: tunnelled(&tunnel{TargetHost: "example.com", TargetPort: 443}), tunnel: "example.com:443"},
		"tunnel by POST":           {policy: tunnelled(&tunnel{Protocol: "POST", TargetHost: "example.com", TargetPort: 443}), tunnel: "POST example.com:443"},
		"tunnel to an IPv6":        {policy: tunnelled(&tunnel{Protocol: "CONNECT", TargetHost: "2001:db8::1", TargetPort: 1}), tunnel: "[2001:db8::1]:1"},
		"tunnel of a subset":       {policy: tunnelled(&tunnel{TargetHost: "a", TargetPort: 1}), subset: tunnelled(&tunnel{TargetHost: "b", TargetPort: 2}), name: "v1", tunnel: "b:2"},
		"tunnel of its rule":       {policy: tunnelled(&tunnel{TargetHost: "a", TargetPort: 1}), name: "v1", tunnel: "a:1"},
		"tunnel to nowhere":        {policy: tunnelled(&tunnel{TargetPort: 443})},
		"tunnel to no port":        {policy: tunnelled(&tunnel{TargetHost: "a"})},
		"tunnel to a port too far": {policy: tunnelled(&tunnel{TargetHost: "a", TargetPort: 1 << 16})},
	} {
		s := &pushcontext.ShapeView{Key: model.ServiceKey{Namespace: "shop", Host: "a.example"}, Mesh: &pushcontext.MeshView{Config: &meshconfig.MeshConfig{}}, Policies: []*pushcontext.DestinationPolicy{{
			Namespace: "shop", Export: pushcontext.Export{Public: true}, Spec: &networking.DestinationRule{TrafficPolicy: c.policy, Subsets: []*networking.Subset{{Name: "v1", TrafficPolicy: c.subset}}}}}}
		got := streamPolicy(inForce(s, Class{Namespace: "shop"}), 80, c.name, s.Mesh)
		text := ""
		if got.tunnel != nil {
			if text = got.tunnel.Hostname; got.tunnel.UsePost {
				text = "POST " + text
			}
		}
		if text != c.tunnel || got.idle.GetSeconds() != c.idle || len(got.hash) > 0 != c.hashed {
			t.Errorf("%s: tunnel %q, idle %v, hash %v", name, text, got.idle, got.hash)
		}
	}
}

// Where ingress listeners lead.
func TestDefaultEndpoints(t *testing.T) {
	t.Parallel()
	four, six, both := Class{IPv4: true, IP: netip.MustParseAddr("10.0.0.9")}, Class{IPv6: true, IP: netip.MustParseAddr("2001:db8::9")}, Class{IPv4: true, IPv6: true, IP: netip.MustParseAddr("::ffff:10.0.0.9")}
	for _, c := range []struct {
		text  string
		class Class
		want  string
	}{
		{"127.0.0.1:80", four, "127.0.0.1:80"}, {"127.0.0.1:80", six, "::1:80"}, {"127.0.0.1:80", both, "127.0.0.1:80"},
		{"[::1]:80", four, "127.0.0.1:80"}, {"[::1]:80", six, "::1:80"}, {"[::1]:80", both, "::1:80"},
		{"0.0.0.0:80", four, "10.0.0.9:80"}, {"0.0.0.0:80", six, "::1:80"}, {"0.0.0.0:80", both, "10.0.0.9:80"}, {"0.0.0.0:80", Class{}, "127.0.0.1:80"},
		{"[::]:80", four, "127.0.0.1:80"}, {"[::]:80", six, "2001:db8::9:80"}, {"[::]:80", both, "::1:80"},
		{"unix:///a/b", four, "/a/b"}, {"unix://@x", four, "@x"},
		{"", four, ""}, {"127.0.0.1", four, ""}, {"127.0.0.1:0", four, ""}, {"127.0.0.1:x", four, ""}, {"127.0.0.2:80", four, ""}, {"10.0.0.1:80", four, ""}, {"localhost:80", four, ""},
		{"unix://", four, ""}, {"unix://" + strings.Repeat("x", 108), four, ""}, {":80", four, ""}, {"[::1%lo]:80", four, ""},
	} {
		got := ""
		if e, ok := parseDefaultEndpoint(c.text); ok {
			a := e.address(c.class)
			if got = a.GetPipe().GetPath(); got == "" {
				got = a.GetSocketAddress().Address + ":" + itoa(uint16(a.GetSocketAddress().GetPortValue()))
			}
		}
		if got != c.want {
			t.Errorf("%q: %q, want %q", c.text, got, c.want)
		}
	}
}

func FuzzDefaultEndpoint(f *testing.F) {
	for _, s := range []string{"127.0.0.1:80", "[::]:80", "unix:///a", "0.0.0.0:65535", "x"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if e, ok := parseDefaultEndpoint(s); ok {
			for _, c := range []Class{{}, {IPv4: true}, {IPv6: true, IP: netip.MustParseAddr("2001:db8::1")}} {
				if err := e.address(c).ValidateAll(); err != nil {
					t.Errorf("%q: %v", s, err)
				}
			}
		}
	})
}

// The address of a proxy counts only where an ingress listener leads to it.
func TestInboundAddressTellsProxiesApartOnlyWhereUsed(t *testing.T) {
	t.Parallel()
	scoped := func(to ...string) Class {
		s := &networking.Sidecar{}
		for i, x := range to {
			s.Ingress = append(s.Ingress, &networking.IstioIngressListener{Port: &networking.SidecarPort{Number: uint32(80 + i)}, DefaultEndpoint: x})
		}
		return Class{IP: netip.MustParseAddr("10.0.0.9"), Scope: &pushcontext.Scope{Sidecar: &pushcontext.Sidecar{Spec: s}}}
	}
	router := scoped("0.0.0.0:80")
	router.Type = Router
	for name, c := range map[string]struct {
		class Class
		want  bool
	}{
		"no Sidecar": {Class{IP: netip.MustParseAddr("10.0.0.9")}, false}, "no ingress": {scoped(), false}, "loopback": {scoped("127.0.0.1:80", "unix:///a"), false},
		"own address": {scoped("127.0.0.1:80", "[::]:80"), true}, "router": {router, false},
	} {
		if got := (Clusters{}).Narrow(&pushcontext.TargetsView{}, c.class).IP.IsValid(); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// Names of subsets and hosts are read as they are written.
func TestOutboundNames(t *testing.T) {
	t.Parallel()
	for _, want := range []clusterName{{"a.example", "", 80}, {"a.example", "v1", 80}, {"*.example", "v-1", 65535}, {"a_.b.example", "v_1", 1}, {"a", "_", 2}} {
		for _, name := range []string{subsetName(want.port, want.subset, want.host), passthroughName(want.port, want.subset, want.host)} {
			if got, ok := parseOutbound(name); !ok || got != want {
				t.Errorf("%s: %+v, %v", name, got, ok)
			}
		}
	}
	if d := cmp.Diff(outboundName(80, "a"), subsetName(80, "", "a")); d != "" {
		t.Error(d)
	}
}
