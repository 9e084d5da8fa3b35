package kube_test

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"testing"

	discoveryv1 "k8s.io/api/discovery/v1"

	meshconfig "istio.io/api/mesh/v1alpha1"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/clusters/conformance"
	"github.com/isthmus-mesh/isthmus/clusters/kube"
	"github.com/isthmus-mesh/isthmus/test/env"
)

// apiSource is an API server, behind a link, as a source of the suite.
type apiSource struct {
	*env.Link
	t     *testing.T
	id    model.ClusterID
	api   *env.Cluster
	token string
	world conformance.World
}

// readLabel is on the one namespace that the registry reads: every API server has a
// service in another, which is in no World.
const readLabel = "conformance"

func (c *apiSource) Registry() model.Registry {
	return kube.New(kube.Options{
		Cluster: c.id, Config: c.Config(c.token),
		Selectors: []*meshconfig.LabelSelector{{MatchLabels: map[string]string{readLabel: "yes"}}},
	})
}

// Set implements conformance.Source. The slice of a service without addresses stays,
// as the one that a controller leaves.
func (c *apiSource) Set(w conformance.World) {
	c.t.Helper()
	for name, s := range w {
		if old, is := c.world[name]; is && sameService(old, s) {
			continue
		}
		c.api.Apply(c.t, serviceOf(name, s), sliceOf(name, s))
	}
	for name, s := range c.world {
		if _, stays := w[name]; !stays {
			c.api.Delete(c.t, sliceOf(name, s), serviceOf(name, s))
		}
	}
	c.world = maps.Clone(w)
}

func serviceOf(name string, s conformance.Service) any {
	svc := env.Service(conformance.Namespace+"/"+name, int32(s.Port))
	svc.Spec.Selector = nil
	return svc
}

func sliceOf(name string, s conformance.Service) *discoveryv1.EndpointSlice {
	return env.Slice(conformance.Namespace+"/"+name, int32(s.Port), s.Addresses...)
}

func sameService(a, b conformance.Service) bool {
	return a.Port == b.Port && slices.Equal(a.Addresses, b.Addresses)
}

// TestConformance runs the suite on API servers, with the rights that a remote cluster grants and no others.
func TestConformance(t *testing.T) {
	rights, err := os.ReadFile("../../deploy/rbac-remote.yaml")
	if err != nil {
		t.Fatal(err)
	}
	// Taken here: the suite looks for what a case leaves behind.
	apis, tokens := map[model.ClusterID]*env.Cluster{}, map[model.ClusterID]string{}
	for i, api := range servers.Take(t, 2) {
		id := model.ClusterID(fmt.Sprint("c", i+1))
		api.Apply(t, env.Namespace("istio-system"), string(rights))
		apis[id], tokens[id] = api, api.Token(t, "istio-system/isthmus-reader", 3600)
	}
	conformance.Run(t, conformance.Harness{New: func(t *testing.T, id model.ClusterID) conformance.Source {
		api := apis[id]
		api.Delete(t, env.Namespace(conformance.Namespace))
		api.Apply(t, env.Namespace(conformance.Namespace, readLabel, "yes"))
		return &apiSource{Link: api.Link(t), t: t, id: id, api: api, token: tokens[id]}
	}})
}
