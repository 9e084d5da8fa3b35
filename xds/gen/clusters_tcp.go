package gen

import (
	"cmp"
	"net"
	"strconv"

	tcpproxyv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/durationpb"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/isthmus-mesh/isthmus/pushcontext"
)

// tcpPolicy is what the DestinationRule in force adds to a TCP proxy that sends to a destination. The zero value is
// nothing.
type tcpPolicy struct {
	hash   []*typev3.HashPolicy
	idle   *durationpb.Duration // 0 for no timeout; nil for Envoy's default
	tunnel *tcpproxyv3.TcpProxy_TunnelingConfig
}

// streamPolicy gives what a rule, which may be nil, says of connections to a port, or to a subset there.
func streamPolicy(p *pushcontext.DestinationPolicy, port uint16, subset string, m *pushcontext.MeshView) tcpPolicy {
	r, ok := ruleNamed(p, port, subset)
	if !ok {
		return tcpPolicy{}
	}
	pool := cmp.Or(r.pool, m.Config.GetDefaultTrafficPolicy().GetConnectionPool())
	return tcpPolicy{
		hash:   tcpHashPolicies(r.balancer.GetConsistentHash()),
		idle:   timeout(pool.GetTcp().GetIdleTimeout()),
		tunnel: tunneling(r.tunnel),
	}
}

// tunneling sends connections through an HTTP proxy, nil if it is not one that could be asked for anything.
func tunneling(t *networking.TrafficPolicy_TunnelSettings) *tcpproxyv3.TcpProxy_TunnelingConfig {
	if t.GetTargetHost() == "" || t.TargetPort == 0 || t.TargetPort > 65535 {
		return nil
	}
	return &tcpproxyv3.TcpProxy_TunnelingConfig{
		Hostname: net.JoinHostPort(t.TargetHost, strconv.Itoa(int(t.TargetPort))), UsePost: t.Protocol == "POST",
	}
}
