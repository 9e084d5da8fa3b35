package pushcontext

import (
	"iter"
	"net/netip"
	"time"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
)

// ViewKind is the kind of a view that resources are built from.
type ViewKind uint8

// The view kinds. A key of kind ViewService or ViewShape names a host, which is resolved to one
// service for the reader (see [HostView.Resolve]); ViewTargets, ViewPeers, ViewGateways, ViewNames, ViewPorts and ViewMesh
// exist once per reader.
const (
	ViewService  ViewKind = iota // *ServiceView: shape and endpoints
	ViewShape                    // *ShapeView: everything but the endpoints
	ViewPort                     // *PortView: the services that share a port number
	ViewTargets                  // *TargetsView: what the reader's own workload serves
	ViewPeers                    // *PeersView: the endpoints of the first service that the reader's own workload serves
	ViewGateways                 // *GatewaysView: all Gateways, with the VirtualServices bound to them
	ViewNames                    // *NamesView: every service, for the names that proxies resolve
	ViewPorts                    // *PortsView: the services of all ports, for what routes whatever the port
	ViewMesh                     // *MeshView: mesh-wide settings
)

// OfReader reports whether a view of the kind is that of the reader's own workload.
func (k ViewKind) OfReader() bool { return k == ViewTargets || k == ViewPeers }

// ViewKey names a view within a snapshot, as seen by one reader.
type ViewKey struct {
	Kind ViewKind
	Host string
	Port uint16
}

// View is the complete and immutable input of some resources.
type View interface {
	// Revision is the version at which the view last changed.
	Revision() uint64
	// Derived is where values built from the view are kept.
	Derived() *Memo
}

// base is what every view has.
type base struct {
	rev  uint64 // set by the Builder, once, before publication
	memo Memo
}

func (b *base) Revision() uint64 { return b.rev }
func (b *base) Derived() *Memo   { return &b.memo }

// stamp sets the revision of a new view. A view that has one is read by others already.
func (b *base) stamp(version uint64) {
	if b.rev != 0 {
		panic("pushcontext: a published view was committed as a new one")
	}
	b.rev = version
}

// Contribution is one shard's definition of a service.
type Contribution struct {
	Source     model.Source
	Generation int64 // of the object, if it has one
	Won        bool  // its ports, resolution and policy are the ones in force
}

// Conflict is a disagreement between two definitions of one service.
type Conflict struct {
	Field  string // "ports", "resolution", "exportTo", "location" …
	Winner model.Source
	Loser  model.Source
	Detail string // what was kept and what was dropped
	At     string // the field of the loser that is not used ("http[0].delegate"); "" where Detail says it
}

// ShapeView is a merged service without its endpoints: all that clusters, listeners and routes need.
// It keeps its pointer while only endpoints change.
type ShapeView struct {
	base
	Key             model.ServiceKey
	Name            string
	Ports           []model.Port // union over shards, by number; one number may be there twice, the second time for UDP
	Addresses       map[model.ClusterID][]netip.Prefix
	MeshAddresses   bool // Addresses hold in every member (ServiceEntry), not only in their own
	AutoAddresses   bool // Addresses are automatic ones, which mean the service to proxies that answer DNS for their workload only
	Resolution      model.Resolution
	External        bool
	Export          Export
	ServiceAccounts []string // sorted union
	Traffic         model.TrafficDistribution
	NodeLocal       bool
	PublishNotReady bool
	Persistent      bool
	OwnPorts        bool // Gateways name ports of its workloads, not those of the service
	Created         time.Time
	Native          bool // defined by a registry's own service object, not by a ServiceEntry
	// Alias is the host of the service of which this is another name (ExternalName), "" for none: what is sent there
	// is meant for that one. Aliases are the opposite, by host.
	Alias   string
	Aliases []Alias
	// Policies are the DestinationRules for the host, those of more specific host patterns first, then
	// oldest first; see Policy.
	Policies []*DestinationPolicy
	// VirtualServices are those of sidecars for the host, those with more specific host patterns first, then
	// oldest first; see VirtualService.
	VirtualServices []*VirtualService
	Inline          []PortEndpoints // endpoints that are part of the shape: DNS names, headless TCP
	// MutualPorts are the names of ports behind which there are endpoints that all take mutual TLS, sorted; of a
	// service whose connections go where the application opened them, which does not say which endpoint that is.
	MutualPorts   []string
	Networks      Networks       // of a service that proxies resolve: those that its endpoints are on; gateways known by name are unresolved
	Contributions []Contribution // by shard, then object
	Conflicts     []Conflict
	Federation    *Federation // of a FederatedService's service; nil for others
	Mesh          *MeshView
}

// Alias is another name of a service.
type Alias struct {
	Host, Namespace string
	Export          Export
}

// PortEndpoints are the endpoints behind one port name, grouped by locality.
type PortEndpoints struct {
	Port       string
	Localities []LocalityEndpoints // by Locality
}

// LocalityEndpoints are the endpoints of one locality, by Addr.
type LocalityEndpoints struct {
	Locality  model.Locality
	Endpoints []*model.Endpoint
}

// ServiceView is a merged service with its endpoints.
type ServiceView struct {
	base
	Shape     *ShapeView
	Endpoints []PortEndpoints  // by port name; every health state
	Networks  Networks         // that its endpoints are on, of those with gateways; a gateway known by name is there once for each address
	LeftOut   []model.LeftOut  // candidates that serve nobody, by Addr
	Demoted   []model.ShardKey // stale for so long that other members see their endpoints at lower priority; sorted
	Sources   []SourceState    // what came of each of Shape.Federation.Sources
	peers     PeersView        // set by the Builder
}

// NamesView is every service: what the addresses behind host names are worked out from. It is another one when a
// service is, or when only the endpoints of one are that is reached at their own addresses.
type NamesView struct {
	base
	Mesh  *MeshView
	hosts cowMap[string, *HostView]
}

// Hosts yields every host, in no particular order.
func (v *NamesView) Hosts() iter.Seq2[string, *HostView] { return v.hosts.all() }

// PortsView is every PortView: what a proxy routes requests by that name a port beside the host. It is another one when any of
// them is.
type PortsView struct {
	base
	Mesh  *MeshView
	ports cowMap[uint16, *PortView]
}

// Ports yields every port, in no particular order.
func (v *PortsView) Ports() iter.Seq2[uint16, *PortView] { return v.ports.all() }

// PeersView is a service as those that serve it look at it: among its endpoints are a proxy's peers, the
// instances of its own workload.
type PeersView struct {
	base
	Shape     *ShapeView
	Endpoints []PortEndpoints // as in the ServiceView
}

// Port gives the endpoints behind a port name.
func (v *ServiceView) Port(name string) []LocalityEndpoints {
	for i := range v.Endpoints {
		if v.Endpoints[i].Port == name {
			return v.Endpoints[i].Localities
		}
	}
	return nil
}

// PortNumbered gives the service port with the number; of two, the one that is not UDP.
func (s *ShapeView) PortNumbered(n uint16) (found model.Port, ok bool) {
	for _, p := range s.Ports {
		if p.Number == n && (!ok || found.Protocol == model.ProtocolUDP) {
			found, ok = p, true
		}
	}
	return found, ok
}

// HostView is every service with one host name: usually one, several when ServiceEntries of several
// namespaces claim the host or members keep it cluster-local.
type HostView struct {
	Host     string
	Services []*ServiceView // by precedence: see precedes
	Rev      uint64         // version at which anything last changed
	ShapeRev uint64         // version at which more than endpoints last changed
	// MeaningRev is a version since which every reader resolves the host to the same service.
	MeaningRev uint64
}

// PortView is the set of services that have a port of one number, oldest first. Listeners and route
// tables are built from it.
type PortView struct {
	base
	Number   uint16
	Services []*ShapeView
	// Claims are the services of each host that several services claim and one of Services is among them:
	// all of them, with the port or without, by precedence. Which one a reader means does not depend on
	// the port.
	Claims map[string][]*ShapeView
	// Routes are all VirtualServices of sidecars with HTTP rules, oldest first; at [RoutedPort] only. There they
	// hold for hosts of no service, too.
	Routes []*VirtualService
	Mesh   *MeshView
}

// RoutedPort is the port at which VirtualServices hold for hosts of no service, whatever services they are for
// besides (sidecar virtual hosts of Istio).
const RoutedPort = 80

// Target is one port that a workload serves.
type Target struct {
	Cluster   model.ClusterID // member that keeps the service to itself; "" for a mesh-wide service
	Host      string
	Namespace string
	Name      string // short service name
	Port      uint16 // service port
	PortName  string
	Protocol  model.Protocol
	Endpoint  uint16 // port on the workload
	MTLS      model.MTLS
	OwnPort   bool                               // see ShapeView.OwnPorts
	OtherMTLS model.MTLS                         // of the workload's ports that no PeerAuthentication names
	Pool      *networking.ConnectionPoolSettings // of the rule that the service's own namespace has for it; nil for none
}

// TargetsView is what a workload serves. Workloads that serve the same share one.
type TargetsView struct {
	base
	Targets []Target // by Endpoint, then Host, Namespace, Cluster, Port
	Mesh    *MeshView
	key     string // equal targets, equal key
}

// InstanceView is one workload address: what it serves, if anything, and where it is. Where the
// endpoints of several services differ, the first service by key has the word; workloads themselves
// have it after services.
type InstanceView struct {
	Key        model.InstanceKey
	Targets    *TargetsView
	Locality   model.Locality
	Network    string
	Rev        uint64
	statements []statement // one for each service that it backs, by service, then one for each workload there
}

// ShardInfo is what the snapshot knows of one registry.
type ShardInfo struct {
	Key         model.ShardKey
	Status      model.Status
	Synced      bool      // has delivered its full truth at least once
	SyncedAt    time.Time // last Replace; zero if none
	LastEvent   time.Time // last row received
	Rows        [model.RowKinds]int
	NotServed   map[string]int // accepted configuration that nothing uses yet, by kind
	NoService   int            // endpoints for services that nobody defines
	Replacement string         // why a pending replacement instance has not taken over, "" if none
}
