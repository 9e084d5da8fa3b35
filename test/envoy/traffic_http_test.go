package envoy_test

import (
	"fmt"
	"strings"
	"testing"
)

// matching are conditions of routes, with requests that meet them and requests that miss them barely. Requests of one
// row meet no other row.
var matching = []struct {
	name, match string
	meet, miss  []request
}{
	{"exact", "{uri: {exact: /exact}}", []request{{path: "/exact"}, {path: "/exact?a=b"}}, []request{{path: "/exact/"}, {path: "/Exact"}}},
	{"prefix", "{uri: {prefix: /prefix}}", []request{{path: "/prefix"}, {path: "/prefixed/a"}}, []request{{path: "/a/prefix"}}},
	{"regex", "{uri: {regex: '/regex/[0-9]+'}}", []request{{path: "/regex/12"}, {path: "/regex/1?a=b"}}, []request{{path: "/regex/12/a"}, {path: "/regex/a"}}},
	{"case", "{uri: {prefix: /case}, ignoreUriCase: true}", []request{{path: "/CASE/a"}, {path: "/case"}}, []request{{path: "/cas"}}},
	{"method", "{method: {exact: DELETE}}", []request{{method: "DELETE"}}, []request{{method: "PUT"}}},
	{"header", "{headers: {x-tier: {exact: gold}}}", []request{{header: map[string]string{"X-Tier": "gold"}}}, []request{{header: map[string]string{"x-tier": "Gold"}}}},
	{"header prefix", "{headers: {x-start: {prefix: a}}}", []request{{header: map[string]string{"x-start": "ab"}}}, []request{{header: map[string]string{"x-start": "b"}}}},
	{"header regex", "{headers: {x-regex: {regex: 'a+'}}}", []request{{header: map[string]string{"x-regex": "aa"}}}, []request{{header: map[string]string{"x-regex": "ab"}}}},
	{"header present", "{headers: {x-there: {}}}", []request{{header: map[string]string{"x-there": "1"}}}, []request{{}}},
	{"without header", "{uri: {prefix: /public}, withoutHeaders: {x-user: {exact: root}}}",
		[]request{{path: "/public"}, {path: "/public", header: map[string]string{"x-user": "jo"}}}, []request{{path: "/public", header: map[string]string{"x-user": "root"}}}},
	{"query", "{queryParams: {user: {exact: jo}}}", []request{{path: "/?user=jo"}, {path: "/?a=b&user=jo"}}, []request{{path: "/?user=joe"}, {path: "/?users=jo"}}},
	{"query regex", "{queryParams: {id: {regex: '[0-9]+'}}}", []request{{path: "/?id=12"}}, []request{{path: "/?id=a1"}}},
	{"authority", "{authority: {prefix: matches.shop}, uri: {prefix: /authority}}", []request{{path: "/authority", host: host("matches")}}, []request{{path: "/authority", host: "matches"}}},
	{"all of it", "{uri: {prefix: /all}, method: {exact: PUT}, headers: {x-a: {exact: b}}}",
		[]request{{path: "/all", method: "PUT", header: map[string]string{"x-a": "b"}}}, []request{{path: "/all", method: "PUT"}, {path: "/all", header: map[string]string{"x-a": "b"}}}},
	{"one of them", "{uri: {exact: /one}}, {uri: {exact: /other}}", []request{{path: "/one"}, {path: "/other"}}, []request{{path: "/another"}}},
}

// matches: each route has the requests that its conditions mean, also after a change.
func (w *roads) matches(t *testing.T) {
	config := func(generation string) []string {
		var b strings.Builder
		b.WriteString("http:\n")
		for _, m := range matching {
			fmt.Fprintf(&b, "- {match: [%s], route: [{destination: {host: HOST, subset: v2}}], headers: {request: {set: {x-route: %s %s}}}}\n", m.match, m.name, generation)
		}
		b.WriteString("- {route: [{destination: {host: HOST, subset: v1}}], headers: {request: {set: {x-route: none}}}}")
		return []string{versions("matches", ""), routes("matches", b.String())}
	}
	at := w.serves(t, "matches", "http", 80, webPort, config("first")...)
	for _, generation := range []string{"first", "second"} {
		w.says(t, "matches", config(generation)...)
		w.until(t, at, request{path: "/exact"}, "the routes", func(r reply) bool { return r.Headers.Get("x-route") == "exact "+generation })
		for _, m := range matching {
			for _, r := range m.meet {
				if got := w.must(t, at, r); got.Name != "v2" || got.Headers.Get("x-route") != m.name+" "+generation {
					t.Errorf("%s: %+v is sent to %q by %q", m.name, r, got.Name, got.Headers.Get("x-route"))
				}
			}
			for _, r := range m.miss {
				if got := w.must(t, at, r); got.Name != "v1" || got.Headers.Get("x-route") != "none" {
					t.Errorf("%s: %+v is sent to %q by %q", m.name, r, got.Name, got.Headers.Get("x-route"))
				}
			}
		}
	}
}

// acting are what routes do with the requests of one path, that of their name.
var acting = []struct {
	name, action string
	request      request
	// What the client sees (200 by default), and the backend.
	status   int
	location string
	body     string
	path     string
	host     string
	headers  map[string]string // at the backend; "" = none
	response map[string]string
}{
	{name: "prefix", action: "rewrite: {uri: /new}", request: request{path: "/prefix/a?b=c"}, path: "/new/a?b=c"},
	{name: "root/", action: "rewrite: {uri: /}", request: request{path: "/root/a/b"}, path: "/a/b"},
	{name: "regex", action: `rewrite: {uriRegexRewrite: {match: '^/regex/([^/]+)/(.*)$', rewrite: '/\2/of/\1'}}`, request: request{path: "/regex/jo/cart?a=b"}, path: "/cart/of/jo?a=b"},
	{name: "authority", action: "rewrite: {authority: other.example}", request: request{path: "/authority"}, host: "other.example"},
	{name: "both", action: "rewrite: {uri: /new, authority: other.example}", request: request{path: "/both"}, path: "/new", host: "other.example"},
	{name: "redirect", action: "redirect: {uri: /there, authority: new.example, redirectCode: 307}", request: request{path: "/redirect/a"}, status: 307, location: "http://new.example/there"},
	{name: "scheme", action: "redirect: {scheme: https, port: 8443}", request: request{path: "/scheme/a", host: "actions"}, status: 301, location: "https://actions:8443/scheme/a"},
	{name: "moved", action: "redirect: {uri: '%PREFIX()%/new', redirectCode: 302}", request: request{path: "/moved/a", host: "actions"}, status: 302, location: "http://actions/new/a"},
	{name: "direct", action: "directResponse: {status: 418, body: {string: a teapot}}", request: request{path: "/direct"}, status: 418, body: "a teapot"},
	{name: "headers", action: "headers: {request: {set: {x-a: new}, add: {x-b: more}, remove: [x-c]}, response: {set: {x-backend: hidden}, add: {x-d: e}, remove: [x-served]}}",
		request: request{path: "/headers", header: map[string]string{"x-a": "old", "x-b": "some", "x-c": "some", "x-e": "kept"}},
		headers: map[string]string{"X-A": "new", "X-B": "some,more", "X-C": "", "X-E": "kept"}, response: map[string]string{"X-Backend": "hidden", "X-D": "e", "X-Served": ""}},
	{name: "host", action: "headers: {request: {set: {':authority': set.example}}}", request: request{path: "/host"}, host: "set.example"},
}

// actions: routes rewrite, redirect, answer by themselves, and change headers.
func (w *roads) actions(t *testing.T) {
	var b strings.Builder
	b.WriteString("http:\n")
	for _, a := range acting {
		fmt.Fprintf(&b, "- match: [{uri: {prefix: /%s}}]\n  %s\n", a.name, a.action)
		if !strings.HasPrefix(a.action, "redirect") && !strings.HasPrefix(a.action, "direct") {
			b.WriteString("  route: [{destination: {host: HOST}}]\n")
		}
	}
	at := w.serves(t, "actions", "http", 80, webPort, routes("actions", b.String()))
	w.until(t, at, request{path: "/direct"}, "the routes", status(418))
	for _, a := range acting {
		got := w.must(t, at, a.request)
		if a.status == 0 {
			a.status = 200
		}
		if got.status != a.status || got.header.Get("location") != a.location || a.body != "" && got.body != a.body ||
			a.path != "" && got.Path != a.path || a.host != "" && got.Host != a.host {
			t.Errorf("%s: got %+v", a.name, got)
		}
		for name, want := range a.headers {
			if all := strings.Join(got.Headers[name], ","); all != want {
				t.Errorf("%s: the backend sees %s: %q, want %q", a.name, name, all, want)
			}
		}
		for name, want := range a.response {
			if all := strings.Join(got.header[name], ","); all != want {
				t.Errorf("%s: the client sees %s: %q, want %q", a.name, name, all, want)
			}
		}
	}
	if got := w.must(t, at, request{path: "/nothing"}); got.status != 404 {
		t.Errorf("a request without a route: got %+v", got)
	}
}

// cors: preflights are answered by the sidecar, and answers say who may read them.
func (w *roads) cors(t *testing.T) {
	at := w.serves(t, "cors", "http", 80, webPort, routes("cors", `
http:
- route: [{destination: {host: HOST}}]
  corsPolicy:
    allowOrigins: [{exact: 'https://shop.example'}, {regex: 'https://[a-z]+\.trusted\.example'}]
    allowMethods: [GET, PUT]
    allowHeaders: [x-a]
    exposeHeaders: [x-b]
    allowCredentials: true
    maxAge: 1h
`))
	preflight := func(origin string) request {
		return request{method: "OPTIONS", header: map[string]string{"Origin": origin, "Access-Control-Request-Method": "PUT"}}
	}
	got := w.until(t, at, preflight("https://shop.example"), "an answer of the sidecar", func(r reply) bool { return r.status == 200 && r.Name == "" })
	for name, want := range map[string]string{"Origin": "https://shop.example", "Methods": "GET,PUT", "Headers": "x-a", "Credentials": "true"} {
		if v := got.header.Get("Access-Control-Allow-" + name); v != want {
			t.Errorf("%s allowed: %q, want %q", name, v, want)
		}
	}
	if v := got.header.Get("Access-Control-Max-Age"); v != "3600" {
		t.Errorf("for %q seconds", v)
	}
	if got := w.must(t, at, preflight("https://other.example")); got.Name == "" || got.header.Get("Access-Control-Allow-Origin") != "" {
		t.Errorf("a preflight of another origin: got %+v", got)
	}
	got = w.must(t, at, request{header: map[string]string{"Origin": "https://a.trusted.example"}})
	if got.Name == "" || got.header.Get("Access-Control-Allow-Origin") != "https://a.trusted.example" || got.header.Get("Access-Control-Expose-Headers") != "x-b" {
		t.Errorf("a request of an allowed origin: got %+v", got)
	}
}

// delegates: a VirtualService leaves a part of its host to another one, which may change by itself.
func (w *roads) delegates(t *testing.T) {
	root := routes("delegates", `
http:
- match: [{uri: {prefix: /cart}}]
  delegate: {name: cart, namespace: shop}
- route: [{destination: {host: HOST, subset: v1}}]
`)
	cart := func(path string) string {
		return object("VirtualService", "cart", `
http:
- match: [{uri: {exact: `+path+`}}]
  rewrite: {uri: /delegated}
  route: [{destination: {host: `+host("delegates")+`, subset: v2}}]
`)
	}
	at := w.serves(t, "delegates", "http", 80, webPort, versions("delegates", ""), root)
	w.write(t, "east/cart.yaml", cart("/cart/first"))
	delegated := func(r reply) bool { return r.Name == "v2" && r.Path == "/delegated" }
	w.until(t, at, request{path: "/cart/first"}, "the delegate's route", delegated)
	if got := w.must(t, at, request{path: "/else"}); got.Name != "v1" || got.Path != "/else" {
		t.Errorf("the root's own route: got %+v", got)
	}
	w.write(t, "east/cart.yaml", cart("/cart/second"))
	w.until(t, at, request{path: "/cart/second"}, "the delegate's new route", delegated)
	if got := w.must(t, at, request{path: "/cart/first"}); got.Name != "v1" {
		t.Errorf("the delegate's former route: got %+v", got)
	}
}
