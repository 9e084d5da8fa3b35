package gen

import (
	"cmp"
	"slices"
	"strings"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/pushcontext"
)

// The peers of a proxy are the other instances of its workload, and itself. An Envoy with self-discovery has
// a static cluster of them, which nothing is sent to: from how many there are in each zone, and how many
// endpoints a service has there, it works out how much traffic may stay in its own zone.

const (
	labelTemplate = "pod-template-hash"
	labelRollout  = "rollouts-pod-template-hash" // Argo Rollouts
	labelWorkload = "service.istio.io/workload-name"
)

// peersTraits are those that tell a workload's instances from others.
const peersTraits = TraitSelf | TraitPeers | TraitRegion

// TemplateOf gives the label that instances of one version of a workload share, "" if there is none.
func TemplateOf(l model.Labels) string { return cmp.Or(l[labelTemplate], l[labelRollout]) }

func peersNames(c Class) []string {
	if !c.SelfDiscovery {
		return nil
	}
	return []string{localCluster}
}

func peersAssignment(v *pushcontext.PeersView, c Class, name string) ([]byte, error) {
	if name != localCluster || !c.SelfDiscovery {
		return nil, errName(EndpointURL, name)
	}
	return marshal(assignment(localCluster, peersOf(v, c)))
}

// peersOf selects peers of the proxy's region, each once even if it serves several ports. They count where
// they are, also in other networks.
func peersOf(v *pushcontext.PeersView, c Class) (out selection) {
	seen := map[model.InstanceKey]bool{}
	groups := map[model.Locality]*group{}
	for _, p := range v.Endpoints {
		for _, l := range p.Localities {
			for _, e := range l.Endpoints {
				k := model.InstanceKey{Cluster: e.Addr.Cluster, IP: e.Addr.AddrPort.Addr()}
				if seen[k] || !c.peer(e) {
					continue
				}
				seen[k] = true
				if groups[e.Locality] == nil {
					groups[e.Locality] = &group{locality: e.Locality}
				}
				g := groups[e.Locality]
				g.hosts, g.weight = append(g.hosts, host{endpoint: e, weight: 1, health: e.Health}), g.weight+1
			}
		}
	}
	for _, g := range groups {
		slices.SortFunc(g.hosts, compareHosts)
		out.groups = append(out.groups, g)
	}
	slices.SortFunc(out.groups, func(a, b *group) int { return a.locality.Compare(b.locality) })
	return out
}

// peer reports whether an endpoint is an instance of the proxy's own workload that takes part in the
// region's traffic.
func (c *Class) peer(e *model.Endpoint) bool {
	switch {
	case e.Health == model.Terminating, e.Health == model.Draining, !e.Addr.Dialable(), e.Addr.Host != "", e.Addr.AddrPort.Addr().Zone() != "":
		return false
	case e.Locality.Region != c.Locality.Region:
		return false
	}
	return TemplateOf(e.Labels) == c.Peers.Template && (c.Peers.Workload == "" || runs(e, c.Peers.Workload))
}

// maxNameBase is what Kubernetes keeps of the name of what owns a pod in the pod's own name.
const maxNameBase = 58

// runs reports whether an endpoint is an instance of the workload. The owner of a pod shows in its name:
// NAME-HASH-xxxxx for a Deployment, NAME-xxxxx or NAME-0 for others.
func runs(e *model.Endpoint, workload string) bool {
	if named, ok := e.Labels[labelWorkload]; ok {
		return named == workload
	}
	if e.Workload.Name == workload {
		return true
	}
	base := workload + "-"
	if hash := TemplateOf(e.Labels); hash != "" {
		base += hash + "-"
	}
	rest, ok := strings.CutPrefix(e.Workload.Name, base[:min(len(base), maxNameBase)])
	return ok && rest != "" && !strings.Contains(rest, "-")
}
