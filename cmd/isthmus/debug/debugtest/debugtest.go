// Package debugtest is a small, fixed mesh for tests of what the debug endpoints and the command line
// show.
package debugtest

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"time"

	meshconfig "istio.io/api/mesh/v1alpha1"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/cmd/isthmus/debug"
	"github.com/isthmus-mesh/isthmus/pushcontext"
	"github.com/isthmus-mesh/isthmus/xds/gen"
)

// Now is the moment that ages count to.
func Now() time.Time { return time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC) }

func ago(d time.Duration) time.Time { return Now().Add(-d) }

// Host is a service of both clusters, with an endpoint of each kind.
const Host = "reviews.shop.svc.cluster.local"

func shard(cluster string) model.ShardKey {
	return model.ShardKey{Provider: model.ProviderFile, Cluster: model.ClusterID(cluster)}
}

func from(cluster, kind, name string) model.Source {
	return model.Source{
		Shard: shard(cluster), Object: model.ObjectKey{Kind: kind, Namespace: "shop", Name: name}, Revision: "7", Time: ago(3 * time.Minute),
	}
}

func endpoint(cluster, ip string, health model.Health) *model.Endpoint {
	src := from(cluster, "EndpointSlice", "reviews-"+cluster)
	return &model.Endpoint{
		Addr:     model.Addr{Cluster: model.ClusterID(cluster), AddrPort: netip.AddrPortFrom(netip.MustParseAddr(ip), 8080)},
		PortName: "http", Health: health, Locality: model.Locality{Region: "eu", Zone: cluster}, Network: "net-" + cluster,
		Labels: model.Labels{"app": "reviews"}, TLSMode: model.TLSDisabled, ServiceAccount: "spiffe://cluster.local/ns/shop/sa/reviews",
		Workload: model.ObjectKey{Kind: "Pod", Namespace: "shop", Name: "reviews-" + ip}, Source: &src,
	}
}

func reviews(m *pushcontext.MeshView) *pushcontext.ServiceView {
	east, west := from("east", "Service", "reviews"), from("west", "Service", "reviews")
	group := func(cluster string, es ...*model.Endpoint) pushcontext.LocalityEndpoints {
		return pushcontext.LocalityEndpoints{Locality: model.Locality{Region: "eu", Zone: cluster}, Endpoints: es}
	}
	return &pushcontext.ServiceView{
		Shape: &pushcontext.ShapeView{
			Key: model.ServiceKey{Namespace: "shop", Host: Host}, Name: "reviews",
			Ports: []model.Port{{Name: "http", Number: 80, Protocol: model.ProtocolHTTP, TargetPort: 8080}},
			Addresses: map[model.ClusterID][]netip.Prefix{
				"east": {netip.MustParsePrefix("10.1.0.10/32")}, "west": {netip.MustParsePrefix("10.2.0.10/32")},
			},
			Export: pushcontext.Export{Public: true}, ServiceAccounts: []string{"spiffe://cluster.local/ns/shop/sa/reviews"},
			Created: ago(time.Hour), Native: true, Mesh: m, Traffic: model.TrafficPreferSameZone,
			Contributions: []pushcontext.Contribution{{Source: east, Won: true}, {Source: west}},
			Policies: []*pushcontext.DestinationPolicy{{
				Source: from("east", model.ConfigDestinationRule, "reviews"), Merged: []model.Source{from("west", model.ConfigDestinationRule, "reviews")},
				Namespace: "shop", Host: Host, Export: pushcontext.Export{Public: true}, Spec: &networking.DestinationRule{Host: "reviews", Subsets: []*networking.Subset{
					{Name: "east", Labels: map[string]string{"topology.istio.io/cluster": "east"}}, {Name: "every", Labels: map[string]string{"app": "reviews"}}}},
			}},
			Conflicts: []pushcontext.Conflict{{Field: "ports", Winner: east, Loser: west, Detail: "port 80 is http; grpc was dropped"}},
		},
		Demoted: []model.ShardKey{shard("west")},
		Endpoints: []pushcontext.PortEndpoints{{Port: "http", Localities: []pushcontext.LocalityEndpoints{
			group("east", endpoint("east", "10.10.0.1", model.Healthy), endpoint("east", "10.10.0.2", model.Unhealthy)),
			group("west", endpoint("west", "10.20.0.1", model.Healthy)),
		}}},
		LeftOut: []model.LeftOut{{
			Addr: model.Addr{Cluster: "west", AddrPort: netip.MustParseAddrPort("10.20.0.9:8080")}, Port: "http",
			Reason: model.ReasonPodUnknown, Detail: "no pod shop/reviews-9 is known in west", Source: from("west", "EndpointSlice", "reviews-west"),
		}},
	}
}

func ratings(m *pushcontext.MeshView, namespace string) *pushcontext.ServiceView {
	src := from("east", "ServiceEntry", "ratings")
	src.Object.Namespace = namespace
	return &pushcontext.ServiceView{Shape: &pushcontext.ShapeView{
		Key: model.ServiceKey{Namespace: namespace, Host: "ratings.example.com"}, Name: "ratings.example.com",
		Ports:      []model.Port{{Name: "tls", Number: 443, Protocol: model.ProtocolTLS}, {Name: "any", Number: 9000}},
		Resolution: model.DNSLB, External: true, Export: pushcontext.Export{Namespaces: []string{namespace}}, Created: ago(49 * time.Hour), Mesh: m,
		Contributions: []pushcontext.Contribution{{Source: src, Won: true}},
	}}
}

// Shards are two clusters, one of them in trouble.
func Shards() []pushcontext.ShardInfo {
	rows := func(n ...int) (out [model.RowKinds]int) { copy(out[:], n); return out }
	return []pushcontext.ShardInfo{
		{
			Key: shard("east"), Status: model.Status{State: model.StateLive, Since: ago(90 * time.Second)}, Synced: true,
			SyncedAt: ago(90 * time.Second), LastEvent: ago(time.Second), Rows: rows(2, 3, 1, 0), NotServed: map[string]int{"VirtualService": 2, "Gateway": 1},
		},
		{
			Key: shard("west"), Synced: true, SyncedAt: ago(5 * time.Hour), LastEvent: ago(time.Hour), Rows: rows(1, 2, 0, 0), NoService: 1,
			Replacement: "new settings have not synced yet",
			Status: model.Status{State: model.StateStale, Since: ago(3 * time.Hour), Err: "the folder is gone", Problems: []model.Problem{
				{Item: "west/reviews.yaml", Line: 12, Reason: "unknown field \"prots\"", Since: ago(time.Minute)},
				{Item: "west/empty.yaml", Reason: "the file is empty", Since: ago(time.Minute)},
			}},
		},
		{Key: shard("south"), Status: model.Status{State: model.StateSyncing, Since: ago(10 * time.Second)}},
	}
}

// Hub holds one version of the mesh.
func Hub() *pushcontext.Hub {
	m := &pushcontext.MeshView{
		Config: &meshconfig.MeshConfig{TrustDomain: "cluster.local"}, DomainSuffix: "cluster.local", ConfigCluster: "east",
		GatewayNetworks: []string{"net-east", "net-west"},
	}
	gateways := []pushcontext.Gateway{
		{Network: "net-east", Cluster: "east", Addr: netip.MustParseAddrPort("192.0.2.1:15443"), Source: "kubernetes/east Service/istio-system/eastwest"},
		{Network: "net-east", Cluster: "east", Addr: netip.MustParseAddrPort("192.0.2.2:0"), HBONEPort: 15008, Source: "kubernetes/east Service/istio-system/ambient"},
		{Network: "net-west", Cluster: "west", Host: "gateway.west.example"},
	}
	c := pushcontext.Commit{Mesh: m, Networks: pushcontext.NewNetworks(gateways, nil), Shards: Shards(), Time: Now(), Reasons: []string{"service"}, Configs: []*model.Config{
		{Kind: "VirtualService", Namespace: "shop", Name: "reviews", NotServed: true, Source: from("east", "VirtualService", "reviews")},
		{Kind: model.ConfigMesh, Name: "mesh", Spec: m.Config, Source: from("east", model.ConfigMesh, "mesh")},
		{Kind: model.ConfigDestinationRule, Namespace: "shop", Name: "reviews", Spec: &networking.DestinationRule{Host: "reviews", Subsets: []*networking.Subset{
			{Name: "east", Labels: map[string]string{"topology.istio.io/cluster": "east"}}, {Name: "every", Labels: map[string]string{"app": "reviews"}}}},
			NotServedFields: []string{"subsets.trafficPolicy.tls.credentialName", "trafficPolicy.outlierDetection.consecutiveErrors"}, Source: from("east", model.ConfigDestinationRule, "reviews")},
		{Kind: model.ConfigGateway, Namespace: "shop", Name: "web", Refused: true, Findings: []model.Finding{{Code: "Required", Severity: model.SeverityError,
			Object: model.ObjectKey{Kind: "Gateway", Namespace: "shop", Name: "web"}, Field: "servers", Message: "it has no servers"}}, Source: from("east", model.ConfigGateway, "web")},
	}, NoService: map[model.ServiceKey][]model.LeftOut{
		{Namespace: "shop", Host: "legacy.shop.svc.cluster.local"}: {{
			Addr: model.Addr{Cluster: "west", AddrPort: netip.MustParseAddrPort("10.20.0.30:8080")}, Port: "http",
			Reason: model.ReasonNoService, Source: from("west", "EndpointSlice", "legacy-1"),
		}},
	}}
	for _, v := range []*pushcontext.ServiceView{reviews(m), ratings(m, "shop"), ratings(m, "bank")} {
		c.Services = append(c.Services, pushcontext.Change{Key: v.Shape.Key, View: v})
	}
	pc, d := pushcontext.NewBuilder().Commit(c)
	h := pushcontext.NewHub(nil)
	h.Publish(pc, d)
	return h
}

// Proxies are fixed proxies; each is sent Dumps.
type Proxies struct {
	List  []debug.Proxy
	Dumps json.RawMessage
}

// Proxies implements debug.Proxies.
func (p *Proxies) Proxies() []debug.Proxy { return slices.Clone(p.List) }

// Dump implements debug.Proxies.
func (p *Proxies) Dump(context.Context, string, []string) (json.RawMessage, error) {
	return p.Dumps, nil
}

// Failures implements debug.Proxies.
func (p *Proxies) Failures() []debug.Failure {
	return []debug.Failure{{Type: gen.ClusterURL, Name: "outbound|80||odd.example", Error: "panic: odd"}}
}

// Audience implements debug.Proxies: a proxy sees the mesh from its cluster, namespace and network.
func (p *Proxies) Audience(connection string) (gen.Class, pushcontext.Reader, error) {
	for _, x := range p.List {
		if x.ConnectionID == connection {
			c := model.ClusterID(x.Cluster)
			return gen.Class{Cluster: c, Namespace: x.Namespace, Network: x.Network, IPv4: true}, pushcontext.Reader{Cluster: c, Namespace: x.Namespace}, nil
		}
	}
	return gen.Class{}, pushcontext.Reader{}, fmt.Errorf("no connection %q", connection)
}

// Connected are two proxies of one name and a gateway that refuses a listener.
func Connected(dump json.RawMessage) *Proxies {
	watch := func(status, sent, acked string) debug.Watch {
		return debug.Watch{Wildcard: true, Resources: 4, Version: 1, Sent: sent, Acked: acked, Status: status}
	}
	proxy := func(cluster, kind, name, ip string, types map[string]debug.Watch) debug.Proxy {
		id := kind + "~" + ip + "~" + name + "~shop.svc.cluster.local"
		return debug.Proxy{
			ConnectionID: id + "-1", NodeID: id, Name: name, Type: kind, Cluster: cluster, Namespace: "shop", Network: "net-" + cluster,
			Locality: "eu/" + cluster, Version: "1.32.0", Address: "127.0.0.1:50000", Protocol: "delta", ConnectedAt: ago(3 * time.Minute), Types: types,
		}
	}
	fine := map[string]debug.Watch{"cds": watch("SYNCED", "n1", "n1"), "eds": watch("SYNCED", "n2", "n2"), "lds": watch("STALE", "n3", ""), "rds": {Status: "NOT-SENT"}}
	refused := watch("ERROR", "n9", "n8")
	refused.Rejected, refused.ErrorAt = []string{"0.0.0.0_80", "0.0.0.0_81"}, ago(time.Minute)
	refused.Error = "Error adding/updating listener(s)\n0.0.0.0_80: cannot bind"
	return &Proxies{Dumps: dump, List: []debug.Proxy{
		proxy("west", "sidecar", "web-1.shop", "10.20.0.5", fine),
		proxy("east", "router", "gateway-1.edge", "10.10.0.9", map[string]debug.Watch{"lds": refused}),
		proxy("east", "sidecar", "web-1.shop", "10.10.0.5", fine),
	}}
}

// Options serve the mesh.
func Options(p *Proxies) debug.Options {
	h := Hub()
	return debug.Options{
		Snapshot: h.Current, Between: h.Between, Shards: Shards, Ready: func() error { return nil }, Proxies: p, ConfigCluster: "east",
	}
}
