package gen_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	routerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/isthmus-mesh/isthmus/test/envoy/envoytest"
)

// A stock Envoy takes every resource of every scenario. ISTHMUS_ENVOY is the path of the binary.
func TestEnvoyAcceptsGoldens(t *testing.T) {
	t.Parallel()
	envoy := os.Getenv("ISTHMUS_ENVOY")
	if envoy == "" {
		t.Skip("ISTHMUS_ENVOY does not name an Envoy binary: the goldens are not validated by a real proxy here")
	}
	files := mounted(t)
	for _, s := range scenarios() {
		if strings.HasSuffix(s.name, "istio-proxy") {
			continue // has filters that a stock Envoy refuses, which is why others are not sent them
		}
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			b := &bootstrapv3.Bootstrap{
				Node:             &corev3.Node{Id: "test", Cluster: "test"},
				StaticResources:  &bootstrapv3.Bootstrap_StaticResources{Clusters: []*clusterv3.Cluster{staticCluster("xds")}},
				DynamicResources: &bootstrapv3.Bootstrap_DynamicResources{AdsConfig: adsConfig()},
			}
			for _, r := range s.resources(t) {
				embed(t, b.StaticResources, decode(t, r))
			}
			path := filepath.Join(t.TempDir(), "bootstrap.json")
			raw, err := protojson.Marshal(b)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(files.Replace(string(raw))), 0o600); err != nil {
				t.Fatal(err)
			}
			out, err := exec.CommandContext(t.Context(), envoy, "--mode", "validate", "-c", path, "-l", "warning", "--disable-hot-restart").CombinedOutput()
			if err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

// mounted puts files of a real certificate in the place of those that the scenarios name.
func mounted(t *testing.T) *strings.Replacer {
	t.Helper()
	c := envoytest.StartAuthority(t).Issue(t, "test", "spiffe://cluster.local/ns/shop/sa/test")
	return strings.NewReplacer("/etc/certs/cert-chain.pem", c.Chain, "/etc/certs/key.pem", c.Key, "/etc/certs/root-cert.pem", c.Root)
}

func staticCluster(name string) *clusterv3.Cluster {
	return &clusterv3.Cluster{Name: name, ConnectTimeout: durationpb.New(1e9),
		ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_STATIC}}
}

func adsConfig() *corev3.ApiConfigSource {
	return &corev3.ApiConfigSource{ApiType: corev3.ApiConfigSource_DELTA_GRPC, TransportApiVersion: corev3.ApiVersion_V3,
		GrpcServices: []*corev3.GrpcService{{TargetSpecifier: &corev3.GrpcService_EnvoyGrpc_{EnvoyGrpc: &corev3.GrpcService_EnvoyGrpc{ClusterName: "xds"}}}}}
}

// embed puts a resource where a bootstrap can hold it.
func embed(t *testing.T, b *bootstrapv3.Bootstrap_StaticResources, m proto.Message) {
	t.Helper()
	switch m := m.(type) {
	case *clusterv3.Cluster:
		b.Clusters = append(b.Clusters, m)
	case *listenerv3.Listener:
		b.Listeners = append(b.Listeners, m)
	case *endpointv3.ClusterLoadAssignment:
		c := staticCluster("eds:" + m.ClusterName)
		m.ClusterName = c.Name
		c.LoadAssignment = m
		b.Clusters = append(b.Clusters, c)
	case *routev3.RouteConfiguration:
		b.Listeners = append(b.Listeners, routeListener(t, m, len(b.Listeners)))
	}
}

func routeListener(t testing.TB, m *routev3.RouteConfiguration, n int) *listenerv3.Listener {
	t.Helper()
	router, err := anypb.New(&routerv3.Router{})
	if err != nil {
		t.Fatal(err)
	}
	manager, err := anypb.New(&hcmv3.HttpConnectionManager{StatPrefix: "x", RouteSpecifier: &hcmv3.HttpConnectionManager_RouteConfig{RouteConfig: m},
		HttpFilters: []*hcmv3.HttpFilter{{Name: "router", ConfigType: &hcmv3.HttpFilter_TypedConfig{TypedConfig: router}}}})
	if err != nil {
		t.Fatal(err)
	}
	return &listenerv3.Listener{Name: "rds:" + strconv.Itoa(n),
		Address: &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
			Address: "127.0.0.1", PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: uint32(30000 + n)}}}},
		FilterChains: []*listenerv3.FilterChain{{Filters: []*listenerv3.Filter{{Name: "hcm", ConfigType: &listenerv3.Filter_TypedConfig{TypedConfig: manager}}}}}}
}
