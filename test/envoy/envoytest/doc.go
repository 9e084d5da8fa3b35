// Package envoytest runs real Envoys, simple backends and network namespaces
// for tests and the demo. It needs Linux.
//
// The Envoy binary is $ISTHMUS_ENVOY or, when that is unset, the one in the
// user's cache, fetched on first use (see Binary). Each of Launch, Serve and
// Build returns an error and leaves closing to the caller; Start, StartBackend
// and NewNetwork do the same for a test: they fail it on error, close at its
// end, and show the Envoy's log if it failed.
//
// Everything may run in parallel, in one process or in several: ports are
// chosen by the kernel, names carry the process id, and subnets are picked
// under a lock shared by all processes of the machine.
package envoytest
