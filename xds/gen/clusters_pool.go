package gen

import (
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
	meshconfig "istio.io/api/mesh/v1alpha1"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/isthmus-mesh/isthmus/pushcontext"
)

// applyPool sets limits and timeouts of connections. It comes after the HTTP version is set.
func applyPool(out *draft, m *pushcontext.MeshView, p *networking.ConnectionPoolSettings) {
	t := out.CircuitBreakers.Thresholds[0]
	limit(&t.MaxConnections, p.GetTcp().GetMaxConnections())
	limit(&t.MaxPendingRequests, p.GetHttp().GetHttp1MaxPendingRequests())
	limit(&t.MaxRequests, p.GetHttp().GetHttp2MaxRequests())
	limit(&t.MaxRetries, p.GetHttp().GetMaxRetries())
	if d := positive(p.GetTcp().GetConnectTimeout()); d != nil && d.AsDuration() >= time.Millisecond {
		out.ConnectTimeout = d
	}
	out.UpstreamConnectionOptions = keepalive(m.Config.GetTcpKeepalive(), p.GetTcp().GetTcpKeepalive())
	applyConnections(out, p)
	applyHTTP2(out, p.GetHttp())
}

func limit(field **wrapperspb.UInt32Value, n int32) {
	if n > 0 {
		*field = u32(uint32(n))
	}
}

// applyConnections limits how long connections live, of HTTP and, as far as Envoy keeps them, of TCP.
func applyConnections(out *draft, p *networking.ConnectionPoolSettings) {
	common := &corev3.HttpProtocolOptions{MaxConnectionDuration: positive(p.GetTcp().GetMaxConnectionDuration())}
	if common.IdleTimeout = timeout(p.GetHttp().GetIdleTimeout()); common.IdleTimeout == nil {
		common.IdleTimeout = timeout(p.GetTcp().GetIdleTimeout())
	}
	limit(&common.MaxRequestsPerConnection, p.GetHttp().GetMaxRequestsPerConnection())
	if common.IdleTimeout != nil || common.MaxConnectionDuration != nil || common.MaxRequestsPerConnection != nil {
		out.options().CommonHttpProtocolOptions = common
	}
}

// timeout gives d where 0 means that there is none, nil for Envoy's default.
func timeout(d *durationpb.Duration) *durationpb.Duration {
	if d == nil || !d.IsValid() || d.AsDuration() < 0 {
		return nil
	}
	return d
}

// applyHTTP2 sets how HTTP/2 connections are used.
func applyHTTP2(out *draft, p *networking.ConnectionPoolSettings_HTTPSettings) {
	if p.GetUseClientProtocol() {
		out.asDownstream()
	}
	o := out.http2Options()
	if o == nil {
		return
	}
	limit(&o.MaxConcurrentStreams, p.GetMaxConcurrentStreams())
	interval, wait := p.GetHttp2KeepAlive().GetInterval(), p.GetHttp2KeepAlive().GetTimeout()
	if pings(interval) && pings(wait) {
		o.ConnectionKeepalive = &corev3.KeepaliveSettings{Interval: interval, Timeout: wait}
	}
}

// pings reports whether Envoy takes the duration in keepalive settings.
func pings(d *durationpb.Duration) bool {
	return d != nil && d.IsValid() && d.AsDuration() >= time.Millisecond
}

// applyUpgrade has HTTP/1.1 requests sent as HTTP/2: where a rule says so, whatever the port is, or where the mesh does
// on ports that say HTTP. What the client's protocol decides is not upgraded.
func applyUpgrade(out *draft, d destination, p *networking.ConnectionPoolSettings_HTTPSettings) {
	switch {
	case p.GetUseClientProtocol(), p.GetH2UpgradePolicy() == networking.ConnectionPoolSettings_HTTPSettings_DO_NOT_UPGRADE:
	case p.GetH2UpgradePolicy() == networking.ConnectionPoolSettings_HTTPSettings_UPGRADE,
		d.port.Protocol.IsHTTP() && d.shape.Mesh.Config.GetH2UpgradePolicy() == meshconfig.MeshConfig_UPGRADE:
		out.http2Only()
	}
}

// applyRetryBudget limits concurrent retries to a part of the requests under way, in the place of a fixed number.
func applyRetryBudget(out *draft, b *networking.TrafficPolicy_RetryBudget) {
	if b == nil {
		return
	}
	budget := &clusterv3.CircuitBreakers_Thresholds_RetryBudget{BudgetPercent: &typev3.Percent{Value: 20}, MinRetryConcurrency: u32(3)}
	if p := b.Percent; p != nil && p.Value >= 0 && p.Value <= 100 {
		budget.BudgetPercent.Value = p.Value
	}
	if b.MinRetryConcurrency > 0 {
		budget.MinRetryConcurrency = u32(b.MinRetryConcurrency)
	}
	budget.BudgetInterval = positive(b.BudgetInterval)
	out.CircuitBreakers.Thresholds[0].RetryBudget = budget
}

// keepalive has connections probed while nothing is sent: single settings go before those of the mesh, and the
// system's own are in force for what neither sets. It is nil if there are no settings.
func keepalive(mesh, own *networking.ConnectionPoolSettings_TCPSettings_TcpKeepalive) *clusterv3.UpstreamConnectionOptions {
	if mesh == nil && own == nil {
		return nil
	}
	out := &corev3.TcpKeepalive{}
	for _, k := range []*networking.ConnectionPoolSettings_TCPSettings_TcpKeepalive{mesh, own} {
		if n := k.GetProbes(); n > 0 {
			out.KeepaliveProbes = u32(n)
		}
		if s := k.GetTime().GetSeconds(); s > 0 {
			out.KeepaliveTime = u32(clip(uint64(s)))
		}
		if s := k.GetInterval().GetSeconds(); s > 0 {
			out.KeepaliveInterval = u32(clip(uint64(s)))
		}
	}
	return &clusterv3.UpstreamConnectionOptions{TcpKeepalive: out}
}
