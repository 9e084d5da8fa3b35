package gen

import (
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	corsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/cors/v3"
	faultv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/fault/v3"
	grpcstatsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/grpc_stats/v3"
	grpcwebv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/grpc_web/v3"
	routerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/proto"
	meshconfig "istio.io/api/mesh/v1alpha1"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
)

// direction is which way traffic flows, seen from the workload.
type direction uint8

const (
	outbound direction = iota
	inbound
)

// http is a chain that routes by a table that the proxy subscribes to.
func (b *listenerBuilder) http(name string, match *listenerv3.FilterChainMatch, table string) *listenerv3.FilterChain {
	m := b.manager("outbound_"+b.name(), outbound, b.protocol)
	m.RouteSpecifier = &hcmv3.HttpConnectionManager_Rds{Rds: &hcmv3.Rds{ConfigSource: ads(), RouteConfigName: table}}
	return managerChain(name, match, m)
}

// inlineHTTP is a chain that routes by a table of its own.
func (b *listenerBuilder) inlineHTTP(name string, match *listenerv3.FilterChainMatch, p model.Protocol, table *routev3.RouteConfiguration) *listenerv3.FilterChain {
	m := b.manager("inbound_"+b.name(), inbound, p)
	m.RouteSpecifier = &hcmv3.HttpConnectionManager_RouteConfig{RouteConfig: table}
	return managerChain(name, match, m)
}

func managerChain(name string, match *listenerv3.FilterChainMatch, m *hcmv3.HttpConnectionManager) *listenerv3.FilterChain {
	return &listenerv3.FilterChain{Name: name, FilterChainMatch: match,
		Filters: []*listenerv3.Filter{networkFilter("envoy.filters.network.http_connection_manager", m)}}
}

func (b *listenerBuilder) manager(stat string, d direction, p model.Protocol) *hcmv3.HttpConnectionManager {
	m := &hcmv3.HttpConnectionManager{
		StatPrefix:        stat,
		HttpFilters:       b.httpFilters(d, p),
		AccessLog:         accessLogs(b.class, b.mesh, d, requests),
		UseRemoteAddress:  no(),
		StreamIdleTimeout: zero(),
		UpgradeConfigs:    []*hcmv3.HttpConnectionManager_UpgradeConfig{{UpgradeType: "websocket"}},
	}
	if d == inbound && b.class.ServerTLS.Complete() {
		// The workload learns who calls. Envoy takes the header off a call in cleartext.
		m.ForwardClientCertDetails = hcmv3.HttpConnectionManager_APPEND_FORWARD
		m.SetCurrentClientCertDetails = &hcmv3.HttpConnectionManager_SetCurrentClientCertDetails{Subject: yes(), Dns: true, Uri: true}
	}
	if b.class.HTTP10 {
		m.HttpProtocolOptions = &corev3.Http1ProtocolOptions{AcceptHttp_10: true}
	}
	if idle := b.idle(); idle != nil {
		m.CommonHttpProtocolOptions = &corev3.HttpProtocolOptions{IdleTimeout: idle}
	}
	applyTracing(m, b.class, b.mesh, d)
	b.normalize(m)
	return m
}

// normalize applies the mesh's pathNormalization; BASE is the default.
func (b *listenerBuilder) normalize(m *hcmv3.HttpConnectionManager) {
	switch b.mesh.Config.GetPathNormalization().GetNormalization() {
	case meshconfig.MeshConfig_ProxyPathNormalization_NONE:
		m.NormalizePath = no()
	case meshconfig.MeshConfig_ProxyPathNormalization_MERGE_SLASHES:
		m.NormalizePath, m.MergeSlashes = yes(), true
	case meshconfig.MeshConfig_ProxyPathNormalization_DECODE_AND_MERGE_SLASHES:
		m.NormalizePath, m.MergeSlashes = yes(), true
		m.PathWithEscapedSlashesAction = hcmv3.HttpConnectionManager_UNESCAPE_AND_FORWARD
	default:
		m.NormalizePath = yes()
	}
}

// httpFilters are in the order of the contract; those of Istio's own Envoy only where it has them.
func (b *listenerBuilder) httpFilters(d direction, p model.Protocol) []*hcmv3.HttpFilter {
	fs := peerMetadata(b.class, d)
	if p == model.ProtocolGRPCWeb {
		fs = append(fs, httpFilter("envoy.filters.http.grpc_web", &grpcwebv3.GrpcWeb{}))
	}
	fs = append(fs, httpFilter("envoy.filters.http.grpc_stats", &grpcstatsv3.FilterConfig{
		EmitFilterState: true, PerMethodStatSpecifier: &grpcstatsv3.FilterConfig_StatsForAllMethods{StatsForAllMethods: no()}}))
	if d == outbound {
		fs = append(fs, alpnOverride(b.class)...)
	}
	fs = append(fs, httpFilter("envoy.filters.http.fault", &faultv3.HTTPFault{}), httpFilter("envoy.filters.http.cors", &corsv3.Cors{}))
	fs = append(fs, httpStats(b.class, b.mesh, d)...)
	return append(fs, httpFilter("envoy.filters.http.router", &routerv3.Router{}))
}

func httpFilter(name string, config proto.Message) *hcmv3.HttpFilter {
	return &hcmv3.HttpFilter{Name: name, ConfigType: &hcmv3.HttpFilter_TypedConfig{TypedConfig: pack(config)}}
}
