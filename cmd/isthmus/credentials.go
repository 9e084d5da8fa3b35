package main

import (
	"context"
	"slices"
	"sync"

	"k8s.io/client-go/rest"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
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
	var is sourceStatus
	return c.watch(ctx,
		func(err error) { out.Status(is.set(func() { is.lost = err })) },
		func(claims []secrets.Claim) {
			first := !is.hasSynced()
			c.relay.pass(out, first, func() { c.tell(claims) })
			problems := nameless(claims)
			if first {
				is.set(func() { is.synced = true })
				out.Replace(model.NewShardBuilder().Build())
			}
			if is.differ(problems) {
				out.Status(is.set(func() { is.problems = problems }))
			}
		})
}

// nameless are the claims that do not even tell of which cluster they are: there is no registry that could show what
// is wrong with them.
func nameless(claims []secrets.Claim) (out []model.Problem) {
	for _, c := range claims {
		if c.Cluster == "" && c.Err != nil {
			out = append(out, model.Problem{Item: c.Source, Reason: c.Err.Error()})
		}
	}
	return out
}

// sourceStatus is how a source of credentials is.
type sourceStatus struct {
	mu       sync.Mutex
	synced   bool            // guarded by mu, as is the rest: its claims were passed on
	lost     error           // why there is no contact
	problems []model.Problem // of its items
}

func (s *sourceStatus) hasSynced() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.synced
}

func (s *sourceStatus) differ(problems []model.Problem) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !slices.Equal(s.problems, problems)
}

// set makes a change and gives the status after it.
func (s *sourceStatus) set(change func()) model.Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
	st := contactStatus(s.synced, s.lost)
	st.Problems = s.problems
	return st
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
	o := secrets.SecretOptions{
		Options: secrets.Options{Allow: k.opts.kube.allow, Log: k.log}, Namespace: k.opts.systemNamespace,
		OnEvent: func(event string) { k.events.WithLabelValues(event).Inc() }, OnContact: contact,
	}
	return secrets.WatchSecrets(ctx, cfg, o, claims)
}
