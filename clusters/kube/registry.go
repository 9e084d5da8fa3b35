package kube

import (
	"cmp"
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	meshconfig "istio.io/api/mesh/v1alpha1"
	"k8s.io/client-go/rest"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/kubeapi"
)

// Options configure a Registry.
type Options struct {
	Cluster model.ClusterID
	Config  *rest.Config

	DomainSuffix    string // "cluster.local" if empty
	TrustDomain     string // where the cluster does not name its own; "cluster.local" if empty
	SystemNamespace string // "istio-system" if empty
	Revision        string // of Istio, whose ConfigMap is "istio-<revision>"; "istio" if empty or "default"

	// ConfigCluster says that the cluster is the config cluster ([Converter.ConfigCluster]).
	ConfigCluster bool
	// Configuration reads all networking configuration of the cluster, not only its WorkloadEntries.
	Configuration bool
	// MCS reads ServiceExports and ServiceImports: only exported services are known outside the cluster.
	MCS bool
	// Selectors choose the namespaces to read; none reads all (MeshConfig.discoverySelectors).
	Selectors []*meshconfig.LabelSelector
	// Needs are optional kinds that must be readable, because what this instance replaces could read them; nil if it
	// replaces none.
	Needs []string

	QPS    float32 // of requests, as of a kubeapi.Client
	Burst  int
	Timing Timing
	// MaxObjects is how many objects of a kind are kept; what is beyond is left out, and that is a problem.
	// 1 000 000 if 0.
	MaxObjects int

	Metrics *Metrics     // counts nothing if nil
	Log     *slog.Logger // discards if nil
}

// Timing says how soon a dead API server is noticed and how often things are tried again. Zero fields
// take their defaults.
type Timing struct {
	kubeapi.Timing
	Discovery time.Duration // between looks at the kinds that are served, when nothing tells of changes; 30 s
	Absent    time.Duration // how long a kind must be missing before its objects are believed to be gone; 10 s
	Explain   time.Duration // a first sync that takes longer says what it waits for; 10 s
}

func (o Options) withDefaults() Options {
	o.DomainSuffix = cmp.Or(o.DomainSuffix, "cluster.local")
	o.TrustDomain = cmp.Or(o.TrustDomain, "cluster.local")
	o.SystemNamespace = cmp.Or(o.SystemNamespace, "istio-system")
	o.MaxObjects = cmp.Or(o.MaxObjects, 1_000_000)
	o.Timing.Discovery = cmp.Or(o.Timing.Discovery, 30*time.Second)
	o.Timing.Absent = cmp.Or(o.Timing.Absent, 10*time.Second)
	o.Timing.Explain = cmp.Or(o.Timing.Explain, 10*time.Second)
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return o
}

// Registry is the registry of one cluster that is read from its API server.
//
// Services, EndpointSlices, Pods, Nodes and Namespaces are required: without the right to read them
// nothing is told but which right is missing. Other kinds are read where they are served and may be
// read; a right that is missing is a problem, not a fault. Once everything has been read and converted
// the full truth is given, and changes from then on. What is known stays while contact is lost.
type Registry struct {
	opts    Options
	current atomic.Pointer[run]
}

// New gives the registry with the key kubernetes/<cluster>.
func New(o Options) *Registry { return &Registry{opts: o.withDefaults()} }

// Key implements model.Registry.
func (r *Registry) Key() model.ShardKey {
	return model.ShardKey{Provider: model.ProviderKubernetes, Cluster: r.opts.Cluster}
}

// Run implements model.Registry. It ends before ctx only if the configuration can't be used.
func (r *Registry) Run(ctx context.Context, out model.Sink) error {
	run, err := newRun(r.opts, r.Key(), out)
	if err != nil {
		return err
	}
	r.current.Store(run)
	defer r.current.CompareAndSwap(run, nil)
	return run.loop(ctx)
}

// Serves lists the optional kinds that the running instance reads at the moment, sorted: what may not be
// read, or is not served, is not among them. It is nil before the first full truth, and not nil from then
// on. It is safe to be called at any time.
func (r *Registry) Serves() []string {
	if run := r.current.Load(); run != nil && run.replaced.Load() {
		return run.serves()
	}
	return nil
}

// UID is the UID of the namespace kube-system, which tells the cluster from all others under whatever name and
// address it is read; "" while it is not known. It is safe to be called at any time.
func (r *Registry) UID() string {
	if run := r.current.Load(); run != nil {
		if uid := run.uid.Load(); uid != nil {
			return string(*uid)
		}
	}
	return ""
}
