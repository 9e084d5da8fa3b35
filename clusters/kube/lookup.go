package kube

import (
	"net/netip"
	"reflect"

	corev1 "k8s.io/api/core/v1"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
)

// Lookup gives conversion what else is known in the member. A missing object is nil.
type Lookup interface {
	Service(namespace, name string) *ServiceFacts
	Pod(namespace, name string) *PodFacts
	// PodsByIP gives the running pods of a namespace that have the address, by name.
	PodsByIP(namespace string, ip netip.Addr) []*PodFacts
	Node(name string) *NodeFacts
	Namespace(name string) *NamespaceFacts
	// NodeAddresses gives the external addresses of the nodes that have all these labels, sorted; those
	// of all nodes for none.
	NodeAddresses(selector model.Labels) []netip.Addr
	// Export and Import are what the Multi-Cluster Services API says of a Service.
	Export(namespace, name string) *ExportFacts
	Import(namespace, name string) *ImportFacts
	// TrustDomain is the one that the member names itself, "" if it does not.
	TrustDomain() string
}

// ServiceFacts are what the conversion of other objects needs of a Service.
type ServiceFacts struct {
	MarksDraining bool // a session-persistence label: endpoints that shut down but serve are draining
	ExternalName  bool // has no endpoints of its own
}

// PodFacts are what the conversion of other objects needs of a Pod. Readiness is not among them: it
// changes often, and slices state their endpoints' own.
type PodFacts struct {
	Namespace, Name, UID string
	IPs                  []netip.Addr
	Labels               model.Labels
	Node                 string
	ServiceAccount       string
	Hostname             string // when it has a subdomain
	Gone                 bool   // being deleted
}

// NodeFacts are what conversion needs of a Node.
type NodeFacts struct{ Locality model.Locality }

// NamespaceFacts are what conversion needs of a Namespace.
type NamespaceFacts struct {
	Network string // label topology.istio.io/network
	Traffic string // annotation networking.istio.io/traffic-distribution
}

// NodeExposure is how a Node is reached from outside the member: its external addresses, and the labels
// that select it.
type NodeExposure struct {
	Labels model.Labels
	IPs    []netip.Addr
}

func same[T any](a, b *T) bool { return reflect.DeepEqual(a, b) }

func serviceFacts(s *corev1.Service) *ServiceFacts {
	return &ServiceFacts{
		MarksDraining: s.Labels[labelPersistentSession] != "" || s.Labels[labelPersistentHeader] != "",
		ExternalName:  s.Spec.Type == corev1.ServiceTypeExternalName,
	}
}

func nodeFacts(n *corev1.Node) *NodeFacts {
	first := func(keys ...string) string {
		for _, k := range keys {
			if v := n.Labels[k]; v != "" {
				return v
			}
		}
		return ""
	}
	return &NodeFacts{Locality: model.Locality{
		Region:  first(corev1.LabelTopologyRegion, corev1.LabelFailureDomainBetaRegion),
		Zone:    first(corev1.LabelTopologyZone, corev1.LabelFailureDomainBetaZone),
		Subzone: first(labelSubzone),
	}}
}

func namespaceFacts(n *corev1.Namespace) *NamespaceFacts {
	return &NamespaceFacts{Network: n.Labels[labelNetwork], Traffic: n.Annotations[annotationTraffic]}
}

// nodeExposure is nil for a node without external addresses, which most have not.
func nodeExposure(n *corev1.Node) *NodeExposure {
	var ips []netip.Addr
	for _, a := range n.Status.Addresses {
		if ip, err := parseIP(a.Address); a.Type == corev1.NodeExternalIP && err == nil {
			ips = append(ips, ip)
		}
	}
	if len(ips) == 0 {
		return nil
	}
	return &NodeExposure{Labels: n.Labels, IPs: ips}
}

// podFacts is nil for a pod that has finished: it does not come back, and others may have its addresses.
func podFacts(p *corev1.Pod) *PodFacts {
	if p.Status.Phase == corev1.PodFailed || p.Status.Phase == corev1.PodSucceeded {
		return nil
	}
	f := &PodFacts{
		Namespace: p.Namespace, Name: p.Name, UID: string(p.UID), IPs: podIPs(p), Labels: model.Labels(p.Labels),
		Node: p.Spec.NodeName, ServiceAccount: p.Spec.ServiceAccountName, Gone: p.DeletionTimestamp != nil,
	}
	if f.ServiceAccount == "" {
		f.ServiceAccount = "default"
	}
	if p.Spec.Subdomain != "" {
		f.Hostname = p.Spec.Hostname
		if f.Hostname == "" {
			f.Hostname = p.Name
		}
	}
	return f
}

// podIPs lists the pod's usable addresses, the primary one first.
func podIPs(p *corev1.Pod) []netip.Addr {
	var out []netip.Addr
	add := func(s string) {
		ip, err := parseIP(s)
		if err != nil {
			return
		}
		for _, have := range out {
			if have == ip {
				return
			}
		}
		out = append(out, ip)
	}
	add(p.Status.PodIP)
	for _, i := range p.Status.PodIPs {
		add(i.IP)
	}
	return out
}

// podPorts are the pod's named ports; the first container that names a port wins.
func podPorts(p *corev1.Pod) map[string]uint16 {
	var out map[string]uint16
	for _, c := range append(p.Spec.Containers[:len(p.Spec.Containers):len(p.Spec.Containers)], sidecars(p)...) {
		for _, port := range c.Ports {
			n, ok := portNumber(int64(port.ContainerPort))
			if _, known := out[port.Name]; port.Name == "" || !ok || known {
				continue
			}
			if out == nil {
				out = map[string]uint16{}
			}
			out[port.Name] = n
		}
	}
	return out
}

// sidecars are the init containers that keep running.
func sidecars(p *corev1.Pod) []corev1.Container {
	var out []corev1.Container
	for _, c := range p.Spec.InitContainers {
		if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			out = append(out, c)
		}
	}
	return out
}

func podReady(p *corev1.Pod) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}
