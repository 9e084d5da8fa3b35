// Package foreign makes rows of what registries that are no Kubernetes API server know: services with instances. It holds
// what Consul, Nacos and their like have in common: how hosts are named, ports chosen, weights, localities, health and
// labels carried over, and how an instance with a DNS name is resolved. A registry gives a Publisher the complete new
// value of a service whenever it may have changed; the Publisher puts what differs.
package foreign
