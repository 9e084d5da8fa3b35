package status

import "testing"

// Every kind that has a status is one that is read, so its place is known.
func TestPlacesOfKinds(t *testing.T) {
	t.Parallel()
	for kind, version := range versions {
		if r := resource(kind); r.Group == "" || r.Resource == "" || r.Version != version || !Has(kind) {
			t.Errorf("%s: %v", kind, r)
		}
	}
	if Has("EnvoyFilter") || Has("Pod") {
		t.Error("a kind without status has one")
	}
}
