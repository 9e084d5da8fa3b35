package gen

import (
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/pushcontext"
)

// destination is what an outbound cluster stands for, as proxies of one class see it: a service port, or a subset
// of the endpoints behind it.
type destination struct {
	shape *pushcontext.ShapeView
	port  model.Port
	rule  rule
}

func destinationOf(s *pushcontext.ShapeView, port model.Port, c Class) destination {
	return destination{s, port, ruleOf(s, port, c)}
}

// destinationNamed gives what an outbound name means, false if it is nothing of the service's.
func destinationNamed(s *pushcontext.ShapeView, c Class, name string) (destination, bool) {
	n, ok := parseOutbound(name)
	if !ok || n.host != s.Key.Host {
		return destination{}, false
	}
	port, ok := servedPort(s, n.port)
	if !ok {
		return destination{}, false
	}
	return destinationOf(s, port, c).within(n.subset)
}

// within gives a subset of the destination, false if the rule in force has none of the name.
func (d destination) within(subset string) (destination, bool) {
	if subset == "" {
		return d, true
	}
	if d.rule.of == nil {
		return destination{}, false
	}
	x := scopeOf(d.shape).subsets[d.rule.of].byName[subset]
	d.rule = readRule(d.rule.of, d.port, x)
	return d, x != nil
}

// destinationsOf are all of a service's: each port, followed by its subsets.
func destinationsOf(s *pushcontext.ShapeView, c Class) []destination {
	p, ports := inForce(s, c), servedPorts(s)
	var subsets []*networking.Subset
	if p != nil {
		subsets = scopeOf(s).subsets[p].all
	}
	out := make([]destination, 0, len(ports)*(1+len(subsets)))
	for _, port := range ports {
		out = append(out, destination{s, port, readRule(p, port, nil)})
		for _, x := range subsets {
			out = append(out, destination{s, port, readRule(p, port, x)})
		}
	}
	return out
}

// metadata tells telemetry which service the cluster is of, and people which rule made it so.
func (d destination) metadata() *corev3.Metadata {
	s := d.shape
	out := serviceMetadata(serviceRef{s.Key.Host, s.Name, s.Key.Namespace})
	fields := out.FilterMetadata["istio"].Fields
	if p := d.rule.of; p != nil {
		fields["config"] = stringValue("/apis/networking.istio.io/v1/namespaces/" + p.Namespace + "/destination-rule/" + p.Source.Object.Name)
	}
	if name := d.subset(); name != "" {
		fields["subset"] = stringValue(name)
	}
	return out
}

func (d destination) subset() string { return d.rule.subset.GetName() }

// name is that of its cluster.
func (d destination) name() string { return subsetName(d.port.Number, d.subset(), d.shape.Key.Host) }

// serverName is by what it is known to gateways: the name of its cluster there.
func (d destination) serverName() string {
	return passthroughName(d.port.Number, d.subset(), d.shape.Key.Host)
}

// direct reports whether the rule sends connections where the application opened them to.
func (r *rule) direct() bool {
	return r.balancer.GetSimple() == networking.LoadBalancerSettings_PASSTHROUGH
}

// pushed reports whether a destination's endpoints are an EDS resource. Where connections have no original
// destination, there is a choice among the endpoints instead.
func (d destination) pushed(c Class) bool {
	switch d.shape.Resolution {
	case model.ClientSideLB:
		return !d.rule.direct() || !c.intercepts()
	case model.Passthrough:
		return !c.intercepts()
	}
	return false
}

// resolved reports whether proxies find a destination's endpoints by DNS.
func (d destination) resolved(c Class) bool {
	return d.shape.Resolution.IsDNS() && !(d.rule.direct() && c.intercepts())
}
