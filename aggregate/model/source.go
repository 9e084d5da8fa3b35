package model

import (
	"fmt"
	"time"
)

// ObjectKey names one object in a source. Kind is the source's own word ("Service",
// "EndpointSlice", "ServiceEntry", "Pod" …).
type ObjectKey struct {
	Kind      string
	Namespace string
	Name      string
}

// String gives "Kind/namespace/name"; it is also the row key that registries use by default.
func (k ObjectKey) String() string { return k.Kind + "/" + k.Namespace + "/" + k.Name }

// Source says where a fact came from.
type Source struct {
	Shard    ShardKey
	Object   ObjectKey
	Revision string    // the source's revision of the object ("" if it has none)
	Time     time.Time // when this revision was made or first seen
}

// String gives "provider/cluster Kind/namespace/name@revision".
func (s Source) String() string {
	out := s.Shard.String() + " " + s.Object.String()
	if s.Revision != "" {
		out += "@" + s.Revision
	}
	return out
}

// Reason says why a candidate is left out of a service's endpoints, or out of what a proxy is sent.
type Reason string

// The reasons. Those up to ReasonConflictLost are known once per snapshot; the later ones depend
// on the proxy that asks.
const (
	ReasonInvalid        Reason = "Invalid"        // the source object can't be read as an endpoint
	ReasonMirroredSlice  Reason = "MirroredSlice"  // EndpointSlice imported from another cluster
	ReasonFQDNSlice      Reason = "FQDNSlice"      // EndpointSlice of host names
	ReasonPodUnknown     Reason = "PodUnknown"     // the slice names a pod that is not known yet
	ReasonNoPort         Reason = "NoPort"         // no port for the service's target port
	ReasonWrongKind      Reason = "WrongKind"      // a host name or socket where only IPs are served
	ReasonDuplicate      Reason = "Duplicate"      // the same address is known from a better source
	ReasonNoService      Reason = "NoService"      // endpoints for a service that does not exist
	ReasonConflictLost   Reason = "ConflictLost"   // another shard's definition of the service won
	ReasonHidden         Reason = "Hidden"         // exportTo does not include the proxy's namespace
	ReasonUnready        Reason = "Unready"        // not ready, and unready endpoints are not sent
	ReasonTerminating    Reason = "Terminating"    // shutting down, never sent
	ReasonDraining       Reason = "Draining"       // draining, sent only with session persistence
	ReasonNoGateway      Reason = "NoGateway"      // on another network without usable gateway
	ReasonNoMTLS         Reason = "NoMTLS"         // on another network and plaintext: a gateway can't route it
	ReasonOtherNetwork   Reason = "OtherNetwork"   // on a network that the proxy is not to reach
	ReasonNoAddress      Reason = "NoAddress"      // address-less and its network has no gateway
	ReasonClusterLocal   Reason = "ClusterLocal"   // the service is local to the endpoint's cluster
	ReasonNodeLocal      Reason = "NodeLocal"      // internalTrafficPolicy Local, on another node
	ReasonLocalityWeight Reason = "LocalityWeight" // no share in the locality distribution
	ReasonIPFamily       Reason = "IPFamily"       // the proxy has no address of this family
	ReasonNetworkView    Reason = "NetworkView"    // the proxy asked for the endpoints of other networks
	ReasonNoEndpoints    Reason = "NoEndpoints"    // a source of a FederatedService: nothing of it is there
	ReasonZeroWeight     Reason = "ZeroWeight"     // weight 0: takes no traffic
	ReasonDisabled       Reason = "Disabled"       // taken out of service in its registry
)

// LeftOut is a candidate endpoint that is not served, and why.
type LeftOut struct {
	Addr   Addr
	Port   string // service port name; "" when it concerns the whole candidate
	Reason Reason
	Detail string // one sentence that says what to do, "" if the reason says it all
	Source Source
}

// String is for logs.
func (l LeftOut) String() string {
	return fmt.Sprintf("%s %s: %s (%s)", l.Addr, l.Port, l.Reason, l.Source)
}
