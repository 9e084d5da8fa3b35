package gen

import (
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/isthmus-mesh/isthmus/pushcontext"
)

// What a consistent hash is made from is a matter of routes and TCP listeners; that endpoints are chosen by it, of
// clusters.

// consistentHash gives by what a rule has endpoints of a port chosen, or of a subset there; nil for no hash.
func consistentHash(p *pushcontext.DestinationPolicy, port uint16, subset string) *networking.LoadBalancerSettings_ConsistentHashLB {
	r, _ := ruleNamed(p, port, subset)
	return r.balancer.GetConsistentHash()
}

// hashPolicies say what of an HTTP request is hashed.
func hashPolicies(h *networking.LoadBalancerSettings_ConsistentHashLB) []*routev3.RouteAction_HashPolicy {
	out := &routev3.RouteAction_HashPolicy{}
	switch k := h.GetHashKey().(type) {
	case *networking.LoadBalancerSettings_ConsistentHashLB_HttpHeaderName:
		if k.HttpHeaderName == "" {
			return nil
		}
		out.PolicySpecifier = &routev3.RouteAction_HashPolicy_Header_{Header: &routev3.RouteAction_HashPolicy_Header{HeaderName: k.HttpHeaderName}}
	case *networking.LoadBalancerSettings_ConsistentHashLB_HttpCookie:
		if k.HttpCookie.GetName() == "" {
			return nil
		}
		out.PolicySpecifier = &routev3.RouteAction_HashPolicy_Cookie_{Cookie: hashCookie(k.HttpCookie)}
	case *networking.LoadBalancerSettings_ConsistentHashLB_UseSourceIp:
		if !k.UseSourceIp {
			return nil
		}
		out.PolicySpecifier = &routev3.RouteAction_HashPolicy_ConnectionProperties_{
			ConnectionProperties: &routev3.RouteAction_HashPolicy_ConnectionProperties{SourceIp: true}}
	case *networking.LoadBalancerSettings_ConsistentHashLB_HttpQueryParameterName:
		if k.HttpQueryParameterName == "" {
			return nil
		}
		out.PolicySpecifier = &routev3.RouteAction_HashPolicy_QueryParameter_{
			QueryParameter: &routev3.RouteAction_HashPolicy_QueryParameter{Name: k.HttpQueryParameterName}}
	default:
		return nil
	}
	return []*routev3.RouteAction_HashPolicy{out}
}

// hashCookie is a cookie that Envoy makes for clients without one, if it has a lifetime; 0 is that of the
// client's session.
func hashCookie(k *networking.LoadBalancerSettings_ConsistentHashLB_HTTPCookie) *routev3.RouteAction_HashPolicy_Cookie {
	out := &routev3.RouteAction_HashPolicy_Cookie{Name: k.Name, Path: k.Path}
	if k.Ttl.IsValid() && k.Ttl.AsDuration() >= 0 {
		out.Ttl = k.Ttl
	}
	for _, a := range k.Attributes {
		if a.GetName() != "" {
			out.Attributes = append(out.Attributes, &routev3.RouteAction_HashPolicy_CookieAttribute{Name: a.Name, Value: a.Value})
		}
	}
	return out
}

// tcpHashPolicies say what of a TCP connection is hashed: only its source can be.
func tcpHashPolicies(h *networking.LoadBalancerSettings_ConsistentHashLB) []*typev3.HashPolicy {
	if !h.GetUseSourceIp() {
		return nil
	}
	return []*typev3.HashPolicy{{PolicySpecifier: &typev3.HashPolicy_SourceIp_{SourceIp: &typev3.HashPolicy_SourceIp{}}}}
}
