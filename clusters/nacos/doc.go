// Package nacos is the registry of Nacos servers, 2.x and 3.x.
//
// A Registry keeps one connection to one of the servers (a session), over which it reads all its namespaces and groups: it
// lists the names of services, subscribes to each, and is told of changes. Where the server can tell of new names by itself
// (fuzzy watch, 3.x) they are known at once, elsewhere lists are read again and again. What is known is owned by one
// goroutine (watcher); requests are made by others, at the pace that the registry's limits allow, and their answers come back to
// it as events. A session ends with the first sign that its connection is not sound, and the next one asks for everything
// again; until it has an answer for a service, what was known of it stays.
//
// The client is our own, as small as the four requests and five notices that a reader needs; docs/decisions.md says why it is not Nacos' SDK.
// Protocol: nacos_grpc_service.proto of Nacos, and the Java classes that its bodies are JSON of (com.alibaba.nacos.api.naming.remote).
package nacos
