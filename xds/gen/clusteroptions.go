package gen

import (
	"math"
	"strconv"
	"strings"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	httpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/wrapperspb"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/pushcontext"
)

// httpOptionsKey is where a cluster's upstream HTTP options live.
const httpOptionsKey = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"

// baseCluster has what every cluster has: the mesh's timeouts, and limits that never bite.
func baseCluster(m *pushcontext.MeshView, name string) *clusterv3.Cluster {
	out := &clusterv3.Cluster{
		Name:            name,
		ConnectTimeout:  atLeast(time.Millisecond, m.Config.GetConnectTimeout(), 10*time.Second),
		CircuitBreakers: &clusterv3.CircuitBreakers{Thresholds: []*clusterv3.CircuitBreakers_Thresholds{unlimited()}},
	}
	out.UpstreamConnectionOptions = keepalive(m.Config.GetTcpKeepalive())
	return out
}

func unlimited() *clusterv3.CircuitBreakers_Thresholds {
	return &clusterv3.CircuitBreakers_Thresholds{
		MaxConnections: u32(math.MaxUint32), MaxPendingRequests: u32(math.MaxUint32),
		MaxRequests: u32(math.MaxUint32), MaxRetries: u32(math.MaxUint32), TrackRemaining: true,
	}
}

func keepalive(k *networking.ConnectionPoolSettings_TCPSettings_TcpKeepalive) *clusterv3.UpstreamConnectionOptions {
	if k == nil {
		return nil
	}
	out := &corev3.TcpKeepalive{}
	if k.Probes > 0 {
		out.KeepaliveProbes = u32(k.Probes)
	}
	if s := k.Time.GetSeconds(); s > 0 {
		out.KeepaliveTime = u32(clip(uint64(s)))
	}
	if s := k.Interval.GetSeconds(); s > 0 {
		out.KeepaliveInterval = u32(clip(uint64(s)))
	}
	return &clusterv3.UpstreamConnectionOptions{TcpKeepalive: out}
}

// applyDNS sets how names are resolved; the record's own lifetime goes before the refresh rate. The
// fields have successors in an extension that proxies of the last few years do not know yet.
func applyDNS(out *clusterv3.Cluster, m *pushcontext.MeshView, c Class) {
	//lint:ignore SA1019 the successor is unknown to older proxies
	out.DnsRefreshRate = atLeast(2*time.Millisecond, m.Config.GetDnsRefreshRate(), 60*time.Second)
	//lint:ignore SA1019 the successor is unknown to older proxies
	out.RespectDnsTtl = true
	switch {
	case c.IPv4 && c.IPv6:
		out.DnsLookupFamily = clusterv3.Cluster_ALL
	case c.IPv6:
		out.DnsLookupFamily = clusterv3.Cluster_V6_ONLY
	default:
		out.DnsLookupFamily = clusterv3.Cluster_V4_ONLY
	}
}

// applyProtocol sets the upstream HTTP version. A detected protocol is whatever the caller speaks;
// routers without listeners do not detect, so there it stays HTTP/1.1.
func applyProtocol(out *clusterv3.Cluster, p model.Protocol, c Class) {
	switch {
	case p.IsHTTP2():
		setHTTPOptions(out, http2Only())
	case p.Sniffed() && !c.silent():
		setHTTPOptions(out, asDownstream())
	}
}

// applyInboundProtocol passes on what the caller speaks unless the port says HTTP/2.
func applyInboundProtocol(out *clusterv3.Cluster, p model.Protocol) {
	switch {
	case p.IsHTTP2():
		setHTTPOptions(out, http2Only())
	case p.IsHTTP(), p.Sniffed():
		setHTTPOptions(out, asDownstream())
	}
}

func setHTTPOptions(out *clusterv3.Cluster, o *httpv3.HttpProtocolOptions) {
	out.TypedExtensionProtocolOptions = map[string]*anypb.Any{httpOptionsKey: pack(o)}
}

func http2Only() *httpv3.HttpProtocolOptions {
	return &httpv3.HttpProtocolOptions{UpstreamProtocolOptions: &httpv3.HttpProtocolOptions_ExplicitHttpConfig_{
		ExplicitHttpConfig: &httpv3.HttpProtocolOptions_ExplicitHttpConfig{
			ProtocolConfig: &httpv3.HttpProtocolOptions_ExplicitHttpConfig_Http2ProtocolOptions{
				Http2ProtocolOptions: &corev3.Http2ProtocolOptions{}}}}}
}

func asDownstream() *httpv3.HttpProtocolOptions {
	return &httpv3.HttpProtocolOptions{UpstreamProtocolOptions: &httpv3.HttpProtocolOptions_UseDownstreamProtocolConfig{
		UseDownstreamProtocolConfig: &httpv3.HttpProtocolOptions_UseDownstreamHttpConfig{
			HttpProtocolOptions:  &corev3.Http1ProtocolOptions{},
			Http2ProtocolOptions: &corev3.Http2ProtocolOptions{}}}}
}

// applyTraffic sets locality weighting or zone-aware balancing, the panic threshold, outlier detection and the mesh's connection
// pool, as the policy for proxies of the namespace says. Where unready endpoints are sent there is no
// panic: they take no traffic however many they are.
func applyTraffic(out *clusterv3.Cluster, s *pushcontext.ShapeView, port model.Port, c Class) {
	p := policyOf(s, port, c.Namespace)
	out.CommonLbConfig = &clusterv3.Cluster_CommonLbConfig{
		HealthyPanicThreshold: &typev3.Percent{Value: float64(p.minHealthPercent)},
	}
	if p.weighted {
		out.CommonLbConfig.LocalityConfigSpecifier = &clusterv3.Cluster_CommonLbConfig_LocalityWeightedLbConfig_{
			LocalityWeightedLbConfig: &clusterv3.Cluster_CommonLbConfig_LocalityWeightedLbConfig{}}
	}
	if !p.weighted {
		applyZones(out, p.zones, c)
	}
	applyPool(out, s.Mesh.Config.GetDefaultTrafficPolicy().GetConnectionPool())
	if out.GetType() != clusterv3.Cluster_ORIGINAL_DST {
		applyOutlier(out, p.outlier)
	}
}

// applyPool sets limits and timeouts of connections from the mesh's default connection pool.
func applyPool(out *clusterv3.Cluster, p *networking.ConnectionPoolSettings) {
	t := out.CircuitBreakers.Thresholds[0]
	limit(&t.MaxConnections, p.GetTcp().GetMaxConnections())
	limit(&t.MaxPendingRequests, p.GetHttp().GetHttp1MaxPendingRequests())
	limit(&t.MaxRequests, p.GetHttp().GetHttp2MaxRequests())
	limit(&t.MaxRetries, p.GetHttp().GetMaxRetries())
	if d := positive(p.GetTcp().GetConnectTimeout()); d != nil {
		out.ConnectTimeout = d
	}
	if k := p.GetTcp().GetTcpKeepalive(); k != nil {
		out.UpstreamConnectionOptions = keepalive(k)
	}
}

func limit(field **wrapperspb.UInt32Value, n int32) {
	if n > 0 {
		*field = u32(uint32(n))
	}
}

// outboundStatName expands the mesh's pattern for statistics of outbound clusters, "" if unset.
func outboundStatName(s *pushcontext.ShapeView, p model.Port) string {
	return statName(s.Mesh.Config.GetOutboundClusterStatName(), s.Key.Host, s.Name, s.Key.Namespace, p.Name, p.Number)
}

func inboundStatName(m *pushcontext.MeshView, p inboundPort) string {
	t := p.targets[0]
	return statName(m.Config.GetInboundClusterStatName(), t.Host, t.Name, t.Namespace, t.PortName, t.Port)
}

func statName(pattern, host, name, namespace, portName string, port uint16) string {
	if pattern == "" {
		return ""
	}
	short := name
	if namespace != "" {
		short += "." + namespace
	}
	return strings.NewReplacer(
		"%SERVICE%", short, "%SERVICE_NAME%", name, "%SERVICE_FQDN%", host,
		"%SERVICE_PORT%", strconv.Itoa(int(port)), "%TARGET_PORT%", strconv.Itoa(int(port)),
		"%SERVICE_PORT_NAME%", portName, "%SUBSET_NAME%", "",
	).Replace(pattern)
}
