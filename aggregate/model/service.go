package model

import (
	"net/netip"
	"slices"
	"time"
)

// Protocol is the application protocol of a port as far as routing cares.
type Protocol uint8

// The protocols. ProtocolUnknown means that the proxy sniffs.
const (
	ProtocolUnknown Protocol = iota
	ProtocolTCP
	ProtocolUDP
	ProtocolHTTP
	ProtocolHTTP2
	ProtocolGRPC
	ProtocolGRPCWeb
	ProtocolHTTPProxy
	ProtocolHTTPS
	ProtocolTLS
	ProtocolMongo
	ProtocolRedis
	ProtocolMySQL
)

var protocolNames = [...]string{"auto", "tcp", "udp", "http", "http2", "grpc", "grpc-web", "http_proxy", "https", "tls", "mongo", "redis", "mysql"}

// ParseProtocol reads a protocol's lower-case name as port names use it; "auto" is no such name.
func ParseProtocol(word string) (p Protocol, known bool) {
	i := slices.Index(protocolNames[1:], word)
	return Protocol(i + 1), i >= 0
}

// RegistryProtocol reads the lower-case words that registries of services use besides those of ParseProtocol: names of RPC frameworks, as their
// clients register them, and "auto".
func RegistryProtocol(word string) (p Protocol, known bool) {
	switch word {
	case "auto":
		return ProtocolUnknown, true
	case "tri", "triple": // of Dubbo 3: gRPC on the wire
		return ProtocolGRPC, true
	case "grpcs":
		return ProtocolHTTPS, true
	case "dubbo":
		return ProtocolTCP, true
	}
	return ParseProtocol(word)
}

// String gives the lower-case name as port names use it; "auto" for ProtocolUnknown.
func (p Protocol) String() string { return protocolNames[p] }

// MarshalText gives String.
func (p Protocol) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// IsHTTP reports whether the port is routed by HTTP rules.
func (p Protocol) IsHTTP() bool { return p >= ProtocolHTTP && p <= ProtocolHTTPProxy }

// IsHTTP2 reports whether upstream connections speak HTTP/2.
func (p Protocol) IsHTTP2() bool {
	return p == ProtocolHTTP2 || p == ProtocolGRPC || p == ProtocolGRPCWeb
}

// IsTCP reports whether the port is served as an opaque or SNI-routed byte stream.
func (p Protocol) IsTCP() bool { return p == ProtocolTCP || p >= ProtocolHTTPS }

// Sniffed reports whether the proxy must detect the protocol.
func (p Protocol) Sniffed() bool { return p == ProtocolUnknown }

// Resolution is how a proxy finds a service's endpoints.
type Resolution uint8

// The resolutions; the Envoy cluster type is in parentheses.
const (
	ClientSideLB  Resolution = iota // endpoints pushed (EDS)
	Passthrough                     // the connection's original destination (ORIGINAL_DST): headless, resolution NONE
	DNSLB                           // all answers of DNS names (STRICT_DNS)
	DNSRoundRobin                   // the first answer of one DNS name (LOGICAL_DNS)
	DynamicDNS                      // the request's own host (dynamic forward proxy)
)

var resolutionNames = [...]string{"ClientSideLB", "Passthrough", "DNS", "DNSRoundRobin", "DynamicDNS"}

// String gives the constant's name.
func (r Resolution) String() string { return resolutionNames[r] }

// MarshalText gives String.
func (r Resolution) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// IsDNS reports whether the proxy resolves names itself, so that endpoints are part of the cluster.
func (r Resolution) IsDNS() bool { return r == DNSLB || r == DNSRoundRobin }

// Port is one service port.
type Port struct {
	Name       string
	Number     uint16
	Protocol   Protocol
	TargetPort uint16 // numeric target port; 0 when equal to Number or named
	TargetName string // named target port, looked up in a workload's Ports
}

// TrafficDistribution is the Kubernetes Service field of that name.
type TrafficDistribution uint8

// The distributions.
const (
	TrafficAny TrafficDistribution = iota
	TrafficPreferSameZone
	TrafficPreferSameNode
)

// Reach says from which members a selector takes workloads.
type Reach uint8

// A Kubernetes Service selects WorkloadEntries of its own member; a ServiceEntry selects
// WorkloadEntries and pods of every member.
const (
	SameCluster Reach = iota
	AnyCluster
)

// Selector joins a service to workloads of its own namespace. With empty Labels it selects nothing.
type Selector struct {
	Labels Labels
	Reach  Reach
	Pods   bool // pods too, not only WorkloadEntries
}

// Service is one registry's definition of a service: host name, ports, addresses and policy.
type Service struct {
	Host      string // FQDN; for a ServiceEntry one of its hosts, possibly "*.suffix" or "*-part.suffix"
	Namespace string
	Name      string // short name in the source
	Ports     []Port // in source order
	// Addresses are the service's virtual addresses in this registry's member: single addresses as
	// full-length prefixes, CIDRs of a ServiceEntry as they are. Empty for headless and address-less.
	Addresses []netip.Prefix
	// AutoAddress: the service has no address, and is given automatic ones, so that its ports can be told from those
	// of others. Automatic are those that it was given before, as its source says: it keeps them if it can.
	AutoAddress bool
	Automatic   []netip.Addr
	// AliasOf is the host of which the service is another name (ExternalName); "" if it is none.
	AliasOf         string
	Resolution      Resolution
	External        bool     // outside the mesh (ServiceEntry MESH_EXTERNAL)
	Selector        Selector // which workloads join as endpoints, beside Endpoints rows
	ExportTo        []string // "*", ".", "~" or namespaces; empty = mesh default
	ServiceAccounts []string // SPIFFE identities or subject alternate names
	Traffic         TrafficDistribution
	NodeLocal       bool       // internalTrafficPolicy Local
	PublishNotReady bool       // publishNotReadyAddresses
	Persistent      bool       // label istio.io/persistent-session: draining endpoints are sent
	ClusterLocal    bool       // known to proxies of this member only
	ClusterSet      bool       // the clusterset.local form of an exported service (Multi-Cluster Services API)
	Exposed         []Exposure // where it is reached from outside its member
	Labels          Labels     // of the source object
	Created         time.Time
	Generation      int64 // metadata.generation of the source object, a ServiceEntry; 0 where there is none
	Source          Source
}

// Exposure is one address by which a service is reached from outside its member: of its load balancer,
// one of its external IPs, or of a node. Exactly one of IP and Host is set.
type Exposure struct {
	IP    netip.Addr
	Host  string            // a DNS name
	Ports map[uint16]uint16 // service port to port at this address, of those served there; nil: all, unchanged
}

// Endpoints is what one source object (an EndpointSlice, a ServiceEntry's inline list) says of one
// service. It is its own row, so a change of one object never rewrites its siblings.
type Endpoints struct {
	Host      string
	Namespace string
	Endpoints []Endpoint
	LeftOut   []LeftOut // candidates that conversion refused
	Source    Source
}
