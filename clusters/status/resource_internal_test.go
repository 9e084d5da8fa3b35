package status

import (
	"testing"

	"github.com/isthmus-mesh/isthmus/clusters/kube"
)

// Every kind that has a status is one that is read, so its place is known.
func TestPlacesOfKinds(t *testing.T) {
	t.Parallel()
	for kind, all := range versions {
		if group, name := kube.Resource(kind); group == "" || name == "" || len(all) == 0 || !Has(kind) {
			t.Errorf("%s is %s of the group %q in %v", kind, name, group, all)
		}
	}
	if Has("EnvoyFilter") || Has("Pod") {
		t.Error("a kind without status has one")
	}
}
