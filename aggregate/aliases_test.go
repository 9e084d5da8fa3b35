package aggregate_test

import (
	"fmt"
	"testing"

	"github.com/isthmus-mesh/isthmus/aggregate"
	"github.com/isthmus-mesh/isthmus/aggregate/model"
)

// Of a host that one definition calls another name for a service, and another a service of its own, one counts, whichever namespaces they are
// of: service objects before ServiceEntries, the oldest first, a registry's that does not know its age last. The others are conflicts.
func TestOneHostTwoMeanings(t *testing.T) {
	inBubble(t, aggregate.Options{ConfigCluster: "c1"}, func(h *hub) {
		c1, dc := kube("c1"), consul("dc")
		named := func(namespace string) *model.Service {
			rows := foreignService(dc, "my_s.consul", http80)
			s := *rows[0].(*model.Service)
			s.Host, s.AliasOf, s.Namespace = host("a"), "my_s.consul", namespace
			s.Source.Object.Name = "alias"
			return &s
		}
		r1, r2 := registry(c1), registry(dc, rowsOf(foreignService(dc, "my_s.consul", http80, "10.1.0.1"), []model.Object{named("ns")})...)
		h.Attach(r1)
		h.Attach(r2)
		h.start()
		says := func(step string, want ...string) {
			t.Helper()
			got := []string{}
			for _, c := range h.quiet().Conflicts {
				got = append(got, fmt.Sprintf("%s %s: %s", c.Loser.Shard, c.Loser.Object.Name, c.Detail))
			}
			if want == nil {
				want = []string{}
			}
			equal(t, append([]string{step}, got...), append([]string{step}, want...))
		}
		target := func() string {
			for _, s := range h.quiet().Host(host("a")).Services {
				return s.Shape.Alias
			}
			return "none"
		}
		says("alone")
		equal(t, target(), "my_s.consul")

		own := service(c1, "a", created(5))
		r1.Put(keyOf(own), own)
		says("a Service of that host", "consul/dc alias: the host "+host("a")+" is a service of its own, and not another name for my_s.consul")
		equal(t, target(), "")

		r2.Delete(rowOf(named("ns")))
		far := named("far")
		r2.Put(keyOf(far), far)
		says("of another namespace", "consul/dc alias: the host "+host("a")+" is a service of its own, and not another name for my_s.consul")

		r1.Delete(rowOf(own))
		se := entry(c1, "e", func(s *model.Service) { s.Host = host("a") })
		r1.Put(keyOf(se), se)
		says("a ServiceEntry", "kubernetes/c1 e: the host "+host("a")+" is another name for my_s.consul, and not a service of its own")
		r1.Delete(rowOf(se))
		says("gone")
	})
}
