package gen

import (
	"slices"
	"strconv"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/config/common/matcher/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	httpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	envoymatcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"
	networking "istio.io/api/networking/v1alpha3"
)

// applyOutlier has a cluster's proxies leave out endpoints that fail.
func applyOutlier(out *draft, o *networking.OutlierDetection) {
	if o == nil {
		return
	}
	out.OutlierDetection = outlierDetection(o)
	if m := errorMatcher(o.OutlierDetectionHttpErrorCodes); m != nil {
		out.options().OutlierDetection = &httpv3.HttpProtocolOptions_OutlierDetection{ErrorMatcher: m}
	}
}

// outlierDetection never enforces success rates: those need traffic volumes that few services have.
func outlierDetection(o *networking.OutlierDetection) *clusterv3.OutlierDetection {
	out := &clusterv3.OutlierDetection{
		Interval: positive(o.Interval), BaseEjectionTime: positive(o.BaseEjectionTime), EnforcingSuccessRate: u32(0),
		SplitExternalLocalOriginErrors: o.SplitExternalLocalOriginErrors,
	}
	if o.MaxEjectionPercent > 0 {
		out.MaxEjectionPercent = u32(uint32(min(o.MaxEjectionPercent, 100)))
	}
	if n := o.Consecutive_5XxErrors; n != nil {
		out.Consecutive_5Xx, out.EnforcingConsecutive_5Xx = n, enforced(n)
	}
	if n := o.ConsecutiveGatewayErrors; n != nil {
		out.ConsecutiveGatewayFailure, out.EnforcingConsecutiveGatewayFailure = n, enforced(n)
	}
	if n := o.ConsecutiveLocalOriginFailures; n != nil && o.SplitExternalLocalOriginErrors {
		out.ConsecutiveLocalOriginFailure, out.EnforcingConsecutiveLocalOriginFailure = n, enforced(n)
	}
	if o.SplitExternalLocalOriginErrors {
		out.EnforcingLocalOriginSuccessRate = u32(0)
	}
	if n := o.FailurePercentageThreshold; n != nil {
		out.FailurePercentageThreshold, out.EnforcingFailurePercentage = u32(min(n.Value, 100)), u32(100)
	}
	return out
}

// enforced turns a detector off by a threshold of 0.
func enforced(n *wrapperspb.UInt32Value) *wrapperspb.UInt32Value {
	if n.Value == 0 {
		return u32(0)
	}
	return u32(100)
}

// errorMatcher matches responses with one of the status codes, nil if there is none.
func errorMatcher(codes []uint32) *matcherv3.MatchPredicate {
	codes = slices.Clone(codes)
	slices.Sort(codes)
	var rules []*matcherv3.MatchPredicate
	for _, c := range slices.Compact(codes) {
		if c >= 100 && c <= 599 {
			rules = append(rules, statusIs(c))
		}
	}
	switch len(rules) {
	case 0:
		return nil
	case 1:
		return rules[0]
	}
	return &matcherv3.MatchPredicate{Rule: &matcherv3.MatchPredicate_OrMatch{OrMatch: &matcherv3.MatchPredicate_MatchSet{Rules: rules}}}
}

func statusIs(code uint32) *matcherv3.MatchPredicate {
	exact := &envoymatcherv3.StringMatcher{MatchPattern: &envoymatcherv3.StringMatcher_Exact{Exact: strconv.Itoa(int(code))}}
	header := &routev3.HeaderMatcher{Name: ":status", HeaderMatchSpecifier: &routev3.HeaderMatcher_StringMatch{StringMatch: exact}}
	return &matcherv3.MatchPredicate{Rule: &matcherv3.MatchPredicate_HttpResponseHeadersMatch{
		HttpResponseHeadersMatch: &matcherv3.HttpHeadersMatch{Headers: []*routev3.HeaderMatcher{header}}}}
}
