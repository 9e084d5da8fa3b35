package kube

import (
	"context"
	"log/slog"

	meshconfig "istio.io/api/mesh/v1alpha1"
	"k8s.io/client-go/rest"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
)

// Options configure a Registry.
type Options struct {
	Cluster model.ClusterID
	Config  *rest.Config

	DomainSuffix    string // "cluster.local" if empty
	TrustDomain     string // where the cluster does not name its own; "cluster.local" if empty
	SystemNamespace string // "istio-system" if empty

	// Configuration reads all networking configuration of the cluster, not only its WorkloadEntries.
	Configuration bool
	// MCS reads ServiceExports and ServiceImports: only exported services are known outside the cluster.
	MCS bool
	// Selectors choose the namespaces to read; none reads all (MeshConfig.discoverySelectors).
	Selectors []*meshconfig.LabelSelector
	// Needs are optional kinds that must be readable, because what this instance replaces could read them.
	Needs []string

	Log *slog.Logger // discards if nil
}

// Registry is the registry of one cluster that is read from its API server.
type Registry struct{ opts Options }

// New gives the registry with the key kubernetes/<cluster>.
func New(o Options) *Registry { return &Registry{opts: o} }

// Key implements model.Registry.
func (r *Registry) Key() model.ShardKey {
	return model.ShardKey{Provider: model.ProviderKubernetes, Cluster: r.opts.Cluster}
}

// Run implements model.Registry.
func (r *Registry) Run(ctx context.Context, out model.Sink) error {
	<-ctx.Done()
	return ctx.Err()
}

// Serves lists the optional kinds that the running instance can read.
func (r *Registry) Serves() []string { return nil }
