package main

import (
	"context"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/structpb"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/isthmus-mesh/isthmus/cmd/isthmus/debug"
	"github.com/isthmus-mesh/isthmus/test/env"
	"github.com/isthmus-mesh/isthmus/xds/gen"
)

const vmGroup = `
apiVersion: networking.istio.io/v1
kind: WorkloadGroup
metadata: {name: legacy, namespace: shop}
spec: {template: {labels: {app: legacy}, ports: {http: 8080}}, probe: {tcpSocket: {port: 8080}}}
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: legacy, namespace: shop}
spec:
  hosts: [legacy.example.com]
  addresses: [10.200.0.1]
  ports: [{number: 80, name: http, protocol: HTTP}]
  location: MESH_INTERNAL
  resolution: STATIC
  workloadSelector: {labels: {app: legacy}}
`

const healthType = "type.googleapis.com/istio.v1.HealthInformation"

// vmProxy is the proxy of a virtual machine: a stream that says of which group its workload is.
type vmProxy struct {
	t      *testing.T
	stream discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesClient
	leave  func()
}

func connectVM(t *testing.T, addr, cluster string) *vmProxy {
	t.Helper()
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	leave := func() {
		cancel()
		conn.Close()
	}
	t.Cleanup(leave)
	stream, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(ctx)
	if err != nil {
		t.Fatal(err)
	}
	meta, err := structpb.NewStruct(map[string]any{"CLUSTER_ID": cluster, "NAMESPACE": "shop", "INTERCEPTION_MODE": "NONE", "AUTO_REGISTER_GROUP": "legacy", "LABELS": map[string]any{"version": "v7"}})
	if err != nil {
		t.Fatal(err)
	}
	p := &vmProxy{t, stream, leave}
	p.send(&discoveryv3.DeltaDiscoveryRequest{Node: &corev3.Node{Id: "sidecar~10.3.0.1~vm-1.shop~shop.svc.cluster.local", Metadata: meta}, TypeUrl: gen.ClusterURL})
	return p
}

func (p *vmProxy) send(r *discoveryv3.DeltaDiscoveryRequest) {
	p.t.Helper()
	if err := p.stream.Send(r); err != nil {
		p.t.Fatal(err)
	}
}

func (p *vmProxy) health(fault string) {
	r := &discoveryv3.DeltaDiscoveryRequest{TypeUrl: healthType}
	if fault != "" {
		r.ErrorDetail = &status.Status{Code: 500, Message: fault}
	}
	p.send(r)
}

// registered waits for what the hub says of the one endpoint; "" for none.
func (r *running) registeredAs(t *testing.T, health string) {
	t.Helper()
	r.log.until(t, "the workload "+health, func() bool {
		x := ask[[]debug.Explanation](t, r, "service explain legacy.example.com")
		if len(x) != 1 || len(x[0].Endpoints) == 0 {
			return len(x) == 1 && health == ""
		}
		e := x[0].Endpoints[0]
		return strings.EqualFold(e.Health, health) && e.Address == "10.3.0.1:8080"
	})
}

// TestAutoRegistration: a proxy of a virtual machine becomes an endpoint, is as healthy as it says, and goes.
func TestAutoRegistration(t *testing.T) {
	t.Parallel()
	r := startHub(t, map[string]string{"east/vm.yaml": vmGroup}, "--auto-registration", "--cluster-id", "east", "--auto-registration-grace", "10ms")
	r.untilReady(t)
	r.registeredAs(t, "")
	p := connectVM(t, r.grpc, "east")
	r.registeredAs(t, "unhealthy") // until it says otherwise
	p.health("")
	r.registeredAs(t, "healthy")
	p.health("503")
	r.registeredAs(t, "unhealthy")
	p.leave()
	r.registeredAs(t, "")
}

// TestAutoRegistrationInTheConfigCluster: with an API server the entry is an object, written with the rights of deploy, that
// outlives the hub and goes on with the next one.
func TestAutoRegistrationInTheConfigCluster(t *testing.T) {
	t.Parallel()
	c := servers.Take(t, 1)[0]
	c.Apply(t, env.Namespace("istio-system"), env.Namespace("shop"), vmGroup, manifests(t, []string{"rbac-primary.yaml", "rbac-auto-registration.yaml"}))
	start := func() *running {
		r := &running{dir: t.TempDir(), log: newLogbook()}
		r.write(t, "primary.yaml", string(c.Kubeconfig(c.Token(t, "istio-system/isthmus", 3600))))
		r.start(t, "--kubeconfig", r.path("primary.yaml"), "--auto-registration", "--auto-registration-grace", "10ms")
		r.untilReady(t)
		return r
	}
	r := start()
	p := connectVM(t, r.grpc, "Kubernetes")
	p.health("")
	r.registeredAs(t, "healthy")
	entries := c.Dynamic.Resource(schema.GroupVersionResource{Group: "networking.istio.io", Version: "v1", Resource: "workloadentries"}).Namespace("shop")
	o, err := entries.Get(t.Context(), "legacy-10.3.0.1", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if a := o.GetAnnotations(); a["istio.io/autoRegistrationGroup"] != "legacy" || a["istio.io/workloadController"] == "" || a["istio.io/connectedAt"] == "" {
		t.Errorf("annotations %v", a)
	}
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	next := start()
	next.registeredAs(t, "healthy") // as it was; its proxy is still to come
	p = connectVM(t, next.grpc, "Kubernetes")
	p.health("")
	next.log.until(t, "the entry has another controller", func() bool {
		o, err := entries.Get(t.Context(), "legacy-10.3.0.1", metav1.GetOptions{})
		return err == nil && o.GetAnnotations()["istio.io/disconnectedAt"] == ""
	})
	next.registeredAs(t, "healthy")
	p.leave()
	next.registeredAs(t, "")
}

// TestAutoRegistrationNeedsACluster: a workload must be somewhere.
func TestAutoRegistrationNeedsACluster(t *testing.T) {
	t.Parallel()
	if got := command(t, "serve", "--dir", t.TempDir(), "--auto-registration"); got.code != exitUsage || !strings.Contains(got.stderr, "--cluster-id") {
		t.Errorf("%d: %s", got.code, got.stderr)
	}
}
