package env

import (
	"fmt"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// Labels by which Istio's users say where things are.
const (
	NetworkLabel = "topology.istio.io/network"
	regionLabel  = "topology.kubernetes.io/region"
	zoneLabel    = "topology.kubernetes.io/zone"
	appLabel     = "app"
)

// The functions below describe objects as a test needs most; the result may be
// changed before it is applied. An id is "namespace/name".

// Service is a ClusterIP service that selects app=<name>, with a port named http.
func Service(id string, port int32) *corev1.Service {
	ns, name := split(id)
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name},
		Spec: corev1.ServiceSpec{
			Selector: map[string]string{appLabel: name},
			Ports:    []corev1.ServicePort{{Name: "http", Port: port}},
		},
	}
}

// Slice is the EndpointSlice <name>-1 of a service: ready endpoints at a port
// named http.
func Slice(service string, port int32, addresses ...string) *discoveryv1.EndpointSlice {
	ns, name := split(service)
	http := "http"
	s := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: ns, Name: name + "-1", Labels: map[string]string{discoveryv1.LabelServiceName: name},
		},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: &http, Port: &port}},
	}
	for _, a := range addresses {
		if ip, err := netip.ParseAddr(a); err == nil && ip.Is6() {
			s.AddressType = discoveryv1.AddressTypeIPv6
		}
		s.Endpoints = append(s.Endpoints, Endpoint(a))
	}
	return s
}

// Endpoint is a ready endpoint of a slice.
func Endpoint(address string) discoveryv1.Endpoint {
	ready := true
	return discoveryv1.Endpoint{Addresses: []string{address}, Conditions: discoveryv1.EndpointConditions{Ready: &ready}}
}

// Of makes an endpoint of a slice stand for a Pod.
func Of(e discoveryv1.Endpoint, p *corev1.Pod) discoveryv1.Endpoint {
	e.TargetRef = &corev1.ObjectReference{Kind: "Pod", Namespace: p.Namespace, Name: p.Name}
	if p.Spec.NodeName != "" {
		e.NodeName = &p.Spec.NodeName
	}
	return e
}

// Pod is a running and ready Pod with an address, of the service account
// "default". The label app is the argument.
func Pod(id, app, ip string) *corev1.Pod {
	ns, name := split(id)
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name, Labels: map[string]string{appLabel: app}},
		Spec: corev1.PodSpec{
			ServiceAccountName: "default",
			Containers:         []corev1.Container{{Name: "app", Image: "app"}},
		},
		Status: corev1.PodStatus{
			Phase: corev1.PodRunning, PodIP: ip, PodIPs: []corev1.PodIP{{IP: ip}},
			Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
		},
	}
}

// Node is a node in a place, with external addresses.
func Node(name, region, zone string, external ...string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
		regionLabel: region, zoneLabel: zone, corev1.LabelHostname: name,
	}}}
	for _, ip := range external {
		n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeExternalIP, Address: ip})
	}
	return n
}

// Namespace is a namespace with labels, given as name, value, name, value.
func Namespace(name string, labels ...string) *corev1.Namespace {
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{}}}
	for i := 0; i+1 < len(labels); i += 2 {
		ns.Labels[labels[i]] = labels[i+1]
	}
	return ns
}

// AppPort is where the Pods of an App listen.
const AppPort = 8080

// App describes a service, its slice and a Pod per address, <name>-0 and so on,
// which listens at AppPort. The Pods run on the node, if one is named, and take
// part in mutual TLS.
func App(id string, port int32, node string, addresses ...string) []any {
	ns, name := split(id)
	service, slice := Service(id, port), Slice(id, AppPort)
	service.Spec.Ports[0].TargetPort = intstr.FromInt32(AppPort)
	out := []any{service}
	for i, a := range addresses {
		p := Pod(fmt.Sprintf("%s/%s-%d", ns, name, i), name, a)
		p.Labels["security.istio.io/tlsMode"] = "istio"
		p.Spec.NodeName = node
		slice.Endpoints = append(slice.Endpoints, Of(Endpoint(a), p))
		out = append(out, p)
	}
	return append(out, slice)
}
