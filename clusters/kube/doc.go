// Package kube turns Kubernetes and Istio objects into model rows.
//
// Conversion is a set of pure functions ([Converter]) over what else is known in the member
// ([Lookup]): a pod's labels place an endpoint, a node's labels give its locality, the system
// namespace names its network. [Store] holds the objects of one member, converts what a change
// touches and nothing else, and gives the rows that differ. Its result depends on the objects
// alone, never on the order in which they came.
//
// Every source of such objects (a folder of YAML, an API server) drives one Store.
//
// [Registry] is the registry of a cluster that is read from its API server, [Mesh] that of the mesh-wide
// settings in one. Each run has connections of its own. A feed per kind lists and watches into a table
// and queues the keys of what changed; one worker reads the tables, converts and tells the sink. Contact
// is judged by how requests go; custom kinds come and go with their definitions.
//
// The behaviour follows Istio's: protocol selection, health, locality and network order, the
// precedence of ports, the mapping of ServiceEntries. Where it differs, the function says so.
package kube
