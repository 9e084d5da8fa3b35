package main

import (
	"context"
	"sync/atomic"

	"github.com/go-logr/logr"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/cmd/isthmus/remote"
	"github.com/isthmus-mesh/isthmus/secrets"
)

// claimSource is the registry of a source of credentials. It has no rows, and has synced once its claims were passed
// on: so the serving gate waits for the source, then for the clusters that it claims, and what is wrong with it shows.
type claimSource struct {
	key   model.ShardKey
	watch func(ctx context.Context, contact func(error), claims func([]secrets.Claim)) error
	tell  func([]secrets.Claim)
	relay *relay // of all registries with the key
}

// Key implements model.Registry.
func (c *claimSource) Key() model.ShardKey { return c.key }

// Run implements model.Registry.
func (c *claimSource) Run(ctx context.Context, out model.Sink) error {
	var synced atomic.Bool
	return c.watch(ctx,
		func(err error) { out.Status(contactStatus(synced.Load(), err)) },
		func(claims []secrets.Claim) {
			first := !synced.Load()
			c.relay.pass(out, first, func() { c.tell(claims) })
			if first {
				synced.Store(true)
				out.Replace(model.NewShardBuilder().Build())
			}
		})
}

// contactStatus is the status of a source that was read before, or was not, after the next try; err is nil if that
// went well.
func contactStatus(synced bool, err error) model.Status {
	switch {
	case err == nil && synced:
		return model.Status{State: model.StateLive}
	case err == nil:
		return model.Status{State: model.StateSyncing}
	case synced:
		return model.Status{State: model.StateStale, Err: err.Error()}
	}
	return model.Status{State: model.StateSyncing, Err: err.Error()}
}

// folderCredentials is the registry of --clusters-dir.
func (k *kubeSource) folderCredentials() model.Registry {
	o := secrets.FolderOptions{Options: secrets.Options{Allow: k.opts.kube.allow, Log: k.log}}
	return &claimSource{
		key: k.opts.configKey(model.ProviderFolder), relay: &relay{},
		tell: func(claims []secrets.Claim) { k.manager.Set(fromFolder, claims) },
		watch: func(ctx context.Context, _ func(error), claims func([]secrets.Claim)) error {
			return secrets.WatchFolder(ctx, k.opts.kube.clustersDir, o, claims)
		},
	}
}

// secretCredentials is the registry of the Secrets in the config cluster, read with a credential of it.
func (k *kubeSource) secretCredentials(cfg *rest.Config) model.Registry {
	return &claimSource{
		key: k.opts.configKey(model.ProviderSecrets), relay: &k.secrets,
		tell: func(claims []secrets.Claim) { k.manager.Set(fromSecrets, claims) },
		watch: func(ctx context.Context, contact func(error), claims func([]secrets.Claim)) error {
			return k.watchSecrets(ctx, cfg, contact, claims)
		},
	}
}

func (k *kubeSource) watchSecrets(ctx context.Context, cfg *rest.Config, contact func(error), claims func([]secrets.Claim)) error {
	own, release, err := remote.HTTPClient(cfg)
	if err != nil {
		return err
	}
	defer release()
	client, err := kubernetes.NewForConfigAndClient(cfg, own)
	if err != nil {
		return err
	}
	o := secrets.SecretOptions{
		Options: secrets.Options{Allow: k.opts.kube.allow, Log: k.log}, Namespace: k.opts.systemNamespace,
		OnEvent: func(event string) { k.events.WithLabelValues(event).Inc() }, OnContact: contact,
	}
	ctx = klog.NewContext(ctx, logr.Discard()) // how requests went is told by us, once
	return secrets.WatchSecrets(ctx, client, o, claims)
}
