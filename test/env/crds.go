package env

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/isthmus-mesh/isthmus/test/envoy/envoytest"
)

// definitionFiles are the custom resource definitions inside modules that the
// project depends on anyway, and its own.
var definitionFiles = []struct{ module, pattern string }{
	{"istio.io/api", "kubernetes/customresourcedefinitions.gen.yaml"},
	{"sigs.k8s.io/gateway-api", "config/crd/standard/*.yaml"},
	{"sigs.k8s.io/mcs-api", "config/crd/*.yaml"},
	{"github.com/isthmus-mesh/isthmus", "deploy/crds/*.yaml"},
	{"github.com/isthmus-mesh/isthmus", "test/env/testdata/*.yaml"}, // of others, in outline
}

const definitionKind = "CustomResourceDefinition"

var definitionResource = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}

// loadDefinitions reads all definitions, by name.
func loadDefinitions(ctx context.Context) (map[string]*unstructured.Unstructured, error) {
	out := map[string]*unstructured.Unstructured{}
	for _, in := range definitionFiles {
		module, pattern := in.module, in.pattern
		dir, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", module).Output()
		if err != nil {
			return nil, fmt.Errorf("go list -m %s: %w", module, err)
		}
		files, err := filepath.Glob(filepath.Join(strings.TrimSpace(string(dir)), pattern))
		if err != nil || len(files) == 0 {
			return nil, fmt.Errorf("no %s in module %s: %w", pattern, module, err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				return nil, err
			}
			objects, err := parse(string(text))
			if err != nil {
				return nil, fmt.Errorf("%s: %w", file, err)
			}
			for _, o := range objects {
				if o.GetKind() == definitionKind {
					strip(o.Object)
					out[o.GetName()] = o
				}
			}
		}
	}
	return out, nil
}

// strip removes descriptions, most of a schema and costly to publish.
func strip(v any) {
	switch v := v.(type) {
	case map[string]any:
		if _, text := v["description"].(string); text {
			delete(v, "description")
		}
		for _, below := range v {
			strip(below)
		}
	case []any:
		for _, below := range v {
			strip(below)
		}
	}
}

// InstallCRDs adds all custom resource definitions to a bare cluster and waits
// until they are served.
func (c *Cluster) InstallCRDs(t testing.TB) {
	t.Helper()
	if err := c.define(t.Context(), true); err != nil {
		t.Fatal(err)
	}
}

// define makes the cluster have all custom resource definitions, or none.
func (c *Cluster) define(ctx context.Context, custom bool) error {
	want := map[string]*unstructured.Unstructured{}
	if custom {
		var err error
		if want, err = c.machine.definitions(); err != nil {
			return err
		}
	}
	in := c.Dynamic.Resource(definitionResource)
	list, err := in.List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	changed := false
	has := map[string]bool{}
	for _, o := range list.Items {
		if has[o.GetName()] = true; want[o.GetName()] == nil {
			changed = true
			if err := in.Delete(ctx, o.GetName(), metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
				return err
			}
		}
	}
	for name, o := range want {
		if !has[name] {
			changed = true
			if _, err := in.Create(ctx, o.DeepCopy(), metav1.CreateOptions{}); err != nil {
				return fmt.Errorf("create definition %s: %w", name, err)
			}
		}
	}
	c.custom = custom
	if !changed {
		return nil
	}
	defer c.mapper.Reset()
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	return envoytest.Poll(ctx, func() error { return c.defined(ctx, want) })
}

// defined checks that exactly the wanted definitions are served.
func (c *Cluster) defined(ctx context.Context, want map[string]*unstructured.Unstructured) error {
	list, err := c.Dynamic.Resource(definitionResource).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	if len(list.Items) != len(want) {
		return fmt.Errorf("%d definitions, want %d", len(list.Items), len(want))
	}
	for i := range list.Items {
		if !established(&list.Items[i]) {
			return fmt.Errorf("definition %s is not established", list.Items[i].GetName())
		}
	}
	return c.discovered(want)
}

// discovered checks that clients can find the kinds, which they can some time
// after they are established, and no others.
func (c *Cluster) discovered(want map[string]*unstructured.Unstructured) error {
	groups := map[string]bool{}
	for _, o := range want {
		group, _, _ := unstructured.NestedString(o.Object, "spec", "group")
		groups[group] = true
	}
	all, err := c.Client.Discovery().ServerGroups()
	if err != nil {
		return err
	}
	for _, g := range all.Groups {
		delete(groups, g.Name)
	}
	if len(groups) > 0 {
		return fmt.Errorf("groups %v are not served", groups)
	}
	_, err = c.Client.Discovery().ServerPreferredResources()
	return err
}

func established(o *unstructured.Unstructured) bool {
	conditions, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
	return slices.ContainsFunc(conditions, func(v any) bool {
		m, _ := v.(map[string]any)
		return m["type"] == "Established" && m["status"] == "True"
	})
}
