package gen

import (
	udpa "github.com/cncf/xds/go/udpa/type/v1"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/types/known/structpb"
	alpn "istio.io/api/envoy/config/filter/http/alpn/v2alpha1"
	exchange "istio.io/api/envoy/config/filter/network/metadata_exchange"

	"github.com/isthmus-mesh/isthmus/pushcontext"
)

// Filters that only Istio's Envoy build has. A stock Envoy refuses the whole listener for one unknown
// filter, so each is made only for nodes that list it.

func networkExtensions(c Class, m *pushcontext.MeshView, d direction) []*listenerv3.Filter {
	var out []*listenerv3.Filter
	if c.Extensions&ExtIstioMetadataExchange != 0 {
		out = append(out, networkFilter("istio.metadata_exchange", &exchange.MetadataExchange{Protocol: "istio-peer-exchange"}))
	}
	if s := statistics(c, m, d); s != nil && c.Extensions&ExtIstioStats != 0 {
		out = append(out, networkFilter("istio.stats", s))
	}
	return out
}

// peerMetadata exchanges workload identities in request headers. The filter goes by the name that tools
// look for, not by that of its type.
func peerMetadata(c Class, d direction) []*hcmv3.HttpFilter {
	if c.Extensions&ExtIstioPeerMetadata == 0 {
		return nil
	}
	peer := "upstream"
	if d == inbound {
		peer = "downstream"
	}
	headers := structpb.NewListValue(&structpb.ListValue{Values: []*structpb.Value{
		structpb.NewStructValue(structOf(map[string]*structpb.Value{"istio_headers": structpb.NewStructValue(&structpb.Struct{})}))}})
	return []*hcmv3.HttpFilter{httpFilter("istio.metadata_exchange", &udpa.TypedStruct{
		TypeUrl: "type.googleapis.com/io.istio.http.peer_metadata.Config",
		Value:   structOf(map[string]*structpb.Value{peer + "_discovery": headers, peer + "_propagation": headers}),
	})}
}

// alpnOverride offers upstream the protocols of the mesh beside the plain ones.
func alpnOverride(c Class) []*hcmv3.HttpFilter {
	if c.Extensions&ExtIstioALPN == 0 {
		return nil
	}
	return []*hcmv3.HttpFilter{httpFilter("istio.alpn", &alpn.FilterConfig{AlpnOverride: []*alpn.FilterConfig_AlpnOverride{
		{UpstreamProtocol: alpn.FilterConfig_HTTP10, AlpnOverride: []string{"istio-http/1.0", "istio", "http/1.0"}},
		{UpstreamProtocol: alpn.FilterConfig_HTTP11, AlpnOverride: []string{"istio-http/1.1", "istio", "http/1.1"}},
		{UpstreamProtocol: alpn.FilterConfig_HTTP2, AlpnOverride: []string{"istio-h2", "istio", "h2"}},
	}})}
}

func httpStats(c Class, m *pushcontext.MeshView, d direction) []*hcmv3.HttpFilter {
	s := statistics(c, m, d)
	if s == nil || c.Extensions&ExtIstioStats == 0 {
		return nil
	}
	s.DisableHostHeaderFallback = d == inbound
	return []*hcmv3.HttpFilter{httpFilter("istio.stats", s)}
}
