package health

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/types/known/wrapperspb"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/pushcontext"
	"github.com/isthmus-mesh/isthmus/xds/gen"
)

func connected(classes ...gen.Class) map[gen.Class]struct{} {
	out := map[gen.Class]struct{}{}
	for _, c := range classes {
		out[c] = struct{}{}
	}
	return out
}

func proxy(cluster, namespace string, edits ...func(*gen.Class)) gen.Class {
	c := gen.Class{Cluster: model.ClusterID(cluster), Namespace: namespace, IPv4: true}
	for _, e := range edits {
		e(&c)
	}
	return c
}

func wants(view string) func(*gen.Class) { return func(c *gen.Class) { c.NetworkView = view } }

func on(network string) func(*pushcontext.ServiceView) {
	return endpoints(func(e *model.Endpoint) { e.Network = network })
}

func endpoints(edit func(*model.Endpoint)) func(*pushcontext.ServiceView) {
	return func(v *pushcontext.ServiceView) {
		for _, p := range v.Endpoints {
			for _, l := range p.Localities {
				for _, e := range l.Endpoints {
					edit(e)
				}
			}
		}
	}
}

func TestLeftOut(t *testing.T) {
	t.Parallel()
	views := func(vs ...*pushcontext.ServiceView) []*pushcontext.ServiceView { return vs }
	type counts = map[model.Reason]int
	going := endpoints(func(e *model.Endpoint) { e.Health = model.Terminating })
	for _, c := range []struct {
		name    string
		mesh    []*pushcontext.ServiceView
		classes map[gen.Class]struct{}
		want    counts
	}{
		{"nothing", views(service("a", web, tcp)), connected(proxy("c1", "shop")), counts{}},
		{"candidates, with nobody connected", views(with(service("a", web), odd), with(service("b", web), odd)), nil, counts{model.ReasonPodUnknown: 6, model.ReasonDuplicate: 2}},
		{"for everybody, once for each port", views(with(service("a", web, tcp), going)), connected(proxy("c1", "shop"), proxy("c2", "bank")), counts{model.ReasonTerminating: 2}},
		{"for one of two", views(with(service("a", web), on("n1"))), connected(proxy("c1", "shop"), proxy("c1", "shop", wants("n2"))), counts{model.ReasonNetworkView: 1}},
		{"for none of two", views(with(service("a", web), on("n1"))), connected(proxy("c1", "shop"), proxy("c1", "shop", wants("n1"))), counts{}},
		{"of a service that they don't see", views(with(service("a", web), going, only("shop"))), connected(proxy("c1", "bank")), counts{}},
		{"of a service that one sees", views(with(service("a", web), going, only("shop"))), connected(proxy("c1", "bank"), proxy("c1", "shop")), counts{model.ReasonTerminating: 1}},
		{"of a service of another cluster", views(with(service("a", web), going, in("c1", "shop"))), connected(proxy("c2", "shop")), counts{}},
	} {
		pc := snapshot(pushcontext.NewBuilder(), c.mesh...)
		if d := cmp.Diff(c.want, countLeftOut(pc, c.classes)); d != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, d)
		}
	}
}

// However many labels and namespaces the proxies have, a service is looked at once for those that its
// policies do not tell apart.
func TestLeftOutLooksAtFewClasses(t *testing.T) {
	t.Parallel()
	v := service("a", web)
	v.Shape.Policies = []*pushcontext.DestinationPolicy{{Namespace: "shop", Export: pushcontext.Export{Public: true},
		Spec: &networking.DestinationRule{TrafficPolicy: &networking.TrafficPolicy{
			OutlierDetection: &networking.OutlierDetection{Consecutive_5XxErrors: wrapperspb.UInt32(1)},
			LoadBalancer:     &networking.LoadBalancerSettings{LocalityLbSetting: &networking.LocalityLoadBalancerSetting{FailoverPriority: []string{"tier"}}}}}}}
	plain := service("b", web)
	snapshot(pushcontext.NewBuilder(), v, plain)
	c := &census{classes: map[gen.Class]struct{}{}, told: map[distinction][]gen.Class{}}
	for i := range 100 {
		l := model.Labels{"tier": []string{"gold", "silver"}[i%2], "hash": fmt.Sprint(i)}
		c.classes[proxy("c1", fmt.Sprint(i), func(c *gen.Class) { c.Labels = gen.NewLabels(l) })] = struct{}{}
	}
	if got := len(c.apart(v)); got != 2 {
		t.Errorf("%d classes are looked at, want 2", got)
	}
	if got := len(c.apart(plain)); got != 1 {
		t.Errorf("%d classes are looked at where nothing tells them apart", got)
	}
}

// A snapshot is counted once for the same proxies.
func TestLeftOutOnceForEachVersionAndCrowd(t *testing.T) {
	t.Parallel()
	b := pushcontext.NewBuilder()
	pc := snapshot(b, with(service("a", web), on("n1")))
	classes := []gen.Class{proxy("c1", "shop")}
	c := &Collector{Snapshot: func() *pushcontext.PushContext { return pc }, Shards: shards, Sidecars: sidecars, Classes: func() []gen.Class { return classes }}
	const metric = `isthmus_endpoints_left_out{reason="NetworkView"} 1`
	if got := scrape(t, c); strings.Contains(got, "isthmus_endpoints_left_out{") {
		t.Errorf("nothing is left out, yet:\n%s", got)
	}
	first := c.left.Load()
	if scrape(t, c); c.left.Load() != first {
		t.Error("counted again")
	}
	classes = append(classes, proxy("c1", "shop", wants("n2")), proxy("c1", "shop", wants("n2")))
	if got := scrape(t, c); !strings.Contains(got, metric) {
		t.Errorf("%s is missing in:\n%s", metric, got)
	}
	pc = snapshot(b, service("a", web))
	if got := scrape(t, c); strings.Contains(got, metric) {
		t.Errorf("the numbers are those of the version before:\n%s", got)
	}
	if n := c.left.Load(); !maps.Equal(n.counts, map[model.Reason]int{}) {
		t.Errorf("%v", n.counts)
	}
}
