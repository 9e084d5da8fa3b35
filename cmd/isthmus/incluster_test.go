package main

import (
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/isthmus-mesh/isthmus/test/env"
)

// inPod runs the command that follows with a ServiceAccount's files, which are in $1, where a pod has them.
const inPod = `mount -t tmpfs none /var/run && mkdir -p /var/run/secrets/kubernetes.io/serviceaccount &&
cp "$1"/* /var/run/secrets/kubernetes.io/serviceaccount && shift && exec "$@"`

// TestServeInCluster runs the command as a process of its own, as it runs in a pod: it finds the API server and its
// ServiceAccount's token where Kubernetes puts them, and reads its own cluster and, by a Secret in it, another one.
func TestServeInCluster(t *testing.T) {
	t.Parallel()
	if err := exec.Command("unshare", "--user", "--map-root-user", "--mount", "true").Run(); err != nil {
		t.Skipf("this machine lets nobody have mounts of their own: %v", err)
	}
	cs := servers.Take(t, 2)
	primary, west := cs[0], cs[1]
	primary.Apply(t, manifests(t, []string{"rbac-primary.yaml"}), manifest(t, "isthmus.yaml"))
	primary.Apply(t, shop("10.1.0.1"), registered("west", west.Kubeconfig(env.AdminToken)))
	west.Apply(t, shop("10.2.0.1"))
	at, err := url.Parse(primary.URL)
	if err != nil {
		t.Fatal(err)
	}
	r := &running{dir: t.TempDir(), log: newLogbook()}
	r.write(t, "account/token", primary.Token(t, "istio-system/isthmus", 3600))
	r.write(t, "account/ca.crt", string(primary.CA))
	r.write(t, "account/namespace", "istio-system")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := exec.CommandContext(t.Context(), "unshare", "--user", "--map-root-user", "--mount", "sh", "-c", inPod, "sh", r.path("account"),
		self, "serve", "--in-cluster", "--grpc-addr", "127.0.0.1:0", "--http-addr", "127.0.0.1:0", "--monitoring-addr", "127.0.0.1:0")
	c.Env = append(os.Environ(), asCommand+"=1", "KUBERNETES_SERVICE_HOST="+at.Hostname(), "KUBERNETES_SERVICE_PORT="+at.Port())
	c.Stderr = r.log
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	listening := regexp.MustCompile(`msg="hub started" .* http=(\S+) `)
	r.log.until(t, "the hub started", func() bool {
		m := listening.FindStringSubmatch(r.log.String())
		if m != nil {
			r.url = "http://" + m[1]
		}
		return m != nil
	})
	r.untilReady(t)
	if got := counts(t, r); got["Kubernetes"].Total != 1 || got["west"].Total != 1 {
		t.Errorf("%+v", got)
	}
	if got := r.cluster(t, "Kubernetes"); got.Credential.Source != "service account of the pod" || got.State != "live" || len(got.Problems) > 0 {
		t.Errorf("%+v", got)
	}
	if err := c.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := c.Wait(); err != nil || !strings.Contains(r.log.String(), "hub stopped") {
		t.Errorf("it ended with %v:\n%s", err, r.log)
	}
}

// TestServeOutsideOfAPod: --in-cluster needs a pod, and says so.
func TestServeOutsideOfAPod(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := exec.CommandContext(t.Context(), self, "serve", "--in-cluster", "--grpc-addr", "", "--http-addr", "127.0.0.1:0", "--monitoring-addr", "")
	c.Env, c.Dir = []string{asCommand + "=1"}, filepath.Dir(self)
	out, err := c.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "the hub does not run in a pod") {
		t.Errorf("%v: %s", err, out)
	}
}

// TestServeLimitsRequests: no more requests are made of an API server at once than the flags allow, whoever makes them and
// whatever they are for.
func TestServeLimitsRequests(t *testing.T) {
	t.Parallel()
	c := servers.Take(t, 1)[0]
	c.Apply(t, env.Namespace("istio-system"), shop("10.1.0.1"))
	for _, flags := range [][]string{{"--clusters-dir", "clusters"}, {"--kubeconfig", "clusters/west.yaml", "--write-status", "--auto-registration"}} {
		link := c.Link(t)
		const burst = 3
		r := &running{dir: t.TempDir(), log: newLogbook()}
		r.write(t, "clusters/west.yaml", string(link.NamedKubeconfig("west", env.AdminToken)))
		name := flags[0]
		flags[1] = r.path(flags[1])
		r.start(t, append(flags, "--kubernetes-api-qps", "0.001", "--kubernetes-api-burst", "3")...)
		made := func() int { return link.Count(func(q env.Request) bool { return !q.Watch }) }
		r.log.until(t, "a request that had to wait too long, and those before it", func() bool {
			return strings.Contains(r.log.String(), "client rate limiter") && made() >= burst
		})
		if n := made(); n > burst {
			t.Errorf("%s: %d requests of %d: %+v", name, n, burst, link.Requests())
		}
	}
}
