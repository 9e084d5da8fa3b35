package gen

import (
	"google.golang.org/protobuf/proto"

	"github.com/isthmus-mesh/isthmus/pushcontext"
)

// Type URLs of the served resource types.
const (
	typePrefix  = "type.googleapis.com/envoy.config."
	ClusterURL  = typePrefix + "cluster.v3.Cluster"
	EndpointURL = typePrefix + "endpoint.v3.ClusterLoadAssignment"
	ListenerURL = typePrefix + "listener.v3.Listener"
	RouteURL    = typePrefix + "route.v3.RouteConfiguration"

	VirtualHostURL = typePrefix + "route.v3.VirtualHost"
	NameTableURL   = "type.googleapis.com/istio.networking.nds.v1.NameTable"
)

// Generator makes the resources of one xDS type.
type Generator interface {
	TypeURL() string
	// Kinds are the kinds of view that resources of this type are built from.
	Kinds() []pushcontext.ViewKind
	// Key names the view that a resource is built from; false if no view can have such a resource.
	Key(name string) (pushcontext.ViewKey, bool)
	// Traits are the only class traits that this view's resources may depend on.
	Traits(v pushcontext.View) Traits
	// Names lists the resources that the view has for a class, each once. The class holds the
	// declared traits only.
	Names(v pushcontext.View, c Class) []string
	// Build makes one listed resource: the deterministic encoding of a message of TypeURL.
	Build(v pushcontext.View, c Class, name string) ([]byte, error)
}

// Narrower is a Generator that knows of single classes that a trait makes no difference to them.
type Narrower interface {
	Generator
	// Narrow drops fields of a class that the view's resources do not depend on for that class. It is
	// asked about traits that hardly two proxies share, and about TraitPolicy.
	Narrow(v pushcontext.View, c Class) Class
	// Scope says what TraitPolicy tells proxies apart by: for views of equal scope, Narrow gives proxies the
	// same classes.
	Scope(v pushcontext.View) string
}

// Parts is a Generator of parts of other resources: a proxy can take one only into a whole that it has.
type Parts interface {
	Generator
	// Whole names the resource that what is made of a view of the key is part of.
	Whole(key pushcontext.ViewKey) string
	// None names a part of a whole that never is.
	None(whole string) string
}

// Bundler is a Generator that makes all resources of a view at once, for less than one by one.
type Bundler interface {
	Generator
	// Bundle gives the names and, in the same order, what Build makes of each.
	Bundle(v pushcontext.View, c Class) (names []string, bodies [][]byte, err error)
}

// All are the generators in the order in which resources are made known to a proxy.
func All() []Generator {
	return []Generator{Clusters{}, Endpoints{}, Listeners{}, Routes{}, VirtualHosts{}, NameTable{}}
}

// marshal is the one way messages are encoded: equal messages give equal bytes.
func marshal(m proto.Message) ([]byte, error) {
	return proto.MarshalOptions{Deterministic: true}.Marshal(m)
}
