package kube_test

import (
	"strings"
	"testing"

	networking "istio.io/api/networking/v1alpha3"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/clusters/kube"
)

func row[T model.Object](t *testing.T, s *kube.Store, key string) T {
	t.Helper()
	var zero T
	o, ok := s.State().Row(model.RowKey{Kind: zero.RowKind(), Key: key})
	if !ok {
		t.Fatalf("no row %s", key)
	}
	return o.(T)
}

// Incident 51: an address moves between slices; each slice is a row of its own, so it is never
// doubled within a row and stays while any slice lists it.
func TestIncident51SliceMove(t *testing.T) {
	t.Parallel()
	slice := func(name, addresses string) string {
		return "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {name: " + name + ", namespace: demo, labels: {kubernetes.io/service-name: svc}}\naddressType: IPv4\nports: [{name: http, port: 1}, {name: admin, port: 2}]\nendpoints: [{addresses: [" + addresses + "]}]\n---\n"
	}
	s := load(t, slice("a", "10.0.0.1, 10.0.0.2")+slice("b", "10.0.0.1"))
	s.Apply(objects(t, slice("a", "10.0.0.2")), nil)
	if got := len(row[*model.Endpoints](t, s, "EndpointSlice/demo/b").Endpoints); got != 2 {
		t.Errorf("slice b has %d endpoints, want the address on both ports", got)
	}
	if got := row[*model.Endpoints](t, s, "EndpointSlice/demo/a").Endpoints; len(got) != 2 || got[0].Addr.AddrPort.Addr().String() != "10.0.0.2" {
		t.Errorf("slice a has %v", got)
	}
}

// Incident 55: labels of workloads are re-read, for pods and WorkloadEntries alike.
func TestIncident55LabelChange(t *testing.T) {
	t.Parallel()
	s := load(t, "apiVersion: v1\nkind: Pod\nmetadata: {name: p, namespace: demo, labels: {ready: \"true\"}}\nstatus: {podIP: 10.0.0.1}\n---\n"+
		"apiVersion: networking.istio.io/v1\nkind: WorkloadEntry\nmetadata: {name: w, namespace: demo, labels: {ready: \"true\"}}\nspec: {address: 10.0.0.2}")
	s.Apply(objects(t, "apiVersion: v1\nkind: Pod\nmetadata: {name: p, namespace: demo, labels: {ready: \"false\"}}\nstatus: {podIP: 10.0.0.1}\n---\n"+
		"apiVersion: networking.istio.io/v1\nkind: WorkloadEntry\nmetadata: {name: w, namespace: demo, labels: {ready: \"false\"}}\nspec: {address: 10.0.0.2}"), nil)
	for _, key := range []string{"Pod/demo/p", "WorkloadEntry/demo/w"} {
		if l := row[*model.Workload](t, s, key).Labels; l.Matches(model.Labels{"ready": "true"}) || !l.Matches(model.Labels{"ready": "false"}) {
			t.Errorf("%s still has %s", key, l)
		}
	}
}

// Incident 56: an empty or absent selector selects nothing.
func TestIncident56EmptySelector(t *testing.T) {
	t.Parallel()
	s := load(t, "apiVersion: v1\nkind: Service\nmetadata: {name: none, namespace: demo}\nspec: {clusterIP: 10.0.0.1, ports: [{port: 80}]}\n---\n"+
		"apiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: {name: se, namespace: demo}\nspec: {hosts: [x.example], resolution: STATIC, workloadSelector: {}, ports: [{name: http, number: 80, protocol: HTTP}]}")
	for _, key := range []string{"Service/demo/none", "ServiceEntry/demo/se/x.example"} {
		sel := row[*model.Service](t, s, key).Selector
		if (model.Labels{"app": "x"}).Matches(sel.Labels) {
			t.Errorf("%s selects workloads", key)
		}
	}
}

// Incident 57: all that port selection needs is in the rows, and an edit replaces it.
func TestIncident57Ports(t *testing.T) {
	t.Parallel()
	s := load(t, "apiVersion: v1\nkind: Service\nmetadata: {name: svc, namespace: demo}\nspec: {clusterIP: 10.0.0.1, ports: [{name: web, port: 80, targetPort: http}, {name: grpc, port: 81, targetPort: 8081}]}\n---\n"+
		"apiVersion: v1\nkind: Pod\nmetadata: {name: p, namespace: demo}\nspec: {containers: [{name: c, ports: [{name: http, containerPort: 9090}]}]}\nstatus: {podIP: 10.0.0.2}\n---\n"+
		"apiVersion: networking.istio.io/v1\nkind: WorkloadEntry\nmetadata: {name: w, namespace: demo}\nspec: {address: 10.0.0.3, ports: {grpc: 17070}}")
	ports := row[*model.Service](t, s, "Service/demo/svc").Ports
	if ports[0].TargetName != "http" || ports[0].TargetPort != 0 || ports[1].TargetPort != 8081 {
		t.Errorf("service ports %+v", ports)
	}
	if got := row[*model.Workload](t, s, "Pod/demo/p").Ports["http"]; got != 9090 {
		t.Errorf("pod's port is %d", got)
	}
	if got := row[*model.Workload](t, s, "WorkloadEntry/demo/w").Ports["grpc"]; got != 17070 {
		t.Errorf("entry's port is %d", got)
	}
	s.Apply(objects(t, "apiVersion: v1\nkind: Service\nmetadata: {name: svc, namespace: demo}\nspec: {clusterIP: 10.0.0.1, ports: [{name: web, port: 8090}]}"), nil)
	if ports := row[*model.Service](t, s, "Service/demo/svc").Ports; len(ports) != 1 || ports[0].Number != 8090 || ports[0].TargetName != "" {
		t.Errorf("after the edit: %+v", ports)
	}
}

// Incident 86: objects with nothing, or nil, in them.
func TestIncident86OddObjects(t *testing.T) {
	t.Parallel()
	port := int32(80)
	for name, value := range map[string]any{
		"namespace": &corev1.Namespace{}, "node": &corev1.Node{}, "pod": &corev1.Pod{}, "service": &corev1.Service{},
		"slice": &discoveryv1.EndpointSlice{},
		"slice with nils": &discoveryv1.EndpointSlice{
			ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{discoveryv1.LabelServiceName: "x"}},
			Ports:      []discoveryv1.EndpointPort{{}, {Port: &port}},
			Endpoints:  []discoveryv1.Endpoint{{}, {Addresses: []string{""}}, {Addresses: []string{"10.0.0.1"}, TargetRef: &corev1.ObjectReference{}}},
		},
		"entry without spec": &kube.ServiceEntry{}, "workload without spec": &kube.WorkloadEntry{},
		"empty entry": &kube.ServiceEntry{Spec: &networking.ServiceEntry{}}, "empty workload": &kube.WorkloadEntry{Spec: &networking.WorkloadEntry{}},
		"entry with nils": &kube.ServiceEntry{
			Spec: &networking.ServiceEntry{Hosts: []string{"", "a.example"}, Addresses: []string{""}, Ports: []*networking.ServicePort{nil, {}},
				Resolution: 99, Endpoints: []*networking.WorkloadEntry{nil, {}}, WorkloadSelector: &networking.WorkloadSelector{}},
			Status: &networking.ServiceEntryStatus{Addresses: []*networking.ServiceEntryAddress{nil, {}}},
		},
		"TCP entry without addresses": &kube.ServiceEntry{Spec: &networking.ServiceEntry{Hosts: []string{"a.example"},
			Ports: []*networking.ServicePort{{Number: 9000, Protocol: "TCP", Name: "tcp"}}}},
		"other": &kube.Other{},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o, ok := kube.NewObject("Other", value)
			if !ok {
				t.Fatal("not an object")
			}
			s := newStore()
			s.Set(o)
			for _, ps := range s.Problems() {
				if strings.Contains(strings.Join(ps, " "), "conversion failed") {
					t.Error(ps)
				}
			}
			s.Delete(o.Ref)
			if n := s.State().Len(); n != 0 {
				t.Errorf("%d rows left", n)
			}
		})
	}
}

// Incident 86: a panic costs the object, not the process.
func TestIncident86PanicIsAProblem(t *testing.T) {
	t.Parallel()
	s := load(t, minimal)
	ref := model.ObjectKey{Kind: kube.KindPod, Namespace: "demo", Name: "odd"}
	s.Set(kube.Object{Ref: ref, Value: (*corev1.Pod)(nil)})
	if ps := s.Problems()[ref]; len(ps) != 1 || !strings.HasPrefix(ps[0], "conversion failed: ") {
		t.Errorf("problems %v", ps)
	}
	for kind, value := range map[string]any{kube.KindServiceEntry: (*kube.ServiceEntry)(nil), kube.KindWorkloadEntry: (*kube.WorkloadEntry)(nil),
		kube.KindGateway: (*kube.Config)(nil), kube.KindSidecar: (*kube.Broken)(nil), kube.KindVirtualService: &kube.Config{Spec: (*networking.VirtualService)(nil)}} {
		ref := model.ObjectKey{Kind: kind, Namespace: "demo", Name: "odd"}
		s.Set(kube.Object{Ref: ref, Value: value})
		if ps := s.Problems()[ref]; len(ps) == 0 {
			t.Errorf("%s: nothing is wrong with it", kind)
		}
	}
	if _, ok := s.State().Row(model.RowKey{Kind: model.RowWorkload, Key: "Pod/demo/a"}); !ok {
		t.Error("another object is gone")
	}
}

func TestNewObjectRefusesOthers(t *testing.T) {
	t.Parallel()
	if o, ok := kube.NewObject("X", "text"); ok {
		t.Errorf("got %+v", o)
	}
}
