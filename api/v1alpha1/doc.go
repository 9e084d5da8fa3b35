// Package v1alpha1 holds the kinds of the group isthmus.io, in their version v1alpha1: what a platform team says to the hub
// that no kind of Istio has words for. Registry declares a service registry that is not a Kubernetes API server;
// FederatedService makes one service of what several registries know.
//
// The structs are the objects' spec and status as their YAML has them; deploy/crds holds the definitions for API servers.
// Times are metav1.Duration's form ("30s", "5m"). A field that is left out has the value that its comment names.
package v1alpha1

// The group and version of the kinds.
const (
	Group   = "isthmus.io"
	Version = "v1alpha1"
)

// The kinds.
const (
	KindRegistry         = "Registry"
	KindFederatedService = "FederatedService"
)
