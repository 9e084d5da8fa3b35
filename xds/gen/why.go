package gen

import (
	"fmt"
	"slices"
	"strings"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/pushcontext"
)

// ExplainPriority says what puts an endpoint behind a service port behind others for proxies of the class, "" if nothing
// does: that it is elsewhere, with the setting by which that counts, or that its cluster is out of contact.
func ExplainPriority(v *pushcontext.ServiceView, c Class, port model.Port, e *model.Endpoint) string {
	p := makePolicy(v.Shape, ruleOf(v.Shape, port, c))
	var why []string
	if e.Source != nil && e.Source.Shard.Cluster != c.Cluster && slices.Contains(v.Demoted, e.Source.Shard) {
		why = append(why, "its cluster is out of contact for too long")
	}
	if from := v.Shape.Federation.SourceOf(e); from != nil && from.Priority > 0 {
		why = append(why, fmt.Sprintf("its source %s has the priority %d", from.Name, from.Priority))
	}
	for _, x := range p.preferences(c) {
		if x.value != endpointLabel(e, x.key) {
			why = append(why, "another "+placeOf(x.key)+" ("+p.preferrer(v.Shape)+")")
			break
		}
	}
	if far := p.farther(c, e); far != "" {
		why = append(why, "another "+far+" ("+p.author()+"'s locality failover)")
	}
	return strings.Join(why, "; ")
}

// farther says in what the endpoint's locality differs first from the proxy's, "" if in nothing that counts.
func (p *policy) farther(c Class, e *model.Endpoint) string {
	if !p.region || c.Locality == (model.Locality{}) {
		return ""
	}
	return [...]string{"", "subzone", "zone", "region", "region than that to fail over to"}[p.localityPriority(c.Locality, e.Locality)]
}

// preferrer says what asks for labels that endpoints of the best priority have.
func (p *policy) preferrer(s *pushcontext.ShapeView) string {
	if p.region || p.own || s.Traffic == model.TrafficAny {
		return p.author() + "'s failoverPriority"
	}
	return "the service's trafficDistribution"
}

// placeOf is a label in words.
func placeOf(label string) string {
	switch label {
	case labelNetwork:
		return "network"
	case labelRegion:
		return "region"
	case labelZone:
		return "zone"
	case labelSubzone:
		return "subzone"
	case labelCluster:
		return "cluster"
	case labelNode:
		return "node"
	}
	return "value of the label " + label
}
