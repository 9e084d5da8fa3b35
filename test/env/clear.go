package env

import (
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
)

// ownNamespaces are made by the API server.
var ownNamespaces = []string{metav1.NamespaceDefault, metav1.NamespaceSystem, metav1.NamespacePublic}

// The server's own objects are of these resources, or in the list after them, or
// they bear the label.
var (
	ownResources = []string{"leases", "events", "endpoints"}
	ownObjects   = []string{"services default/kubernetes", "endpointslices default/kubernetes",
		"configmaps kube-system/extension-apiserver-authentication"}
	ownLabel = "kubernetes.io/bootstrapping"
)

// sharedResources are the resources without namespace that tests fill.
var sharedResources = []string{"nodes", "clusterroles", "clusterrolebindings", "gatewayclasses"}

// clear removes everything but what the server made by itself. Without a
// namespace controller a deleted namespace would stay, with all that it holds.
func (c *Cluster) clear(ctx context.Context) error {
	if err := c.empty(ctx, metav1.NamespaceAll); err != nil {
		return err
	}
	namespaces, err := c.Client.CoreV1().Namespaces().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, ns := range namespaces.Items {
		if err := c.purge(ctx, ns.Name); err != nil {
			return err
		}
	}
	return nil
}

// empty removes what is in a namespace, or in all and in none.
func (c *Cluster) empty(ctx context.Context, namespace string) error {
	lists, err := c.Client.Discovery().ServerPreferredResources()
	if err != nil {
		return err
	}
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			return err
		}
		for _, r := range list.APIResources {
			if !filled(r, namespace) {
				continue
			}
			if err := c.emptyResource(ctx, gv.WithResource(r.Name), namespace); err != nil {
				return err
			}
		}
	}
	return nil
}

// filled reports whether tests may have filled a resource.
func filled(r metav1.APIResource, namespace string) bool {
	ours := r.Namespaced && !slices.Contains(ownResources, r.Name) ||
		!r.Namespaced && namespace == metav1.NamespaceAll && slices.Contains(sharedResources, r.Name)
	return ours && slices.Contains(r.Verbs, "list") && slices.Contains(r.Verbs, "delete")
}

func (c *Cluster) emptyResource(ctx context.Context, r schema.GroupVersionResource, namespace string) error {
	list, err := c.Dynamic.Resource(r).Namespace(namespace).List(ctx, metav1.ListOptions{})
	if apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err) {
		return nil // its definition has just gone
	} else if err != nil {
		return fmt.Errorf("list %s: %w", r.Resource, err)
	}
	for i := range list.Items {
		o := &list.Items[i]
		if _, own := o.GetLabels()[ownLabel]; own || slices.Contains(ownObjects, r.Resource+" "+o.GetNamespace()+"/"+o.GetName()) {
			continue
		}
		if err := remove(ctx, c.Dynamic.Resource(r).Namespace(o.GetNamespace()), o); err != nil {
			return fmt.Errorf("delete %s %s/%s: %w", r.Resource, o.GetNamespace(), o.GetName(), err)
		}
	}
	return nil
}

// remove deletes an object at once: nobody is there to end a Pod gracefully or to
// do what a finaliser asks for.
func remove(ctx context.Context, in dynamic.ResourceInterface, o *unstructured.Unstructured) error {
	if len(o.GetFinalizers()) > 0 {
		patch := []byte(`{"metadata":{"finalizers":null}}`)
		if _, err := in.Patch(ctx, o.GetName(), types.MergePatchType, patch, metav1.PatchOptions{}); err != nil && !apierrors.IsNotFound(err) {
			return err
		}
	}
	now := int64(0)
	err := in.Delete(ctx, o.GetName(), metav1.DeleteOptions{GracePeriodSeconds: &now})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// purge deletes an empty namespace, as the namespace controller does.
func (c *Cluster) purge(ctx context.Context, name string) error {
	if slices.Contains(ownNamespaces, name) || name == "kube-node-lease" {
		return nil
	}
	namespaces := c.Client.CoreV1().Namespaces()
	if err := namespaces.Delete(ctx, name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return err
	}
	ns, err := namespaces.Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	} else if err != nil {
		return err
	}
	ns.Spec.Finalizers = nil
	if _, err := namespaces.Finalize(ctx, ns, metav1.UpdateOptions{}); err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	return nil
}
