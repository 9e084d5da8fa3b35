package kube_test

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/isthmus-mesh/isthmus/clusters/kube"
)

const podsPerService = 10

// member gives services of ten pods each with their slices, pods and two nodes.
func member(services int) []kube.Object {
	var out []kube.Object
	add := func(v any) {
		o, _ := kube.NewObject("", v)
		out = append(out, o)
	}
	for i := range 2 {
		add(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("node-", i), Labels: map[string]string{corev1.LabelTopologyZone: fmt.Sprint("z", i)}}})
	}
	for s := range services {
		name := fmt.Sprint("svc-", s)
		add(&corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "demo"}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "http", Port: 80}}}})
		number, port := int32(8080), "http"
		slice := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "demo", Labels: map[string]string{discoveryv1.LabelServiceName: name}},
			AddressType: discoveryv1.AddressTypeIPv4, Ports: []discoveryv1.EndpointPort{{Name: &port, Port: &number}}}
		for p := range podsPerService {
			ip := fmt.Sprintf("10.%d.%d.%d", s/250, s%250, p+1)
			pod := benchPod(fmt.Sprint(name, "-", p), ip, true)
			add(pod)
			slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{Addresses: []string{ip}, TargetRef: &corev1.ObjectReference{Kind: "Pod", Name: pod.Name}})
		}
		add(slice)
	}
	return out
}

func benchPod(name, ip string, ready bool) *corev1.Pod {
	status := corev1.ConditionFalse
	if ready {
		status = corev1.ConditionTrue
	}
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "demo", Labels: map[string]string{"app": "x", "version": "v1"}},
		Spec: corev1.PodSpec{NodeName: "node-0"}, Status: corev1.PodStatus{PodIP: ip, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: status}}}}
}

func BenchmarkStoreLoad(b *testing.B) {
	objs := member(1000)
	b.ReportAllocs()
	for b.Loop() {
		newStore().Apply(objs, nil)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(objs)), "ns/object")
}

// A pod that becomes ready and unready touches its own row and its slice.
func BenchmarkStorePodFlap(b *testing.B) {
	s := newStore()
	s.Apply(member(1000), nil)
	var objs [2]kube.Object
	for i := range objs {
		objs[i], _ = kube.NewObject("", benchPod("svc-7-3", "10.0.7.4", i == 1))
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		s.Set(objs[i%2])
	}
}
