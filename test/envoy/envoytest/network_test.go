package envoytest_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/isthmus-mesh/isthmus/test/envoy/envoytest"
)

// transparent is a sidecar in small: what nftables redirects to the outbound
// and inbound ports goes to where it was going, with a mark of which way.
const transparent = `
static_resources:
  listeners:
  - name: outbound
    address: {socket_address: {address: 0.0.0.0, port_value: 15001}}
    listener_filters: &dst
    - name: original_dst
      typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.listener.original_dst.v3.OriginalDst}
    filter_chains:
    - filters:
      - name: hcm
        typed_config: &hcm
          "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: outbound
          route_config:
            request_headers_to_add: [{header: {key: x-out, value: "yes"}}]
            virtual_hosts:
            - {name: all, domains: ["*"], routes: [{match: {prefix: /}, route: {cluster: passthrough}}]}
          http_filters:
          - name: router
            typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router}
  - name: inbound
    address: {socket_address: {address: 0.0.0.0, port_value: 15006}}
    listener_filters: *dst
    filter_chains:
    - filters:
      - name: hcm
        typed_config:
          <<: *hcm
          stat_prefix: inbound
          route_config:
            request_headers_to_add: [{header: {key: x-in, value: "yes"}}]
            virtual_hosts:
            - {name: all, domains: ["*"], routes: [{match: {prefix: /}, route: {cluster: inbound}}]}
  clusters:
  - {name: passthrough, type: ORIGINAL_DST, lb_policy: CLUSTER_PROVIDED, connect_timeout: 5s}
  - name: inbound
    type: ORIGINAL_DST
    lb_policy: CLUSTER_PROVIDED
    connect_timeout: 5s
    upstream_bind_config: {source_address: {address: 127.0.0.6, port_value: 0}}
`

func sidecar(t *testing.T, ns *envoytest.Namespace) *envoytest.Envoy {
	t.Helper()
	if err := ns.Intercept(t.Context()); err != nil {
		t.Fatal(err)
	}
	e := envoytest.Start(t, envoytest.Options{
		Name: ns.Name, Bootstrap: []byte(transparent), Namespace: ns, UID: envoytest.ProxyUID,
	})
	ready(t, e)
	return e
}

// A client's call passes its own sidecar and the server's, neither of which it
// addressed.
func TestInterception(t *testing.T) {
	t.Parallel()
	network := envoytest.NewNetwork(t, "client", "server")
	client, server := network.Namespace("client"), network.Namespace("server")
	out, in := sidecar(t, client), sidecar(t, server)
	b := envoytest.StartBackend(t, envoytest.BackendOptions{
		Name: "b", Cluster: "east", Namespace: server, Addr: netip.AddrPortFrom(server.Addr, 8080).String(),
	})

	got, err := envoytest.Get(t.Context(), client.HTTPClient(), "http://"+b.Addr+"/", "svc.example")
	if err != nil {
		t.Fatal(err)
	}
	if got.Name != "b" || got.Host != "svc.example" || got.Headers.Get("X-Out") != "yes" || got.Headers.Get("X-In") != "yes" {
		t.Errorf("got %+v", got)
	}
	if !strings.HasPrefix(got.From, "127.0.0.6:") {
		t.Errorf("the backend was called from %s, want the inbound address 127.0.0.6", got.From)
	}
	for e, stat := range map[*envoytest.Envoy]string{out: "http.outbound.downstream_cx_total", in: "http.inbound.downstream_cx_total"} {
		if n, err := e.Stat(t.Context(), stat); n == 0 || err != nil {
			t.Errorf("%s of %s is %d, %v; want at least 1", stat, e.Name, n, err)
		}
	}
}

// The test's process and its namespaces reach each other over the bridge; two
// networks at once have nothing in common.
func TestNetworksAreReachableAndApart(t *testing.T) {
	t.Parallel()
	one, two := envoytest.NewNetwork(t, "a", "b"), envoytest.NewNetwork(t, "a")
	if one.Subnet.Overlaps(two.Subnet) {
		t.Errorf("subnets %s and %s overlap", one.Subnet, two.Subnet)
	}
	host := envoytest.StartBackend(t, envoytest.BackendOptions{Kind: envoytest.TCP, Name: "host", Addr: one.Host.String() + ":0"})
	a := one.Namespace("a")
	inside := envoytest.StartBackend(t, envoytest.BackendOptions{Kind: envoytest.TCP, Name: "inside", Namespace: a, Addr: a.Addr.String() + ":0"})
	for _, tt := range []struct {
		from *envoytest.Namespace
		to   *envoytest.Backend
	}{
		{a, host},
		{one.Namespace("b"), inside},
		{nil, inside},
	} {
		if _, err := envoytest.EchoTCP(t.Context(), tt.from, tt.to.Addr, "hi"); err != nil {
			t.Errorf("to %s: %v", tt.to.Name, err)
		}
	}
	if one.Namespace("nobody") != nil {
		t.Error("an unknown namespace is not nil")
	}
}

func TestNamespaceErrors(t *testing.T) {
	t.Parallel()
	ns := envoytest.NewNetwork(t, "a").Namespace("a")
	if _, err := ns.Dial(t.Context(), "localhost:1"); err == nil {
		t.Error("a host name can be dialled inside a namespace")
	}
	if _, err := ns.Listen("localhost:1"); err == nil {
		t.Error("a host name can be listened on")
	}
	err := ns.Run(t.Context(), "", "ip", "link", "show", "dev", "nothing")
	if err == nil || !strings.Contains(err.Error(), "nothing") {
		t.Errorf("a failing command gives %v, want what it printed", err)
	}
}
