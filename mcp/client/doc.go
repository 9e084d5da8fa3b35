// Package client is the registry of a server of MCP, the Mesh Configuration Protocol: an istiod, another hub, or whatever
// translates to Istio's configuration.
//
// It asks for every kind of Istio and of the hub's own, over a delta stream, or one of the state of the world where the
// server has no other. Each object is converted like one from an API server, with the same checks: one with an error is refused
// (the response is NACKed, with the reason for each object) and its last good version stays, while all else of the response
// is used.
//
// What a server said last stays while there is no contact. After a reconnect each kind is compared with what the server then
// says, as soon as it has said all of it, so what was deleted meanwhile goes, and nothing else does. Whether that is believed of a
// server that may just have started is not decided here, but by what wraps the registry (clusters/holdback).
//
//   - A kind may be known to the server under an older version: these are asked for when the newer one is empty.
//   - A kind that the server never answers for is not waited for longer than the others.
//
// Left out are what this hub has passed on itself (mcp.ViaAnnotation), objects of another revision (label istio.io/rev), and the
// ServiceEntries that an istiod makes of the Services in its clusters, which have no endpoints: clusters are read from
// their API servers.
package client
