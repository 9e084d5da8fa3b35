package pushcontext

import (
	"slices"

	meshconfig "istio.io/api/mesh/v1alpha1"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
)

// MeshView is the mesh-wide settings that every other view was made under. When it changes, every
// view is made anew.
type MeshView struct {
	base
	Config        *meshconfig.MeshConfig // with defaults applied; never nil
	Networks      *meshconfig.MeshNetworks
	DomainSuffix  string // "cluster.local"
	ConfigCluster model.ClusterID
	// GatewayNetworks are the networks that are entered through gateways, usable or not; sorted. Which
	// gateways these are is not part of the settings: see [Networks].
	GatewayNetworks []string
	// AutoPassthrough are the servers of Gateways in mode AUTO_PASSTHROUGH: routers that they select
	// forward mutual TLS by server name to every service. Oldest first; of these MaxAutoPassthrough are served.
	AutoPassthrough []AutoPassthrough
}

// MaxAutoPassthrough is how many AUTO_PASSTHROUGH servers of a mesh are served.
const MaxAutoPassthrough = 64

// AutoPassthrough is one AUTO_PASSTHROUGH server of a Gateway.
type AutoPassthrough struct {
	Source    model.Source
	Namespace string
	Selector  model.Labels // of routers in any namespace; empty selects all
	Port      uint16
	Hosts     []string // as in the Gateway: "*.local", "ns/host"
}

// MultiNetwork reports whether any network has a gateway, usable or not: only then does an
// endpoint's network matter.
func (m *MeshView) MultiNetwork() bool { return len(m.GatewayNetworks) > 0 }

// HasGateway reports whether the network is entered through gateways, usable or not.
func (m *MeshView) HasGateway(network string) bool {
	_, ok := slices.BinarySearch(m.GatewayNetworks, network)
	return ok
}

// Provider gives an extension provider, nil if there is none. Two are there unless they are configured: "envoy" logs to the
// standard output, "prometheus" collects metrics.
func (m *MeshView) Provider(name string) *meshconfig.MeshConfig_ExtensionProvider {
	for _, p := range m.Config.GetExtensionProviders() {
		if p.GetName() == name {
			return p
		}
	}
	switch name {
	case "prometheus":
		return &meshconfig.MeshConfig_ExtensionProvider{Name: name, Provider: &meshconfig.MeshConfig_ExtensionProvider_Prometheus{
			Prometheus: &meshconfig.MeshConfig_ExtensionProvider_PrometheusMetricsProvider{}}}
	case "envoy":
		return &meshconfig.MeshConfig_ExtensionProvider{Name: name, Provider: &meshconfig.MeshConfig_ExtensionProvider_EnvoyFileAccessLog{
			EnvoyFileAccessLog: &meshconfig.MeshConfig_ExtensionProvider_EnvoyFileAccessLogProvider{Path: "/dev/stdout"}}}
	}
	return nil
}
