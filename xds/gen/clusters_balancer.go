package gen

import (
	"math"
	"math/big"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	weightedv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/client_side_weighted_round_robin/v3"
	lbcommonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/common/v3"
	leastv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/least_request/v3"
	localityv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/wrr_locality/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"
	networking "istio.io/api/networking/v1alpha3"
)

// What Envoy takes at most.
const (
	maxRingSize  = 8 << 20
	maxTableSize = 5_000_011
)

// applyBalancer sets how a cluster chooses among its endpoints: by the fewest requests unless told otherwise.
func applyBalancer(out *draft, b *networking.LoadBalancerSettings, weighted bool) {
	if h := b.GetConsistentHash(); h != nil {
		applyHash(out, h)
		return
	}
	if u := b.GetBackendUtilization(); u != nil {
		out.LoadBalancingPolicy = byUtilization(u, slowStart(b), weighted)
		out.CommonLbConfig.LocalityConfigSpecifier = nil // Envoy wants to be told there or here
		return
	}
	switch start := slowStart(b); b.GetSimple() {
	case networking.LoadBalancerSettings_RANDOM:
		out.LbPolicy = clusterv3.Cluster_RANDOM
	case networking.LoadBalancerSettings_ROUND_ROBIN:
		out.LbPolicy = clusterv3.Cluster_ROUND_ROBIN
		if start != nil {
			out.LbConfig = &clusterv3.Cluster_RoundRobinLbConfig_{RoundRobinLbConfig: &clusterv3.Cluster_RoundRobinLbConfig{SlowStartConfig: start}}
		}
	default:
		out.LbPolicy = clusterv3.Cluster_LEAST_REQUEST
		if start != nil {
			out.LbConfig = &clusterv3.Cluster_LeastRequestLbConfig_{LeastRequestLbConfig: &clusterv3.Cluster_LeastRequestLbConfig{SlowStartConfig: start}}
		}
	}
}

// applyHash has endpoints chosen by a hash. Sizes that Envoy would refuse are left to it.
func applyHash(out *draft, h *networking.LoadBalancerSettings_ConsistentHashLB) {
	if m := h.GetMaglev(); m != nil {
		out.LbPolicy = clusterv3.Cluster_MAGLEV
		if n := m.TableSize; n > 0 && n <= maxTableSize && big.NewInt(int64(n)).ProbablyPrime(0) {
			out.LbConfig = &clusterv3.Cluster_MaglevLbConfig_{MaglevLbConfig: &clusterv3.Cluster_MaglevLbConfig{TableSize: wrapperspb.UInt64(n)}}
		}
		return
	}
	size := h.GetRingHash().GetMinimumRingSize()
	if h.GetRingHash() == nil {
		//lint:ignore SA1019 rules still set it
		size = h.GetMinimumRingSize()
	}
	out.LbPolicy = clusterv3.Cluster_RING_HASH
	if size > 0 {
		out.LbConfig = &clusterv3.Cluster_RingHashLbConfig_{RingHashLbConfig: &clusterv3.Cluster_RingHashLbConfig{MinimumRingSize: wrapperspb.UInt64(min(size, maxRingSize))}}
	}
}

// slowStart gives a new endpoint its full share of traffic bit by bit, nil at once.
func slowStart(b *networking.LoadBalancerSettings) *clusterv3.Cluster_SlowStartConfig {
	w := b.GetWarmup()
	if w == nil {
		w = &networking.WarmupConfiguration{Duration: b.GetWarmupDurationSecs()}
	}
	window := positive(w.Duration)
	if window == nil {
		return nil
	}
	aggression, least := 1.0, 10.0
	if a := w.Aggression; a != nil && a.Value > 0 && !math.IsInf(a.Value, 0) {
		aggression = a.Value
	}
	if m := w.MinimumPercent; m != nil && m.Value >= 0 && m.Value <= 100 {
		least = m.Value
	}
	return &clusterv3.Cluster_SlowStartConfig{
		SlowStartWindow:  window,
		Aggression:       &corev3.RuntimeDouble{DefaultValue: aggression, RuntimeKey: "upstream.slow_start.aggression"},
		MinWeightPercent: &typev3.Percent{Value: least},
	}
}

// byUtilization weighs endpoints by the load that they report with their responses. A proxy that can't prefers those
// with the fewest requests.
func byUtilization(u *networking.LoadBalancerSettings_BackendUtilizationLB, start *clusterv3.Cluster_SlowStartConfig, weighted bool) *clusterv3.LoadBalancingPolicy {
	config := &weightedv3.ClientSideWeightedRoundRobin{
		BlackoutPeriod: timeout(u.WeightStabilizationPeriod), WeightExpirationPeriod: timeout(u.WeightExpirationPeriod), WeightUpdatePeriod: positive(u.WeightUpdatePeriod),
		ErrorUtilizationPenalty:            wrapperspb.Float(float32(u.ErrorUtilizationPenaltyPercent) / 100),
		MetricNamesForComputingUtilization: u.MetricNamesForComputingUtilization,
	}
	fewest := &leastv3.LeastRequest{}
	if start != nil {
		s := &lbcommonv3.SlowStartConfig{SlowStartWindow: start.SlowStartWindow, Aggression: start.Aggression, MinWeightPercent: start.MinWeightPercent}
		config.SlowStartConfig, fewest.SlowStartConfig = s, s
	}
	by := policies(named{"client_side_weighted_round_robin", config})
	if weighted {
		by = policies(named{"wrr_locality", &localityv3.WrrLocality{EndpointPickingPolicy: by}})
		fewest.LocalityLbConfig = &lbcommonv3.LocalityLbConfig{LocalityConfigSpecifier: &lbcommonv3.LocalityLbConfig_LocalityWeightedLbConfig_{
			LocalityWeightedLbConfig: &lbcommonv3.LocalityLbConfig_LocalityWeightedLbConfig{}}}
	}
	by.Policies = append(by.Policies, policies(named{"least_request", fewest}).Policies...)
	return by
}

// named is a load balancing policy by the name of its extension.
type named struct {
	name   string
	config proto.Message
}

// policies lists load balancing policies, of which a proxy takes the first that it knows.
func policies(list ...named) *clusterv3.LoadBalancingPolicy {
	out := &clusterv3.LoadBalancingPolicy{}
	for _, n := range list {
		out.Policies = append(out.Policies, &clusterv3.LoadBalancingPolicy_Policy{TypedExtensionConfig: &corev3.TypedExtensionConfig{
			Name: "envoy.load_balancing_policies." + n.name, TypedConfig: pack(n.config)}})
	}
	return out
}
