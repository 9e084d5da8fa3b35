package oracle_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
)

// The ports of services. Each has backends of its own.
var servicePorts = []int{8000, 8001}

// targetPorts are where backends of a service port listen.
func targetPort(port int) int { return port + 1000 }

// service is one of a fixed few, with an endpoint for each version.
type service struct {
	name     string
	entry    bool // a ServiceEntry
	ns       string
	versions int
	number   int
}

func (s *service) host() string {
	if s.entry {
		return s.name
	}
	return s.name + "." + s.ns + ".svc.cluster.local"
}

// plain is its name as labels and objects may have it.
func (s *service) plain() string { return strings.TrimPrefix(s.name, "*-") }

// address is the ClusterIP of a Service.
func (s *service) address() string { return fmt.Sprintf("10.96.0.%d", s.number+1) }

func services() []*service {
	return []*service{
		{name: "a", ns: namespace, versions: 3}, {name: "b", ns: namespace, versions: 2, number: 1}, {name: "c", ns: "bank", versions: 2, number: 2},
		{name: "ext.example.com", ns: namespace, entry: true, versions: 2, number: 3}, {name: "api.example.com", ns: namespace, entry: true, versions: 1, number: 4},
		{name: "*-pod.example.com", ns: namespace, entry: true, versions: 2, number: 5},
	}
}

// match is a condition; all that is set must hold.
type match struct {
	pathKind, path string // exact, prefix or regex
	fold           bool   // ignoreUriCase
	header, kind   string // of the header's value: exact, prefix, regex or "" for its presence
	value          string
	without        string // header that must not be there
	method         string
	query, queryIs string
	port           int
	authority      string // prefix
}

type destination struct {
	host   string
	subset string
	port   int // 0: none is named
	weight int
}

type rule struct {
	matches  []match // one of them must hold; none is always
	routes   []destination
	redirect *redirect
	direct   int // status
	rewrite  *rewrite
	abort    int // status for every request
	delegate *virtualService
}

type redirect struct {
	uri, authority, scheme string
	code, port             int
}

type rewrite struct{ uri, authority string }

type virtualService struct {
	name  string
	ns    string
	hosts []string
	rules []rule
}

// config is one configuration.
type config struct {
	number   int
	at       addresses
	services []*service
	subsets  map[string]map[string]int // by host and subset the version, 0 for all, -1 for none
	virtual  []*virtualService         // oldest first
	imports  []string                  // hosts of a Sidecar's egress listener; nil for no Sidecar
	servers  []string                  // hosts of the servers of a Gateway, which VirtualServices are for then; nil for a sidecar
}

// generator makes configurations.
type generator struct {
	*rand.Rand
	at      addresses
	gateway bool // of a router
}

func pick[T any](g *generator, list ...T) T { return list[g.IntN(len(list))] }

func (g *generator) chance(percent int) bool { return g.IntN(100) < percent }

func (g *generator) config(number int) *config {
	c := &config{number: number, at: g.at, subsets: map[string]map[string]int{}}
	for _, s := range services() {
		if g.chance(90) {
			c.services = append(c.services, s)
		}
	}
	for _, s := range services() {
		if !g.chance(60) {
			continue
		}
		subsets := map[string]int{}
		for v := range s.versions {
			if g.chance(80) {
				subsets[fmt.Sprintf("v%d", v)] = v + 1
			}
		}
		if g.chance(30) {
			subsets["all"] = 0
		}
		if g.chance(20) {
			subsets["nobody"] = -1
		}
		if len(subsets) > 0 {
			c.subsets[s.host()] = subsets
		}
	}
	for i := range g.IntN(5) {
		c.virtual = append(c.virtual, g.virtualService(fmt.Sprintf("vs-%d", i)))
	}
	if g.gateway {
		c.servers = []string{"*"}
		if g.chance(40) {
			c.servers = []string{markerHost, "ext.example.com", pick(g, "free.test", "*.example.com", "a.shop.svc.cluster.local", "*.test", "west-eu.example.com")}
		}
	} else if g.chance(25) {
		c.imports = []string{"./*"}
		for _, x := range []string{"bank/*", "bank/c.bank.svc.cluster.local"} {
			if g.chance(40) {
				c.imports = append(c.imports, x)
			}
		}
	}
	return c
}

// virtualServices are in the client's namespace, or in that of the service.
func (g *generator) virtualService(name string) *virtualService {
	v := &virtualService{name: name, ns: namespace}
	hosts := []string{"a", "b.shop.svc.cluster.local", "c.bank.svc.cluster.local", "ext.example.com", "*.example.com", "free.test", pick(g, "*-eu.example.com", "*t.example.com", "*e.test", "*-eu", "*-pod.example.com", "*d.example.com")}
	g.Shuffle(len(hosts), func(i, j int) { hosts[i], hosts[j] = hosts[j], hosts[i] })
	v.hosts = hosts[:1+g.IntN(2)]
	if len(v.hosts) == 2 && (hostIn(v.hosts[0], v.hosts[1]) || hostIn(v.hosts[1], v.hosts[0])) {
		v.hosts = v.hosts[:1] // one includes the other: such an object is refused
	}
	for range 1 + g.IntN(4) {
		v.rules = append(v.rules, g.rule(true))
	}
	if g.chance(50) {
		v.rules = append(v.rules, rule{routes: g.destinations()})
	}
	for i := range v.rules {
		if d := v.rules[i].delegate; d != nil {
			d.name = fmt.Sprintf("%s-delegate-%d", name, i)
		}
	}
	return v
}

var paths = []string{"/", "/a", "/a/", "/a/b", "/ab", "/A/b", "/old/x", "/v1/items/7", "/v1/items/seven"}

// oddPaths are written in ways that come to the same as other paths (RFC 3986), or nearly.
var oddPaths = map[string]string{
	"/a/../b": "/b", "/a/./b": "/a/b", "/x/../a/b": "/a/b", "/a/..": "/", "/a/b/.": "/a/b/", "/../a": "/a", "/a/%2e%2e/ab": "/ab", "/a/%2E/b": "/a/b",
	"/a//b": "/a//b", "/a%2Fb": "/a%2Fb", "/%61": "/a", "/a;x=1/b": "/a;x=1/b", "/a/b%20c": "/a/b%20c", "/a\\b": "/a/b", "/a%5Cb": "/a%5Cb", "/a/...": "/a/...", "/a%2eb": "/a.b", "/%7E%2D%5F": "/~-_", "/a\"<>^`{|}[]~b": "/a%22%3C%3E%5E%60%7B%7C%7D[]~b",
	"/%41/b": "/A/b", "/a/%2e%2E%2f": "/a/..%2f", "/a/..b": "/a/..b", "/%C3%a4": "/%C3%a4", "/a!$&'()*+,:@=": "/a!$&'()*+,:@=",
}

func (g *generator) match() (m match) {
	switch g.IntN(5) {
	case 0:
		m.pathKind, m.path = "exact", pick(g, paths...)
	case 1, 2:
		m.pathKind, m.path = "prefix", pick(g, paths...)
	case 3:
		m.pathKind, m.path = "regex", pick(g, "/a.*", "/v1/items/[0-9]+", "/(old|new)/.*", "/[^/]*", ".*b")
	}
	m.fold = m.pathKind != "" && m.pathKind != "regex" && g.chance(20)
	if g.chance(30) {
		m.header = pick(g, "x-user", "x-group")
		m.kind = pick(g, "exact", "prefix", "regex", "")
		m.value = map[string]string{"exact": "jason", "prefix": "ja", "regex": "j.*n|root"}[m.kind]
	}
	if g.chance(10) {
		m.without = pick(g, "x-user", "x-group")
		if m.without == m.header {
			m.without = ""
		}
	}
	if g.chance(15) {
		m.method = pick(g, "GET", "POST")
	}
	if g.chance(15) {
		m.query, m.queryIs = "debug", pick(g, "true", "1")
	}
	if g.chance(10) {
		m.port = pick(g, servicePorts...)
	}
	if g.chance(5) {
		m.authority = pick(g, "a", "ext")
	}
	if m == (match{}) {
		m.pathKind, m.path = "prefix", "/"
	}
	return m
}

func (g *generator) destinations() (out []destination) {
	n := pick(g, 1, 1, 2, 3)
	for range n {
		d := destination{host: pick(g, "a", "b", "c.bank.svc.cluster.local", "ext.example.com"), weight: pick(g, 1, 10, 50)}
		if g.chance(50) {
			d.subset = pick(g, "v0", "v1", "v2", "all", "nobody")
		}
		if g.chance(50) {
			d.port = pick(g, servicePorts...)
		}
		out = append(out, d)
	}
	if n > 1 && g.chance(20) {
		out[0].weight = 0
	}
	return out
}

func (g *generator) rule(top bool) (r rule) {
	for range g.IntN(3) {
		r.matches = append(r.matches, g.match())
	}
	switch n := g.IntN(20); {
	case n < 3:
		r.redirect = &redirect{code: pick(g, 0, 301, 302, 303, 307, 308)}
		for *r.redirect == (redirect{code: r.redirect.code}) {
			if g.chance(60) {
				r.redirect.uri = pick(g, "/new", "/new?x=1", "/")
			}
			if g.chance(40) {
				r.redirect.authority = pick(g, "other.example.com", "b")
			}
			if g.chance(20) {
				r.redirect.scheme = "https"
			}
			if g.chance(20) {
				r.redirect.port = 8443
			}
		}
		return r
	case n < 5:
		r.direct = pick(g, 200, 404, 418, 503)
		return r
	case n < 8 && top:
		r.delegate = &virtualService{ns: namespace}
		r.matches = []match{{pathKind: "prefix", path: pick(g, "/a", "/v1", "/")}}
		for range 1 + g.IntN(2) {
			sub := g.rule(false)
			for i := range sub.matches { // paths of delegates must be below those of their roots
				sub.matches[i].pathKind, sub.matches[i].path, sub.matches[i].fold = "prefix", strings.TrimSuffix(r.matches[0].path, "/")+pick(g, "/b", "/items"), false
				sub.matches[i].port = 0
			}
			r.delegate.rules = append(r.delegate.rules, sub)
		}
		return r
	}
	r.routes = g.destinations()
	if g.chance(25) {
		r.rewrite = &rewrite{}
		if g.chance(70) {
			r.rewrite.uri = pick(g, "/", "/new", "/new/")
		}
		if r.rewrite.uri == "" || g.chance(30) {
			r.rewrite.authority = "rewritten.test"
		}
	}
	if g.chance(8) {
		r.abort = pick(g, 429, 500, 555)
	}
	return r
}

// ask is a request.
type ask struct {
	host    string
	port    int
	method  string
	path    string
	headers map[string]string
}

func (a ask) String() string {
	return fmt.Sprintf("%s http://%s%s at port %d with %v", a.method, a.host, a.path, a.port, a.headers)
}

// plain is the request with its path and headers as they are read.
func (a ask) plain() ask {
	headers := map[string]string{}
	for k, v := range a.headers {
		headers[k] = strings.TrimSpace(v)
	}
	a.headers = headers
	path, query, has := strings.Cut(a.path, "?")
	if p, odd := oddPaths[path]; odd {
		if a.path = p; has {
			a.path += "?" + query
		}
	}
	return a
}

func (g *generator) ask(c *config) ask {
	a := ask{
		host: pick(g, "a", "a.shop", "a.shop.svc.cluster.local", "A.shop", "a:8000", "b", "b.shop.svc", "c.bank", "c.bank.svc.cluster.local", "c", "ext.example.com",
			"api.example.com", "other.example.com", "west-eu.example.com", "free.test", "nobody.test", "-eu.example.com", "a-pod.example.com", "-pod.example.com"),
		port: pick(g, servicePorts...), method: pick(g, "GET", "GET", "POST"), path: pick(g, paths...), headers: map[string]string{},
	}
	if len(c.virtual) > 0 && (g.chance(50) || g.gateway && g.chance(70)) { // one that there are routes for
		a.host = strings.Replace(complete(pick(g, pick(g, c.virtual...).hosts...)), "*", "some", 1)
	}
	if g.chance(10) {
		a.path = pick(g, sorted(oddPaths)...)
	}
	if g.chance(5) {
		a.host = pick(g, "a.shop.svc.cluster.local.", "A.Shop.SVC.cluster.local", "a.shop.svc.cluster.local:8001", "a.shop:9", "a:", "10.96.0.1", "127.0.0.1:8000", "[::1]", "[::1]:8000", "x", "free.test:1")
	}
	if g.chance(20) {
		a.path += pick(g, "?debug=true", "?debug=1", "?x=y", "?debug=true&x", "?", "?debug", "?debug=", "?debug=x&debug=true", "?DEBUG=true", "?debug=%74rue", "?x=/../y?debug=true")
	}
	if g.chance(35) {
		a.headers["x-user"] = pick(g, "jason", "jane", "root", "bob", "", "Jason", "jason,bob", " jason")
	}
	if g.chance(20) {
		a.headers["x-group"] = pick(g, "jason", "admins", "")
	}
	if g.chance(5) {
		a.method = pick(g, "OPTIONS", "HEAD", "PATCH")
	}
	return a
}

func has(list []*service, host string) *service {
	if i := slices.IndexFunc(list, func(s *service) bool { return s.host() == host }); i >= 0 {
		return list[i]
	}
	return nil
}
