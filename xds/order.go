package xds

import "github.com/isthmus-mesh/isthmus/xds/gen"

// rule is how one resource type is treated. Types are served in the order of the table: clusters
// and their endpoints before the listeners and routes that name them.
type rule struct {
	url      string
	short    string // label of metrics
	wildcard bool   // an empty first subscription means everything
	// whole: a SotW response holds the full state, and what is left out of it is deleted.
	whole bool
	// ackGate: at most one response is un-ACKed. Envoy withholds the ACK of clusters for as long as
	// any of them warms but goes on applying responses, so those are never gated.
	ackGate bool
	// urgent: names that must be answered do not wait for the ACK gate. A warming cluster waits for
	// its endpoints.
	urgent bool
	// afterClusters: waits, for a bounded time, until the proxy has shown that it processed the last
	// clusters it was sent.
	afterClusters bool
	// lateRemoval: what is gone is told only after the types with afterClusters are up to date, so
	// that no route names a cluster that is no more.
	lateRemoval bool
	// emptied: a name without data is told as an empty resource. Envoy keeps the endpoints of a
	// removed assignment.
	emptied bool
	// retried: what was refused is tried again once the proxy has accepted something else, and after a
	// while. A listener may be refused because something else has yet to leave its address, a virtual host
	// because another has yet to give up a domain.
	retried bool
	// follows is the type whose sent resources start to wait for the equally named ones of this type.
	follows string
	// partOf is the type of what the resources of this type are parts of: a proxy forgets, and acknowledges,
	// parts of what it does not have. Their generator is a gen.Parts. Delta only.
	partOf string
	split  bool // set by the server: another type's resources are parts of those of this type
}

// rules is the table.
func rules() []rule {
	return []rule{
		{url: gen.ClusterURL, short: "cds", wildcard: true, whole: true, lateRemoval: true},
		{url: gen.EndpointURL, short: "eds", ackGate: true, urgent: true, lateRemoval: true, emptied: true, follows: gen.ClusterURL},
		{url: gen.ListenerURL, short: "lds", wildcard: true, whole: true, ackGate: true, afterClusters: true, retried: true},
		{url: gen.RouteURL, short: "rds", ackGate: true, afterClusters: true},
		{url: gen.VirtualHostURL, short: "vhds", wildcard: true, ackGate: true, afterClusters: true, retried: true, partOf: gen.RouteURL},
		{url: gen.NameTableURL, short: "nds", wildcard: true, whole: true},
	}
}

const istioPrefix = "type.googleapis.com/"

// unserved are types that proxies of an Istio installation ask for and that have no resources here
// yet. They are answered with nothing, so that a stream with other types works.
func unserved() map[string]bool {
	return map[string]bool{
		istioPrefix + "istio.mesh.v1alpha1.ProxyConfig":                  true,
		istioPrefix + "istio.workload.Address":                           true,
		istioPrefix + "istio.workload.Workload":                          true,
		istioPrefix + "istio.security.Authorization":                     true,
		istioPrefix + "envoy.config.core.v3.TypedExtensionConfig":        true,
		istioPrefix + "envoy.extensions.transport_sockets.tls.v3.Secret": true,
		istioPrefix + "envoy.config.route.v3.ScopedRouteConfiguration":   true,
		istioPrefix + "envoy.service.runtime.v3.Runtime":                 true,
	}
}

// healthURL is a request without answer: what a workload's agent says of it.
const healthURL = istioPrefix + "istio.v1.HealthInformation"
