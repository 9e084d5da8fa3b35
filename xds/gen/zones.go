package gen

import (
	"slices"
	"strings"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"
	networking "istio.io/api/networking/v1alpha3"
)

// zoneAware reports whether a setting turns zone-aware balancing on: one that says nothing does.
func zoneAware(z *networking.ZoneAwareLoadBalancerSetting) bool {
	return z != nil && (z.Enabled == nil || z.Enabled.Value)
}

// within leaves the choice of a zone to Envoy, which makes it among endpoints of one priority: those of the
// proxy's region. Failover to other regions does not wait for outlier detection. Labels of a place within
// the region would take Envoy's choice away and do not count.
func (p *policy) within(z *networking.ZoneAwareLoadBalancerSetting) {
	p.zones, p.region = z, true
	for _, l := range z.FailoverPriority {
		key, _, _ := strings.Cut(l, "=")
		if !slices.Contains([]string{labelRegion, labelZone, labelSubzone}, key) {
			p.labels = append(p.labels, l)
		}
	}
	for _, f := range z.Failover {
		p.failover = append(p.failover, &networking.LocalityLoadBalancerSetting_Failover{From: f.From, To: f.To})
	}
}

// applyZones sets zone-aware balancing. An Envoy that knows its peers does it unless told otherwise, so
// where no setting turns it on it is turned off; other Envoys never do it.
func applyZones(out *clusterv3.Cluster, z *networking.ZoneAwareLoadBalancerSetting, c Class) {
	zones := &clusterv3.Cluster_CommonLbConfig_ZoneAwareLbConfig{}
	switch {
	case out.LbPolicy == clusterv3.Cluster_CLUSTER_PROVIDED, z == nil && !c.SelfDiscovery:
		return
	case z == nil:
		zones.RoutingEnabled = &typev3.Percent{}
	case z.MinClusterSize != nil:
		zones.MinClusterSize = wrapperspb.UInt64(uint64(z.MinClusterSize.Value))
	}
	out.CommonLbConfig.LocalityConfigSpecifier = &clusterv3.Cluster_CommonLbConfig_ZoneAwareLbConfig_{ZoneAwareLbConfig: zones}
}
