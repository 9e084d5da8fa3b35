package aggregate_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/isthmus-mesh/isthmus/aggregate"
	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/pushcontext"
)

// gateway is a Gateway with a server for each list of hosts.
func gateway(namespace, name string, created int64, servers ...[]string) *model.Config {
	spec := &networking.Gateway{Selector: map[string]string{"istio": name}}
	for i, hosts := range servers {
		spec.Servers = append(spec.Servers, &networking.Server{Port: &networking.Port{Number: 80 + uint32(i), Protocol: "HTTP"}, Hosts: hosts})
	}
	c := config(kube("c1"), model.ConfigGateway, namespace, name, spec)
	c.Created = time.Unix(created, 0)
	return c
}

// bound is a VirtualService for hosts at Gateways.
func bound(gateways []string, names ...string) *networking.VirtualService {
	return &networking.VirtualService{Hosts: names, Gateways: gateways}
}

// Servers are those of all Gateways, by age; bound to each is what names its Gateway, has hosts in common and is of
// a namespace that the server takes hosts from.
func TestGatewayServers(t *testing.T) {
	t.Parallel()
	b := rebuild(
		gateway("gw", "young", 2, []string{"*"}),
		gateway("gw", "old", 1, []string{"A.example", "x/*.example"}, []string{"./*", "~/none"}, []string{"*/deep.a.example"}),
		virtual("x", "one", 0, bound([]string{"gw/old"}, "b.example")), virtual("y", "two", 1, bound([]string{"gw/old", "gw/young"}, "a.example")),
		virtual("y", "wrong", 2, bound([]string{"gw/old"}, "b.example")), virtual("gw", "own", 3, bound([]string{"old"}, "*.a.example")),
		virtual("gw", "unbound", 4, hosts("a.example")),
	)
	var got []string
	for _, s := range b.Gateways.Servers {
		got = append(got, fmt.Sprint(s.Name(), " ", s.Index, " ", s.Selector, " ", s.Spec.Port.Number, " ", s.Hosts, " ", virtualNames(s.Bound)))
	}
	want := []string{
		"gw/old 0 istio=old 80 [{* a.example} {x *.example}] [x/one y/two]",
		"gw/old 1 istio=old 81 [{gw *}] [gw/own]",
		"gw/old 2 istio=old 82 [{* deep.a.example}] [gw/own]",
		"gw/young 0 istio=young 80 [{* *}] [y/two]",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff([]string{"istio"}, b.Gateways.Labels); d != "" {
		t.Error(d)
	}
	if b := rebuild(service(kube("c1"), "a")); b.Gateways != nil {
		t.Errorf("%+v without Gateways", b.Gateways)
	}
}

// I7: a change of configuration is a change to what depends on it, and to nothing else.
func TestI7RoutingChangesConcernWhatDependsOnThem(t *testing.T) {
	inBubble(t, aggregate.Options{ConfigCluster: "c1"}, func(h *hub) {
		c1 := kube("c1")
		r := registry(c1, service(c1, "a"), service(c1, "b"), service(c1, "c", func(s *model.Service) { s.Ports = []model.Port{port("http", 90)} }),
			gateway("ns", "gw", 0, []string{"*.example"}), gateway("ns", "other", 0, []string{"*.example"}),
			virtual("ns", "stays", 0, bound([]string{"mesh", "other"}, "c", "c.example")), config(c1, model.ConfigSidecar, "far", "s", sidecarOf("ns/c.example")))
		h.Attach(r)
		h.start()
		h.quiet()
		put := func(c *model.Config) func() { return func() { r.Put(keyOf(c), c) } }
		drop := func(c *model.Config) func() { return func() { r.Delete(rowOf(c)) } }
		v := func(spec *networking.VirtualService) *model.Config { return virtual("ns", "v", 1, spec) }
		weighted := hosts("a")
		weighted.Http = []*networking.HTTPRoute{to("b", 80)}
		alone := hosts("none.example")
		alone.Http = weighted.Http
		for i, step := range []struct {
			do       func()
			shape    []string
			ports    []uint16
			gateways bool
			scopes   []string
		}{
			{do: put(v(hosts("a"))), shape: []string{host("a")}, ports: []uint16{80}},
			{do: put(v(weighted)), shape: []string{host("a")}, ports: []uint16{80}},
			{do: put(v(hosts("a", "b"))), shape: []string{host("a"), host("b")}, ports: []uint16{80}},
			{do: put(v(hosts("a", "b")))}, // says the same
			{do: put(v(alone)), shape: []string{host("a"), host("b")}, ports: []uint16{80}},
			{do: put(v(hosts("none.example"))), ports: []uint16{80}}, // says nothing any more
			{do: put(v(bound([]string{"gw"}, "a.example"))), gateways: true},
			{do: put(v(bound([]string{"nowhere"}, "a.example"))), gateways: true},
			{do: put(v(bound([]string{"nowhere"}, "a.example", "b.example")))},
			{do: put(v(bound([]string{"gw"}, "a.elsewhere")))}, // no host of the Gateway's
			{do: drop(v(nil))},
			{do: put(gateway("ns", "gw", 0, []string{"*.example", "*.com"})), gateways: true},
			{do: put(gateway("ns", "gw", 0, []string{"*.example", "*.com"}))},
			{do: put(rule(c1, "ns", "r", "a", 1, hashed)), shape: []string{host("a")}, ports: []uint16{80}},
			{do: put(v(weighted)), shape: []string{host("a")}, ports: []uint16{80}},
			{do: put(rule(c1, "ns", "s", "b", 1, hashed)), shape: []string{host("a"), host("b")}, ports: []uint16{80}}, // the route to b hashes
			{do: put(config(c1, model.ConfigSidecar, "x", "s", sidecarOf("./*"))), scopes: []string{"x"}},
			{do: put(config(c1, model.ConfigSidecar, "x", "s", sidecarOf("./*")))},
			{do: put(config(c1, model.ConfigSidecar, "x", "t", sidecarFor("a", "ns/*"))), scopes: []string{"x"}},
			{do: put(virtual("ns", "stays", 0, bound([]string{"mesh", "other"}, "c", "c.example", "d.example"))), shape: []string{host("c")}, ports: []uint16{90}, gateways: true, scopes: []string{"far", "x"}},
			{do: put(config(c1, model.ConfigSidecar, "istio-system", "s", sidecarOf("ns/*"))), scopes: []string{"*"}},
			{do: put(config(c1, model.ConfigSidecar, "istio-system", "t", sidecarFor("a", "ns/*"))), scopes: []string{"istio-system"}},
			{do: drop(config(c1, model.ConfigSidecar, "x", "s", nil)), scopes: []string{"x"}},
			{do: drop(config(c1, model.ConfigSidecar, "istio-system", "s", nil)), scopes: []string{"*"}},
		} {
			h.deltas = nil
			step.do()
			h.quiet()
			got := &pushcontext.Delta{}
			for _, d := range h.deltas {
				got.Shape, got.Ports, got.Scopes = append(got.Shape, d.Shape...), append(got.Ports, d.Ports...), append(got.Scopes, d.Scopes...)
				got.Gateways = got.Gateways || d.Gateways
				if d.Mesh || len(d.Endpoints)+len(d.Instances) > 0 {
					t.Errorf("step %d: %+v", i, d)
				}
			}
			if !slices.Equal(got.Shape, step.shape) || !slices.Equal(got.Ports, step.ports) || got.Gateways != step.gateways || !slices.Equal(got.Scopes, step.scopes) {
				t.Errorf("step %d: hosts %q, ports %v, gateways %v, scopes %q, want %q, %v, %v, %q", i, got.Shape, got.Ports, got.Gateways, got.Scopes, step.shape, step.ports, step.gateways, step.scopes)
			}
		}
	})
}

// What did not change keeps its pointer, so that what was built from it stays.
func TestRoutingKeepsPointers(t *testing.T) {
	inBubble(t, aggregate.Options{ConfigCluster: "c1"}, func(h *hub) {
		c1 := kube("c1")
		edited := virtual("ns", "edited", 0, bound([]string{"gw", "mesh"}, "a.example"))
		r := registry(c1, service(c1, "a"), gateway("ns", "gw", 0, []string{"*.example"}), gateway("ns", "other", 1, []string{"*.example"}),
			edited, virtual("ns", "other", 1, bound([]string{"other", "mesh"}, "b.example")), config(c1, model.ConfigSidecar, "x", "s", sidecarOf("./*", "ns/b.example")))
		h.Attach(r)
		h.start()
		was := h.quiet()
		key := pushcontext.ScopeKey{Namespace: "x"}
		scope := was.ScopeOf(key)
		next := virtual("ns", "edited", 0, bound([]string{"gw", "mesh"}, "a.example", "c.example"))
		r.Put(keyOf(next), next)
		is := h.quiet()
		if is.VirtualServices[0] == was.VirtualServices[0] || is.Gateways == was.Gateways || is.Gateways.Servers[0] == was.Gateways.Servers[0] {
			t.Error("what changed is the same")
		}
		if is.VirtualServices[1] != was.VirtualServices[1] || is.Gateways.Servers[1] != was.Gateways.Servers[1] || scope == nil || is.ScopeOf(key) != scope {
			t.Error("what did not change is another")
		}
		again := virtual("ns", "edited", 0, bound([]string{"gw", "mesh"}, "a.example", "c.example"))
		again.Source.Revision = "2"
		r.Put(keyOf(again), again)
		if pc := h.quiet(); pc.VirtualServices[0] != is.VirtualServices[0] || pc.Gateways != is.Gateways {
			t.Error("a new revision that says the same makes a difference")
		}
	})
}

func sidecarOf(hosts ...string) *networking.Sidecar {
	return &networking.Sidecar{Egress: []*networking.IstioEgressListener{{Hosts: hosts}}}
}

func sidecarFor(app string, hosts ...string) *networking.Sidecar {
	s := sidecarOf(hosts...)
	s.WorkloadSelector = &networking.WorkloadSelector{Labels: map[string]string{"app": app}}
	return s
}
