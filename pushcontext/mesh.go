package pushcontext

import (
	"net/netip"
	"slices"

	meshconfig "istio.io/api/mesh/v1alpha1"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
)

// Gateway is an east-west gateway through which a network is entered.
type Gateway struct {
	Network string
	Cluster model.ClusterID // member that it belongs to; "" for the whole network
	Addr    netip.AddrPort  // where it is dialled; invalid when Host is not resolved
	Host    string          // set when the gateway is known by name
}

// MeshView is the mesh-wide settings that every other view was made under. When it changes, every
// view is made anew.
type MeshView struct {
	base
	Config        *meshconfig.MeshConfig // with defaults applied; never nil
	Networks      *meshconfig.MeshNetworks
	DomainSuffix  string // "cluster.local"
	ConfigCluster model.ClusterID
	Gateways      []Gateway // sorted by network, cluster, address
	// AutoPassthrough are the servers of Gateways in mode AUTO_PASSTHROUGH: routers that they select
	// forward mutual TLS by server name to every service. Oldest first.
	AutoPassthrough []AutoPassthrough
}

// AutoPassthrough is one AUTO_PASSTHROUGH server of a Gateway.
type AutoPassthrough struct {
	Source    model.Source
	Namespace string
	Selector  model.Labels // of routers in any namespace; empty selects all
	Port      uint16
	Hosts     []string // as in the Gateway: "*.local", "ns/host"
}

// NetworkGateways are the usable gateways of a network: only those of the member if it has any there.
func (m *MeshView) NetworkGateways(network string, cluster model.ClusterID) []Gateway {
	var all, own []Gateway
	for _, g := range m.Gateways {
		if g.Network != network || !g.Addr.IsValid() {
			continue
		}
		all = append(all, g)
		if g.Cluster != "" && g.Cluster == cluster {
			own = append(own, g)
		}
	}
	if len(own) > 0 {
		return own
	}
	return all
}

// MultiNetwork reports whether any network has a gateway, usable or not: only then does an
// endpoint's network matter.
func (m *MeshView) MultiNetwork() bool { return len(m.Gateways) > 0 }

// HasGateway reports whether the network is entered through gateways, usable or not.
func (m *MeshView) HasGateway(network string) bool {
	return slices.ContainsFunc(m.Gateways, func(g Gateway) bool { return g.Network == network })
}
