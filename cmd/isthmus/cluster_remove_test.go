package main

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/isthmus-mesh/isthmus/cmd/isthmus/remote"
	"github.com/isthmus-mesh/isthmus/test/env"
)

// TestClusterRemoveInTheRightCluster: the account that is deleted is the one in the Secret, and nobody else's; before
// that is known nothing is removed.
func TestClusterRemoveInTheRightCluster(t *testing.T) {
	t.Parallel()
	cs := servers.Take(t, 3)
	primary, east, west := cs[0], cs[1], cs[2]
	primary.Apply(t, env.Namespace("istio-system"))
	r := &running{dir: t.TempDir()}
	file := contexts(t, r, map[string]*env.Cluster{"primary": primary, "east": east, "west": west}, "primary")
	run := func(words ...string) result {
		return now(t, "", append(append([]string{"cluster"}, words...), "--kubeconfig", file, "--wait=false")...)
	}
	remove := func(name string, more ...string) result {
		return run(append([]string{"remove", name, "--yes"}, more...)...)
	}
	accounts := func(c *env.Cluster) (n int) {
		list, err := c.Client.CoreV1().ServiceAccounts("istio-system").List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range list.Items {
			if a.Name == remote.Account {
				n++
			}
		}
		return n
	}
	run("add", "east").want(t, exitOK)
	run("add", "west").want(t, exitOK)

	remove("west", "--remote-context", "east").want(t, exitUsage, "leads to another cluster than context east: nothing was removed")
	run("add", "west", "--name", "other").want(t, exitFailure, "context west is the cluster west already")
	primary.Apply(t, registered("other", west.Kubeconfig(env.AdminToken)))
	remove("other", "--remote-context", "west").want(t, exitUsage, "west in Secret istio-system/istio-remote-secret-west is read with the same account: nothing was removed")
	remove("other").want(t, exitOK)

	lost := strings.Replace(registered("lost", west.Kubeconfig("nonsense")), west.URL, "https://127.0.0.1:1", 1)
	primary.Apply(t, lost)
	remove("lost", "--remote-context", "west").want(t, exitFailure, "it can't be told whether Secret istio-system/istio-remote-secret-lost leads to the cluster of context west")
	if accounts(east) != 1 || accounts(west) != 1 {
		t.Errorf("accounts are gone: %d in east, %d in west", accounts(east), accounts(west))
	}
	remove("lost", "--remote-context", "east", "--force").want(t, exitOK, "remote: ServiceAccount istio-system/isthmus-reader deleted")
	remove("west", "--remote-context", "west").want(t, exitOK)
	if accounts(east) != 0 || accounts(west) != 0 {
		t.Errorf("accounts are left: %d in east, %d in west", accounts(east), accounts(west))
	}
}

const brokenKubeconfig = `apiVersion: v1
kind: Config
current-context: primary
clusters: [{name: p, cluster: {server: "https://127.0.0.1:1"}}]
users: [{name: u, user: {token: t}}]
contexts:
- {name: primary, context: {cluster: p, user: u}}
- {name: no-cluster, context: {cluster: gone, user: u}}
- {name: no-user, context: {cluster: p, user: gone}}
`

// TestClusterCommandsSayWhatIsMissing: words for people in place of those of a library.
func TestClusterCommandsSayWhatIsMissing(t *testing.T) {
	t.Parallel()
	r := &running{dir: t.TempDir()}
	r.write(t, "kubeconfig", brokenKubeconfig)
	for context, says := range map[string]string{
		"no-cluster": `context "no-cluster" of the remote cluster names a cluster that its kubeconfig does not have`,
		"no-user":    `context "no-user" of the remote cluster names a user that its kubeconfig does not have`,
	} {
		now(t, "", "cluster", "add", context, "--kubeconfig", r.path("kubeconfig")).want(t, exitFailure, says)
	}
}

// TestClusterAddInterrupted: it says that it may be run again.
func TestClusterAddInterrupted(t *testing.T) {
	t.Parallel()
	r := &running{dir: t.TempDir()}
	r.write(t, "kubeconfig", brokenKubeconfig)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var stderr bytes.Buffer
	args := []string{"cluster", "add", "primary", "--name", "west", "--kubeconfig", r.path("kubeconfig")}
	if code := execute(ctx, newRoot(time.Now), args, &stderr, &stderr); code != exitFailure || !strings.Contains(stderr.String(), "running the command again does the rest") {
		t.Errorf("%d: %s", code, &stderr)
	}
}
