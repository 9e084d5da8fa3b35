package analysis_test

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/analysis"
	api "github.com/isthmus-mesh/isthmus/api/v1alpha1"
	"github.com/isthmus-mesh/isthmus/pushcontext"
)

// statusText writes a status as "Accepted=True Reason", and a line for each source.
func statusText(s api.FederatedServiceStatus) []string {
	out := []string{}
	for _, c := range s.Conditions {
		out = append(out, fmt.Sprintf("%s=%s %s %s", c.Type, c.Status, c.Reason, c.Message))
	}
	for _, x := range s.Sources {
		out = append(out, fmt.Sprintf("%s %d/%d at %d: %s", x.Name, x.Healthy, x.Endpoints, x.Priority, x.Reason))
	}
	return out
}

func TestFederatedStatus(t *testing.T) {
	t.Parallel()
	a, err := txtar.ParseFile("testdata/federated.txtar")
	if err != nil {
		t.Fatal(err)
	}
	got := map[string][]string{}
	pc := snapshot(t, a)
	for _, c := range pc.Configs {
		if c.Kind == model.ConfigFederatedService {
			got[c.Name] = statusText(analysis.FederatedStatus(pc, c))
		}
	}
	want := map[string][]string{
		"again":   {"Accepted=False Conflict both are for the host web.shop.svc.cluster.local: the older one, or else the first by name, is used: FederatedService/shop/web of file/c1"},
		"claimed": {"Accepted=True Accepted ", "web.shop.svc.cluster.local 1/1 at 0: "},
		"nothing": {
			"Accepted=True Accepted ", "a.nacos 0/0 at 0: NoService: no service has the host a.nacos",
			"b.consul 0/0 at 1: NoService: no service has the host b.consul in consul/dc; there is no registry consul/dc",
		},
		"said":   {"Accepted=True Accepted ", "new.example 1/1 at 0: ", "old.example 1/1 at 0: "},
		"unsaid": {"Accepted=True Accepted ", "new.example 1/1 at 0: ", "old.example 1/1 at 0: "},
		"web": {
			"Accepted=True Accepted ", "web.shop.svc.cluster.local 1/1 at 0: ", "web.public.nacos 0/0 at 0: NoService: no service has the host web.public.nacos",
			"hidden.far.svc.cluster.local 0/0 at 0: Hidden: hidden.far.svc.cluster.local of the namespace far is exported to ., and not to shop",
			"names.example 0/0 at 0: WrongKind: a FederatedService takes addresses, and its source names.example has DNS names",
			"pods 0/0 at 0: NoEndpoints: no workload of the namespace shop has the labels app=web", "away 0/0 at 0: NoEndpoints: there is no endpoint",
		},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

// Endpoints count once however many ports they are behind; registries out of contact are named.
func TestSourcesCountEndpoints(t *testing.T) {
	t.Parallel()
	dc := model.ShardKey{Provider: model.ProviderConsul, Cluster: "dc"}
	endpoint := func(ip string, port uint16, part uint16, h model.Health) *model.Endpoint {
		return &model.Endpoint{Addr: model.Addr{Cluster: "dc", AddrPort: netip.AddrPortFrom(netip.MustParseAddr(ip), port)}, Part: part, Health: h, Source: &model.Source{Shard: dc}}
	}
	port := func(name string, es ...*model.Endpoint) pushcontext.PortEndpoints {
		return pushcontext.PortEndpoints{Port: name, Localities: []pushcontext.LocalityEndpoints{{Endpoints: es}}}
	}
	v := &pushcontext.ServiceView{
		Shape:   &pushcontext.ShapeView{Federation: &pushcontext.Federation{Sources: []pushcontext.FederationSource{{Name: "a"}, {Name: "b", Priority: 1}, {Name: "c", Priority: 2, Registries: []string{"consul/*", "nacos/n", "nacos/gone"}}}}},
		Sources: make([]pushcontext.SourceState, 3),
		Endpoints: []pushcontext.PortEndpoints{
			port("http", endpoint("10.0.0.1", 80, 1, model.Healthy), endpoint("10.0.0.2", 80, 1, model.Unhealthy), endpoint("10.0.0.3", 80, 2, model.Unhealthy)),
			port("grpc", endpoint("10.0.0.1", 90, 1, model.Unhealthy), endpoint("10.0.0.2", 90, 1, model.Draining)),
		},
	}
	v.Sources[2] = pushcontext.SourceState{Reason: model.ReasonNoService}
	pc := &pushcontext.PushContext{Shards: []pushcontext.ShardInfo{{Key: dc, Synced: true, Status: model.Status{State: model.StateStale}}, {Key: model.ShardKey{Provider: model.ProviderNacos, Cluster: "n"}}}}
	want := []string{
		"a 1/2 at 0: consul/dc is out of contact: its endpoints are those that were known last",
		"b 0/1 at 1: Unready: none of its endpoints is healthy; consul/dc is out of contact: its endpoints are those that were known last", "c 0/0 at 2: NoService; consul/dc is out of contact; nacos/n has not been read yet; there is no registry nacos/gone",
	}
	got := statusText(api.FederatedServiceStatus{Sources: analysis.Sources(pc, v)})
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if analysis.Sources(pc, &pushcontext.ServiceView{Shape: &pushcontext.ShapeView{}}) != nil {
		t.Error("a service of no FederatedService has sources")
	}
}
