package gen

import (
	"cmp"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	proxyprotocolv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/listener/proxy_protocol/v3"
	tlsinspectorv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/listener/tls_inspector/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	meshconfig "istio.io/api/mesh/v1alpha1"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/pushcontext"
)

// serverChain is a filter chain of a server, before it is known which server names are left for it.
type serverChain struct {
	names    []string // "" for any
	suffixes []string // of the mesh's own server names, which are forwarded; instead of names
	chain    *listenerv3.FilterChain
	encoded  []byte // with all of its names; nil if that failed
}

func (x serverChain) forwards() bool { return len(x.suffixes) > 0 }

// chainKey is what the chains of a server depend on beside the server.
type chainKey struct {
	at    socket
	class Class
}

// chainCache keeps the chains of one server: with thousands of servers on a port, a change of one must not make the
// others again.
type chainCache struct {
	mu     sync.Mutex
	chains map[chainKey][]serverChain // guarded by mu
}

// gatewayBuilder makes a listener of a plan.
type gatewayBuilder struct {
	listenerBuilder
	view *pushcontext.GatewaysView
	at   socket
}

// gatewayListenerOf joins the encoded chains of a listener's servers. The result is what marshalling the message would give.
func gatewayListenerOf(v *pushcontext.GatewaysView, c Class, name string) ([]byte, error) {
	l := routerPlanOf(v, c).listener[name]
	if l == nil {
		return nil, errName(ListenerURL, name)
	}
	b := &gatewayBuilder{view: v, at: l.socket, listenerBuilder: listenerBuilder{class: c, mesh: v.Mesh, bind: c.bind(), port: l.port}}
	if a, err := netip.ParseAddr(l.bind); err == nil {
		b.bind = a
	}
	out := b.bare(l)
	chains, err := b.chains(out, l)
	if err != nil {
		return nil, err
	}
	body, err := marshal(&listenerv3.Listener{Name: out.Name, Address: out.Address})
	if err != nil {
		return nil, err
	}
	for _, x := range chains {
		body = protowire.AppendTag(body, fieldFilterChains, protowire.BytesType)
		body = protowire.AppendBytes(body, x)
	}
	out.Name, out.Address = "", nil
	rest, err := marshal(out)
	return append(body, rest...), err
}

// fieldFilterChains is the number of Listener.filter_chains.
const fieldFilterChains protowire.Number = 3

// bare is the listener without chains.
func (b *gatewayBuilder) bare(l *routerListener) *listenerv3.Listener {
	out := b.listener(l.name)
	out.BindToPort = nil
	switch path, isPipe := strings.CutPrefix(l.bind, "unix://"); {
	case isPipe:
		out.Address = &corev3.Address{Address: &corev3.Address_Pipe{Pipe: &corev3.Pipe{Path: path}}}
	case l.bind == "" && b.bind.IsUnspecified():
		out.AdditionalAddresses = otherFamily(b.class, b.bind, b.port)
	}
	if b.class.proxySettings(b.mesh).GetGatewayTopology().GetProxyProtocol() != nil {
		out.ListenerFilters = append(out.ListenerFilters, listenerFilter("envoy.filters.listener.proxy_protocol", &proxyprotocolv3.ProxyProtocol{}))
	}
	if l.servers[0].shares == sharesNames { // Envoy's own timeout closes connections that say nothing
		out.ListenerFilters = append(out.ListenerFilters, listenerFilter("envoy.filters.listener.tls_inspector", &tlsinspectorv3.TlsInspector{}))
	}
	return out
}

// chains encodes those of all servers; those of HTTP in cleartext are one.
func (b *gatewayBuilder) chains(out *listenerv3.Listener, l *routerListener) ([][]byte, error) {
	if l.servers[0].shares == sharesHosts {
		for _, s := range l.servers {
			if s.protocol == model.ProtocolGRPCWeb {
				b.protocol = s.protocol
			}
		}
		body, err := marshal(b.requests("", l.servers[0]))
		return [][]byte{body}, err
	}
	var all []serverChain
	for _, s := range l.servers {
		switch {
		case s.refuses:
			x := serverChain{names: s.serverNames(), chain: b.tcp("refused", nil, blackHoleCluster)}
			x.chain.Metadata = s.metadata()
			all = append(all, x)
		case !s.closed:
			all = append(all, b.chainsOf(s)...)
		}
	}
	return b.distinct(out, all)
}

// distinct gives every server name to the first chain that has it, for Envoy refuses a listener with two chains for one. Where
// names of the mesh are forwarded, a matcher chooses the chain.
func (b *gatewayBuilder) distinct(out *listenerv3.Listener, all []serverChain) ([][]byte, error) {
	taken, m, matched := map[string]bool{}, &nameMatcher{}, slices.ContainsFunc(all, serverChain.forwards)
	var chains [][]byte
	for i, x := range all {
		title := x.chain.GetName()
		if matched {
			title = "chain-" + strconv.Itoa(i)
		}
		names := slices.DeleteFunc(slices.Clone(x.names), func(n string) bool { return taken[n] })
		switch {
		case x.forwards():
			title, names = passthroughChain, nil
			if m.forward(x.suffixes); taken[passthroughPrefix] {
				continue // one chain is for all
			}
			taken[passthroughPrefix] = true
		case len(names) == 0:
			continue
		}
		body, err := x.encode(names, title, matched)
		if err != nil {
			return nil, err
		}
		chains = append(chains, body)
		for _, n := range names {
			taken[n] = true
			m.choose(n, title)
		}
	}
	if matched {
		out.FilterChainMatcher = m.matcher()
	}
	return chains, nil
}

// encode gives the chain for what is left of its names or, under a title, for a matcher to choose.
func (x *serverChain) encode(names []string, title string, matched bool) ([]byte, error) {
	if !matched && x.encoded != nil && len(names) == len(x.names) {
		return x.encoded, nil
	}
	out := proto.CloneOf(x.chain)
	out.Name = title
	if out.FilterChainMatch = namedMatch(names); matched {
		out.FilterChainMatch = nil
	}
	return marshal(out)
}

func namedMatch(names []string) *listenerv3.FilterChainMatch {
	if len(names) == 0 || names[0] == "" {
		return nil
	}
	return &listenerv3.FilterChainMatch{ServerNames: names}
}

// chainsOf gives the chains of one server.
func (b *gatewayBuilder) chainsOf(s *routerServer) []serverChain {
	k := chainKey{b.at, routersOf(b.view).chainClass(b.class)}
	cache := s.Derived().Do(pushcontext.MemoKey{Generator: memoChains},
		func() any { return &chainCache{chains: map[chainKey][]serverChain{}} }).(*chainCache)
	cache.mu.Lock()
	out, ok := cache.chains[k]
	cache.mu.Unlock()
	if ok {
		return out
	}
	out = b.makeChains(s)
	cache.mu.Lock()
	defer cache.mu.Unlock()
	cache.chains[k] = out
	return out
}

func (b *gatewayBuilder) makeChains(s *routerServer) []serverChain {
	var out []serverChain
	t := s.tls()
	switch {
	case t != nil && t.Mode == networking.ServerTLSSettings_AUTO_PASSTHROUGH:
		return []serverChain{{suffixes: forwardedSuffixes(s.Hosts), chain: b.forwardingChain()}}
	case s.table != "":
		out = []serverChain{{names: s.serverNames(), chain: b.requests(s.table, s)}}
		out[0].chain.Metadata = s.metadata()
	default:
		for _, x := range s.streams {
			out = append(out, b.streamChain(s, x))
		}
	}
	for i := range out {
		x := &out[i]
		if t != nil && !passesThrough(t) {
			x.chain.TransportSocket = b.serverSocket(t, s.table != "")
			x.chain.TransportSocketConnectTimeout = durationpb.New(handshakeTimeout)
		}
		x.chain.FilterChainMatch = namedMatch(x.names)
		if body, err := marshal(x.chain); err == nil { // else it fails again where there is somebody to tell
			x.encoded = body
		}
	}
	return out
}

// metadata names the Gateway of a chain, as tools expect it.
func (s *routerServer) metadata() *corev3.Metadata {
	return configOf("/apis/networking.istio.io/v1/namespaces/" + s.Namespace + "/gateway/" + s.Gateway)
}

// handshakeTimeout is after which a client must have finished its TLS handshake.
const handshakeTimeout = 15e9

// streamChain leads where a stream does, under the rules for the router.
func (b *gatewayBuilder) streamChain(s *routerServer, x serverStream) serverChain {
	r := &streamReader{class: b.class, port: s.number, mesh: b.mesh}
	to := r.target(x.by, x.routes)
	return serverChain{names: x.names, chain: b.forward(to.name, nil, to)}
}

// requests is a chain that routes requests by the server's table. Who is at the other end is told by the connection, or by as
// many proxies in front as the mesh trusts.
func (b *gatewayBuilder) requests(name string, s *routerServer) *listenerv3.FilterChain {
	protocol := b.protocol
	if s.shares == sharesNames {
		protocol = s.protocol
	}
	m := b.manager("outbound_"+listenerName(b.bind, b.port), outbound, protocol)
	m.RouteSpecifier = &hcmv3.HttpConnectionManager_Rds{Rds: &hcmv3.Rds{ConfigSource: ads(), RouteConfigName: s.table}}
	topology := b.class.proxySettings(b.mesh).GetGatewayTopology()
	m.UseRemoteAddress, m.XffNumTrustedHops = yes(), topology.GetNumTrustedProxies()
	m.ForwardClientCertDetails = clientCertDetails[topology.GetForwardClientCertDetails()]
	m.SetCurrentClientCertDetails = &hcmv3.HttpConnectionManager_SetCurrentClientCertDetails{Subject: yes(), Cert: true, Dns: true, Uri: true}
	return managerChain(name, nil, m)
}

// clientCertDetails say what becomes of X-Forwarded-Client-Cert; unless told otherwise, a router puts its own in its place.
var clientCertDetails = map[meshconfig.ForwardClientCertDetails]hcmv3.HttpConnectionManager_ForwardClientCertDetails{
	meshconfig.ForwardClientCertDetails_UNDEFINED:           hcmv3.HttpConnectionManager_SANITIZE_SET,
	meshconfig.ForwardClientCertDetails_SANITIZE:            hcmv3.HttpConnectionManager_SANITIZE,
	meshconfig.ForwardClientCertDetails_FORWARD_ONLY:        hcmv3.HttpConnectionManager_FORWARD_ONLY,
	meshconfig.ForwardClientCertDetails_APPEND_FORWARD:      hcmv3.HttpConnectionManager_APPEND_FORWARD,
	meshconfig.ForwardClientCertDetails_SANITIZE_SET:        hcmv3.HttpConnectionManager_SANITIZE_SET,
	meshconfig.ForwardClientCertDetails_ALWAYS_FORWARD_ONLY: hcmv3.HttpConnectionManager_ALWAYS_FORWARD_ONLY,
}

// chainClass keeps of a class what chains depend on.
func (r *routerSummary) chainClass(c Class) Class {
	c = r.narrow(c)
	c.GatewayPorts = ""
	return c
}

// compareNames puts whole names before patterns, and of these those that say more first.
func compareNames(a, b string) int {
	wild := func(s string) int {
		switch {
		case s == "":
			return 2
		case strings.HasPrefix(s, "*"):
			return 1
		}
		return 0
	}
	return cmp.Or(cmp.Compare(wild(a), wild(b)), cmp.Compare(len(b), len(a)), cmp.Compare(a, b))
}
