package evaluate

import (
	"slices"
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

// blackHole is the cluster that takes what is to go nowhere.
const blackHole = "BlackHoleCluster"

// share gives a part of everything to a cluster.
func (c *Config) share(out *Result, cluster string, part, total uint64) {
	out.Kind = ToCluster
	s := Share{Cluster: cluster, Percent: 100 * float64(part) / float64(max(total, 1))}
	x := c.clusters[cluster]
	if s.Missing = x == nil; !s.Missing {
		s.Endpoints = c.endpointsOf(x)
	}
	why, able := reachable(cluster, x, s.Endpoints)
	if !able {
		s.Fails = out.failure(cluster)
		why += map[Failure]string{Unavailable: ": requests to it fail with 503", Cut: ": connections to it are closed", BlackHole: ": connections to it are closed"}[s.Fails]
	}
	out.step("cluster", cluster, why, configOf(x.GetMetadata())...)
	out.Clusters = append(out.Clusters, s)
}

// failure is what becomes of what a cluster can't take.
func (r *Result) failure(cluster string) Failure {
	switch {
	case r.answers:
		return Unavailable
	case cluster == blackHole:
		return BlackHole
	}
	return Cut
}

// reachable says where a cluster sends what it is given, and whether it can.
func reachable(name string, x *clusterv3.Cluster, all []Endpoint) (why string, able bool) {
	switch {
	case name == blackHole:
		return "what comes here is to go nowhere", false
	case x == nil:
		return "the proxy has no such cluster", false
	case x.GetType() == clusterv3.Cluster_ORIGINAL_DST:
		return "where the connection was going", true
	case x.GetClusterType().GetName() == "envoy.clusters.dynamic_forward_proxy":
		return "where the host that is asked for is, as the proxy resolves it", true
	case len(all) == 0:
		return "no endpoints", false
	case neverPanics(x) && !slices.ContainsFunc(all, healthy):
		return "none of " + strconv.Itoa(len(all)) + " endpoints is healthy", false
	}
	return strconv.Itoa(len(all)) + " endpoints, " + x.GetType().String(), true
}

// neverPanics reports whether a cluster sends nothing to endpoints that are not healthy, even if no others are left.
func neverPanics(x *clusterv3.Cluster) bool {
	p := x.GetCommonLbConfig().GetHealthyPanicThreshold()
	return p != nil && p.Value == 0
}

func healthy(e Endpoint) bool {
	return e.Health == "HEALTHY" || e.Health == "UNKNOWN" || e.Health == "DEGRADED"
}

// verdict notes what becomes of everything, if all of it fails.
func (r *Result) verdict() {
	for _, s := range r.Clusters {
		if s.Percent > 0 && s.Fails == "" {
			r.Fails = ""
			return
		}
		if s.Percent > 0 {
			r.Fails = s.Fails
		}
	}
}

func portText(p uint16) string { return strconv.Itoa(int(p)) }
