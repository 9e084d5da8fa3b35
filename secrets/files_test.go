package secrets_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/isthmus-mesh/isthmus/secrets"
)

// TestWatchFolder is the real thing: events of the system, and time as it goes.
func TestWatchFolder(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	w := follow(t, func(ctx context.Context, w *watch) error {
		return secrets.WatchFolder(ctx, dir, secrets.FolderOptions{}, w.out(ctx))
	})
	w.await()
	path := filepath.Join(dir, "e.yaml")
	write(t, path, server(t, "e1"))
	w.await("east e.yaml e1")
	write(t, path, server(t, "e2"))
	w.await("east e.yaml e2")
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	w.await()
}

func write(t *testing.T, path string, content []byte) {
	t.Helper()
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
}

func followKubeconfig(t *testing.T, path string) *watch {
	t.Helper()
	return follow(t, func(ctx context.Context, w *watch) error {
		return secrets.WatchKubeconfig(ctx, secrets.KubeconfigOptions{File: path, Cluster: "home"}, w.out(ctx))
	})
}

// TestWatchKubeconfig: the hub's own kubeconfig is believed in all it says, and followed.
func TestWatchKubeconfig(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "config")
	write(t, path, kubeconfig(t, with("server", "https://h1", "certificate-authority", "ca.pem"), with("tokenFile", "/abs/token")))
	w := followKubeconfig(t, path)
	c := w.await("home config h1")[0].Config
	if c.BearerTokenFile != "/abs/token" || c.CAFile != filepath.Join(filepath.Dir(path), "ca.pem") {
		t.Errorf("files %q and %q", c.BearerTokenFile, c.CAFile)
	}
	write(t, path, kubeconfig(t, with("server", "https://h2"), with("exec", object{"command": "aws", "apiVersion": "client.authentication.k8s.io/v1"})))
	c = w.await("home config h2")[0].Config
	if c.ExecProvider == nil || c.ExecProvider.Command != "aws" {
		t.Error("exec is lost")
	}
	write(t, path, []byte("{{"))
	w.await("home config not a kubeconfig: malformed YAML, a value of the wrong type, or a name used twice")
	write(t, path, kubeconfig(t, with("server", "https://h3"), with()))
	w.await("home config h3")
}

// TestWatchKubeconfigAtStart: what does not work at the start is an error at once.
func TestWatchKubeconfigAtStart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, filepath.Join(dir, "bad"), []byte("{{"))
	for name, want := range map[string]string{"none": "no such file", "bad": "malformed"} {
		err := secrets.WatchKubeconfig(t.Context(), secrets.KubeconfigOptions{File: filepath.Join(dir, name)}, nil)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", name, err, want)
		}
	}
}

// TestOutsideAPod: without a kubeconfig the hub must run in a pod. It changes the environment, so it does not run
// in parallel.
func TestOutsideAPod(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	if err := secrets.WatchKubeconfig(t.Context(), secrets.KubeconfigOptions{}, nil); err == nil || !strings.Contains(err.Error(), "pod") {
		t.Errorf("got %v", err)
	}
}
