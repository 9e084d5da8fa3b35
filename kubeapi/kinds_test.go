package kubeapi_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/isthmus-mesh/isthmus/kubeapi"
)

// oldServer has WorkloadEntries in one version only, and counts what it is asked.
type oldServer struct {
	version string

	mu    sync.Mutex
	asked map[string]int
}

func (s *oldServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.asked[r.URL.Path]++
	s.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	switch group := "/apis/networking.istio.io/" + s.version; r.URL.Path {
	case group:
		fmt.Fprintf(w, `{"kind":"APIResourceList","groupVersion":"networking.istio.io/%s","resources":[{"name":"workloadentries","namespaced":true,"kind":"WorkloadEntry"}]}`, s.version)
	case group + "/namespaces/vms/workloadentries/a":
		fmt.Fprintf(w, `{"kind":"WorkloadEntry","apiVersion":"networking.istio.io/%s","metadata":{"name":"a"}}`, s.version)
	default:
		w.WriteHeader(http.StatusNotFound)
		fmt.Fprint(w, `{"kind":"Status","status":"Failure","reason":"NotFound","code":404}`)
	}
}

// TestKinds: objects are met in the newest version that a server has, which is looked for once; of a kind that it does not
// have that is said, and looked for again.
func TestKinds(t *testing.T) {
	t.Parallel()
	s := &oldServer{version: "v1beta1", asked: map[string]int{}}
	srv := httptest.NewServer(s)
	t.Cleanup(srv.Close)
	k, err := kubeapi.NewKinds(&rest.Config{Host: srv.URL})
	if err != nil {
		t.Fatal(err)
	}
	kind := schema.GroupResource{Group: "networking.istio.io", Resource: "workloadentries"}
	for range 2 {
		all, version, err := k.In(t.Context(), kind, "v1", "v1beta1", "v1alpha3")
		if err != nil || version.Version != "v1beta1" {
			t.Fatalf("%v, %v", version, err)
		}
		if _, err := all.Namespace("vms").Get(t.Context(), "a", metav1.GetOptions{}); err != nil {
			t.Error(err)
		}
		if _, _, err := k.In(t.Context(), schema.GroupResource{Group: "networking.istio.io", Resource: "sidecars"}, "v1"); !apierrors.IsNotFound(err) {
			t.Errorf("a kind that is not there: %v", err)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := s.asked["/apis/networking.istio.io/v1beta1"]; n != 1 {
		t.Errorf("the version was looked for %d times", n)
	}
	if n := s.asked["/apis/networking.istio.io/v1"]; n != 3 {
		t.Errorf("v1 was asked for %d times, want 3: once for entries and twice for Sidecars", n)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := k.In(ended, schema.GroupResource{Group: "x.example", Resource: "y"}, "v1"); err == nil {
		t.Error("it did not end with its context")
	}
}
