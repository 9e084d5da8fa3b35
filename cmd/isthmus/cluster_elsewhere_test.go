package main

import (
	"strings"
	"testing"

	"github.com/isthmus-mesh/isthmus/cmd/isthmus/debug"
	"github.com/isthmus-mesh/isthmus/test/env"
)

// TestClusterFromElsewhere: a hub that reads a cluster from a file has no use for a Secret, and does not lose the cluster
// with one. Both are said.
func TestClusterFromElsewhere(t *testing.T) {
	t.Parallel()
	cs := servers.Take(t, 2)
	primary, west := cs[0], cs[1]
	primary.Apply(t, env.Namespace("istio-system"))
	r := &running{dir: t.TempDir(), log: newLogbook()}
	r.write(t, "primary.yaml", string(primary.Kubeconfig(env.AdminToken)))
	r.write(t, "clusters/w.yaml", strings.ReplaceAll(string(west.Kubeconfig(env.AdminToken)), ": test\n", ": west\n"))
	r.start(t, "--kubeconfig", r.path("primary.yaml"), "--clusters-dir", r.path("clusters"))
	r.untilReady(t)
	file := contexts(t, r, map[string]*env.Cluster{"primary": primary, "west": west}, "primary")
	run := func(words ...string) result {
		return now(t, "", append([]string{"cluster"}, append(words, "--kubeconfig", file, "--hub", r.url)...)...)
	}
	run("add", "west").want(t, exitFailure, "nothing was changed: the hub reads west with "+r.path("clusters/w.yaml"))
	run("remove", "west", "--yes").want(t, exitNotFound)

	run("add", "west", "--wait=false").want(t, exitOK)
	run("remove", "west", "--yes").want(t, exitFailure, "west is no longer read with Secret istio-system/istio-remote-secret-west, but with "+r.path("clusters/w.yaml"),
		"west stays in the mesh", "remove it there too")
	if c := r.cluster(t, "west"); c.SyncStatus != "synced" || len(c.NotUsed) != 0 {
		t.Errorf("west: %+v", c)
	}

	other := &running{dir: t.TempDir(), log: newLogbook()}
	other.write(t, "clusters/w.yaml", strings.ReplaceAll(string(west.Kubeconfig(env.AdminToken)), ": test\n", ": west\n"))
	other.start(t, "--clusters-dir", other.path("clusters"))
	now(t, "", "cluster", "add", "west", "--kubeconfig", file, "--hub", other.url).want(t, exitFailure, "the hub reads no Secrets")
}

// TestLeaving: how far a hub is without a Secret.
func TestLeaving(t *testing.T) {
	t.Parallel()
	from := func(sources ...string) []debug.Cluster {
		c := debug.Cluster{ID: "west", Provider: "kubernetes"}
		for i, s := range sources {
			if i == 0 {
				c.Credential = &debug.Credential{Source: s}
			} else {
				c.NotUsed = append(c.NotUsed, debug.Credential{Source: s})
			}
		}
		return []debug.Cluster{{ID: "west", Provider: "dns"}, c}
	}
	config := from("/primary.yaml")
	config[1].ConfigCluster = true
	for name, test := range map[string]struct {
		all  []debug.Cluster
		left string
		done bool
	}{
		"gone":               {from()[:1], "", true},
		"kept, not read yet": {from(), "", false},
		"in force":           {from("Secret a/b"), "", false},
		"in second place":    {from("/w.yaml", "Secret a/b"), "", false},
		"of a file":          {from("/w.yaml"), "/w.yaml", true},
		"of another Secret":  {from("Secret a/c"), "Secret a/c", true},
		"config cluster":     {config, "", true},
	} {
		if said, left, done := leaving(test.all, "west", "a/b"); left != test.left || done != test.done || said == "" {
			t.Errorf("%s: %q, left %q, done %v", name, said, left, done)
		}
	}
}
