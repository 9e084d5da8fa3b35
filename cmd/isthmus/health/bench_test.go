package health

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/pushcontext"
	"github.com/isthmus-mesh/isthmus/xds/gen"
)

// BenchmarkChecks is what the first scrape of a version costs with 10 000 services of 10 endpoints.
func BenchmarkChecks(b *testing.B) {
	pc := tenThousand()
	for b.Loop() {
		for _, c := range checks() {
			c.count(pc)
		}
	}
}

func tenThousand() *pushcontext.PushContext {
	var views []*pushcontext.ServiceView
	for i := range 10_000 {
		v := service(fmt.Sprintf("s%d.example", i), web, tcp)
		v.Shape.Addresses = map[model.ClusterID][]netip.Prefix{"c1": {netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 96, byte(i >> 8), byte(i)}), 32)}}
		for p := range v.Endpoints {
			l := &v.Endpoints[p].Localities[0]
			l.Endpoints = nil
			for n := range 10 {
				a := netip.AddrFrom4([4]byte{10, byte(i >> 8), byte(i), byte(n)})
				l.Endpoints = append(l.Endpoints, &model.Endpoint{Addr: model.Addr{Cluster: "c1", AddrPort: netip.AddrPortFrom(a, uint16(8000+p))}, PortName: v.Endpoints[p].Port, Health: model.Healthy})
			}
		}
		views = append(views, v)
	}
	return snapshot(pushcontext.NewBuilder(), views...)
}

// BenchmarkLeftOut is the same for what is left out, with proxies of 60 classes.
func BenchmarkLeftOut(b *testing.B) {
	pc := tenThousand()
	classes := map[gen.Class]struct{}{}
	for i := range 60 {
		classes[proxy(fmt.Sprintf("c%d", i), "shop")] = struct{}{}
	}
	for b.Loop() {
		countLeftOut(pc, classes)
	}
}
