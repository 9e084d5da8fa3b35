package main

import (
	"context"
	"time"

	meshconfig "istio.io/api/mesh/v1alpha1"
	"k8s.io/client-go/rest"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/clusters"
	"github.com/isthmus-mesh/isthmus/clusters/file"
	"github.com/isthmus-mesh/isthmus/clusters/kube"
)

// settingsWait is how long credentials wait for the mesh's settings before the defaults are taken, and how
// long the settings wait for credentials.
const settingsWait = 10 * time.Second

// settings carries the mesh's settings from the registry that reads them to the clusters.
type settings struct {
	next  chan configuration
	told  *roll         // of the sources of claims
	ended chan struct{} // closed when nobody takes settings any more
}

// configuration is settings to be taken; done is closed when they have been.
type configuration struct {
	mesh *meshconfig.MeshConfig // nil if there are none
	done chan struct{}
}

func newSettings(sources []string) *settings {
	return &settings{next: make(chan configuration), told: newRoll(sources...), ended: make(chan struct{})}
}

// take passes settings on, and then waits for the sources of claims, though not for ever: what calls it is
// the registry of the settings, which the serving gate waits for, and thereby for the clusters.
func (s *settings) take(mesh *meshconfig.MeshConfig) {
	c := configuration{mesh, make(chan struct{})}
	select {
	case s.next <- c:
		<-c.done
	case <-s.ended:
		return
	}
	t := time.NewTimer(settingsWait)
	defer t.Stop()
	select {
	case <-s.told.done:
	case <-t.C:
	case <-s.ended:
	}
}

// follow gives the settings that are taken, and nil if none come in time, until ctx ends.
func (s *settings) follow(ctx context.Context, use func(*meshconfig.MeshConfig), late func()) error {
	defer close(s.ended)
	t := time.NewTimer(settingsWait)
	defer t.Stop()
	for {
		select {
		case c := <-s.next:
			t.Stop()
			use(c.mesh)
			close(c.done)
		case <-t.C:
			late()
		case <-ctx.Done():
			return nil
		}
	}
}

// settle configures the clusters: with the mesh's settings whenever they change, and with Istio's defaults
// if they do not come in time.
func (k *kubeSource) settle(ctx context.Context) error {
	return k.settings.follow(ctx, k.configure, func() {
		k.log.Warn("the mesh's settings can't be read; defaults are used until they can", "after", settingsWait)
		k.configure(nil)
	})
}

func (k *kubeSource) configure(m *meshconfig.MeshConfig) {
	s := clusters.Settings{TrustDomain: m.GetTrustDomain(), DiscoverySelectors: m.GetDiscoverySelectors()}
	if k.opts.trustDomain != "" {
		s.TrustDomain = k.opts.trustDomain
	}
	k.manager.Configure(s)
}

// scanSettings attaches the registry of the mesh's settings, which the serving gate waits for. With --dir it is
// that of the folder.
func (k *kubeSource) scanSettings() {
	o := &k.opts.kube
	switch id := model.ClusterID(k.opts.clusterID); {
	case k.opts.dir != "":
	case o.meshConfig != "" || o.meshNetworks != "" || !o.hasPrimary():
		k.life.Attach(file.NewMeshFiles(file.Options{Cluster: id, Log: k.log, OnSettings: k.settings.take}, o.meshConfig, o.meshNetworks))
	default:
		k.mesh = &awaited{key: model.ShardKey{Provider: model.ProviderMesh, Cluster: id}, ready: make(chan struct{})}
		k.life.Attach(k.keep(k.mesh, true))
	}
}

// keep makes what a registry reports outlive the hub.
func (k *kubeSource) keep(r model.Registry, first bool) model.Registry {
	if k.store == nil {
		return r
	}
	return k.store.Wrap(r, first)
}

// readSettings reads the mesh's settings in the config cluster, if they are there, with a credential of it.
func (k *kubeSource) readSettings(cfg *rest.Config) {
	if k.mesh == nil {
		return
	}
	r := kube.NewMesh(kube.MeshOptions{
		Cluster: k.mesh.key.Cluster, Config: cfg, SystemNamespace: k.opts.systemNamespace, OnSettings: k.settings.take,
		Metrics: k.metrics, Log: k.log,
	})
	if !k.mesh.use(r) {
		k.life.Attach(k.keep(r, false))
	}
}

// awaited is a registry that is not there yet: its key is attached, so that the serving gate waits for it.
type awaited struct {
	key   model.ShardKey
	ready chan struct{} // closed when the registry is there
	reg   model.Registry
}

// use gives it the registry; it reports whether it was the first.
func (a *awaited) use(r model.Registry) bool {
	if a.reg != nil {
		return false
	}
	a.reg = r
	close(a.ready)
	return true
}

// Key implements model.Registry.
func (a *awaited) Key() model.ShardKey { return a.key }

// Run implements model.Registry.
func (a *awaited) Run(ctx context.Context, out model.Sink) error {
	select {
	case <-a.ready:
		return a.reg.Run(ctx, out)
	case <-ctx.Done():
		return ctx.Err()
	}
}
