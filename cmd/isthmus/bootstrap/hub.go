package bootstrap

import (
	"fmt"
	"net/netip"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	httpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
)

const (
	hubName     = "xds-grpc"
	localName   = "local_cluster" // as Istio's agent names it, and hubs answer
	httpOptions = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"
)

// hubCluster is the static cluster by which everything else is learned: plaintext HTTP/2 to the hub, with keepalive so that a hub
// that vanished without a word is noticed.
func hubCluster(hub string) ([]*clusterv3.Cluster, error) {
	host, port, err := splitHub(hub)
	if err != nil {
		return nil, err
	}
	options, err := anypb.New(hubProtocol())
	if err != nil {
		return nil, fmt.Errorf("hub cluster: %w", err)
	}
	kind := clusterv3.Cluster_STRICT_DNS
	if _, err := netip.ParseAddr(host); err == nil {
		kind = clusterv3.Cluster_STATIC
	}
	return []*clusterv3.Cluster{{
		Name:                          hubName,
		ClusterDiscoveryType:          &clusterv3.Cluster_Type{Type: kind},
		DnsLookupFamily:               clusterv3.Cluster_ALL, // the hub may listen on one address of those that its name has
		ConnectTimeout:                durationpb.New(time.Second),
		TypedExtensionProtocolOptions: map[string]*anypb.Any{httpOptions: options},
		LoadAssignment: &endpointv3.ClusterLoadAssignment{
			ClusterName: hubName,
			Endpoints: []*endpointv3.LocalityLbEndpoints{{LbEndpoints: []*endpointv3.LbEndpoint{{
				HostIdentifier: &endpointv3.LbEndpoint_Endpoint{Endpoint: &endpointv3.Endpoint{Address: socketAddress(host, port)}},
			}}}},
		},
	}}, nil
}

// localCluster is that of the proxy's peers, which nothing is sent to. Envoy takes no other than a static one.
func localCluster() *clusterv3.Cluster {
	return &clusterv3.Cluster{
		Name:                 localName,
		ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_EDS},
		ConnectTimeout:       durationpb.New(time.Second),
		EdsClusterConfig: &clusterv3.Cluster_EdsClusterConfig{ServiceName: localName, EdsConfig: &corev3.ConfigSource{
			ResourceApiVersion:    corev3.ApiVersion_V3,
			ConfigSourceSpecifier: &corev3.ConfigSource_Ads{Ads: &corev3.AggregatedConfigSource{}},
		}},
	}
}

func hubProtocol() *httpv3.HttpProtocolOptions {
	return &httpv3.HttpProtocolOptions{
		UpstreamProtocolOptions: &httpv3.HttpProtocolOptions_ExplicitHttpConfig_{
			ExplicitHttpConfig: &httpv3.HttpProtocolOptions_ExplicitHttpConfig{
				ProtocolConfig: &httpv3.HttpProtocolOptions_ExplicitHttpConfig_Http2ProtocolOptions{
					Http2ProtocolOptions: &corev3.Http2ProtocolOptions{ConnectionKeepalive: &corev3.KeepaliveSettings{
						Interval: durationpb.New(30 * time.Second),
						Timeout:  durationpb.New(10 * time.Second),
					}},
				},
			},
		},
	}
}
