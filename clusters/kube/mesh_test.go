package kube_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	meshconfig "istio.io/api/mesh/v1alpha1"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/clusters/kube"
)

// told is a mesh registry that notes the MeshConfigs that it tells.
type told struct {
	*kube.Mesh
	mu     sync.Mutex
	trusts []string
}

// Run implements model.Registry.
func (o *told) Run(ctx context.Context, out model.Sink) error {
	return o.Mesh.Run(ctx, &toldSink{out, o})
}

type toldSink struct {
	model.Sink
	told *told
}

func (s *toldSink) Replace(full *model.ShardState) {
	obj, _ := full.Row(meshConfigRow)
	s.told.note(obj)
	s.Sink.Replace(full)
}

func (s *toldSink) Put(events ...model.Event) {
	for _, ev := range events {
		if ev.Row == meshConfigRow {
			s.told.note(ev.Obj)
		}
	}
	s.Sink.Put(events...)
}

func (o *told) note(obj model.Object) {
	o.mu.Lock()
	defer o.mu.Unlock()
	trust := "none"
	if c, ok := obj.(*model.Config); ok {
		trust = c.Spec.(*meshconfig.MeshConfig).TrustDomain
	}
	o.trusts = append(o.trusts, trust)
}

func (o *told) all() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.trusts)
}

func watchMesh(t *testing.T, s *apiServer) (*watcher, *told) {
	t.Helper()
	o := &told{Mesh: kube.NewMesh(kube.MeshOptions{Cluster: "c1", Config: s.config(), Timing: quick})}
	return watch(t, o), o
}

var meshConfigRow = model.RowKey{Kind: model.RowConfig, Key: "MeshConfig//mesh"}

func (w *watcher) awaitTrust(want string) {
	w.t.Helper()
	w.await("trust domain "+want, func() bool {
		c, _ := w.rows[meshConfigRow].(*model.Config)
		return w.replaces > 0 && (c == nil && want == "" || c != nil && c.Spec.(*meshconfig.MeshConfig).TrustDomain == want)
	})
}

func TestMeshSettingsOfConfigMaps(t *testing.T) {
	t.Parallel()
	s := newAPIServer(t)
	s.apply(`
apiVersion: v1
kind: ConfigMap
metadata: {name: istio, namespace: istio-system}
data: {mesh: "trustDomain: one", meshNetworks: "networks: {n1: {endpoints: [{fromRegistry: c1}]}}"}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: istio, namespace: elsewhere}
data: {mesh: "trustDomain: wrong"}`)
	w, told := watchMesh(t, s)
	w.awaitTrust("one")
	w.awaitRows("config MeshConfig//mesh", "config MeshNetworks//networks")
	s.apply("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: isthmus, namespace: istio-system}\ndata: {mesh: 'trustDomain: two'}")
	w.awaitTrust("two")
	w.awaitRows("config MeshConfig//mesh", "config MeshNetworks//networks")
	s.remove("configmaps", "istio-system/isthmus")
	w.awaitTrust("one")
	s.remove("configmaps", "istio-system/istio")
	w.awaitRows()
	if got, want := told.all(), []string{"one", "two", "one", "none"}; !slices.Equal(got, want) {
		t.Errorf("told %v, want %v", got, want)
	}
}

func TestMeshWithoutSettings(t *testing.T) {
	t.Parallel()
	w, told := watchMesh(t, newAPIServer(t))
	w.awaitRows()
	w.awaitState(model.StateLive)
	if got := told.all(); !slices.Equal(got, []string{"none"}) {
		t.Errorf("told %v", got)
	}
}

// An edit that can't be used leaves what is in force, and says where it is wrong.
func TestMeshBadEditKeepsLastGood(t *testing.T) {
	t.Parallel()
	s := newAPIServer(t)
	edit := func(text string) {
		s.set(object{"kind": "ConfigMap", "metadata": object{"name": "istio", "namespace": "istio-system"}, "data": object{"mesh": text}})
	}
	edit("trustDomain: one")
	w, told := watchMesh(t, s)
	w.awaitTrust("one")
	const item = "ConfigMap/istio-system/istio"
	for text, why := range map[string]string{
		"trustDomain: one\nconnectTimeout: never\n": "mesh: ",
		"trustDomain: [": "mesh: ",
		"trustDomain: one\nproxyListenPort: 70000\n":                                          "proxyListenPort: 70000 is not a port",
		"discoverySelectors: [{matchExpressions: [{key: a, operator: Like, values: [b]}]}]\n": "discoverySelectors",
	} {
		edit(text)
		w.awaitProblem(item, why, "what was in force stays")
		w.awaitTrust("one")
	}
	edit("trustDomain: two\nfoo: bar\n")
	w.awaitTrust("two")
	w.awaitProblem(item, `unknown field "foo" has no effect`)
	edit("trustDomain: three\n")
	w.awaitNoProblem()
	w.awaitTrust("three")
	if got, want := told.all(), []string{"one", "two", "three"}; !slices.Equal(got, want) {
		t.Errorf("told %v, want %v", got, want)
	}
}

// The right to read the settings is needed: without it nothing is known of the mesh.
func TestMeshNeedsTheRight(t *testing.T) {
	t.Parallel()
	s := newAPIServer(t)
	s.deny("list configmaps")
	w, told := watchMesh(t, s)
	w.awaitErr("the right to list configmap istio-system/isthmus is missing (403)", "deploy/rbac-primary.yaml")
	if w.replaces > 0 || len(told.all()) > 0 {
		t.Error("it has synced")
	}
	s.allow("list configmaps")
	w.awaitRows()
}

// Of a revision of Istio the ConfigMap with its name counts.
func TestMeshSettingsOfRevision(t *testing.T) {
	t.Parallel()
	s := newAPIServer(t)
	for name, domain := range map[string]string{"istio": "one", "istio-canary": "two"} {
		s.set(object{"kind": "ConfigMap", "metadata": object{"name": name, "namespace": "istio-system"}, "data": object{"mesh": "trustDomain: " + domain}})
	}
	w := watch(t, kube.NewMesh(kube.MeshOptions{Cluster: "c1", Config: s.config(), Timing: quick, Revision: "canary"}))
	w.awaitTrust("two")
	s.remove("configmaps", "istio-system/istio-canary")
	w.awaitTrust("")
	if n := s.count(func(r request) bool {
		return strings.Contains(fmt.Sprint(r.query["fieldSelector"]), "metadata.name=istio]")
	}); n > 0 {
		t.Errorf("the ConfigMap of no revision was read %d times", n)
	}
}
