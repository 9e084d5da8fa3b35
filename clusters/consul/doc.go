// Package consul is the registry of a Consul cluster, as its agents and servers tell of it over their HTTP API.
//
// The list of services (catalog/services) is followed by a blocking query, and so is every service (health/service), as long
// as there are no more of them than requests may wait at once. Services beyond that are read when there is a reason to: the
// cluster's checks and nodes are followed, which name the services that have changed, and if any registration has
// changed in a way that they do not show, all are read within the refresh interval. See client.doubt for what an answer
// must be like to be believed.
//
// One goroutine, that of Run, owns what is known and speaks to the Publisher; those that wait for answers send them to it.
//
// Protocol: https://developer.hashicorp.com/consul/api-docs, of features blocking queries, consistency modes and filtering.
package consul
