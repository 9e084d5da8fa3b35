package main

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	meshconfig "istio.io/api/mesh/v1alpha1"
	"k8s.io/client-go/rest"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/clusters"
	"github.com/isthmus-mesh/isthmus/clusters/file"
	"github.com/isthmus-mesh/isthmus/clusters/kube"
	"github.com/isthmus-mesh/isthmus/clusters/lastgood"
	"github.com/isthmus-mesh/isthmus/kubeapi"
	"github.com/isthmus-mesh/isthmus/secrets"
)

// The sources of credentials, besides clusters.Primary.
const (
	fromSecrets = "secrets"
	fromFolder  = "folder"
)

// kubeSource reads clusters from their API servers: the config cluster, those that Secrets in it have
// kubeconfigs of, and those in --clusters-dir.
//
// A claim becomes a registry like this: the kubeconfig of the config cluster is followed by Run, Secrets and the
// folder by registries of their own (claimSource), and all give their claims to the Manager. The mesh's settings come
// from a registry too (settings) and configure the Manager, which then attaches a registry for each claimed cluster.
type kubeSource struct {
	sourceDeps // read-only, like the rest after Scan
	manager    *clusters.Manager
	store      *lastgood.Store // nil without --state-dir
	metrics    *kube.Metrics
	events     *prometheus.CounterVec
	secrets    relay     // of the registries of the Secrets
	remotes    sync.Once // the first of them was met
	settled    sync.Once // by the mesh's settings, or by the defaults
}

// newKubeSource gives the source, nil if no flag asks for it.
func newKubeSource(d sourceDeps) source {
	if !d.opts.kube.any() {
		return nil
	}
	k := &kubeSource{sourceDeps: d, metrics: kube.NewMetrics(d.registerer)}
	k.life.use = k.useSettings
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
		o.Keep = func(r model.Registry, first bool) model.Registry { return k.keep(r, first, k.opts.patience()) }
		o.Known = k.store.Clusters()
	}
	k.manager = clusters.NewManager(o)
	if k.opts.dir == "" && !k.settingsInPrimary() { // with --dir they are in the folder
		files := file.Options{Cluster: model.ClusterID(k.opts.clusterID), Log: k.log}
		k.life.Attach(file.NewMeshFiles(files, k.opts.kube.meshConfig, k.opts.kube.meshNetworks))
	}
	if k.opts.kube.clustersDir != "" {
		k.life.Attach(k.folderCredentials())
	}
	return nil
}

// settingsInPrimary reports whether the mesh's settings are those in the config cluster.
func (k *kubeSource) settingsInPrimary() bool {
	o := &k.opts.kube
	return o.hasPrimary() && k.opts.dir == "" && o.meshConfig == "" && o.meshNetworks == ""
}

// useSettings configures the clusters with the mesh's settings; nil stands for Istio's defaults.
func (k *kubeSource) useSettings(m *meshconfig.MeshConfig) {
	k.settled.Do(func() {})
	k.configure(m)
}

// settle configures the clusters with the defaults if there are no settings after all the time that serving waits
// for them.
func (k *kubeSource) settle() {
	k.settled.Do(func() {
		k.log.Warn("the mesh's settings can't be read; defaults are used until they can", "after", k.opts.syncTimeout)
		k.configure(nil)
	})
}

func (k *kubeSource) configure(m *meshconfig.MeshConfig) {
	k.manager.Configure(clusters.Settings{
		TrustDomain: cmp.Or(k.opts.trustDomain, m.GetTrustDomain()), DiscoverySelectors: m.GetDiscoverySelectors(),
	})
}

// patience is how long what was kept of a registry waits for the registry: less than serving does.
func (o *serveOptions) patience() time.Duration {
	return min(10*time.Second, orNever(o.syncTimeout)/2)
}

// keep makes what a registry reports outlive the hub. The first one with its key serves what was kept after some time.
func (k *kubeSource) keep(r model.Registry, first bool, after time.Duration) model.Registry {
	if k.store == nil {
		return r
	}
	return k.store.Wrap(r, lastgood.Terms{Restore: first, After: min(after, k.opts.patience())})
}

// forget drops what is known of a cluster that was detached.
func (k *kubeSource) forget(key model.ShardKey) {
	k.metrics.Forget(key.Cluster)
	if k.store != nil {
		k.store.Forget(key)
	}
}

// ownKey is the key of a registry of the hub's own affairs.
func (o *serveOptions) configKey(p model.ProviderID) model.ShardKey {
	return model.ShardKey{Provider: p, Cluster: model.ClusterID(o.clusterID)}
}

// expected are the registries that the hub does not serve without: those of the config cluster, which its credential and
// the mesh's settings come before.
func (o *serveOptions) expected() []model.ShardKey {
	switch {
	case !o.kube.hasPrimary() && (o.clusterID == "" || !o.kube.any() || o.dir != ""):
		return nil
	case !o.kube.hasPrimary(): // one of the folder's is it
		return []model.ShardKey{o.configKey(model.ProviderKubernetes)}
	}
	return []model.ShardKey{o.configKey(model.ProviderMesh), o.configKey(model.ProviderSecrets), o.configKey(model.ProviderKubernetes)}
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
	configuration := isConfig || o.configFrom == fromAll || k.opts.clusterID == ""
	if !configuration {
		k.remotes.Do(func() {
			k.log.Info("Istio configuration in remote clusters is not read, WorkloadEntries apart; --config-from all reads it", "config-from", o.configFrom)
		})
	}
	cfg := k.limited(p.Config)
	r := kube.New(kube.Options{
		Cluster: p.Cluster, Config: cfg, QPS: o.qps, Burst: o.burst,
		DomainSuffix: k.opts.domain, TrustDomain: p.TrustDomain, SystemNamespace: k.opts.systemNamespace, Revision: o.revision,
		ConfigCluster: isConfig, Configuration: configuration,
		MCS: o.mcs, Selectors: p.DiscoverySelectors, Needs: p.Needs, Metrics: k.metrics, Log: k.log,
	})
	return clusters.Instance{Registry: r, Serves: r.Serves, UID: r.UID, Config: cfg}
}

// limited gives a credential with one bound on requests for all that use it, whenever they begin.
func (k *kubeSource) limited(cfg *rest.Config) *rest.Config {
	return kubeapi.Limited(cfg, k.opts.kube.qps, k.opts.kube.burst)
}

// Members implements source.
func (k *kubeSource) Members() []clusters.Member {
	if k.manager == nil {
		return nil
	}
	return k.manager.Members()
}

// Run implements source: it follows the credential of the config cluster.
func (k *kubeSource) Run(ctx context.Context) error {
	late := time.AfterFunc(orNever(k.opts.syncTimeout), k.settle)
	defer late.Stop()
	if !k.opts.kube.hasPrimary() {
		<-ctx.Done()
		return ctx.Err()
	}
	used := ""
	o := secrets.KubeconfigOptions{File: k.opts.kube.kubeconfig, Cluster: k.opts.clusterID, Log: k.log}
	return secrets.WatchKubeconfig(ctx, o, func(claims []secrets.Claim) {
		for i, c := range claims {
			if c.Err == nil {
				claims[i].Config = k.limited(c.Config)
			}
		}
		k.manager.Set(clusters.Primary, claims)
		for _, c := range claims {
			if c.Err == nil && c.Hash != used {
				k.usePrimary(c.Config, used == "")
				used = c.Hash
			}
		}
	})
}

// usePrimary attaches the registries of what is in the config cluster beside the services. They replace those with
// its credential before. All clusters wait for the settings, so what was kept of them counts soon. Of the Secrets nothing
// is kept but that they were read: while they can't be, the clusters that something was kept of are those that there are.
func (k *kubeSource) usePrimary(cfg *rest.Config, first bool) {
	if k.primary != nil {
		k.primary(cfg)
	}
	if k.settingsInPrimary() {
		mesh := kube.NewMesh(kube.MeshOptions{
			Cluster: model.ClusterID(k.opts.clusterID), Config: cfg, SystemNamespace: k.opts.systemNamespace, Revision: k.opts.kube.revision,
			QPS: k.opts.kube.qps, Burst: k.opts.kube.burst, Metrics: k.metrics, Log: k.log,
		})
		k.life.Attach(k.keep(mesh, first, 2*time.Second))
	}
	k.life.Attach(k.keep(k.secretCredentials(cfg), first, k.opts.patience()))
}
