package remote_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/rest"

	"github.com/isthmus-mesh/isthmus/cmd/isthmus/remote"
	"github.com/isthmus-mesh/isthmus/secrets"
)

func TestTarget(t *testing.T) {
	t.Parallel()
	s := serve(t, -year, year, nil)
	file := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(file, s.ca, 0o600); err != nil {
		t.Fatal(err)
	}
	cfg := &rest.Config{Host: "https://here:6443", BearerToken: "admin", TLSClientConfig: rest.TLSClientConfig{CAFile: file}}
	own, err := remote.NewTarget("west", cfg, "", "")
	if err != nil || own.Server != "https://here:6443" || !bytes.Equal(own.CA, s.ca) {
		t.Errorf("%+v, %v", own, err)
	}
	other, err := remote.NewTarget("west", cfg, "https://there", "api")
	if err != nil || other.Server != "https://there" || other.TLSServerName != "api" {
		t.Errorf("%+v, %v", other, err)
	}
	cfg.CAFile += ".gone"
	if _, err := remote.NewTarget("west", cfg, "", ""); err == nil {
		t.Error("a CA that can't be read is left out")
	}
	if _, err := remote.NewTarget("west", &rest.Config{TLSClientConfig: rest.TLSClientConfig{Insecure: true}}, "", ""); !errors.Is(err, remote.ErrUnverified) {
		t.Errorf("insecure: %v", err)
	}
	if cfg.CAData != nil || cfg.Host != "https://here:6443" {
		t.Error("the configuration was changed")
	}
}

// TestKubeconfigIsAccepted: what is written is what the hub takes, and it holds the token given and no other
// credential.
func TestKubeconfigIsAccepted(t *testing.T) {
	t.Parallel()
	s := serve(t, -year, year, nil)
	target := remote.Target{Cluster: "west", Server: "https://west:6443", TLSServerName: "api", CA: s.ca}
	text, err := target.Kubeconfig("a-token")
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := secrets.Sanitise(text, nil)
	if err != nil || cfg.Host != "https://west:6443" || cfg.BearerToken != "a-token" || cfg.ServerName != "api" || !bytes.Equal(cfg.CAData, s.ca) {
		t.Errorf("%+v, %v", cfg, err)
	}
	secret := remote.Secret("istio-system", "west", text)
	if secret.GetName() != "istio-remote-secret-west" || secret.GetLabels()[secrets.Label] != "true" || secret.GetAnnotations()["networking.istio.io/cluster"] != "west" {
		t.Errorf("%+v", secret)
	}
}

// TestManifestsNames: cluster-wide objects of another namespace have names of their own, and refer to each other.
func TestManifestsNames(t *testing.T) {
	t.Parallel()
	for namespace, suffix := range map[string]string{"istio-system": "", "mesh": "-mesh"} {
		objects, err := remote.Manifests(namespace, remote.Reads{MCS: true})
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, o := range objects {
			names = append(names, remote.Name(o))
			if ref, ok, _ := unstructured.NestedString(o.Object, "roleRef", "name"); ok && o.GetNamespace() == "" && "ClusterRoleBinding "+ref != remote.Name(o) {
				t.Errorf("%s refers to %s", remote.Name(o), ref)
			}
			if subjects, ok, _ := unstructured.NestedSlice(o.Object, "subjects"); ok && subjects[0].(map[string]any)["namespace"] != namespace {
				t.Errorf("%s binds %v", remote.Name(o), subjects)
			}
		}
		want := "Namespace NS, ServiceAccount NS/isthmus-reader, ClusterRole isthmus-readerSUFFIX, ClusterRoleBinding isthmus-readerSUFFIX, Role NS/isthmus-reader, RoleBinding NS/isthmus-reader, " +
			"ClusterRole isthmus-reader-mcsSUFFIX, ClusterRoleBinding isthmus-reader-mcsSUFFIX"
		want = strings.NewReplacer("NS", namespace, "SUFFIX", suffix).Replace(want)
		if got := strings.Join(names, ", "); got != want {
			t.Errorf("got %s\nwant %s", got, want)
		}
	}
}

// TestSecretNames: the Secret of a cluster has the name that Istio's tools give it, where that can be one; others differ
// from each other.
func TestSecretNames(t *testing.T) {
	t.Parallel()
	seen := map[string]string{}
	for _, cluster := range []string{"west", "a.b", "Cluster_1", "cluster_1", "cluster-1", "a..b", ".a", "_", "A-_" + strings.Repeat("x", 60)} {
		name := remote.SecretName(cluster)
		if why := validation.IsDNS1123Subdomain(name); len(why) > 0 || !strings.HasPrefix(name, "istio-remote-secret-") || seen[name] != "" {
			t.Errorf("%s: %s (%v), also of %q", cluster, name, why, seen[name])
		}
		seen[name] = cluster
	}
	if seen["istio-remote-secret-west"] != "west" || seen["istio-remote-secret-a.b"] != "a.b" {
		t.Errorf("%v", seen)
	}
}
