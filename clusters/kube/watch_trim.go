package kube

import (
	"unique"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// trim drops what conversion never reads, before an object is kept: most of a pod, all of a node but its
// labels and addresses. Labels, of which a cluster has few distinct ones, are shared between objects.
func trim(o runtime.Object) {
	switch o := o.(type) {
	case *corev1.Pod:
		trimPod(o)
	case *corev1.Node:
		trimMeta(&o.ObjectMeta)
		o.Annotations, o.Spec = nil, corev1.NodeSpec{}
		o.Status = corev1.NodeStatus{Addresses: o.Status.Addresses}
	case *corev1.Service:
		trimMeta(&o.ObjectMeta)
		o.Status.Conditions = nil
	case *corev1.Namespace:
		trimMeta(&o.ObjectMeta)
		o.Status = corev1.NamespaceStatus{}
	case *corev1.ConfigMap:
		trimMeta(&o.ObjectMeta)
		o.BinaryData = nil
	case *discoveryv1.EndpointSlice:
		trimMeta(&o.ObjectMeta)
		o.Annotations = nil
		for i := range o.Endpoints {
			trimEndpoint(&o.Endpoints[i])
		}
	}
}

func trimEndpoint(e *discoveryv1.Endpoint) {
	e.DeprecatedTopology, e.Hints = nil, nil
	if t := e.TargetRef; t != nil {
		e.TargetRef = &corev1.ObjectReference{Kind: t.Kind, Namespace: intern(t.Namespace), Name: t.Name, UID: t.UID}
	}
}

func trimPod(p *corev1.Pod) {
	trimMeta(&p.ObjectMeta)
	p.Annotations = nil
	var kept []corev1.Container
	for _, c := range p.Spec.Containers {
		kept = append(kept, corev1.Container{Name: c.Name, Ports: c.Ports})
	}
	var inits []corev1.Container
	for _, c := range sidecars(p) {
		inits = append(inits, corev1.Container{Name: c.Name, Ports: c.Ports, RestartPolicy: c.RestartPolicy})
	}
	p.Spec = corev1.PodSpec{
		Containers: kept, InitContainers: inits, NodeName: intern(p.Spec.NodeName), ServiceAccountName: intern(p.Spec.ServiceAccountName),
		Hostname: p.Spec.Hostname, Subdomain: p.Spec.Subdomain,
	}
	var ready []corev1.PodCondition
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady {
			ready = append(ready, corev1.PodCondition{Type: corev1.PodReady, Status: c.Status})
		}
	}
	p.Status = corev1.PodStatus{Phase: p.Status.Phase, Conditions: ready, PodIP: p.Status.PodIP, PodIPs: p.Status.PodIPs}
}

func trimMeta(m *metav1.ObjectMeta) {
	delete(m.Annotations, corev1.LastAppliedConfigAnnotation)
	if len(m.Annotations) == 0 {
		m.Annotations = nil
	}
	m.ManagedFields, m.OwnerReferences, m.Finalizers, m.GenerateName = nil, nil, nil, ""
	m.Namespace = intern(m.Namespace)
	if len(m.Labels) == 0 {
		return
	}
	labels := make(map[string]string, len(m.Labels))
	for k, v := range m.Labels {
		labels[intern(k)] = intern(v)
	}
	m.Labels = labels
}

func intern(s string) string { return unique.Make(s).Value() }
