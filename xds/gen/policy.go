package gen

import (
	"cmp"
	"strings"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/pushcontext"
)

// The labels whose values the hub knows of a proxy's and an endpoint's place.
const (
	labelNetwork = model.LabelNetwork
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

// policy is how endpoints behind one port of a service are spread. Precedence: the zone-aware setting of the
// DestinationRule, its locality setting, the service's own traffic distribution, the mesh's zone-aware
// setting unless the rule has one that is off, the mesh's locality setting.
type policy struct {
	rule             *pushcontext.DestinationPolicy // in force, if any
	pool             *networking.ConnectionPoolSettings
	outlier          *networking.OutlierDetection
	sendUnhealthy    bool
	minHealthPercent uint32
	labels           []string // failover priority: labels, the most significant first; "key=value" compares with value
	region           bool     // failover by region, zone, subzone
	failover         []*networking.LocalityLoadBalancerSetting_Failover
	distribute       []*networking.LocalityLoadBalancerSetting_Distribute
	weighted         bool // locality weights decide how traffic is spread
	// zones: Envoy itself prefers endpoints of its zone among those of its region.
	zones *networking.ZoneAwareLoadBalancerSetting
	own   bool // the rule decides about localities
	apart bool // sources of a FederatedService have shares: endpoints of different ones are never in one locality
}

// makePolicy combines a rule with the service and the mesh. Unready endpoints are sent, so that a proxy
// knows how many there are and moves on to others, unless outlier detection counts the ready ones itself;
// a traffic distribution has them sent all the same.
func makePolicy(s *pushcontext.ShapeView, r rule) policy {
	mesh := s.Mesh.Config.GetDefaultTrafficPolicy()
	p := policy{rule: r.of, sendUnhealthy: true, pool: cmp.Or(r.pool, mesh.GetConnectionPool()), outlier: cmp.Or(r.outlier, mesh.GetOutlierDetection())}
	if m := p.outlier.GetMinHealthPercent(); m > 0 && s.Traffic == model.TrafficAny {
		p.sendUnhealthy, p.minHealthPercent = false, uint32(min(m, 100))
	}
	switch l, z := r.balancer.GetLocalityLbSetting(), r.balancer.GetZoneAwareLbSetting(); {
	case zoneAware(z):
		p.within(z)
	case l != nil:
		p.own = true
		p.spread(l)
	case s.Traffic == model.TrafficPreferSameZone:
		p.labels = []string{labelNetwork, labelRegion, labelZone}
	case s.Traffic == model.TrafficPreferSameNode:
		p.labels = []string{labelNetwork, labelRegion, labelZone, labelSubzone, labelNode}
	case z == nil && zoneAware(s.Mesh.Config.GetZoneAwareLbSetting()):
		p.within(s.Mesh.Config.GetZoneAwareLbSetting())
	default:
		p.spread(s.Mesh.Config.GetLocalityLbSetting())
	}
	p.federate(s.Federation)
	return p
}

// spread applies a locality setting. Without outlier detection a proxy would never leave the first
// priority, so failover then stays off; distribution excludes failover.
func (p *policy) spread(l *networking.LocalityLoadBalancerSetting) {
	switch {
	case l == nil || l.Enabled != nil && !l.Enabled.Value:
	case len(l.Distribute) > 0:
		p.distribute, p.weighted = l.Distribute, true
	case p.outlier == nil:
	case len(l.FailoverPriority) > 0:
		p.labels, p.failover, p.region, p.weighted = l.FailoverPriority, l.Failover, len(l.Failover) > 0, true
	default:
		p.failover, p.region, p.weighted = l.Failover, true, len(l.Failover) > 0
	}
}

// author says whose locality setting it is.
func (p *policy) author() string {
	if p.own {
		return nameOf(p.rule)
	}
	return "the mesh"
}

// traits are those that the policy compares endpoints with, but for further labels.
func (p *policy) traits() Traits {
	var t Traits
	for _, l := range p.labels {
		key, _, fixed := strings.Cut(l, "=")
		if !fixed {
			t |= labelTraits(key)
		}
	}
	switch {
	case p.zones != nil:
		t |= TraitRegion
	case p.region || len(p.distribute) > 0:
		t |= TraitLocality
	}
	return t
}

// preference is a label that endpoints of the best priority have.
type preference struct{ key, value string }

// preferences are those of a proxy, the most significant first.
func (p *policy) preferences(c Class) []preference {
	var out []preference
	for _, l := range p.labels {
		key, value, fixed := strings.Cut(l, "=")
		if !fixed {
			value = classLabel(c, key)
		}
		out = append(out, preference{key, value})
	}
	return out
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
	return c.Labels.Value(label)
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
func (p *policy) priority(c Class, prefer []preference, e *model.Endpoint) uint32 {
	byLabel := labelPriority(prefer, e)
	if !p.region || c.Locality == (model.Locality{}) {
		return byLabel
	}
	return byLabel*5 + p.localityPriority(c.Locality, e.Locality)
}

// labelPriority counts the labels from the first mismatch on. A network that differs, compared
// first, only moves all the rest behind those of the own network. A label that neither has is no
// mismatch.
func labelPriority(prefer []preference, e *model.Endpoint) uint32 {
	n, shift := uint32(len(prefer)), uint32(0)
	for i, x := range prefer {
		switch {
		case x.value == endpointLabel(e, x.key):
		case i == 0 && x.key == labelNetwork:
			shift = n
		default:
			return shift + n - uint32(i)
		}
	}
	return shift
}

func (p *policy) localityPriority(from, to model.Locality) uint32 {
	switch {
	case from == to, p.zones != nil && from.Region == to.Region:
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
