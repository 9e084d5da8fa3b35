package gen

import (
	"strings"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/pushcontext"
)

// The labels that a failover priority can compare. A class holds no labels of the proxy, so others
// never match.
const (
	labelNetwork = "topology.istio.io/network"
	labelRegion  = "topology.kubernetes.io/region"
	labelZone    = "topology.kubernetes.io/zone"
	labelSubzone = "topology.istio.io/subzone"
	labelCluster = "topology.istio.io/cluster"
	labelNode    = "kubernetes.io/hostname"
)

// labelTraits are the class traits that hold a proxy's value of a label.
func labelTraits(label string) Traits {
	switch label {
	case labelNetwork:
		return TraitNetwork
	case labelRegion, labelZone, labelSubzone:
		return TraitLocality
	case labelCluster:
		return TraitCluster
	case labelNode:
		return TraitNode
	}
	return 0
}

// policy is how endpoints of one service are spread. Precedence: the service's own traffic
// distribution, then the mesh's localityLbSetting.
type policy struct {
	sendUnhealthy    bool
	minHealthPercent uint32
	labels           []string // failover priority: labels, the most significant first; "key=value" compares with value
	region           bool     // failover by region, zone, subzone
	failover         []*networking.LocalityLoadBalancerSetting_Failover
	distribute       []*networking.LocalityLoadBalancerSetting_Distribute
	weighted         bool // locality weights decide how traffic is spread
}

func policyOf(s *pushcontext.ShapeView) policy {
	outlier := s.Mesh.Config.GetDefaultTrafficPolicy().GetOutlierDetection()
	p := policy{sendUnhealthy: true}
	if m := outlier.GetMinHealthPercent(); m > 0 {
		p.sendUnhealthy, p.minHealthPercent = false, uint32(min(m, 100))
	}
	switch s.Traffic {
	case model.TrafficPreferSameZone:
		p.preferNear(labelNetwork, labelRegion, labelZone)
		return p
	case model.TrafficPreferSameNode:
		p.preferNear(labelNetwork, labelRegion, labelZone, labelSubzone, labelNode)
		return p
	}
	p.mesh(s.Mesh.Config.GetLocalityLbSetting(), outlier != nil)
	return p
}

// preferNear orders by labels. Near endpoints that are unready must be known as such, or traffic would
// never move on to the next priority.
func (p *policy) preferNear(labels ...string) {
	p.labels, p.sendUnhealthy, p.minHealthPercent = labels, true, 0
}

// mesh applies the mesh's locality setting. Without outlier detection a proxy would never leave the
// first priority, so failover then stays off; distribution excludes failover.
func (p *policy) mesh(l *networking.LocalityLoadBalancerSetting, outlier bool) {
	switch {
	case l == nil || l.Enabled != nil && !l.Enabled.Value:
	case len(l.Distribute) > 0:
		p.distribute, p.weighted = l.Distribute, true
	case !outlier:
	case len(l.FailoverPriority) > 0:
		p.labels, p.failover, p.region, p.weighted = l.FailoverPriority, l.Failover, len(l.Failover) > 0, true
	default:
		p.failover, p.region, p.weighted = l.Failover, true, len(l.Failover) > 0
	}
}

// traits are those that the policy compares endpoints with.
func (p *policy) traits() Traits {
	var t Traits
	for _, l := range p.labels {
		key, _, fixed := strings.Cut(l, "=")
		if !fixed {
			t |= labelTraits(key)
		}
	}
	if p.region || len(p.distribute) > 0 {
		t |= TraitLocality
	}
	return t
}

// classLabel is a proxy's value of a label.
func classLabel(c Class, label string) string {
	switch label {
	case labelNetwork:
		return c.Network
	case labelRegion:
		return c.Locality.Region
	case labelZone:
		return c.Locality.Zone
	case labelSubzone:
		return c.Locality.Subzone
	case labelCluster:
		return string(c.Cluster)
	case labelNode:
		return c.Node
	}
	return ""
}

// endpointLabel is an endpoint's value of a label: what the hub knows of its place wins over labels.
func endpointLabel(e *model.Endpoint, label string) string {
	known := ""
	switch label {
	case labelNetwork:
		known = e.Network
	case labelRegion:
		known = e.Locality.Region
	case labelZone:
		known = e.Locality.Zone
	case labelSubzone:
		known = e.Locality.Subzone
	case labelCluster:
		known = string(e.Addr.Cluster)
	case labelNode:
		known = e.Node
	}
	if known != "" {
		return known
	}
	return e.Labels[label]
}

// priority is the endpoint's priority before compaction; 0 is best.
func (p *policy) priority(c Class, e *model.Endpoint) uint32 {
	byLabel := p.labelPriority(c, e)
	if !p.region || c.Locality == (model.Locality{}) {
		return byLabel
	}
	return byLabel*5 + p.localityPriority(c.Locality, e.Locality)
}

// labelPriority counts the labels from the first mismatch on. A network that differs, compared
// first, only moves all the rest behind those of the own network.
func (p *policy) labelPriority(c Class, e *model.Endpoint) uint32 {
	n, shift := uint32(len(p.labels)), uint32(0)
	for i, l := range p.labels {
		key, want, fixed := strings.Cut(l, "=")
		if !fixed {
			want = classLabel(c, key)
		}
		switch {
		case want == endpointLabel(e, key) && (fixed || labelTraits(key) != 0):
		case i == 0 && key == labelNetwork:
			shift = n
		default:
			return shift + n - uint32(i)
		}
	}
	return shift
}

func (p *policy) localityPriority(from, to model.Locality) uint32 {
	switch {
	case from == to:
		return 0
	case from.Region == to.Region && from.Zone == to.Zone:
		return 1
	case from.Region == to.Region:
		return 2
	}
	for _, f := range p.failover {
		if f.From == from.Region {
			if f.To != to.Region {
				return 4
			}
			break
		}
	}
	return 3
}

// shares gives the locality weights in force for a proxy at from: the first rule that matches; nil
// if none does.
func (p *policy) shares(from model.Locality) map[string]uint32 {
	for _, d := range p.distribute {
		if localityMatches(from, d.From) {
			return d.To
		}
	}
	return nil
}

// localityMatches reports whether "region/zone/subzone" with "*" for any part covers the locality.
func localityMatches(l model.Locality, pattern string) bool {
	p := model.ParseLocality(pattern)
	for _, part := range [...][2]string{{p.Region, l.Region}, {p.Zone, l.Zone}, {p.Subzone, l.Subzone}} {
		switch part[0] {
		case "*", "":
			return true // the rest is left open
		case part[1]:
		default:
			return false
		}
	}
	return true
}
