package gen

import (
	"maps"
	"slices"
	"strings"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/pushcontext"
)

// rule is what the DestinationRule in force says of one port of a service. The zero value is none.
type rule struct {
	of       *pushcontext.DestinationPolicy
	balancer *networking.LoadBalancerSettings
	outlier  *networking.OutlierDetection
}

// ruleOf gives what holds for proxies of a namespace.
func ruleOf(s *pushcontext.ShapeView, port model.Port, namespace string) rule {
	if len(s.Policies) == 0 {
		return rule{}
	}
	return readRule(s.Policy(namespace), port)
}

// readRule reads a DestinationRule. Settings of a port replace those for all ports, also where they
// leave something out.
func readRule(p *pushcontext.DestinationPolicy, port model.Port) rule {
	if p == nil {
		return rule{}
	}
	t := p.Spec.GetTrafficPolicy()
	for _, l := range t.GetPortLevelSettings() {
		if l.GetPort().GetNumber() == uint32(port.Number) {
			return rule{p, l.GetLoadBalancer(), l.GetOutlierDetection()}
		}
	}
	return rule{p, t.GetLoadBalancer(), t.GetOutlierDetection()}
}

// nameOf is for people. Objects that were merged into one rule are all named.
func nameOf(p *pushcontext.DestinationPolicy) string {
	name := "DestinationRule " + p.Namespace + "/" + p.Source.Object.Name
	for _, m := range p.Merged {
		name += "+" + m.Object.Name
	}
	return name
}

// scope is what the policies of a service tell proxies apart by.
type scope struct {
	traits     Traits              // fields of a class that some policy compares endpoints with
	labels     []string            // further labels of the proxy that some policy names, sorted
	namespaces map[string]struct{} // of proxies for which another rule is in force than for most
	key        string              // of labels and namespaces
}

// scopeOf is worked out once for a service with DestinationRules; without any, it is as quick anew.
func scopeOf(s *pushcontext.ShapeView) scope {
	if len(s.Policies) == 0 {
		var out scope
		out.add(makePolicy(s, rule{}))
		out.key = strings.Join(out.labels, ",")
		return out
	}
	return s.Derived().Do(pushcontext.MemoKey{Generator: memoScope}, func() any { return makeScope(s) }).(scope)
}

// nowhere is the namespace of proxies that no rule is about.
const nowhere = ""

func makeScope(s *pushcontext.ShapeView) scope {
	out := scope{namespaces: map[string]struct{}{}}
	most := s.Policy(nowhere)
	inForce := map[*pushcontext.DestinationPolicy]struct{}{most: {}}
	for _, p := range s.Policies {
		for _, n := range append([]string{p.Namespace}, p.Export.Namespaces...) {
			if own := s.Policy(n); own != most {
				out.namespaces[n], inForce[own] = struct{}{}, struct{}{}
			}
		}
	}
	for p := range inForce {
		for _, port := range policyPorts(s, p) {
			out.add(makePolicy(s, readRule(p, port)))
		}
	}
	if len(out.namespaces) > 0 {
		out.traits |= TraitPolicy
	}
	out.key = strings.Join(slices.Sorted(maps.Keys(out.namespaces)), ",") + " " + strings.Join(out.labels, ",")
	return out
}

// add takes account of one policy.
func (x *scope) add(p policy) {
	x.traits |= p.traits()
	for _, l := range p.labels {
		if strings.Contains(l, "=") || labelTraits(l) != 0 {
			continue // compared with what it says, or with what a trait holds
		}
		x.traits |= TraitPolicy
		if i, known := slices.BinarySearch(x.labels, l); !known {
			x.labels = slices.Insert(x.labels, i, l)
		}
	}
}

// policyPorts are the ports whose policies may differ: one stands for all if there are no settings of
// ports.
func policyPorts(s *pushcontext.ShapeView, p *pushcontext.DestinationPolicy) []model.Port {
	if p != nil && len(p.Spec.GetTrafficPolicy().GetPortLevelSettings()) > 0 {
		return s.Ports
	}
	return []model.Port{{}}
}

// narrow drops what the policies of a service do not tell the class from others by.
func (x scope) narrow(c Class) Class {
	if _, own := x.namespaces[c.Namespace]; !own {
		c.Namespace = nowhere
	}
	c.Labels = c.Labels.Only(x.labels)
	return c
}
