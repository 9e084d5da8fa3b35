package main

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"

	"github.com/isthmus-mesh/isthmus/test/env"
)

// contexts writes a kubeconfig with an administrator's context for each cluster, the first one current.
func contexts(t *testing.T, r *running, clusters map[string]*env.Cluster, current string) string {
	t.Helper()
	cfg := api.NewConfig()
	for name, c := range clusters {
		cfg.Clusters[name] = &api.Cluster{Server: c.URL, CertificateAuthorityData: c.CA}
		cfg.AuthInfos[name] = &api.AuthInfo{Token: env.AdminToken}
		cfg.Contexts[name] = &api.Context{Cluster: name, AuthInfo: name}
	}
	cfg.CurrentContext = current
	text, err := clientcmd.Write(*cfg)
	if err != nil {
		t.Fatal(err)
	}
	r.write(t, "kubeconfig", string(text))
	return r.path("kubeconfig")
}

// now runs a command line with the time of the clock.
func now(t *testing.T, stdin string, args ...string) result {
	t.Helper()
	var stdout, stderr bytes.Buffer
	root := newRoot(time.Now)
	root.SetIn(strings.NewReader(stdin))
	code := execute(t.Context(), root, args, &stdout, &stderr)
	return result{code, stdout.String(), stderr.String()}
}

func (r result) want(t *testing.T, code int, says ...string) {
	t.Helper()
	if r.code != code {
		t.Fatalf("exit code %d, want %d\nstdout: %s\nstderr: %s", r.code, code, r.stdout, r.stderr)
	}
	for _, s := range says {
		if !strings.Contains(r.stdout+r.stderr, s) {
			t.Errorf("%q is not said\nstdout: %s\nstderr: %s", s, r.stdout, r.stderr)
		}
	}
}
