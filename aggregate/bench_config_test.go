package aggregate

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
)

func benchConfig(c *Controller, k model.ShardKey, kind, name string, spec any) {
	key := model.ObjectKey{Kind: kind, Namespace: "ns", Name: name}
	cfg := &model.Config{Kind: kind, Namespace: "ns", Name: name, Spec: spec, Source: model.Source{Shard: k, Object: key}}
	if kind == model.ConfigResolvedHost {
		cfg.Namespace = ""
	}
	c.state.put(c.state.shard(k), model.RowKey{Kind: model.RowConfig, Key: key.String()}, cfg)
}

// BenchmarkGatewayRotates is a commit after the name of one member's gateway was resolved to something else:
// each member is a network of its own, so one in fifty services is behind it.
func BenchmarkGatewayRotates(b *testing.B) {
	c := New(Options{Hub: benchController().opts.Hub})
	for i := range benchServices {
		k := benchKey(i % benchClusters)
		s, e := benchService(i%benchClusters, i), benchSlice(i%benchClusters, i, 0)
		for j := range e.Endpoints {
			e.Endpoints[j].Network = string(k.Cluster)
		}
		c.state.put(c.state.shard(k), model.RowKey{Kind: model.RowService, Key: s.Source.Object.String()}, s)
		c.state.put(c.state.shard(k), model.RowKey{Kind: model.RowEndpoints, Key: e.Source.Object.String()}, e)
	}
	for i := range benchClusters {
		host := fmt.Sprintf("gw-%d.example", i)
		benchConfig(c, benchKey(i), model.ConfigNetworkGateway, "gw", &model.NetworkGateway{
			Network: string(benchKey(i).Cluster), Addrs: []model.GatewayAddr{{Host: host, Port: 15443}},
		})
	}
	c.commit(time.Now())
	generation, used := 0, cpuTime(0)
	b.ReportAllocs()
	for b.Loop() {
		b.StopTimer()
		generation++
		addr := netip.AddrFrom4([4]byte{192, 0, byte(generation >> 8), byte(generation)})
		benchConfig(c, benchKey(0), model.ConfigResolvedHost, "gw-7.example", &model.ResolvedHost{Addrs: []netip.Addr{addr}})
		b.StartTimer()
		used.commit(c)
		if n := len(c.opts.Hub.Current().Networks); n != benchClusters {
			b.Fatalf("%d networks", n)
		}
	}
	used.report(b)
}

// BenchmarkRuleChange is a commit in which one of 5 000 DestinationRules changed.
func BenchmarkRuleChange(b *testing.B) {
	c := benchController()
	put := func(i, generation int) {
		benchConfig(c, benchKey(0), model.ConfigDestinationRule, fmt.Sprint("r", i), &networking.DestinationRule{
			Host: benchService(0, i).Host, Subsets: []*networking.Subset{{Name: fmt.Sprint("v", generation)}},
		})
	}
	for i := range benchServices / 2 {
		put(i, 0)
	}
	c.commit(time.Now())
	generation, used := 0, cpuTime(0)
	b.ReportAllocs()
	for b.Loop() {
		b.StopTimer()
		generation++
		put(generation%(benchServices/2), generation)
		b.StartTimer()
		used.commit(c)
	}
	used.report(b)
}
