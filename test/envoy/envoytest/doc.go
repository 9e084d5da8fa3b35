// Package envoytest runs real Envoys, hubs, simple backends and network
// namespaces for tests and the demo. It needs Linux.
//
// The Envoy binary is $ISTHMUS_ENVOY or, when that is unset, the one in the
// user's cache, fetched on first use (see Binary); the hub is $ISTHMUS_BIN, which
// WithHub builds for tests. Each of Launch, LaunchHub, Serve, ClaimLoopback and
// Build returns an error and leaves closing to the caller; Start, StartHub,
// StartBackend, StartLoopback and NewNetwork do the same for a test: they fail
// it on error, close at its end, and show the log of an Envoy or a hub if it
// failed.
//
// Everything may run in parallel, in one process or in several: ports are
// chosen by the kernel, names carry the process id, and loopback addresses and
// subnets are picked under locks shared by all processes of the machine.
package envoytest
