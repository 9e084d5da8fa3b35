// Package dns is a registry of what DNS names stand for. East-west gateways are often known by name
// alone, and proxies are given addresses: the hub looks the names up, and looks again when an answer
// expires.
//
// The aggregate controller says which names it wants ([Registry.Want]); each becomes one row of kind
// ResolvedHost once there is an answer. A name whose lookup fails keeps its last addresses, and its
// status names it; one that authoritatively has no address loses them.
package dns
