// Package remote gives a hub access to a cluster, and says what is wrong with the access that it has.
//
// The access is a ServiceAccount in the remote cluster with the rights of deploy/rbac-*.yaml, and a
// Secret in the primary cluster with a kubeconfig that holds a token of it, in the form of Istio's
// create-remote-secret.
package remote

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/dynamic"

	"github.com/isthmus-mesh/isthmus/deploy"
)

// Account is the name of the ServiceAccount that the hub uses in a remote cluster.
const Account = "isthmus-reader"

// DefaultNamespace is the namespace that the manifests are written for.
const DefaultNamespace = "istio-system"

// fieldManager owns what is applied.
const fieldManager = "isthmus"

// resources are the kinds that are applied.
func resources(kind string) (schema.GroupVersionResource, bool) {
	r, ok := map[string]schema.GroupVersionResource{
		"Namespace":          corev1.SchemeGroupVersion.WithResource("namespaces"),
		"ServiceAccount":     corev1.SchemeGroupVersion.WithResource("serviceaccounts"),
		"Secret":             corev1.SchemeGroupVersion.WithResource("secrets"),
		"ClusterRole":        rbacv1.SchemeGroupVersion.WithResource("clusterroles"),
		"ClusterRoleBinding": rbacv1.SchemeGroupVersion.WithResource("clusterrolebindings"),
		"Role":               rbacv1.SchemeGroupVersion.WithResource("roles"),
		"RoleBinding":        rbacv1.SchemeGroupVersion.WithResource("rolebindings"),
	}[kind]
	return r, ok
}

// Reads says what the hub reads in remote clusters besides services: what its flags of these names say.
type Reads struct {
	Config bool // --config-from all: Istio's configuration
	MCS    bool // --mcs: exports of the Multi-Cluster Services API
	// Revision is that of --revision, whose settings are read in place of those without one.
	Revision string
}

// Manifests are what the hub needs in a remote cluster whose system namespace has the name: the
// namespace itself, the ServiceAccount and its rights. Cluster-wide objects for another namespace than
// the default carry its name, so that two hubs do not take each other's rights.
func Manifests(namespace string, reads Reads) ([]*unstructured.Unstructured, error) {
	text := deploy.RBACRemote(reads.Config, reads.MCS)
	if r := reads.Revision; r != "" && r != "default" {
		text = strings.ReplaceAll(text, "resourceNames: [isthmus, istio]", "resourceNames: [isthmus, istio-"+r+"]")
	}
	if namespace != DefaultNamespace {
		text = strings.ReplaceAll(text, "namespace: "+DefaultNamespace, "namespace: "+namespace)
	}
	objects, err := decode(text)
	if err != nil {
		return nil, fmt.Errorf("manifests of deploy: %w", err)
	}
	for _, o := range objects {
		rename(o, namespace)
	}
	ns := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": namespace}}}
	return append([]*unstructured.Unstructured{ns}, objects...), nil
}

func rename(o *unstructured.Unstructured, namespace string) {
	if namespace == DefaultNamespace || o.GetNamespace() != "" {
		return
	}
	o.SetName(o.GetName() + "-" + namespace)
	if ref, ok, _ := unstructured.NestedString(o.Object, "roleRef", "name"); ok {
		_ = unstructured.SetNestedField(o.Object, ref+"-"+namespace, "roleRef", "name") // it was read there
	}
}

func decode(text string) (out []*unstructured.Unstructured, err error) {
	for d := yaml.NewYAMLOrJSONDecoder(bytes.NewReader([]byte(text)), len(text)); ; {
		o := &unstructured.Unstructured{}
		switch err := d.Decode(&o.Object); {
		case errors.Is(err, io.EOF):
			return out, nil
		case err != nil:
			return nil, err
		case len(o.Object) > 0:
			out = append(out, o)
		}
	}
}

// Name is how an object is spoken of.
func Name(o *unstructured.Unstructured) string {
	if o.GetNamespace() == "" {
		return o.GetKind() + " " + o.GetName()
	}
	return o.GetKind() + " " + o.GetNamespace() + "/" + o.GetName()
}

func client(c dynamic.Interface, o *unstructured.Unstructured) (dynamic.ResourceInterface, error) {
	r, ok := resources(o.GetKind())
	if !ok {
		return nil, fmt.Errorf("%s is of no known kind", Name(o))
	}
	if o.GetNamespace() == "" {
		return c.Resource(r), nil
	}
	return c.Resource(r).Namespace(o.GetNamespace()), nil
}

// Apply makes the objects exist as they are given and tells of each what was done: it was created, changed, or is
// unchanged. Fields that others added to them stay.
func Apply(ctx context.Context, c dynamic.Interface, objects []*unstructured.Unstructured, done func(what string)) error {
	for _, o := range objects {
		r, err := client(c, o)
		if err != nil {
			return err
		}
		before, err := r.Get(ctx, o.GetName(), metav1.GetOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			before = nil // who may not read it may apply it
		}
		after, applyErr := r.Apply(ctx, o.GetName(), o, metav1.ApplyOptions{FieldManager: fieldManager, Force: true})
		if applyErr != nil {
			return fmt.Errorf("apply %s: %w", Name(o), applyErr)
		}
		done(Name(o) + " " + outcome(apierrors.IsNotFound(err), before, after))
	}
	return nil
}

// outcome says what applying did; before is nil if that is not known.
func outcome(isNew bool, before, after *unstructured.Unstructured) string {
	switch {
	case isNew:
		return "created"
	case before == nil:
		return "applied"
	case before.GetResourceVersion() == after.GetResourceVersion():
		return "unchanged"
	}
	return "changed"
}

// Delete removes the objects, those that exist, last first. Namespaces stay: they may hold more.
func Delete(ctx context.Context, c dynamic.Interface, objects []*unstructured.Unstructured, done func(name string)) error {
	for i := len(objects) - 1; i >= 0; i-- {
		o := objects[i]
		if o.GetKind() == "Namespace" {
			continue
		}
		r, err := client(c, o)
		if err != nil {
			return err
		}
		switch err := r.Delete(ctx, o.GetName(), metav1.DeleteOptions{}); {
		case apierrors.IsNotFound(err):
		case err != nil:
			return fmt.Errorf("delete %s: %w", Name(o), err)
		default:
			done(Name(o))
		}
	}
	return nil
}
