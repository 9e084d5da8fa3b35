package kube_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/clusters/kube"
)

func mcsStore() *kube.Store {
	return kube.NewStore(kube.Converter{Shard: shard, TrustDomain: "td", MCS: true})
}

func asService(t testing.TB, o kube.Object) *corev1.Service {
	t.Helper()
	s, ok := o.Value.(*corev1.Service)
	if !ok {
		t.Fatalf("%s is no Service", o.Ref)
	}
	return s
}

func noPanics(t testing.TB, s *kube.Store) {
	t.Helper()
	for _, ps := range s.Problems() {
		if strings.Contains(strings.Join(ps, " "), "conversion failed") {
			t.Fatal(ps)
		}
	}
}

const (
	mcsService = "apiVersion: v1\nkind: Service\nmetadata: {name: svc, namespace: demo}\nspec: {clusterIP: 10.0.0.1, selector: {app: x}, ports: [{name: http, port: 80}]}\n---\n"
	mcsSlice   = "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {name: svc-1, namespace: demo, labels: {kubernetes.io/service-name: svc}}\naddressType: IPv4\nports: [{name: http, port: 8080}]\nendpoints: [{addresses: [10.1.0.1]}]\n---\n"
	mcsExport  = "apiVersion: multicluster.x-k8s.io/v1alpha1\nkind: ServiceExport\nmetadata: {name: svc, namespace: demo}\n---\n"
	mcsImport  = "apiVersion: multicluster.x-k8s.io/v1alpha1\nkind: ServiceImport\nmetadata: {name: svc, namespace: demo}\nspec: {type: ClusterSetIP, ips: [10.100.0.1], ports: [{name: http, port: 80}]}\n---\n"
)

// An export makes a service known to all and gives it its second name; without it the service is local.
func TestMCSExport(t *testing.T) {
	t.Parallel()
	s := mcsStore()
	s.Apply(objects(t, mcsService+mcsSlice), nil)
	if !row[*model.Service](t, s, "Service/demo/svc").ClusterLocal {
		t.Error("a service that is not exported is not local")
	}
	got := keysOf(s.Apply(objects(t, mcsExport), nil))
	want := []string{"service Service/demo/svc", "service Service/demo/svc/clusterset", "endpoints EndpointSlice/demo/svc-1/clusterset"}
	if d := cmp.Diff(want, got); d != "" {
		t.Error("exported:", d)
	}
	set := row[*model.Service](t, s, "Service/demo/svc/clusterset")
	if row[*model.Service](t, s, "Service/demo/svc").ClusterLocal || set.ClusterLocal || !set.ClusterSet || set.Host != "svc.demo.svc.clusterset.local" || set.Addresses != nil {
		t.Errorf("exported: %+v", set)
	}
	got = keysOf(s.Apply(objects(t, mcsImport), nil))
	if d := cmp.Diff([]string{"service Service/demo/svc/clusterset"}, got); d != "" {
		t.Error("imported:", d)
	}
	got = keysOf(s.Delete(model.ObjectKey{Kind: kube.KindServiceExport, Namespace: "demo", Name: "svc"}))
	want = []string{"service Service/demo/svc", "service ServiceImport/demo/svc", "-service Service/demo/svc/clusterset", "-endpoints EndpointSlice/demo/svc-1/clusterset"}
	if d := cmp.Diff(want, got); d != "" {
		t.Error("no longer exported:", d)
	}
	if !row[*model.Service](t, s, "Service/demo/svc").ClusterLocal {
		t.Error("a service that is no longer exported is not local")
	}
}

// WorkloadEntries that a Service selects join it by both of its names; its endpoints are equal for both.
func TestMCSBothNamesHaveTheSame(t *testing.T) {
	t.Parallel()
	s := mcsStore()
	s.Apply(objects(t, mcsService+mcsSlice+mcsExport), nil)
	svc, set := row[*model.Service](t, s, "Service/demo/svc"), row[*model.Service](t, s, "Service/demo/svc/clusterset")
	if d := cmp.Diff(svc.Selector, set.Selector); d != "" || len(set.Selector.Labels) == 0 {
		t.Error("selector", d)
	}
	a, b := row[*model.Endpoints](t, s, "EndpointSlice/demo/svc-1"), row[*model.Endpoints](t, s, "EndpointSlice/demo/svc-1/clusterset")
	if len(a.Endpoints) != 1 || len(b.Endpoints) != 1 || a.Endpoints[0].Addr != b.Endpoints[0].Addr {
		t.Errorf("endpoints %v and %v", a.Endpoints, b.Endpoints)
	}
	if b.Endpoints[0].Source != &b.Source {
		t.Error("an endpoint's source is that of another row")
	}
}

// Without the option nothing is exported or local, and the objects are counted as not served.
func TestMCSOff(t *testing.T) {
	t.Parallel()
	s := load(t, mcsService+mcsSlice+mcsExport+mcsImport)
	if svc := row[*model.Service](t, s, "Service/demo/svc"); svc.ClusterLocal || svc.ClusterSet {
		t.Errorf("got %+v", svc)
	}
	for _, key := range []string{"ServiceExport/demo/svc", "ServiceImport/demo/svc"} {
		if !row[*model.Config](t, s, key).NotServed {
			t.Errorf("%s counts as served", key)
		}
	}
	if n := s.State().Len(); n != 4 {
		t.Errorf("%d rows", n)
	}
}

// A Service that becomes an alias of an external name can't stay exported.
func TestMCSExternalName(t *testing.T) {
	t.Parallel()
	s := mcsStore()
	s.Apply(objects(t, mcsService+mcsSlice+mcsExport), nil)
	s.Apply(objects(t, "apiVersion: v1\nkind: Service\nmetadata: {name: svc, namespace: demo}\nspec: {type: ExternalName, externalName: a.example, ports: [{name: http, port: 80}]}"), nil)
	for _, key := range []string{"service Service/demo/svc/clusterset", "endpoints EndpointSlice/demo/svc-1/clusterset"} {
		if _, there := rowsOf(s)[key]; there {
			t.Errorf("%s is still there", key)
		}
	}
	if ps := s.Problems()[model.ObjectKey{Kind: kube.KindServiceExport, Namespace: "demo", Name: "svc"}]; len(ps) != 1 {
		t.Errorf("problems %q", ps)
	}
}
