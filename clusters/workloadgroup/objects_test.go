package workloadgroup_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"
	networking "istio.io/api/networking/v1alpha3"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/isthmus-mesh/isthmus/clusters/workloadgroup"
	"github.com/isthmus-mesh/isthmus/test/env"
)

// rights are those of deploy/rbac-auto-registration.yaml.
var rights = []rbacv1.PolicyRule{
	{APIGroups: []string{"networking.istio.io"}, Resources: []string{"workloadentries"}, Verbs: []string{"get", "list", "create", "update", "delete"}},
	{APIGroups: []string{"networking.istio.io"}, Resources: []string{"workloadentries/status"}, Verbs: []string{"update"}},
	{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: []string{"get", "list", "create", "update", "delete"}},
}

// TestObjects keeps entries in a real API server, with the rights that are needed and no more.
func TestObjects(t *testing.T) {
	t.Parallel()
	c := servers.Take(t, 1)[0]
	c.Apply(t, env.Namespace("vms"), env.Namespace("istio-system"))
	c.ServiceAccount(t, "istio-system/hub")
	c.Grant(t, "istio-system/hub", rights...)
	cfg := rest.CopyConfig(c.Config)
	cfg.BearerToken = c.Token(t, "istio-system/hub", 3600)
	o, err := workloadgroup.NewObjects(cfg, "istio-system")
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	e := &workloadgroup.Entry{
		Key: workloadgroup.Key{Namespace: "vms", Name: "legacy-10.3.0.1"}, Labels: map[string]string{"team": "old"},
		Annotations: map[string]string{workloadgroup.AnnotationGroup: "legacy", workloadgroup.AnnotationController: "hub-1"},
		Spec:        &networking.WorkloadEntry{Address: "10.3.0.1", Ports: map[string]uint32{"http": 80}, Labels: map[string]string{"app": "legacy"}},
		Health:      &workloadgroup.Health{Message: "starting"},
	}
	if have, err := o.Get(ctx, e.Key); have != nil || err != nil {
		t.Fatal(have, err)
	}
	if err := o.Put(ctx, e); err != nil {
		t.Fatal(err)
	}
	if err := o.Put(ctx, e); !errors.Is(err, workloadgroup.ErrConflict) {
		t.Errorf("created twice: %v", err)
	}
	have := get(t, o, e.Key)
	if d := cmp.Diff(e, have, protocmp.Transform(), cmp.FilterPath(func(p cmp.Path) bool { return p.Last().String() == ".Version" }, cmp.Ignore())); d != "" {
		t.Errorf("what is kept differs (-want +got):\n%s", d)
	}
	stale := *have
	have.Health = &workloadgroup.Health{Healthy: true}
	have.Spec.Labels["version"] = "v2"
	if err := o.Put(ctx, have); err != nil {
		t.Fatal(err)
	}
	if err := o.Put(ctx, &stale); !errors.Is(err, workloadgroup.ErrConflict) {
		t.Errorf("an older version was written: %v", err)
	}
	if err := o.Delete(ctx, &stale); !errors.Is(err, workloadgroup.ErrConflict) {
		t.Errorf("an older version was removed: %v", err)
	}
	c.Apply(t, `
apiVersion: networking.istio.io/v1
kind: WorkloadEntry
metadata: {name: by-hand, namespace: vms}
spec: {address: 10.9.9.9}`)
	if list, err := o.List(ctx); err != nil || len(list) != 1 || list[0].Health == nil || !list[0].Health.Healthy {
		t.Errorf("list %v, %v: want the entry of a group alone", list, err)
	}
	if err := o.Delete(ctx, get(t, o, e.Key)); err != nil {
		t.Error(err)
	}
	if have, err := o.Get(ctx, e.Key); have != nil || err != nil {
		t.Error(have, err)
	}
}

func get(t *testing.T, o *workloadgroup.Objects, k workloadgroup.Key) *workloadgroup.Entry {
	t.Helper()
	e, err := o.Get(t.Context(), k)
	if err != nil || e == nil {
		t.Fatal(e, err)
	}
	return e
}

// TestReplicasLive: replicas see each other's Leases, and a Lease that is old is that of a dead one.
func TestReplicasLive(t *testing.T) {
	t.Parallel()
	c := servers.Take(t, 1)[0]
	c.Apply(t, env.Namespace("istio-system"))
	o, err := workloadgroup.NewObjects(c.Config, "istio-system")
	if err != nil {
		t.Fatal(err)
	}
	if alive, err := o.Alive(t.Context(), "a"); err != nil || !alive["a"] || alive["b"] {
		t.Fatal(alive, err)
	}
	if alive, err := o.Alive(t.Context(), "b"); err != nil || !alive["a"] || !alive["b"] {
		t.Fatal(alive, err)
	}
	leases := c.Client.CoordinationV1().Leases("istio-system")
	for name, age := range map[string]time.Duration{"isthmus-replica-a": 2 * time.Minute, "isthmus-replica-b": 2 * time.Hour} {
		l, err := leases.Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		old := metav1.NewMicroTime(time.Now().Add(-age))
		l.Spec.RenewTime = &old
		if _, err := leases.Update(t.Context(), l, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if alive, err := o.Alive(t.Context(), "c"); err != nil || alive["a"] || alive["b"] || !alive["c"] {
		t.Error(alive, err)
	}
	if _, err := leases.Get(t.Context(), "isthmus-replica-b", metav1.GetOptions{}); err == nil {
		t.Error("the Lease of a replica that is long dead is still there")
	}
}

// TestKeeperOnAnAPIServer is the life of an entry in a real API server.
func TestKeeperOnAnAPIServer(t *testing.T) {
	t.Parallel()
	c := servers.Take(t, 1)[0]
	c.Apply(t, env.Namespace("vms"), env.Namespace("istio-system"))
	o, err := workloadgroup.NewObjects(c.Config, "istio-system")
	if err != nil {
		t.Fatal(err)
	}
	r := run(t, o, "hub", workloadgroup.Options{Grace: time.Millisecond})
	defer r.stop()
	entries := c.Dynamic.Resource(schema.GroupVersionResource{Group: "networking.istio.io", Version: "v1", Resource: "workloadentries"}).Namespace("vms")
	w, err := entries.Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	p := vm("10.3.0.1")
	r.Connected(p)
	var last string
	for ev := range events(t, w.ResultChan()) {
		if last = string(ev.Type); last == "ADDED" {
			r.Disconnected(p)
		}
		if last == "DELETED" {
			break
		}
	}
	if last != "DELETED" {
		t.Error("the entry has not gone")
	}
}

// events ends when the channel or a minute does.
func events[E any](t *testing.T, in <-chan E) func(func(E) bool) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return func(yield func(E) bool) {
		for {
			select {
			case e, ok := <-in:
				if !ok || !yield(e) {
					return
				}
			case <-ctx.Done():
				return
			}
		}
	}
}
