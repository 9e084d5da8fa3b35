package oracle_test

import (
	"cmp"
	"fmt"
	"iter"
	"maps"
	"math"
	"regexp"
	"slices"
	"strings"

	"github.com/isthmus-mesh/isthmus/xds/evaluate"
)

// What a configuration means by Istio's documentation, worked out of the configuration itself: an answer that has nothing to
// do with how resources are made or read.

// contradicts says in what the evaluator's answer is not what the configuration means, "" if it is.
func (c *config) contradicts(got *evaluate.Result, a ask) string {
	if c.servers != nil {
		return contradicts(got, a, "the Gateway", c.findAtGateway(a))
	}
	host, known := c.meant(a)
	v := c.inForce(host, a.port)
	if !known {
		v = c.besideServices(host, a.port)
	}
	if v == nil || !slices.ContainsFunc(v.rules, func(r rule) bool { return r.atPort(a.port) }) {
		switch {
		case !known:
			if got.Kind != evaluate.Direct || got.Status != 502 {
				return "no service has the host, so it should be answered with 502"
			}
			return ""
		default:
			return wantClusters(got, []string{cluster(a.port, "", host)})
		}
	}
	return contradicts(got, a, v.name, find(v.rules, a))
}

// contradicts says in what an answer is not that of a rule, nil for none.
func contradicts(got *evaluate.Result, a ask, of string, r *rule) string {
	switch {
	case r == nil:
		if got.Kind != evaluate.NoRoute && (got.Kind != evaluate.Direct || got.Status != 404) {
			return "no rule of " + of + " matches, so it should be answered with 404"
		}
		return ""
	case r.redirect != nil:
		if got.Kind != evaluate.Redirect || r.redirect.code != 0 && got.Status != r.redirect.code {
			return "it should be redirected"
		}
		return ""
	case r.direct > 0:
		if got.Kind != evaluate.Direct || got.Status != r.direct {
			return fmt.Sprintf("it should be answered with %d", r.direct)
		}
		return ""
	}
	var want []string
	for _, d := range r.routes {
		port := d.port
		if port == 0 {
			port = a.port
		}
		if d.weight > 0 || len(r.routes) == 1 {
			want = append(want, cluster(port, d.subset, complete(d.host)))
		}
	}
	return wantClusters(got, want)
}

func cluster(port int, subset, host string) string {
	return fmt.Sprintf("outbound|%d|%s|%s", port, subset, host)
}

func wantClusters(got *evaluate.Result, want []string) string {
	var have []string
	for _, s := range got.Clusters {
		if s.Percent > 0 {
			have = append(have, s.Cluster)
		}
	}
	slices.Sort(have)
	slices.Sort(want)
	if have, want = slices.Compact(have), slices.Compact(want); got.Kind != evaluate.ToCluster || !slices.Equal(have, want) {
		return fmt.Sprintf("it should go to %v", want)
	}
	return ""
}

// complete gives the host that a short name in the client's namespace stands for.
func complete(host string) string {
	if !strings.Contains(host, ".") {
		return host + "." + namespace + ".svc.cluster.local"
	}
	return host
}

// meant gives the service's host that an authority stands for in the client's namespace, and whether the client sees it.
func (c *config) meant(a ask) (string, bool) {
	host := strings.ToLower(a.host)
	host, _, _ = strings.Cut(host, ":") // the port of the connection counts
	if strings.HasSuffix(host, ".svc.cluster.local.") {
		host = strings.TrimSuffix(host, ".")
	}
	candidates := []string{host}
	switch strings.Count(host, ".") {
	case 0:
		candidates = append(candidates, host+"."+namespace+".svc.cluster.local")
	case 1:
		candidates = append(candidates, host+".svc.cluster.local")
	case 2:
		candidates = append(candidates, host+".cluster.local")
	}
	for _, s := range c.services {
		if !s.entry && host == s.address() {
			candidates = []string{s.host()}
		}
	}
	for _, h := range candidates {
		if s := has(c.services, h); s != nil && c.imported(s.ns, h, a.port) {
			return h, true
		}
	}
	near := nearest(func(yield func(string) bool) {
		for _, s := range c.services {
			if c.imported(s.ns, s.host(), a.port) && !yield(s.host()) {
				return
			}
		}
	}, host)
	return cmp.Or(near, host), near != ""
}

// imported reports whether the Sidecar, if there is one, lets the client see a host of a namespace at a port: what it names, and
// what imported VirtualServices send to.
func (c *config) imported(ns, host string, port int) bool {
	return c.imports == nil || ns == namespace || slices.Contains(c.imports, ns+"/*") || slices.Contains(c.imports, ns+"/"+host) ||
		slices.ContainsFunc(c.virtual, func(v *virtualService) bool { return sendsTo(v.rules, host, port) })
}

func sendsTo(rules []rule, host string, port int) bool {
	return slices.ContainsFunc(rules, func(r rule) bool {
		return slices.ContainsFunc(r.routes, func(d destination) bool { return complete(d.host) == host && (d.port == 0 || d.port == port) }) ||
			r.delegate != nil && sendsTo(r.delegate.rules, host, port)
	})
}

// besideServices gives the VirtualService for a host of which the client sees no service: the oldest with the very host, else
// with the longest pattern, that says something of the port. A pattern that stands for services that the client sees stands for no other
// hosts, and at ports but 80 a VirtualService must be for such a service besides.
func (c *config) besideServices(host string, port int) *virtualService {
	return c.closest(host, func(v *virtualService, h string) bool {
		return (port == 80 || c.serves(v, port)) && slices.ContainsFunc(v.rules, func(r rule) bool { return r.atPort(port) }) &&
			(h == host || !c.sees(port, func(s string) bool { return hostIn(s, h) }))
	})
}

// closest gives, of the VirtualServices of which a host counts, the oldest with the very one, else with the longest pattern that it is
// among; nil for none.
func (c *config) closest(host string, counts func(v *virtualService, h string) bool) (best *virtualService) {
	longest := -1
	for _, v := range c.virtual {
		for _, h := range v.hosts {
			h = complete(h)
			n := len(h)
			if h == host {
				n = math.MaxInt
			}
			if (h == host || hostIn(host, h)) && n > longest && counts(v, h) {
				best, longest = v, n
			}
		}
	}
	return best
}

// serves reports whether a VirtualService names a service that the client sees, or has the closest pattern for one.
func (c *config) serves(v *virtualService, port int) bool {
	return c.sees(port, func(host string) bool {
		return c.routesOf(host) == v || slices.ContainsFunc(v.hosts, func(h string) bool { return complete(h) == host })
	})
}

// sees reports whether the client sees, at a port, a service whose host is of some kind.
func (c *config) sees(port int, kind func(host string) bool) bool {
	return slices.ContainsFunc(c.services, func(s *service) bool { return c.imported(s.ns, s.host(), port) && kind(s.host()) })
}

// inForce gives, of the VirtualServices with the very host of a service, the oldest that says something of the port; else what
// routesOf gives.
func (c *config) inForce(host string, port int) *virtualService {
	for _, v := range c.virtual {
		if slices.ContainsFunc(v.hosts, func(h string) bool { return complete(h) == host }) && slices.ContainsFunc(v.rules, func(r rule) bool { return r.atPort(port) }) {
			return v
		}
	}
	return c.routesOf(host)
}

// routesOf gives the oldest VirtualService with the very host of a service, else with the longest pattern.
func (c *config) routesOf(host string) *virtualService {
	return c.closest(host, func(*virtualService, string) bool { return true })
}

// find gives the first rule that takes a request, of a delegate where one does.
func find(rules []rule, a ask) *rule {
	for i := range rules {
		r := &rules[i]
		if len(r.matches) > 0 && !slices.ContainsFunc(r.matches, func(m match) bool { return m.takes(a) }) {
			continue
		}
		if r.delegate == nil {
			return r
		}
		if sub := find(r.delegate.rules, a); sub != nil {
			return sub
		}
	}
	return nil
}

// atPort reports whether a rule may take a request at a port. A VirtualService without such a rule is not in force there.
func (r *rule) atPort(port int) bool {
	return len(r.matches) == 0 || slices.ContainsFunc(r.matches, func(m match) bool { return m.port == 0 || m.port == port })
}

func (m *match) takes(a ask) bool {
	path, query, _ := strings.Cut(a.path, "?")
	return m.takesPath(path) && m.takesHeaders(a) && (m.method == "" || m.method == a.method) && (m.port == 0 || m.port == a.port) &&
		(m.query == "" || firstValue(query, m.query) == m.queryIs) && strings.HasPrefix(a.host, m.authority)
}

// firstValue is that of a parameter, "" without one.
func firstValue(query, name string) string {
	for _, pair := range strings.Split(query, "&") {
		if key, value, _ := strings.Cut(pair, "="); key == name {
			return value
		}
	}
	return ""
}

func (m *match) takesPath(path string) bool {
	want := m.path
	if m.fold {
		path, want = strings.ToLower(path), strings.ToLower(want)
	}
	switch m.pathKind {
	case "exact":
		return path == want
	case "prefix":
		return strings.HasPrefix(path, want)
	case "regex":
		return regexp.MustCompile("^(?:" + want + ")$").MatchString(path)
	}
	return true
}

func (m *match) takesHeaders(a ask) bool {
	if _, there := a.headers[m.without]; there {
		return false
	}
	if m.header == "" {
		return true
	}
	v, there := a.headers[m.header]
	switch m.kind {
	case "exact":
		return v == m.value
	case "prefix":
		return strings.HasPrefix(v, m.value)
	case "regex":
		return there && regexp.MustCompile("^(?:"+m.value+")$").MatchString(v)
	}
	return there
}

// findAtGateway gives the rule that takes a request to a gateway. VirtualServices with one host at one server are put
// together, the oldest first, and what takes everything comes last.
func (c *config) findAtGateway(a ask) *rule {
	host, _, _ := strings.Cut(strings.ToLower(a.host), ":")
	byDomain := map[string][]rule{}
	for _, v := range c.virtual {
		domains := map[string]bool{}
		for _, h := range v.hosts {
			for _, s := range c.servers {
				if d, ok := narrower(complete(h), s); ok {
					domains[d] = true
				}
			}
		}
		for d := range domains {
			if list := v.reachable(a.port); len(list) > 0 {
				byDomain[d] = append(byDomain[d], list...)
			}
		}
	}
	rules := byDomain[nearest(maps.Keys(byDomain), host)]
	var all []rule
	for _, last := range []bool{false, true} {
		for _, r := range rules {
			if r.catchAll() == last {
				all = append(all, r)
			}
		}
	}
	return find(all, a)
}

// reachable gives the rules at a port, expanded, to the first that takes everything.
func (v *virtualService) reachable(port int) (out []rule) {
	for _, r := range v.rules {
		for _, x := range r.expanded() {
			if !x.atPort(port) {
				continue
			}
			if out = append(out, x); x.catchAll() {
				return out
			}
		}
	}
	return out
}

// narrower gives the one of two hosts that the other one includes; false if neither does.
func narrower(a, b string) (string, bool) {
	switch {
	case a == b, hostIn(a, b):
		return a, true
	case hostIn(b, a):
		return b, true
	}
	return "", false
}

func hostIn(host, pattern string) bool {
	suffix, wild := strings.CutPrefix(pattern, "*")
	return wild && len(host) > len(suffix) && strings.HasSuffix(host, suffix)
}

// nearest gives the host itself, or the longest of the patterns that it is among; "" for none.
func nearest(patterns iter.Seq[string], host string) (best string) {
	for p := range patterns {
		if (p == host || hostIn(host, p)) && (best == "" || p == host || best != host && len(p) > len(best)) {
			best = p
		}
	}
	return best
}

// expanded gives a rule for each condition, and for each rule of a delegate.
func (r rule) expanded() (out []rule) {
	conditions := r.matches
	if len(conditions) == 0 {
		conditions = []match{{}}
	}
	for _, m := range conditions {
		one := r
		one.matches = []match{m}
		if r.delegate == nil {
			out = append(out, one)
			continue
		}
		for _, sub := range r.delegate.rules {
			for _, x := range sub.expanded() {
				both := one
				both.delegate = &virtualService{rules: []rule{x}}
				out = append(out, both)
			}
		}
	}
	return out
}

// catchAll reports whether a rule with one condition takes every request.
func (r *rule) catchAll() bool {
	m := r.matches[0]
	m.port = 0 // decided before there are routes
	everything := m == match{} || m == match{pathKind: "prefix", path: "/"} || m == match{pathKind: "prefix", path: "/", fold: true}
	if r.delegate != nil {
		return everything && r.delegate.rules[0].catchAll()
	}
	return everything
}
