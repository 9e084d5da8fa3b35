package multicluster_test

import (
	"fmt"
	"testing"

	"github.com/isthmus-mesh/isthmus/test/env"
)

// placed puts foo on a node of each cluster, in region r<i>.
func (m *mesh) placed(ids ...string) {
	m.Helper()
	for i, id := range ids {
		m.apply(id, env.Node("node-1", fmt.Sprint("r", i+1), fmt.Sprint("z", i+1)), env.App("shop/foo", 80, "node-1", fooIP(id)))
	}
}

// rule is a DestinationRule for foo.
func rule(policy string) string {
	return fmt.Sprintf(`
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: foo, namespace: shop}
spec:
  host: foo.shop.svc.cluster.local
  trafficPolicy: {%s}
`, policy)
}

const ejection = "outlierDetection: {consecutive5xxErrors: 5}"

// An endpoint of unknown place gets traffic although shares are set for places.
func TestIncident67UnknownLocalityHasAPlace(t *testing.T) {
	m := newMesh(t, 1)
	m.apply("c1", env.Service("shop/foo", 80), env.Slice("shop/foo", 8080, "10.1.0.1"))
	m.apply(primary, rule(`loadBalancer: {localityLbSetting: {distribute: [{from: "r/z1/*", to: {"r/z1/*": 100}}]}}, `+ejection))
	m.join("c1")
	m.serve()
	p := m.proxy("client.shop", "locality=r/z1")
	p.where("foo.shop", "an endpoint that gets traffic", func(a assignment) bool {
		e := a.at("10.1.0.1:8080")
		return len(a) == 1 && e.share > 0 && e.weight > 0 && e.priority == 0
	})
	c, err := p.cluster("foo.shop")
	if err != nil || c.GetCommonLbConfig().GetLocalityWeightedLbConfig() == nil {
		t.Errorf("cluster %v, %v; want one that weighs localities", c, err)
	}
	// Beside one whose place is known and named, it is the last resort.
	m.apply(primary, env.Node("node-1", "r", "z1"), env.App("shop/foo", 80, "node-1", "10.0.0.1"))
	p.where("foo.shop", "the unplaced one after the placed one", func(a assignment) bool {
		near, far := a.at("10.0.0.1:8080"), a.at("10.1.0.1:8080")
		return len(a) == 2 && near.share > 0 && near.priority == 0 && far.share > 0 && far.priority == 1
	})
}

// Shares beside failover in one rule: the rule says which of the two is in force.
func TestIncident69SharesAndFailover(t *testing.T) {
	m := newMesh(t, 1)
	m.placed(primary, "c1")
	m.join("c1")
	m.apply(primary, rule(`loadBalancer: {localityLbSetting: {distribute: [{from: "r1/*", to: {"r1/*": 80, "r2/*": 20}}]}}, `+ejection))
	m.serve()
	p := m.proxy("client.shop", "locality=r1/z1")
	p.where("foo.shop", "shares of 80 and 20", func(a assignment) bool {
		near, far := a.at("10.0.0.1:8080"), a.at("10.1.0.1:8080")
		return near.address != "" && far.address != "" && near.priority == far.priority && near.weight == 4*far.weight
	})
	m.apply(primary, rule(`loadBalancer: {localityLbSetting: {failover: [{from: r1, to: r2}]}}, `+ejection))
	p.where("foo.shop", "the far one after the near one", func(a assignment) bool {
		return a.at("10.0.0.1:8080").priority == 0 && a.at("10.1.0.1:8080").priority == 1
	})
	m.apply(primary, rule(`loadBalancer: {localityLbSetting: {distribute: [{from: "r1/*", to: {"r1/*": 80, "r2/*": 20}}], failover: [{from: r1, to: r2}]}}, `+ejection))
	m.eventually("a problem that names the rule", func() error {
		e, err := m.entry(primary)
		if err != nil {
			return err
		}
		for _, pr := range e.Problems {
			if containsAll(pr.Item+pr.Reason, []string{"foo", "failover"}) {
				return nil
			}
		}
		return fmt.Errorf("%+v", e.Problems)
	})
	p.has("foo.shop", "10.0.0.1", "10.1.0.1")
}

// Nearest first, by the places of nodes in every cluster, and anew when a node moves.
func TestPlacesOfNodesInEveryCluster(t *testing.T) {
	m := newMesh(t, 2)
	m.placed(primary, "c1", "c2")
	m.apply(primary, rule(ejection))
	m.join("c1", "c2")
	m.serve()
	for i, near := range []string{primary, "c1", "c2"} {
		p := m.proxy(fmt.Sprintf("client-%d.shop", i), "cluster="+near, fmt.Sprintf("locality=r%d/z%d", i+1, i+1), fmt.Sprint("ip=10.250.0.", i+1))
		p.where("foo.shop", "the near one first", func(a assignment) bool {
			return len(a) == 3 && a[0].address == fooIP(near)+":8080" && a[0].priority == 0 && a[1].priority > 0
		})
	}
	m.apply("c1", env.Node("node-1", "r1", "z1"))
	p := m.proxy("late.shop", "locality=r1/z1", "ip=10.250.0.9")
	p.where("foo.shop", "two near ones", func(a assignment) bool {
		return len(a) == 3 && a.at("10.1.0.1:8080").priority == 0 && a.at("10.0.0.1:8080").priority == 0 && a.at("10.2.0.1:8080").priority == 1
	})
}
