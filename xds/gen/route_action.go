package gen

import (
	"math"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/isthmus-mesh/isthmus/pushcontext"
)

// routeTo forwards to a cluster, however long that takes.
func routeTo(cluster string) *routev3.RouteAction {
	return &routev3.RouteAction{
		ClusterSpecifier:  &routev3.RouteAction_Cluster{Cluster: cluster},
		Timeout:           zero(),
		MaxStreamDuration: &routev3.RouteAction_MaxStreamDuration{MaxStreamDuration: zero(), GrpcTimeoutHeaderMax: zero()},
	}
}

// forward sends requests to the destinations of a rule.
func (x *routeContext) forward(out *routev3.Route, v *pushcontext.VirtualService, r *networking.HTTPRoute) {
	destinations := weighted(r.GetRoute())
	if len(destinations) == 0 {
		answer(out, 503)
		return
	}
	a := routeTo("")
	limitTime(a, r.GetTimeout())
	a.HashPolicy = x.hash(v, destinations)
	a.RetryPolicy = retryPolicy(x.retries(r), len(a.HashPolicy) > 0)
	x.mirror(a, r)
	rewrite(a, r)
	if len(destinations) == 1 {
		x.only(out, a, destinations[0])
	} else {
		a.ClusterSpecifier = &routev3.RouteAction_WeightedClusters{WeightedClusters: x.split(a, destinations)}
	}
	out.Action = &routev3.Route_Route{Route: a}
}

// weighted are the destinations that get traffic. A weight means something only beside others.
func weighted(list []*networking.HTTPRouteDestination) []*networking.HTTPRouteDestination {
	if len(list) == 1 {
		return list
	}
	var out []*networking.HTTPRouteDestination
	for _, d := range list {
		if d.GetWeight() > 0 {
			out = append(out, d)
		}
	}
	return out
}

// cluster is the name of a destination. One without port is meant at the port at which requests come in.
func (x *routeContext) cluster(d *networking.Destination) string {
	return subsetName(x.portOf(d), d.GetSubset(), d.GetHost())
}

func (x *routeContext) portOf(d *networking.Destination) uint16 {
	if n := d.GetPort().GetNumber(); n > 0 && n <= math.MaxUint16 {
		return uint16(n)
	}
	return x.port
}

// only sends everything to one destination, whose changes of headers follow those of the rule. The authority that
// the rule sets counts, as it does beside several destinations.
func (x *routeContext) only(out *routev3.Route, a *routev3.RouteAction, d *networking.HTTPRouteDestination) {
	h := headersOf(d.GetHeaders())
	addHeaders(out, h)
	if a.HostRewriteSpecifier == nil && h.authority != "" {
		a.HostRewriteSpecifier = &routev3.RouteAction_HostRewriteLiteral{HostRewriteLiteral: h.authority}
	}
	a.ClusterSpecifier = &routev3.RouteAction_Cluster{Cluster: x.cluster(d.GetDestination())}
}

// split shares requests out by weight.
func (x *routeContext) split(a *routev3.RouteAction, destinations []*networking.HTTPRouteDestination) *routev3.WeightedCluster {
	weights := sharesOf(destinations)
	out := &routev3.WeightedCluster{}
	for i, d := range destinations {
		h := headersOf(d.GetHeaders())
		c := &routev3.WeightedCluster_ClusterWeight{
			Name: x.cluster(d.GetDestination()), Weight: u32(weights[i]),
			RequestHeadersToAdd: h.request, RequestHeadersToRemove: h.requestRemove,
			ResponseHeadersToAdd: h.response, ResponseHeadersToRemove: h.responseRemove,
		}
		if a.HostRewriteSpecifier == nil && h.authority != "" {
			c.HostRewriteSpecifier = &routev3.WeightedCluster_ClusterWeight_HostRewriteLiteral{HostRewriteLiteral: h.authority}
		}
		out.Clusters = append(out.Clusters, c)
	}
	return out
}

// sharesOf are the weights, scaled down until Envoy can add them up.
func sharesOf(destinations []*networking.HTTPRouteDestination) []uint32 {
	sum, shift := uint64(len(destinations)), 0
	for _, d := range destinations {
		sum += uint64(d.Weight)
	}
	for sum>>shift > math.MaxUint32 {
		shift++
	}
	out := make([]uint32, len(destinations))
	for i, d := range destinations {
		out[i] = max(uint32(d.Weight)>>shift, 1)
	}
	return out
}

// hash is what the DestinationRules of the destinations have endpoints chosen by. Envoy takes all of it together.
func (x *routeContext) hash(v *pushcontext.VirtualService, destinations []*networking.HTTPRouteDestination) []*routev3.RouteAction_HashPolicy {
	var out []*routev3.RouteAction_HashPolicy
	for _, d := range destinations {
		rules := v.Policies[d.GetDestination().GetHost()]
		if rules == nil {
			continue
		}
		rule := rules.PolicyFor(x.namespace, x.mesh.Config.GetRootNamespace(), x.labels.Match)
		for _, p := range hashPolicies(consistentHash(rule, x.portOf(d.Destination), d.Destination.GetSubset())) {
			if !contains(out, p) {
				out = append(out, p)
			}
		}
	}
	return out
}

func contains(list []*routev3.RouteAction_HashPolicy, p *routev3.RouteAction_HashPolicy) bool {
	for _, q := range list {
		if proto.Equal(p, q) {
			return true
		}
	}
	return false
}

// limitTime ends requests that take longer; without a limit none does. A gRPC client's own deadline counts up to the
// limit. Envoy takes no notice of a timeout beside max_stream_duration.
func limitTime(a *routev3.RouteAction, timeout *durationpb.Duration) {
	if d := positive(timeout); d != nil {
		a.Timeout, a.MaxStreamDuration = d, nil
		//lint:ignore SA1019 its successor is part of max_stream_duration
		a.MaxGrpcTimeout = d
	}
}

// rewrite changes path and authority. What rewrites the authority goes before what sets it as a header.
func rewrite(a *routev3.RouteAction, r *networking.HTTPRoute) {
	authority := r.GetRewrite().GetAuthority()
	if authority == "" {
		authority = headersOf(r.GetHeaders()).authority
	}
	if authority != "" {
		a.HostRewriteSpecifier = &routev3.RouteAction_HostRewriteLiteral{HostRewriteLiteral: authority}
	}
	if m := r.GetRewrite().GetUriRegexRewrite(); m != nil {
		pattern, ok := regex(m.Match)
		if !ok {
			pattern = &matcherv3.RegexMatcher{} // Envoy takes none without expression: the route is answered instead
		}
		a.RegexRewrite = &matcherv3.RegexMatchAndSubstitute{Pattern: pattern, Substitution: m.Rewrite}
		return
	}
	a.PrefixRewrite = r.GetRewrite().GetUri()
}

// mirror sends copies of requests, which nobody waits for. They are no part of traces.
func (x *routeContext) mirror(a *routev3.RouteAction, r *networking.HTTPRoute) {
	add := func(d *networking.Destination, share float64) {
		if d == nil || share <= 0 {
			return
		}
		a.RequestMirrorPolicies = append(a.RequestMirrorPolicies, &routev3.RouteAction_RequestMirrorPolicy{
			Cluster: x.cluster(d), TraceSampled: no(), RuntimeFraction: runtimeFraction(share)})
	}
	if len(r.GetMirrors()) > 0 {
		for _, m := range r.Mirrors {
			add(m.GetDestination(), percentOr(m.GetPercentage(), 100))
		}
		return
	}
	share := 100.0
	//lint:ignore SA1019 rules still set it
	if p := r.GetMirrorPercent(); p != nil {
		share = float64(p.Value)
	}
	add(r.GetMirror(), percentOr(r.GetMirrorPercentage(), share))
}
