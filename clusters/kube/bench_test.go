package kube_test

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
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
	add(&corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "edge", Namespace: "demo", Annotations: map[string]string{"traffic.istio.io/nodeSelector": `{"role":"edge"}`}},
		Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeNodePort, Ports: []corev1.ServicePort{{Name: "tls", Port: 15443, NodePort: 30443}}}})
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

// One change costs the same however much else there is: a pod that becomes ready and unready touches its own
// row, its slice's row a label of the pod, a node its address's services, an export its service.
func BenchmarkStoreChange(b *testing.B) {
	for _, services := range []int{1000, 10_000} {
		s := kube.NewStore(kube.Converter{Shard: shard, MCS: true})
		s.Apply(member(services), nil)
		for name, versions := range map[string][2]any{
			"pod ready": {benchPod("svc-7-3", "10.0.7.4", false), benchPod("svc-7-3", "10.0.7.4", true)},
			"pod label": {labelledPod("svc-7-3", "10.0.7.4", "v1"), labelledPod("svc-7-3", "10.0.7.4", "v2")},
			"node":      {edge("192.0.2.1"), edge("192.0.2.2")},
			"export":    {&mcsv1beta1.ServiceExport{ObjectMeta: metav1.ObjectMeta{Name: "svc-7", Namespace: "demo"}}, nil},
		} {
			b.Run(fmt.Sprintf("%s/services=%d", name, services), func(b *testing.B) {
				b.ReportAllocs()
				for i := 0; b.Loop(); i++ {
					if o, ok := kube.NewObject("", versions[i%2]); ok {
						s.Set(o)
					} else {
						s.Delete(model.ObjectKey{Kind: kube.KindServiceExport, Namespace: "demo", Name: "svc-7"})
					}
				}
			})
		}
	}
}

func labelledPod(name, ip, version string) *corev1.Pod {
	p := benchPod(name, ip, true)
	p.Labels["version"] = version
	return p
}

func edge(ip string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "edge", Labels: map[string]string{"role": "edge"}},
		Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeExternalIP, Address: ip}}}}
}
