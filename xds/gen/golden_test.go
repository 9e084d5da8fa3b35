package gen_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	meshconfig "istio.io/api/mesh/v1alpha1"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/pushcontext"
	"github.com/isthmus-mesh/isthmus/test/golden"
	"github.com/isthmus-mesh/isthmus/xds/gen"
)

// scenario is everything that one proxy is told of a small mesh.
type scenario struct {
	name     string
	mesh     *settings
	class    gen.Class
	services []svc
	targets  []pushcontext.Target
	peers    []*model.Endpoint // of the proxy's own service
	only     []gen.Generator   // that are asked; nil for all
	gateways []*pushcontext.GatewayServer
}

func (s scenario) resources(t testing.TB) []resource {
	t.Helper()
	return s.buildAll(t, s.views())
}

// views are those that the scenario's proxy can see.
func (s scenario) views() []pushcontext.View {
	views := []pushcontext.View{s.mesh.MeshView, &pushcontext.TargetsView{Targets: s.targets, Mesh: s.mesh.MeshView}}
	ports := map[uint16][]svc{}
	for _, x := range s.services {
		if v := x.view(s.mesh); v.Shape.Visible(s.class.Cluster, s.class.Namespace) {
			views = append(views, v, v.Shape)
		}
		for _, p := range x.ports {
			ports[p.Number] = append(ports[p.Number], x)
		}
	}
	if s.peers != nil {
		views = append(views, &pushcontext.PeersView{Endpoints: group(s.peers)})
	}
	if servers := append(forwardingServers(s.mesh), s.gateways...); len(servers) > 0 {
		views = append(views, gatewaysView(s.mesh, servers))
	}
	for n, with := range ports {
		views = append(views, portView(n, s.mesh, with...))
	}
	return views
}

func (s scenario) buildAll(t testing.TB, views []pushcontext.View) []resource {
	t.Helper()
	var out []resource
	asked := s.only
	if asked == nil {
		asked = gen.All()
	}
	for _, g := range asked {
		start := len(out)
		for _, v := range views {
			if slices.Contains(g.Kinds(), kindOf(v)) {
				out = append(out, build(t, g, v, s.class)...)
			}
		}
		slices.SortFunc(out[start:], func(a, b resource) int { return bytes.Compare([]byte(a.name), []byte(b.name)) })
	}
	return out
}

func kindOf(v pushcontext.View) pushcontext.ViewKind {
	switch v.(type) {
	case *pushcontext.ServiceView:
		return pushcontext.ViewService
	case *pushcontext.ShapeView:
		return pushcontext.ViewShape
	case *pushcontext.PortView:
		return pushcontext.ViewPort
	case *pushcontext.TargetsView:
		return pushcontext.ViewTargets
	case *pushcontext.PeersView:
		return pushcontext.ViewPeers
	case *pushcontext.GatewaysView:
		return pushcontext.ViewGateways
	}
	return pushcontext.ViewMesh
}

func decode(t testing.TB, r resource) proto.Message {
	t.Helper()
	m, err := (&anypb.Any{TypeUrl: r.url, Value: r.bytes}).UnmarshalNew()
	if err != nil {
		t.Fatalf("%s: %v", r.name, err)
	}
	return m
}

func text(t testing.TB, m proto.Message) string {
	t.Helper()
	raw, err := protojson.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := json.Indent(&out, raw, "", "  "); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func scenarios() []scenario {
	registryOnly := func(m *settings) {
		m.Config.OutboundTrafficPolicy = &meshconfig.MeshConfig_OutboundTrafficPolicy{
			Mode: meshconfig.MeshConfig_OutboundTrafficPolicy_REGISTRY_ONLY}
	}
	shop := svc{host: "cart.shop.svc.cluster.local", ports: []model.Port{httpPort(80), {Name: "grpc", Number: 9090, Protocol: model.ProtocolGRPC}},
		vips: map[model.ClusterID][]string{"c1": {"10.0.0.1"}, "c2": {"10.9.0.1"}},
		endpoints: []*model.Endpoint{
			ep("c1", "http", "10.1.0.1:8080", at("r1/z1")), ep("c1", "grpc", "10.1.0.1:9090", at("r1/z1")),
			ep("c2", "http", "10.2.0.1:8080", at("r2/z1"), weight(3)), ep("c1", "http", "10.1.0.2:8080", at("r1/z2"), health(model.Unhealthy)),
		}}
	db := svc{host: "db.shop.svc.cluster.local", ports: []model.Port{tcpPort(3306)}, vips: map[model.ClusterID][]string{"c1": {"10.0.0.2"}},
		endpoints: []*model.Endpoint{ep("c1", "tcp", "10.1.0.9:3306")}}
	any := svc{host: "any.shop.svc.cluster.local", ports: []model.Port{autoPort(7000)}, vips: map[model.ClusterID][]string{"c1": {"10.0.0.3"}}}
	nodes := svc{host: "nodes.shop.svc.cluster.local", ports: []model.Port{tcpPort(9042), httpPort(80)}, resolution: model.Passthrough,
		endpoints: []*model.Endpoint{ep("c1", "tcp", "10.1.0.21:9042"), ep("c1", "tcp", "10.1.0.22:9042"), ep("c1", "http", "10.1.0.21:8080")},
		inline:    []*model.Endpoint{ep("c1", "tcp", "10.1.0.21:9042"), ep("c1", "tcp", "10.1.0.22:9042")}}
	api := svc{host: "api.example.com", ns: "shop", ports: []model.Port{httpPort(80), {Name: "tls", Number: 443, Protocol: model.ProtocolTLS}},
		resolution: model.DNSLB, edit: func(s *pushcontext.ShapeView) { s.External = true },
		inline: []*model.Endpoint{ep("c1", "http", "api.example.com:80"), ep("c1", "tls", "api.example.com:443")}}
	one := svc{host: "one.example.com", ns: "shop", ports: []model.Port{{Name: "tls", Number: 443, Protocol: model.ProtocolTLS}},
		resolution: model.DNSRoundRobin, inline: []*model.Endpoint{ep("c1", "tls", "a.example.com:443"), ep("c1", "tls", "b.example.com:443")}}
	targets := []pushcontext.Target{
		{Host: shop.host, Namespace: "shop", Name: "cart", Port: 80, PortName: "http", Protocol: model.ProtocolHTTP, Endpoint: 8080},
		{Host: any.host, Namespace: "shop", Name: "any", Port: 7000, PortName: "any", Endpoint: 8081},
		{Host: shop.host, Namespace: "shop", Name: "cart", Port: 9090, PortName: "grpc", Protocol: model.ProtocolGRPC, Endpoint: 9090},
		{Host: db.host, Namespace: "shop", Name: "db", Port: 3306, PortName: "tcp", Protocol: model.ProtocolTCP, Endpoint: 33060},
	}
	all := []svc{shop, db, any, nodes, api, one}
	return append([]scenario{
		{name: "sidecar", mesh: newMesh(), class: sidecar("c1", "shop"), services: all, targets: targets},
		{name: "sidecar-none", mesh: newMesh(), class: sidecar("c1", "other", noInterception), services: all, targets: targets},
		{name: "router", mesh: newMesh(), class: router("c1", "ingress"), services: all, targets: targets},
		{name: "registry-only", mesh: newMesh(registryOnly), class: sidecar("c3", "other"), services: []svc{shop, db}},
		{name: "multi-network", mesh: newMesh(twoNetworks), class: sidecar("c1", "shop", onNetwork("n1")), services: []svc{multiNetwork()}},
		{name: "tuned-mesh", mesh: newMesh(tuned), class: sidecar("c1", "shop", func(c *gen.Class) { c.Locality = model.ParseLocality("r1/z1"); c.IPv6 = true }),
			services: []svc{shop, api}, targets: targets[:1]},
		{name: "conflicts", mesh: newMesh(), class: sidecar("c1", "shop"), services: conflicting()},
		{name: "router-conflicts", mesh: newMesh(), class: router("c1", "edge"), services: conflicting()},
		{name: "hostile", mesh: newMesh(hostile), class: sidecar("c1", "a"), services: odd(),
			targets: []pushcontext.Target{{Host: "a", Port: 80, Protocol: model.ProtocolHTTP, Endpoint: 15006}, {Host: "a", Port: 80, Endpoint: 65535, Protocol: model.ProtocolTCP}}},
		{name: "collisions", mesh: newMesh(), class: sidecar("c1", "shop"), services: colliding()},
		{name: "istio-proxy", mesh: newMesh(), class: sidecar("c1", "shop", func(c *gen.Class) {
			c.Extensions = gen.ExtIstioALPN | gen.ExtIstioMetadataExchange | gen.ExtIstioPeerMetadata | gen.ExtIstioStats
		}), services: []svc{shop, db}, targets: targets[:1]},
		{name: "tproxy", mesh: newMesh(), class: sidecar("c1", "shop", func(c *gen.Class) { c.Interception = gen.InterceptTProxy }), targets: targets[:2]},
	}, append(slices.Concat(secureScenarios(), policyScenarios(), clusterScenarios(), gatewayScenarios(), federatedScenarios()), zoneScenario())...)
}

func TestGolden(t *testing.T) {
	t.Parallel()
	for _, s := range scenarios() {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			var got bytes.Buffer
			for _, r := range s.resources(t) {
				fmt.Fprintf(&got, "# %s %s\n%s\n", r.url, r.name, text(t, decode(t, r)))
			}
			golden.Compare(t, filepath.Join("testdata", s.name+".golden"), got.String())
		})
	}
}

// Every resource is the deterministic encoding of its message, also where it was joined from parts.
func TestDeterministicBytes(t *testing.T) {
	t.Parallel()
	for _, s := range scenarios() {
		first, again := s.resources(t), s.resources(t)
		slices.Reverse(s.services)
		reversed := s.resources(t)
		for i, r := range first {
			if !bytes.Equal(r.bytes, again[i].bytes) || !bytes.Equal(r.bytes, reversed[i].bytes) {
				t.Errorf("%s: %s depends on more than its input", s.name, r.name)
			}
			b, err := proto.MarshalOptions{Deterministic: true}.Marshal(decode(t, r))
			if err != nil || !bytes.Equal(b, r.bytes) {
				t.Errorf("%s: %s is not the encoding of its message (%v)", s.name, r.name, err)
			}
		}
	}
}

// Filters of Istio's own Envoy are for nodes that list them: a stock Envoy refuses their listener.
func TestIstioFiltersOnlyWhereListed(t *testing.T) {
	t.Parallel()
	marks := []string{"istio.alpn", "istio.metadata_exchange", "peer_metadata", "stats.PluginConfig"}
	for _, s := range scenarios() {
		var all string
		for _, r := range s.resources(t) {
			all += text(t, decode(t, r))
		}
		for _, m := range marks {
			if got, want := strings.Contains(all, m), strings.HasSuffix(s.name, "istio-proxy"); got != want {
				t.Errorf("%s: has %s: %v, want %v", s.name, m, got, want)
			}
		}
	}
}

// Many streams build from the same views at once; each gets what a lone one gets.
func TestConcurrentBuilds(t *testing.T) {
	t.Parallel()
	s := scenarios()[0]
	views := s.views()
	want := s.resources(t)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for i, r := range s.buildAll(t, views) {
				if !bytes.Equal(r.bytes, want[i].bytes) {
					t.Errorf("%s differs", r.name)
				}
			}
		})
	}
	wg.Wait()
}
