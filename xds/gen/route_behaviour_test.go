package gen_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	corsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/cors/v3"
	faultv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/fault/v3"
	routerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/isthmus-mesh/isthmus/test/envoy/envoytest"
)

// behaviour is routes of which each tells that it was met, by a redirect to "/<its name>" or by what the backend of
// its cluster sees.
const behaviour = `
hosts: [cart.shop.svc.cluster.local]
http:
- {match: [{uri: {exact: /exact}}], redirect: {uri: /met-exact}}
- {match: [{uri: {prefix: /Fold}, ignoreUriCase: true}], redirect: {uri: /met-fold}}
- {match: [{uri: {regex: "/re[0-9]+"}}], redirect: {uri: /met-regex}}
- {match: [{uri: {regex: "/large(\\w{40}){3}"}}], redirect: {uri: /met-large}}
- {match: [{uri: {exact: /m}, method: {regex: "PUT|POST"}, authority: {prefix: "cart"}, scheme: {exact: http}}], redirect: {uri: /met-method}}
- {match: [{uri: {exact: /h}, headers: {x-a: {exact: "1"}, x-b: {prefix: v}, x-c: {}}}], redirect: {uri: /met-headers}}
- {match: [{uri: {exact: /e}, headers: {x-a: {exact: ""}}}], redirect: {uri: /met-empty}}
- {match: [{uri: {exact: /wo}, withoutHeaders: {x-a: {exact: "1"}, x-b: {}, x-c: {regex: ".*"}}}], redirect: {uri: /met-without}}
- {match: [{uri: {exact: /q}, queryParams: {a: {exact: "1"}, b: {}, c: {regex: "\\d+"}, d: {exact: ""}}}], redirect: {uri: /met-query}}
- {match: [{uri: {prefix: /pre/}}], redirect: {prefixRewrite: /new/, authority: new.example, scheme: https, redirectCode: 307}}
- {match: [{uri: {prefix: /keep/}}], redirect: {uri: "%PREFIX()%/kept/", port: 8443, redirectCode: 308}}
- {match: [{uri: {exact: /derive}}], redirect: {derivePort: FROM_REQUEST_PORT, scheme: https}}
- {match: [{uri: {exact: /direct}}], directResponse: {status: 418, body: {string: teapot}}, headers: {response: {set: {x-r: "%PROTOCOL%"}}}}
- {match: [{uri: {exact: /abort}}], fault: {abort: {percentage: {value: 100}, httpStatus: 451}}, route: [{destination: {host: cart.shop.svc.cluster.local}}]}
- {match: [{uri: {exact: /grpc-abort}}], fault: {abort: {percentage: {value: 100}, grpcStatus: UNAVAILABLE}}, route: [{destination: {host: cart.shop.svc.cluster.local}}]}
- {match: [{uri: {exact: /never}}], fault: {abort: {httpStatus: 451}}, route: [{destination: {host: cart.shop.svc.cluster.local}}]}
- {match: [{uri: {prefix: /rewrite/}}], rewrite: {uri: /, authority: other.example}, route: [{destination: {host: cart.shop.svc.cluster.local, subset: v2}}]}
- {match: [{uri: {prefix: /slash}}], rewrite: {uri: /}, route: [{destination: {host: cart.shop.svc.cluster.local}}]}
- {match: [{uri: {regex: "/gone/.*"}}], rewrite: {uri: /all}, route: [{destination: {host: cart.shop.svc.cluster.local}}]}
- {match: [{uri: {prefix: /swap}}], rewrite: {uriRegexRewrite: {match: "^/swap/([^/]+)/(.*)$", rewrite: '/\2/\1'}}, route: [{destination: {host: cart.shop.svc.cluster.local}}]}
- match: [{uri: {exact: /headers}}]
  headers: {request: {set: {x-set: new, x-addr: "%DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT%", x-pc: "5%"}, add: {x-add: two}, remove: [x-gone]}, response: {set: {x-resp: "1"}}}
  route: [{destination: {host: cart.shop.svc.cluster.local}, headers: {request: {set: {":authority": dest.example, x-last: "1"}}}}]
- match: [{uri: {exact: /cors}}]
  corsPolicy: {allowOrigins: [{exact: "http://good.example"}], allowMethods: [GET], allowHeaders: [x-h], maxAge: 60s, allowCredentials: true, unmatchedPreflights: IGNORE}
  route: [{destination: {host: cart.shop.svc.cluster.local}}]
- {match: [{uri: {exact: /mirror}}], mirror: {host: cart.shop.svc.cluster.local, subset: mirror}, route: [{destination: {host: cart.shop.svc.cluster.local}}]}
- match: [{uri: {exact: /weighted}}]
  route: [{destination: {host: cart.shop.svc.cluster.local}, weight: 75}, {destination: {host: cart.shop.svc.cluster.local, subset: v2}, weight: 25}]
- {match: [{uri: {exact: /slow}}], timeout: 0.05s, retries: {attempts: 0}, route: [{destination: {host: cart.shop.svc.cluster.local, subset: slow}}]}
- {match: [{uri: {exact: /flaky}}], retries: {attempts: 3, retryOn: "503", retryIgnorePreviousHosts: false, backoff: 0.001s}, route: [{destination: {host: cart.shop.svc.cluster.local, subset: flaky}}]}
`

// backends are what the clusters of the behaviour lead to.
type backends struct {
	plain, v2, mirror, slow, flaky *envoytest.Backend
}

// serving runs an Envoy with a route table and gives the address that it listens on.
func serving(t *testing.T, m *routev3.RouteConfiguration, clusters map[string]*envoytest.Backend) string {
	t.Helper()
	filter := func(name string, c proto.Message) *hcmv3.HttpFilter {
		return &hcmv3.HttpFilter{Name: name, ConfigType: &hcmv3.HttpFilter_TypedConfig{TypedConfig: anyOf(t, c)}}
	}
	manager := &hcmv3.HttpConnectionManager{StatPrefix: "x", RouteSpecifier: &hcmv3.HttpConnectionManager_RouteConfig{RouteConfig: m},
		HttpFilters: []*hcmv3.HttpFilter{filter("envoy.filters.http.fault", &faultv3.HTTPFault{}), filter("envoy.filters.http.cors", &corsv3.Cors{}),
			filter("envoy.filters.http.router", &routerv3.Router{})}}
	b := &bootstrapv3.Bootstrap{Node: &corev3.Node{Id: "test", Cluster: "test"}, StaticResources: &bootstrapv3.Bootstrap_StaticResources{
		Listeners: []*listenerv3.Listener{{Name: "in", Address: socketOf(netip.MustParseAddrPort("127.0.0.1:0")),
			FilterChains: []*listenerv3.FilterChain{{Filters: []*listenerv3.Filter{{Name: "hcm", ConfigType: &listenerv3.Filter_TypedConfig{TypedConfig: anyOf(t, manager)}}}}}}}}}
	for name, to := range clusters {
		c := staticCluster(name)
		c.LoadAssignment = &endpointv3.ClusterLoadAssignment{ClusterName: name, Endpoints: []*endpointv3.LocalityLbEndpoints{{LbEndpoints: []*endpointv3.LbEndpoint{{
			HostIdentifier: &endpointv3.LbEndpoint_Endpoint{Endpoint: &endpointv3.Endpoint{Address: socketOf(netip.MustParseAddrPort(to.Addr))}}}}}}}
		b.StaticResources.Clusters = append(b.StaticResources.Clusters, c)
	}
	raw, err := protojson.Marshal(b)
	if err != nil {
		t.Fatal(err)
	}
	e := envoytest.Start(t, envoytest.Options{Bootstrap: raw, Binary: os.Getenv(envoytest.EnvoyVar)})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := e.WaitReady(ctx); err != nil {
		t.Fatal(err)
	}
	at, err := e.Listeners(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return at["in"]
}

func anyOf(t *testing.T, m proto.Message) *anypb.Any {
	t.Helper()
	a, err := anypb.New(m)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func socketOf(a netip.AddrPort) *corev3.Address {
	return &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
		Address: a.Addr().String(), PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: uint32(a.Port())}}}}
}

func startBackends(t *testing.T) backends {
	t.Helper()
	failures := make(chan struct{}, 2) // of the flaky backend
	failures <- struct{}{}
	failures <- struct{}{}
	handler := func(f http.HandlerFunc) *envoytest.Backend {
		return envoytest.StartBackend(t, envoytest.BackendOptions{Handler: f})
	}
	return backends{
		plain:  envoytest.StartBackend(t, envoytest.BackendOptions{Name: "plain"}),
		v2:     envoytest.StartBackend(t, envoytest.BackendOptions{Name: "v2"}),
		mirror: envoytest.StartBackend(t, envoytest.BackendOptions{Name: "mirror"}),
		slow:   handler(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }),
		flaky: handler(func(w http.ResponseWriter, _ *http.Request) {
			select {
			case <-failures:
				w.WriteHeader(503)
			default:
				fmt.Fprint(w, "at last")
			}
		}),
	}
}

// request is one line: "METHOD /path header=value …".
func request(t *testing.T, addr, line string) (*http.Response, string) {
	t.Helper()
	words := strings.Fields(line)
	r, err := http.NewRequestWithContext(t.Context(), words[0], "http://"+addr+words[1], nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Host = "cart.shop"
	for _, h := range words[2:] {
		k, v, _ := strings.Cut(h, "=")
		r.Header.Set(k, v)
	}
	c := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	resp, err := c.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(body)
}

// TestRoutesInEnvoy asks a real Envoy what becomes of requests.
func TestRoutesInEnvoy(t *testing.T) {
	t.Parallel()
	if os.Getenv(envoytest.EnvoyVar) == "" {
		t.Skip("ISTHMUS_ENVOY does not name an Envoy binary: routes are not tried with a real proxy here")
	}
	b := startBackends(t)
	table := tableOf(t, virtualService(t, "behaviour", behaviour))
	cluster := func(subset string) string { return "outbound|80|" + subset + "|" + cartHost }
	addr := serving(t, table, map[string]*envoytest.Backend{cluster(""): b.plain, cluster("v2"): b.v2, cluster("mirror"): b.mirror, cluster("slow"): b.slow, cluster("flaky"): b.flaky})
	for _, c := range []struct {
		ask    string
		status int
		want   []string // parts of body and headers; those with "!" must not be there
	}{
		{"GET /exact", 301, []string{"Location: http://cart.shop/met-exact\n"}},
		{"GET /exact?a=b", 301, []string{"/met-exact?a=b\n"}},
		{"GET /exact/", 404, nil},
		{"GET /fOLD/x", 301, []string{"/met-fold"}},
		{"GET /re12", 301, []string{"/met-regex"}},
		{"GET /re12x", 404, nil},
		{"GET /large" + strings.Repeat("x", 120), 301, []string{"/met-large"}},
		{"PUT /m", 301, []string{"/met-method"}},
		{"GET /m", 404, nil},
		{"GET /h x-a=1 x-b=v2 x-c=", 301, []string{"/met-headers"}},
		{"GET /h x-a=1 x-b=v2", 404, nil},
		{"GET /h x-a=11 x-b=v2 x-c=y", 404, nil},
		{"GET /e x-a=", 301, []string{"/met-empty"}},
		{"GET /e", 404, nil},
		{"GET /wo", 301, []string{"/met-without"}},
		{"GET /wo x-a=2", 301, []string{"/met-without"}},
		{"GET /wo x-a=1", 404, nil},
		{"GET /wo x-b=", 404, nil},
		{"GET /wo x-c=z", 404, nil},
		{"GET /q?a=1&b&c=12&d", 301, []string{"/met-query"}},
		{"GET /q?a=1&b=x&c=12&d=", 301, []string{"/met-query"}},
		{"GET /q?a=1&b=x&c=12x&d=", 404, nil},
		{"GET /q?b=x&c=12&d=", 404, nil},
		{"GET /pre/x?y=z", 307, []string{"Location: https://new.example/new/x?y=z\n"}},
		{"GET /keep/x", 308, []string{"Location: http://cart.shop:8443/kept/x\n"}},
		{"GET /derive", 301, []string{"Location: https://cart.shop:80/derive\n"}},
		{"GET /direct", 418, []string{"teapot", "X-R: HTTP/1.1"}},
		{"GET /abort", 451, nil},
		{"GET /grpc-abort content-type=application/grpc", 200, []string{"Grpc-Status: 14"}},
		{"GET /never", 200, []string{`"name":"plain"`}},
		{"GET /rewrite/a/b", 200, []string{`"name":"v2"`, `"path":"/a/b"`, `"host":"other.example"`}},
		{"GET /slash/a", 200, []string{`"path":"//a"`, `"host":"cart.shop"`}},
		{"GET /gone/a?b=c", 200, []string{`"path":"/all`}},
		{"GET /swap/a/b/c", 200, []string{`"path":"/b/c/a"`}},
		{"GET /headers x-set=old x-gone=1 x-add=one", 200, []string{`"X-Set":["new"]`, `"X-Addr":["127.0.0.1"]`, `"X-Pc":["5%"]`, `"X-Add":["one","two"]`, "!X-Gone",
			`"host":"dest.example"`, `"X-Last":["1"]`, "X-Resp: 1"}},
		{"OPTIONS /cors origin=http://good.example access-control-request-method=GET", 200, []string{"Access-Control-Allow-Origin: http://good.example", "Access-Control-Allow-Methods: GET",
			"Access-Control-Allow-Headers: x-h", "Access-Control-Max-Age: 60", "Access-Control-Allow-Credentials: true", "!plain"}},
		{"OPTIONS /cors origin=http://bad.example access-control-request-method=GET", 200, []string{"!Access-Control-Allow-Origin", "!plain"}},
		{"GET /cors origin=http://good.example", 200, []string{"Access-Control-Allow-Origin: http://good.example", "plain"}},
		{"GET /cors origin=http://bad.example", 200, []string{"!Access-Control-Allow-Origin", "plain"}},
		{"GET /mirror", 200, []string{"plain"}},
		{"GET /slow", 504, nil},
		{"GET /flaky", 200, []string{"at last"}},
		{"GET /none-of-these", 404, nil},
	} {
		resp, body := request(t, addr, c.ask)
		var all strings.Builder
		for k := range resp.Header {
			fmt.Fprintf(&all, "%s: %s\n", k, resp.Header.Get(k))
		}
		all.WriteString(body)
		if resp.StatusCode != c.status {
			t.Errorf("%s: %d, want %d\n%s", c.ask, resp.StatusCode, c.status, all.String())
		}
		for _, w := range c.want {
			not, banned := strings.CutPrefix(w, "!")
			if banned == strings.Contains(all.String(), not) {
				t.Errorf("%s: %s is not so in\n%s", c.ask, w, all.String())
			}
		}
	}
	shares(t, addr)
	envoytest.Eventually(t, time.Minute, "the mirror's request", func() error {
		if b.mirror.Requests() == 0 {
			return fmt.Errorf("none yet")
		}
		return nil
	})
}

// shares asks for the weighted route: 75 and 25 of 100, within six standard deviations.
func shares(t *testing.T, addr string) {
	t.Helper()
	const n = 400
	met := map[string]int{}
	for range n {
		_, body := request(t, addr, "GET /weighted")
		met[strconv.FormatBool(strings.Contains(body, `"name":"v2"`))]++
	}
	if got := met["true"]; got < n/4-52 || got > n/4+52 {
		t.Errorf("%d of %d requests went to the destination of weight 25", got, n)
	}
}
