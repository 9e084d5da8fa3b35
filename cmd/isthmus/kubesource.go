package main

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/rest"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/clusters"
	"github.com/isthmus-mesh/isthmus/clusters/kube"
	"github.com/isthmus-mesh/isthmus/clusters/lastgood"
	"github.com/isthmus-mesh/isthmus/secrets"
)

// The sources of credentials, besides clusters.Primary.
const (
	fromSecrets = "secrets"
	fromFolder  = "folder"
)

// kubeSource reads clusters from their API servers: the config cluster, those that Secrets in it have
// kubeconfigs of, and those in --clusters-dir.
type kubeSource struct {
	sourceDeps // read-only, like the rest after Scan
	manager    *clusters.Manager
	store      *lastgood.Store // nil without --state-dir
	metrics    *kube.Metrics
	events     *prometheus.CounterVec
	primary    chan *rest.Config        // credentials of the config cluster as they come
	mesh       *awaited                 // the registry of the settings, if they are in the config cluster
	watching   atomic.Pointer[watching] // the Secrets
}

// newKubeSource gives the source, nil if no flag asks for it.
func newKubeSource(d sourceDeps) source {
	if !d.opts.kube.any() {
		return nil
	}
	k := &kubeSource{sourceDeps: d, primary: make(chan *rest.Config, 1), metrics: kube.NewMetrics(d.registerer)}
	k.events = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "remote_cluster_secret_events_total", Help: "Changes of Secrets with kubeconfigs: add, update, delete.",
	}, []string{"event"})
	k.registerer.MustRegister(k.events)
	return k
}

// Scan implements source.
func (k *kubeSource) Scan() error {
	o := clusters.Options{
		Lifecycle: k.life, New: k.registry, Sources: k.opts.kube.sources(), Config: model.ClusterID(k.opts.clusterID), Log: k.log,
		Forget: k.forget,
	}
	if dir := k.opts.kube.stateDir; dir != "" {
		var err error
		if k.store, err = lastgood.Open(lastgood.Options{Dir: dir, After: k.opts.patience(), Log: k.log}); err != nil {
			return fmt.Errorf("--state-dir: %w", err)
		}
		o.Keep, o.Known = k.store.Wrap, k.store.Clusters()
	}
	k.scanSettings()
	k.manager = clusters.NewManager(o)
	return nil
}

// patience is how long what was kept of a registry waits for the registry: less than serving does.
func (o *serveOptions) patience() time.Duration {
	if o.syncTimeout == 0 {
		return settingsWait
	}
	return min(settingsWait, o.syncTimeout/2)
}

// forget drops what is known of a cluster that was detached.
func (k *kubeSource) forget(key model.ShardKey) {
	k.metrics.Forget(key.Cluster)
	if k.store != nil {
		k.store.Forget(key)
	}
}

// sources are those that tell claims.
func (o *kubeOptions) sources() (names []string) {
	if o.hasPrimary() {
		names = append(names, clusters.Primary, fromSecrets)
	}
	if o.clustersDir != "" {
		names = append(names, fromFolder)
	}
	return names
}

// registry makes the registry of a cluster.
func (k *kubeSource) registry(p clusters.Plan) clusters.Instance {
	o := &k.opts.kube
	isConfig := string(p.Cluster) == k.opts.clusterID
	r := kube.New(kube.Options{
		Cluster: p.Cluster, Config: p.Config, QPS: o.qps, Burst: o.burst,
		DomainSuffix: k.opts.domain, TrustDomain: p.TrustDomain, SystemNamespace: k.opts.systemNamespace,
		ConfigCluster: isConfig, Configuration: isConfig || o.configFrom == fromAll || k.opts.clusterID == "",
		MCS: o.mcs, Selectors: p.DiscoverySelectors, Needs: p.Needs, Metrics: k.metrics, Log: k.log,
	})
	return clusters.Instance{Registry: r, Serves: r.Serves}
}

// tell passes the claims of a source on.
func (k *kubeSource) tell(source string, claims []secrets.Claim) {
	k.manager.Set(source, claims)
	k.settings.told.tick(source)
}

// roll is a list of names to be ticked off.
type roll struct {
	done chan struct{} // closed when none is missing

	mu      sync.Mutex
	missing map[string]bool
}

func newRoll(names ...string) *roll {
	r := &roll{done: make(chan struct{}), missing: map[string]bool{}}
	for _, n := range names {
		r.missing[n] = true
	}
	if len(names) == 0 {
		close(r.done)
	}
	return r
}

func (r *roll) tick(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.missing[name] {
		return
	}
	if delete(r.missing, name); len(r.missing) == 0 {
		close(r.done)
	}
}

// Members implements source.
func (k *kubeSource) Members() []clusters.Member {
	if k.manager == nil {
		return nil
	}
	return k.manager.Members()
}

// Run implements source.
func (k *kubeSource) Run(ctx context.Context) error {
	var running sync.WaitGroup
	defer running.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	parts := []func(context.Context) error{k.settle}
	if k.opts.kube.hasPrimary() {
		parts = append(parts, k.watchPrimary, k.watchSecrets)
	}
	if k.opts.kube.clustersDir != "" {
		parts = append(parts, k.watchFolder)
	}
	ended := make(chan error, len(parts))
	for _, part := range parts {
		running.Go(func() { ended <- part(ctx) })
	}
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}
