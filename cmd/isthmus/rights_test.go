package main

import (
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"

	"github.com/isthmus-mesh/isthmus/test/env"
)

func manifest(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile("../../deploy/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func manifests(t *testing.T, files []string) string {
	t.Helper()
	var all []string
	for _, f := range files {
		all = append(all, manifest(t, f))
	}
	return strings.Join(all, "---\n")
}

// granted lists the rights in files of roles, as "verb resource.group" or "verb namespace/resource.group".
func granted(t *testing.T, files ...string) map[string]bool {
	t.Helper()
	out := map[string]bool{}
	for doc := range strings.SplitSeq(manifests(t, files), "\n---\n") {
		var role rbacv1.Role // has the rules of both kinds
		if err := yaml.Unmarshal([]byte(doc), &role); err != nil {
			t.Fatal(err)
		}
		if !strings.HasSuffix(role.Kind, "Role") {
			continue
		}
		for _, rule := range role.Rules {
			for _, g := range rule.APIGroups {
				for _, r := range rule.Resources {
					for _, v := range rule.Verbs {
						out[right(v, g, role.Namespace, r)] = true
					}
				}
			}
		}
	}
	return out
}

func right(verb, group, namespace, resource string) string {
	if namespace != "" {
		namespace += "/"
	}
	return strings.TrimSuffix(fmt.Sprintf("%s %s%s.%s", verb, namespace, resource, group), ".")
}

var resourcePath = regexp.MustCompile(`^/(?:api|apis/([^/]+))/v[^/]+/(?:namespaces/([^/]+)/)?([a-z]+)$`)

// anybodys are the paths that every account may read (ClusterRole system:discovery).
var anybodys = regexp.MustCompile(`^/(version|api|apis)(/[^/]+)?(/v[^/]+)?$`)

// used lists the rights that requests with a token needed.
func used(l *env.Link, token string) map[string]bool {
	out := map[string]bool{}
	for _, q := range l.Requests() {
		if q.Token != token || anybodys.MatchString(q.Path) {
			continue
		}
		m := resourcePath.FindStringSubmatch(q.Path)
		if m == nil {
			out["read "+q.Path] = true
			continue
		}
		verb := "list"
		if q.Watch {
			verb = "watch"
		}
		out[right(verb, m[1], m[2], m[3])] = true
	}
	return out
}

// TestRolesGrantWhatIsUsed: with the rights of the files for a hub's flags everything is read, and each of them is used.
func TestRolesGrantWhatIsUsed(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ flags, near, far []string }{
		"default": {nil, []string{"rbac-primary.yaml"}, []string{"rbac-remote.yaml"}},
		"everything": {
			[]string{"--config-from", "all", "--mcs"},
			[]string{"rbac-primary.yaml", "rbac-mcs.yaml"}, []string{"rbac-remote.yaml", "rbac-config.yaml", "rbac-mcs.yaml"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testRights(t, tc.flags, tc.near, tc.far)
		})
	}
}

func testRights(t *testing.T, flags, near, far []string) {
	cs := servers.Take(t, 2)
	primary, west := cs[0].Link(t), cs[1].Link(t)
	cs[0].Apply(t, env.Namespace("istio-system"), manifests(t, near), shop("10.1.0.1"))
	cs[1].Apply(t, env.Namespace("istio-system"), manifests(t, far), shop("10.2.0.1"))
	own, foreign := cs[0].Token(t, "istio-system/isthmus", 3600), cs[1].Token(t, "istio-system/isthmus-reader", 3600)
	cs[0].Apply(t, registered("west", west.Kubeconfig(foreign)))

	r := &running{dir: t.TempDir(), log: newLogbook()}
	r.write(t, "primary.yaml", string(primary.Kubeconfig(own)))
	r.start(t, append([]string{"--kubeconfig", r.path("primary.yaml")}, flags...)...)
	r.untilReady(t)
	r.log.until(t, "west", func() bool { return r.cluster(t, "west").SyncStatus == "synced" })
	for _, side := range []struct {
		cluster, token string
		files          []string
		link           *env.Link
	}{{"Kubernetes", own, near, primary}, {"west", foreign, far, west}} {
		want := granted(t, side.files...)
		r.log.until(t, "all watches", func() bool {
			have := used(side.link, side.token)
			return !slices.ContainsFunc(slices.Collect(maps.Keys(want)), func(k string) bool { return !have[k] })
		})
		for k := range used(side.link, side.token) {
			if !want[k] {
				t.Errorf("%s: the hub wants to %s, which %s does not grant", side.cluster, k, side.files)
			}
		}
		if c := r.cluster(t, side.cluster); c.State != "live" || len(c.Problems) > 0 {
			t.Errorf("%s is %s with problems %+v", side.cluster, c.State, c.Problems)
		}
	}
}

// TestPrimaryMayWhatRemotesMay: the hub's own cluster has the rights that remote ones have with --config-from all, and
// Secrets.
func TestPrimaryMayWhatRemotesMay(t *testing.T) {
	t.Parallel()
	want := granted(t, "rbac-remote.yaml", "rbac-config.yaml")
	want["list istio-system/secrets"], want["watch istio-system/secrets"] = true, true
	if got := granted(t, "rbac-primary.yaml"); !maps.Equal(got, want) {
		t.Errorf("rbac-primary.yaml grants %v, want %v", slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(want)))
	}
}

// TestManifestsApply: an API server takes the manifests as they are, and serve the flags in them.
func TestManifestsApply(t *testing.T) {
	t.Parallel()
	c := servers.Take(t, 1)[0]
	for _, file := range []string{"isthmus.yaml", "rbac-primary.yaml", "rbac-remote.yaml", "rbac-config.yaml", "rbac-mcs.yaml", "rbac-auto-registration.yaml", "rbac-status.yaml"} {
		c.Apply(t, manifest(t, file))
	}
	args := regexp.MustCompile(`(?m)^ +args: \[serve, (.*)\]$`).FindStringSubmatch(manifest(t, "isthmus.yaml"))
	if args == nil {
		t.Fatal("isthmus.yaml runs no 'serve'")
	}
	o := &serveOptions{}
	if err := serveCommand(o).ParseFlags(strings.Split(args[1], ", ")); err != nil || !o.kube.inCluster || o.kube.stateDir != "/var/lib/isthmus" {
		t.Errorf("%v: %+v", err, o.kube)
	}
}
