package multicluster_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/isthmus-mesh/isthmus/test/env"
)

// unready checks that the hub is not ready and says, by a word, what it waits for.
func (m *mesh) unready(word string) {
	m.Helper()
	m.eventually("a hub that says that it waits for "+word, func() error {
		_, err := m.hub.Get(m.Context(), m.hub.URL+"/ready")
		if err == nil || !strings.Contains(err.Error(), word) {
			return fmt.Errorf("/ready: %v", err)
		}
		return nil
	})
}

// folder writes kubeconfigs of clusters to a folder, and names it.
func (m *mesh) folder(ids ...string) string {
	m.Helper()
	dir := m.TempDir()
	for _, id := range ids {
		c := m.c(id)
		m.write(filepath.Join(dir, id+".yaml"), c.link.NamedKubeconfig(id, c.token(m.T)))
	}
	return dir
}

// identities waits until all endpoints of a cluster have identities of one trust domain.
func (m *mesh) identities(id, domain string) {
	m.Helper()
	m.eventually(id+" in "+domain, func() error { return m.identified(id, domain) })
}

func (m *mesh) identified(id, domain string) error {
	shards, err := m.shards("foo.shop.svc.cluster.local")
	if err != nil {
		return err
	}
	list := shards["kubernetes/"+id]
	for _, e := range list {
		if !strings.HasPrefix(e.ServiceAccount, "spiffe://"+domain+"/") {
			return fmt.Errorf("%s is %s", e.Address, e.ServiceAccount)
		}
	}
	if len(list) == 0 {
		return fmt.Errorf("no endpoints of %s in %v", id, shards)
	}
	return nil
}

// Without the config cluster the hub knows neither its settings nor most of its clusters: it is not ready,
// however long that lasts.
func TestIncident09ConfigClusterIsWaitedFor(t *testing.T) {
	m := newMesh(t, 2)
	m.foo(primary, "c1", "c2")
	m.join("c2")
	m.c(primary).link.Cut()
	up := make(chan error, 1)
	m.launch(up, "--sync-timeout=1s", "--clusters-dir", m.folder("c1"))
	m.states("c1", "live") // later than the time for each cluster
	m.unready(primary)
	m.c(primary).link.Restore()
	if err := <-up; err != nil {
		t.Fatal(err)
	}
	p := m.both("client.shop")
	p.has("foo.shop", "10.0.0.1", "10.1.0.1", "10.2.0.1")
}

// Secrets that are slow to be listed hold clusters that are not known yet.
func TestIncident09SlowSecrets(t *testing.T) {
	m := newMesh(t, 1)
	m.foo(primary, "c1")
	m.join("c1")
	release := m.c(primary).link.Hold(func(r env.Request) bool { return strings.HasSuffix(r.Path, "/secrets") })
	up := make(chan error, 1)
	m.launch(up, "--sync-timeout=10m")
	m.states(primary, "live")
	m.unready("")
	release()
	if err := <-up; err != nil {
		t.Fatal(err)
	}
	p := m.both("client.shop")
	p.has("foo.shop", "10.0.0.1", "10.1.0.1")
	p.kept(primary, "c1")
}

// A hub that starts again while the config cluster is away serves what it knew: that cluster's own, those of
// its Secrets, and, by its settings, those that can be read.
func TestRestartWhileTheConfigClusterIsAway(t *testing.T) {
	m := newMesh(t, 2)
	m.foo(primary, "c1", "c2")
	m.apply(primary, settings("trustDomain: corp.example", ""))
	m.join("c2")
	m.serve("--state-dir", filepath.Join(m.dir, "state"), "--sync-timeout=5s", "--clusters-dir", m.folder("c1"))
	p := m.both("client.shop")
	p.has("foo.shop", "10.0.0.1", "10.1.0.1", "10.2.0.1")
	all := []string{primary, "c1", "c2"}
	for _, id := range all {
		m.identities(id, "corp.example")
	}
	for _, x := range p {
		x.Disconnect()
	}
	m.c(primary).link.Cut()
	if err := m.hub.Stop(); err != nil {
		t.Fatal(err)
	}
	m.apply("c1", env.Slice("shop/foo", 8080, "10.1.0.1", "10.1.0.2"))
	if err := m.hub.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	p.forget()
	for _, x := range p {
		m.eventually("a stream", x.Connect)
	}
	p.has("foo.shop", "10.0.0.1", "10.1.0.1", "10.1.0.2", "10.2.0.1")
	m.states(primary, "stale", "c1", "live", "c2", "stale")
	for _, id := range []string{primary, "c2"} {
		if err := m.identified(id, "corp.example"); err != nil {
			t.Error(err)
		}
	}

	m.apply(primary, env.Slice("shop/foo", 8080, "10.0.0.1", "10.0.0.2"))
	m.c(primary).link.Restore()
	p.has("foo.shop", "10.0.0.1", "10.0.0.2", "10.1.0.1", "10.1.0.2", "10.2.0.1")
	m.states(primary, "live", "c1", "live", "c2", "live")
	p.kept(all...)
}

// Another system namespace: Secrets, settings, networks and gateways are those in it, in every cluster.
func TestSystemNamespace(t *testing.T) {
	m := newMesh(t, 1)
	const other = "mesh-system"
	m.foo(primary, "c1")
	c1 := m.c("c1")
	m.apply("c1", strings.ReplaceAll(rights(), system, other), env.Namespace(other, env.NetworkLabel, "n2"),
		env.Namespace(system, env.NetworkLabel, "n9"))
	gateway := eastWest("n2", "203.0.113.2")
	gateway.Namespace = other
	m.apply("c1", gateway)
	ours, decoy := kubeconfigs("remote-c1"), kubeconfigs("decoy")
	ours.Namespace, ours.Data["c1"] = other, c1.link.Kubeconfig(c1.Token(t, other+"/isthmus-reader", 3600))
	decoy.Data["decoy"] = c1.link.Kubeconfig(c1.token(t))
	config := settings("trustDomain: corp.example", "")
	config.Namespace = other
	m.apply(primary, env.Namespace(other, env.NetworkLabel, "n1"), ours, decoy, config, settings("trustDomain: decoy.example", ""))
	m.serve("--system-namespace", other)
	p := m.both("client.shop", "network=n1")
	p.has("foo.shop", "10.0.0.1", "203.0.113.2:15443")
	m.identities("c1", "corp.example")
	m.states("c1", "live", "decoy", "gone")
}
