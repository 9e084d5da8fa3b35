package kube_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/clusters/kube"
)

func meshSettings(namespace, name, mesh string) kube.Object {
	o, _ := kube.NewObject("", &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Data: map[string]string{"mesh": mesh}})
	return o
}

// Identities follow the trust domain that the member names itself, and fall back to the mesh's.
func TestTrustDomainOfTheMember(t *testing.T) {
	t.Parallel()
	s := load(t, minimal)
	account := func() string {
		id := row[*model.Workload](t, s, "Pod/demo/a").ServiceAccount
		if ep := row[*model.Endpoints](t, s, "EndpointSlice/demo/of-a").Endpoints[0].ServiceAccount; ep != id {
			t.Errorf("the endpoint is %s, its pod %s", ep, id)
		}
		return id
	}
	for _, step := range []struct {
		namespace, name, mesh string
		want                  string
	}{
		{"istio-system", "istio", "trustDomain: one.example", "one.example"},
		{"demo", "istio", "trustDomain: elsewhere.example", "one.example"},
		{"istio-system", "istio-canary", "trustDomain: canary.example", "one.example"},
		{"istio-system", "isthmus", "rootNamespace: x", "one.example"},
		{"istio-system", "isthmus", "trustDomain: two.example", "two.example"},
		{"istio-system", "isthmus", "trustDomain: 'no domain'", "one.example"},
		{"istio-system", "istio", "{not yaml", "td"},
		{"istio-system", "istio", "trustDomain: three.example", "three.example"},
	} {
		s.Set(meshSettings(step.namespace, step.name, step.mesh))
		if got, want := account(), "spiffe://"+step.want+"/ns/demo/sa/default"; got != want {
			t.Errorf("%s/%s %q: %s, want %s", step.namespace, step.name, step.mesh, got, want)
		}
	}
	s.Delete(model.ObjectKey{Kind: kube.KindConfigMap, Namespace: "istio-system", Name: "istio"})
	if got := account(); got != "spiffe://td/ns/demo/sa/default" {
		t.Errorf("after it is gone: %s", got)
	}
}

// What is wrong with the settings is told in words of the file, and only where they count.
func TestTrustDomainProblems(t *testing.T) {
	t.Parallel()
	for mesh, want := range map[string]string{
		"not: yaml: here":  "mapping values are not allowed in this context",
		"trustDomain: [a]": "trustDomain: want a text, not a list",
		"just text":        "want an object, not a text",
		"trustDomain: a/b": "trustDomain has characters that no domain has",
		"trustDomain: a.b": "",
		"":                 "",
	} {
		for _, namespace := range []string{"istio-system", "demo"} {
			s := newStore()
			o := meshSettings(namespace, "istio", mesh)
			s.Set(o)
			ps := s.Problems()[o.Ref]
			if namespace == "demo" || want == "" {
				if len(ps) > 0 {
					t.Errorf("%s %q: %q", namespace, mesh, ps)
				}
			} else if len(ps) != 1 || !strings.HasSuffix(ps[0], "does not count: "+want) {
				t.Errorf("%q: %q, want %q", mesh, ps, want)
			}
		}
	}
}

// A ConfigMap that says the same changes nothing.
func TestTrustDomainUnchanged(t *testing.T) {
	t.Parallel()
	s := load(t, minimal)
	s.Set(meshSettings("istio-system", "istio", "trustDomain: one.example"))
	if got := keysOf(s.Set(meshSettings("istio-system", "istio", "trustDomain: one.example\nrootNamespace: x"))); len(got) > 0 {
		t.Errorf("changed %v", got)
	}
}

// FuzzMeshSettings: no text makes conversion fail or an identity that is none.
func FuzzMeshSettings(f *testing.F) {
	for _, seed := range []string{"", "{}", "trustDomain: a.example", "trustDomain: a/b", "trustDomain: [x]", "a: &a [*a]", "{", "trustDomain: \"\\n\""} {
		f.Add(seed)
	}
	pods := objects(f, "apiVersion: v1\nkind: Pod\nmetadata: {name: a, namespace: demo}\nstatus: {podIP: 10.0.0.1}")
	f.Fuzz(func(t *testing.T, mesh string) {
		s := newStore()
		s.Apply(pods, nil)
		s.Set(meshSettings("istio-system", "istio", mesh))
		noPanics(t, s)
		id := row[*model.Workload](t, s, "Pod/demo/a").ServiceAccount
		domain, found := strings.CutSuffix(strings.TrimPrefix(id, "spiffe://"), "/ns/demo/sa/default")
		if !found || domain == "" || strings.ContainsAny(domain, "/ \n\t") {
			t.Fatalf("identity %q", id)
		}
	})
}

// Of a revision of Istio the ConfigMap with its name counts, for the default one that without.
func TestTrustDomainOfRevision(t *testing.T) {
	t.Parallel()
	for revision, want := range map[string]string{"": "plain.example", "default": "plain.example", "canary": "canary.example", "other": "own.example"} {
		s := kube.NewStore(kube.Converter{Shard: shard, TrustDomain: "td", Revision: revision})
		s.Apply(objects(t, minimal), nil)
		s.Set(meshSettings("istio-system", "istio", "trustDomain: plain.example"))
		s.Set(meshSettings("istio-system", "istio-canary", "trustDomain: canary.example"))
		if revision == "other" {
			s.Set(meshSettings("istio-system", "isthmus", "trustDomain: own.example"))
		}
		if got := row[*model.Workload](t, s, "Pod/demo/a").ServiceAccount; got != "spiffe://"+want+"/ns/demo/sa/default" {
			t.Errorf("revision %q: %s", revision, got)
		}
	}
}

// In the config cluster the registry of the mesh's settings says what is wrong with them, once.
func TestTrustDomainProblemsOfTheMesh(t *testing.T) {
	t.Parallel()
	s := kube.NewStore(kube.Converter{Shard: shard, ConfigCluster: true})
	s.Set(meshSettings("istio-system", "istio", "not: yaml: here"))
	if ps := s.Problems(); len(ps) > 0 {
		t.Errorf("%v", ps)
	}
}
