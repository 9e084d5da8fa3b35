package gen

import (
	"cmp"
	"math"
	"strings"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	caresv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/network/dns_resolver/cares/v3"
	httpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/pushcontext"
)

// httpOptionsKey is where a cluster's upstream HTTP options live.
const httpOptionsKey = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"

// draft is a cluster in the making.
type draft struct {
	*clusterv3.Cluster
	http *httpv3.HttpProtocolOptions // upstream HTTP options; nil if nothing is set
}

// options are the upstream HTTP options, to be set.
func (d *draft) options() *httpv3.HttpProtocolOptions {
	if d.http == nil {
		d.http = &httpv3.HttpProtocolOptions{}
	}
	return d.http
}

// finish gives the cluster. Without a protocol it speaks HTTP/1.1.
func (d *draft) finish() *clusterv3.Cluster {
	if d.http == nil {
		return d.Cluster
	}
	if d.http.UpstreamProtocolOptions == nil {
		d.http.UpstreamProtocolOptions = &httpv3.HttpProtocolOptions_ExplicitHttpConfig_{
			ExplicitHttpConfig: &httpv3.HttpProtocolOptions_ExplicitHttpConfig{
				ProtocolConfig: &httpv3.HttpProtocolOptions_ExplicitHttpConfig_HttpProtocolOptions{
					HttpProtocolOptions: &corev3.Http1ProtocolOptions{}}}}
	}
	d.TypedExtensionProtocolOptions = map[string]*anypb.Any{httpOptionsKey: pack(d.http)}
	return d.Cluster
}

// baseCluster has what every cluster has: the mesh's timeouts, and limits that never bite.
func baseCluster(m *pushcontext.MeshView, name string) *draft {
	return &draft{Cluster: &clusterv3.Cluster{
		Name:                      name,
		ConnectTimeout:            atLeast(time.Millisecond, m.Config.GetConnectTimeout(), 10*time.Second),
		CircuitBreakers:           &clusterv3.CircuitBreakers{Thresholds: []*clusterv3.CircuitBreakers_Thresholds{unlimited()}},
		UpstreamConnectionOptions: keepalive(nil, m.Config.GetTcpKeepalive()),
	}}
}

func unlimited() *clusterv3.CircuitBreakers_Thresholds {
	return &clusterv3.CircuitBreakers_Thresholds{
		MaxConnections: u32(math.MaxUint32), MaxPendingRequests: u32(math.MaxUint32),
		MaxRequests: u32(math.MaxUint32), MaxRetries: u32(math.MaxUint32), TrackRemaining: true,
	}
}

// applyDNS sets how names are resolved; the record's own lifetime goes before the refresh rate. The
// fields have successors in an extension that proxies of the last few years do not know yet.
func applyDNS(out *draft, m *pushcontext.MeshView, c Class) {
	//lint:ignore SA1019 the successor is unknown to older proxies
	out.DnsRefreshRate = atLeast(2*time.Millisecond, m.Config.GetDnsRefreshRate(), 60*time.Second)
	//lint:ignore SA1019 the successor is unknown to older proxies
	out.RespectDnsTtl = true
	//lint:ignore SA1019 the successor is unknown to older proxies
	out.DnsJitter = durationpb.New(100 * time.Millisecond)
	out.TypedDnsResolverConfig = resolver()
	out.DnsLookupFamily = c.lookupFamily()
}

func (c Class) lookupFamily() clusterv3.Cluster_DnsLookupFamily {
	switch {
	case c.IPv4 && c.IPv6:
		return clusterv3.Cluster_ALL
	case c.IPv6:
		return clusterv3.Cluster_V6_ONLY
	}
	return clusterv3.Cluster_V4_ONLY
}

// resolver opens a new socket after some queries, so that one that has gone deaf does not last.
func resolver() *corev3.TypedExtensionConfig {
	return &corev3.TypedExtensionConfig{Name: "envoy.network.dns_resolver.cares", TypedConfig: pack(&caresv3.CaresDnsResolverConfig{UdpMaxQueries: u32(100)})}
}

// applyProtocol sets the upstream HTTP version. A detected protocol is whatever the caller speaks;
// routers without listeners do not detect, so there it stays HTTP/1.1.
func applyProtocol(out *draft, p model.Protocol, c Class) {
	switch {
	case p.IsHTTP2():
		out.http2Only()
	case p.Sniffed() && !c.silent():
		out.asDownstream()
	}
}

// applyInboundProtocol passes on what the caller speaks unless the port says HTTP/2.
func applyInboundProtocol(out *draft, p model.Protocol) {
	switch {
	case p.IsHTTP2():
		out.http2Only()
	case p.IsHTTP(), p.Sniffed():
		out.asDownstream()
	}
}

func (d *draft) http2Only() {
	d.options().UpstreamProtocolOptions = &httpv3.HttpProtocolOptions_ExplicitHttpConfig_{
		ExplicitHttpConfig: &httpv3.HttpProtocolOptions_ExplicitHttpConfig{
			ProtocolConfig: &httpv3.HttpProtocolOptions_ExplicitHttpConfig_Http2ProtocolOptions{
				Http2ProtocolOptions: &corev3.Http2ProtocolOptions{}}}}
}

func (d *draft) asDownstream() {
	d.options().UpstreamProtocolOptions = &httpv3.HttpProtocolOptions_UseDownstreamProtocolConfig{
		UseDownstreamProtocolConfig: &httpv3.HttpProtocolOptions_UseDownstreamHttpConfig{
			HttpProtocolOptions:  &corev3.Http1ProtocolOptions{},
			Http2ProtocolOptions: &corev3.Http2ProtocolOptions{}}}
}

// onlyHTTP2 reports whether the cluster speaks HTTP/2 and nothing else.
func (d *draft) onlyHTTP2() bool {
	return d.http.GetExplicitHttpConfig().GetHttp2ProtocolOptions() != nil
}

// http2Options are those of HTTP/2 connections, nil if the cluster makes none.
func (d *draft) http2Options() *corev3.Http2ProtocolOptions {
	return cmp.Or(d.http.GetExplicitHttpConfig().GetHttp2ProtocolOptions(), d.http.GetUseDownstreamProtocolConfig().GetHttp2ProtocolOptions())
}

// applyTraffic sets how endpoints are chosen and how many connections are made, as the policy of the destination
// says. Where unready endpoints are sent there is no panic: they take no traffic however many they are.
func applyTraffic(out *draft, d destination, c Class) {
	p := makePolicy(d.shape, d.rule)
	out.CommonLbConfig = &clusterv3.Cluster_CommonLbConfig{
		HealthyPanicThreshold: &typev3.Percent{Value: float64(p.minHealthPercent)},
	}
	if d.shape.Persistent { // endpoints that go away keep the sessions that they have
		out.CommonLbConfig.OverrideHostStatus = &corev3.HealthStatusSet{Statuses: []corev3.HealthStatus{
			corev3.HealthStatus_HEALTHY, corev3.HealthStatus_DRAINING, corev3.HealthStatus_UNKNOWN, corev3.HealthStatus_DEGRADED}}
	}
	if p.weighted {
		out.CommonLbConfig.LocalityConfigSpecifier = &clusterv3.Cluster_CommonLbConfig_LocalityWeightedLbConfig_{
			LocalityWeightedLbConfig: &clusterv3.Cluster_CommonLbConfig_LocalityWeightedLbConfig{}}
	} else {
		applyZones(out.Cluster, p.zones, c)
	}
	applyUpgrade(out, d, p.pool.GetHttp())
	applyPool(out, d.shape.Mesh, p.pool)
	applyRetryBudget(out, d.rule.retries)
	if out.LbPolicy != clusterv3.Cluster_CLUSTER_PROVIDED {
		applyBalancer(out, d.rule.balancer, p.weighted)
		applyOutlier(out, p.outlier)
	}
}

// outboundStatName expands the mesh's pattern for statistics of outbound clusters, "" if unset.
func outboundStatName(d destination) string {
	s, target := d.shape, cmp.Or(d.port.TargetPort, d.port.Number)
	return statName(s.Mesh.Config.GetOutboundClusterStatName(), statRef{s.Key.Host, s.Name, s.Key.Namespace, d.port.Name, d.subset(), d.port.Number, target})
}

// statRef is what names of statistics are made from.
type statRef struct {
	host, name, namespace, portName, subset string
	port, target                            uint16
}

func statName(pattern string, r statRef) string {
	if pattern == "" {
		return ""
	}
	short := r.name
	if r.namespace != "" {
		short += "." + r.namespace
	}
	return strings.NewReplacer(
		"%SERVICE%", short, "%SERVICE_NAME%", r.name, "%SERVICE_FQDN%", r.host,
		"%SERVICE_PORT%", itoa(r.port), "%TARGET_PORT%", itoa(r.target),
		"%SERVICE_PORT_NAME%", r.portName, "%SUBSET_NAME%", r.subset,
	).Replace(pattern)
}
