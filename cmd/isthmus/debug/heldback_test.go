package debug_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	meshconfig "istio.io/api/mesh/v1alpha1"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	api "github.com/isthmus-mesh/isthmus/api/v1alpha1"
	"github.com/isthmus-mesh/isthmus/clusters/holdback"
	"github.com/isthmus-mesh/isthmus/clusters/memory"
	"github.com/isthmus-mesh/isthmus/cmd/isthmus/debug"
	"github.com/isthmus-mesh/isthmus/cmd/isthmus/debug/debugtest"
	"github.com/isthmus-mesh/isthmus/pushcontext"
)

// rowsOf are those of a service entry of a registry, which has one endpoint.
func rowsOf(k model.ShardKey, name string) (src model.Source, rows []model.Event) {
	src = model.Source{Shard: k, Object: model.ObjectKey{Kind: "ServiceEntry", Namespace: "shop", Name: name}}
	host, key := name+".example.com", src.Object.String()+"/"+name+".example.com"
	return src, []model.Event{
		{Row: model.RowKey{Kind: model.RowService, Key: key}, Obj: &model.Service{Host: host, Namespace: "shop", Source: src}},
		{Row: model.RowKey{Kind: model.RowEndpoints, Key: key}, Obj: &model.Endpoints{Host: host, Namespace: "shop", Source: src, Endpoints: []model.Endpoint{{PortName: "http"}}}},
	}
}

// TestAllThatIsHeldBackIsTold: a status names a hundred of what is held back. Who asks for a registry is told of all, and who asks for a
// service of those that it is made of, whether it is one of the hundred or not, and under whichever host a FederatedService has it.
func TestAllThatIsHeldBackIsTold(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const many, last = 150, "s149"
		k := model.ShardKey{Provider: model.ProviderMCP, Cluster: "up"}
		reg, out := memory.New(k), &memory.Sink{}
		var now holdback.Held
		wrapped := holdback.Wrap(reg, holdback.Options{Policy: *api.RegistrySpec{Empty: &api.EmptyPolicy{Mode: api.EmptyHold}}.Effective("").Empty, Held: func(h holdback.Held) { now = h }})
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { _ = wrapped.Run(ctx, out) })
		synctest.Wait()
		reg.Replace(model.NewShardBuilder().Build())
		for i := range many {
			_, rows := rowsOf(k, fmt.Sprintf("s%03d", i))
			reg.Apply(rows...)
		}
		reg.Replace(model.NewShardBuilder().Build())
		reg.Status(model.Status{State: model.StateLive, Problems: []model.Problem{{Item: "VirtualService/shop/odd", Reason: "bad"}}})
		synctest.Wait()
		status := out.Last()
		src, _ := rowsOf(k, last)
		e := &model.Endpoint{Addr: model.Addr{Cluster: "up", AddrPort: netip.MustParseAddrPort("10.0.0.1:80")}, PortName: "http", Health: model.Healthy, Part: 1, Source: &src}
		m := &pushcontext.MeshView{Config: &meshconfig.MeshConfig{}, DomainSuffix: "cluster.local"}
		view := func(host string, f *pushcontext.Federation) *pushcontext.ServiceView {
			return &pushcontext.ServiceView{
				Shape: &pushcontext.ShapeView{
					Key: model.ServiceKey{Namespace: "shop", Host: host}, Ports: []model.Port{{Name: "http", Number: 80, Protocol: model.ProtocolHTTP}}, Mesh: m,
					Export: pushcontext.Export{Public: true}, Federation: f,
				},
				Sources:   []pushcontext.SourceState{{}},
				Endpoints: []pushcontext.PortEndpoints{{Port: "http", Localities: []pushcontext.LocalityEndpoints{{Endpoints: []*model.Endpoint{e}}}}},
			}
		}
		views := []*pushcontext.ServiceView{view(last+".example.com", nil), view("all.global", &pushcontext.Federation{Sources: []pushcontext.FederationSource{{Name: "up", Host: last + ".example.com", Weight: 1}}})}
		shards := []pushcontext.ShardInfo{{Key: k, Synced: true, Status: status}}
		commit := pushcontext.Commit{Mesh: m, Shards: shards}
		for _, v := range views {
			commit.Services = append(commit.Services, pushcontext.Change{Key: v.Shape.Key, View: v})
		}
		pc, d := pushcontext.NewBuilder().Commit(commit)
		hub := pushcontext.NewHub(nil)
		hub.Publish(pc, d)
		o := debugtest.Options(debugtest.Connected(nil))
		o.Snapshot, o.Between, o.Shards = hub.Current, hub.Between, func() []pushcontext.ShardInfo { return shards }
		o.HeldBack = func(asked model.ShardKey) holdback.Held {
			if asked != k {
				return holdback.Held{}
			}
			return now
		}
		problemsOf := func(query string) []debug.Problem {
			var got []debug.Registry
			if w := serve(o, local("/debug/registries"+query)); json.Unmarshal(w.Body.Bytes(), &got) != nil || len(got) != 1 || got[0].HeldBack != many {
				t.Fatal(w.Body)
			}
			return got[0].Problems
		}
		if ps := problemsOf(""); len(ps) != 102 || ps[101].More != 50 || debug.CountProblems(ps) != many+1 {
			t.Errorf("%d problems of all registries: %+v", len(ps), ps)
		}
		ps := problemsOf("?name=up")
		if len(ps) != many+1 || ps[0].Item != "VirtualService/shop/odd" || ps[many].Item != "ServiceEntry/shop/s149/s149.example.com" || slices.ContainsFunc(ps, func(p debug.Problem) bool { return p.More > 0 }) {
			t.Errorf("%d problems: %+v", len(ps), ps)
		}
		for _, host := range []string{last + ".example.com", "all.global"} {
			var got []debug.Explanation
			w := serve(o, local("/debug/servicez?host="+host))
			if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || len(got) != 1 {
				t.Fatal(err, w.Body)
			}
			if ps := got[0].Problems; len(ps) != 1 || ps[0].Shard != "mcp/up" || !ps[0].Held || !strings.Contains(ps[0].Reason, "of its 1 endpoints 0 are left") {
				t.Errorf("%s: %+v", host, ps)
			}
		}
		cancel()
		running.Wait()
	})
}
