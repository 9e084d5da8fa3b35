package gen

import (
	"slices"
	"strings"
	"sync"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/isthmus-mesh/isthmus/pushcontext"
)

// tableKey is what a table depends on beside its servers.
type tableKey struct {
	name      string
	namespace string
	labels    Labels
}

// tableCache keeps the tables of which a server is the first.
type tableCache struct {
	mu     sync.Mutex
	tables map[tableKey]*encodedTable // guarded by mu
}

type encodedTable struct {
	servers []*pushcontext.GatewayServer
	bytes   []byte
}

// gatewayTableOf gives an encoded table. That of servers which are as they were is not made again.
func gatewayTableOf(v *pushcontext.GatewaysView, c Class, name string) ([]byte, error) {
	t := routerPlanOf(v, c).table[name]
	if t == nil {
		return nil, errName(RouteURL, name)
	}
	c = routersOf(v).narrow(c)
	k := tableKey{name, c.Namespace, c.Labels}
	servers := make([]*pushcontext.GatewayServer, len(t.servers))
	for i, s := range t.servers {
		servers[i] = s.GatewayServer
	}
	cache := servers[0].Derived().Do(pushcontext.MemoKey{Generator: memoTables},
		func() any { return &tableCache{tables: map[tableKey]*encodedTable{}} }).(*tableCache)
	cache.mu.Lock()
	old := cache.tables[k]
	cache.mu.Unlock()
	if old != nil && slices.Equal(old.servers, servers) {
		return old.bytes, nil
	}
	b, err := t.encode(c)
	if err != nil {
		return nil, err
	}
	cache.mu.Lock()
	defer cache.mu.Unlock()
	cache.tables[k] = &encodedTable{servers, b}
	return b, nil
}

// gatewayHost is a virtual host that is being put together.
type gatewayHost struct {
	host   string
	port   uint16 // of the first server that has it
	parts  []*encodedRoutes
	secure bool // requests in cleartext are sent on to https
}

// encode joins what VirtualServices have for the hosts of the servers.
func (t *routerTable) encode(c Class) ([]byte, error) {
	hosts, bodies, err := t.hosts(c)
	if err != nil {
		return nil, err
	}
	rest := &routev3.RouteConfiguration{ValidateClusters: no(), IgnorePortInHostMatching: true}
	if bodies {
		rest.MaxDirectResponseBodySizeBytes = u32(maxDirectResponse)
	}
	if len(hosts) == 0 {
		rest.VirtualHosts = []*routev3.VirtualHost{{Name: sniffedRoute("blackhole", t.servers[0].number), Domains: []string{"*"}}}
	}
	out := protowire.AppendString(protowire.AppendTag(nil, fieldName, protowire.BytesType), t.name)
	for _, h := range hosts {
		body, err := h.encode()
		if err != nil {
			return nil, err
		}
		out = protowire.AppendBytes(protowire.AppendTag(out, fieldVirtualHosts, protowire.BytesType), body)
	}
	tail, err := marshal(rest)
	return append(out, tail...), err
}

// hosts are the virtual hosts by name: each host that a server and a VirtualService have in common, with the routes of all
// VirtualServices that have it, the oldest first; and those of servers that redirect to https.
func (t *routerTable) hosts(c Class) (out []*gatewayHost, bodies bool, err error) {
	byHost := map[string]*gatewayHost{}
	host := func(name string, s *routerServer) *gatewayHost {
		h := byHost[name]
		if h == nil {
			h = &gatewayHost{host: name, port: s.number}
			byHost[name] = h
			out = append(out, h)
		}
		h.secure = h.secure || s.Spec.GetTls().GetHttpsRedirect()
		return h
	}
	for _, s := range t.servers {
		for _, v := range s.bound {
			common := hostsOfServer(s.GatewayServer).inCommon(v)
			if len(common) == 0 {
				continue
			}
			r, err := routesAt(s, v, c)
			if err != nil {
				return nil, false, err
			}
			if !r.applies {
				continue
			}
			bodies = bodies || r.bodies
			for _, name := range common {
				if h := host(name, s); !slices.Contains(h.parts, r) {
					h.parts = append(h.parts, r)
				}
			}
		}
		if s.Spec.GetTls().GetHttpsRedirect() {
			for _, h := range s.Hosts {
				if headerText(h.Host) {
					host(h.Host, s)
				}
			}
		}
	}
	slices.SortFunc(out, func(a, b *gatewayHost) int { return strings.Compare(a.host, b.host) })
	return out, bodies, nil
}

// encodedRoutes are the routes of a VirtualService at a server, each with its field tag.
type encodedRoutes struct {
	applies bool // some rule is for the server
	bodies  bool // some answer is larger than Envoy lets it be by default
	some    [][]byte
	rest    []byte // the route that takes all requests, if there is one
}

// routesKey is what they depend on beside the VirtualService and the settings of the mesh.
type routesKey struct {
	gateway   string
	port      uint16
	tls       bool
	namespace string
	labels    Labels
}

// gatewayRoutes keeps those of one VirtualService.
type gatewayRoutes struct {
	mu     sync.Mutex
	mesh   *pushcontext.MeshView        // guarded by mu; the settings that they were made under
	routes map[routesKey]*encodedRoutes // guarded by mu
}

func (g *gatewayRoutes) get(k routesKey, m *pushcontext.MeshView) *encodedRoutes {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.mesh != m {
		return nil
	}
	return g.routes[k]
}

// put gives what is kept: what another has made of the same meanwhile, if there is that.
func (g *gatewayRoutes) put(k routesKey, m *pushcontext.MeshView, r *encodedRoutes) *encodedRoutes {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.mesh != m {
		g.mesh, g.routes = m, map[routesKey]*encodedRoutes{}
	}
	if old := g.routes[k]; old != nil {
		return old
	}
	g.routes[k] = r
	return r
}

// routesAt gives the routes of a VirtualService at a server.
func routesAt(s *routerServer, v *pushcontext.VirtualService, c Class) (*encodedRoutes, error) {
	k := routesKey{gateway: s.Name(), port: s.number, tls: s.tls() != nil, labels: c.Labels.Only(sourcesOf(v).labels)}
	if sourcesOf(v).namespace {
		k.namespace = c.Namespace
	}
	kept := v.Derived().Do(pushcontext.MemoKey{Generator: memoGateway}, func() any { return &gatewayRoutes{} }).(*gatewayRoutes)
	if r := kept.get(k, s.Mesh); r != nil {
		return r, nil
	}
	x := &routeContext{gateway: k.gateway, port: k.port, tls: k.tls, namespace: k.namespace, labels: k.labels, mesh: s.Mesh}
	list, applies := httpRoutes(v, x)
	out := &encodedRoutes{applies: applies, bodies: slices.ContainsFunc(v.Spec.GetHttp(), largeBody)}
	for _, r := range list {
		b, err := marshal(r)
		if err != nil {
			return nil, err
		}
		tagged := protowire.AppendBytes(protowire.AppendTag(make([]byte, 0, len(b)+4), fieldRoutes, protowire.BytesType), b)
		if catchesAll(r.Match) {
			out.rest = tagged
		} else {
			out.some = append(out.some, tagged)
		}
	}
	return kept.put(k, s.Mesh, out), nil
}

// fieldRoutes is the number of VirtualHost.routes.
const fieldRoutes protowire.Number = 3

// encode joins the routes: of several VirtualServices, what takes all requests comes last, and only the first of that counts.
func (h *gatewayHost) encode() ([]byte, error) {
	head, err := marshal(&routev3.VirtualHost{Name: sniffedRoute(h.host, h.port), Domains: []string{h.host}})
	if err != nil {
		return nil, err
	}
	tail := &routev3.VirtualHost{IncludeRequestAttemptCount: true}
	if h.secure {
		tail.RequireTls = routev3.VirtualHost_ALL
	}
	end, err := marshal(tail)
	if err != nil {
		return nil, err
	}
	var rest []byte
	for _, p := range h.parts {
		for _, r := range p.some {
			head = append(head, r...)
		}
		if rest == nil {
			rest = p.rest
		}
	}
	return append(append(head, rest...), end...), nil
}
