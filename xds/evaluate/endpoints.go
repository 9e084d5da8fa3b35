package evaluate

import (
	"net"
	"strings"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
)

// endpointsOf lists the endpoints of a cluster, in the order in which it was sent them.
func (c *Config) endpointsOf(x *clusterv3.Cluster) (out []Endpoint) {
	load := x.LoadAssignment
	if x.GetType() == clusterv3.Cluster_EDS {
		name := x.GetEdsClusterConfig().GetServiceName()
		if name == "" {
			name = x.Name
		}
		load = c.endpoints[name]
	}
	for _, g := range load.GetEndpoints() {
		for _, e := range g.LbEndpoints {
			out = append(out, Endpoint{
				Address: addressText(e.GetEndpoint().GetAddress()), Locality: localityText(g.Locality), Priority: g.Priority,
				Weight: e.GetLoadBalancingWeight().GetValue(), Health: e.HealthStatus.String(),
			})
		}
	}
	return out
}

func addressText(a *corev3.Address) string {
	if s := a.GetSocketAddress(); s != nil {
		return net.JoinHostPort(s.Address, portText(uint16(s.GetPortValue())))
	}
	if i := a.GetEnvoyInternalAddress(); i != nil {
		return i.GetServerListenerName()
	}
	return a.GetPipe().GetPath()
}

func localityText(l *corev3.Locality) string {
	return strings.TrimRight(l.GetRegion()+"/"+l.GetZone()+"/"+l.GetSubZone(), "/")
}
