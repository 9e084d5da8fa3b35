package envoy_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/isthmus-mesh/isthmus/deploy"
	"github.com/isthmus-mesh/isthmus/test/env"
)

// apiServers hold the clusters east, which is the config cluster, and west.
type apiServers struct {
	clusters map[string]*env.Cluster
	applied  map[string][]any // by path, as in a folder of clusters
}

const system = "istio-system"

// newAPIServers has the hub read west by a Secret, with the rights that it needs
// and no others.
func newAPIServers(t *testing.T) *apiServers {
	t.Helper()
	taken := servers.Take(t, 2)
	a := &apiServers{clusters: map[string]*env.Cluster{east: taken[0], west: taken[1]}, applied: map[string][]any{}}
	a.clusters[west].Apply(t, deploy.RBACRemote(false, false))
	a.clusters[east].Apply(t, env.Namespace(system), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: system, Name: west, Labels: map[string]string{"istio/multiCluster": "true"}},
		Data:       map[string][]byte{west: a.clusters[west].Kubeconfig(a.clusters[west].Token(t, system+"/isthmus-reader", 3600))},
	})
	return a
}

// flags tell the hub of them.
func (a *apiServers) flags(t *testing.T, networks string) []string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "east.yaml")
	if err := os.WriteFile(file, a.clusters[east].Kubeconfig(env.AdminToken), 0o600); err != nil {
		t.Fatal(err)
	}
	return []string{"--kubeconfig", file, "--cluster-id", east, "--mesh-networks", networks}
}

// write makes objects be all that a path stands for. What they replace is deleted
// first, but for what is the very same.
func (a *apiServers) write(t *testing.T, path string, objects []any) {
	t.Helper()
	cluster, _, _ := strings.Cut(path, "/")
	flat := flatten(objects)
	for _, o := range a.applied[path] {
		if !slices.Contains(flat, o) {
			a.clusters[cluster].Delete(t, o)
		}
	}
	for _, o := range flat {
		if p, ok := o.(*corev1.Pod); ok && len(p.Spec.Containers) == 0 {
			p.Spec.Containers = []corev1.Container{{Name: "app", Image: "app"}} // an API server wants some
		}
	}
	a.clusters[cluster].Apply(t, flat...)
	a.applied[path] = flat
}

// flatten gives the objects of lists of lists.
func flatten(objects []any) (out []any) {
	for _, o := range objects {
		if list, ok := o.([]any); ok {
			out = append(out, flatten(list)...)
		} else {
			out = append(out, o)
		}
	}
	return out
}
