// Package mcp holds what both ends of MCP, the Mesh Configuration Protocol, agree on: Istio's configuration resources over
// xDS streams, delta or state of the world. (The letters also name an unrelated protocol of AI tools.)
//
// A type URL is a bare "group/version/kind", such as "networking.istio.io/v1/ServiceEntry", without the prefix that other
// xDS types have. Which version of a kind is asked for has changed with Istio's releases, while the content is the same: the
// versions of a kind are aliases ([Kind]). Each object travels in an istio.mcp.v1alpha1.Resource ([Resource]), but for the
// mesh-wide settings, which are the message itself.
//
// [github.com/isthmus-mesh/isthmus/mcp/client] is the registry that reads a server; mcptest is a server for tests.
package mcp
