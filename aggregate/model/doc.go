// Package model holds the provider-neutral vocabulary of the hub: what a registry reports
// (services, endpoints, workloads, configuration) and the contract between a registry and the
// aggregate controller ([Registry], [Sink]).
//
// Every value that crosses a [Sink] is immutable from then on. The package imports nothing else of
// the project, so every other package can import it.
package model
