package pushcontext

import (
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
)

func sidecarSpec(hosts ...string) *networking.Sidecar {
	return &networking.Sidecar{Egress: []*networking.IstioEgressListener{{Hosts: hosts}}}
}

func sidecarRule(hosts ...string) *SidecarRule {
	return NewSidecarRule(model.Source{}, sidecarSpec(hosts...))
}

func shapeOf(namespace, host string) *ShapeView {
	return &ShapeView{Key: model.ServiceKey{Namespace: namespace, Host: host}, Export: Export{Public: true}}
}

// What hosts of an egress listener import.
func TestSidecarImports(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		hosts           []string
		namespace, host string
		want            bool
	}{
		{[]string{"*/*"}, "x", "a.x", true},
		{[]string{"./*"}, "ns", "a.ns", true},
		{[]string{"./*"}, "x", "a.x", false},
		{[]string{"~/*"}, "ns", "a.ns", false},
		{[]string{"*/*", "~/*"}, "ns", "a.ns", false},
		{[]string{"*/*", "~x/*"}, "x", "a.x", false},
		{[]string{"*/*", "~x/*"}, "y", "a.x", true},
		{[]string{"~x/A.x", "x/*"}, "x", "a.X", false},
		{[]string{"~x/a.x", "x/*"}, "x", "b.x", true},
		{[]string{"*/*", "~/a.x"}, "y", "a.x", false},
		{[]string{"*/*", "~./*.ns"}, "ns", "a.ns", false},
		{[]string{"*/*", "~./*.ns"}, "x", "a.ns", true},
		{[]string{"*/*", "~/a.x"}, "y", "*.x", true}, // some of its hosts only
		{[]string{"x/*"}, "x", "a.x", true},
		{[]string{"x/*.X"}, "x", "a.x", true},
		{[]string{"x/a.Y.x"}, "x", "A.y.X", true},
		{[]string{"x/*.y"}, "x", "a.x", false},
		{[]string{"x/a.x"}, "x", "a.x", true},
		{[]string{"x/a.x"}, "y", "a.x", false},
		{[]string{"*/a.x"}, "y", "a.x", true},
		{[]string{"*/*.x"}, "y", "*.x", true},
		{[]string{"*/b.x"}, "y", "*.x", false}, // some of its hosts only
		{[]string{"odd", "/", "x/"}, "x", "odd", false},
		{nil, "x", "a.x", false},
		{[]string{"y/*", "x/*"}, "x", "a.x", true},
	} {
		s := &Scope{Sidecar: (&Scopes{names: &scopeNames{}}).sidecar(sidecarRule(c.hosts...), "ns")}
		if got := s.Imports(shapeOf(c.namespace, c.host)); got != c.want {
			t.Errorf("%q import %s/%s: %v", c.hosts, c.namespace, c.host, got)
		}
	}
	all := &Scope{Sidecar: &Sidecar{Egress: NewSidecarRule(model.Source{}, &networking.Sidecar{}).Egress}}
	if !all.Imports(shapeOf("x", "a.x")) || !(&Scope{}).Imports(shapeOf("x", "a.x")) || !(*Scope)(nil).Imports(shapeOf("x", "a.x")) {
		t.Error("without egress listeners something is not imported")
	}
	if !(*Scope)(nil).ImportsRoute(&VirtualService{}) || !(&Scope{}).ImportsRoute(&VirtualService{}) {
		t.Error("without Sidecar some VirtualService is not imported")
	}
}

// Which VirtualServices are imported: those that have hosts in common.
func TestSidecarImportsRoutes(t *testing.T) {
	t.Parallel()
	v := &VirtualService{Namespace: "x", Hosts: []string{"a.example", "*.com"}}
	for host, want := range map[string]bool{"x/a.example": true, "x/*.example": true, "x/b.com": true, "x/*": true, "y/*": false, "x/b.example": false, "./*": false, "*/*.a.com": true} {
		s := &Scope{Sidecar: (&Scopes{names: &scopeNames{}}).sidecar(sidecarRule(host), "ns")}
		if got := s.ImportsRoute(v); got != want {
			t.Errorf("%s: %v", host, got)
		}
		if got := sidecarRule(host).ImportsRoute(v); got != (want || host == "./*") {
			t.Errorf("%s in some namespace: %v", host, got)
		}
	}
}

// What imported VirtualServices send to is imported too, if the namespace may use them.
func TestDestinationsAreImported(t *testing.T) {
	t.Parallel()
	routes := []*VirtualService{
		{Namespace: "x", Hosts: []string{"a.x"}, Destinations: []Destination{{"b.y", 0}, {"b.y", 81}, {"c.y", 80}}, Export: Export{Public: true}},
		{Namespace: "x", Hosts: []string{"p.x"}, Destinations: []Destination{{"d.y", 0}}, Export: Export{Namespaces: []string{"x"}}},
		{Namespace: "y", Hosts: []string{"o.y"}, Destinations: []Destination{{"e.y", 0}}, Export: Export{Public: true}},
	}
	scopes := NewScopes(nil, "root", map[string]*ScopeSpace{"root": {Sidecar: sidecarRule("x/*")}}, routes)
	for namespace, want := range map[string]string{"ns": "[b.y c.y]", "x": "[b.y c.y d.y]"} {
		s := scopes.Of(ScopeKey{Namespace: namespace})
		var got []string
		for _, host := range []string{"b.y", "c.y", "d.y", "e.y"} {
			shape := shapeOf("y", host)
			if s.Imports(shape) {
				got = append(got, host)
			}
			if s.LeadsTo(shape, 80) != s.Imports(shape) || s.LeadsTo(shape, 90) != (s.Imports(shape) && host != "c.y") {
				t.Errorf("%s is led to %s at port 80: %v, at 90: %v", namespace, host, s.LeadsTo(shape, 80), s.LeadsTo(shape, 90))
			}
		}
		if fmt.Sprint(got) != want {
			t.Errorf("%s imports %v, want %s", namespace, got, want)
		}
	}
}

// Sidecars are not for routers, Telemetry is.
func TestScopeOfRouters(t *testing.T) {
	t.Parallel()
	said := &Telemetry{}
	scopes := NewScopes(nil, "root", map[string]*ScopeSpace{"root": {Sidecar: sidecarRule("x/*"), Telemetry: said}, "ns": {Sidecar: sidecarRule("./*")}}, nil)
	sidecar, router := scopes.Of(ScopeKey{Namespace: "ns"}), scopes.Of(ScopeKey{Namespace: "ns", Router: true})
	if sidecar.Sidecar == nil || len(sidecar.Telemetry) != 1 || router.Sidecar != nil || len(router.Telemetry) != 1 || router.Telemetry[0] != said {
		t.Errorf("%+v, %+v", sidecar, router)
	}
}

// Scopes that say the same are one: over namespaces, snapshots and goroutines; for as long as anybody holds them.
func TestScopesOfOneContentAreOne(t *testing.T) {
	t.Parallel()
	shared, own, tel := sidecarRule("x/*"), sidecarRule("./*"), &Telemetry{}
	spaces := func() map[string]*ScopeSpace {
		return map[string]*ScopeSpace{"root": {Sidecar: shared}, "own": {Sidecar: own}, "root2": {Sidecar: own}, "tel": {Telemetry: tel}}
	}
	first := NewScopes(nil, "root", spaces(), nil)
	of := func(s *Scopes, ns string) *Scope { return s.Of(ScopeKey{Namespace: ns}) }
	held := map[string]*Scope{}
	for _, ns := range []string{"a", "b", "own", "root2", "tel"} {
		held[ns] = of(first, ns)
	}
	switch {
	case held["a"] != held["b"]:
		t.Error("what is the same in two namespaces is two")
	case held["own"] == held["root2"], held["tel"] == held["a"]:
		t.Error("what differs is one")
	case held["tel"].Sidecar != held["a"].Sidecar:
		t.Error("one Sidecar is two")
	}
	next := NewScopes(first, "root", spaces(), []*VirtualService{{Namespace: "x", Hosts: []string{"h"}}})
	var wg sync.WaitGroup
	for ns, s := range held {
		wg.Go(func() {
			if of(next, ns) != s {
				t.Errorf("%s has another scope in the next snapshot", ns)
			}
		})
	}
	wg.Wait()
	leads := NewScopes(next, "root", spaces(), []*VirtualService{{Namespace: "x", Hosts: []string{"h"}, Destinations: []Destination{{"d", 0}}, Export: Export{Public: true}}})
	if of(leads, "a") == held["a"] || of(leads, "own") != held["own"] {
		t.Error("a VirtualService that leads elsewhere must change the scopes that import it, and no others")
	}
	runtime.KeepAlive(held)
}

// Scopes that nobody holds any more are not kept.
func TestScopesAreForgotten(t *testing.T) {
	t.Parallel()
	var s *Scopes
	const rounds = 1000
	for i := range rounds {
		s = NewScopes(s, "root", map[string]*ScopeSpace{"root": {Sidecar: sidecarRule("x/*")}}, nil)
		if s.Of(ScopeKey{Namespace: "ns"}) == nil {
			t.Fatal("no scope")
		}
		if i%100 == 0 {
			runtime.GC()
		}
	}
	runtime.GC()
	for range 200 {
		s = NewScopes(s, "root", map[string]*ScopeSpace{"root": {Sidecar: sidecarRule("x/*")}}, nil)
		s.Of(ScopeKey{Namespace: "ns"})
	}
	if n, m := len(s.names.scopes.known), len(s.names.sidecars.known); n >= rounds || m >= rounds {
		t.Errorf("%d scopes and %d sidecars are kept", n, m)
	}
}

// Of several services of one host a reader means one that its Sidecar imports; one that only routes lead to comes
// after one that is named.
func TestResolveWithSidecar(t *testing.T) {
	t.Parallel()
	m := testMesh()
	b := NewBuilder()
	c := Commit{Mesh: m}
	for i, ns := range []string{"x", "y", "ns"} {
		s := spec{key: key("", ns, "h"), ports: []uint16{80}, created: i}
		c.Services = append(c.Services, Change{s.key, s.fresh(m)})
	}
	pc, _ := b.Commit(c)
	for want, hosts := range map[string][]string{"x": {"x/h"}, "y": {"y/*"}, "ns": {"*/*"}, "": {"z/*"}} {
		r := &Reader{Namespace: "ns", Scope: &Scope{Sidecar: (&Scopes{names: &scopeNames{}}).sidecar(sidecarRule(hosts...), "ns")}}
		got := ""
		if v := pc.Host("h").Resolve(r); v != nil {
			got = v.Shape.Key.Namespace
		}
		means := ""
		if s := pc.Port(80).Means("h", r); s != nil {
			means = s.Key.Namespace
		}
		if got != want || means != want {
			t.Errorf("with %q the host means %q, on the port %q, want %q", hosts, got, means, want)
		}
		if v, _ := pc.View(ViewKey{Kind: ViewShape, Host: "h"}, r); (v == nil) != (want == "") {
			t.Errorf("with %q the view is %v", hosts, v)
		}
		for _, s := range pc.Host("h").Services {
			if sees := r.Sees(s.Shape); sees != (want == "ns" || want == s.Shape.Key.Namespace) {
				t.Errorf("with %q the reader sees the one of %s: %v", hosts, s.Shape.Key.Namespace, sees)
			}
		}
	}
	routes := []*VirtualService{{Namespace: "y", Hosts: []string{"v"}, Destinations: []Destination{{"h", 0}}, Export: Export{Public: true}}}
	for want, hosts := range map[string][]string{"ns": {"y/v"}, "y": {"y/v", "y/h"}} {
		scopes := NewScopes(nil, "root", map[string]*ScopeSpace{"root": {Sidecar: sidecarRule(hosts...)}}, routes)
		r := &Reader{Namespace: "ns", Scope: scopes.Of(ScopeKey{Namespace: "ns"})}
		if v := pc.Host("h").Resolve(r); v == nil || v.Shape.Key.Namespace != want {
			t.Errorf("with %q and a route there the host means %v, want %s", hosts, v, want)
		}
	}
}

// Rules for some workloads hold for those of their namespace, before others for the same hosts.
func TestPolicyForWorkloads(t *testing.T) {
	t.Parallel()
	public := Export{Public: true}
	s := shapeOf("server", "h.x")
	s.Mesh = testMesh()
	s.Policies = []*DestinationPolicy{
		{Namespace: "ns", Host: "h.x", Export: public, Selector: model.Labels{"app": "a"}},
		{Namespace: "ns", Host: "h.x", Export: public},
		{Namespace: "server", Host: "h.x", Export: public, Selector: model.Labels{"app": "a"}},
		{Namespace: "ns", Host: "*.x", Export: public, Selector: model.Labels{"app": "b"}},
		{Namespace: "server", Host: "*.x", Export: public},
	}
	d := &DestinationPolicies{Namespace: "server", Policies: s.Policies}
	for _, c := range []struct {
		namespace string
		labels    model.Labels
		want      int
	}{
		{"ns", model.Labels{"app": "a"}, 0}, {"ns", model.Labels{"app": "b"}, 1}, {"ns", nil, 1},
		{"server", model.Labels{"app": "a"}, 2}, {"server", nil, 4}, {"x", model.Labels{"app": "a"}, 4},
	} {
		if got := slices.Index(s.Policies, s.PolicyFor(c.namespace, c.labels.Matches)); got != c.want {
			t.Errorf("%s %v: rule %d, want %d", c.namespace, c.labels, got, c.want)
		}
		if got := slices.Index(s.Policies, d.PolicyFor(c.namespace, "", c.labels.Matches)); got != c.want {
			t.Errorf("%s %v: rule %d of the destination, want %d", c.namespace, c.labels, got, c.want)
		}
	}
	if s.Policy("ns") != s.Policies[1] || d.Policy("ns", "") != s.Policies[1] {
		t.Error("without labels a rule for some workloads holds")
	}
}

func TestExportCovers(t *testing.T) {
	t.Parallel()
	public, none, x, xy := Export{Public: true}, Export{}, Export{Namespaces: []string{"x"}}, Export{Namespaces: []string{"x", "y"}}
	for _, c := range []struct {
		a, b Export
		want bool
	}{{public, public, true}, {public, x, true}, {x, public, false}, {xy, x, true}, {x, xy, false}, {x, none, true}, {none, x, false}} {
		if got := c.a.Covers(c.b); got != c.want {
			t.Errorf("%v covers %v: %v", c.a, c.b, got)
		}
	}
}
