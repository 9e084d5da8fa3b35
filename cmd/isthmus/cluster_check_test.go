package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/isthmus-mesh/isthmus/cmd/isthmus/remote"
	"github.com/isthmus-mesh/isthmus/test/env"
)

// TestClusterCheckFindsWhatIsWrong: each Secret has one fault, and check names it and what to do.
func TestClusterCheckFindsWhatIsWrong(t *testing.T) {
	t.Parallel()
	cs := servers.Take(t, 2)
	primary, west := cs[0], cs[1]
	west.ServiceAccount(t, "istio-system/poor")
	west.Grant(t, "istio-system/poor", env.Reader("services", "pods", "namespaces", "endpointslices.discovery.k8s.io"))
	west.ServiceAccount(t, "istio-system/rich")
	west.Grant(t, "istio-system/rich", env.Reader("services", "pods", "nodes", "namespaces", "endpointslices.discovery.k8s.io"))
	good := west.Kubeconfig(west.Token(t, "istio-system/rich", 3600))
	swap := func(old, new string) []byte { return []byte(strings.ReplaceAll(string(good), old, new)) }
	faults := []struct {
		cluster    string
		kubeconfig []byte
		check      string
		status     remote.Status
		says       string
	}{
		{"garbage", []byte("nonsense"), "credential", remote.Failed, "the hub refuses the kubeconfig"},
		{"expired", west.Kubeconfig(west.Token(t, "istio-system/poor", -60)), "credential", remote.Failed, "it expired at"},
		{"closed", swap(west.URL, "https://127.0.0.1:1"), "connection", remote.Failed, "127.0.0.1:1 can't be reached"},
		{"unknown", swap(west.URL, "https://nowhere.invalid"), "name", remote.Failed, "nowhere.invalid can't be resolved"},
		{"misnamed", swap("server:", "tls-server-name: west.example\n    server:"), "certificate", remote.Failed, "it is not for west.example, but for"},
		{"foreign", west.Kubeconfig("no-token"), "identity", remote.Failed, "the API server does not accept it"},
		{"poor", west.Kubeconfig(west.Token(t, "istio-system/poor", 3600)), "rights", remote.Failed, "list nodes"},
		{"rich", good, "rights", remote.Warning, "list workloadentries.networking.istio.io"},
	}
	primary.Apply(t, env.Namespace("istio-system"))
	for _, f := range faults {
		primary.Apply(t, registered(f.cluster, f.kubeconfig))
	}
	r := &running{dir: t.TempDir()}
	file := contexts(t, r, map[string]*env.Cluster{"primary": primary}, "primary")
	got := now(t, "", "cluster", "check", "--all", "--kubeconfig", file, "-o", "json")
	got.want(t, exitFailure, "the hub can't read every cluster")
	var results []remote.Result
	if err := json.Unmarshal([]byte(got.stdout), &results); err != nil {
		t.Fatal(err)
	}
	last := map[string]remote.Result{}
	for _, res := range results {
		last[res.Cluster] = res
	}
	for _, f := range faults {
		if l := last[f.cluster]; l.Check != f.check || l.Status != f.status || !strings.Contains(l.Detail, f.says) || l.Advice == "" {
			t.Errorf("%s ends with %+v", f.cluster, l)
		}
	}
	now(t, "", "cluster", "check", "rich", "--kubeconfig", file).want(t, exitOK, "missing: list customresourcedefinitions")
	r.write(t, "good.yaml", string(good))
	now(t, "", "cluster", "check", "some", "--remote-kubeconfig", r.path("good.yaml")).want(t, exitOK, "some      -        rights")
	now(t, "", "cluster", "check", "west", "--kubeconfig", file).want(t, exitNotFound, "registers west")
	for args, says := range map[string]string{
		"": "name a cluster", "west --all": "exclude each other", "--all --remote-kubeconfig x": "one cluster's", "west -o xml": "json",
		"west --timeout 0s": "above 0", "west --insecure-kubeconfig-options x": "can't be allowed",
	} {
		now(t, "", append([]string{"cluster", "check", "--kubeconfig", file}, strings.Fields(args)...)...).want(t, exitUsage, says)
	}
}

// TestClusterCheckOfTwoSecrets: of two that register a cluster the older one is checked, and the other is no failure.
func TestClusterCheckOfTwoSecrets(t *testing.T) {
	t.Parallel()
	cs := servers.Take(t, 2)
	primary, west := cs[0], cs[1]
	primary.Apply(t, env.Namespace("istio-system"), strings.Replace(registered("west", west.Kubeconfig(env.AdminToken)), "istio-remote-secret-west", "a-first", 1))
	primary.Apply(t, registered("west", []byte("nonsense")))
	r := &running{dir: t.TempDir()}
	file := contexts(t, r, map[string]*env.Cluster{"primary": primary}, "primary")
	for _, which := range []string{"west", "--all"} {
		got := now(t, "", "cluster", "check", which, "--kubeconfig", file)
		got.want(t, exitOK, "west      a-first                    rights", "west      istio-remote-secret-west   credential    warning   not used: Secret istio-system/a-first registers west too",
			"isthmus cluster remove west --secret istio-remote-secret-west")
	}
	now(t, "", "cluster", "check", "wset", "--kubeconfig", file).want(t, exitNotFound, "registers wset: there are west; add others with")
	now(t, "", "cluster", "check", "Kubernetes", "--kubeconfig", file).want(t, exitNotFound, "that is the config cluster", "isthmus cluster list -o wide")
	now(t, "", "cluster", "check", "--all", "--kubeconfig", file, "--system-namespace", "mesh").want(t, exitNotFound, "registers a cluster: add it with")
}
