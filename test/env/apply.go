package env

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"

	"github.com/isthmus-mesh/isthmus/test/envoy/envoytest"
)

// owner is the field manager of all that tests apply.
const owner = "isthmus-test"

// kindLimit bounds the wait for a kind whose definition is new.
const kindLimit = 2 * time.Minute

// Apply makes objects as described, also their status; fields that an earlier
// Apply set and this one does not are removed. A description is a string with
// YAML documents, a runtime.Object of Kubernetes' own kinds, or a slice of those
// ([]any). Namespaces that are missing are made.
func (c *Cluster) Apply(t testing.TB, descriptions ...any) {
	t.Helper()
	c.each(t, descriptions, c.apply)
}

// Delete removes objects at once; a description needs kind and name alone.
// What is not there is no error. A namespace goes with all that it holds.
func (c *Cluster) Delete(t testing.TB, descriptions ...any) {
	t.Helper()
	c.each(t, descriptions, func(ctx context.Context, o *unstructured.Unstructured) error {
		if o.GetKind() == "Namespace" {
			return errors.Join(c.empty(ctx, o.GetName()), c.purge(ctx, o.GetName()))
		}
		in, err := c.resource(ctx, o)
		if err != nil {
			return err
		}
		return remove(ctx, in, o)
	})
}

func (c *Cluster) each(t testing.TB, descriptions []any, do func(context.Context, *unstructured.Unstructured) error) {
	t.Helper()
	objects, err := describe(descriptions)
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range objects {
		if err := do(t.Context(), o); err != nil {
			t.Fatalf("%s %s/%s: %v", o.GetKind(), o.GetNamespace(), o.GetName(), err)
		}
	}
}

func (c *Cluster) apply(ctx context.Context, o *unstructured.Unstructured) error {
	in, err := c.resource(ctx, o)
	if err != nil {
		return err
	}
	status, hasStatus := o.Object["status"]
	delete(o.Object, "status")
	if err := c.applyIn(ctx, in, o); err != nil || !hasStatus {
		return err
	}
	only := &unstructured.Unstructured{Object: map[string]any{"status": status}}
	only.SetGroupVersionKind(o.GroupVersionKind())
	only.SetNamespace(o.GetNamespace())
	only.SetName(o.GetName())
	_, err = in.ApplyStatus(ctx, o.GetName(), only, metav1.ApplyOptions{FieldManager: owner, Force: true})
	if err != nil {
		return fmt.Errorf("status: %w", err)
	}
	return nil
}

func (c *Cluster) applyIn(ctx context.Context, in dynamic.ResourceInterface, o *unstructured.Unstructured) error {
	_, err := in.Apply(ctx, o.GetName(), o, metav1.ApplyOptions{FieldManager: owner, Force: true})
	if !missingNamespace(err) {
		return err
	}
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: o.GetNamespace()}}
	if _, err := c.Client.CoreV1().Namespaces().Create(ctx, ns, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	_, err = in.Apply(ctx, o.GetName(), o, metav1.ApplyOptions{FieldManager: owner, Force: true})
	return err
}

func missingNamespace(err error) bool {
	var status apierrors.APIStatus
	if !apierrors.IsNotFound(err) || !errors.As(err, &status) {
		return false
	}
	d := status.Status().Details
	return d != nil && d.Kind == "namespaces"
}

// resource finds where an object is kept.
func (c *Cluster) resource(ctx context.Context, o *unstructured.Unstructured) (dynamic.ResourceInterface, error) {
	var mapping *meta.RESTMapping
	ctx, cancel := context.WithTimeout(ctx, kindLimit)
	defer cancel()
	gvk := o.GroupVersionKind()
	err := envoytest.Poll(ctx, func() (err error) {
		if mapping, err = c.mapper.RESTMapping(gvk.GroupKind(), gvk.Version); meta.IsNoMatchError(err) {
			c.mapper.Reset()
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	if mapping.Scope.Name() == meta.RESTScopeNameRoot {
		return c.Dynamic.Resource(mapping.Resource), nil
	}
	if o.GetNamespace() == "" {
		o.SetNamespace(metav1.NamespaceDefault)
	}
	return c.Dynamic.Resource(mapping.Resource).Namespace(o.GetNamespace()), nil
}

// describe flattens descriptions to objects.
func describe(descriptions []any) (out []*unstructured.Unstructured, err error) {
	for _, d := range descriptions {
		var more []*unstructured.Unstructured
		switch d := d.(type) {
		case string:
			more, err = parse(d)
		case []any:
			more, err = describe(d)
		case runtime.Object:
			more = make([]*unstructured.Unstructured, 1)
			more[0], err = convert(d)
		default:
			err = fmt.Errorf("no description of an object: %T", d)
		}
		if err != nil {
			return nil, err
		}
		out = append(out, more...)
	}
	return out, nil
}

// parse reads YAML documents.
func parse(text string) (out []*unstructured.Unstructured, err error) {
	docs := utilyaml.NewYAMLReader(bufio.NewReader(strings.NewReader(text)))
	for {
		doc, err := docs.Read()
		if errors.Is(err, io.EOF) {
			return out, nil
		} else if err != nil {
			return nil, err
		}
		o := &unstructured.Unstructured{}
		raw, err := yaml.YAMLToJSON(doc)
		if err != nil {
			return nil, err
		}
		if bytes.Equal(raw, []byte("null")) {
			continue
		}
		if err := o.UnmarshalJSON(raw); err != nil {
			return nil, err
		}
		out = append(out, o)
	}
}

// convert describes a typed object, without what its type says and its maker did
// not mean.
func convert(o runtime.Object) (*unstructured.Unstructured, error) {
	if u, ok := o.(*unstructured.Unstructured); ok {
		return u.DeepCopy(), nil
	}
	kinds, _, err := scheme.Scheme.ObjectKinds(o)
	if err != nil {
		return nil, err
	}
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		return nil, err
	}
	u := &unstructured.Unstructured{Object: prune(fields)}
	u.SetGroupVersionKind(kinds[0])
	return u, nil
}

// prune removes nulls and the maps that are empty but for them.
func prune(m map[string]any) map[string]any {
	for k, v := range m {
		if below, ok := v.(map[string]any); ok && len(prune(below)) == 0 || v == nil {
			delete(m, k)
		}
	}
	return m
}
