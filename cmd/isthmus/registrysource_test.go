package main

import (
	"testing"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	api "github.com/isthmus-mesh/isthmus/api/v1alpha1"
	"github.com/isthmus-mesh/isthmus/clusters/foreign"
	"github.com/isthmus-mesh/isthmus/clusters/registries"
)

// TestWhatIsHandedOver: a registry that differs in credentials alone goes on from what the one before served, one that is declared otherwise
// does not.
func TestWhatIsHandedOver(t *testing.T) {
	t.Parallel()
	s := &registrySource{before: map[model.ShardKey]*handover{}}
	handed := func(p registries.Plan) *handover {
		h := s.handover(p)
		s.before[p.Key] = h
		return h
	}
	plan := func(name model.ClusterID, token, address string) registries.Plan {
		spec := api.RegistrySpec{Provider: api.Consul, Addresses: []string{address}}
		return registries.Plan{
			Key: model.ShardKey{Provider: model.ProviderConsul, Cluster: name}, Spec: spec.Effective("istio-system"), Access: foreign.Access{Token: token},
		}
	}
	first := handed(plan("legacy", "a", "127.0.0.1:8500"))
	if first == nil || handed(plan("legacy", "b", "127.0.0.1:8500")) != first {
		t.Error("another token: nothing is handed over")
	}
	if handed(plan("other", "a", "127.0.0.1:8500")) == first {
		t.Error("of another registry")
	}
	second := handed(plan("legacy", "b", "127.0.0.2:8500"))
	if second == first || handed(plan("legacy", "a", "127.0.0.1:8500")) == first {
		t.Error("declared otherwise, and back: what the one in between served is not what there was")
	}
}
