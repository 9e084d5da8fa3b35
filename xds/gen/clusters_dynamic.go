package gen

import (
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	dynamicv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/clusters/dynamic_forward_proxy/v3"
	dnscachev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/dynamic_forward_proxy/v3"
	sniv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/sni_dynamic_forward_proxy/v3"

	"github.com/isthmus-mesh/isthmus/pushcontext"
)

// A service of resolution DYNAMIC_DNS is wherever the host that a request names is, as the proxy resolves it. Which hosts
// these may be, virtual hosts and filter chains say.

// dnsCache is shared by all clusters and filters of a proxy that resolve hosts of requests: they must agree on it.
func dnsCache(m *pushcontext.MeshView, c Class) *dnscachev3.DnsCacheConfig {
	return &dnscachev3.DnsCacheConfig{
		Name: "dynamic_dns", DnsLookupFamily: c.lookupFamily(),
		DnsRefreshRate: atLeast(time.Second, m.Config.GetDnsRefreshRate(), 60*time.Second), TypedDnsResolverConfig: resolver(),
	}
}

// dynamicCluster resolves hosts. What its rule says of names to verify is up to the rule, as it is for other clusters.
func dynamicCluster(out *draft, m *pushcontext.MeshView, c Class) {
	out.ClusterDiscoveryType = &clusterv3.Cluster_ClusterType{ClusterType: &clusterv3.Cluster_CustomClusterType{
		Name: "envoy.clusters.dynamic_forward_proxy", TypedConfig: pack(&dynamicv3.ClusterConfig{
			ClusterImplementationSpecifier: &dynamicv3.ClusterConfig_DnsCacheConfig{DnsCacheConfig: dnsCache(m, c)}, AllowInsecureClusterOptions: true})}}
	out.LbPolicy = clusterv3.Cluster_CLUSTER_PROVIDED
}

// sniForwarding is the network filter that has a connection sent to the host of its server name, at a port. It comes
// before the TCP proxy.
func sniForwarding(m *pushcontext.MeshView, c Class, port uint16) *sniv3.FilterConfig {
	return &sniv3.FilterConfig{DnsCacheConfig: dnsCache(m, c), PortSpecifier: &sniv3.FilterConfig_PortValue{PortValue: uint32(port)}}
}
