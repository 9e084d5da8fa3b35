// Package workloadgroup registers workloads that have no Kubernetes: a proxy that names its WorkloadGroup when it connects
// (node metadata AUTO_REGISTER_GROUP) becomes a WorkloadEntry made from the group's template, which goes some time after the
// proxy has gone. Health that the proxy reports of its workload becomes the entry's.
//
// A [Keeper] decides what entries there are to be, one key at a time, from what is known of it by then; [Entries] say where
// they are kept. In an API server ([Objects]) they are what replicas share: a workload may come back to another replica, and
// whoever it came to last is its controller and cleans up after it. Without one ([Registry]) they are rows of the hub alone.
//
// The shape of entries, their names and annotations are those of Istio's automatic registration.
package workloadgroup
