package main

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/isthmus-mesh/isthmus/cmd/isthmus/debug"
	"github.com/isthmus-mesh/isthmus/xds/gen"
)

func serviceYAML(cluster string, ips ...string) string {
	var b strings.Builder
	fmt.Fprintf(&b, `apiVersion: v1
kind: Service
metadata: {name: web, namespace: shop}
spec:
  clusterIP: 10.0.0.%d
  ports: [{name: http, port: 80}]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-1, namespace: shop, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
ports: [{name: http, port: 8080}]
endpoints:
`, len(cluster))
	for _, ip := range ips {
		fmt.Fprintf(&b, "- {addresses: [%s], conditions: {ready: true}}\n", ip)
	}
	return b.String()
}

const webHost = "web.shop.svc.cluster.local"

func counts(t *testing.T, r *running) map[string]debug.Count {
	for _, s := range ask[[]debug.Service](t, r, "service list") {
		if s.Hostname == webHost {
			return s.Endpoints
		}
	}
	return nil
}

func (r *running) untilReady(t *testing.T) {
	t.Helper()
	r.log.until(t, "an open gate", func() bool { code, _ := get(t, r.url+"/ready"); return code == http.StatusOK })
}

func TestServeFollowsTheFolders(t *testing.T) {
	t.Parallel()
	r := startHub(t, map[string]string{"east/web.yaml": serviceYAML("east", "10.1.0.1", "10.1.0.2")})
	r.untilReady(t)
	if got := counts(t, r)["east"]; got.Total != 2 {
		t.Fatalf("east has %+v, want 2 endpoints", got)
	}

	r.write(t, "east/web.yaml", serviceYAML("east", "10.1.0.1"))
	r.log.until(t, "one endpoint in east", func() bool { return counts(t, r)["east"].Total == 1 })

	r.write(t, "west/web.yaml", serviceYAML("west", "10.2.0.1"))
	r.log.until(t, "an endpoint in west", func() bool { return counts(t, r)["west"].Total == 1 })

	x := ask[[]debug.Explanation](t, r, "service explain web.shop")
	if len(x) != 1 || len(x[0].Contributions) != 2 || len(x[0].Endpoints) != 2 || x[0].Endpoints[0].Source.Revision == "" {
		t.Errorf("explanation: %+v", x)
	}

	r.write(t, "west/web.yaml", "kind: [broken\n")
	r.log.until(t, "a problem in west", func() bool {
		for _, c := range ask[[]debug.Cluster](t, r, "cluster list") {
			if c.ID == "west" && len(c.Problems) == 1 && strings.HasSuffix(c.Problems[0].Item, "web.yaml") {
				return true
			}
		}
		return false
	})
	if got := counts(t, r)["west"]; got.Total != 1 {
		t.Errorf("a broken file took its last good content along: %+v", got)
	}
	if _, metrics := get(t, "http://"+r.monitoring+"/metrics"); !strings.Contains(metrics, `isthmus_file_problems_total{cluster="west"} 1`) {
		t.Error("the problem is not counted")
	}

	if err := os.RemoveAll(filepath.Join(r.dir, "west")); err != nil {
		t.Fatal(err)
	}
	r.log.until(t, "west gone", func() bool { _, there := counts(t, r)["west"]; return !there })
	if got := counts(t, r)["east"]; got.Total != 1 {
		t.Errorf("east lost endpoints with west: %+v", got)
	}
}

func TestServeListsWhatIsNotServed(t *testing.T) {
	t.Parallel()
	r := startHub(t, map[string]string{"east/filter.yaml": `apiVersion: networking.istio.io/v1alpha3
kind: EnvoyFilter
metadata: {name: web, namespace: shop}
spec: {}
`})
	r.untilReady(t)
	got := command(t, "cluster", "list", "-o", "wide", "--hub", r.url)
	if !strings.Contains(got.stdout, "EnvoyFilter") || !strings.Contains(got.stdout, "1 accepted, not used by this version") {
		t.Errorf("cluster list -o wide:\n%s", got.stdout)
	}
}

// adsClient is a proxy's stream.
func adsClient(t *testing.T, addr string) discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesClient {
	t.Helper()
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	stream, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return stream
}

func node(t *testing.T, cluster string) *corev3.Node {
	t.Helper()
	meta, err := structpb.NewStruct(map[string]any{"CLUSTER_ID": cluster, "NAMESPACE": "shop", "INTERCEPTION_MODE": "NONE"})
	if err != nil {
		t.Fatal(err)
	}
	return &corev3.Node{Id: "sidecar~127.0.0.9~client-1.shop~shop.svc.cluster.local", Metadata: meta}
}

func TestServeShowsItsProxies(t *testing.T) {
	t.Parallel()
	r := startHub(t, map[string]string{"east/web.yaml": serviceYAML("east", "10.1.0.1")})
	r.untilReady(t)
	stream := adsClient(t, r.grpc)
	if err := stream.Send(&discoveryv3.DeltaDiscoveryRequest{Node: node(t, "east"), TypeUrl: gen.ClusterURL}); err != nil {
		t.Fatal(err)
	}
	res, err := stream.Recv()
	if err != nil {
		t.Fatal(err)
	}
	r.log.until(t, "the proxy before its ACK", func() bool { // a response may be read before it is noted as sent
		p := ask[[]debug.Proxy](t, r, "proxy list")
		return len(p) == 1 && p[0].Name == "client-1.shop" && p[0].Types["cds"].Status == "STALE"
	})
	if err := stream.Send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: gen.ClusterURL, ResponseNonce: res.Nonce}); err != nil {
		t.Fatal(err)
	}
	table := command(t, "proxy", "config", "clusters", "client-1.shop", "--hub", r.url)
	if !strings.Contains(table.stdout, "outbound|80||"+webHost) {
		t.Errorf("proxy config clusters:\n%s%s", table.stdout, table.stderr)
	}
	table = command(t, "proxy", "config", "all", "client-1.shop", "--hub", r.url)
	if table.code != exitOK || !strings.Contains(table.stdout, "10.1.0.1:8080") {
		t.Errorf("proxy config all:\n%s%s", table.stdout, table.stderr)
	}
	x := ask[[]debug.Explanation](t, r, "service explain web --proxy client-1.shop")
	if len(x) != 1 || x[0].Reason != "" || len(x[0].Endpoints) != 1 || x[0].Endpoints[0].Priority == nil {
		t.Errorf("explanation for the proxy: %+v", x)
	}
	// What is asked next is answered next: the ACK has been handled by then.
	if err := stream.Send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: gen.EndpointURL, ResourceNamesSubscribe: []string{"outbound|80||" + webHost}}); err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); err != nil {
		t.Fatal(err)
	}
	if p := ask[[]debug.Proxy](t, r, "proxy list"); len(p) != 1 || p[0].Types["cds"].Status != "SYNCED" {
		t.Errorf("proxy list after the ACK: %+v", p)
	}
}

// Whatever filters a proxy is sent, the dump can show them.
func TestServeDumpsFiltersOfEveryBuild(t *testing.T) {
	t.Parallel()
	r := startHub(t, map[string]string{"mesh.yaml": "accessLogFile: /dev/stdout\n", "east/web.yaml": serviceYAML("east", "10.1.0.1")})
	r.untilReady(t)
	n := node(t, "east")
	n.Metadata.Fields["INTERCEPTION_MODE"] = structpb.NewStringValue("REDIRECT")
	n.Id = "sidecar~10.1.0.1~web-1.shop~shop.svc.cluster.local"
	for _, name := range []string{"istio.alpn", "istio.metadata_exchange", "istio.peer_metadata", "istio.stats"} {
		n.Extensions = append(n.Extensions, &corev3.Extension{Name: name})
	}
	stream := adsClient(t, r.grpc)
	if err := stream.Send(&discoveryv3.DeltaDiscoveryRequest{Node: n, TypeUrl: gen.ClusterURL}); err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); err != nil {
		t.Fatal(err)
	}
	got := command(t, "proxy", "config", "all", "web-1.shop", "--hub", r.url, "-o", "json")
	for _, want := range []string{"istio.stats", "istio.alpn", "istio.metadata_exchange", "virtualInbound", "inbound|8080||"} {
		if !strings.Contains(got.stdout, want) {
			t.Errorf("the dump has no %s; exit code %d, %s", want, got.code, got.stderr)
		}
	}
	if table := command(t, "proxy", "config", "listeners", "web-1.shop", "--hub", r.url); !strings.Contains(table.stdout, "virtualOutbound-catchall-tcp") {
		t.Errorf("listeners:\n%s%s", table.stdout, table.stderr)
	}
}

func TestServeRefusesProxiesOfUnknownClusters(t *testing.T) {
	t.Parallel()
	r := startHub(t, map[string]string{"east/web.yaml": serviceYAML("east", "10.1.0.1")}, "--cluster-aliases", "orient=east")
	r.untilReady(t)
	for cluster, want := range map[string]codes.Code{"north": codes.InvalidArgument, "": codes.InvalidArgument, "orient": codes.OK} {
		stream := adsClient(t, r.grpc)
		if err := stream.Send(&discoveryv3.DeltaDiscoveryRequest{Node: node(t, cluster), TypeUrl: gen.ClusterURL}); err != nil {
			t.Fatal(err)
		}
		if _, err := stream.Recv(); status.Code(err) != want {
			t.Errorf("cluster %q: %v, want %s", cluster, err, want)
		}
	}
}

func TestServeStopsInOrder(t *testing.T) {
	t.Parallel()
	r := startHub(t, map[string]string{"east/web.yaml": serviceYAML("east", "10.1.0.1")})
	r.untilReady(t)
	stream := adsClient(t, r.grpc)
	if err := stream.Send(&discoveryv3.DeltaDiscoveryRequest{Node: node(t, "east"), TypeUrl: gen.ClusterURL}); err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); err != nil {
		t.Fatal(err)
	}
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); status.Code(err) != codes.Unavailable {
		t.Errorf("the stream ended with %v, want Unavailable", err)
	}
	if !strings.Contains(r.log.String(), "hub stopped") {
		t.Errorf("log:\n%s", r.log)
	}
}

func TestServeWithServersOff(t *testing.T) {
	t.Parallel()
	r := startHub(t, map[string]string{"east/web.yaml": serviceYAML("east", "10.1.0.1")}, "--grpc-addr", "", "--monitoring-addr", "")
	r.untilReady(t)
	if r.grpc != "" || r.monitoring != "" {
		t.Errorf("listens at %+v", r.addresses)
	}
	if got := command(t, "proxy", "list", "--hub", r.url); got.code != exitOK {
		t.Errorf("proxy list: %+v", got)
	}
}

func TestTakenPortIsSaidFirst(t *testing.T) {
	t.Parallel()
	r := startHub(t, nil)
	got := command(t, "serve", "--dir", r.dir, "--grpc-addr", r.grpc, "--http-addr", "", "--monitoring-addr", "")
	if got.code != exitFailure || !strings.Contains(got.stderr, "--grpc-addr") {
		t.Errorf("%+v", got)
	}
}

func TestServeSaysThatThereIsNoCluster(t *testing.T) {
	t.Parallel()
	r := startHub(t, map[string]string{"web.yaml": serviceYAML("east", "10.1.0.1")})
	r.untilReady(t)
	if !strings.Contains(r.log.String(), "there is no cluster yet") {
		t.Errorf("log:\n%s", r.log)
	}
}

func TestVersionEndpoint(t *testing.T) {
	t.Parallel()
	r := startHub(t, nil)
	if code, body := get(t, "http://"+r.monitoring+"/version"); code != http.StatusOK || !strings.Contains(body, `"version":"unknown"`) {
		t.Errorf("%d %s", code, body)
	}
}

const podYAML = `apiVersion: v1
kind: Pod
metadata: {name: vm, namespace: shop, labels: {app: vm}}
spec: {serviceAccountName: vm}
status: {podIP: 10.1.0.9, phase: Running, conditions: [{type: Ready, status: "True"}]}
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: vm, namespace: shop}
spec:
  hosts: [vm.shop]
  location: MESH_INTERNAL
  ports: [{number: 80, name: http, protocol: HTTP}]
  resolution: STATIC
  workloadSelector: {labels: {app: vm}}
`

// Identities are in the trust domain of mesh.yaml, also when it changes, or in that of the flag.
func TestServeTrustDomain(t *testing.T) {
	t.Parallel()
	for flag, want := range map[string][]string{"": {"a.test", "b.test"}, "c.test": {"c.test", "c.test"}} {
		t.Run(want[0], func(t *testing.T) {
			t.Parallel()
			r := startHub(t, map[string]string{"mesh.yaml": "trustDomain: a.test\n", "east/vm.yaml": podYAML}, "--trust-domain", flag)
			r.untilReady(t)
			shows := func(want string) bool {
				_, endpoints := get(t, r.url+"/debug/endpointz")
				_, mesh := get(t, r.url+"/debug/mesh")
				return strings.Contains(endpoints, "spiffe://"+want+"/ns/shop/sa/vm") && strings.Contains(mesh, want)
			}
			if !shows(want[0]) {
				t.Errorf("not in the trust domain %s from the start", want[0])
			}
			r.write(t, "mesh.yaml", "trustDomain: b.test\naccessLogFile: /dev/stderr\n")
			r.log.until(t, "the settings", func() bool { _, mesh := get(t, r.url+"/debug/mesh"); return strings.Contains(mesh, "/dev/stderr") })
			r.log.until(t, "the trust domain "+want[1], func() bool { return shows(want[1]) })
		})
	}
}

// A folder that can't be a cluster shows where problems are looked for.
func TestServeShowsOddFolders(t *testing.T) {
	t.Parallel()
	r := startHub(t, map[string]string{"east/web.yaml": serviceYAML("east", "10.1.0.1"), "not a cluster/web.yaml": serviceYAML("x", "10.9.0.1")})
	r.untilReady(t)
	got := command(t, "cluster", "list", "-o", "wide", "--hub", r.url)
	if !strings.Contains(got.stdout, "not a cluster") || !strings.Contains(got.stdout, "its name can't be a cluster id") {
		t.Errorf("cluster list -o wide:\n%s", got.stdout)
	}
	if _, metrics := get(t, "http://"+r.monitoring+"/metrics"); !strings.Contains(metrics, `isthmus_shard_problems{cluster="",provider="mesh"} 1`) {
		t.Error("the problem is not counted")
	}
}

func TestServeOptionsOfTheMesh(t *testing.T) {
	t.Parallel()
	r := startHub(t, map[string]string{
		"mesh.yaml": "trustDomain: mesh.test\n", "west/web.yaml": serviceYAML("west", "10.2.0.1"), "east/web.yaml": serviceYAML("east", "10.1.0.1"),
	}, "--cluster-id", "west", "--domain", "mesh.test")
	r.untilReady(t)
	if _, mesh := get(t, r.url+"/debug/mesh"); !strings.Contains(mesh, "mesh.test") {
		t.Errorf("mesh: %s", mesh)
	}
	x := ask[[]debug.Explanation](t, r, "service explain web.shop.svc.mesh.test")
	won := func(c debug.Contribution) bool { return c.Won && strings.HasSuffix(c.Source.Shard, "/west") }
	if len(x) != 1 || !slices.ContainsFunc(x[0].Contributions, won) {
		t.Errorf("the configuration cluster's definition is not in force: %+v", x)
	}
	if c := ask[[]debug.Cluster](t, r, "cluster list"); len(c) == 0 || c[0].ID != "west" {
		t.Errorf("the configuration cluster is not first: %+v", c)
	}
}
