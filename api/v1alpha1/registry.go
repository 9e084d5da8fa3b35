package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Provider is the kind of a registry.
type Provider string

// The providers that a Registry can declare.
const (
	Consul Provider = "consul"
	Nacos  Provider = "nacos"
	MCP    Provider = "mcp"
)

// RegistrySpec declares a registry. Exactly one of Consul, Nacos and MCP may be set, that of Provider; none means defaults.
type RegistrySpec struct {
	Provider Provider `json:"provider"`
	// Addresses are where its servers are, as "host:port" or as URLs ("https://consul.example.com"). They are equal: another is tried if one
	// does not answer.
	Addresses   []string     `json:"addresses"`
	Credentials *Credentials `json:"credentials,omitempty"`
	TLS         *TLS         `json:"tls,omitempty"`

	Consul *ConsulSpec `json:"consul,omitempty"`
	Nacos  *NacosSpec  `json:"nacos,omitempty"`
	MCP    *MCPSpec    `json:"mcp,omitempty"`

	Services *ServiceFilter `json:"services,omitempty"`
	Hosts    *HostNaming    `json:"hosts,omitempty"`
	Ports    *PortMapping   `json:"ports,omitempty"`
	Locality *Locality      `json:"locality,omitempty"`
	// Network is the network that the instances are on; that of the hub's mesh without name if empty.
	Network string `json:"network,omitempty"`
	// Namespace is the namespace that the services and instances belong to: that of the Registry if empty.
	Namespace string `json:"namespace,omitempty"`
	// ExportTo says which namespaces see the services: all if empty. As in a ServiceEntry.
	ExportTo []string     `json:"exportTo,omitempty"`
	Weights  *Weights     `json:"weights,omitempty"`
	Health   *Health      `json:"health,omitempty"`
	Empty    *EmptyPolicy `json:"empty,omitempty"`
	// StaleAfter is how long contact may be lost before proxies of clusters prefer other endpoints; as the hub's --stale-after if not set.
	StaleAfter *metav1.Duration `json:"staleAfter,omitempty"`
	// Limits bound what the registry may cost its server and the hub.
	Limits *Limits `json:"limits,omitempty"`
}

// Credentials name the Secret that holds them, in the Registry's own namespace. Its keys are, by provider: token (Consul and MCP);
// username and password, or accessKey and secretKey (Nacos). The keys that a McpBridge's Secret has are read too.
type Credentials struct {
	SecretName string `json:"secretName"`
}

// TLSMode is how a server is authenticated.
type TLSMode string

// The modes.
const (
	TLSDisabled TLSMode = "DISABLED" // plaintext
	TLSSimple   TLSMode = "SIMPLE"   // the server shows a certificate
	TLSMutual   TLSMode = "MUTUAL"   // both do
)

// TLS is how the connection to a registry is protected. Without it, the scheme of the address decides: https and tls mean SIMPLE.
type TLS struct {
	Mode TLSMode `json:"mode"`
	// SecretName is the Secret with ca.crt (the authorities to believe; those of the machine if absent), and for MUTUAL tls.crt and tls.key.
	SecretName string `json:"secretName,omitempty"`
	// ServerName is the name that the certificate must have; that of the address if empty.
	ServerName string `json:"serverName,omitempty"`
	// InsecureSkipVerify takes any certificate. For trying things out.
	InsecureSkipVerify bool `json:"insecureSkipVerify,omitempty"`
}

// ConsulSpec is what only Consul has.
type ConsulSpec struct {
	// Datacenters to read, each through the agent at hand: the agent's own if empty.
	Datacenters []string `json:"datacenters,omitempty"`
	// Namespaces, Partition and Peers exist in servers of the Enterprise edition, and peers in clusters that are peered.
	Namespaces []string `json:"namespaces,omitempty"`
	Partition  string   `json:"partition,omitempty"`
	Peers      []string `json:"peers,omitempty"`
	// Tags: only instances that have all of them are taken. Compared without regard to case.
	Tags []string `json:"tags,omitempty"`
	// Kinds of services besides typical ones: "connect-proxy", "mesh-gateway" …
	Kinds []string `json:"kinds,omitempty"`
	// Consistency of reads: "default", "stale" (any server, at most MaxStale behind) or "consistent".
	Consistency string           `json:"consistency,omitempty"`
	MaxStale    *metav1.Duration `json:"maxStale,omitempty"` // 10s
	// TaggedAddress is which of an instance's addresses is dialled: "lan" (default), "wan" …
	TaggedAddress string `json:"taggedAddress,omitempty"`
	// TaggedAddresses say which is dialled by proxies of other networks than the registry's own, by the name of theirs; "*" is for those that are
	// not named. A proxy of a network without an entry, or of none, and one of an instance without that address, does as without this.
	TaggedAddresses map[string]string `json:"taggedAddresses,omitempty"`
	// RefreshInterval bounds how old the list of services may get where blocking queries do not do; 30s.
	RefreshInterval *metav1.Duration `json:"refreshInterval,omitempty"`
}

// NacosSpec is what only Nacos has.
type NacosSpec struct {
	// Namespaces are the ids of the namespaces to read; "public" if empty. NamespaceNames say how one is called in host names, by id.
	Namespaces     []string          `json:"namespaces,omitempty"`
	NamespaceNames map[string]string `json:"namespaceNames,omitempty"`
	// Groups to read; DEFAULT_GROUP if empty.
	Groups []string `json:"groups,omitempty"`
	// AddressServer is a URL that lists servers; instead of, or besides Addresses.
	AddressServer string `json:"addressServer,omitempty"`
	// DiscoveryInterval is how long a new service may stay unknown where the server can't tell of it; 10s.
	DiscoveryInterval *metav1.Duration `json:"discoveryInterval,omitempty"`
	// ContextPath of the HTTP API; "/nacos" if empty.
	ContextPath string `json:"contextPath,omitempty"`
	// GRPCPort of the servers; that of the address + 1000 if 0.
	GRPCPort uint16 `json:"grpcPort,omitempty"`
	// ProtectThreshold: whether a service whose share of healthy instances falls below its threshold is served all of them. "ignore" (default) or "honour".
	ProtectThreshold string `json:"protectThreshold,omitempty"`
}

// MCPSpec is what only an upstream of the Mesh Configuration Protocol has.
type MCPSpec struct {
	// Revision: only objects of it, or of none, are taken; the hub's own if empty.
	Revision string `json:"revision,omitempty"`
}

// ServiceFilter says which services are taken, by patterns of their name in the registry ("pay-*"). Exclude wins; an empty Include is everything.
type ServiceFilter struct {
	Include []string `json:"include,omitempty"`
	Exclude []string `json:"exclude,omitempty"`
}

// NamingMode is how host names are made of a registry's names.
type NamingMode string

// The modes. Both give <service>.<datacenter>.consul and <service>.<group>.<namespace>.nacos.
const (
	// NamingHigress (the default): as Higress makes them, bit for bit: '_' becomes '-' in what follows the service's name, which is kept as it
	// is. What is no DNS name has its NamingDNS form as another name.
	NamingHigress NamingMode = "Higress"
	// NamingDNS: in lower case; what can't be in a DNS name is escaped, so that no two names become one.
	NamingDNS NamingMode = "DNS"
)

// HostNaming is how services are called in the mesh.
type HostNaming struct {
	Mode NamingMode `json:"mode,omitempty"`
	// Suffix replaces what follows the service's name.
	Suffix string `json:"suffix,omitempty"`
}

// PortMapping is how an instance's port becomes one of its service. By default a service has one port for each protocol
// of its instances, named after it, with the number that most of them have (the lowest of those that are as frequent).
type PortMapping struct {
	// Default is the service port of all services; 0: as the instances have it.
	Default uint16 `json:"default,omitempty"`
	// Protocol of instances that do not say theirs: "tcp", "http", "grpc" …; "" means HTTP, as in Higress. "auto" is detected.
	Protocol string `json:"protocol,omitempty"`
	// ProtocolKey is the metadata key in which instances say their protocol; "protocol" if empty.
	ProtocolKey string `json:"protocolKey,omitempty"`
	// Services overrides these for hosts, compared without regard to case.
	Services []ServicePort `json:"services,omitempty"`
}

// ServicePort is the port of one service.
type ServicePort struct {
	Host     string `json:"host"` // as in the mesh
	Port     uint16 `json:"port,omitempty"`
	Protocol string `json:"protocol,omitempty"`
}

// Locality places instances. What an instance says of itself wins over Default.
type Locality struct {
	// Default is "region/zone/subzone".
	Default string `json:"default,omitempty"`
	// The metadata keys that hold the parts: "region", "zone" and "subzone" if empty.
	RegionKey  string `json:"regionKey,omitempty"`
	ZoneKey    string `json:"zoneKey,omitempty"`
	SubzoneKey string `json:"subzoneKey,omitempty"`
	// Clusters maps a Nacos instance's clusterName, and Datacenters a Consul datacenter, to a locality. Without an entry a datacenter is a region.
	Clusters    map[string]string `json:"clusters,omitempty"`
	Datacenters map[string]string `json:"datacenters,omitempty"`
}

// Weights say what the weights of instances mean.
type Weights struct {
	// Ignore: all instances are equal, except those of weight 0, which get no traffic either way.
	Ignore bool `json:"ignore,omitempty"`
}

// Health says what the health of instances means. Unhealthy ones are known as such and get no traffic.
type Health struct {
	// Warning: what instances in that state of Consul are: "healthy" (default) or "unhealthy".
	Warning string `json:"warning,omitempty"`
	// Ignore: instances are served whatever their health.
	Ignore bool `json:"ignore,omitempty"`
}

// EmptyMode is what is done when services lose their last instance, or go.
type EmptyMode string

// The modes.
const (
	EmptyImmediate EmptyMode = "immediate" // it is so at once
	EmptyHold      EmptyMode = "hold"      // each is held for Duration
	EmptyProtect   EmptyMode = "protect"   // each passes in seconds, but if many go together they are held for Duration (the default)
)

// EmptyPolicy is what is done when services lose their last instance, or objects of configuration go.
type EmptyPolicy struct {
	Mode EmptyMode `json:"mode,omitempty"`
	// Duration that removals are held for at most; 5m. What comes back meanwhile is served as it is.
	Duration *metav1.Duration `json:"duration,omitempty"`
	// Percent is the share of the registry's instances, or of a server of configuration's objects of a kind, above which protect holds; 50.
	Percent *int32 `json:"percent,omitempty"`
}

// Limits bound what a registry may cost.
type Limits struct {
	// RequestsPerSecond to the registry's servers; 200.
	RequestsPerSecond int32 `json:"requestsPerSecond,omitempty"`
	// Concurrency is how many requests may wait for an answer at once (Consul's blocking queries are such); 96.
	Concurrency int32 `json:"concurrency,omitempty"`
	// MaxServices that are read; 20000.
	MaxServices int32 `json:"maxServices,omitempty"`
}

// RegistryStatus is what the hub makes of a Registry.
type RegistryStatus struct {
	Conditions         []metav1.Condition `json:"conditions,omitempty"` // Accepted, Synced
	ObservedGeneration int64              `json:"observedGeneration,omitempty"`
	State              string             `json:"state,omitempty"` // as model.State
	Reason             string             `json:"reason,omitempty"`
	Services           int32              `json:"services"`
	Endpoints          int32              `json:"endpoints"`
	LastEvent          *metav1.Time       `json:"lastEvent,omitempty"`
	Quarantined        []QuarantinedItem  `json:"quarantined,omitempty"`
	Effective          *RegistrySpec      `json:"effective,omitempty"` // with defaults filled in
}

// QuarantinedItem is one that can't be used, or whose removal is held back.
type QuarantinedItem struct {
	Item   string `json:"item"`
	Reason string `json:"reason"`
}
