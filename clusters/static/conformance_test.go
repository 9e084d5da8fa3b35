package static_test

import (
	"testing"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	api "github.com/isthmus-mesh/isthmus/api/v1alpha1"
	"github.com/isthmus-mesh/isthmus/clusters/conformance"
	"github.com/isthmus-mesh/isthmus/clusters/static"
)

func TestConformance(t *testing.T) {
	conformance.RunFixed(t, conformance.Fixed{New: func(_ *testing.T, cluster model.ClusterID, w conformance.World) model.Registry {
		o := static.Options{Key: model.ShardKey{Provider: model.ProviderStatic, Cluster: cluster}, Namespace: conformance.Namespace}
		for name, s := range w {
			o.Service = &api.StaticService{Host: name, Port: s.Port, Protocol: "http"}
			for _, a := range s.Addresses {
				o.Service.Addresses = append(o.Service.Addresses, api.StaticAddress{Host: a, Port: s.Port})
			}
		}
		return static.New(o)
	}})
}
