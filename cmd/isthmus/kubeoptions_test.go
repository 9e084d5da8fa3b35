package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// options parses the flags of serve.
func options(t *testing.T, env map[string]string, args ...string) (*serveOptions, error) {
	t.Helper()
	o := &serveOptions{}
	c := serveCommand(o)
	if err := c.ParseFlags(args); err != nil {
		t.Fatal(err)
	}
	o.detect(c.Flags(), func(k string) string { return env[k] })
	return o, o.check()
}

func TestConfigCluster(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "kubeconfig")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	pod := map[string]string{"KUBERNETES_SERVICE_HOST": "10.96.0.1"}
	for name, test := range map[string]struct {
		env       map[string]string
		args      string
		inCluster bool
		id        string
	}{
		"in a pod":                 {pod, "", true, "Kubernetes"},
		"in a pod, kubeconfig":     {pod, "--kubeconfig " + file, false, "Kubernetes"},
		"in a pod, folder":         {pod, "--dir " + dir, false, ""},
		"in a pod, both":           {pod, "--in-cluster --cluster-id east --dir " + dir, true, "east"},
		"in a pod, kubeconfigs":    {pod, "--clusters-dir " + dir, true, "Kubernetes"},
		"in a pod, no thanks":      {pod, "--in-cluster=false --clusters-dir " + dir, false, ""},
		"elsewhere, kubeconfig":    {nil, "--kubeconfig " + file, false, "Kubernetes"},
		"elsewhere, kubeconfigs":   {nil, "--clusters-dir " + dir, false, ""},
		"elsewhere, with state":    {nil, "--clusters-dir " + dir + " --state-dir " + filepath.Join(dir, "a/b"), false, ""},
		"elsewhere, named cluster": {nil, "--clusters-dir " + dir + " --cluster-id west", false, "west"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o, err := options(t, test.env, strings.Fields(test.args)...)
			if err != nil || o.kube.inCluster != test.inCluster || o.clusterID != test.id {
				t.Errorf("in-cluster %v, id %q, %v", o.kube.inCluster, o.clusterID, err)
			}
		})
	}
}

func TestKubeOptionsThatCannotBe(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "kubeconfig")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for args, says := range map[string]string{
		"":                                      "there is nothing to serve",
		"--in-cluster --kubeconfig " + file:     "use one",
		"--kubeconfig " + dir:                   "is a folder; name a file",
		"--kubeconfig /nowhere":                 "--kubeconfig: stat /nowhere",
		"--clusters-dir " + file:                "is a file; name the folder that holds the kubeconfigs",
		"--clusters-dir /nowhere":               "--clusters-dir: stat",
		"--in-cluster --config-from some":       "want primary or all",
		"--in-cluster --kubernetes-api-qps 0":   "must be above 0",
		"--in-cluster --kubernetes-api-burst 0": "must be above 0",
		"--in-cluster --insecure-kubeconfig-options exec,magic": `"magic" can't be allowed`,
		"--in-cluster --mesh-config " + dir:                     "--mesh-config:",
		"--in-cluster --mesh-networks /nowhere":                 "--mesh-networks:",
		"--dir " + dir + " --mesh-config " + file:               "don't go with --dir",
		"--dir " + dir + " --state-dir " + dir:                  "--state-dir is for clusters with an API server",
		"--in-cluster --state-dir " + file:                      "--state-dir:",
	} {
		if _, err := options(t, nil, strings.Fields(args)...); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", args, err)
		}
	}
}
