package main

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/isthmus-mesh/isthmus/cmd/isthmus/remote"
	"github.com/isthmus-mesh/isthmus/secrets"
	"github.com/isthmus-mesh/isthmus/test/env"
)

// TestClusterAddRotateRemove: a cluster is added, its token renewed without the loss of an endpoint, and
// removed, each time until the hub has followed.
func TestClusterAddRotateRemove(t *testing.T) {
	t.Parallel()
	cs := servers.Take(t, 2)
	primary, west := cs[0], cs[1]
	primary.Apply(t, env.Namespace("istio-system"), shop("10.1.0.1"))
	west.Apply(t, shop("10.2.0.1"))
	r := startKubeHub(t, primary)
	r.untilReady(t)
	file := contexts(t, r, map[string]*env.Cluster{"primary": primary, "west": west}, "primary")

	now(t, "", "cluster", "add", "west", "--kubeconfig", file, "--hub", r.url).want(t, exitOK,
		"remote: ClusterRoleBinding isthmus-reader created\n", "remote: token until ", "primary: Secret istio-system/istio-remote-secret-west created\n",
		"hub: west is synced: ", "west      istio-system/istio-remote-secret-west   "+west.URL)
	if got := counts(t, r)["west"]; got.Total != 1 {
		t.Errorf("west has %+v", got)
	}
	first := r.cluster(t, "west")

	again := now(t, "", "cluster", "add", "west", "--kubeconfig", file, "--hub", r.url, "-o", "json")
	again.want(t, exitOK, "remote: ClusterRole isthmus-reader unchanged\n", "primary: Secret istio-system/istio-remote-secret-west changed\n")
	var report added
	if err := json.Unmarshal([]byte(again.stdout), &report); err != nil || report.State != "live" || time.Until(report.Expires) < 24*time.Hour {
		t.Errorf("%v: %+v", err, report)
	}
	if second := r.cluster(t, "west"); second.Credential.Hash == first.Credential.Hash || second.Replacement != "" {
		t.Errorf("the credential was not renewed: %+v", second.Credential)
	}
	if strings.Contains(r.log.String(), "registry detached") {
		t.Error("the cluster was detached while its token was renewed")
	}

	now(t, "", "cluster", "list", "-o", "wide", "--hub", r.url).want(t, exitOK, "364d      Secret istio-system/istio-remote-secret-west", r.path("primary.yaml"))
	now(t, "", "cluster", "check", "west", "--kubeconfig", file).want(t, exitOK, "that the hub uses", "system:serviceaccount:istio-system:isthmus-reader")

	now(t, "n\n", "cluster", "remove", "west", "--kubeconfig", file, "--hub", r.url).want(t, exitFailure, "nothing was removed")
	now(t, "y\n", "cluster", "remove", "west", "--remote-context", "west", "--kubeconfig", file, "--hub", r.url).want(t, exitOK,
		"primary: west is out of Secret istio-system/istio-remote-secret-west", "hub: west is gone", "remote: ServiceAccount istio-system/isthmus-reader deleted")
	if _, there := counts(t, r)["west"]; there {
		t.Error("west's endpoints are still there")
	}
	if _, err := west.Client.RbacV1().ClusterRoles().Get(t.Context(), remote.Account, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the role in the remote cluster is still there: %v", err)
	}
	now(t, "", "cluster", "remove", "west", "--kubeconfig", file, "--hub", r.url).want(t, exitNotFound, "registers \"west\"")
}

// TestClusterAddRefuses: what can't work is said before anything is changed.
func TestClusterAddRefuses(t *testing.T) {
	t.Parallel()
	cs := servers.Take(t, 2)
	primary, west := cs[0], cs[1]
	primary.Apply(t, env.Namespace("istio-system"), registered("north", west.Kubeconfig(env.AdminToken)))
	r := startKubeHub(t, primary)
	r.untilReady(t)
	file := contexts(t, r, map[string]*env.Cluster{"primary": primary, "west": west}, "primary")
	r.write(t, "other.yaml", registered("west", west.Kubeconfig(env.AdminToken)))
	for _, test := range []struct {
		args string
		code int
		says string
	}{
		{"west --name Kubernetes --server https://k", exitUsage, "Kubernetes is the primary's own id"},
		{"west --name North/1", exitUsage, `"North/1" can't be a cluster's name`},
		{"west --dry-run=north", exitUsage, "want --dry-run, or --dry-run=remote or =primary"},
		{"west", exitFailure, "context west is the cluster north already, by Secret istio-system/istio-remote-secret-north, and a cluster under two names counts twice"},
		{"west --wait=false", exitFailure, "isthmus cluster remove north"},
		{"west --server https://127.0.0.1:2 --wait=false", exitFailure, "is the cluster north already"},
		{"primary --name west", exitUsage, "context primary is the primary cluster itself"},
		{"nowhere", exitFailure, `no context "nowhere" for the remote cluster`},
		{"", exitUsage, "name the remote cluster"},
		{"west east", exitUsage, "want one CONTEXT"},
		{"west --server http://west", exitUsage, "--server must be"},
		{"west --token-duration 5m", exitUsage, "at least 10m"},
		{"west --wait-timeout 0s", exitUsage, "--wait=false"},
		{"west -o xml", exitUsage, "json, yaml"},
		{"west --hub http://127.0.0.1:1", exitFailure, "or don't wait for it: --wait=false"},
		{"west --context nowhere", exitFailure, `no context "nowhere" for the primary cluster`},
		{"west --remote-kubeconfig /nowhere", exitFailure, "read the kubeconfig of the remote cluster: stat /nowhere"},
	} {
		args := append([]string{"cluster", "add", "--kubeconfig", file}, strings.Fields(test.args)...)
		if !strings.Contains(test.args, "--hub") {
			args = append(args, "--hub", r.url)
		}
		now(t, "", args...).want(t, test.code, test.says)
	}
	if _, err := west.Client.CoreV1().Namespaces().Get(t.Context(), "istio-system", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("something was changed in the remote cluster: %v", err)
	}

	primary.Apply(t, strings.Replace(registered("west", west.Kubeconfig(env.AdminToken)), "istio-remote-secret-west", "by-hand", 1))
	now(t, "", "cluster", "add", "west", "--kubeconfig", file, "--hub", r.url).want(t, exitFailure, "west is registered by Secret istio-system/by-hand already")
}

// TestClusterAddDryRun: what is printed can be applied, and nothing has been.
func TestClusterAddDryRun(t *testing.T) {
	t.Parallel()
	cs := servers.Take(t, 2)
	primary, west := cs[0], cs[1]
	r := &running{dir: t.TempDir()}
	file := contexts(t, r, map[string]*env.Cluster{"primary": primary, "west": west}, "primary")
	dry := func(more ...string) string {
		got := now(t, "", append([]string{"cluster", "add", "west", "--kubeconfig", file, "--system-namespace", "mesh", "--server", "https://west.example:6443", "--tls-server-name", "api"}, more...)...)
		if got.want(t, exitOK); got.stderr != "" {
			t.Errorf("stderr %q", got.stderr)
		}
		return got.stdout
	}
	list, far, near := dry("--dry-run"), dry("--dry-run=remote"), dry("--dry-run=primary", "-o", "wide")
	for part, text := range map[string]string{
		"remote    ServiceAccount mesh/isthmus-reader\n": list, "primary   Secret mesh/istio-remote-secret-west\n": list,
		"# for the remote cluster: kubectl --context west apply --server-side -f FILE\n---\n":      far,
		"# kubectl --context west -n mesh create token isthmus-reader --duration 8760h0m0s\n---\n": near,
		"token: TOKEN": near, "server: https://west.example:6443": near, "tls-server-name: api": near,
	} {
		if !strings.Contains(text, part) {
			t.Errorf("%q is missing in:\n%s", part, text)
		}
	}
	if strings.Contains(far, "kind: Secret") || strings.Contains(near, "kind: ClusterRole") || strings.Contains(list, "kind:") {
		t.Error("what is for one cluster is printed for the other")
	}
	for _, c := range cs {
		if _, err := c.Client.CoreV1().Namespaces().Get(t.Context(), "mesh", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("something was changed: %v", err)
		}
	}
	west.Apply(t, far)
	primary.Apply(t, env.Namespace("mesh"), near)
	if s, err := primary.Client.CoreV1().Secrets("mesh").Get(t.Context(), "istio-remote-secret-west", metav1.GetOptions{}); err != nil || len(s.Data["west"]) == 0 || s.Labels[secrets.Label] != "true" {
		t.Errorf("the Secret is %+v, %v", s, err)
	}
	var both struct{ Remote, Primary []map[string]any }
	js := dry("--dry-run", "-o", "json")
	if err := json.Unmarshal([]byte(js), &both); err != nil || len(both.Remote) != 6 || len(both.Primary) != 1 {
		t.Errorf("%v: %s", err, js)
	}
	var one struct {
		Kind  string
		Items []map[string]any
	}
	js = dry("--dry-run=remote", "-o", "json")
	if err := json.Unmarshal([]byte(js), &one); err != nil || one.Kind != "List" || len(one.Items) != 6 {
		t.Errorf("%v: %s", err, js)
	}
}

// TestClusterAddAnyID: what the hub takes for a cluster's id, the command does too.
func TestClusterAddAnyID(t *testing.T) {
	t.Parallel()
	cs := servers.Take(t, 2)
	primary, west := cs[0], cs[1]
	primary.Apply(t, env.Namespace("istio-system"))
	west.Apply(t, shop("10.2.0.1"))
	r := startKubeHub(t, primary, "--cluster-id", "home")
	r.untilReady(t)
	file := contexts(t, r, map[string]*env.Cluster{"primary": primary, "west": west}, "primary")
	run := func(words ...string) result {
		return now(t, "", append(append([]string{"cluster"}, words...), "--kubeconfig", file, "--hub", r.url)...)
	}
	run("add", "west", "--name", "home").want(t, exitUsage, "home is the primary's own id")
	run("add", "west", "--name", "Cluster_1.A").want(t, exitOK, "hub: Cluster_1.A is synced")
	if got := counts(t, r)["Cluster_1.A"]; got.Total != 1 {
		t.Errorf("%+v", got)
	}
	run("add", "west", "--name", "Kubernetes").want(t, exitFailure, "is the cluster Cluster_1.A already")
	run("remove", "Cluster_1.A", "--yes").want(t, exitOK, "hub: Cluster_1.A is gone")
	run("add", "west", "--name", "Kubernetes").want(t, exitOK, "hub: Kubernetes is synced")
}

// TestClusterUnderTwoNames: two registrations of one cluster are a fault of the later one, wherever its API server is
// said to be, and the hub tells.
func TestClusterUnderTwoNames(t *testing.T) {
	t.Parallel()
	cs := servers.Take(t, 2)
	primary, west := cs[0], cs[1].Link(t)
	primary.Apply(t, env.Namespace("istio-system"), registered("north", west.Kubeconfig(env.AdminToken)))
	r := startKubeHub(t, primary)
	r.untilReady(t)
	primary.Apply(t, registered("west", cs[1].Kubeconfig(env.AdminToken)))
	r.log.until(t, "the cluster is told to be there twice", func() bool {
		c := r.cluster(t, "west").Credential
		return c != nil && strings.HasPrefix(c.Warning, "this is the cluster north under another name")
	})
	if c := r.cluster(t, "north").Credential; c.Warning != "" {
		t.Errorf("north: %s", c.Warning)
	}
	now(t, "", "cluster", "list", "-o", "wide", "--hub", r.url).want(t, exitOK, "west      credential   Secret istio-system/istio-remote-secret-west", "its endpoints count twice")
}

// TestClusterAddElsewhere: another system namespace has rights of its own, and --wait=false asks no hub.
func TestClusterAddElsewhere(t *testing.T) {
	t.Parallel()
	cs := servers.Take(t, 2)
	primary, west := cs[0], cs[1]
	primary.Apply(t, env.Namespace("mesh"))
	r := &running{dir: t.TempDir()}
	file := contexts(t, r, map[string]*env.Cluster{"primary": primary, "west": west}, "primary")
	for _, ns := range []string{"mesh", "istio-system"} {
		primary.Apply(t, env.Namespace(ns))
		now(t, "", "cluster", "add", "west", "--kubeconfig", file, "--system-namespace", ns, "--wait=false", "--hub", "http://127.0.0.1:1").want(t, exitOK, ns+"/istio-remote-secret-west")
	}
	for _, ns := range []string{"mesh", "istio-system"} {
		now(t, "", "cluster", "check", "west", "--kubeconfig", file, "--system-namespace", ns).want(t, exitOK, "system:serviceaccount:"+ns+":isthmus-reader", "that the hub uses")
	}
	now(t, "", "cluster", "remove", "west", "--kubeconfig", file, "--system-namespace", "mesh", "--remote-context", "west", "--yes", "--wait=false").want(t, exitOK)
	now(t, "", "cluster", "check", "west", "--kubeconfig", file).want(t, exitOK)
}

// TestClusterAddMoreRights: what the hub reads with its flags needs rights that others do not get; they go with the rest.
func TestClusterAddMoreRights(t *testing.T) {
	t.Parallel()
	cs := servers.Take(t, 2)
	primary, west := cs[0], cs[1]
	primary.Apply(t, env.Namespace("istio-system"))
	r := &running{dir: t.TempDir()}
	file := contexts(t, r, map[string]*env.Cluster{"primary": primary, "west": west}, "primary")
	run := func(command string, more ...string) result {
		return now(t, "", append([]string{"cluster", command, "west", "--kubeconfig", file}, more...)...)
	}
	all := []string{"--config-from", "all", "--mcs"}
	run("add", "--wait=false").want(t, exitOK)
	run("check").want(t, exitOK, "that the hub uses")
	run("check", all...).want(t, exitOK, "list serviceexports.multicluster.x-k8s.io", "watch destinationrules.networking.istio.io",
		"isthmus cluster add CONTEXT --name west --config-from all --mcs")
	run("add", append(all, "--wait=false")...).want(t, exitOK, "ClusterRole isthmus-reader-config", "ClusterRole isthmus-reader-mcs")
	if got := run("check", all...); strings.Contains(got.stdout, "missing") {
		t.Error(got.stdout)
	}
	run("check", "--revision", "canary").want(t, exitOK, "missing: list configmaps istio-system/istio-canary", "isthmus cluster add CONTEXT --name west --revision canary")
	run("add", "--revision", "canary", "--wait=false").want(t, exitOK, "Role istio-system/isthmus-reader changed")
	if got := run("check", "--revision", "canary"); strings.Contains(got.stdout, "missing") {
		t.Error(got.stdout)
	}
	run("remove", "--remote-context", "west", "--yes", "--wait=false").want(t, exitOK, "ClusterRoleBinding isthmus-reader-mcs deleted")
	roles, err := west.Client.RbacV1().ClusterRoles().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, role := range roles.Items {
		if strings.HasPrefix(role.Name, remote.Account) {
			t.Errorf("ClusterRole %s is left", role.Name)
		}
	}
	run("add", "--revision", "A B").want(t, exitUsage, "--revision \"A B\"")
	run("add", "--config-from", "some").want(t, exitUsage, "--config-from some: want primary or all")
	run("check", "--config-from", "some").want(t, exitUsage, "--config-from some: want primary or all")
}

// TestClusterRemoveKeepsNeighbours: a Secret may register several clusters.
func TestClusterRemoveKeepsNeighbours(t *testing.T) {
	t.Parallel()
	primary := servers.Take(t, 1)[0]
	primary.Apply(t, env.Namespace("istio-system"), `
apiVersion: v1
kind: Secret
metadata: {name: many, namespace: istio-system, labels: {istio/multiCluster: "true"}}
stringData: {west: a, north: b}
`, registered("west", []byte("c")))
	r := &running{dir: t.TempDir()}
	file := contexts(t, r, map[string]*env.Cluster{"primary": primary}, "primary")
	remove := func(more ...string) result {
		return now(t, "", append([]string{"cluster", "remove", "west", "--kubeconfig", file, "--yes", "--wait=false"}, more...)...)
	}
	remove().want(t, exitUsage, "west is registered by istio-remote-secret-west, many: choose with --secret")
	remove("--secret", "other").want(t, exitNotFound, "not by other")
	remove("--secret", "many").want(t, exitOK, "west is out of Secret istio-system/many")
	left, err := remote.Registrations(t.Context(), primary.Client, "istio-system", "")
	if err != nil || len(left) != 2 || left[0].Secret != "istio-remote-secret-west" || left[1].Cluster != "north" {
		t.Errorf("%v: %+v", err, left)
	}
}

// TestClusterAddGivesUpWaiting: what the hub says of a cluster that it can't reach is passed on; a second try with the
// right address is enough.
func TestClusterAddGivesUpWaiting(t *testing.T) {
	t.Parallel()
	cs := servers.Take(t, 2)
	primary, west := cs[0], cs[1]
	primary.Apply(t, env.Namespace("istio-system"))
	west.Apply(t, shop("10.2.0.1"))
	r := startKubeHub(t, primary)
	r.untilReady(t)
	file := contexts(t, r, map[string]*env.Cluster{"primary": primary, "west": west}, "primary")
	add := func(more ...string) result {
		return now(t, "", append([]string{"cluster", "add", "west", "--kubeconfig", file, "--hub", r.url}, more...)...)
	}
	add("--server", "https://127.0.0.1:1", "--wait-timeout", "3s").want(t, exitFailure,
		"hub: west is syncing: ", "127.0.0.1:1", "the hub has not followed within 3s", "isthmus cluster check")
	add().want(t, exitOK, "hub: west is synced")
	if got := counts(t, r)["west"]; got.Total != 1 {
		t.Errorf("west has %+v", got)
	}
	add("--server", "https://127.0.0.1:1", "--wait-timeout", "3s").want(t, exitFailure, "west is read with its old credential, beside which the new one is tried: ")
	if c := r.cluster(t, "west"); c.State != "degraded" || counts(t, r)["west"].Total != 1 {
		t.Errorf("west is %s", c.State)
	}
}
