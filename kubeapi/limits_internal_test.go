package kubeapi

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// A negative number of requests per second is no bound, as for client-go: it is not a stock of requests that is used
// up for good. The feeds of a client share one bound.
func TestRequestsPerSecond(t *testing.T) {
	t.Parallel()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"kind":"APIGroupList","apiVersion":"v1","groups":[]}`))
	}))
	t.Cleanup(srv.Close)
	for _, tt := range []struct {
		name    string
		config  float32 // of the rest.Config
		options float32
		bound   bool
	}{
		{"the configuration's -1", -1, 0, false},
		{"the option's -1", 0, -1, false},
		{"the option before the configuration", -1, 1e-6, true},
		{"the configuration's", 1e-6, 0, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c, err := Connect(Options{Config: &rest.Config{Host: srv.URL, QPS: tt.config}, QPS: tt.options, Burst: 2, Timing: Timing{List: time.Minute}})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(c.Close)
			if one, two := c.core.GetRateLimiter(), c.custom.GetRateLimiter(); one != two {
				t.Error("two bounds")
			}
			for i := range 5 {
				err := c.Get(t.Context(), &metav1.APIGroupList{}, "apis")
				if want := tt.bound && i >= 2; (err != nil) != want {
					t.Errorf("request %d: %v", i, err)
				}
			}
		})
	}
}
