package gen

import (
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"google.golang.org/protobuf/proto"
)

// tlsTransport is Envoy's word for connections that begin with a TLS handshake.
const tlsTransport = "tls"

// The application protocols by which callers of the mesh are told from a workload's own TLS. Istio's
// proxies say whether what they carry is HTTP; others offer the protocol of plain streams.
func meshStreams() []string { return []string{"istio-peer-exchange", "istio"} }
func meshHTTP() []string    { return []string{"istio-http/1.0", "istio-http/1.1", "istio-h2"} }

// secureChains end mutual TLS. If that is not all that the entry takes, other TLS goes on as it is: it
// is the workload's own.
func (b *listenerBuilder) secureChains(e entry, others bool) []*listenerv3.FilterChain {
	match := func(protocols ...string) *listenerv3.FilterChainMatch {
		m := proto.CloneOf(e.match)
		m.TransportProtocol, m.ApplicationProtocols = tlsTransport, protocols
		return m
	}
	streams, all := match(), match()
	if others {
		streams, all = match(meshStreams()...), match(append(meshStreams(), meshHTTP()...)...)
	}
	var out []*listenerv3.FilterChain
	switch {
	case e.protocol.IsHTTP():
		return append(out, b.secure(b.inlineHTTP(e.name+"-mtls", all, e.protocol, e.table), httpProtocols()))
	case e.protocol.Sniffed():
		out = append(out, b.secure(b.inlineHTTP(e.http+"-mtls", match(meshHTTP()...), e.protocol, e.table), httpProtocols()))
		all = streams
	}
	out = append(out, b.secure(b.tcp(e.name+"-mtls", all, e.cluster), b.streamProtocols()))
	if others && e.tls == nil {
		out = append(out, b.tcp(e.name+"-tls", match(), e.cluster))
	}
	return out
}

func httpProtocols() []string { return []string{"h2", "http/1.1"} }

// streamProtocols offers to exchange metadata ahead of a stream only where a filter takes it out again.
func (b *listenerBuilder) streamProtocols() []string {
	if b.class.Extensions&ExtIstioMetadataExchange != 0 {
		return append([]string{"istio-peer-exchange"}, httpProtocols()...)
	}
	return httpProtocols()
}

// meshServerTLS is what a server of the mesh takes: Istio's cipher suites unless the mesh names others.
func (b *listenerBuilder) meshServerTLS() *tlsv3.CommonTlsContext {
	out := commonTLS(b.mesh, b.class.ServerTLS)
	if len(out.TlsParams.CipherSuites) == 0 {
		out.TlsParams.CipherSuites = []string{"ECDHE-ECDSA-AES256-GCM-SHA384", "ECDHE-RSA-AES256-GCM-SHA384", "ECDHE-ECDSA-AES128-GCM-SHA256",
			"ECDHE-RSA-AES128-GCM-SHA256", "AES256-GCM-SHA384", "AES128-GCM-SHA256"}
	}
	return out
}

// secure makes a chain end mutual TLS.
func (b *listenerBuilder) secure(chain *listenerv3.FilterChain, protocols []string) *listenerv3.FilterChain {
	common := b.meshServerTLS()
	common.AlpnProtocols = protocols
	chain.TransportSocket = &corev3.TransportSocket{Name: tlsSocketName, ConfigType: &corev3.TransportSocket_TypedConfig{
		TypedConfig: pack(&tlsv3.DownstreamTlsContext{CommonTlsContext: common, RequireClientCertificate: yes()})}}
	return chain
}
