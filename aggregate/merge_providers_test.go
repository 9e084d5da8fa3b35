package aggregate_test

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/aggregate"
	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/clusters/memory"
)

// entryOf makes a ServiceEntry of the host with endpoints of its own.
func entryOf(k model.ShardKey, name string, ips ...string) []model.Object {
	e := slice(k, name, name, ips...)
	e.Source.Object.Kind = "ServiceEntry"
	return []model.Object{entry(k, name, created(1)), e}
}

// ofHost gives the rows of a foreign service the host of a cluster's.
func ofHost(name string, rows []model.Object) []model.Object {
	for _, o := range rows {
		switch o := o.(type) {
		case *model.Service:
			o.Host = host(name)
		case *model.Endpoints:
			o.Host = host(name)
		}
	}
	return rows
}

// Definitions of one host: Services of clusters come before those of foreign registries, whose age nobody knows, and these
// before ServiceEntries; the order in which they come does not matter.
func TestMergeProviders(t *testing.T) {
	t.Parallel()
	cluster, far := []model.Object{service(kube("c2"), "a", created(9))}, []model.Object{service(kube("c3"), "a")}
	entries := entryOf(kube("c1"), "a", "10.0.0.1")
	dc, n := ofHost("a", foreignService(consul("dc"), "a", http80, "10.2.0.1")), ofHost("a", foreignService(nacos("a"), "a", http80, "10.1.0.1"))
	for _, tc := range []struct {
		name string
		rows [][]model.Object
		want string
	}{
		{"a cluster's", [][]model.Object{n, dc, entries, far, cluster}, "kubernetes/c2 Service"},
		{"a cluster's of unknown age", [][]model.Object{n, dc, entries, far}, "kubernetes/c3 Service"},
		{"a registry's", [][]model.Object{n, dc, entries}, "consul/dc Service"},
		{"an entry alone", [][]model.Object{entries}, "kubernetes/c1 ServiceEntry"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			rows := rowsOf(tc.rows...)
			for range 3 {
				if got := winner(rebuilt(t, "a", rows...)); got != tc.want {
					t.Errorf("winner %s, want %s", got, tc.want)
				}
				slices.Reverse(rows)
			}
		})
	}
}

// A port of a foreign registry has the number of its instances: it is the port of that number, or else of that name and
// protocol.
func TestMergePortsOfForeignRegistriesIncident48(t *testing.T) {
	t.Parallel()
	c1 := kube("c1")
	for _, tc := range []struct {
		name    string
		port    model.Port
		foreign model.ShardKey
		want    string
		at80    []string
	}{
		{"name", port("http", 9000), consul("dc"), fmt.Sprint([]model.Port{port("http", 80), port("metrics", 9090)}), []string{"c1/10.0.0.1:8080", "dc/10.2.0.1:8080"}},
		{"number", port("web", 80), consul("dc"), fmt.Sprint([]model.Port{port("http", 80), port("metrics", 9090)}), []string{"c1/10.0.0.1:8080", "dc/10.2.0.1:8080"}},
		{"number before name", port("http", 9090), consul("dc"), fmt.Sprint([]model.Port{port("http", 80), port("metrics", 9090)}), []string{"c1/10.0.0.1:8080"}},
		{"another protocol", model.Port{Name: "http", Number: 9000, Protocol: model.ProtocolTCP}, consul("dc"),
			fmt.Sprint([]model.Port{port("http", 80), {Name: "http-9000", Number: 9000, Protocol: model.ProtocolTCP}, port("metrics", 9090)}), []string{"c1/10.0.0.1:8080"}},
		{"of a cluster the number counts", port("http", 9000), kube("dc"), fmt.Sprint([]model.Port{port("http", 80), port("http-9000", 9000), port("metrics", 9090)}), []string{"c1/10.0.0.1:8080"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			rows := append(ofHost("a", foreignService(tc.foreign, "a", tc.port, "10.2.0.1")), service(c1, "a", withPorts(port("http", 80), port("metrics", 9090)), created(1)), slice(c1, "a", "s", "10.0.0.1"))
			v := viewOf(t, host("a"), rows...)
			equal(t, portsOf(v), tc.want)
			equal(t, addrs(v, "http"), tc.at80)
			equal(t, conflictFields(v), []string{"ports"})
		})
	}
}

// Incident 47: one host in a cluster, in a ServiceEntry, in Consul and in Nacos is the union; whichever of them goes, and
// in whatever order, the endpoints of the others stay.
func TestMergeRemovesOneSourceIncident47(t *testing.T) {
	for i, order := range [][]int{{0, 1, 2, 3}, {3, 2, 1, 0}, {1, 3, 0, 2}} {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			inBubble(t, aggregate.Options{ConfigCluster: "c1"}, func(h *hub) {
				c1, c2 := kube("c1"), kube("c2")
				sources := []struct {
					key  model.ShardKey
					rows []model.Object
					addr string
				}{
					{c1, []model.Object{service(c1, "a", created(1)), slice(c1, "a", "s", "10.0.0.1")}, "c1/10.0.0.1:8080"},
					{c2, entryOf(c2, "a", "10.0.0.2"), "c2/10.0.0.2:8080"},
					{consul("dc"), ofHost("a", foreignService(consul("dc"), "a", http80, "10.2.0.1")), "dc/10.2.0.1:8080"},
					{nacos("n"), ofHost("a", foreignService(nacos("n"), "a", http80, "10.1.0.1")), "n/10.1.0.1:8080"},
				}
				regs := map[int]*memory.Registry{}
				var want []string
				for i, s := range sources {
					regs[i] = registry(s.key, s.rows...)
					h.Attach(regs[i])
					want = append(want, s.addr)
				}
				slices.Sort(want)
				h.start()
				h.quiet()
				for n, i := range order {
					got := addrs(h.service("a"), "http")
					slices.Sort(got)
					equal(t, got, want)
					if n%2 == 0 { // the service goes, the registry stays
						for _, o := range sources[i].rows {
							regs[i].Delete(rowOf(o))
						}
					} else {
						h.Detach(sources[i].key)
					}
					h.quiet()
					want = slices.DeleteFunc(want, func(a string) bool { return a == sources[i].addr })
				}
				if h.service("a") != nil {
					t.Error("it is still there")
				}
			})
		})
	}
}

// Incident 50, across providers: the resolution is the winner's, whoever else says otherwise.
func TestMergeResolutionOfProvidersIncident50(t *testing.T) {
	t.Parallel()
	named := entryOf(kube("c1"), "a", "10.0.0.1")
	named[0].(*model.Service).Resolution = model.DNSLB
	v := viewOf(t, host("a"), append(named, ofHost("a", foreignService(consul("dc"), "a", http80, "10.2.0.1"))...)...)
	if v.Shape.Resolution != model.ClientSideLB || len(v.Shape.Inline) != 0 {
		t.Errorf("resolution %v", v.Shape.Resolution)
	}
	equal(t, conflictFields(v), []string{"resolution"})
	equal(t, len(addrs(v, "http")), 2)
}

// Instances of foreign registries are workloads: a ServiceEntry's selector takes them, their health and weights come along,
// and what their own registry states of an address counts once.
func TestServiceEntrySelectsInstances(t *testing.T) {
	inBubble(t, aggregate.Options{ConfigCluster: "c1"}, func(h *hub) {
		c1, n, dc := kube("c1"), nacos("n"), consul("dc")
		selecting := func(s *model.Service) { s.Selector.Labels = model.Labels{"app": "x"} }
		instance := func(k model.ShardKey, name, ip string, edit ...func(*model.Workload)) *model.Workload {
			w := workload(k, model.KindInstance, name, ip, model.Labels{"app": "x"})
			w.Ports = map[string]uint16{"web": 9000}
			for _, e := range edit {
				e(w)
			}
			return w
		}
		own := slice(n, "a", "own", "10.1.0.1")
		own.Endpoints[0].Addr.AddrPort = netip.MustParseAddrPort("10.1.0.1:9000")
		r1, r2, r3 := registry(c1, entry(c1, "a", selecting, created(1))), registry(n, service(n, "a"), own, instance(n, "i1", "10.1.0.1"), instance(n, "i2", "10.1.0.2")), registry(dc, instance(dc, "j1", "10.2.0.1"))
		for _, r := range []*memory.Registry{r1, r2, r3} {
			h.Attach(r)
		}
		h.start()
		h.quiet()
		wantAddrs(t, h, "a", "n/10.1.0.1:9000", "n/10.1.0.2:9000", "dc/10.2.0.1:9000")
		if l := h.service("a").LeftOut; len(l) != 1 || l[0].Reason != model.ReasonDuplicate {
			t.Errorf("left out: %v", l)
		}
		i2 := instance(n, "i2", "10.1.0.2", func(w *model.Workload) {
			w.Health, w.Weight, w.Source.Time = model.Unhealthy, 7, time.Unix(5, 0)
		})
		r2.Put(keyOf(i2), i2)
		r3.Delete(rowOf(instance(dc, "j1", "")))
		h.quiet()
		wantAddrs(t, h, "a", "n/10.1.0.1:9000", "n/10.1.0.2:9000")
		for _, l := range h.service("a").Port("http") {
			for _, e := range l.Endpoints {
				if changed := e.Addr.AddrPort.Addr().String() == "10.1.0.2"; changed != (e.Health == model.Unhealthy && e.Weight == 7) {
					t.Errorf("%s: %v, weight %v", e.Addr, e.Health, e.Weight)
				}
			}
		}
		if d := h.deltas[len(h.deltas)-1]; len(d.Shape)+len(d.Ports) > 0 || len(d.Endpoints) != 1 {
			t.Errorf("more than endpoints differ: %+v", d)
		}
	})
}
