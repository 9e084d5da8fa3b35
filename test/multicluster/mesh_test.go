package multicluster_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/isthmus-mesh/isthmus/cmd/isthmus/debug"
	"github.com/isthmus-mesh/isthmus/deploy"
	"github.com/isthmus-mesh/isthmus/test/env"
	"github.com/isthmus-mesh/isthmus/test/envoy/envoytest"
)

// patience bounds every wait; what is waited for mostly takes milliseconds, but not on a busy machine.
const patience = 2 * time.Minute

const (
	system  = "istio-system"
	primary = "primary" // id of the config cluster
	reader  = system + "/isthmus-reader"
)

// mesh is a hub with its config cluster and remote clusters, c1 and so on.
type mesh struct {
	*testing.T
	hub      *envoytest.Hub
	clusters map[string]*member // by id
	dir      string             // files of the hub
	fences   int
}

// member is a cluster with the way that the hub takes to it.
type member struct {
	*env.Cluster
	id   string
	link *env.Link
}

// newMesh takes clusters: the config cluster and n remote ones, in which the hub's
// account has the rights that deploy/rbac-remote.yaml gives, and no others. The hub
// does not run yet and knows no remote cluster.
func newMesh(t *testing.T, n int) *mesh {
	t.Helper()
	t.Parallel()
	m := &mesh{T: t, clusters: map[string]*member{}, dir: t.TempDir()}
	for i, c := range servers.Take(t, n+1) {
		id := primary
		if i > 0 {
			id = fmt.Sprint("c", i)
			c.Apply(t, rights())
		}
		m.clusters[id] = &member{Cluster: c, id: id, link: c.Link(t)}
	}
	m.clusters[primary].Apply(t, env.Namespace(system))
	return m
}

// rights are the least that the hub needs in a remote cluster, with some of its flags.
func rights(flags ...string) string {
	return deploy.RBACRemote(slices.Contains(flags, "--config-from=all"), slices.Contains(flags, "--mcs"))
}

// serve runs the hub until the end of the test; it is ready when this returns.
func (m *mesh) serve(args ...string) {
	m.Helper()
	m.hub = envoytest.StartHub(m, m.options(m.primaryArgs(args)))
}

// launch runs the hub until the end of the test, and tells when it is ready.
func (m *mesh) launch(up chan<- error, args ...string) {
	m.Helper()
	hub := envoytest.NewHub(m.options(m.primaryArgs(args)))
	m.hub = hub
	done := make(chan struct{})
	go func() {
		defer close(done)
		up <- hub.Start(m.Context())
	}()
	m.Cleanup(func() {
		<-done
		if err := hub.Stop(); err != nil {
			m.Errorf("stop hub: %v", err)
		}
	})
}

// replica is the same mesh served by another hub.
func (m *mesh) replica(args ...string) *mesh {
	m.Helper()
	other := *m
	other.dir = m.TempDir()
	other.serve(args...)
	return &other
}

// primaryArgs name the config cluster. The others grant what the hub needs with its flags.
func (m *mesh) primaryArgs(args []string) []string {
	m.Helper()
	for id, c := range m.clusters {
		if more := rights(args...); id != primary && more != rights() {
			c.Apply(m.T, more)
		}
	}
	file := filepath.Join(m.dir, "primary.yaml")
	m.write(file, m.clusters[primary].link.Kubeconfig(env.AdminToken))
	return append([]string{"--kubeconfig", file, "--cluster-id", primary}, args...)
}

func (m *mesh) options(args []string) envoytest.HubOptions {
	m.Helper()
	block := envoytest.StartLoopback(m)
	return envoytest.HubOptions{
		Binary: os.Getenv(envoytest.HubVar), Log: filepath.Join(m.dir, "hub.log"), Args: args,
		GRPC: block.At(0, 1, 15010), HTTP: block.At(0, 1, 8080), Monitoring: block.At(0, 1, 15014),
	}
}

func (m *mesh) write(file string, data []byte) {
	m.Helper()
	// As careful programs do: written aside, then renamed.
	if err := os.WriteFile(file+".tmp", data, 0o600); err != nil {
		m.Fatal(err)
	}
	if err := os.Rename(file+".tmp", file); err != nil {
		m.Fatal(err)
	}
}

// c is a cluster by id.
func (m *mesh) c(id string) *member {
	m.Helper()
	c := m.clusters[id]
	if c == nil {
		m.Fatalf("there is no cluster %q", id)
	}
	return c
}

// token is a new token of the hub's account in a remote cluster.
func (c *member) token(t *testing.T) string {
	t.Helper()
	return c.Token(t, reader, 3600)
}

// apply changes a cluster.
func (m *mesh) apply(id string, objects ...any) {
	m.Helper()
	m.c(id).Apply(m.T, objects...)
}

// remove changes a cluster.
func (m *mesh) remove(id string, objects ...any) {
	m.Helper()
	m.c(id).Delete(m.T, objects...)
}

// join registers clusters, each with a Secret and a token of its own.
func (m *mesh) join(ids ...string) {
	m.Helper()
	for _, id := range ids {
		c := m.c(id)
		m.secret("remote-"+id, id, c.link.Kubeconfig(c.token(m.T)))
	}
}

// leave takes clusters' Secrets away.
func (m *mesh) leave(ids ...string) {
	m.Helper()
	for _, id := range ids {
		m.remove(primary, kubeconfigs("remote-"+id))
	}
}

// secret writes a Secret of the config cluster with kubeconfigs, given as cluster,
// kubeconfig, cluster, kubeconfig.
func (m *mesh) secret(name string, pairs ...any) {
	m.Helper()
	s := kubeconfigs(name)
	for i := 0; i+1 < len(pairs); i += 2 {
		s.Data[pairs[i].(string)] = pairs[i+1].([]byte)
	}
	m.apply(primary, s)
}

func kubeconfigs(name string) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: system, Name: name, Labels: map[string]string{"istio/multiCluster": "true"}},
		Data:       map[string][]byte{},
	}
}

// eventually waits until cond gives nil.
func (m *mesh) eventually(what string, cond func() error) {
	m.Helper()
	envoytest.Eventually(m, patience, what, cond)
}

// ask reads a debug page.
func (m *mesh) ask(path string, to any) error {
	body, err := m.hub.Get(m.Context(), m.hub.URL+path)
	if err != nil {
		return err
	}
	return json.Unmarshal(body, to)
}

// entries are all entries of a cluster in /debug/clusterz.
func (m *mesh) entries(id string) ([]debug.Cluster, error) {
	var all, out []debug.Cluster
	if err := m.ask("/debug/clusterz", &all); err != nil {
		return nil, err
	}
	for _, c := range all {
		if c.ID == id && c.Provider == "kubernetes" {
			out = append(out, c)
		}
	}
	return out, nil
}

// entry is what /debug/clusterz says of a cluster.
func (m *mesh) entry(id string) (debug.Cluster, error) {
	all, err := m.entries(id)
	if err == nil && len(all) != 1 {
		err = fmt.Errorf("%d entries of %s in clusterz: %+v", len(all), id, all)
	}
	if err != nil {
		return debug.Cluster{}, err
	}
	return all[0], nil
}

// states waits until each cluster has the state, given as cluster, state, and so on;
// "gone" is the state of one that is not there.
func (m *mesh) states(pairs ...string) {
	m.Helper()
	for i := 0; i+1 < len(pairs); i += 2 {
		id, want := pairs[i], pairs[i+1]
		m.eventually(id+" "+want, func() error {
			all, err := m.entries(id)
			if want == "gone" && err == nil && len(all) == 0 {
				return nil
			}
			e, err := m.entry(id)
			if err == nil && e.State != want {
				err = fmt.Errorf("%+v", e)
			}
			return err
		})
	}
}

// entryWhere waits until a cluster's entry is as wanted.
func (m *mesh) entryWhere(id, what string, cond func(debug.Cluster) bool) debug.Cluster {
	m.Helper()
	var e debug.Cluster
	m.eventually(id+" "+what, func() (err error) {
		if e, err = m.entry(id); err == nil && !cond(e) {
			err = fmt.Errorf("%+v", e)
		}
		return err
	})
	return e
}

// logged waits until the hub has logged all the parts in one line.
func (m *mesh) logged(parts ...string) {
	m.Helper()
	m.eventually("a log line with "+strings.Join(parts, ", "), func() error {
		for line := range strings.Lines(m.wholeLog()) {
			if containsAll(line, parts) {
				return nil
			}
		}
		return fmt.Errorf("not in the log:\n%s", m.hub.Log())
	})
}

// wholeLog is all that the hub has written.
func (m *mesh) wholeLog() string {
	m.Helper()
	text, err := os.ReadFile(filepath.Join(m.dir, "hub.log"))
	if err != nil {
		m.Fatal(err)
	}
	return string(text)
}

func containsAll(s string, parts []string) bool {
	for _, p := range parts {
		if !strings.Contains(s, p) {
			return false
		}
	}
	return true
}

// silent checks that a debug page has none of the words.
func (m *mesh) silent(page string, words ...string) error {
	body, err := m.hub.Get(m.Context(), m.hub.URL+page)
	if err != nil {
		return err
	}
	for _, w := range words {
		if i := strings.Index(string(body), w); i >= 0 {
			return fmt.Errorf("%s has %q: %.200s", page, w, body[max(0, i-100):])
		}
	}
	return nil
}

// onlyWatches checks that the last watch of every kind is with a token.
func onlyWatches(l *env.Link, by string) error {
	last := map[string]string{}
	for _, r := range l.Requests() {
		if r.Watch {
			last[r.Path] = r.Token
		}
	}
	for path, token := range last {
		if token != by {
			return fmt.Errorf("%s is not watched with the new token", path)
		}
	}
	if len(last) == 0 {
		return fmt.Errorf("nothing is watched")
	}
	return nil
}
