package evaluate

import (
	"strconv"
	"strings"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	redisv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/redis_proxy/v3"
	tcpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
)

// filters finds the filter of a chain that decides, and asks it.
func (c *Config) filters(chain *listenerv3.FilterChain, r *Request, out *Result) {
	sni := false
	for _, f := range chain.Filters {
		switch config := f.GetTypedConfig(); {
		case strings.HasSuffix(config.GetTypeUrl(), ".sni_cluster.v3.SniCluster"):
			sni = true
		case is(config, &hcmv3.HttpConnectionManager{}):
			c.http(decode(config, &hcmv3.HttpConnectionManager{}), r, out)
			return
		case is(config, &redisv3.RedisProxy{}):
			p := decode(config, &redisv3.RedisProxy{})
			c.send(out, p.GetPrefixRoutes().GetCatchAllRoute().GetCluster())
			return
		case is(config, &tcpv3.TcpProxy{}):
			if sni {
				c.send(out, r.ServerName)
				return
			}
			c.tcp(decode(config, &tcpv3.TcpProxy{}), out)
			return
		}
	}
	out.Kind = Closed
}

func is(a *anypb.Any, m proto.Message) bool { return a.MessageIs(m) }

// decode gives the message, empty if it can't be read.
func decode[M proto.Message](a *anypb.Any, m M) M {
	_ = a.UnmarshalTo(m) // an unreadable filter was refused by the proxy
	return m
}

func (c *Config) tcp(p *tcpv3.TcpProxy, out *Result) {
	list := p.GetWeightedClusters().GetClusters()
	if len(list) == 0 {
		c.send(out, p.GetCluster())
		return
	}
	total := uint64(0)
	for _, w := range list {
		total += uint64(w.Weight)
	}
	for _, w := range list {
		c.share(out, w.Name, uint64(w.Weight), total)
	}
}

// send gives everything to one cluster.
func (c *Config) send(out *Result, cluster string) { c.share(out, cluster, 1, 1) }

// share gives a part of everything to a cluster.
func (c *Config) share(out *Result, cluster string, part, total uint64) {
	out.Kind = ToCluster
	s := Share{Cluster: cluster, Percent: 100 * float64(part) / float64(max(total, 1))}
	x := c.clusters[cluster]
	if x == nil {
		s.Missing = true
		out.step("cluster", cluster, "the proxy has no such cluster: requests to it fail with 503")
	} else {
		s.Endpoints = c.endpointsOf(x)
		out.step("cluster", cluster, endpointsText(x, len(s.Endpoints)), configOf(x.Metadata)...)
	}
	out.Clusters = append(out.Clusters, s)
}

func endpointsText(x *clusterv3.Cluster, n int) string {
	switch {
	case x.GetType() == clusterv3.Cluster_ORIGINAL_DST:
		return "where the connection was going"
	case x.GetClusterType().GetName() == "envoy.clusters.dynamic_forward_proxy":
		return "where the host that is asked for is, as the proxy resolves it"
	case n == 0:
		return "no endpoints: requests to it fail with 503"
	}
	return strconv.Itoa(n) + " endpoints, " + x.GetType().String()
}

func portText(p uint16) string { return strconv.Itoa(int(p)) }
