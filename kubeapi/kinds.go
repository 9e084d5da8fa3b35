package kubeapi

import (
	"context"
	"fmt"
	"slices"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
)

// Kinds are the objects of an API server, in whatever version it has them, for those who write. It is safe for concurrent use.
type Kinds struct {
	objects   dynamic.Interface
	discovery discovery.DiscoveryInterfaceWithContext

	mu    sync.Mutex
	found map[schema.GroupResource]schema.GroupVersionResource // guarded by mu
}

// NewKinds makes the clients; it does no I/O besides reading the files that the configuration names.
func NewKinds(cfg *rest.Config) (*Kinds, error) {
	objects, err := dynamic.NewForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("make a client: %w", err)
	}
	d, err := discovery.NewDiscoveryClientForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("make a client: %w", err)
	}
	return &Kinds{objects: objects, discovery: discovery.ToDiscoveryInterfaceWithContext(d), found: map[schema.GroupResource]schema.GroupVersionResource{}}, nil
}

// In gives the objects of a kind in the first of some versions that the API server has, and which that is. If it has none the
// error says NotFound.
func (k *Kinds) In(ctx context.Context, kind schema.GroupResource, versions ...string) (dynamic.NamespaceableResourceInterface, schema.GroupVersion, error) {
	k.mu.Lock()
	at, known := k.found[kind]
	k.mu.Unlock()
	if !known {
		var err error
		if at, err = k.find(ctx, kind, versions); err != nil {
			return nil, schema.GroupVersion{}, fmt.Errorf("find out which versions there are of %s: %w", kind, err)
		}
		k.mu.Lock()
		k.found[kind] = at
		k.mu.Unlock()
	}
	return k.objects.Resource(at), at.GroupVersion(), nil
}

func (k *Kinds) find(ctx context.Context, kind schema.GroupResource, versions []string) (schema.GroupVersionResource, error) {
	for _, v := range versions {
		at := kind.WithVersion(v)
		l, err := k.discovery.ServerResourcesForGroupVersionWithContext(ctx, at.GroupVersion().String())
		if err != nil && !apierrors.IsNotFound(err) {
			return schema.GroupVersionResource{}, err
		}
		if err == nil && slices.ContainsFunc(l.APIResources, func(r metav1.APIResource) bool { return r.Name == kind.Resource }) {
			return at, nil
		}
	}
	return schema.GroupVersionResource{}, apierrors.NewNotFound(kind, "")
}
