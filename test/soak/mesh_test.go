package soak_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/isthmus-mesh/isthmus/cmd/isthmus/debug"
	"github.com/isthmus-mesh/isthmus/secrets"
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
	lo      *envoytest.Loopback
	hub     *envoytest.Hub
	config  *member
	remotes []*member
	guard   *guard
	proxies []*proxy
}

// newMesh takes a config cluster and n remote ones. The hub does not run yet and
// knows no remote cluster.
func newMesh(t *testing.T, n int) *mesh {
	t.Helper()
	m := &mesh{T: t, lo: envoytest.StartLoopback(t), guard: newGuard()}
	rights, err := os.ReadFile("../../deploy/rbac-remote.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for i, c := range servers.Take(t, n+1) {
		x := &member{Cluster: c, id: primary, link: c.Link(t)}
		c.Apply(t, env.Namespace(system), env.Namespace(namespace))
		if i == 0 {
			x.joined, m.config = true, x
			continue
		}
		x.id = fmt.Sprint("c", i)
		c.Apply(t, string(rights))
		m.remotes = append(m.remotes, x)
	}
	t.Cleanup(func() { m.report() })
	return m
}

// all are the clusters, the config cluster first.
func (m *mesh) all() []*member { return append([]*member{m.config}, m.remotes...) }

// serve runs the hub until the end of the test; it is ready when this returns.
func (m *mesh) serve(args ...string) {
	m.Helper()
	dir := m.TempDir()
	file := filepath.Join(dir, "primary.yaml")
	if err := os.WriteFile(file, m.config.link.Kubeconfig(env.AdminToken), 0o600); err != nil {
		m.Fatal(err)
	}
	m.hub = envoytest.StartHub(m, envoytest.HubOptions{
		Binary: os.Getenv(envoytest.HubVar), Log: filepath.Join(dir, "hub.log"),
		Args: append([]string{"--kubeconfig", file, "--cluster-id", primary}, args...),
		Env:  []string{fmt.Sprint("GODEBUG=memprofilerate=", sampled)},
		GRPC: m.lo.At(0, 1, 15010), HTTP: m.lo.At(0, 1, 8080), Monitoring: m.lo.At(0, 1, 15014),
	})
}

// report tells what proxies found.
func (m *mesh) report() {
	m.part(func(*proxy) bool { return true })
	for _, f := range m.guard.found() {
		m.Error(f)
	}
}

// eventually waits until cond gives nil.
func (m *mesh) eventually(what string, cond func() error) {
	m.Helper()
	envoytest.Eventually(m, patience, what, cond)
}

// secret writes the Secret of a cluster.
func (m *mesh) secret(x *member, kubeconfig []byte) {
	m.Helper()
	s := x.secret()
	s.Data = map[string][]byte{x.id: kubeconfig}
	m.config.Apply(m.T, s)
	x.hash = debug.ShortHash(secrets.Hash(kubeconfig))
}

// secret names the Secret of a cluster.
func (x *member) secret() *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{
		Namespace: system, Name: "remote-" + x.id, Labels: map[string]string{"istio/multiCluster": "true"},
	}}
}

// ask reads a debug page.
func (m *mesh) ask(path string, to any) error {
	body, err := m.hub.Get(m.Context(), m.hub.URL+path)
	if err != nil {
		return err
	}
	return json.Unmarshal(body, to)
}

// entries is what /debug/clusterz says of the clusters, by id.
func (m *mesh) entries() (map[string]debug.Cluster, error) {
	var all []debug.Cluster
	if err := m.ask("/debug/clusterz", &all); err != nil {
		return nil, err
	}
	out := map[string]debug.Cluster{}
	for _, c := range all {
		if c.Provider == "kubernetes" {
			out[c.ID] = c
		}
	}
	return out, nil
}

// reads is nil once a cluster is read with the newest credential and with no other.
func (x *member) reads(e debug.Cluster) error {
	if e.Credential == nil || e.Credential.Hash != x.hash || e.Replacement != "" || e.State != "live" {
		return fmt.Errorf("%s: %+v %+v, want live with %s", x.id, e, e.Credential, x.hash)
	}
	return nil
}

// faultMetrics count what must never be.
var faultMetrics = []string{
	"isthmus_scrub_drift_total", "isthmus_merge_panics_total", "isthmus_registry_failures_total", "isthmus_mailbox_stuck_total",
	"isthmus_rows_refused_total", "isthmus_xds_stream_panics_total", "pilot_total_xds_rejects", "pilot_total_xds_internal_errors",
}

// sound checks that the hub has noticed no fault of its own.
func (m *mesh) sound() {
	m.Helper()
	for _, name := range faultMetrics {
		if n, err := m.hub.Metric(m.Context(), name); err != nil || n != 0 {
			m.Errorf("%s is %v, %v", name, n, err)
		}
	}
}
