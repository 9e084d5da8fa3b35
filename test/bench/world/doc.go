// Package world makes synthetic meshes: what the registries of many members would report of
// services, endpoints, workloads and networks. Everything is a function of the Spec, so two
// processes that agree on it agree on every name and address.
package world
