package pushcontext

import (
	"slices"
	"time"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
)

// GatewaysView is every Gateway of the mesh with what is bound to it. Listeners and route tables of routers are
// built from it: which servers are a router's own, its labels say.
type GatewaysView struct {
	base
	Servers []*GatewayServer // by age of the Gateway, then namespace and name, then place in it
	Labels  []string         // keys that selectors name, sorted
	Mesh    *MeshView
}

// GatewayServer is one server of a Gateway. It keeps its pointer while nothing of it changes.
type GatewayServer struct {
	memo      Memo
	Source    model.Source
	Namespace string // of the Gateway
	Gateway   string // its name
	Created   time.Time
	Index     int          // place in the Gateway
	Selector  model.Labels // of routers in any namespace; empty selects all
	Spec      *networking.Server
	Hosts     []GatewayHost
	// Bound are the VirtualServices that name the Gateway and have a host in common with Hosts, oldest first. A
	// router serves those that are exported to its own namespace.
	Bound []*VirtualService
	Mesh  *MeshView
}

// Derived is where values built from it are kept.
func (g *GatewayServer) Derived() *Memo { return &g.memo }

// GatewayHost is one entry of a server's hosts.
type GatewayHost struct {
	Namespace string // of VirtualServices; "*" for any
	Host      string // a host, "*.suffix" or "*"; lower case
}

// Name is what VirtualServices call the Gateway.
func (g *GatewayServer) Name() string { return g.Namespace + "/" + g.Gateway }

// Selects reports whether a router with the labels serves it.
func (g *GatewayServer) Selects(labels model.Labels) bool {
	return len(g.Selector) == 0 || labels.Matches(g.Selector)
}

// Admits reports whether a VirtualService has hosts of the entry.
func (h GatewayHost) Admits(v *VirtualService) bool {
	if h.Namespace != "*" && h.Namespace != v.Namespace {
		return false
	}
	return slices.ContainsFunc(v.Hosts, func(host string) bool { return HostMatches(h.Host, host) || HostMatches(host, h.Host) })
}
