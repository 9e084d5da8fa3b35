package kube

import (
	"net/netip"

	corev1 "k8s.io/api/core/v1"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
)

// pod makes the Workload row of a pod that runs and has an address. Pods in the host's network are
// workloads like others.
func (c *Converter) pod(o Object, p *corev1.Pod, look Lookup) (res Result) {
	f := podFacts(p)
	if f == nil || f.Gone {
		return res
	}
	if len(f.IPs) == 0 {
		if p.Status.PodIP != "" {
			res.problem("podIP %q is not a unicast address", clip(p.Status.PodIP))
		}
		return res
	}
	loc, network := c.locality(f.Labels, f.Node, look), c.network(f.Labels, look)
	w := &model.Workload{
		Kind: model.KindPod, Namespace: f.Namespace, Name: f.Name,
		Labels:  c.augmented(f.Labels, loc, f.Node, network),
		Address: model.Addr{Cluster: c.Shard.Cluster, AddrPort: netip.AddrPortFrom(f.IPs[0], 0)},
		Ports:   podPorts(p), Network: network, Locality: loc, Node: f.Node,
		ServiceAccount: c.spiffe(f.Namespace, f.ServiceAccount, look), TLSMode: tlsMode(f.Labels),
		Health: podHealth(p), Source: c.source(o),
	}
	res.row(o.Ref.String(), w)
	return res
}

func podHealth(p *corev1.Pod) model.Health {
	switch {
	case p.Labels[labelDraining] != "":
		return model.Draining
	case !podReady(p):
		return model.Unhealthy
	}
	return model.Healthy
}
