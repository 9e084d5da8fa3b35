package pushcontext

import (
	"slices"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
)

// DestinationPolicy is a DestinationRule for a host pattern. Several of one namespace, host and visibility
// are one: the traffic policy is that of the oldest that has one, and of several subsets of one name the
// oldest counts.
type DestinationPolicy struct {
	Source    model.Source   // of the oldest
	Merged    []model.Source // of the others, oldest first
	Namespace string
	Host      string // the pattern of the rule: the host itself, "*.suffix", "*-part.suffix" or "*"
	Export    Export
	Selector  model.Labels // workloads of the namespace that it is for (workloadSelector); nil for all
	Spec      *networking.DestinationRule
}

// Policy gives the rule in force for a reader's namespace, nil if there is none. The rules of the
// reader's own namespace come first (unless it is the root namespace), then those of the service's
// namespace, then those of the root namespace, each only if exported to the reader; within one namespace the
// most specific host pattern, then the oldest rule (DestinationRule lookup of the Istio traffic API). Rules for
// some workloads only are left out: see PolicyFor.
func (s *ShapeView) Policy(namespace string) *DestinationPolicy { return s.PolicyFor(namespace, nil) }

// PolicyFor is Policy for one workload: of rules of its own namespace for the same host pattern, those that select
// it come first. Selects tells which do; nil selects none.
func (s *ShapeView) PolicyFor(namespace string, selects func(selector model.Labels) bool) *DestinationPolicy {
	return policyFor(s.Policies, namespace, s.Key.Namespace, s.Mesh.Config.GetRootNamespace(), selects)
}

// Hashes reports whether endpoints, at some port or of some subset, are chosen by a hash.
func (p *DestinationPolicy) Hashes() bool {
	return p.some(func(l *networking.LoadBalancerSettings, _ *networking.ConnectionPoolSettings, _ bool) bool {
		return l.GetConsistentHash() != nil
	})
}

// Steers reports whether the rule, at some port or for some subset, says more of connections than where they go: by what of
// them endpoints are chosen, how long they may be idle, that they go through a tunnel. A pool says how long they may be idle
// also where it is silent and the mesh is not, for it is in the place of the mesh's.
func (p *DestinationPolicy) Steers(m *MeshView) bool {
	idle := m.Config.GetDefaultTrafficPolicy().GetConnectionPool().GetTcp().GetIdleTimeout() != nil
	return p.some(func(l *networking.LoadBalancerSettings, c *networking.ConnectionPoolSettings, tunnel bool) bool {
		return tunnel || l.GetConsistentHash().GetUseSourceIp() || c.GetTcp().GetIdleTimeout() != nil || c != nil && idle
	})
}

// some reports whether something holds for a policy of the rule: for all ports or for one, of the host or of a subset.
func (p *DestinationPolicy) some(holds func(l *networking.LoadBalancerSettings, c *networking.ConnectionPoolSettings, tunnel bool) bool) bool {
	policy := func(t *networking.TrafficPolicy) bool {
		return holds(t.GetLoadBalancer(), t.GetConnectionPool(), t.GetTunnel() != nil) ||
			slices.ContainsFunc(t.GetPortLevelSettings(), func(s *networking.TrafficPolicy_PortTrafficPolicy) bool {
				return holds(s.GetLoadBalancer(), s.GetConnectionPool(), false)
			})
	}
	return policy(p.Spec.GetTrafficPolicy()) ||
		slices.ContainsFunc(p.Spec.GetSubsets(), func(s *networking.Subset) bool { return policy(s.GetTrafficPolicy()) })
}

// DestinationPolicies are the DestinationRules for a host, in the order of ShapeView.Policies.
type DestinationPolicies struct {
	Namespace string // of the service
	Policies  []*DestinationPolicy
}

// Policy gives the rule in force for a reader's namespace, as ShapeView.Policy does.
func (d *DestinationPolicies) Policy(namespace, root string) *DestinationPolicy {
	return d.PolicyFor(namespace, root, nil)
}

// PolicyFor gives the rule in force for a workload, as ShapeView.PolicyFor does.
func (d *DestinationPolicies) PolicyFor(namespace, root string, selects func(selector model.Labels) bool) *DestinationPolicy {
	return policyFor(d.Policies, namespace, d.Namespace, root, selects)
}

func policyFor(policies []*DestinationPolicy, namespace, service, root string, selects func(model.Labels) bool) *DestinationPolicy {
	places := []string{namespace, service, root}
	if namespace == root {
		places = places[1:]
	}
	for _, place := range places {
		for _, p := range policies {
			if p.Namespace == place && p.Export.Includes(namespace) && p.concerns(namespace, selects) {
				return p
			}
		}
	}
	return nil
}

func (p *DestinationPolicy) concerns(namespace string, selects func(model.Labels) bool) bool {
	return len(p.Selector) == 0 || p.Namespace == namespace && selects != nil && selects(p.Selector)
}
