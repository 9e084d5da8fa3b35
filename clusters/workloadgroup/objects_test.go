package workloadgroup_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"
	networking "istio.io/api/networking/v1alpha3"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
	o := workloadgroup.NewObjects(func() *rest.Config { return cfg }, "istio-system")
	ctx := t.Context()
	e := &workloadgroup.Entry{
		Key: workloadgroup.Key{Namespace: "vms", Name: "legacy-10.3.0.1"}, Labels: map[string]string{"team": "old"},
		Annotations: map[string]string{workloadgroup.AnnotationGroup: "legacy", workloadgroup.AnnotationController: "hub-1"},
		Spec:        &networking.WorkloadEntry{Address: "10.3.0.1", Ports: map[string]uint32{"http": 80}, Labels: map[string]string{"app": "legacy"}},
		Health:      &workloadgroup.Health{Message: "starting"},
	}
	await(t, "WorkloadEntries, of which there is none", func() bool { // a server that has just begun may not tell its kinds yet
		have, err := o.Get(ctx, e.Key)
		return have == nil && err == nil
	})
	if _, err := o.Put(ctx, e); err != nil {
		t.Fatal(err)
	}
	if _, err := o.Put(ctx, e); !errors.Is(err, workloadgroup.ErrConflict) {
		t.Errorf("created twice: %v", err)
	}
	have := get(t, o, e.Key)
	if d := cmp.Diff(e, have, protocmp.Transform(), cmp.FilterPath(func(p cmp.Path) bool { return p.Last().String() == ".Version" }, cmp.Ignore())); d != "" {
		t.Errorf("what is kept differs (-want +got):\n%s", d)
	}
	stale := *have
	have.Health = &workloadgroup.Health{Healthy: true}
	have.Spec.Labels["version"] = "v2"
	version, err := o.Put(ctx, have) // the condition too, which is a write of its own
	if err != nil {
		t.Fatal(err)
	}
	if now := get(t, o, e.Key); now.Version != version {
		t.Errorf("version %q is said to be written, %q is kept", version, now.Version)
	}
	if _, err := o.Put(ctx, &stale); !errors.Is(err, workloadgroup.ErrConflict) {
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
	o := workloadgroup.NewObjects(func() *rest.Config { return c.Config }, "istio-system")
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
	o := workloadgroup.NewObjects(func() *rest.Config { return c.Config }, "istio-system")
	r := run(t, o, "hub", workloadgroup.Options{Grace: time.Millisecond})
	defer r.stop()
	p := vm("10.3.0.1")
	r.Connected(p)
	is := func(there bool) func() bool {
		return func() bool {
			e, err := o.Get(t.Context(), workloadgroup.Key{Namespace: "vms", Name: "legacy-10.3.0.1-dc1"})
			return err == nil && (e != nil) == there
		}
	}
	await(t, "the entry", is(true))
	r.Disconnected(p)
	await(t, "the end of the entry", is(false))
}

// await looks again and again until something is so.
func await(t *testing.T, what string, ok func() bool) {
	t.Helper()
	again, late := time.NewTicker(50*time.Millisecond), time.After(time.Minute)
	defer again.Stop()
	for !ok() {
		select {
		case <-again.C:
		case <-late:
			t.Fatalf("never came: %s", what)
		}
	}
}

// TestCredentialInForce: entries are written with the credential in force, another as soon as it is; with none not at all.
func TestCredentialInForce(t *testing.T) {
	t.Parallel()
	c := servers.Take(t, 1)[0]
	c.Apply(t, env.Namespace("istio-system"))
	bad := rest.CopyConfig(c.Config)
	bad.BearerToken = "not-a-token"
	var now *rest.Config
	o := workloadgroup.NewObjects(func() *rest.Config { return now }, "istio-system")
	for _, step := range []struct {
		cfg  *rest.Config
		want string
	}{{nil, "no credential in force"}, {c.Config, ""}, {bad, "Unauthorized"}, {c.Config, ""}} {
		now = step.cfg
		for _, try := range []func() error{
			func() error { _, err := o.Alive(t.Context(), "hub-1"); return err },
			func() error { _, err := o.List(t.Context()); return err },
		} {
			err := try()
			if step.want == "" && err != nil || step.want != "" && (err == nil || !strings.Contains(err.Error(), step.want)) {
				t.Errorf("%v, want %q", err, step.want)
			}
		}
	}
}
