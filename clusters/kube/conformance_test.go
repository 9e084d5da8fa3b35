package kube_test

import (
	"maps"
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
	world conformance.World
}

// readLabel is on the one namespace that the registry reads: every API server has a
// service in another, which is in no World.
const readLabel = "conformance"

func (c *apiSource) Registry() model.Registry {
	return kube.New(kube.Options{
		Cluster: c.id, Config: c.Config(env.AdminToken),
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

func TestConformance(t *testing.T) {
	// Taken here: the suite looks for what a case leaves behind.
	apis := servers.Take(t, 2)
	conformance.Run(t, conformance.Harness{New: func(t *testing.T, id model.ClusterID) conformance.Source {
		api := map[model.ClusterID]*env.Cluster{"c1": apis[0], "c2": apis[1]}[id]
		api.Delete(t, env.Namespace(conformance.Namespace))
		api.Apply(t, env.Namespace(conformance.Namespace, readLabel, "yes"))
		return &apiSource{Link: api.Link(t), t: t, id: id, api: api}
	}})
}
