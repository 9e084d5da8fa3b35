package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	api "github.com/isthmus-mesh/isthmus/api/v1alpha1"
	"github.com/isthmus-mesh/isthmus/cmd/isthmus/debug"
	"github.com/isthmus-mesh/isthmus/test/env"
)

// Registries say on their objects how they are, with the rights of deploy.
func TestRegistryStatusOnAServer(t *testing.T) {
	t.Parallel()
	c := servers.Take(t, 1)[0]
	c.Apply(t, env.Namespace("istio-system"), env.Namespace("shop"), manifests(t, []string{"rbac-primary.yaml", "rbac-status.yaml"}), registryYAML("legacy", closedPort(t), ", credentials: {secretName: legacy}"),
		strings.Replace(registryYAML("stray", closedPort(t), ""), "istio-system", "shop", 1), `
apiVersion: isthmus.io/v1alpha1
kind: FederatedService
metadata: {name: checkout, namespace: shop}
spec: {host: checkout.shop.example.com, ports: [{name: http, number: 80}], sources: [{host: nobody.shop.svc.cluster.local}]}
`)
	r := &running{dir: t.TempDir(), log: newLogbook()}
	r.write(t, "primary.yaml", string(c.Kubeconfig(c.Token(t, "istio-system/isthmus", 3600))))
	r.start(t, "--kubeconfig", r.path("primary.yaml"), "--sync-timeout", "3s", "--write-status")
	statusOf := func(resource, namespace, name string, into any) {
		t.Helper()
		o, err := c.Dynamic.Resource(schema.GroupVersionResource{Group: "isthmus.io", Version: "v1alpha1", Resource: resource}).Namespace(namespace).Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		status, _ := o.Object["status"].(map[string]any)
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(status, into); err != nil {
			t.Fatal(err)
		}
	}
	registry := func(namespace, name string) (s api.RegistryStatus) {
		statusOf("registries", namespace, name, &s)
		return s
	}
	r.log.until(t, "the missing Secret", func() bool {
		s := registry("istio-system", "legacy")
		return s.State == debug.Refused && strings.Contains(s.Reason, "does not exist") && s.Effective != nil && s.Effective.Limits.Concurrency == 96 && condition(s.Conditions, "Accepted") == "True Valid" &&
			condition(s.Conditions, "Synced") == "False NotSynced"
	})
	r.log.until(t, "that another namespace declares nothing", func() bool { return condition(registry("shop", "stray").Conditions, "Accepted") == "False NotInForce" })
	r.log.until(t, "the source of a FederatedService", func() bool {
		var s api.FederatedServiceStatus
		statusOf("federatedservices", "shop", "checkout", &s)
		return len(s.Sources) == 1 && condition(s.Conditions, "Accepted") == "True Accepted"
	})
	c.Apply(t, "{apiVersion: v1, kind: Secret, metadata: {name: legacy, namespace: istio-system}, stringData: {token: x}}")
	r.log.until(t, "that it is tried", func() bool { return !strings.Contains(registry("istio-system", "legacy").Reason, "does not exist") })
}

func condition(list []metav1.Condition, kind string) string {
	for _, c := range list {
		if c.Type == kind {
			return string(c.Status) + " " + c.Reason
		}
	}
	return ""
}

// A status has room for some items. What concerns the registry is among them, and how many more there are is said; that this number changes
// is no reason to write at once.
func TestRegistryStatusOfManyProblems(t *testing.T) {
	t.Parallel()
	now := time.Unix(1000, 0)
	statuses := registryStatuses{now: func() time.Time { return now }}
	c := &model.Config{Source: model.Source{Object: model.ObjectKey{Kind: "Registry", Namespace: "n", Name: "a"}}}
	x := debug.Registry{State: "live", Synced: true, DeclaredBy: &debug.Declaring{Source: debug.Source{Shard: "/", Object: "Registry/n/a"}}}
	for i := range 60 {
		x.Problems = append(x.Problems, debug.Problem{Item: fmt.Sprintf("Service/n/s%02d", i), Reason: "gone", Held: true})
	}
	x.Problems = append(x.Problems, debug.Problem{Item: "peer:west", Reason: "refused", Broad: true}, debug.Problem{Reason: "30 more", More: 30})
	look := func() []api.QuarantinedItem {
		statuses.begin()
		return statuses.of(c, []debug.Registry{x}, nil).Quarantined
	}
	got := look()
	if len(got) != 21 || got[0].Item != "peer:west" || got[1].Item != "Service/n/s00" || got[20] != (api.QuarantinedItem{Reason: "71 more problems are not listed"}) {
		t.Fatalf("%+v", got)
	}
	x.Problems[61].More = 29
	if got := look(); got[20].Reason != "71 more problems are not listed" {
		t.Errorf("%+v is told at once", got[20])
	}
	now = now.Add(countsEvery)
	if got := look(); got[20].Reason != "70 more problems are not listed" {
		t.Errorf("%+v is told for ever", got[20])
	}
	x.Problems = x.Problems[:2]
	if got := look(); len(got) != 2 {
		t.Errorf("%+v", got)
	}
}

// Numbers that change all the time are written now and then; what somebody would want to know at once is written at once.
func TestRegistryStatusOfNumbers(t *testing.T) {
	t.Parallel()
	now := time.Unix(1000, 0)
	statuses := registryStatuses{now: func() time.Time { return now }}
	c := &model.Config{Generation: 2, Source: model.Source{Object: model.ObjectKey{Kind: "Registry", Namespace: "n", Name: "a"}}}
	x := debug.Registry{State: "live", Synced: true, Services: 3, Endpoints: 9, LastEvent: now, DeclaredBy: &debug.Declaring{Source: debug.Source{Shard: "/", Object: "Registry/n/a"}}}
	look := func() *api.RegistryStatus {
		statuses.begin()
		return statuses.of(c, []debug.Registry{x}, nil)
	}
	if s := look(); s.Endpoints != 9 || condition(s.Conditions, "Synced") != "True Synced" {
		t.Fatalf("%+v", s)
	}
	for x.Endpoints = range 8 {
		now = now.Add(time.Second)
	}
	x.Endpoints = 8
	if s := look(); s.Endpoints != 9 {
		t.Errorf("%d endpoints are told at once", s.Endpoints)
	}
	x.State = "stale"
	if s := look(); s.Endpoints != 8 || s.State != "stale" {
		t.Errorf("%+v", s)
	}
	now, x.Endpoints = now.Add(countsEvery), 7
	if s := look(); s.Endpoints != 7 {
		t.Errorf("%d endpoints are told for ever", s.Endpoints)
	}
}
