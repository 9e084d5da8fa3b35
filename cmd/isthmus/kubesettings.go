package main

import (
	"context"
	"time"

	"k8s.io/client-go/rest"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/clusters"
)

// settingsWait is how long credentials wait for the mesh's settings before the defaults are taken.
const settingsWait = 10 * time.Second

// Scan implements source: it attaches the registry of the mesh's settings, which the serving gate waits for,
// and through it for the clusters. With --dir the settings are those of the folder.
func (k *kubeSource) Scan() error {
	k.life.Attach(k.mesh)
	if !k.opts.kube.hasPrimary() {
		k.mesh.use(&unset{key: k.mesh.key, settings: k.onSettings})
	}
	return nil
}

// readSettings reads the mesh's settings with a credential of the config cluster.
func (k *kubeSource) readSettings(cfg *rest.Config) {
	r := &unset{key: k.mesh.key, settings: k.onSettings}
	if !k.mesh.use(r) {
		k.life.Attach(r)
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

// unset is the registry of settings that are not set anywhere.
type unset struct {
	key      model.ShardKey
	settings func(context.Context, clusters.Settings)
}

// Key implements model.Registry.
func (u *unset) Key() model.ShardKey { return u.key }

// Run implements model.Registry.
func (u *unset) Run(ctx context.Context, out model.Sink) error {
	u.settings(ctx, clusters.Settings{})
	out.Replace(model.NewShardBuilder().Build())
	<-ctx.Done()
	return ctx.Err()
}

// settle configures the clusters: with the mesh's settings whenever they change, and with Istio's defaults
// if they do not come in time.
func (k *kubeSource) settle(ctx context.Context) error {
	t := time.NewTimer(settingsWait)
	defer t.Stop()
	for {
		select {
		case next := <-k.settings:
			t.Stop()
			k.manager.Configure(next.Settings)
			close(next.done)
		case <-t.C:
			k.log.Warn("the mesh's settings can't be read; defaults are used until they can", "after", settingsWait)
			k.manager.Configure(clusters.Settings{TrustDomain: k.opts.trustDomain})
		case <-ctx.Done():
			return nil
		}
	}
}

// configuration is settings to be taken; done is closed when they have been.
type configuration struct {
	clusters.Settings
	done chan struct{}
}

// onSettings passes the mesh's settings on, and then waits for the sources of claims, though not for ever: what
// calls it is the registry of the settings, which the serving gate waits for, and thereby for the clusters.
func (k *kubeSource) onSettings(ctx context.Context, s clusters.Settings) {
	if k.opts.trustDomain != "" {
		s.TrustDomain = k.opts.trustDomain
	}
	next := configuration{s, make(chan struct{})}
	select {
	case k.settings <- next:
	case <-ctx.Done():
		return
	}
	select {
	case <-next.done:
	case <-ctx.Done():
		return
	}
	t := time.NewTimer(settingsWait)
	defer t.Stop()
	select {
	case <-k.told.done:
	case <-t.C:
	case <-ctx.Done():
	}
}
