package gen

import (
	"strconv"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	commonfaultv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/common/fault/v3"
	corsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/cors/v3"
	faultv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/fault/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	networking "istio.io/api/networking/v1alpha3"
)

// The HTTP filters of every chain that a rule has settings for.
const (
	faultFilter = "envoy.filters.http.fault"
	corsFilter  = "envoy.filters.http.cors"
)

// filterConfig says what filters do for a route. A setting that Envoy would refuse is left out.
func filterConfig(out *routev3.Route, r *networking.HTTPRoute) {
	set := func(filter string, m interface {
		proto.Message
		Validate() error
	}) {
		if m.Validate() != nil {
			return
		}
		if out.TypedPerFilterConfig == nil {
			out.TypedPerFilterConfig = map[string]*anypb.Any{}
		}
		out.TypedPerFilterConfig[filter] = pack(m)
	}
	if f := fault(r.GetFault()); f != nil {
		set(faultFilter, f)
	}
	if r.GetCorsPolicy() != nil {
		set(corsFilter, cors(r.CorsPolicy))
	}
}

// fault delays and aborts requests; nil if it would do neither.
func fault(f *networking.HTTPFaultInjection) *faultv3.HTTPFault {
	out := &faultv3.HTTPFault{Delay: delay(f.GetDelay()), Abort: abort(f.GetAbort())}
	if out.Delay == nil && out.Abort == nil {
		return nil
	}
	return out
}

func delay(d *networking.HTTPFaultInjection_Delay) *commonfaultv3.FaultDelay {
	//lint:ignore SA1019 rules still set it
	share := percentOr(d.GetPercentage(), float64(d.GetPercent()))
	fixed := positive(d.GetFixedDelay())
	if share <= 0 || fixed == nil {
		return nil
	}
	return &commonfaultv3.FaultDelay{Percentage: fraction(share),
		FaultDelaySecifier: &commonfaultv3.FaultDelay_FixedDelay{FixedDelay: fixed}}
}

func abort(a *networking.HTTPFaultInjection_Abort) *faultv3.FaultAbort {
	out := &faultv3.FaultAbort{Percentage: fraction(percentOr(a.GetPercentage(), 0))}
	switch t := a.GetErrorType().(type) {
	case *networking.HTTPFaultInjection_Abort_HttpStatus:
		if t.HttpStatus < 200 || t.HttpStatus > 599 {
			return nil
		}
		out.ErrorType = &faultv3.FaultAbort_HttpStatus{HttpStatus: uint32(t.HttpStatus)}
	case *networking.HTTPFaultInjection_Abort_GrpcStatus:
		code, ok := grpcCodes[t.GrpcStatus]
		if !ok {
			return nil
		}
		out.ErrorType = &faultv3.FaultAbort_GrpcStatus{GrpcStatus: code}
	default:
		return nil
	}
	if out.Percentage.Numerator == 0 {
		return nil
	}
	return out
}

// grpcCodes are the status codes of gRPC by name.
var grpcCodes = map[string]uint32{
	"OK": 0, "CANCELLED": 1, "UNKNOWN": 2, "INVALID_ARGUMENT": 3, "DEADLINE_EXCEEDED": 4, "NOT_FOUND": 5,
	"ALREADY_EXISTS": 6, "PERMISSION_DENIED": 7, "RESOURCE_EXHAUSTED": 8, "FAILED_PRECONDITION": 9, "ABORTED": 10,
	"OUT_OF_RANGE": 11, "UNIMPLEMENTED": 12, "INTERNAL": 13, "UNAVAILABLE": 14, "DATA_LOSS": 15, "UNAUTHENTICATED": 16,
}

// cors answers preflight requests and names the origins that may read responses.
func cors(c *networking.CorsPolicy) *corsv3.CorsPolicy {
	out := &corsv3.CorsPolicy{
		AllowOriginStringMatch: origins(c),
		AllowMethods:           strings.Join(c.GetAllowMethods(), ","),
		AllowHeaders:           strings.Join(c.GetAllowHeaders(), ","),
		ExposeHeaders:          strings.Join(c.GetExposeHeaders(), ","),
		AllowCredentials:       c.GetAllowCredentials(),
		FilterEnabled:          &corev3.RuntimeFractionalPercent{DefaultValue: &typev3.FractionalPercent{Numerator: 100}},
	}
	if d := c.GetMaxAge(); d.IsValid() && d.AsDuration() >= 0 {
		out.MaxAge = strconv.FormatInt(d.Seconds, 10)
	}
	if c.GetUnmatchedPreflights() == networking.CorsPolicy_IGNORE {
		out.ForwardNotMatchingPreflights = no()
	}
	return out
}

// origins are those allowed; the older setting counts where the newer is not there. One that can't be expressed
// allows nothing.
func origins(c *networking.CorsPolicy) []*matcherv3.StringMatcher {
	list := c.GetAllowOrigins()
	if len(list) == 0 {
		//lint:ignore SA1019 rules still set it
		for _, o := range c.GetAllowOrigin() {
			list = append(list, &networking.StringMatch{MatchType: &networking.StringMatch_Exact{Exact: o}})
		}
	}
	var out []*matcherv3.StringMatcher
	for _, s := range list {
		if matchesAny(s) {
			s = &networking.StringMatch{MatchType: &networking.StringMatch_Regex{Regex: ".*"}}
		}
		if m, ok := stringMatcher(s); ok {
			out = append(out, m)
		}
	}
	return out
}

// percentOr gives a percentage from 0 to 100, or the default if it is unset.
func percentOr(p *networking.Percent, def float64) float64 {
	if p != nil {
		def = p.Value
	}
	if !(def > 0) { // also where it is no number
		return 0
	}
	return min(def, 100)
}

// fraction gives a percentage to four decimal places.
func fraction(percent float64) *typev3.FractionalPercent {
	return &typev3.FractionalPercent{Numerator: uint32(percent*10_000 + 0.5), Denominator: typev3.FractionalPercent_MILLION}
}

func runtimeFraction(percent float64) *corev3.RuntimeFractionalPercent {
	return &corev3.RuntimeFractionalPercent{DefaultValue: fraction(percent)}
}
