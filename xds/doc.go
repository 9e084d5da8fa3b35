// Package xds serves the aggregated discovery service, state of the world and delta, from published
// snapshots.
//
// One goroutine owns each stream. A turn of it takes the requests that have come, reads the current
// snapshot, works out per type what the proxy must be told (see order.go for the order), and sends
// it. Nothing queues: a stream that is gated or slow has a larger difference to send next time.
// What is sent is shared: a resource is built and encoded once per view and class of proxy (see
// resource.go), and a response only strings such encodings together.
package xds
