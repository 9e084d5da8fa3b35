package gen

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/pushcontext"
)

// Routers have what the servers of those Gateways say that select them by label: a listener for each address and
// port, and route tables of the VirtualServices that are bound to the Gateways. Servers that share an address and a
// port are merged where Envoy can tell their connections apart: HTTP by host, TLS by server name; else the server of
// the older Gateway has it (the merging of the Istio traffic API).

// Numbers of what is kept of Gateways (see pushcontext.MemoKey), beside those in arrange.go.
const (
	memoRouters     uint8 = 240 + iota // on a GatewaysView: *routerSummary
	memoRouterPlans                    // on a GatewaysView: *routerPlans
	memoTables                         // on a GatewayServer: *tableCache
	memoChains                         // on a GatewayServer: *chainCache
	memoGateway                        // on a VirtualService: *gatewayRoutes
	memoServerHosts                    // on a GatewayServer: *serverHosts
)

// shareable says which servers can share a socket.
type shareable uint8

const (
	sharesNothing shareable = iota // bytes in cleartext
	sharesHosts                    // HTTP in cleartext
	sharesNames                    // TLS
)

// socket is where a router listens: an address, or a path ("unix://…"). No bind is the router's own choice.
type socket struct {
	bind string
	port uint16
}

// routerServer is a server of a Gateway as a class of routers has it.
type routerServer struct {
	*pushcontext.GatewayServer
	bound    []*pushcontext.VirtualService // that the routers' namespace may use
	number   uint16                        // the server's own port
	protocol model.Protocol
	shares   shareable
	table    string // of routes; "" if connections are not routed by request
	streams  []serverStream
	closed   bool // it can't be served: its connections and hosts are nobody's
	refuses  bool // not for want of routes: servers with wider hosts don't get its connections either
}

// tls gives the settings of a server that ends or reads TLS; nil for others.
func (s *routerServer) tls() *networking.ServerTLSSettings {
	if s.shares != sharesNames {
		return nil
	}
	return s.Spec.Tls
}

// routerListener is a socket with the servers that share it, the oldest first.
type routerListener struct {
	socket
	name    string
	servers []*routerServer
	hosts   map[string]*routerServer // of TLS servers
}

// routerTable is a route table with the servers whose hosts it has, the oldest first.
type routerTable struct {
	name    string
	servers []*routerServer
}

// routerPlan is what a class of routers makes of all Gateways.
type routerPlan struct {
	listeners []*routerListener
	tables    []*routerTable
	listener  map[string]*routerListener // by name
	table     map[string]*routerTable    // by name
	pipes     map[string]uint16          // ports of paths
	verdicts  []ServerVerdict
}

// ServerVerdict says what becomes of one server at a router that its Gateway selects.
type ServerVerdict struct {
	Server   *pushcontext.GatewayServer
	Listener string // that it has, alone or with others; "" for none
	Table    string // of its routes, "" for none
	Reason   string // why it is not served, "" if it is
	Idle     bool   // for want of routes only
}

// ExplainGateways tells of each server that selects routers of the class, in the order in which they claim sockets,
// host names and table names.
func ExplainGateways(v *pushcontext.GatewaysView, c Class) []ServerVerdict {
	return routerPlanOf(v, c).verdicts
}

// Configured reports whether some Gateway says what routers with the labels serve. Servers in mode AUTO_PASSTHROUGH don't:
// they let other networks in beside whatever else a router does.
func Configured(v *pushcontext.GatewaysView, router model.Labels) bool {
	return v != nil && slices.ContainsFunc(v.Servers, func(s *pushcontext.GatewayServer) bool {
		return s.Spec.GetTls().GetMode() != networking.ServerTLSSettings_AUTO_PASSTHROUGH && s.Selects(router)
	})
}

// planTraits are those that a router's plan depends on.
const planTraits = TraitType | TraitInterception | TraitFamilies | TraitGatewayPorts | TraitTLS | TraitPolicy

// routerPlans keeps the plans of one GatewaysView.
type routerPlans struct {
	mu    sync.Mutex
	plans map[Class]*routerPlan // guarded by mu
}

func routerPlanOf(v *pushcontext.GatewaysView, c Class) *routerPlan {
	c = routersOf(v).narrow(c.Keep(planTraits))
	cache := v.Derived().Do(pushcontext.MemoKey{Generator: memoRouterPlans},
		func() any { return &routerPlans{plans: map[Class]*routerPlan{}} }).(*routerPlans)
	cache.mu.Lock()
	p := cache.plans[c]
	cache.mu.Unlock()
	if p != nil {
		return p
	}
	p = makeRouterPlan(v, c)
	cache.mu.Lock()
	defer cache.mu.Unlock()
	cache.plans[c] = p
	return p
}

func makeRouterPlan(v *pushcontext.GatewaysView, c Class) *routerPlan {
	p := &routerPlan{listener: map[string]*routerListener{}, table: map[string]*routerTable{}, pipes: map[string]uint16{}}
	if c.Type != Router {
		return p
	}
	names := map[string]bool{}
	for _, g := range v.Servers {
		if !c.Labels.Match(g.Selector) {
			continue
		}
		out := ServerVerdict{Server: g}
		s, at, reason := c.server(g)
		if name := g.Name() + "/" + g.Spec.GetName(); reason == "" && g.Spec.GetName() != "" {
			if names[name] {
				reason = "another server of the Gateway has the name " + g.Spec.Name
			}
			names[name] = true
		}
		if reason == "" {
			out.Listener, reason = p.claim(s, at, c)
		}
		if reason == "" {
			out.Table = s.table
		}
		out.Reason, out.Idle = reason, s != nil && s.closed && !s.refuses
		p.verdicts = append(p.verdicts, out)
	}
	p.withoutClosed()
	return p
}

// server reads a server as routers of the class have it, and where they listen for it; a reason if they can't.
func (c Class) server(g *pushcontext.GatewayServer) (s *routerServer, at socket, reason string) {
	n := g.Spec.GetPort().GetNumber()
	s = &routerServer{GatewayServer: g, number: uint16(n)}
	switch at.bind, reason = c.socketOf(g.Spec.GetBind()); {
	case reason != "":
		return nil, at, reason
	case len(g.Hosts) == 0:
		return nil, at, "it has no hosts"
	case n > 65535 || n == 0 && !pipe(at.bind): // a path has no port
		return nil, at, "it has no port"
	}
	if at.port = s.number; !pipe(at.bind) {
		at.port = c.targetPort(s.number)
		if reserved(g.Mesh, at.port) {
			return nil, at, fmt.Sprintf("port %d is the proxy's own", at.port)
		}
	}
	if s.protocol, s.shares, reason = sharedAs(g.Spec); reason != "" {
		return nil, at, reason
	}
	for _, v := range g.Bound {
		if v.Export.Includes(c.Namespace) {
			s.bound = append(s.bound, v)
		}
	}
	if s.table = tableOf(s, at); s.table == "" {
		s.streams = streamsAt(s)
	} else if !gatewayTable(s.table) {
		return nil, at, fmt.Sprintf("its port can't be named %q", g.Spec.Port.Name)
	}
	return s, at, ""
}

// sharedAs reads what a server speaks. TLS settings beside HTTP in cleartext are for redirects only.
func sharedAs(s *networking.Server) (p model.Protocol, as shareable, reason string) {
	name := s.GetPort().GetProtocol()
	switch p = portProtocol(name); {
	case p == model.ProtocolUDP || p == model.ProtocolUnknown:
		return p, 0, fmt.Sprintf("protocol %q is not served", name)
	case p.IsHTTP():
		return p, sharesHosts, ""
	case s.Tls != nil:
		return p, sharesNames, ""
	case p == model.ProtocolHTTPS || p == model.ProtocolTLS:
		return p, 0, fmt.Sprintf("protocol %s needs TLS settings", name)
	}
	return p, sharesNothing, ""
}

func pipe(bind string) bool { return strings.HasPrefix(bind, "unix://") }

// socketOf reads where a server binds; "" is where the router listens unless told otherwise.
func (c Class) socketOf(bind string) (string, string) {
	if bind == "" || pipe(bind) && len(bind) > len("unix://") {
		return bind, ""
	}
	a, err := netip.ParseAddr(bind)
	switch {
	case err != nil || a.Zone() != "":
		return "", fmt.Sprintf("%q is no address to bind to", bind)
	case !c.speaks(a):
		return "", "the router has no address of the family of " + bind
	case a.IsUnspecified() || a == c.bind():
		return "", ""
	}
	return a.Unmap().String(), ""
}

// targetPort is the router's own port for a port of its services; that number itself if no service has it.
func (c Class) targetPort(port uint16) uint16 {
	for pair := range strings.SplitSeq(c.GatewayPorts, ",") {
		from, to, _ := strings.Cut(pair, ":")
		if from == itoa(port) {
			if n, ok := parsePort(to); ok {
				return n
			}
		}
	}
	return port
}

// claim gives a server its place on a socket; a reason if it is not served there.
func (p *routerPlan) claim(s *routerServer, at socket, c Class) (listener, reason string) {
	name := gatewayListener(at, c)
	l := p.listener[name]
	if l == nil {
		l = &routerListener{socket: at, name: name, hosts: map[string]*routerServer{}}
		if port, taken := p.pipes[at.bind]; pipe(at.bind) && taken {
			return "", fmt.Sprintf("%s is used for port %d", at.bind, port)
		}
	} else if first := l.servers[0]; first.shares != s.shares || s.shares == sharesNothing {
		return "", fmt.Sprintf("server %d of Gateway %s has the port, with protocol %s", first.Index, first.Name(), first.protocol)
	}
	if o := p.table[s.table]; o != nil && s.shares == sharesNames {
		return "", fmt.Sprintf("server %d of the Gateway has a port of the same name, by which TLS servers are told apart", o.servers[0].Index)
	}
	if reason := l.take(s); reason != "" {
		return "", reason
	}
	if l.servers = append(l.servers, s); len(l.servers) == 1 {
		p.listener[name], p.pipes[at.bind] = l, at.port
		p.listeners = append(p.listeners, l)
	}
	if t := s.tls(); t != nil && !passesThrough(t) {
		if reason := withoutFiles(t, c); reason != "" {
			s.closed, s.refuses = true, true
			return "", reason
		}
	}
	if reason := withoutRoutes(s); reason != "" {
		s.closed = true
		return "", reason
	}
	p.route(s)
	return name, ""
}

// take gives a server its hosts, of which TLS servers can't share any.
func (l *routerListener) take(s *routerServer) (reason string) {
	if s.shares != sharesNames {
		return ""
	}
	for _, h := range s.Hosts {
		if o := l.hosts[h.Host]; o != nil {
			return fmt.Sprintf("host %s on this port is for server %d of Gateway %s", h.Host, o.Index, o.Name())
		}
	}
	for _, h := range s.Hosts {
		l.hosts[h.Host] = s
	}
	return ""
}

func (p *routerPlan) route(s *routerServer) {
	if s.table == "" {
		return
	}
	t := p.table[s.table]
	if t == nil {
		t = &routerTable{name: s.table}
		p.table[s.table] = t
		p.tables = append(p.tables, t)
	}
	t.servers = append(t.servers, s)
}

func (p *routerPlan) listenerNames() (names []string) {
	for _, l := range p.listeners {
		names = append(names, l.name)
	}
	return names
}

func (p *routerPlan) tableNames() (names []string) {
	for _, t := range p.tables {
		names = append(names, t.name)
	}
	return names
}

// withoutClosed takes out the listeners none of whose servers is served.
func (p *routerPlan) withoutClosed() {
	p.listeners = slices.DeleteFunc(p.listeners, func(l *routerListener) bool {
		if slices.ContainsFunc(l.servers, func(s *routerServer) bool { return !s.closed }) {
			return false
		}
		delete(p.listener, l.name)
		return true
	})
}
