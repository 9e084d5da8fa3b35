package multicluster_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev1 "k8s.io/api/core/v1"

	"github.com/isthmus-mesh/isthmus/cmd/isthmus/debug"
	"github.com/isthmus-mesh/isthmus/test/env"
)

// explain is what /debug/servicez says of a host.
func (m *mesh) explain(host string) (debug.Explanation, error) {
	if strings.Count(host, ".") == 1 && !strings.HasSuffix(host, ".mesh") {
		host += ".svc.cluster.local"
	}
	var out []debug.Explanation
	if err := m.ask("/debug/servicez?host="+host, &out); err != nil {
		return debug.Explanation{}, err
	}
	if len(out) != 1 {
		return debug.Explanation{}, fmt.Errorf("%d services %s", len(out), host)
	}
	return out[0], nil
}

// explained waits until what is said of a host is as wanted.
func (m *mesh) explained(host, what string, cond func(debug.Explanation) bool) (e debug.Explanation) {
	m.Helper()
	m.eventually(host+" explained with "+what, func() (err error) {
		if e, err = m.explain(host); err == nil && !cond(e) {
			err = fmt.Errorf("%+v", e)
		}
		return err
	})
	return e
}

// shards are the endpoints of a host by shard.
func (m *mesh) shards(host string) (map[string][]debug.ShardEndpoint, error) {
	var all map[string]map[string]debug.Shards
	if err := m.ask("/debug/endpointz", &all); err != nil {
		return nil, err
	}
	return all[host]["shop"].Shards, nil
}

// conflict reports whether a field of the service is in conflict.
func conflict(field string) func(debug.Explanation) bool {
	return func(e debug.Explanation) bool {
		return slices.ContainsFunc(e.Conflicts, func(c debug.Conflict) bool { return c.Field == field })
	}
}

func orders(address string) string {
	return fmt.Sprintf(`
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: orders, namespace: shop}
spec:
  hosts: [orders.mesh]
  location: MESH_INTERNAL
  resolution: STATIC
  ports: [{name: http, number: 80, protocol: HTTP}]
  endpoints: [{address: %s, ports: {http: 8080}}]
`, address)
}

// One host from two sources: their union, and the end of one leaves the other.
func TestIncident47OneHostFromTwoClusters(t *testing.T) {
	m := newMesh(t, 1)
	m.apply(primary, orders("10.0.0.1"))
	m.apply("c1", orders("10.1.0.1"))
	m.join("c1")
	m.serve("--config-from=all")
	p := m.both("client.shop")
	p.has("orders.mesh", "10.0.0.1", "10.1.0.1")
	m.remove(primary, orders("10.0.0.1"))
	p.has("orders.mesh", "10.1.0.1")
	m.apply(primary, orders("10.0.0.1"))
	p.has("orders.mesh", "10.0.0.1", "10.1.0.1")
	m.leave("c1")
	p.has("orders.mesh", "10.0.0.1")
}

// ported is an App whose one port has another name and number.
func ported(id, name string, port int32, address string) []any {
	out := env.App(id, port, "", address)
	svc := out[0].(*corev1.Service)
	svc.Spec.Ports[0].Name = name
	slice := env.Slice(id, env.AppPort, address)
	slice.Ports[0].Name = &name
	return []any{svc, slice}
}

// Different ports in two clusters are merged, and the difference is told, whoever comes first.
func TestIncident48PortsDifferBetweenClusters(t *testing.T) {
	m := newMesh(t, 2)
	m.apply("c1", ported("shop/foo", "http-a", 8080, "10.1.0.1"))
	m.apply("c2", ported("shop/foo", "http-b", 8090, "10.2.0.1"))
	m.join("c1", "c2")
	m.serve()
	p := m.proxy("client.shop")
	merged := func() {
		t.Helper()
		p.has("foo.shop:8080", "10.1.0.1")
		p.has("foo.shop:8090", "10.2.0.1")
		m.explained("foo.shop", "a conflict of ports", conflict("ports"))
	}
	merged()
	m.leave("c1")
	p.lacks("foo.shop:8080")
	m.join("c1")
	merged()
	m.leave("c2")
	m.explained("foo.shop", "no conflict", func(e debug.Explanation) bool { return len(e.Conflicts) == 0 })
	m.join("c2")
	merged()
}

// Headless in two clusters, with an address in a third: the same in every order, and no listener at
// 0.0.0.0.
func TestIncident49HeadlessHereClusterIPThere(t *testing.T) {
	m := newMesh(t, 3)
	for _, id := range []string{"c1", "c2", "c3"} {
		objects := ported("shop/foo", "tcp", 3306, fooIP(id)) // no HTTP, for which 0.0.0.0 would be right
		if id != "c3" {
			objects[0].(*corev1.Service).Spec.ClusterIP = corev1.ClusterIPNone
		}
		m.apply(id, objects)
	}
	m.serve()
	p := m.proxy("client.shop")
	var first string
	for _, order := range [][]string{{"c1", "c2", "c3"}, {"c3", "c2", "c1"}, {"c2", "c3", "c1"}} {
		for _, id := range order {
			m.join(id)
			m.states(id, "live")
		}
		e := m.explained("foo.shop", "all three", func(e debug.Explanation) bool { return len(e.Contributions) == 3 })
		got := fmt.Sprint(e.Service.Resolution, e.Service.Ports, e.Service.Addresses, e.Conflicts)
		if first == "" {
			first = got
		}
		if got != first || strings.Contains(got, "0.0.0.0") || !conflict("resolution")(e) {
			t.Errorf("order %v: %s\n first %s", order, got, first)
		}
		m.fence([]string{"c1", "c2", "c3"}, p)
		for name := range p.listeners() {
			if strings.HasPrefix(name, "0.0.0.0_3306") {
				t.Errorf("order %v: there is a listener %s", order, name)
			}
		}
		if c, err := p.cluster("foo.shop:3306"); err != nil || e.Service.Resolution == "Passthrough" != (c.GetType() == clusterv3.Cluster_ORIGINAL_DST) {
			t.Errorf("order %v: cluster %v, %v of a service with resolution %s", order, c.GetType(), err, e.Service.Resolution)
		}
		m.leave(order...)
		p.lacks("foo.shop:3306")
	}
}

// A Service and a ServiceEntry with one host: one resolution for CDS and EDS, and the end of the entry
// takes its endpoint alone.
func TestIncident50ServiceAndServiceEntryOfOneHost(t *testing.T) {
	m := newMesh(t, 1)
	m.foo("c1")
	m.join("c1")
	const entry = `
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: foo, namespace: shop}
spec:
  hosts: [foo.shop.svc.cluster.local]
  location: MESH_INTERNAL
  resolution: DNS
  ports: [{name: http, number: 80, protocol: HTTP}]
  endpoints: [{address: db.example.com}]
`
	m.serve()
	p := m.proxy("client.shop")
	p.has("foo.shop", "10.1.0.1")
	m.apply(primary, entry)
	m.explained("foo.shop", "a conflict of resolution", conflict("resolution"))
	m.fence([]string{primary, "c1"}, p)
	c, err := p.cluster("foo.shop")
	if err != nil {
		t.Fatal(err)
	}
	e, err := m.explain("foo.shop")
	if err != nil {
		t.Fatal(err)
	}
	if eds := c.GetType() == clusterv3.Cluster_EDS; eds != (e.Service.Resolution == "ClientSideLB") {
		t.Errorf("cluster of type %v for a service of resolution %s", c.GetType(), e.Service.Resolution)
	}
	p.has("foo.shop", "10.1.0.1")
	p.kept("c1")
	m.remove(primary, entry)
	m.explained("foo.shop", "no conflict", func(e debug.Explanation) bool { return len(e.Conflicts) == 0 })
	p.has("foo.shop", "10.1.0.1")
}

// An address that moves between slices is there all the time, and once.
func TestIncident51AddressMovesBetweenSlices(t *testing.T) {
	m := newMesh(t, 1)
	m.apply("c1", env.Service("shop/foo", 80))
	a, b := env.Slice("shop/foo", 8080, "10.1.0.1", "10.1.0.2"), env.Slice("shop/foo", 8080, "10.1.0.1")
	b.Name = "foo-2"
	m.apply("c1", a)
	m.join("c1")
	m.serve()
	p := m.proxy("client.shop", "cluster=c1")
	p.has("foo.shop", "10.1.0.1", "10.1.0.2")
	p.forget()
	m.apply("c1", b)
	m.fence([]string{"c1"}, p)
	if got := p.where("foo.shop", "two endpoints", func(a assignment) bool { return len(a.addresses()) == 2 }); len(got) != 2 {
		t.Errorf("%d endpoints, want each once: %+v", len(got), got)
	}
	m.apply("c1", env.Slice("shop/foo", 8080, "10.1.0.2"))
	m.fence([]string{"c1"}, p)
	p.has("foo.shop", "10.1.0.1", "10.1.0.2")
	m.remove("c1", a)
	p.has("foo.shop", "10.1.0.1")
	p.always("foo.shop", "10.1.0.1")

	six := env.Slice("shop/foo", 8080, "fd00::1")
	six.Name = "foo-6"
	m.apply("c1", six)
	dual := m.proxy("dual.shop", "cluster=c1", "ip=10.250.0.2", "INSTANCE_IPS=10.250.0.2,fd00::99")
	m.explained("foo.shop", "both families", func(e debug.Explanation) bool { return len(e.Endpoints) == 2 })
	dual.has("foo.shop", "10.1.0.1", "fd00::1:8080")
	m.fence([]string{"c1"}, p)
	p.has("foo.shop", "10.1.0.1")
	m.remove("c1", b)
	dual.has("foo.shop", "fd00::1:8080")
	m.remove("c1", six)
	dual.has("foo.shop")
}

// Two rules of one name in two clusters: only the config cluster's are read, unless all are asked for; then
// the config cluster's is in force, and the other shows as in conflict and takes over.
func TestConfigurationOfTwoClusters(t *testing.T) {
	m := newMesh(t, 1)
	m.foo(primary, "c1")
	ejecting := func(failures int) string {
		return rule(fmt.Sprintf("outlierDetection: {consecutive5xxErrors: %d}", failures))
	}
	m.apply("c1", ejecting(7))
	m.join("c1")
	m.serve()
	all := m.replica("--config-from=all")
	p, q := m.proxy("client.shop"), all.proxy("client.shop")
	ejects := func(p *proxy, failures uint32) {
		t.Helper()
		p.m.eventually(fmt.Sprint("ejection after ", failures), func() error {
			c, err := p.cluster("foo.shop")
			if got := c.GetOutlierDetection().GetConsecutive_5Xx().GetValue(); err == nil && got != failures {
				err = fmt.Errorf("it is after %d", got)
			}
			return err
		})
	}
	ejects(q, 7)
	ejects(p, 0)
	m.apply(primary, ejecting(5))
	ejects(q, 5)
	ejects(p, 5)
	all.eventually("a conflict that is shown", func() error { return all.rival("kubernetes/primary", "kubernetes/c1") })
	m.remove(primary, ejecting(5))
	ejects(q, 7)
	ejects(p, 0)
}

// rival checks that the rule of one shard shows as in force over that of another.
func (m *mesh) rival(winner, loser string) error {
	var all []debug.Config
	if err := m.ask("/debug/configz", &all); err != nil {
		return err
	}
	for _, c := range all {
		for _, x := range c.Conflicts {
			if c.Kind == "DestinationRule" && x.Winner.Shard == winner && x.Loser.Shard == loser {
				return nil
			}
		}
	}
	return fmt.Errorf("%+v", all)
}
