package multicluster_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/isthmus-mesh/isthmus/cmd/isthmus/debug"
	"github.com/isthmus-mesh/isthmus/test/env"
	"github.com/isthmus-mesh/isthmus/test/envoy/envoytest"
)

// foo is a service with one endpoint in each of the clusters; beside it, each has one,
// only-<id>, that no other has.
func (m *mesh) foo(ids ...string) {
	m.Helper()
	for _, id := range ids {
		m.apply(id, env.App("shop/foo", 80, "", fooIP(id)), env.App("shop/only-"+id, 80, "", onlyIP(id)))
	}
}

// onlyIP is the endpoint of the service that a cluster alone has.
func onlyIP(id string) string { return fooIP(id) + "00" }

// fooIP is the endpoint of foo in a cluster.
func fooIP(id string) string {
	return map[string]string{primary: "10.0.0.1", "c1": "10.1.0.1", "c2": "10.2.0.1", "c3": "10.3.0.1"}[id]
}

// Rotation in place: closing the old registry takes nothing away, and no push shows the cluster
// empty.
func TestIncident01RotatedCredentialKeepsEndpoints(t *testing.T) {
	m := newMesh(t, 1)
	m.foo(primary, "c1")
	m.join("c1")
	m.serve()
	p := m.both("client.shop")
	p.has("foo.shop", "10.0.0.1", "10.1.0.1")
	p.forget()
	for range 3 {
		synced := m.entryWhere("c1", "live", func(c debug.Cluster) bool { return c.State == "live" && c.Replacement == "" }).SyncedAt
		m.join("c1")
		m.entryWhere("c1", "with the new credential", func(c debug.Cluster) bool {
			return c.SyncedAt.After(synced) && c.State == "live" && c.Replacement == ""
		})
		m.fence([]string{primary, "c1"}, p...)
	}
	p.kept(primary, "c1")
	p.has("foo.shop", "10.0.0.1", "10.1.0.1")
	m.apply("c1", env.Slice("shop/foo", 8080, "10.1.0.1", "10.1.0.2"))
	p.has("foo.shop", "10.0.0.1", "10.1.0.1", "10.1.0.2")
}

// After a rotation no request carries the old token, and its expiry is no event.
func TestIncident02OldTokenIsNotUsed(t *testing.T) {
	m := newMesh(t, 1)
	m.foo(primary, "c1")
	c1 := m.c("c1")
	old, next := c1.token(t), c1.Token(t, reader, 7200)
	m.secret("remote-c1", "c1", c1.link.Kubeconfig(old))
	m.serve()
	p := m.both("client.shop")
	p.has("foo.shop", "10.0.0.1", "10.1.0.1")

	m.secret("remote-c1", "c1", c1.link.Kubeconfig(next))
	m.eventually("watches with the new token alone", func() error { return onlyWatches(c1.link, next) })
	m.entryWhere("c1", "live", func(c debug.Cluster) bool { return c.State == "live" && c.Replacement == "" })
	used := c1.link.Count(env.By(old))
	c1.link.Refuse(old)
	c1.link.DropConnections() // every watch is opened again
	m.apply("c1", env.Slice("shop/foo", 8080, "10.1.0.2"))
	p.has("foo.shop", "10.0.0.1", "10.1.0.2")
	m.fence([]string{"c1"}, p...)
	if n := c1.link.Count(env.By(old)); n != used {
		t.Errorf("%d requests carry the old token after the swap", n-used)
	}
	m.states("c1", "live")
}

// A replacement that takes its time to list: the old one serves meanwhile.
func TestIncident04MakeBeforeBreak(t *testing.T) {
	m := newMesh(t, 1)
	m.foo(primary, "c1")
	c1 := m.c("c1")
	old, next := c1.token(t), c1.Token(t, reader, 7200)
	m.secret("remote-c1", "c1", c1.link.Kubeconfig(old))
	m.serve()
	p := m.both("client.shop")
	p.has("foo.shop", "10.0.0.1", "10.1.0.1")
	p.forget()

	release := c1.link.Hold(func(r env.Request) bool { return r.Token == next && strings.HasSuffix(r.Path, "/endpointslices") })
	m.secret("remote-c1", "c1", c1.link.Kubeconfig(next))
	m.entryWhere("c1", "with a replacement on its way", func(c debug.Cluster) bool { return c.Replacement != "" })
	// The old one is read meanwhile, also after its watches broke.
	c1.link.DropConnections()
	m.apply("c1", env.Slice("shop/foo", 8080, "10.1.0.1", "10.1.0.2"))
	p.has("foo.shop", "10.0.0.1", "10.1.0.1", "10.1.0.2")
	release()
	m.entryWhere("c1", "without a replacement", func(c debug.Cluster) bool { return c.Replacement == "" && c.State == "live" })
	m.fence([]string{primary, "c1"}, p...)
	p.kept(primary, "c1")
	p.has("foo.shop", "10.0.0.1", "10.1.0.1", "10.1.0.2")
}

// Removal of a Secret takes all that its cluster brought, and only that, at once.
func TestIncident06RemovedClusterLeavesNothing(t *testing.T) {
	m := newMesh(t, 2)
	m.foo(primary, "c1", "c2")
	m.apply("c2", env.App("shop/only", 80, "", "10.2.0.9"))
	m.join("c1", "c2")
	m.serve()
	p := m.both("client.shop")
	p.has("foo.shop", "10.0.0.1", "10.1.0.1", "10.2.0.1")
	p.has("only.shop", "10.2.0.9")
	m.leave("c2")
	p.has("foo.shop", "10.0.0.1", "10.1.0.1")
	p.lacks("only.shop")
	m.states("c2", "gone", "c1", "live")
	for _, page := range []string{"/debug/endpointz", "/debug/registryz", "/debug/configz"} {
		m.eventually(page+" without the cluster", func() error { return m.silent(page, "kubernetes/c2", "10.2.0.") })
	}
	m.join("c2") // and back again
	p.has("foo.shop", "10.0.0.1", "10.1.0.1", "10.2.0.1")
	p.has("only.shop", "10.2.0.9")
}

// A removal and an addition in one window: neither hides the other.
func TestIncident07RemovalAndAdditionInOneWindow(t *testing.T) {
	m := newMesh(t, 2)
	m.foo(primary, "c1", "c2")
	m.join("c1", "c2")
	// Changes wait in a window that a removal alone ends.
	m.serve("--config-debounce=1h", "--config-debounce-max=1h", "--endpoint-debounce=1h", "--endpoint-debounce-max=1h")
	p := m.both("client.shop")
	p.has("foo.shop", "10.0.0.1", "10.1.0.1", "10.2.0.1")
	p.forget()
	added := m.added("Services", "EndpointSlice", "Pods")
	m.apply("c1", env.App("shop/new", 80, "", "10.1.0.7"), env.Slice("shop/foo", 8080, "10.1.0.1", "10.1.0.2"))
	m.eventually("the addition being read", func() error {
		if now := m.added("Services", "EndpointSlice", "Pods"); now < added+3 {
			return fmt.Errorf("%v additions, after %v", now, added)
		}
		return nil
	})
	for _, x := range p {
		if sent := x.past.of(outbound("new.shop")); len(sent) > 0 {
			t.Fatalf("the window has ended: %q", sent)
		}
	}
	m.leave("c2")
	p.has("new.shop", "10.1.0.7")
	p.has("foo.shop", "10.0.0.1", "10.1.0.1", "10.1.0.2")
	p.lacks("only-c2.shop")
	p.kept(primary, "c1")
}

// added counts the objects of the kinds that the hub has been told of.
func (m *mesh) added(kinds ...string) (n float64) {
	m.Helper()
	for _, kind := range kinds {
		v, err := m.hub.Metric(m.Context(), "pilot_k8s_reg_events", "type", kind, "event", "add")
		if err != nil {
			m.Fatal(err)
		}
		n += v
	}
	return n
}

// One remote cluster that cannot be reached: the hub is ready without it, says so, and takes it when
// it comes.
func TestIncident08UnreachableClusterDoesNotBlockStart(t *testing.T) {
	m := newMesh(t, 2)
	m.foo(primary, "c1", "c2")
	m.join("c1", "c2")
	m.c("c1").link.Cut()
	m.c("c2").link.Hang()
	m.serve("--sync-timeout=3s") // returns when it is ready
	m.states(primary, "live", "c1", "timeout", "c2", "timeout")
	p := m.both("client.shop")
	p.has("foo.shop", "10.0.0.1")
	m.c("c1").link.Restore()
	p.has("foo.shop", "10.0.0.1", "10.1.0.1")
	m.states("c1", "live")
	m.c("c2").link.Restore()
	p.has("foo.shop", "10.0.0.1", "10.1.0.1", "10.2.0.1")
	m.states("c2", "live")
}

// Timeout and sync belong to each cluster and begin when it is added.
func TestIncident10TimeoutsBelongToEachCluster(t *testing.T) {
	m := newMesh(t, 2)
	m.foo(primary, "c1", "c2")
	m.join("c1")
	m.c("c1").link.Cut()
	m.serve("--sync-timeout=3s")
	m.states("c1", "timeout")
	release := m.c("c2").link.Hold(func(r env.Request) bool { return strings.HasSuffix(r.Path, "/services") })
	m.join("c2")
	m.states("c2", "syncing", "c2", "timeout", "c1", "timeout")
	p := m.proxy("client.shop")
	p.has("foo.shop", "10.0.0.1")
	release()
	m.states("c2", "live", "c1", "timeout")
	p.has("foo.shop", "10.0.0.1", "10.2.0.1")
}

// A remote API server that is away for a while: what is known stays, proxies that connect
// meanwhile have it, the state shows, and contact comes back by itself.
func TestIncident11OutageKeepsLastKnownState(t *testing.T) {
	m := newMesh(t, 1)
	m.foo(primary, "c1")
	m.join("c1")
	m.serve()
	p := m.both("client.shop")
	p.has("foo.shop", "10.0.0.1", "10.1.0.1")
	p.forget()
	m.c("c1").Stop(t)
	e := m.entryWhere("c1", "stale", func(c debug.Cluster) bool { return c.State == "stale" })
	if e.Since.IsZero() || e.Error == "" || e.SyncStatus != "synced" {
		t.Errorf("clusterz of a stale cluster: %+v; want since when and why", e)
	}
	late := m.proxy("late.shop", "ip=10.250.0.2")
	late.has("foo.shop", "10.0.0.1", "10.1.0.1")
	m.apply(primary, env.Slice("shop/foo", 8080, "10.0.0.2"))
	p.has("foo.shop", "10.0.0.2", "10.1.0.1")

	m.c("c1").Start(t)
	m.states("c1", "live")
	m.apply("c1", env.Slice("shop/foo", 8080, "10.1.0.1", "10.1.0.2"))
	for _, q := range append(proxies{late}, p...) {
		q.has("foo.shop", "10.0.0.2", "10.1.0.1", "10.1.0.2")
		q.kept("c1")
	}
}

// A token that expires under watches that are open: the fault shows when they are opened again, and a
// new credential cures it, without anything lost.
func TestIncident13ExpiredTokenShowsAtTheNextWatch(t *testing.T) {
	m := newMesh(t, 1)
	m.foo(primary, "c1")
	c1 := m.c("c1")
	old := c1.token(t)
	m.secret("remote-c1", "c1", c1.link.Kubeconfig(old))
	m.serve()
	p := m.both("client.shop")
	p.has("foo.shop", "10.0.0.1", "10.1.0.1")
	p.forget()
	c1.link.Refuse(old)
	m.apply("c1", env.Slice("shop/foo", 8080, "10.1.0.1", "10.1.0.2"))
	p.has("foo.shop", "10.0.0.1", "10.1.0.1", "10.1.0.2") // the watch lives on
	c1.link.DropConnections()
	e := m.entryWhere("c1", "stale", func(c debug.Cluster) bool { return c.State == "stale" })
	if !strings.Contains(e.Error, "401") && !strings.Contains(strings.ToLower(e.Error), "unauthorized") && !strings.Contains(e.Error, "credential") {
		t.Errorf("clusterz says %q, want that the credential is refused", e.Error)
	}
	m.apply("c1", env.Slice("shop/foo", 8080, "10.1.0.1", "10.1.0.3"))
	m.secret("remote-c1", "c1", c1.link.Kubeconfig(c1.Token(t, reader, 7200)))
	p.has("foo.shop", "10.0.0.1", "10.1.0.1", "10.1.0.3")
	m.states("c1", "live")
	p.kept(primary, "c1")
}

// An optional kind that may not be read: one notice, everything else works, and the kind is read once
// it may be.
func TestIncident14MissingRightOnAnOptionalKind(t *testing.T) {
	m := newMesh(t, 1)
	m.foo(primary, "c1")
	c1 := m.c("c1")
	const account = system + "/poor"
	c1.ServiceAccount(t, account)
	core := env.Reader("services", "endpointslices.discovery.k8s.io", "pods", "nodes", "namespaces")
	c1.Grant(t, account, core)
	m.secret("remote-c1", "c1", c1.link.Kubeconfig(c1.Token(t, account, 3600)))
	m.serve()
	p := m.proxy("client.shop")
	p.has("foo.shop", "10.0.0.1", "10.1.0.1")
	m.entryWhere("c1", "live, with one notice", func(c debug.Cluster) bool {
		named := 0
		for _, pr := range c.Problems {
			if strings.Contains(pr.Item, "workloadentries") {
				named++
			}
		}
		return c.State == "live" && named == 1
	})

	m.apply("c1", `
apiVersion: networking.istio.io/v1
kind: WorkloadEntry
metadata: {name: vm, namespace: shop, labels: {app: foo}}
spec: {address: 10.1.0.9, labels: {app: foo}}
`)
	m.fence([]string{"c1"}, p)
	p.has("foo.shop", "10.0.0.1", "10.1.0.1")
	c1.Grant(t, account, core, env.Reader("workloadentries.networking.istio.io"))
	// What may not be read is tried again now and then only.
	envoytest.Eventually(t, 3*patience, "the kind being read", func() error {
		a, err := p.endpoints("foo.shop")
		if err == nil && len(a) != 3 {
			err = fmt.Errorf("%+v", a)
		}
		return err
	})
}
