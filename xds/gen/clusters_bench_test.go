package gen_test

import (
	"fmt"
	"testing"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/pushcontext"
	"github.com/isthmus-mesh/isthmus/xds/gen"
)

// divided1000 is a service of 1 000 endpoints, each of one of a few versions.
func divided1000(m *settings, versions int) *pushcontext.ServiceView {
	var es []*model.Endpoint
	var names []string
	for i := range versions {
		names = append(names, fmt.Sprint("v", i))
	}
	for i := range 1000 {
		e := ep("c1", "http", fmt.Sprintf("10.0.%d.%d:80", i/250, i%250+1), at("r1/z1"), workload(fmt.Sprint(i)))
		e.Labels = model.Labels{"app": "cart", "version": fmt.Sprint("v", i%max(versions, 1))}
		es = append(es, e)
	}
	return underSubsets(cart(es...), names...).view(m)
}

// Subsets of a service cost what its endpoints cost once more, however many they are: each endpoint is encoded for the
// service and for the subset that it is in, and none is copied for those that it is not in.
func TestSubsetsCostOnceMore(t *testing.T) {
	allocations := func(versions int) float64 {
		shared := divided1000(newMesh(), versions)
		c := sidecar("c1", "shop", inZone("r1/z1")).Keep(gen.Endpoints{}.Traits(shared))
		return testing.AllocsPerRun(3, func() {
			v := &pushcontext.ServiceView{Shape: shared.Shape, Endpoints: shared.Endpoints}
			for _, name := range (gen.Endpoints{}).Names(v, c) {
				if _, err := (gen.Endpoints{}).Build(v, c, name); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
	none, many := allocations(0), allocations(20)
	if many > 2.2*none {
		t.Errorf("%v allocations with 20 subsets, %v without", many, none)
	}
}

// BenchmarkSubsets: what a change of one endpoint of a service of 1 000 costs one class of proxies, with so many
// subsets.
func BenchmarkSubsets(b *testing.B) {
	for _, n := range []int{0, 3, 10} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			shared := divided1000(newMesh(), n)
			c := sidecar("c1", "shop", inZone("r1/z1")).Keep(gen.Endpoints{}.Traits(shared))
			b.ReportAllocs()
			for b.Loop() {
				v := &pushcontext.ServiceView{Shape: shared.Shape, Endpoints: shared.Endpoints}
				for _, name := range (gen.Endpoints{}).Names(v, c) {
					if _, err := (gen.Endpoints{}).Build(v, c, name); err != nil {
						b.Fatal(err)
					}
				}
			}
		})
	}
}
