package pushcontext

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
)

// Any sequence of commits gives what one commit of the final state gives, and each delta names all
// that differs and nothing that was not touched.
func TestI1CommitsEqualOneCommitFromScratch(t *testing.T) {
	t.Parallel()
	for seed := range uint64(16) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			w := &world{r: rand.New(rand.NewPCG(seed, 2)), services: map[model.ServiceKey]spec{}}
			b := NewBuilder()
			pc, _ := b.Commit(w.all())
			m := newMeanings()
			for range 40 {
				m.see(t, pc)
				prev, before := pc, maps.Clone(w.services)
				touched := map[model.ServiceKey]bool{}
				for range 1 + w.r.IntN(4) {
					touched[w.change()] = true
				}
				if w.r.IntN(4) == 0 {
					w.reroute()
				}
				c := w.commit(slices.Collect(maps.Keys(touched)), before, prev)
				if w.r.IntN(8) == 0 {
					c = w.all()
				}
				var d *Delta
				pc, d = b.Commit(c)
				checkDelta(t, prev, pc, d, touched)
				checkRevisions(t, pc, d)
				checkTargets(t, b, pc)
				checkClaims(t, pc, m.readers)
				scratch, _ := NewBuilder().Commit(w.all())
				if diff := cmp.Diff(dumpOf(scratch), dumpOf(pc)); diff != "" {
					t.Fatalf("version %d is not what a commit from scratch gives (-scratch +got):\n%s", pc.Version, diff)
				}
			}
		})
	}
}

func checkDelta(t *testing.T, prev, pc *PushContext, d *Delta, touched map[model.ServiceKey]bool) {
	t.Helper()
	if d.From != prev.Version || d.To != pc.Version || pc.Version != prev.Version+1 {
		t.Fatalf("delta %d..%d between versions %d and %d", d.From, d.To, prev.Version, pc.Version)
	}
	was, is := dumpOf(prev), dumpOf(pc)
	shapes, services := differing(was.Shapes, is.Shapes), differing(was.Hosts, is.Hosts)
	named(t, "shape", shapes, d.Shape)
	named(t, "service", services, slices.Concat(d.Shape, d.Endpoints))
	named(t, "port", differing(was.Ports, is.Ports), d.Ports)
	named(t, "instance", differing(was.Instances, is.Instances), d.Instances)
	for _, h := range d.Endpoints {
		if slices.Contains(d.Shape, h) {
			t.Errorf("%s is named twice", h)
		}
	}
	if !slices.IsSorted(d.Shape) || !slices.IsSorted(d.Endpoints) || !slices.IsSorted(d.Ports) ||
		!slices.IsSortedFunc(d.Instances, model.InstanceKey.Compare) {
		t.Errorf("delta is not sorted: %+v", d)
	}
	if d.Mesh {
		return
	}
	for _, h := range slices.Concat(d.Shape, d.Endpoints) {
		if !slices.ContainsFunc(slices.Collect(maps.Keys(touched)), func(k model.ServiceKey) bool { return k.Host == h }) {
			t.Errorf("%s was not touched", h)
		}
	}
}

func differing[K comparable](a, b map[K]string) []K {
	var out []K
	for k := range a {
		if v, ok := b[k]; !ok || v != a[k] {
			out = append(out, k)
		}
	}
	for k := range b {
		if _, ok := a[k]; !ok {
			out = append(out, k)
		}
	}
	return out
}

func named[K comparable](t *testing.T, what string, want, got []K) {
	t.Helper()
	for _, k := range want {
		if !slices.Contains(got, k) {
			t.Errorf("%s %v differs but the delta does not name it", what, k)
		}
	}
}

// What a delta names has the new version, and nothing else has.
func checkRevisions(t *testing.T, pc *PushContext, d *Delta) {
	t.Helper()
	for h, v := range pc.Hosts() {
		inShape := slices.Contains(d.Shape, h)
		if (v.Rev == pc.Version) != (inShape || slices.Contains(d.Endpoints, h)) || (v.ShapeRev == pc.Version) != inShape {
			t.Errorf("host %s: rev %d, shape rev %d at version %d", h, v.Rev, v.ShapeRev, pc.Version)
		}
	}
	for n, v := range pc.ports.all() {
		if (v.Revision() == pc.Version) != slices.Contains(d.Ports, n) {
			t.Errorf("port %d: rev %d at version %d", n, v.Revision(), pc.Version)
		}
	}
	for k, v := range pc.Instances() {
		if (v.Rev == pc.Version) != slices.Contains(d.Instances, k) {
			t.Errorf("instance %v: rev %d at version %d", k, v.Rev, pc.Version)
		}
	}
}

// Equal targets are one view, and the builder knows exactly those that are in use.
func checkTargets(t *testing.T, b *Builder, pc *PushContext) {
	t.Helper()
	users := map[*TargetsView]int{}
	content := map[string]*TargetsView{}
	for _, i := range pc.Instances() {
		users[i.Targets]++
		c := fmt.Sprint(i.Targets.Targets)
		if v := content[c]; v != nil && v != i.Targets {
			t.Errorf("two views of %s", c)
		}
		content[c] = i.Targets
	}
	if len(b.targets) != len(users) {
		t.Errorf("the builder keeps %d target views, %d are in use", len(b.targets), len(users))
	}
	for _, e := range b.targets {
		if users[e.view] != e.refs {
			t.Errorf("%d references, %d users", e.refs, users[e.view])
		}
	}
}

// A host means the same service on every port as it does without.
func checkClaims(t *testing.T, pc *PushContext, readers []*Reader) {
	t.Helper()
	for n, v := range pc.ports.all() {
		for _, s := range v.Services {
			host := pc.Host(s.Key.Host)
			if claims, several := v.Claims[host.Host]; several != (len(host.Services) > 1) || several && len(claims) != len(host.Services) {
				t.Errorf("port %d: %d claims of %s, %d services", n, len(claims), host.Host, len(host.Services))
				continue
			} else if !several {
				continue
			}
			for _, r := range readers {
				want := host.Resolve(r)
				if got := v.Means(host.Host, r); got == nil && want != nil || got != nil && (want == nil || want.Shape != got) {
					t.Errorf("port %d: %s means %v to %v, elsewhere %v", n, host.Host, got, r, want)
				}
			}
		}
	}
}

// meanings remembers what keys meant to readers in every version.
type meanings struct {
	readers []*Reader
	was     map[meaning]model.ServiceKey
}

type meaning struct {
	version uint64
	reader  int
	key     ViewKey
}

func newMeanings() *meanings {
	m := &meanings{was: map[meaning]model.ServiceKey{}}
	for _, c := range []model.ClusterID{"c1", "c2"} {
		for _, ns := range []string{"ns1", "ns2", "ns3"} {
			m.readers = append(m.readers, &Reader{Cluster: c, Namespace: ns})
		}
	}
	return m
}

// see checks that a key has meant the same service ever since SameSince, to each reader.
func (m *meanings) see(t *testing.T, pc *PushContext) {
	t.Helper()
	for i, r := range m.readers {
		for k := range pc.Keys(ViewShape) {
			v, _ := pc.View(k, r)
			now := model.ServiceKey{}
			if v != nil {
				now = v.(*ShapeView).Key
			}
			m.was[meaning{pc.Version, i, k}] = now
			first := max(pc.SameSince(k, r), 1)
			for _, since := range []uint64{first, (first + pc.Version) / 2, pc.Version - 1} {
				if since < first {
					continue
				}
				if old, ok := m.was[meaning{since, i, k}]; !ok || old != now {
					t.Errorf("version %d: %v means %v to %v since %d, but in %d it meant %v", pc.Version, k.Host, now, r, pc.SameSince(k, r), since, old)
				}
			}
		}
	}
}

func key(cluster, ns, host string) model.ServiceKey {
	return model.ServiceKey{Cluster: clusterID(cluster), Namespace: ns, Host: host}
}

func put(b *Builder, views ...*ServiceView) (*PushContext, *Delta) {
	var c Commit
	for _, v := range views {
		c.Services = append(c.Services, Change{v.Shape.Key, v})
	}
	return b.Commit(c)
}

// start commits two services on port 80, one of them on 443 too, with one workload each.
func start() (*Builder, *PushContext, map[string]spec) {
	specs := map[string]spec{
		"a": {key: key("", "ns", "a"), ports: []uint16{80}, endpoints: []specEndpoint{{"10.0.0.1", "c1", "", ""}}},
		"b": {key: key("", "ns", "b"), ports: []uint16{80, 443}, created: 1, endpoints: []specEndpoint{{"10.0.0.2", "c1", "", ""}}},
	}
	m := testMesh()
	b := NewBuilder()
	pc, _ := b.Commit(Commit{Mesh: m, Services: []Change{
		{specs["a"].key, specs["a"].fresh(m)}, {specs["b"].key, specs["b"].fresh(m)},
	}})
	return b, pc, specs
}

func TestEndpointChangeSharesEverythingElse(t *testing.T) {
	t.Parallel()
	b, v1, specs := start()
	a := specs["a"]
	a.endpoints = append(a.endpoints, specEndpoint{"10.0.0.3", "c1", "", ""})
	old := v1.Service(a.key)
	v2, d := put(b, a.view(old.Shape))

	want := &Delta{From: 1, To: 2, Endpoints: []string{"a"}, Instances: []model.InstanceKey{{Cluster: "c1", IP: ip("10.0.0.3")}}}
	if diff := cmp.Diff(want, d, cmp.Comparer(sameInstance), ignoreEmpty()); diff != "" {
		t.Errorf("delta (-want +got):\n%s", diff)
	}
	if v2.Service(a.key) == old || v2.Service(a.key).Shape != old.Shape {
		t.Error("the service is to be new, its shape the same")
	}
	if v2.Host("b") != v1.Host("b") || v2.Port(80) != v1.Port(80) || v2.Port(443) != v1.Port(443) || v2.Mesh != v1.Mesh {
		t.Error("a view that nobody touched has another pointer")
	}
	if h := v2.Host("a"); h.Rev != 2 || h.ShapeRev != 1 || old.Shape.Revision() != 1 {
		t.Errorf("revisions %d, %d, shape %d", h.Rev, h.ShapeRev, old.Shape.Revision())
	}
	first, second := v1.Instance(model.InstanceKey{Cluster: "c1", IP: ip("10.0.0.1")}), v2.Instance(model.InstanceKey{Cluster: "c1", IP: ip("10.0.0.1")})
	if first != second {
		t.Error("the other workload has another pointer")
	}
	if v2.Instance(model.InstanceKey{Cluster: "c1", IP: ip("10.0.0.3")}).Targets != first.Targets {
		t.Error("equal workloads do not share their targets")
	}
	if len(v1.Service(a.key).Endpoints[0].Localities[0].Endpoints) != 1 {
		t.Error("the old version changed")
	}
}

// An endpoint whose health alone changes concerns nobody's own configuration.
func TestEndpointsOnlyDelta(t *testing.T) {
	t.Parallel()
	b, v1, specs := start()
	v := specs["a"].view(v1.Service(specs["a"].key).Shape)
	v.Endpoints[0].Localities[0].Endpoints[0].Health = model.Unhealthy
	v2, d := put(b, v)
	if !slices.Equal(d.Endpoints, []string{"a"}) || len(d.Shape)+len(d.Ports)+len(d.Instances) != 0 {
		t.Errorf("delta %+v", d)
	}
	if &v1.instances.buckets[0] != &v2.instances.buckets[0] || &v1.ports.buckets[0] != &v2.ports.buckets[0] {
		t.Error("tables that nobody touched were copied")
	}
}

func TestShapeChangeTouchesItsPortsOnly(t *testing.T) {
	t.Parallel()
	b, v1, specs := start()
	s := specs["b"]
	s.ports = []uint16{443, 8080}
	v2, d := put(b, s.fresh(v1.Mesh))
	if diff := cmp.Diff([]uint16{80, 443, 8080}, d.Ports); diff != "" {
		t.Error(diff)
	}
	if !slices.Equal(d.Shape, []string{"b"}) || len(d.Endpoints) != 0 {
		t.Errorf("delta %+v", d)
	}
	if v2.Host("a") != v1.Host("a") {
		t.Error("the other host has another pointer")
	}
	if n := len(v2.Port(80).Services); n != 1 || len(v1.Port(80).Services) != 2 {
		t.Errorf("%d services on port 80", n)
	}
	v3, d := b.Commit(Commit{Services: []Change{{Key: s.key}}})
	if v3.Port(443) != nil || v3.Port(8080) != nil || v3.Host("b") != nil || !slices.Equal(d.Ports, []uint16{443, 8080}) {
		t.Errorf("the service is gone, yet: %+v", d)
	}
}

func TestMeshChangeNamesEverything(t *testing.T) {
	t.Parallel()
	b, v1, specs := start()
	m := testMesh()
	s := specs["a"]
	v2, d := b.Commit(Commit{Mesh: m, Services: []Change{{s.key, s.fresh(m)}}, Reasons: []string{"mesh", "config", "mesh"}})
	if !d.Mesh || !slices.Equal(d.Shape, []string{"a", "b"}) || !slices.Equal(d.Ports, []uint16{80, 443}) || len(d.Instances) != 2 {
		t.Errorf("delta %+v", d)
	}
	if !slices.Equal(d.Reasons, []string{"config", "mesh"}) {
		t.Errorf("reasons %v", d.Reasons)
	}
	if v2.Mesh == v1.Mesh || v2.Host("b") != nil || v2.Port(443) != nil || v2.Port(80) == v1.Port(80) {
		t.Error("something of the old mesh is left")
	}
	r := &Reader{}
	for _, k := range []ViewKey{{Kind: ViewTargets}, {Kind: ViewMesh}, {Kind: ViewPort, Port: 80}, {Kind: ViewShape, Host: "a"}, {Kind: ViewService, Host: "a"}} {
		old, _ := v1.View(k, r)
		if v, rev := v2.View(k, r); v == old || rev != 2 || v.Revision() != 2 {
			t.Errorf("%+v is not new", k)
		}
	}
}

// One service becomes local to its member. Whatever the order of the two changes, its workload keeps
// serving it.
func TestServiceChangesScope(t *testing.T) {
	t.Parallel()
	for _, localFirst := range []bool{true, false} {
		b, v1, specs := start()
		local := specs["a"]
		local.key.Cluster = "c1"
		changes := []Change{{local.key, local.fresh(v1.Mesh)}, {Key: specs["a"].key}}
		if !localFirst {
			slices.Reverse(changes)
		}
		v2, _ := b.Commit(Commit{Services: changes})
		i := v2.Instance(model.InstanceKey{Cluster: "c1", IP: ip("10.0.0.1")})
		if i == nil || len(i.Targets.Targets) != 1 || i.Targets.Targets[0].Cluster != "c1" {
			t.Errorf("local first %v: %+v", localFirst, i)
		}
		if n := len(v2.Host("a").Services); n != 1 {
			t.Errorf("%d services", n)
		}
	}
}

// Invariant I3 in small: one IP in two members is two workloads.
func TestInstanceIsKeyedByCluster(t *testing.T) {
	t.Parallel()
	m := testMesh()
	b := NewBuilder()
	one := spec{key: key("", "ns", "one"), ports: []uint16{80}, endpoints: []specEndpoint{{"10.0.0.1", "c1", "r/z1", "n1"}}}
	two := spec{key: key("", "ns", "two"), ports: []uint16{90}, endpoints: []specEndpoint{{"10.0.0.1", "c2", "r/z2", "n2"}}}
	b.Commit(Commit{Mesh: m, Services: []Change{{one.key, one.fresh(m)}, {two.key, two.fresh(m)}}})
	pc, d := b.Commit(Commit{Services: []Change{{Key: two.key}}})
	if pc.Instance(model.InstanceKey{Cluster: "c2", IP: ip("10.0.0.1")}) != nil {
		t.Error("the workload in c2 is still known")
	}
	i := pc.Instance(model.InstanceKey{Cluster: "c1", IP: ip("10.0.0.1")})
	if i == nil || i.Rev != 1 || i.Locality.Zone != "z1" || i.Network != "n1" || i.Targets.Targets[0].Host != "one" {
		t.Errorf("the workload in c1: %+v", i)
	}
	if len(d.Instances) != 1 {
		t.Errorf("delta %+v", d)
	}
}

// Services may contradict each other about a workload; the word of one must not depend on order.
func TestInstanceLocalityDoesNotDependOnOrder(t *testing.T) {
	t.Parallel()
	specs := []spec{
		{key: key("", "ns", "a"), ports: []uint16{80}, endpoints: []specEndpoint{{"10.0.0.1", "c1", "r/z1", ""}}},
		{key: key("", "ns", "b"), ports: []uint16{80}, endpoints: []specEndpoint{{"10.0.0.1", "c1", "r/z2", ""}}},
	}
	for _, order := range [][]int{{0, 1}, {1, 0}, {0, 1, 0}, {1, 0, 1}} {
		b := NewBuilder()
		pc, _ := b.Commit(Commit{Mesh: testMesh()})
		for _, i := range order {
			pc, _ = put(b, specs[i].fresh(pc.Mesh))
		}
		i := pc.Instance(model.InstanceKey{Cluster: "c1", IP: ip("10.0.0.1")})
		if i.Locality.Zone != "z1" || len(i.Targets.Targets) != 2 {
			t.Errorf("order %v: %+v", order, i)
		}
	}
}

func TestPublishedViewCannotBeCommittedAgain(t *testing.T) {
	t.Parallel()
	b, v1, specs := start()
	old := v1.Service(specs["a"].key)
	v2, d := put(b, old)
	if !d.Empty() || v2.Host("a") != v1.Host("a") {
		t.Errorf("committing the current view changes something: %+v", d)
	}
	b.Commit(Commit{Services: []Change{{Key: specs["a"].key}}})
	for name, c := range map[string]Commit{
		"service": {Services: []Change{{specs["a"].key, old}}},
		"shape":   {Services: []Change{{specs["a"].key, specs["a"].view(old.Shape)}}},
		"mesh":    {Mesh: v1.Mesh},
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			b.Commit(c)
		}()
	}
}
