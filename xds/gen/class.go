package gen

import (
	"net/netip"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
	meshconfig "istio.io/api/mesh/v1alpha1"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/pushcontext"
)

// NodeType is the role of a proxy.
type NodeType uint8

// The served node types.
const (
	Sidecar NodeType = iota
	Router
)

// Interception is how traffic reaches a sidecar (node metadata INTERCEPTION_MODE).
type Interception uint8

// The interception modes.
const (
	InterceptRedirect Interception = iota
	InterceptTProxy
	InterceptNone
)

// Extensions is the set of optional Envoy extensions that a node lists and generators use.
type Extensions uint32

// The optional extensions: those of Istio's own Envoy build.
const (
	ExtIstioALPN             Extensions = 1 << iota // istio.alpn (HTTP)
	ExtIstioMetadataExchange                        // istio.metadata_exchange (network)
	ExtIstioPeerMetadata                            // istio.peer_metadata, envoy.filters.http.peer_metadata (HTTP)
	ExtIstioStats                                   // istio.stats (HTTP and network)
)

// Class is the set of proxy traits that resources may depend on. Proxies of equal class share
// everything except what their own workload serves. It is comparable.
type Class struct {
	Type         NodeType
	Cluster      model.ClusterID
	Network      string
	Namespace    string
	DNSDomain    string // "<namespace>.svc.<suffix>"
	Node         string // Kubernetes node
	Locality     model.Locality
	IPv4, IPv6   bool       // address families that the proxy has
	IP           netip.Addr // primary instance address
	Interception Interception
	// Bind is the loopback address of a proxy that says it lives on one: it shares its host with other
	// proxies, so listeners that would bind 127.0.0.1 or the wildcard bind here. Invalid otherwise.
	Bind netip.Addr
	// CapturesDNS says that the proxy answers its workload's DNS queries (node metadata DNS_CAPTURE): only such workloads
	// ever learn of automatic addresses.
	CapturesDNS bool
	Extensions  Extensions
	HTTP10      bool // node metadata HTTP10
	Tuning      Tuning
	// ExposeServices lets a router that no Gateway configures (see Configured) listen on every TCP service port
	// (node metadata ISTHMUS_EXPOSE_SERVICES); off unless asked for.
	ExposeServices bool
	// ClientTLS and ServerTLS are the files that the proxy has for mutual TLS with other workloads, as
	// the client (node metadata TLS_CLIENT_*) and as the server (TLS_SERVER_*).
	ClientTLS, ServerTLS TLSFiles
	// Passthrough says which AUTO_PASSTHROUGH servers select a router: bit i is server i of the mesh's
	// list, the oldest first (see Selecting).
	Passthrough uint64
	// NetworkView are the networks whose endpoints the proxy asks for (node metadata
	// REQUESTED_NETWORK_VIEW), sorted, joined by commas; "" for all.
	NetworkView string
	Labels      Labels // of the proxy's workload (node metadata LABELS)
	// SelfDiscovery: Envoy knows its peers, and so how much of its zone's traffic is its own (node metadata
	// ENABLE_SELF_DISCOVERY).
	SelfDiscovery bool
	Peers         Peers // of a proxy with SelfDiscovery
	// Scope is what configuration addressed to the proxy's workload says; nil for nothing. A router has no Sidecar.
	Scope *pushcontext.Scope
	// GatewayPorts says at which of its own ports a router is reached at the ports of its own services, as
	// "80:8080,443:8443", sorted by number.
	GatewayPorts string
	// VHDS: the proxy takes the virtual hosts of route tables one by one.
	VHDS bool
	// Spans is what spans say of the proxy's workload.
	Spans SpanTags
}

// Tuning is how a proxy's node metadata has its listeners tuned. It is comparable.
type Tuning struct {
	// Idle ends connections on which nothing happens (IDLE_TIMEOUT); negative for never, 0 for Envoy's default.
	Idle time.Duration
	// BalanceInbound and BalanceOutbound have connections spread evenly over the proxy's threads
	// (INBOUND_LISTENER_EXACT_BALANCE, OUTBOUND_LISTENER_EXACT_BALANCE).
	BalanceInbound, BalanceOutbound bool
	HTTPProxy                       uint16 // port of the HTTP proxy (HTTP_PROXY_PORT); 0 for the mesh's
	// Own is what the proxy's agent was told in the place of the mesh's defaultConfig (PROXY_CONFIG).
	Own ProxySettings
}

// ProxySettings are the parts of a ProxyConfig that listeners are made of: "own" and the encoded message; "" for none.
type ProxySettings string

// maxProxySettings is how many bytes of them are kept.
const maxProxySettings = 8 << 10

// NewProxySettings keeps of c what listeners are made of; "" if that is too much to keep.
func NewProxySettings(c *meshconfig.ProxyConfig) ProxySettings {
	kept := &meshconfig.ProxyConfig{GatewayTopology: c.GetGatewayTopology()}
	if n := c.GetTracingServiceName(); n != 0 {
		kept.ClusterName = &meshconfig.ProxyConfig_TracingServiceName_{TracingServiceName: n}
	}
	if t := c.GetTracing(); t != nil {
		kept.Tracing = &meshconfig.Tracing{CustomTags: t.CustomTags, MaxPathTagLength: t.MaxPathTagLength, Sampling: t.Sampling, EnableIstioTags: t.EnableIstioTags}
	}
	text, err := proto.MarshalOptions{Deterministic: true}.Marshal(kept)
	if err != nil || len(text) > maxProxySettings {
		return ""
	}
	return "own" + ProxySettings(text)
}

// proxySettings are those in force for proxies of the class: their own, else the mesh's.
func (c Class) proxySettings(m *pushcontext.MeshView) *meshconfig.ProxyConfig {
	text, own := strings.CutPrefix(string(c.Tuning.Own), "own")
	out := &meshconfig.ProxyConfig{}
	if !own || proto.Unmarshal([]byte(text), out) != nil {
		return m.Config.GetDefaultConfig()
	}
	return out
}

// Peers is what the instances of a proxy's workload have in common beside the service. It is comparable.
type Peers struct {
	Workload string // node metadata WORKLOAD_NAME; "" is any
	Template string // see TemplateOf
}

// TLSFiles are paths on the proxy's own machine of PEM files: a certificate chain, its key, and the
// certificates of the authorities that peers are verified by. It is comparable.
type TLSFiles struct{ Chain, Key, Root string }

// Complete reports whether the files serve for mutual TLS.
func (f TLSFiles) Complete() bool { return f.Chain != "" && f.Key != "" && f.Root != "" }

// Traits is a set of Class fields.
type Traits uint32

// The traits; each keeps the fields named in its comment.
const (
	TraitType         Traits = 1 << iota // Type, ExposeServices
	TraitCluster                         // Cluster
	TraitNetwork                         // Network
	TraitNamespace                       // Namespace, DNSDomain
	TraitNode                            // Node
	TraitLocality                        // Locality
	TraitFamilies                        // IPv4, IPv6
	TraitIP                              // IP
	TraitInterception                    // Interception, Bind, CapturesDNS
	TraitExtensions                      // Extensions, HTTP10, Tuning
	TraitTLS                             // ClientTLS, ServerTLS
	TraitPassthrough                     // Passthrough
	TraitNetworkView                     // NetworkView
	// TraitPolicy keeps Namespace and Labels, as far as policies of the view tell proxies apart by them:
	// a generator that declares it is a Narrower that drops the rest.
	TraitPolicy
	TraitScope        // Scope
	TraitGatewayPorts // GatewayPorts
	TraitRegion       // the region of Locality
	TraitSelf         // SelfDiscovery
	TraitPeers        // Peers
	TraitVHDS         // VHDS
	TraitSpans        // Spans
)

// asksFor reports whether the proxy wants the endpoints of a network; those of none it always does.
func (c *Class) asksFor(network string) bool {
	if c.NetworkView == "" || network == "" {
		return true
	}
	for n := range strings.SplitSeq(c.NetworkView, ",") {
		if n == network {
			return true
		}
	}
	return false
}

// Keep gives the class reduced to the traits.
func (c Class) Keep(t Traits) Class {
	var k Class
	if t&TraitType != 0 {
		k.Type, k.ExposeServices = c.Type, c.ExposeServices
	}
	if t&TraitCluster != 0 {
		k.Cluster = c.Cluster
	}
	if t&TraitNetwork != 0 {
		k.Network = c.Network
	}
	if t&TraitNamespace != 0 {
		k.Namespace, k.DNSDomain = c.Namespace, c.DNSDomain
	}
	if t&TraitNode != 0 {
		k.Node = c.Node
	}
	if t&TraitLocality != 0 {
		k.Locality = c.Locality
	}
	if t&TraitRegion != 0 {
		k.Locality.Region = c.Locality.Region
	}
	if t&TraitFamilies != 0 {
		k.IPv4, k.IPv6 = c.IPv4, c.IPv6
	}
	if t&TraitIP != 0 {
		k.IP = c.IP
	}
	if t&TraitInterception != 0 {
		k.Interception, k.Bind, k.CapturesDNS = c.Interception, c.Bind, c.CapturesDNS
	}
	if t&TraitExtensions != 0 {
		k.Extensions, k.HTTP10, k.Tuning = c.Extensions, c.HTTP10, c.Tuning
	}
	if t&TraitTLS != 0 {
		k.ClientTLS, k.ServerTLS = c.ClientTLS, c.ServerTLS
	}
	if t&TraitPassthrough != 0 {
		k.Passthrough = c.Passthrough
	}
	if t&TraitNetworkView != 0 {
		k.NetworkView = c.NetworkView
	}
	if t&TraitPolicy != 0 {
		k.Namespace, k.Labels = c.Namespace, c.Labels
	}
	if t&TraitScope != 0 {
		k.Scope = c.Scope
	}
	if t&TraitGatewayPorts != 0 {
		k.GatewayPorts = c.GatewayPorts
	}
	if t&TraitSelf != 0 {
		k.SelfDiscovery = c.SelfDiscovery
	}
	if t&TraitPeers != 0 {
		k.Peers = c.Peers
	}
	if t&TraitVHDS != 0 {
		k.VHDS = c.VHDS
	}
	if t&TraitSpans != 0 {
		k.Spans = c.Spans
	}
	return k
}
