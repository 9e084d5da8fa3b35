package model

// Health is an endpoint's health as the source sees it; the numbers are Istio's.
type Health uint8

// The health states. Terminating endpoints are never sent to others, but their own proxy keeps its
// inbound configuration.
const (
	Healthy     Health = 1
	Unhealthy   Health = 2
	Draining    Health = 3
	Terminating Health = 4
)

var healthNames = [...]string{"unknown", "healthy", "unhealthy", "draining", "terminating"}

// String gives the lower-case name.
func (h Health) String() string { return healthNames[h] }

// MarshalText gives String.
func (h Health) MarshalText() ([]byte, error) { return []byte(h.String()), nil }

// TLSMode values of the label security.istio.io/tlsMode.
const (
	TLSDisabled = "disabled"
	TLSIstio    = "istio"
)

// MTLS is what PeerAuthentication demands of inbound connections to a workload port.
type MTLS uint8

// The modes. MTLSPermissive, which takes both, is the default.
const (
	MTLSPermissive MTLS = iota
	MTLSStrict
	MTLSDisabled
)

var mtlsNames = [...]string{"PERMISSIVE", "STRICT", "DISABLE"}

// String gives the mode as PeerAuthentication spells it.
func (m MTLS) String() string { return mtlsNames[m] }

// MarshalText gives String.
func (m MTLS) MarshalText() ([]byte, error) { return []byte(m.String()), nil }

// Endpoint is one dialable address behind one service port.
type Endpoint struct {
	Addr           Addr
	PortName       string // service port that it backs
	Health         Health
	Part           uint16  // of a FederatedService's service: number of the source that it is of, from 1; set by the merge, not by registries
	MTLS           MTLS    // what PeerAuthentication demands of connections to it; set by the merge, not by registries
	MTLSSource     *Source // the PeerAuthentication that demands MTLS, without revision; nil if none does
	OtherMTLS      MTLS    // the same, of connections to ports of its workload that no PeerAuthentication names
	Weight         float64 // relative, to a hundredth, whichever registry says it; 0 means unset (1). A source's own 0 is ReasonZeroWeight instead
	Labels         Labels
	Locality       Locality
	Network        string
	Alternatives   *Alternatives // where proxies of other networks dial it; nil for most
	TLSMode        string        // TLSIstio or TLSDisabled; "" is disabled
	ServiceAccount string        // SPIFFE identity
	Workload       ObjectKey
	Node           string // Kubernetes node name
	Hostname       string // pod hostname, when it has a subdomain (headless DNS)
	Source         *Source
}

// WorkloadKind is the kind of object that describes a running instance.
type WorkloadKind string

// The workload kinds.
const (
	KindPod           WorkloadKind = "Pod"
	KindWorkloadEntry WorkloadKind = "WorkloadEntry"
	KindInstance      WorkloadKind = "Instance" // an instance of a foreign registry
)

// WorkloadKey identifies a workload: pods of one name in two members are two workloads.
type WorkloadKey struct {
	Cluster   ClusterID
	Kind      WorkloadKind
	Namespace string
	Name      string
}

// Workload is a running instance that selectors may join to services of any registry.
type Workload struct {
	Kind      WorkloadKind
	Namespace string
	Name      string
	Labels    Labels
	// Address is the IP (AddrPort with port 0), DNS name or unix socket of the instance; none for a
	// WorkloadEntry reachable only through its network's gateway. Addr.Cluster is the member it runs in.
	Address        Addr
	Alternatives   *Alternatives     // of Address, as an Endpoint's; a Port is that of the workload's only port, 0 means its ports
	Ports          map[string]uint16 // named ports
	Network        string
	Locality       Locality
	ServiceAccount string
	TLSMode        string
	Health         Health
	Weight         float64 // see Endpoint.Weight
	Node           string
	Source         Source
}

// Key gives the workload's identity.
func (w *Workload) Key() WorkloadKey {
	return WorkloadKey{Cluster: w.Source.Shard.Cluster, Kind: w.Kind, Namespace: w.Namespace, Name: w.Name}
}
