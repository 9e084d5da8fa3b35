package gen

import (
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/pushcontext"
)

// kubeName is the name and namespace in a host of the form "<name>.<namespace>.svc.<suffix>".
type kubeName struct{ name, namespace string }

// shortNames gives the zero value for a host that has no short names. Only lower-case hosts have:
// Kubernetes knows no others, so that short names of different hosts never collide.
func shortNames(host, suffix string) kubeName {
	rest, ok := strings.CutSuffix(host, suffix)
	if !ok {
		return kubeName{}
	}
	rest, ok = strings.CutSuffix(rest, ".svc.")
	if !ok || strings.ContainsAny(rest, "*ABCDEFGHIJKLMNOPQRSTUVWXYZ") {
		return kubeName{}
	}
	name, namespace, ok := strings.Cut(rest, ".")
	if !ok || name == "" || namespace == "" || strings.Contains(namespace, ".") {
		return kubeName{}
	}
	return kubeName{name, namespace}
}

// hostKey is everything that a service's encoded virtual host depends on beside the service itself.
type hostKey struct {
	port   uint16
	member model.ClusterID // whose addresses are domains; "" where that makes no difference
	vips   bool            // the addresses are domains
	v4, v6 bool
	own    bool // the proxy is in the service's namespace
	short  bool // short names hold for the proxy
	routes routeKey
}

// hostCache keeps the encoded virtual hosts of one service, and what they are made from.
type hostCache struct {
	name  kubeName     // read-only
	addrs []netip.Addr // read-only; addressesOf

	last atomic.Pointer[encodedHost] // the newest: most services look the same to most proxies

	mu    sync.Mutex
	bytes map[hostKey]*encodedHost // guarded by mu
}

// encodedHost is a virtual host with its field tag.
type encodedHost struct {
	key   hostKey
	bytes []byte
}

func hostsOf(s *pushcontext.ShapeView) *hostCache {
	return s.Derived().Do(pushcontext.MemoKey{Generator: memoHosts},
		func() any {
			return &hostCache{name: shortNames(s.Key.Host, s.Mesh.DomainSuffix), addrs: addressesOf(s), bytes: map[hostKey]*encodedHost{}}
		}).(*hostCache)
}

func (h *hostCache) get(k hostKey) []byte {
	if e := h.last.Load(); e != nil && e.key == k {
		return e.bytes
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if e := h.bytes[k]; e != nil {
		return e.bytes
	}
	return nil
}

func (h *hostCache) put(k hostKey, b []byte) {
	e := &encodedHost{k, b}
	h.last.Store(e)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.bytes[k] = e
}

// table collects the virtual hosts of one route table.
type table struct {
	class  Class
	view   *pushcontext.PortView
	placed *arrangement
	// taken are the hosts without short names, in lower case, and which service has each. Envoy
	// refuses a table in which two virtual hosts share a domain, so a domain that is another service's
	// own host is left to that one.
	taken  map[string]int
	firsts map[string]struct{} // labels that hosts in taken begin with, but for a wildcard
	caches []*hostCache        // of each service
	// unclaimed are the hosts of VirtualServices in force that are no service's here; numbered after the services.
	unclaimed []unclaimedHost
	addresses bool           // some of these are addresses
	byHost    map[string]int // services; made once something asks for it

	http []pushcontext.Egress // listeners of the Sidecar for the port, that are for HTTP

	short     bool   // the proxy's DNS domain ends like the mesh's, so short names hold
	namespace string // in which the proxy's workload resolves names, "" if it is in none
}

// encodedHosts gives the virtual hosts of a port's services, each encoded with its field tag, and
// their total size.
func encodedHosts(v *pushcontext.PortView, c Class) (hosts [][]byte, size int, err error) {
	t := &table{class: c, view: v, placed: arrange(v, c), http: egressHTTP(c.Scope, v.Number)}
	t.caches = make([]*hostCache, len(t.placed.services))
	if t.short = strings.HasSuffix(c.DNSDomain, v.Mesh.DomainSuffix); t.short {
		t.namespace = strings.TrimSuffix(c.DNSDomain, ".svc."+v.Mesh.DomainSuffix)
	}
	t.findUnclaimed()
	t.take()
	hosts = make([][]byte, 0, len(t.placed.services)+len(t.unclaimed))
	for i := range t.placed.services {
		if !t.routed(i) {
			continue
		}
		b, err := t.host(i)
		if err != nil {
			return nil, 0, err
		}
		hosts, size = append(hosts, b), size+len(b)
	}
	for i, u := range t.unclaimed {
		if t.taken[canonical(u.host)] != len(t.placed.services)+i {
			continue // a service has it
		}
		b, err := u.encoded(v)
		if err != nil {
			return nil, 0, err
		}
		hosts, size = append(hosts, b), size+len(b)
	}
	return hosts, size, nil
}

// routed reports whether the service is found by its host: its protocol is or may be HTTP, or that of a listener by
// which it is reached is.
func (t *table) routed(i int) bool {
	s := &t.placed.services[i]
	return s.port.Protocol.IsHTTP() || s.port.Protocol.Sniffed() ||
		slices.ContainsFunc(t.http, func(e pushcontext.Egress) bool { return e.Admits(s.shape) })
}

func (t *table) take() {
	for i := range t.placed.services {
		s := &t.placed.services[i]
		t.caches[i] = hostsOf(s.shape)
		if t.caches[i].name != (kubeName{}) || !t.routed(i) {
			continue
		}
		t.reserve(s.shape.Key.Host, i)
	}
	for i, u := range t.unclaimed {
		t.reserve(u.host, len(t.placed.services)+i)
		t.addresses = t.addresses || u.address
	}
}

// reserve gives a host to the first that has it.
func (t *table) reserve(host string, i int) {
	if t.taken == nil {
		t.taken, t.firsts = map[string]int{}, map[string]struct{}{}
	}
	host = canonical(host)
	if _, twice := t.taken[host]; !twice {
		t.taken[host] = i
		first, _, _ := strings.Cut(strings.TrimPrefix(host, "*."), ".")
		t.firsts[first] = struct{}{}
	}
}

// canonical is the form in which Envoy compares hosts.
func canonical(host string) string { return strings.TrimSuffix(strings.ToLower(host), ".") }

// host gives the encoded virtual host of service i, "" (no bytes) if none of its domains is left.
func (t *table) host(i int) ([]byte, error) {
	s := &t.placed.services[i]
	k, whole := t.key(i)
	to := t.meant(i)
	if to != s && !k.routes.applies(t.view.Number) {
		k.routes, whole = routesFor(to.shape, t.class, t.view.Number), false
	}
	cache := t.caches[i]
	if whole {
		if b := cache.get(k); b != nil {
			return b, nil
		}
	}
	domains := t.domains(i, k)
	if kept := t.free(i, domains); len(kept) < len(domains) {
		whole, domains = false, kept
	}
	if len(domains) == 0 {
		return nil, nil
	}
	tagged, err := taggedHost(virtualHost(s, to, domains, k.routes))
	if err != nil {
		return nil, err
	}
	if whole {
		cache.put(k, tagged)
	}
	return tagged, nil
}

// taggedHost encodes a virtual host with its field tag.
func taggedHost(h *routev3.VirtualHost) ([]byte, error) {
	b, err := marshal(h)
	if err != nil {
		return nil, err
	}
	tagged := protowire.AppendTag(make([]byte, 0, len(b)+8), fieldVirtualHosts, protowire.BytesType)
	return protowire.AppendBytes(tagged, b), nil
}

// key reports false for whole if the virtual host depends on more than the key: other services have
// some of its addresses or domains.
func (t *table) key(i int) (k hostKey, whole bool) {
	s := &t.placed.services[i]
	name := t.caches[i].name
	k = hostKey{port: t.view.Number, vips: t.class.Type == Sidecar && len(s.addresses) > 0,
		routes: routesFor(s.shape, t.class, t.view.Number)}
	if k.vips {
		k.member, k.v4, k.v6 = s.member, t.class.speaks(netip.IPv4Unspecified()), t.class.speaks(netip.IPv6Unspecified())
	}
	if name != (kubeName{}) && t.short {
		k.short, k.own = true, t.namespace == name.namespace
	}
	contested := k.vips && slices.ContainsFunc(s.addresses, func(a netip.Prefix) bool {
		return single(a) && (t.addresses || !t.placed.owns(i, a.Addr()))
	})
	return k, !contested && (len(t.taken) == 0 || !t.collides(i, name))
}

// collides reports whether some other service's own host may be one of the domains of service i.
func (t *table) collides(i int, name kubeName) bool {
	host := t.placed.services[i].shape.Key.Host
	if name == (kubeName{}) {
		return t.taken[canonical(host)] != i || strings.HasPrefix(host, "*")
	}
	if _, ok := t.firsts[name.name]; !ok {
		return false
	}
	svc := name.name + "." + name.namespace
	for _, d := range [...]string{host, svc + ".svc", svc, name.name} {
		if _, ok := t.taken[d]; ok {
			return true
		}
		if _, ok := t.taken["*."+d]; ok {
			return true
		}
	}
	return false
}

// domains are the names by which the proxy's workload may call the service.
func (t *table) domains(i int, k hostKey) []string {
	s := &t.placed.services[i]
	host := s.shape.Key.Host
	if host == "*" || !headerText(host) {
		return nil // the mesh's rule for unknown hosts has the first; no request can name the others
	}
	names := []string{host}
	if !strings.HasPrefix(host, "*") && !strings.HasSuffix(host, ".") {
		names = append(names, host+".")
	}
	if k.short {
		n := t.caches[i].name
		if k.own {
			names = append(names, n.name)
		}
		names = append(names, n.name+"."+n.namespace+".svc", n.name+"."+n.namespace)
	}
	if s.headless() {
		for _, n := range slices.Clone(names) {
			names = append(names, "*."+n)
		}
	}
	if k.vips {
		for _, a := range t.placed.vips(i, t.class) {
			if d := addressDomain(a); d != host {
				names = append(names, d)
			}
		}
	}
	return names
}

// headerText reports whether a host can stand in a header.
func headerText(host string) bool {
	return host != "" && strings.IndexFunc(host, func(r rune) bool { return r <= ' ' || r == 0x7f }) < 0
}

// addressDomain is an address as it stands in a Host header.
func addressDomain(a netip.Addr) string {
	if a.Is6() {
		return "[" + a.String() + "]"
	}
	return a.String()
}

// free keeps the domains that are not the own host of another service.
func (t *table) free(i int, domains []string) []string {
	if len(t.taken) == 0 {
		return domains
	}
	var out []string
	for _, d := range domains {
		if n, ok := t.taken[canonical(d)]; !ok || n == i {
			out = append(out, d)
		}
	}
	return out
}

// virtualHost has the routes of the VirtualService in force, or one to the service that is meant.
func virtualHost(s, meant *placed, domains []string, k routeKey) *routev3.VirtualHost {
	routes, ok := k.routes(s.port.Number, s.shape.Mesh)
	if !ok {
		routes = []*routev3.Route{defaultRoute(meant, k.rule)}
	}
	return &routev3.VirtualHost{
		Name: sniffedRoute(s.shape.Key.Host, s.port.Number), Domains: domains, IncludeRequestAttemptCount: true, Routes: routes}
}

// meant gives the service that service i is another name of, if the proxy sees that one at the port; else itself.
func (t *table) meant(i int) *placed {
	s := &t.placed.services[i]
	if s.shape.Alias == "" {
		return s
	}
	if j, ok := t.named(s.shape.Alias); ok {
		return &t.placed.services[j]
	}
	return s
}

// named gives the service of a host, which is in lower case.
func (t *table) named(host string) (int, bool) {
	if t.byHost == nil {
		t.byHost = make(map[string]int, len(t.placed.services))
		for j := range t.placed.services {
			t.byHost[strings.ToLower(t.placed.services[j].shape.Key.Host)] = j
		}
	}
	j, ok := t.byHost[host]
	return j, ok
}

// defaultRoute sends all requests to the service.
func defaultRoute(s *placed, rule *pushcontext.DestinationPolicy) *routev3.Route {
	action := routeTo(outboundName(s.port.Number, s.shape.Key.Host))
	action.HashPolicy = hashPolicies(consistentHash(rule, s.port.Number, ""))
	action.RetryPolicy = retryPolicy(s.shape.Mesh.Config.GetDefaultHttpRetryPolicy(), len(action.HashPolicy) > 0)
	return &routev3.Route{
		Name: "default", Match: prefixSlash(), Action: &routev3.Route_Route{Route: action},
		Decorator: &routev3.Decorator{Operation: sniffedRoute(s.shape.Key.Host, s.port.Number) + "/*"},
	}
}
