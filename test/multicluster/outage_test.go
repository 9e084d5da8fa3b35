package multicluster_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/isthmus-mesh/isthmus/cmd/isthmus/debug"
	"github.com/isthmus-mesh/isthmus/test/env"
)

// A hub that starts again while a remote API server is away serves what it knew of that cluster.
func TestRestartDuringAnOutageServesWhatWasKnown(t *testing.T) {
	m := newMesh(t, 1)
	m.foo(primary, "c1")
	m.join("c1")
	state := filepath.Join(m.dir, "state")
	m.serve("--state-dir", state, "--sync-timeout=5s")
	p := m.proxy("client.shop")
	p.has("foo.shop", "10.0.0.1", "10.1.0.1")
	p.Disconnect()
	m.c("c1").link.Cut()
	if err := m.hub.Stop(); err != nil {
		t.Fatal(err)
	}
	m.apply(primary, env.Slice("shop/foo", 8080, "10.0.0.2"))
	m.apply("c1", env.Slice("shop/foo", 8080, "10.1.0.2"))
	if err := m.hub.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	p.forget()
	m.eventually("a stream", p.Connect)
	p.has("foo.shop", "10.0.0.2", "10.1.0.1")
	p.kept("c1")
	e := m.entryWhere("c1", "stale", func(c debug.Cluster) bool { return c.State == "stale" })
	if e.Error == "" {
		t.Errorf("clusterz: %+v, want why it is stale", e)
	}
	m.c("c1").link.Restore()
	p.has("foo.shop", "10.0.0.2", "10.1.0.2")
	m.states("c1", "live")

	// A damaged file is passed over, with a warning.
	p.Disconnect()
	m.c("c1").link.Cut()
	if err := m.hub.Stop(); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(state, "*c1*"))
	if err != nil || len(files) != 1 {
		t.Fatalf("files of c1: %q, %v", files, err)
	}
	if err := os.WriteFile(files[0], []byte("damaged"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := m.hub.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	m.eventually("a stream", p.Connect)
	p.has("foo.shop", "10.0.0.2")
	m.states("c1", "timeout")
	m.logged("level=WARN", "c1", filepath.Base(files[0]))
	m.c("c1").link.Restore()
	p.has("foo.shop", "10.0.0.2", "10.1.0.2")
}

// A cluster that is away for long is the last resort of the others, not of its own proxies, until it
// is back.
func TestLongOutageDemotesForOthers(t *testing.T) {
	m := newMesh(t, 1)
	m.foo(primary, "c1")
	m.join("c1")
	m.serve("--stale-after=1s")
	far, near := m.proxy("far.shop"), m.proxy("near.shop", "cluster=c1", "ip=10.250.0.2")
	first := func(a assignment) bool {
		return len(a) == 2 && a.at("10.0.0.1:8080").priority == 0 && a.at("10.1.0.1:8080").priority == 0
	}
	for range 2 {
		far.where("foo.shop", "both first", first)
		m.c("c1").link.Cut()
		far.where("foo.shop", "the stale one last", func(a assignment) bool {
			return len(a) == 2 && a.at("10.0.0.1:8080").priority == 0 && a.at("10.1.0.1:8080").priority == 1
		})
		near.where("foo.shop", "its own first", func(a assignment) bool { return len(a) == 2 && a.at("10.1.0.1:8080").priority == 0 })
		m.c("c1").link.Restore()
	}
	far.where("foo.shop", "both first", first)
}

// A link that swallows everything is noticed, although no connection ends, and what happened meanwhile
// is caught up with.
func TestSilentLinkIsNoticed(t *testing.T) {
	m := newMesh(t, 1)
	m.foo(primary, "c1")
	m.join("c1")
	m.serve()
	p := m.both("client.shop")
	p.has("foo.shop", "10.0.0.1", "10.1.0.1")
	p.forget()
	m.c("c1").link.Hang()
	m.apply("c1", env.Slice("shop/foo", 8080, "10.1.0.1", "10.1.0.2"), env.App("shop/new", 80, "", "10.1.0.7"))
	m.states("c1", "stale")
	p.has("foo.shop", "10.0.0.1", "10.1.0.1")
	m.c("c1").link.Restore()
	p.has("foo.shop", "10.0.0.1", "10.1.0.1", "10.1.0.2")
	p.has("new.shop", "10.1.0.7")
	m.states("c1", "live")
	p.kept(primary, "c1")
}

// The config cluster is away: everything stays, remote clusters are read, and Secrets that changed
// meanwhile are noticed afterwards.
func TestOutageOfTheConfigCluster(t *testing.T) {
	m := newMesh(t, 2)
	m.foo(primary, "c1", "c2")
	m.join("c1")
	m.serve()
	p := m.both("client.shop")
	p.has("foo.shop", "10.0.0.1", "10.1.0.1")
	p.forget()
	m.c(primary).link.Cut()
	m.states(primary, "stale", "c1", "live")
	m.apply("c1", env.Slice("shop/foo", 8080, "10.1.0.2"))
	p.has("foo.shop", "10.0.0.1", "10.1.0.2")
	m.join("c2") // which the hub can't see yet
	m.c(primary).link.Restore()
	p.has("foo.shop", "10.0.0.1", "10.1.0.2", "10.2.0.1")
	m.states(primary, "live", "c1", "live", "c2", "live")
	p.kept(primary)
}

// A folder of kubeconfigs does what Secrets do.
func TestFolderOfKubeconfigs(t *testing.T) {
	m := newMesh(t, 2)
	m.foo(primary, "c1", "c2")
	folder := m.folder("c1")
	put := func(id string) {
		c := m.c(id)
		m.write(filepath.Join(folder, id+".yaml"), c.link.NamedKubeconfig(id, c.token(t)))
	}
	m.serve("--clusters-dir", folder)
	p := m.both("client.shop")
	p.has("foo.shop", "10.0.0.1", "10.1.0.1")
	put("c2")
	p.has("foo.shop", "10.0.0.1", "10.1.0.1", "10.2.0.1")
	p.forget()
	synced := m.entryWhere("c1", "live", func(c debug.Cluster) bool { return c.State == "live" }).SyncedAt
	put("c1")
	m.entryWhere("c1", "swapped", func(c debug.Cluster) bool { return c.SyncedAt.After(synced) && c.Replacement == "" })
	m.fence([]string{primary, "c1", "c2"}, p...)
	p.kept(primary, "c1", "c2")
	if err := os.Remove(filepath.Join(folder, "c2.yaml")); err != nil {
		t.Fatal(err)
	}
	p.has("foo.shop", "10.0.0.1", "10.1.0.1")
	m.states("c2", "gone", "c1", "live")
}
