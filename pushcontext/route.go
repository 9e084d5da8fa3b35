package pushcontext

import (
	"cmp"
	"slices"
	"strings"
	"time"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
)

// MeshGateway is the name by which a VirtualService is bound to all sidecars.
const MeshGateway = "mesh"

// VirtualService is a VirtualService in force, with all that its names stand for worked out. It keeps its
// pointer while nothing of that changes, so what is built from it may be kept with it.
type VirtualService struct {
	memo      Memo
	Source    model.Source
	Delegates []model.Source // VirtualServices whose routes were taken in, in order
	Origins   []int          // of each HTTP route of Spec the place of its delegate in Delegates, -1 for its own; nil without Delegates
	Namespace string
	Created   time.Time
	// Hosts are what the routes are for: a host, "*.suffix", "*-part.suffix" or "*", in lower case; short names are complete.
	Hosts []string
	// Gateways are what it is bound to: MeshGateway, or "namespace/name" of a Gateway; sorted.
	Gateways []string
	Export   Export
	// Spec has the routes of delegates in the place of these, and destinations with complete hosts. A
	// destination without a port has that of its service, if this has one port only; one that still has none
	// means the port at which the request came in. Gateways of matches are names as in Gateways.
	Spec *networking.VirtualService
	// Policies are the DestinationRules that routes themselves depend on, by host: of destinations of HTTP routes, if one chooses
	// endpoints by a hash of the request; of those of TLS and TCP routes, if one says something of connections.
	Policies map[string]*DestinationPolicies
	// Destinations are what its routes send to, mirrors too; sorted.
	Destinations []Destination
}

// Destination is a port of a service that routes send to.
type Destination struct {
	Host string
	Port uint16 // 0 for that at which the request came in
}

// Compare orders by host, then port.
func (d Destination) Compare(o Destination) int {
	return cmp.Or(strings.Compare(d.Host, o.Host), cmp.Compare(d.Port, o.Port))
}

// Derived is where values built from it are kept.
func (v *VirtualService) Derived() *Memo { return &v.memo }

// Bound reports whether the VirtualService is bound to a gateway.
func (v *VirtualService) Bound(gateway string) bool {
	_, ok := slices.BinarySearch(v.Gateways, gateway)
	return ok
}

// Delegate gives the VirtualService that an HTTP route, by its place in Spec, was taken from; nil if it is its own.
func (v *VirtualService) Delegate(route int) *model.Source {
	if route >= len(v.Origins) || v.Origins[route] < 0 {
		return nil
	}
	return &v.Delegates[v.Origins[route]]
}

// HostMatches reports whether a host, or all hosts of a pattern, are among those of another pattern: a host,
// "*.suffix", "*-part.suffix" or "*". A star stands for something.
func HostMatches(pattern, host string) bool {
	suffix, wild := strings.CutPrefix(pattern, "*")
	return pattern == host || wild && len(host) > len(suffix) && strings.HasSuffix(host, suffix)
}

// VirtualService gives the one in force for sidecars that see the service; nil if there is none: of those
// that the reader's namespace may use and its Sidecar imports, that with the most specific host, then the
// oldest (VirtualService precedence of the Istio traffic API).
func (s *ShapeView) VirtualService(r *Reader) *VirtualService {
	for _, v := range s.VirtualServices {
		if v.Export.Includes(r.Namespace) && r.Scope.ImportsRoute(v) {
			return v
		}
	}
	return nil
}
