package aggregate

import (
	"fmt"
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	api "github.com/isthmus-mesh/isthmus/api/v1alpha1"
	"github.com/isthmus-mesh/isthmus/pushcontext"
)

// federateAll adds FederatedServices of two services each.
func federateAll(c *Controller, n int) {
	for i := range n {
		name := fmt.Sprintf("fed-%d", i)
		fs := &model.Config{Kind: model.ConfigFederatedService, Namespace: "ns", Name: name, Source: model.Source{Shard: benchKey(0), Object: model.ObjectKey{Kind: model.ConfigFederatedService, Namespace: "ns", Name: name}},
			Spec: &api.FederatedServiceSpec{Host: name + ".global", Policy: api.FederateFailover, Ports: []api.FederatedPort{{Name: "http", Number: 80, Protocol: "HTTP"}}, Sources: []api.FederatedSource{
				{Host: benchService(0, i).Host}, {Host: benchService(0, i+1).Host}, {Name: "pods", Selector: map[string]string{"app": name}}}}}
		c.state.put(c.state.shard(benchKey(0)), model.RowKey{Kind: model.RowConfig, Key: fs.Source.Object.String()}, fs)
	}
	c.commit(time.Now())
}

// A change marks what it concerns, without a look at anything else: the service, and those of which it is a source.
func TestFederatedServicesAreMarkedBySources(t *testing.T) {
	t.Parallel()
	c := New(Options{ConfigCluster: "c00", Hub: pushcontext.NewHub(nil)})
	for i := range 20 {
		s, e := benchService(0, i), benchSlice(0, i, 0)
		c.state.put(c.state.shard(benchKey(0)), model.RowKey{Kind: model.RowService, Key: s.Source.Object.String()}, s)
		c.state.put(c.state.shard(benchKey(0)), model.RowKey{Kind: model.RowEndpoints, Key: e.Source.Object.String()}, e)
	}
	federateAll(c, 10)
	for _, tc := range []struct {
		row  model.Object
		key  string
		want []string
	}{
		{benchSlice(0, 5, 1), "EndpointSlice", []string{"svc-5.ns.svc.cluster.local", "fed-5.global", "fed-4.global"}},
		{benchSlice(0, 15, 1), "EndpointSlice", []string{"svc-15.ns.svc.cluster.local"}},
		{&model.Workload{Kind: model.KindInstance, Namespace: "ns", Name: "i", Labels: model.Labels{"app": "fed-3"}}, "i", []string{"fed-3.global"}},
		{&model.Workload{Kind: model.KindInstance, Namespace: "ns", Name: "j", Labels: model.Labels{"app": "other"}}, "j", nil},
	} {
		if e, ok := tc.row.(*model.Endpoints); ok {
			tc.key = e.Source.Object.String()
		}
		c.state.put(c.state.shard(benchKey(0)), model.RowKey{Kind: tc.row.RowKind(), Key: tc.key}, tc.row)
		for _, host := range tc.want {
			if _, ok := c.state.dirty[hostKey{"ns", host}]; !ok {
				t.Errorf("%s is not marked", host)
			}
		}
		if len(c.state.dirty) != len(tc.want) {
			t.Errorf("%v are marked, want %v", c.state.dirty, tc.want)
		}
		c.commit(time.Now())
	}
}

// BenchmarkFederatedCommit1 is a commit in which one endpoint changed of a service that is a source of two, of 2000 FederatedServices.
func BenchmarkFederatedCommit1(b *testing.B) {
	c := benchController()
	federateAll(c, 2000)
	generation, used := 0, cpuTime(0)
	b.ReportAllocs()
	for b.Loop() {
		b.StopTimer()
		generation++
		i := generation * 97 % 2000
		e := benchSlice(i%benchClusters, i, generation)
		c.state.put(c.state.shard(benchKey(i%benchClusters)), model.RowKey{Kind: model.RowEndpoints, Key: e.Source.Object.String()}, e)
		b.StartTimer()
		used.commit(c)
	}
	used.report(b)
}
