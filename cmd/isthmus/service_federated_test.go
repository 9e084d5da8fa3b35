package main

import (
	"strings"
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/cmd/isthmus/debug"
	"github.com/isthmus-mesh/isthmus/test/golden"
)

// TestExplainFederatedServices is what people see of services that FederatedServices make.
func TestExplainFederatedServices(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	zero, one := uint32(0), uint32(1)
	x := debug.Explanation{
		Service: debug.Service{Hostname: "checkout.global", Namespace: "shop", Ports: []debug.Port{{Name: "http", Port: 80, Protocol: "http"}}, Resolution: "ClientSideLB", ExportTo: []string{"*"}},
		Proxy:   "sidecar~10.0.0.9~web-1.shop~shop.svc.cluster.local",
		Federation: &debug.Federation{Source: debug.Source{Shard: "kubernetes/east", Object: "FederatedService/shop/checkout"}, Policy: "failover", Sources: []debug.FederatedSource{
			{Name: "kube", Host: "checkout.shop.svc.cluster.local", Endpoints: 2, Healthy: 1, Weight: 1},
			{Name: "consul", Priority: 1, Endpoints: 1, Healthy: 1, Unmapped: []string{"grpc"}, Weight: 1},
			{Name: "nacos", Host: "checkout.nacos", Priority: 2, Reason: "NoService: no service has the host checkout.nacos", Weight: 1},
		}},
		Problems: []debug.ItemProblem{{Shard: "consul/dc", Problem: debug.Problem{Item: "Service/shop/checkout", Reason: "the registry lists no instance: they are kept", Since: now.Add(-time.Minute)}}},
		Endpoints: []debug.Endpoint{
			{Address: "10.0.0.1:80", Cluster: "east", Port: "http", Health: "healthy", Weight: 1, Priority: &zero, Part: "kube", Source: debug.Source{Shard: "kubernetes/east", Object: "EndpointSlice/shop/checkout-1"}},
			{Address: "10.2.0.1:80", Cluster: "dc", Port: "http", Health: "healthy", Weight: 1, Priority: &one, Part: "consul", Source: debug.Source{Shard: "consul/dc", Object: "Service/shop/checkout"}, Detail: "its source consul has the priority 1"},
		},
	}
	var out strings.Builder
	if err := writeExplanation(&out, x, false, now); err != nil {
		t.Fatal(err)
	}
	x.Federation.Policy = "weighted"
	x.Problems = nil
	out.WriteString("---\n")
	if err := writeExplanation(&out, x, true, now); err != nil {
		t.Fatal(err)
	}
	golden.Compare(t, "testdata/service-explain-federated.golden", out.String())
}
