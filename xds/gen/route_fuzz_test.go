package gen_test

import (
	"fmt"
	"strings"
	"testing"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/proto"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/pushcontext"
)

// hostileSpecs are what validation of objects would refuse, or what Envoy is known to refuse.
func hostileSpecs() map[string]string {
	route := "route: [{destination: {host: a}}]"
	http := func(s string) string { return "hosts: [cart.shop.svc.cluster.local]\nhttp: [{" + s + "}]" }
	out := map[string]string{}
	for _, s := range []string{
		route + ", timeout: 9223372037s", route + ", timeout: -1s", route + ", retries: {attempts: -1}",
		route + ", retries: {attempts: 1, perTryTimeout: 9223372037s, backoff: 315576000000s}",
		route + `, retries: {attempts: 1, retryOn: "a\nb"}`, route + ", retries: {attempts: 2147483647, retryOn: ',,99,600'}",
		route + `, rewrite: {uri: "a\nb"}`, route + `, rewrite: {authority: "a\rb"}`, route + ", rewrite: {uri: /a, uriRegexRewrite: {match: a, rewrite: b}}",
		route + ", rewrite: {uriRegexRewrite: {match: '', rewrite: b}}", route + `, rewrite: {uriRegexRewrite: {match: a, rewrite: "\\9\n"}}`,
		"redirect: {uri: /a, prefixRewrite: /b}", `redirect: {authority: "a\nb"}`, "redirect: {port: 70000, scheme: 'a b'}", "redirect: {uri: '%PREFIX()%'}",
		"directResponse: {status: 0}", "directResponse: {status: 700}", "directResponse: {status: 200, body: {string: '" + strings.Repeat("x", 1<<20+1) + "'}}",
		"directResponse: {status: 200, body: {string: '" + strings.Repeat("x", 1<<20) + "'}}",
		route + ", match: [{queryParams: {? " + strings.Repeat("x", 1025) + " : {}}}]", route + ", match: [{queryParams: {'': {}}}]",
		route + `, match: [{headers: {"a\nb": {exact: a}, "": {}}}]`, route + `, match: [{headers: {x: {exact: "a\nb"}}}]`, route + ", match: [{uri: {prefix: a}}]",
		route + ", match: [{uri: {regex: '(((a{30}){30})'}}]", route + ", match: [{uri: {regex: '(a{30}){30}'}}]", route + `, match: [{uri: {regex: "\\pL{1000}"}}]`,
		route + `, match: [{uri: {regex: "[日本-龍]{900}.{1000}"}}]`, route + `, match: [{uri: {regex: "(?<n>é)\\x{ff}\\377\\Q*\\E"}}]`, route + `, match: [{uri: {regex: "\\777"}}]`,
		route + `, match: [{uri: {regex: "\\p{greek}"}}]`, route + `, match: [{uri: {regex: "\\p{^Greek}\\pN\\P{Any}"}}]`, route + `, match: [{uri: {regex: "[[:word:]\\d]+(?i)abc$"}}]`,
		route + `, match: [{uri: {regex: "\\\\x{100}"}}]`, route + `, match: [{uri: {regex: "\\pé"}}]`, route + `, match: [{uri: {regex: "\\C"}}]`,
		route + ", fault: {delay: {fixedDelay: 0s, percentage: {value: 100}}}", route + ", fault: {delay: {fixedDelay: 315576000000s, percentage: {value: 100}}}",
		route + ", fault: {abort: {httpStatus: 99, percentage: {value: 100}}}", route + ", fault: {abort: {grpcStatus: NOPE, percentage: {value: 100}}}",
		route + ", fault: {abort: {http2Error: x, percentage: {value: 100}}}", route + ", fault: {delay: {exponentialDelay: 1s, percentage: {value: 100}}}",
		route + ", mirrors: [{percentage: {value: -5}, destination: {host: m}}, {percentage: {value: 1e300}, destination: {host: m}}]", route + ", mirror: {}",
		route + `, corsPolicy: {allowMethods: ["a\nb"], maxAge: -5s, allowOrigins: [{regex: "("}]}`,
		`route: [{destination: {host: "a\nb"}}]`, "route: [{}]", "route: [{weight: -1}, {weight: -1}]", "route: []", "delegate: {name: gone}", "match: [{}]",
		route + `, name: "a\nb", match: [{name: "c\n", statPrefix: "d\n"}]`,
	} {
		name := s
		if len(name) > 80 {
			name = name[:80]
		}
		out[name] = http(s)
	}
	for i, v := range []string{"%", "%%%", "%REQ()%", "%REQ(a?b?c)%", "%START_TIME(%s)%", "%START_TIME(%%)%", "%START_TIME:5%", "%GRPC_STATUS(X)%", "%GRPC_STATUS%",
		"%FILTER_STATE(a:X)%", "%FILTER_STATE(:PLAIN)%", "%PROTOCOL(a)%", "%PROTOCOL:3%", "%PROTOCOL%", "%METADATA(X:a)%", "%METADATA(ROUTE:a:b)%", "%UPSTREAM_METADATA(a):3%",
		"%UPSTREAM_METADATA([\\\"a\\\",\\\"b\\\"])%", "%ENVIRONMENT(A)%", "%QUERY_PARAM(a)%", "%PER_REQUEST_STATE(a)%", "%DYNAMIC_METADATA(a:b):3%", "%RESP(a)%", "%TRAILER(a?b)%",
		"%req(a)%", "a%PROTOCOL%b%", "%CLUSTER_METADATA(a)%", "%LOCAL_REPLY_BODY%", "%GRPC_STATUS_NUMBER(a)%", "%REQ(a%)%", "%START_TIME(é)%", "%REQ(:path)%", "%REQ(a):99999%", "%UPSTREAM_HOST_NAME% %UPSTREAM_WIRE_BYTES_SENT%",
		"%ROUNDTRIP_DURATION%", "%COMMON_DURATION(DS_RX_BEG:DS_RX_END:ms)%", "%COMMON_DURATION(x)%", "%EMIT_TIME(%s)%", "%REQ_WITHOUT_QUERY(a)%", "%TLS_JA3_FINGERPRINT%", "%ACCESS_LOG_TYPE%"} {
		out[fmt.Sprint("header ", i, v)] = http(route + `, headers: {request: {set: {x: "` + v + `"}}, response: {add: {y: "` + v + `"}}}`)
	}
	return out
}

func hostileTables(t testing.TB) map[string]*routev3.RouteConfiguration {
	t.Helper()
	out := map[string]*routev3.RouteConfiguration{}
	for name, spec := range hostileSpecs() {
		out[name] = tableOf(t, virtualService(t, "hostile", spec))
	}
	return out
}

func tableOf(t testing.TB, v *pushcontext.VirtualService) *routev3.RouteConfiguration {
	t.Helper()
	view := portView(80, newMesh(), cartService(routedBy(v)))
	view.Routes = []*pushcontext.VirtualService{v}
	return routeTable(t, view, sidecar("c1", "shop", withLabels(model.Labels{"app": "web"})))
}

// checkTable asserts what Envoy checks first: the rules of every message, in settings of filters too.
func checkTable(t testing.TB, m *routev3.RouteConfiguration) {
	t.Helper()
	if err := m.ValidateAll(); err != nil {
		t.Error(err)
	}
	domains := map[string]bool{}
	for _, h := range m.VirtualHosts {
		for _, d := range h.Domains {
			if domains[strings.ToLower(d)] {
				t.Errorf("the domain %q is there twice", d)
			}
			domains[strings.ToLower(d)] = true
		}
		for _, r := range h.Routes {
			for name, a := range r.TypedPerFilterConfig {
				c, err := a.UnmarshalNew()
				if err != nil {
					t.Fatal(err)
				}
				if err := c.(interface{ ValidateAll() error }).ValidateAll(); err != nil {
					t.Errorf("%s: %v", name, err)
				}
			}
		}
	}
}

// Whatever a VirtualService says, the table is one that Envoy takes.
func FuzzVirtualService(f *testing.F) {
	for _, specs := range []map[string]string{hostileSpecs(), featureSpecs(f)} {
		for _, spec := range specs {
			raw, err := proto.Marshal(virtualService(f, "x", spec).Spec)
			if err != nil {
				f.Fatal(err)
			}
			if len(raw) < 10_000 {
				f.Add(raw)
			}
		}
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		s := &networking.VirtualService{}
		if proto.Unmarshal(raw, s) != nil {
			return
		}
		checkTable(t, tableOf(t, &pushcontext.VirtualService{Namespace: "shop", Hosts: s.Hosts, Gateways: []string{"mesh"}, Spec: s, Export: pushcontext.Export{Public: true}}))
	})
}

func TestHostileRoutesAreValid(t *testing.T) {
	t.Parallel()
	for name, m := range hostileTables(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			checkTable(t, m)
		})
	}
}
