package model

import (
	"net/netip"
	"time"
)

// Config is a configuration object other than a service or a workload.
type Config struct {
	Kind      string // "MeshConfig", "MeshNetworks", "VirtualService" …
	Namespace string
	Name      string
	Spec      any  // the decoded message of istio.io/api; nil when NotServed
	NotServed bool // accepted, but no part of the hub uses this object yet
	// NotServedFields are the fields of Spec that are set and that no part of the hub uses yet, as paths
	// ("trafficPolicy.connectionPool"), sorted. Where one of them changes whom the object is meant for, the
	// whole object is not served.
	NotServedFields []string
	// Findings are what is to be said of the object on its own, errors first. Each of NotServedFields has one.
	Findings []Finding
	// Refused says that the object as it is now has an error: the rest of the row is what its last version
	// without errors said, and Spec is nil if there has been none. Findings and Generation are of the refused version.
	Refused    bool
	Generation int64     // metadata.generation; 0 where the source has none
	Labels     Labels    // of the object
	Created    time.Time // of the object
	Source     Source
}

// The kinds of mesh-wide configuration.
const (
	ConfigMesh     = "MeshConfig"   // Spec is *istio.io/api/mesh/v1alpha1.MeshConfig
	ConfigNetworks = "MeshNetworks" // Spec is *istio.io/api/mesh/v1alpha1.MeshNetworks
)

// The kinds of configuration that change how services are reached. Objects of all served versions of
// a kind are one kind.
const (
	ConfigDestinationRule    = "DestinationRule"    // Spec is *istio.io/api/networking/v1alpha3.DestinationRule
	ConfigPeerAuthentication = "PeerAuthentication" // Spec is *istio.io/api/security/v1beta1.PeerAuthentication
	ConfigGateway            = "Gateway"            // networking.istio.io; Spec is *istio.io/api/networking/v1alpha3.Gateway
	ConfigVirtualService     = "VirtualService"     // Spec is *istio.io/api/networking/v1alpha3.VirtualService
	ConfigSidecar            = "Sidecar"            // Spec is *istio.io/api/networking/v1alpha3.Sidecar
	ConfigWorkloadGroup      = "WorkloadGroup"      // Spec is *istio.io/api/networking/v1alpha3.WorkloadGroup
	ConfigProxyConfig        = "ProxyConfig"        // Spec is *istio.io/api/networking/v1beta1.ProxyConfig
	ConfigTelemetry          = "Telemetry"          // Spec is *istio.io/api/telemetry/v1alpha1.Telemetry
	ConfigServiceEntry       = "ServiceEntry"       // without Spec, and there only with Findings: its services are rows of their own
	ConfigWorkloadEntry      = "WorkloadEntry"      // without Spec, and there only with Findings: its workload is a row of its own
	ConfigNetworkGateway     = "NetworkGateway"     // Spec is *NetworkGateway
	ConfigResolvedHost       = "ResolvedHost"       // Name is a DNS name; Spec is *ResolvedHost
)

// The kinds that declare and join foreign registries.
const (
	ConfigRegistry         = "Registry"         // Spec is *api/v1alpha1.RegistrySpec
	ConfigFederatedService = "FederatedService" // Spec is *api/v1alpha1.FederatedServiceSpec
	ConfigMcpBridge        = "McpBridge"        // networking.higress.io; Spec is *api/v1alpha1.McpBridgeSpec
)

// NetworkGateway is an east-west gateway that a registry found by other means than a Service, such as
// a Gateway of the Kubernetes Gateway API. One without addresses can't be dialled yet; its network is another
// one all the same.
type NetworkGateway struct {
	Network string
	Addrs   []GatewayAddr
}

// GatewayAddr is one address of a gateway. Exactly one of IP and Host is set.
type GatewayAddr struct {
	IP        netip.Addr
	Host      string // a DNS name, which the hub resolves
	Port      uint16 // that takes mutual TLS; 0 if HBONE alone is spoken
	HBONEPort uint16 // 0 if HBONE is not spoken
}

// ResolvedHost is what a DNS name stands for at the moment, or stood for when it last could be
// resolved. Sorted; empty if the name has authoritatively no address.
type ResolvedHost struct{ Addrs []netip.Addr }
