package gen

import (
	"strconv"
	"strings"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	previoushostsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/retry/host/previous_hosts/v3"
	previousprioritiesv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/retry/priority/previous_priorities/v3"
	networking "istio.io/api/networking/v1alpha3"
)

const (
	defaultRetryOn  = "connect-failure,refused-stream,unavailable,cancelled,retriable-status-codes"
	statusCodes     = "retriable-status-codes"
	defaultAttempts = 2
	hostAttempts    = 5 // to find a host that was not tried
)

// retries are those of a rule, else those of the mesh.
func (x *routeContext) retries(r *networking.HTTPRoute) *networking.HTTPRetry {
	if p := r.GetRetries(); p != nil {
		return p
	}
	return x.mesh.Config.GetDefaultHttpRetryPolicy()
}

// retryPolicy tries a failed request again on another endpoint; nil for not at all. By default it does twice. Where
// a hash chooses the endpoint there is no other one, unless the setting asks for it.
func retryPolicy(p *networking.HTTPRetry, hashed bool) *routev3.RetryPolicy {
	if p == nil {
		p = &networking.HTTPRetry{Attempts: defaultAttempts}
	}
	if p.Attempts <= 0 {
		return nil
	}
	out := &routev3.RetryPolicy{NumRetries: u32(uint32(p.Attempts)), PerTryTimeout: positive(p.PerTryTimeout),
		HostSelectionRetryMaxAttempts: hostAttempts}
	out.RetryOn, out.RetriableStatusCodes = retryOn(p.RetryOn)
	if other := p.RetryIgnorePreviousHosts; other.GetValue() || other == nil && !hashed {
		out.RetryHostPredicate = []*routev3.RetryPolicy_RetryHostPredicate{{Name: "envoy.retry_host_predicates.previous_hosts",
			ConfigType: &routev3.RetryPolicy_RetryHostPredicate_TypedConfig{TypedConfig: pack(&previoushostsv3.PreviousHostsPredicate{})}}}
	}
	if p.GetRetryRemoteLocalities().GetValue() {
		out.RetryPriority = &routev3.RetryPolicy_RetryPriority{Name: "envoy.retry_priorities.previous_priorities",
			ConfigType: &routev3.RetryPolicy_RetryPriority_TypedConfig{
				TypedConfig: pack(&previousprioritiesv3.PreviousPrioritiesConfig{UpdateFrequency: 2})}}
	}
	if d := positive(p.Backoff); d != nil {
		out.RetryBackOff = &routev3.RetryPolicy_RetryBackOff{BaseInterval: d}
	}
	return out
}

// retryOn takes status codes out of a list of conditions.
func retryOn(list string) (conditions string, codes []uint32) {
	if strings.TrimSpace(list) == "" {
		return defaultRetryOn, nil
	}
	var kept []string
	named := false
	for c := range strings.SplitSeq(list, ",") {
		c = strings.TrimSpace(c)
		n, err := strconv.ParseUint(c, 10, 16)
		switch {
		case err == nil && n >= 100 && n <= 599:
			codes = append(codes, uint32(n))
		case c != "":
			kept, named = append(kept, c), named || c == statusCodes
		}
	}
	if len(codes) > 0 && !named {
		kept = append(kept, statusCodes)
	}
	return strings.Join(kept, ","), codes
}
