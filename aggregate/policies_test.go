package aggregate_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	meshconfig "istio.io/api/mesh/v1alpha1"
	networking "istio.io/api/networking/v1alpha3"
	selectors "istio.io/api/type/v1beta1"

	"github.com/isthmus-mesh/isthmus/aggregate"
	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/pushcontext"
)

// rule is a DestinationRule that is created so many seconds after the epoch.
func rule(k model.ShardKey, namespace, name, host string, created int64, edits ...func(*networking.DestinationRule)) *model.Config {
	spec := &networking.DestinationRule{Host: host}
	for _, e := range edits {
		e(spec)
	}
	c := config(k, model.ConfigDestinationRule, namespace, name, spec)
	c.Created = time.Unix(created, 0)
	return c
}

func tlsMode(m networking.ClientTLSSettings_TLSmode) func(*networking.DestinationRule) {
	return func(r *networking.DestinationRule) {
		r.TrafficPolicy = &networking.TrafficPolicy{Tls: &networking.ClientTLSSettings{Mode: m}}
	}
}

func subsets(names ...string) func(*networking.DestinationRule) {
	return func(r *networking.DestinationRule) {
		for _, n := range names {
			r.Subsets = append(r.Subsets, &networking.Subset{Name: n})
		}
	}
}

func exportTo(to ...string) func(*networking.DestinationRule) {
	return func(r *networking.DestinationRule) { r.ExportTo = to }
}

// policyText gives "namespace/name host", a line each.
func policyText(list []*pushcontext.DestinationPolicy) []string {
	out := []string{}
	for _, p := range list {
		line := p.Namespace + "/" + p.Source.Object.Name + " " + p.Host
		for _, m := range p.Merged {
			line += " +" + m.Object.Name
		}
		out = append(out, line)
	}
	return out
}

// The rules for a host: the most specific pattern first, of these those for some workloads, then the oldest; a short name means a service of the
// rule's own namespace.
func TestPoliciesOfAHost(t *testing.T) {
	t.Parallel()
	c1 := kube("c1")
	selects := func(r *networking.DestinationRule) {
		r.WorkloadSelector = &selectors.WorkloadSelector{MatchLabels: map[string]string{"app": "x"}}
	}
	rows := []model.Object{
		service(c1, "a"), service(c1, "b"),
		rule(c1, "ns", "all", "*", 1), rule(c1, "ns", "local", "*.local", 1), rule(c1, "ns", "namespace", "*.ns.svc.cluster.local", 1),
		rule(c1, "ns", "young", "a", 3), rule(c1, "other", "foreign", host("a"), 2), rule(c1, "other", "other", "a", 1),
		rule(c1, "ns", "part", "*s.svc.cluster.local", 1), rule(c1, "ns", "empty", "", 1), rule(c1, "ns", "some", "a", 1, selects),
		rule(c1, "ns", "deep", "*.a.ns.svc.cluster.local", 1), rule(c1, "ns", "partial", "a.ns", 1),
		rule(c1, "x", "unread", host("a"), 0, func(*networking.DestinationRule) {}),
	}
	rows[len(rows)-1].(*model.Config).NotServed = true
	wild := []string{"ns/namespace *.ns.svc.cluster.local", "ns/part *s.svc.cluster.local", "ns/local *.local", "ns/all *"}
	for name, want := range map[string][]string{
		"a": append([]string{"ns/some " + host("a"), "other/foreign " + host("a"), "ns/young " + host("a")}, wild...), "b": wild,
	} {
		if d := cmp.Diff(want, policyText(rebuilt(t, name, rows...).Shape.Policies)); d != "" {
			t.Errorf("%s: %s", name, d)
		}
	}
	outside := entry(c1, "wild", func(s *model.Service) { s.Host = "*.example.com" })
	v := rebuilt(t, "wild", outside, rule(c1, "ns", "same", "*.example.com", 1), rule(c1, "ns", "part", "*ple.com", 1), rule(c1, "ns", "below", "*-a.example.com", 1), rule(c1, "ns", "wider", "*.com", 1), rule(c1, "ns", "one", "a.example.com", 1))
	if d := cmp.Diff([]string{"ns/same *.example.com", "ns/part *ple.com", "ns/wider *.com"}, policyText(v.Shape.Policies)); d != "" {
		t.Error(d)
	}
}

// Who may see a rule: what it says, or else the mesh's default.
func TestPoliciesAreExported(t *testing.T) {
	t.Parallel()
	c1 := kube("c1")
	settings := meshRow(&meshconfig.MeshConfig{DefaultDestinationRuleExportTo: []string{"."}}, model.ConfigMesh)
	s := rebuilt(t, "a", settings, service(c1, "a"), rule(c1, "ns", "private", "a", 1), rule(c1, "ns", "public", "a", 2, exportTo("*")),
		rule(c1, "istio-system", "root", host("a"), 1, exportTo("x", "y")), rule(c1, "x", "client", host("a"), 1)).Shape
	for reader, want := range map[string]string{"ns": "private", "x": "client", "y": "public", "istio-system": "public"} {
		if p := s.Policy(reader); p == nil || p.Source.Object.Name != want {
			t.Errorf("%s reads %v, want %s", reader, policyText([]*pushcontext.DestinationPolicy{p}), want)
		}
	}
}

// Rules of one namespace, host and visibility are one: the first traffic policy and the first subset of each
// name count, and what does not is a conflict.
func TestPoliciesAreMerged(t *testing.T) {
	t.Parallel()
	c1 := kube("c1")
	b := rebuild(service(c1, "a"),
		rule(c1, "ns", "second", "a", 2, tlsMode(networking.ClientTLSSettings_ISTIO_MUTUAL), subsets("v2", "v1")),
		rule(c1, "ns", "third", host("a"), 3, tlsMode(networking.ClientTLSSettings_DISABLE), subsets("v3")),
		rule(c1, "ns", "first", "a", 1, subsets("v1")), rule(c1, "ns", "apart", "a", 0, exportTo(".")))
	policies := b.Services[0].Shape.Policies
	if d := cmp.Diff([]string{"ns/apart " + host("a"), "ns/first " + host("a") + " +second +third"}, policyText(policies)); d != "" {
		t.Fatal(d)
	}
	spec, names := policies[1].Spec, []string{}
	for _, s := range spec.Subsets {
		names = append(names, s.Name)
	}
	if got := fmt.Sprint(spec.TrafficPolicy.GetTls().GetMode(), names); got != "ISTIO_MUTUAL [v1 v2 v3]" {
		t.Error(got)
	}
	want := []string{"first over second: subset v1", "first over third: trafficPolicy"}
	if d := cmp.Diff(want, conflictText(b.Conflicts)); d != "" {
		t.Error(d)
	}
}

// Rules for some workloads are merged with rules for the same ones only.
func TestPoliciesForWorkloadsAreMerged(t *testing.T) {
	t.Parallel()
	c1 := kube("c1")
	selects := func(app string) func(*networking.DestinationRule) {
		return func(r *networking.DestinationRule) {
			r.WorkloadSelector = &selectors.WorkloadSelector{MatchLabels: map[string]string{"app": app}}
		}
	}
	b := rebuild(service(c1, "a"), rule(c1, "ns", "all", "a", 0, subsets("v1")), rule(c1, "ns", "some", "a", 1, selects("x"), subsets("v1")),
		rule(c1, "ns", "others", "a", 2, selects("y"), subsets("v1")), rule(c1, "ns", "too", "a", 3, selects("x"), subsets("v2")))
	want := []string{"ns/some " + host("a") + " +too", "ns/others " + host("a"), "ns/all " + host("a")}
	if d := cmp.Diff(want, policyText(b.Services[0].Shape.Policies)) + cmp.Diff([]string{}, conflictText(b.Conflicts)); d != "" {
		t.Error(d)
	}
}

func conflictText(list []pushcontext.Conflict) []string {
	out := []string{}
	for _, c := range list {
		winner, loser := c.Winner.Object.Name, c.Loser.Object.Name
		if c.Winner.Object == c.Loser.Object {
			winner, loser = string(c.Winner.Shard.Cluster), string(c.Loser.Shard.Cluster)
		}
		what, _, _ := strings.Cut(c.Detail, " for ")
		out = append(out, winner+" over "+loser+": "+what)
	}
	return out
}

// Of one object in several members that of the config cluster counts, else the oldest; one that says something
// else is a conflict.
func TestConfigurationOfSeveralMembers(t *testing.T) {
	t.Parallel()
	mode := networking.ClientTLSSettings_ISTIO_MUTUAL
	for name, tc := range map[string]struct {
		rows []model.Object
		want string
		lost []string
	}{
		"config cluster": {[]model.Object{rule(kube("c2"), "ns", "r", "a", 1), rule(kube("c1"), "ns", "r", "a", 2, tlsMode(mode))}, "c1", []string{"c1 over c2: objects of one name differ: the loser is not used"}},
		"oldest":         {[]model.Object{rule(kube("c2"), "ns", "r", "a", 2), rule(kube("c3"), "ns", "r", "a", 1, tlsMode(mode))}, "c3", []string{"c3 over c2: objects of one name differ: the loser is not used"}},
		"by shard":       {[]model.Object{rule(kube("c3"), "ns", "r", "a", 1), rule(kube("c2"), "ns", "r", "a", 1)}, "c2", []string{}},
		"not served":     {[]model.Object{notServed(rule(kube("c1"), "ns", "r", "a", 1)), rule(kube("c2"), "ns", "r", "a", 1)}, "c2", []string{}},
	} {
		b := rebuild(append(tc.rows, service(kube("c1"), "a"))...)
		p := b.Services[0].Shape.Policies
		if len(p) != 1 || string(p[0].Source.Shard.Cluster) != tc.want {
			t.Errorf("%s: %d policies: %v", name, len(p), policyText(p))
		}
		if d := cmp.Diff(tc.lost, conflictText(b.Conflicts)); d != "" {
			t.Errorf("%s: %s", name, d)
		}
	}
}

func notServed(c *model.Config) *model.Config {
	c.NotServed = true
	return c
}

// A changed rule changes the shapes of the hosts that it is for, or was, and no others.
func TestRuleChangeConcernsItsHosts(t *testing.T) {
	inBubble(t, aggregate.Options{ConfigCluster: "c1"}, func(h *hub) {
		c1 := kube("c1")
		far := service(c1, "far", func(s *model.Service) { s.Host, s.Namespace = "far.x.svc.cluster.local", "x" })
		r := registry(c1, service(c1, "a"), service(c1, "b"), far, rule(c1, "ns", "all", "*.x.svc.cluster.local", 1))
		h.Attach(r)
		h.start()
		h.quiet()
		for i, step := range []struct {
			do   func()
			want []string
		}{
			{func() { c := rule(c1, "ns", "r", "a", 1); r.Put(keyOf(c), c) }, []string{host("a")}},
			{func() { c := rule(c1, "ns", "r", "b", 1); r.Put(keyOf(c), c) }, []string{host("a"), host("b")}},
			{func() { c := rule(c1, "ns", "r", "b", 1); r.Put(keyOf(c), c) }, nil}, // says the same
			{func() { c := rule(c1, "ns", "r", "*.ns.svc.cluster.local", 1); r.Put(keyOf(c), c) }, []string{host("a"), host("b")}},
			{func() { r.Delete(rowOf(rule(c1, "ns", "r", "", 1))) }, []string{host("a"), host("b")}},
			{func() { c := rule(c1, "ns", "none", "c", 1); r.Put(keyOf(c), c) }, nil},
		} {
			h.deltas = nil
			step.do()
			h.quiet()
			var got []string
			for _, d := range h.deltas {
				got = append(got, d.Shape...)
				if d.Mesh || len(d.Endpoints) > 0 {
					t.Errorf("step %d: %+v", i, d)
				}
			}
			if !slices.Equal(got, step.want) {
				t.Errorf("step %d changes %q, want %q", i, got, step.want)
			}
		}
	})
}

// AUTO_PASSTHROUGH servers are mesh-wide settings, the oldest Gateway's first.
func TestAutoPassthrough(t *testing.T) {
	t.Parallel()
	c1 := kube("c1")
	server := func(port uint32, mode networking.ServerTLSSettings_TLSmode) *networking.Server {
		return &networking.Server{Port: &networking.Port{Number: port}, Hosts: []string{"*.local"}, Tls: &networking.ServerTLSSettings{Mode: mode}}
	}
	gateway := func(k model.ShardKey, name string, created int64, servers ...*networking.Server) *model.Config {
		c := config(k, model.ConfigGateway, "istio-system", name, &networking.Gateway{Selector: map[string]string{"istio": name}, Servers: servers})
		c.Created = time.Unix(created, 0)
		return c
	}
	auto, simple := networking.ServerTLSSettings_AUTO_PASSTHROUGH, networking.ServerTLSSettings_SIMPLE
	b := rebuild(gateway(c1, "young", 2, server(15443, auto)), gateway(c1, "old", 1, server(443, simple), server(15444, auto), server(0, auto), server(1<<16, auto), &networking.Server{}),
		gateway(kube("c2"), "old", 0, server(1, auto)), config(c1, model.ConfigGateway, "ns", "odd", &networking.Sidecar{}))
	var got []string
	for _, s := range b.Mesh.AutoPassthrough {
		got = append(got, fmt.Sprint(s.Source.Object.Name, " ", s.Namespace, " ", s.Selector, " ", s.Port, " ", s.Hosts))
	}
	if d := cmp.Diff([]string{"old istio-system istio=old 15444 [*.local]", "young istio-system istio=young 15443 [*.local]"}, got); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff([]string{"c1 over c2: objects of one name differ: the loser is not used"}, conflictText(b.Conflicts)); d != "" {
		t.Error(d)
	}
}
