package multicluster_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/isthmus-mesh/isthmus/cmd/isthmus/debug"
	"github.com/isthmus-mesh/isthmus/test/env"
)

// held are the requests for Pods that carry a token.
func held(token string) func(env.Request) bool {
	return func(r env.Request) bool { return r.Token == token && strings.HasSuffix(r.Path, "/pods") }
}

// started is a mesh of the config cluster and c1, which was joined with the first of the tokens.
func started(t *testing.T, args ...string) (m *mesh, p proxies, tokens []string) {
	t.Helper()
	m = newMesh(t, 1)
	m.foo(primary, "c1")
	for i := range int64(3) {
		tokens = append(tokens, m.c("c1").Token(t, reader, 3600+i))
	}
	m.rotate(tokens[0])
	m.serve(args...)
	p = m.both("client.shop")
	p.has("foo.shop", "10.0.0.1", "10.1.0.1")
	return m, p, tokens
}

// rotate gives c1 another token.
func (m *mesh) rotate(token string) {
	m.Helper()
	m.secret("remote-c1", "c1", m.c("c1").link.Kubeconfig(token))
}

// A bad replacement hurts nobody: the cluster is degraded, with the reason; the healthy one serves and
// is read; a good one cures it.
func TestDefect05BadReplacementIsDegraded(t *testing.T) {
	m, p, tokens := started(t)
	c1 := m.c("c1")
	p.forget()
	c1.link.Refuse(tokens[1])
	m.rotate(tokens[1])
	e := m.entryWhere("c1", "degraded", func(c debug.Cluster) bool { return c.State == "degraded" })
	if e.Replacement == "" || strings.Contains(e.Error+e.Replacement, tokens[1]) {
		t.Errorf("clusterz of a degraded cluster: %+v; want the reason, without the token", e)
	}
	m.apply("c1", env.Slice("shop/foo", 8080, "10.1.0.1", "10.1.0.2"))
	p.has("foo.shop", "10.0.0.1", "10.1.0.1", "10.1.0.2")

	m.secret("remote-c1", "c1", []byte("not a kubeconfig"))
	m.entryWhere("c1", "degraded for another reason", func(c debug.Cluster) bool {
		return c.State == "degraded" && c.Replacement != e.Replacement
	})
	m.rotate(tokens[2])
	m.entryWhere("c1", "live", func(c debug.Cluster) bool { return c.State == "live" && c.Replacement == "" })
	m.apply("c1", env.Slice("shop/foo", 8080, "10.1.0.1", "10.1.0.3"))
	p.has("foo.shop", "10.0.0.1", "10.1.0.1", "10.1.0.3")
	p.kept(primary, "c1")
}

// A cluster that is removed while its replacement is pending is gone, in every generation.
func TestDefect14RemovalWhileAReplacementIsPending(t *testing.T) {
	m, p, tokens := started(t)
	c1 := m.c("c1")
	release := c1.link.Hold(held(tokens[1]))
	m.rotate(tokens[1])
	m.entryWhere("c1", "with a replacement on its way", func(c debug.Cluster) bool { return c.Replacement != "" })
	m.leave("c1")
	p.has("foo.shop", "10.0.0.1")
	m.states("c1", "gone")
	release()
	for _, page := range []string{"/debug/endpointz", "/debug/registryz"} {
		m.eventually(page+" without the cluster", func() error { return m.silent(page, "kubernetes/c1", "10.1.0.") })
	}
	before := c1.link.Count(env.By(tokens[0])) + c1.link.Count(env.By(tokens[1]))
	c1.link.DropConnections()
	m.apply("c1", env.Slice("shop/foo", 8080, "10.1.0.9"))
	m.fence([]string{primary}, p...)
	p.has("foo.shop", "10.0.0.1")
	if n := c1.link.Count(env.By(tokens[0])) + c1.link.Count(env.By(tokens[1])) - before; n != 0 {
		t.Errorf("%d requests to a cluster that was removed", n)
	}
	m.rotate(tokens[2])
	p.has("foo.shop", "10.0.0.1", "10.1.0.9")
	m.states("c1", "live")
}

// A start-up timeout is no sync: a replacement that is slower takes over when it has read everything,
// and not before.
func TestDefect15TimeoutDoesNotAuthoriseASwap(t *testing.T) {
	m, p, tokens := started(t, "--sync-timeout=2s")
	p.forget()
	release := m.c("c1").link.Hold(held(tokens[1]))
	m.rotate(tokens[1])
	m.entryWhere("c1", "degraded as the replacement is late", func(c debug.Cluster) bool {
		return c.State == "degraded" && strings.Contains(c.Replacement, "in time")
	})
	m.apply("c1", env.Slice("shop/foo", 8080, "10.1.0.1", "10.1.0.2"))
	p.has("foo.shop", "10.0.0.1", "10.1.0.1", "10.1.0.2")
	release()
	m.entryWhere("c1", "live", func(c debug.Cluster) bool { return c.State == "live" && c.Replacement == "" })
	m.fence([]string{primary, "c1"}, p...)
	p.has("foo.shop", "10.0.0.1", "10.1.0.1", "10.1.0.2")
	p.kept(primary, "c1")
}

// Rotations in a row, the first of which never syncs: the healthy one serves until the second does, and
// the failed one in the middle is no longer heard of.
func TestDefect17RotationsInARow(t *testing.T) {
	m, p, tokens := started(t)
	c1 := m.c("c1")
	p.forget()
	release := c1.link.Hold(held(tokens[1]))
	m.rotate(tokens[1])
	m.entryWhere("c1", "with a replacement on its way", func(c debug.Cluster) bool { return c.Replacement != "" })
	m.apply("c1", env.Slice("shop/foo", 8080, "10.1.0.1", "10.1.0.2"))
	p.has("foo.shop", "10.0.0.1", "10.1.0.1", "10.1.0.2")
	m.rotate(tokens[2])
	m.eventually("watches with the newest token alone", func() error { return onlyWatches(c1.link, tokens[2]) })
	m.entryWhere("c1", "live", func(c debug.Cluster) bool { return c.State == "live" && c.Replacement == "" })
	release()
	before := c1.link.Count(env.By(tokens[0])) + c1.link.Count(env.By(tokens[1]))
	c1.link.DropConnections()
	m.apply("c1", env.Slice("shop/foo", 8080, "10.1.0.1", "10.1.0.3"))
	p.has("foo.shop", "10.0.0.1", "10.1.0.1", "10.1.0.3")
	p.kept(primary, "c1")
	if n := c1.link.Count(env.By(tokens[0])) + c1.link.Count(env.By(tokens[1])) - before; n != 0 {
		t.Errorf("%d requests with tokens that are not in force", n)
	}
}

// Several claims to one cluster: the oldest has it; the other is listed, and takes over when that goes.
func TestDefect03LoserTakesOver(t *testing.T) {
	m := newMesh(t, 2)
	m.foo(primary, "c1", "c2")
	c1, c2 := m.c("c1"), m.c("c2")
	m.secret("z", "c1", c1.link.Kubeconfig(c1.token(t)))
	m.younger("a", "z", "c1", c2.link.Kubeconfig(c2.token(t)))
	m.serve()
	p := m.both("client.shop")
	p.has("foo.shop", "10.0.0.1", "10.1.0.1")
	e := m.entryWhere("c1", "with a credential that is not used", func(c debug.Cluster) bool { return len(c.NotUsed) == 1 })
	if !strings.Contains(e.SecretName, "/z") || !strings.Contains(e.NotUsed[0].Source, "/a") || e.NotUsed[0].Reason == "" {
		t.Errorf("clusterz: %+v, want the Secret z in force, and a with the reason", e)
	}
	m.remove(primary, kubeconfigs("z"))
	p.has("foo.shop", "10.0.0.1", "10.2.0.1")
	m.entryWhere("c1", "of the other", func(c debug.Cluster) bool { return strings.Contains(c.SecretName, "/a") && len(c.NotUsed) == 0 })
	m.secret("z", primary, c1.link.Kubeconfig(c1.token(t))) // the config cluster's own id
	m.fence([]string{primary}, p...)
	p.has("foo.shop", "10.0.0.1", "10.2.0.1")
}

// younger writes a Secret whose creation time, in whole seconds, is after another's.
func (m *mesh) younger(name, than string, pairs ...any) {
	m.Helper()
	created := func(name string) time.Time {
		s, err := m.c(primary).Client.CoreV1().Secrets(system).Get(m.Context(), name, metav1.GetOptions{})
		if err != nil {
			m.Fatal(err)
		}
		return s.CreationTimestamp.Time
	}
	m.eventually("a Secret made later", func() error {
		m.secret(name, pairs...)
		if created(name).After(created(than)) {
			return nil
		}
		m.remove(primary, kubeconfigs(name))
		return fmt.Errorf("%s and %s are of one second", name, than)
	})
}

const withExec = `
apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "https://127.0.0.1:6443"}}]
users: [{name: u, user: {exec: {apiVersion: client.authentication.k8s.io/v1, command: /bin/true, interactiveMode: Never}}}]
contexts: [{name: x, context: {cluster: c, user: u}}]
current-context: x
`

// One Secret with several clusters: what is wrong with one key is that cluster's own, and is told.
// Incident 16: a kubeconfig that would run a command is refused by name.
func TestDefect18EachKeyHasItsOwnState(t *testing.T) {
	m := newMesh(t, 2)
	m.foo(primary, "c1", "c2")
	c1, c2 := m.c("c1"), m.c("c2")
	m.secret("both", "c1", []byte("{"), "c2", c2.link.Kubeconfig(c2.token(t)), "runs", []byte(withExec))
	m.serve()
	p := m.both("client.shop")
	p.has("foo.shop", "10.0.0.1", "10.2.0.1")
	m.entryWhere("c1", "with its reason", func(c debug.Cluster) bool { return c.State == debug.Refused && c.Error != "" })
	m.entryWhere("runs", "refused for exec", func(c debug.Cluster) bool { return c.State == debug.Refused && strings.Contains(c.Error, "exec") })
	m.states("c2", "live")
	p.forget()
	m.secret("both", "c1", c1.link.Kubeconfig(c1.token(t)), "c2", c2.link.Kubeconfig(c2.token(t)))
	p.has("foo.shop", "10.0.0.1", "10.1.0.1", "10.2.0.1")
	m.states("c1", "live", "c2", "live", "runs", "gone")
	p.kept(primary, "c2")
	m.secret("both", "c1", c1.link.Kubeconfig(c1.token(t)))
	p.has("foo.shop", "10.0.0.1", "10.1.0.1")
	m.states("c2", "gone")
}

// With the Multi-Cluster Services API: exported services cross clusters, before and after a rotation,
// and what ends after it is noticed.
func TestDefect16ImportsOutliveARotation(t *testing.T) {
	m := newMesh(t, 1)
	m.foo(primary, "c1")
	m.join("c1")
	m.serve("--mcs")
	p := m.both("client.shop")
	p.has("foo.shop", "10.0.0.1")
	m.apply(primary, exportFoo)
	m.apply("c1", exportFoo)
	p.has(setFoo, "10.0.0.1", "10.1.0.1")
	for range 2 {
		synced := m.entryWhere("c1", "live", func(c debug.Cluster) bool { return c.State == "live" }).SyncedAt
		m.join("c1")
		m.entryWhere("c1", "swapped", func(c debug.Cluster) bool { return c.SyncedAt.After(synced) && c.Replacement == "" })
	}
	m.apply("c1", env.Slice("shop/foo", 8080, "10.1.0.2"))
	p.has(setFoo, "10.0.0.1", "10.1.0.2")
	m.remove("c1", exportFoo)
	p.has(setFoo, "10.0.0.1")
	m.remove(primary, exportFoo)
	p.lacks(setFoo)
}

// Not known is not empty: a hub that starts while a cluster is slow is not ready, and when it is, its
// first answer has everything; two hubs with the same Secrets agree.
func TestIncident09NotSyncedIsNotEmpty(t *testing.T) {
	m := newMesh(t, 2)
	m.foo(primary, "c1", "c2")
	m.join("c1", "c2")
	release := m.c("c1").link.Hold(func(r env.Request) bool { return strings.HasSuffix(r.Path, "/endpointslices") })
	up := make(chan error, 1)
	m.launch(up, "--sync-timeout=10m")
	m.unready("c1")
	m.states(primary, "live", "c2", "live", "c1", "syncing")
	release()
	if err := <-up; err != nil {
		t.Fatal(err)
	}
	p := m.both("client.shop")
	p.has("foo.shop", "10.0.0.1", "10.1.0.1", "10.2.0.1")
	p.kept(primary, "c1", "c2")

	other := m.replica("--sync-timeout=10m")
	q := other.both("client.shop")
	q.has("foo.shop", "10.0.0.1", "10.1.0.1", "10.2.0.1")
	m.apply("c2", env.Slice("shop/foo", 8080, "10.2.0.2"))
	for _, x := range []proxies{p, q} {
		x.has("foo.shop", "10.0.0.1", "10.1.0.1", "10.2.0.2")
	}
}
