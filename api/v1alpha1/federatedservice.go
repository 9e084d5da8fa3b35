package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// FederatedServiceSpec makes one logical service of what several registries know. The service has the object's namespace.
type FederatedServiceSpec struct {
	// Host is the name that clients use. A source may have the same one: then the FederatedService is what it means.
	Host string `json:"host"`
	// Ports of the logical service.
	Ports []FederatedPort `json:"ports"`
	// Policy is how the sources share the traffic: union (the default), failover or weighted.
	Policy FederationPolicy `json:"policy,omitempty"`
	// Sources, for failover in order.
	Sources  []FederatedSource `json:"sources"`
	ExportTo []string          `json:"exportTo,omitempty"` // as in a ServiceEntry
}

// FederationPolicy is how the sources of a service share its traffic.
type FederationPolicy string

// The policies.
const (
	FederateUnion    FederationPolicy = "union"    // all endpoints are equal
	FederateFailover FederationPolicy = "failover" // a source gets traffic if those before it have too few healthy endpoints
	FederateWeighted FederationPolicy = "weighted" // sources get shares by their Weight, whatever the number of their endpoints
)

// FederatedPort is a port of the logical service.
type FederatedPort struct {
	Name   string `json:"name"`
	Number uint16 `json:"number"`
	// Protocol that clients and all sources speak, as in a ServiceEntry. If it is not set it is that of the sources: what their Ports say, or else the registry of the first.
	Protocol string `json:"protocol,omitempty"`
}

// FederatedSource is one part of the service. Either Host or Selector is set.
type FederatedSource struct {
	// Name for status and explanations; the host if empty.
	Name string `json:"name,omitempty"`
	// Host of the service that is the source.
	Host string `json:"host,omitempty"`
	// Namespace of that service; any if empty, the FederatedService's own for a Selector.
	Namespace string `json:"namespace,omitempty"`
	// Selector takes workloads (pods, WorkloadEntries, instances of foreign registries) by their labels.
	Selector map[string]string `json:"selector,omitempty"`
	// Registries limits the source to what some registries say of it: "consul/legacy", "kubernetes/*"; all if empty.
	Registries []string `json:"registries,omitempty"`
	// Clusters limits it to the endpoints of some clusters; all if empty.
	Clusters []string `json:"clusters,omitempty"`
	// Ports maps ports of the logical service, by name, to those of the source. A port without an entry is that of the same name, then number, then the only one that the source has.
	Ports map[string]SourcePort `json:"ports,omitempty"`
	// Priority for failover, from 0; the place in the list if not set. Sources of equal priority are one level.
	Priority *uint32 `json:"priority,omitempty"`
	// Weight for weighted; 1 if not set, and 0 takes no traffic.
	Weight *uint32 `json:"weight,omitempty"`
}

// SourcePort is a port of a source: by Name, or by Number, or, with neither, the one that it would be without an entry. Of a Selector's workloads it is the port that they are dialled at.
type SourcePort struct {
	Name   string `json:"name,omitempty"`
	Number uint16 `json:"number,omitempty"`
	// Protocol is what the source speaks there, whatever its registry says. It has to be the service's, of which a port has one for all its sources.
	Protocol string `json:"protocol,omitempty"`
}

// FederatedServiceStatus is what the hub makes of a FederatedService.
type FederatedServiceStatus struct {
	Conditions         []metav1.Condition `json:"conditions,omitempty"` // Accepted
	ObservedGeneration int64              `json:"observedGeneration,omitempty"`
	Sources            []SourceStatus     `json:"sources,omitempty"`
}

// SourceStatus is the state of one source.
type SourceStatus struct {
	Name      string `json:"name"`
	Endpoints int32  `json:"endpoints"`
	Healthy   int32  `json:"healthy"`
	Priority  uint32 `json:"priority"`
	Reason    string `json:"reason,omitempty"` // why it gives nothing
}
