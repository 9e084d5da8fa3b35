// Package gen turns views into Envoy resources.
//
// A [Generator] makes the resources of one xDS type. It is a set of pure functions: what it builds
// depends only on the view it is given and on the traits of the [Class] that it declared for that
// view, so the memo key (view, generator, class) is complete by construction. To add a type, write
// one file with a Generator and add it to [All].
//
//	ServiceView ─ Endpoints ─► outbound|<port>|<subset>|<host>    selectEndpoints decides, ExplainEndpoints tells
//	ShapeView ─── Clusters ──► outbound|<port>|<subset>|<host>    EDS, DNS with inline endpoints, or original destination
//	ServiceView ─ Endpoints ─► outbound_.<port>_.<subset>_.<host>  selectForwarded decides, ExplainPassthrough tells
//	ShapeView ─── Clusters ──► outbound_.<port>_.<subset>_.<host>  at routers that forward mutual TLS between networks
//	PortView ──── Listeners ─► <address>_<port>                   arrange: visible services, one for each host and address
//	         └─── Routes ────► <port>, <host>:<port>, exposed.<port>  portPlan: which listeners and tables that makes
//	GatewaysView ─ Listeners ─► gateway_<bind>_<port>             routerPlan: which servers share a socket or a table
//	         └─── Routes ────► http.<port>, https.<port>.<name>.<gateway>.<namespace>
//	TargetsView ─ Clusters ──► inbound|<port>||
//	         └─── Listeners ─► virtualInbound, inbound_<bind>_<port>
//	MeshView ──── Clusters ──► BlackHoleCluster, PassthroughCluster, InboundPassthroughCluster
//	         └─── Listeners ─► virtualOutbound
//
// Names and contents follow what Istio's proxies and tools expect; whatever a stock Envoy would refuse
// is not made. A resource that can't be made is an error of that resource alone.
package gen
