package debug_test

import (
	"encoding/json"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	meshconfig "istio.io/api/mesh/v1alpha1"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/cmd/isthmus/debug"
	"github.com/isthmus-mesh/isthmus/cmd/isthmus/debug/debugtest"
	"github.com/isthmus-mesh/isthmus/pushcontext"
)

// A FederatedService's service says of each source what came of it, of each endpoint of which source it is, and what
// registries have to tell of the objects that it is made of.
func TestExplainFederatedService(t *testing.T) {
	t.Parallel()
	east, dc := model.ShardKey{Provider: model.ProviderKubernetes, Cluster: "east"}, model.ShardKey{Provider: model.ProviderConsul, Cluster: "dc"}
	from := func(k model.ShardKey, kind, name string) model.Source {
		return model.Source{Shard: k, Object: model.ObjectKey{Kind: kind, Namespace: "shop", Name: name}}
	}
	endpoint := func(k model.ShardKey, kind, ip string, part uint16) *model.Endpoint {
		src := from(k, kind, "checkout")
		return &model.Endpoint{Addr: model.Addr{Cluster: k.Cluster, AddrPort: netip.AddrPortFrom(netip.MustParseAddr(ip), 80)}, PortName: "http", Health: model.Healthy, Part: part, Source: &src}
	}
	m := &pushcontext.MeshView{Config: &meshconfig.MeshConfig{}, DomainSuffix: "cluster.local"}
	fs := from(east, model.ConfigFederatedService, "checkout")
	v := &pushcontext.ServiceView{
		Shape: &pushcontext.ShapeView{
			Key: model.ServiceKey{Namespace: "shop", Host: "checkout.global"}, Ports: []model.Port{{Name: "http", Number: 80, Protocol: model.ProtocolHTTP}}, Mesh: m,
			Export: pushcontext.Export{Public: true}, Contributions: []pushcontext.Contribution{{Source: fs, Won: true}},
			Federation: &pushcontext.Federation{Source: fs, Policy: pushcontext.FederateFailover, Sources: []pushcontext.FederationSource{
				{Name: "kube", Host: "checkout.shop.svc.cluster.local", Weight: 1}, {Name: "consul", Host: "checkout.consul", Weight: 1, Priority: 1}, {Name: "nacos", Host: "checkout.nacos", Weight: 1, Priority: 2}}},
		},
		Sources: []pushcontext.SourceState{{}, {Unmapped: []string{"grpc"}}, {Reason: model.ReasonNoService, Detail: "no service has the host checkout.nacos", Empty: true}},
		Endpoints: []pushcontext.PortEndpoints{{Port: "http", Localities: []pushcontext.LocalityEndpoints{{Endpoints: []*model.Endpoint{
			endpoint(east, "EndpointSlice", "10.0.0.1", 1), endpoint(dc, "Service", "10.2.0.1", 2)}}}}},
	}
	since := time.Date(2026, 3, 1, 11, 0, 0, 0, time.UTC)
	held := model.Problem{Item: "Service/shop/checkout", Reason: "the registry lists no instance: they are kept", Since: since}
	shards := []pushcontext.ShardInfo{
		{Key: east, Synced: true, Status: model.Status{State: model.StateLive, Problems: []model.Problem{held}}}, // of another object of that name
		{Key: dc, Synced: true, Status: model.Status{State: model.StateLive, Problems: []model.Problem{held, {Item: "Service/shop/other"}}}},
	}
	pc, d := pushcontext.NewBuilder().Commit(pushcontext.Commit{Mesh: m, Shards: shards, Services: []pushcontext.Change{{Key: v.Shape.Key, View: v}}})
	hub := pushcontext.NewHub(nil)
	hub.Publish(pc, d)
	o := debugtest.Options(debugtest.Connected(nil))
	o.Snapshot, o.Between, o.Shards = hub.Current, hub.Between, func() []pushcontext.ShardInfo { return shards }
	for _, query := range []string{"", "&proxyID=web-1.shop&cluster=east"} {
		var got []debug.Explanation
		w := serve(o, local("/debug/servicez?host=checkout.global"+query))
		if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || len(got) != 1 {
			t.Fatal(err, w.Body)
		}
		x := got[0]
		want := &debug.Federation{Source: debug.Source{Shard: "kubernetes/east", Object: "FederatedService/shop/checkout"}, Policy: "failover", Sources: []debug.FederatedSource{
			{Name: "kube", Host: "checkout.shop.svc.cluster.local", Weight: 1, Endpoints: 1, Healthy: 1},
			{Name: "consul", Host: "checkout.consul", Weight: 1, Priority: 1, Endpoints: 1, Healthy: 1, Unmapped: []string{"grpc"}},
			{Name: "nacos", Host: "checkout.nacos", Weight: 1, Priority: 2, Reason: "NoService: no service has the host checkout.nacos"},
		}}
		if d := cmp.Diff(want, x.Federation); d != "" {
			t.Error(d)
		}
		if d := cmp.Diff([]debug.ItemProblem{{Shard: "consul/dc", Problem: debug.Problem{Item: held.Item, Reason: held.Reason, Since: since}}}, x.Problems); d != "" {
			t.Error(d)
		}
		if x.Endpoints[0].Part != "kube" || x.Endpoints[1].Part != "consul" {
			t.Errorf("endpoints are of %q and %q", x.Endpoints[0].Part, x.Endpoints[1].Part)
		}
		if query != "" && (*x.Endpoints[1].Priority != 1 || x.Endpoints[1].Detail != "its source consul has the priority 1") {
			t.Errorf("for a proxy: %+v", x.Endpoints[1])
		}
	}
}
