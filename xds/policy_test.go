package xds_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/pushcontext"
	"github.com/isthmus-mesh/isthmus/xds"
	"github.com/isthmus-mesh/isthmus/xds/gen"
	"github.com/isthmus-mesh/isthmus/xds/wire"
	"github.com/isthmus-mesh/isthmus/xds/xdstest"
)

// byLabels is a DestinationRule of a namespace that prefers endpoints with the proxy's own labels.
func byLabels(namespace string, labels ...string) *pushcontext.DestinationPolicy {
	return &pushcontext.DestinationPolicy{Namespace: namespace, Export: pushcontext.Export{Public: true},
		Spec: &networking.DestinationRule{TrafficPolicy: &networking.TrafficPolicy{
			OutlierDetection: &networking.OutlierDetection{Consecutive_5XxErrors: wrapperspb.UInt32(uint32(len(labels) + len(namespace)))},
			LoadBalancer:     &networking.LoadBalancerSettings{LocalityLbSetting: &networking.LocalityLoadBalancerSetting{FailoverPriority: labels}}}}}
}

// somePolicies are nil, or rules of several namespaces.
func somePolicies(p *rand.Rand, known []*pushcontext.DestinationPolicy) (out []*pushcontext.DestinationPolicy) {
	for _, r := range known {
		if p.IntN(3) == 0 {
			out = append(out, r)
		}
	}
	return out
}

// labelledNode is a proxy of a namespace and a tier; its other labels and its address nobody shares.
func labelledNode(i int, namespace, tier string) *corev3.Node {
	n := node(i)
	n.Id = fmt.Sprintf("sidecar~10.98.0.%d~p%d.%s~%s.svc.cluster.local", i+1, i, namespace, namespace)
	labels, _ := structpb.NewStruct(map[string]any{"tier": tier, "pod-template-hash": fmt.Sprint(i)})
	n.Metadata.Fields["NAMESPACE"], n.Metadata.Fields["LABELS"] = structpb.NewStringValue(namespace), structpb.NewStructValue(labels)
	return n
}

func gauge(t *testing.T, reg *prometheus.Registry, name string) float64 {
	t.Helper()
	all, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range all {
		if f.GetName() == name {
			return f.Metric[0].GetGauge().GetValue()
		}
	}
	t.Fatalf("no metric %s", name)
	return 0
}

// TestPoliciesCostFewClasses: proxies are told apart by what a policy names, and by nothing else of
// their labels and namespaces.
func TestPoliciesCostFewClasses(t *testing.T) {
	both(t, func(t *testing.T, p wire.Protocol) {
		reg := prometheus.NewRegistry()
		r := newRig(t, func(o *xds.Options) { o.Generators, o.Registerer = gen.All(), reg })
		s := svc("foo.x.svc.cluster.local", 0, "10.0.0.1", "10.0.0.2")
		s.Labels = model.Labels{"tier": "gold"}
		r.mesh.Set(s)
		var all []*xdstest.Envoy
		for i := range 24 {
			e := r.envoy(p, labelledNode(i, fmt.Sprintf("ns%d", i%12), []string{"gold", "silver"}[i%2]))
			defer e.Disconnect()
			all = append(all, e)
		}
		r.agrees(all...)
		plain := gauge(t, reg, "isthmus_xds_classes")
		s.Policies = []*pushcontext.DestinationPolicy{byLabels("ns3"), byLabels("x", "tier")}
		r.mesh.Set(s)
		r.agrees(all...)
		// Endpoints: gold, silver, ns3. Clusters: ns3, all others. Each of those is a class of its own.
		if n := gauge(t, reg, "isthmus_xds_classes"); n > plain+6 {
			t.Errorf("%v classes without policies, %v with them", plain, n)
		}
		s.Endpoints = append(s.Endpoints, "10.0.0.3")
		r.mesh.Set(s)
		r.agrees(all...)
		late := r.envoy(p, labelledNode(30, "ns30", "gold"))
		defer late.Disconnect()
		r.agrees(append(all, late)...)
	})
}
