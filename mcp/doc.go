// Package mcp is where hubs will exchange what they know over MCP, the Mesh Configuration Protocol:
// Istio's configuration resources over xDS streams, delta and state of the world.
//
// It will hold a client, which is a registry like any other (model.Registry: an upstream hub is one
// provider in one cluster), a server, which is one more reader of the published snapshots, and the
// envelope that both share.
//
// Nothing is here yet. `isthmus serve` refuses to start with --mcp-addr set, and there is no provider
// that reads another hub.
package mcp
