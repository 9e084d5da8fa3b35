package gen

import (
	"math"
	"math/bits"
	"slices"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/pushcontext"
)

// The endpoints of a FederatedService are of several sources (see pushcontext.Federation), which are told apart in two
// ways. Under failover the priorities of a source are behind those of the sources before it. Under weighted each locality
// of a source is a locality of its own, and the weights of all of a source add up to its share, so that Envoy picks a
// source first and then an endpoint. Failover between localities is then within each source: its best endpoints, wherever
// they are, have the best priority, or a source that is far away would get no traffic whatever its share is.
// Unready endpoints are sent, and there is no panic: as they get too many, the part that they would have had goes to what
// is behind (failover), or to the other sources (weighted).

// total is what the weights of all sources add up to; a share is exact to one in so many.
const total = 1_000_000_000

// federate turns off what would make sources something else than their FederatedService says.
func (p *policy) federate(f *pushcontext.Federation) {
	if f == nil || f.Policy == pushcontext.FederateUnion {
		return
	}
	p.sendUnhealthy, p.minHealthPercent = true, 0
	if f.Policy == pushcontext.FederateWeighted {
		p.apart, p.weighted, p.distribute, p.zones = true, true, nil, nil
	}
}

// behind gives what the source of an endpoint adds to its priority.
func (s *selector) behind(e *model.Endpoint) uint32 {
	if from := s.shape.Federation.SourceOf(e); from != nil {
		return min(from.Priority, maxPriority) * sourceStep
	}
	return 0
}

// groupOf tells the group of an endpoint.
func (s *selector) groupOf(e *model.Endpoint, priority uint32) groupKey {
	k := groupKey{priority: priority, locality: e.Locality}
	if from := s.shape.Federation.SourceOf(e); s.policy.apart && from != nil {
		k.part = e.Part
		k.locality.Subzone += "@" + from.Name
	}
	return k
}

// level numbers the priorities of each source on its own. Those of registries out of contact stay behind all others.
func (o *selection) level() {
	of := map[uint16][]uint32{}
	for _, g := range o.groups {
		of[g.part] = append(of[g.part], g.priority)
	}
	for part, list := range of {
		slices.Sort(list)
		of[part] = slices.Compact(list)
	}
	rank := func(part uint16, p uint32) uint32 {
		list := of[part]
		i, _ := slices.BinarySearch(list, p)
		if p < demotion {
			return uint32(i)
		}
		first, _ := slices.BinarySearch(list, demotion)
		return demotion + uint32(i-first)
	}
	for i := range o.verdicts {
		if v := &o.verdicts[i]; v.Sent {
			v.Priority = rank(v.Endpoint.Part, v.Priority)
		}
	}
	for _, g := range o.groups {
		g.priority = rank(g.part, g.priority)
	}
}

// atPriority is a source at one priority.
type atPriority struct {
	priority uint32
	number   uint16
}

// balance has the weights of each source add up to its share, at each priority.
func (o *selection) balance(f *pushcontext.Federation) {
	sums, shares := map[atPriority]uint64{}, uint64(0)
	for _, s := range f.Sources {
		shares += uint64(s.Weight)
	}
	for _, g := range o.groups {
		for i := range g.hosts {
			sums[atPriority{g.priority, g.part}] += g.hosts[i].weight
		}
	}
	scale := func(p atPriority, weight uint64) uint64 {
		return max(mulDiv(weight, mulDiv(uint64(f.Sources[p.number-1].Weight), total, shares), sums[p]), 1)
	}
	for i := range o.verdicts {
		if v := &o.verdicts[i]; v.Sent && len(v.Gateways) > 0 {
			v.Weight = clip(scale(atPriority{v.Priority, v.Endpoint.Part}, uint64(v.Weight)))
		}
	}
	for _, g := range o.groups {
		for i := range g.hosts {
			g.hosts[i].weight = scale(atPriority{g.priority, g.part}, g.hosts[i].weight)
		}
	}
}

// mulDiv gives a*b/c, given that it is no more than 64 bits.
func mulDiv(a, b, c uint64) uint64 {
	hi, lo := bits.Mul64(a, b)
	if hi >= c {
		return math.MaxUint64
	}
	q, _ := bits.Div64(hi, lo, c)
	return q
}
