package gen

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/pushcontext"
)

// rule is what the DestinationRule in force says of one port of a service, or of a subset there. The zero value
// is none.
type rule struct {
	of       *pushcontext.DestinationPolicy
	subset   *networking.Subset // nil for all endpoints
	balancer *networking.LoadBalancerSettings
	pool     *networking.ConnectionPoolSettings
	outlier  *networking.OutlierDetection
	tls      *networking.ClientTLSSettings
	tunnel   *networking.TrafficPolicy_TunnelSettings
	proxy    *networking.TrafficPolicy_ProxyProtocol
	retries  *networking.TrafficPolicy_RetryBudget
}

// ruleOf gives what holds for all endpoints of a port, as proxies of a class call them.
func ruleOf(s *pushcontext.ShapeView, port model.Port, c Class) rule {
	return readRule(inForce(s, c), port, nil)
}

// inForce gives the DestinationRule in force for a class, nil if there is none.
func inForce(s *pushcontext.ShapeView, c Class) *pushcontext.DestinationPolicy {
	if len(s.Policies) == 0 {
		return nil
	}
	return s.PolicyFor(c.Namespace, c.Labels.Match)
}

// readRule reads a DestinationRule: what a subset says goes before what is said of all endpoints.
func readRule(p *pushcontext.DestinationPolicy, port model.Port, subset *networking.Subset) rule {
	if p == nil {
		return rule{}
	}
	r := rule{of: p, subset: subset}
	r.read(p.Spec.GetTrafficPolicy(), port)
	r.read(subset.GetTrafficPolicy(), port)
	return r
}

// ruleNamed reads a DestinationRule, which may be none, for a port or a subset there, false if there is no such subset.
func ruleNamed(p *pushcontext.DestinationPolicy, port uint16, subset string) (rule, bool) {
	if subset == "" {
		return readRule(p, model.Port{Number: port}, nil), true
	}
	x := subsetsOf(p).byName[subset]
	if x == nil {
		return rule{}, false
	}
	return readRule(p, model.Port{Number: port}, x), true
}

// read lays a policy over what is there already. Settings of a port replace those for all ports, also where they
// leave something out.
func (r *rule) read(t *networking.TrafficPolicy, port model.Port) {
	for _, l := range t.GetPortLevelSettings() {
		if l.GetPort().GetNumber() == uint32(port.Number) {
			r.balancer, r.pool, r.outlier, r.tls = l.LoadBalancer, l.ConnectionPool, l.OutlierDetection, l.Tls
			return
		}
	}
	r.balancer, r.pool = cmp.Or(t.GetLoadBalancer(), r.balancer), cmp.Or(t.GetConnectionPool(), r.pool)
	r.outlier, r.tls = cmp.Or(t.GetOutlierDetection(), r.outlier), cmp.Or(t.GetTls(), r.tls)
	r.tunnel, r.proxy, r.retries = cmp.Or(t.GetTunnel(), r.tunnel), cmp.Or(t.GetProxyProtocol(), r.proxy), cmp.Or(t.GetRetryBudget(), r.retries)
}

// subsetList are the subsets of a rule that have clusters. Of several of one name the first counts.
type subsetList struct {
	all    []*networking.Subset // in the rule's order
	byName map[string]*networking.Subset
}

func subsetsOf(p *pushcontext.DestinationPolicy) subsetList {
	var out subsetList
	if p == nil || len(p.Spec.GetSubsets()) == 0 {
		return out
	}
	out.byName = map[string]*networking.Subset{}
	for _, x := range p.Spec.Subsets {
		if n := x.GetName(); namesSubset(n) && out.byName[n] == nil {
			out.byName[n] = x
			out.all = append(out.all, x)
		}
	}
	return out
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
	namespaces map[string][]string // of proxies for which another rule is in force than for most, with the labels that selectors of rules for them name
	direct     bool                // some policy leaves the choice of the endpoint to the application
	hashes     bool                // some policy chooses endpoints by a hash
	subsets    map[*pushcontext.DestinationPolicy]subsetList
	key        string // of labels and namespaces
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
	out := scope{namespaces: map[string][]string{}, subsets: map[*pushcontext.DestinationPolicy]subsetList{}}
	most := s.Policy(nowhere)
	inForce := map[*pushcontext.DestinationPolicy]struct{}{most: {}}
	for _, p := range s.Policies {
		out.subsets[p] = subsetsOf(p)
		for _, n := range append([]string{p.Namespace}, p.Export.Namespaces...) {
			if own := s.Policy(n); own != most {
				out.tell(n, nil)
				inForce[own] = struct{}{}
			}
		}
		if len(p.Selector) > 0 {
			out.tell(p.Namespace, slices.Collect(maps.Keys(p.Selector)))
			inForce[p] = struct{}{}
		}
	}
	for p := range inForce {
		out.addRule(s, p)
	}
	if len(out.namespaces) > 0 {
		out.traits |= TraitPolicy
	}
	out.key = out.keyOf()
	return out
}

// tell keeps proxies of a namespace apart from others, and from each other by labels.
func (x *scope) tell(namespace string, labels []string) {
	all := append(x.namespaces[namespace], labels...)
	slices.Sort(all)
	x.namespaces[namespace] = slices.Compact(all)
}

func (x *scope) keyOf() string {
	var b strings.Builder
	for _, n := range slices.Sorted(maps.Keys(x.namespaces)) {
		b.WriteString(n + ":" + strings.Join(x.namespaces[n], "+") + ",")
	}
	return b.String() + " " + strings.Join(x.labels, ",")
}

// addRule takes account of all that a rule says.
func (x *scope) addRule(s *pushcontext.ShapeView, p *pushcontext.DestinationPolicy) {
	for _, subset := range append([]*networking.Subset{nil}, x.subsets[p].all...) {
		for _, port := range policyPorts(s, p, subset) {
			r := readRule(p, port, subset)
			x.direct, x.hashes = x.direct || r.direct(), x.hashes || r.balancer.GetConsistentHash() != nil
			x.add(makePolicy(s, r))
		}
	}
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
func policyPorts(s *pushcontext.ShapeView, p *pushcontext.DestinationPolicy, subset *networking.Subset) []model.Port {
	if p != nil && len(p.Spec.GetTrafficPolicy().GetPortLevelSettings())+len(subset.GetTrafficPolicy().GetPortLevelSettings()) > 0 {
		return s.Ports
	}
	return []model.Port{{}}
}

// narrow drops what the policies of a service do not tell the class from others by.
func (x scope) narrow(c Class) Class {
	selectors, own := x.namespaces[c.Namespace]
	if !own {
		c.Namespace = nowhere
	}
	labels := x.labels
	if len(selectors) > 0 {
		labels = slices.Compact(slices.Sorted(slices.Values(slices.Concat(labels, selectors))))
	}
	c.Labels = c.Labels.Only(labels)
	return c
}
