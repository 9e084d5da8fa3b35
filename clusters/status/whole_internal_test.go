package status

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	api "github.com/isthmus-mesh/isthmus/api/v1alpha1"
)

func object(t *testing.T, status string) *unstructured.Unstructured {
	t.Helper()
	o := &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"resourceVersion": "7"}}}
	if status != "" {
		var v map[string]any
		if err := json.Unmarshal([]byte(status), &v); err != nil {
			t.Fatal(err)
		}
		o.Object["status"] = v
	}
	return o
}

// A status of ours is written whole: what is not said any more goes, conditions keep their times, and what is there is not written.
func TestWholeStatus(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	o := Object{Key: model.ObjectKey{Kind: model.ConfigRegistry}, Status: &api.RegistryStatus{
		State: "live", Services: 3, Conditions: []metav1.Condition{{Type: "Accepted", Status: "True", Reason: "Valid"}, {Type: "Synced", Status: "True", Reason: "Synced"}},
		Effective: &api.RegistrySpec{Provider: api.Consul, Addresses: []string{"a:1"}},
	}}
	const before = `{"state":"stale","reason":"old","services":2,"endpoints":0,"effective":{"provider":"consul","addresses":["a:1"],"network":"n"},
		"conditions":[{"type":"Accepted","status":"True","reason":"Valid","message":"","lastTransitionTime":"2025-01-01T00:00:00Z"},{"type":"Synced","status":"False","reason":"x","message":"","lastTransitionTime":"2025-01-01T00:00:00Z"}]}`
	patch, err := o.patch(object(t, before), now)
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"metadata":{"resourceVersion":"7"},"status":{"conditions":[` +
		`{"lastTransitionTime":"2025-01-01T00:00:00Z","message":"","reason":"Valid","status":"True","type":"Accepted"},` +
		`{"lastTransitionTime":"2026-01-02T03:04:05Z","message":"","reason":"Synced","status":"True","type":"Synced"}],` +
		`"effective":{"addresses":["a:1"],"network":null,"provider":"consul"},"endpoints":0,"reason":null,"services":3,"state":"live"}}`
	if d := cmp.Diff(want, string(patch)); d != "" {
		t.Error(d)
	}
	const after = `{"state":"live","services":3,"endpoints":0,"effective":{"provider":"consul","addresses":["a:1"]},
		"conditions":[{"type":"Accepted","status":"True","reason":"Valid","message":"","lastTransitionTime":"2025-01-01T00:00:00Z"},{"type":"Synced","status":"True","reason":"Synced","message":"","lastTransitionTime":"2026-01-02T03:04:05Z"}]}`
	if patch, err := o.patch(object(t, after), now.Add(time.Hour)); err != nil || patch != nil {
		t.Errorf("%s, %v", patch, err)
	}
	if patch, err := o.patch(object(t, ""), now); err != nil || patch == nil {
		t.Errorf("%s, %v", patch, err)
	}
}
