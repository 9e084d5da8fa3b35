package main

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/clusters"
	"github.com/isthmus-mesh/isthmus/cmd/isthmus/remote"
	"github.com/isthmus-mesh/isthmus/secrets"
)

// watchPrimary follows the credential of the config cluster.
func (k *kubeSource) watchPrimary(ctx context.Context) error {
	o := secrets.KubeconfigOptions{File: k.opts.kube.kubeconfig, Cluster: k.opts.clusterID, Log: k.log}
	used := ""
	return secrets.WatchKubeconfig(ctx, o, func(claims []secrets.Claim) {
		k.tell(clusters.Primary, claims)
		for _, c := range claims {
			if c.Err != nil || c.Hash == used {
				continue
			}
			used = c.Hash
			k.readSettings(c.Config)
			select {
			case <-k.primary: // one that nobody has taken yet
			default:
			}
			k.primary <- c.Config
		}
	})
}

// watchFolder follows --clusters-dir.
func (k *kubeSource) watchFolder(ctx context.Context) error {
	o := secrets.FolderOptions{Options: secrets.Options{Allow: k.opts.kube.allow, Log: k.log}}
	return secrets.WatchFolder(ctx, k.opts.kube.clustersDir, o, func(claims []secrets.Claim) { k.tell(fromFolder, claims) })
}

// watching is one watch of the Secrets.
type watching struct {
	stop    context.CancelFunc
	problem atomic.Pointer[model.Problem] // why they can't be read; nil if they can
}

// contact remembers whether the API server can be asked.
func (w *watching) contact(err error) {
	if err == nil {
		w.problem.Store(nil)
		return
	}
	w.problem.Store(&model.Problem{Item: "Secrets", Reason: "those of remote clusters can't be read; the clusters stay as they are: " + err.Error(), Since: time.Now()})
}

// Problems implements source.
func (k *kubeSource) Problems() []model.Problem {
	if w := k.watching.Load(); w != nil {
		if p := w.problem.Load(); p != nil {
			return []model.Problem{*p}
		}
	}
	return nil
}

// listing is the claims of all Secrets, as a watch has them.
type listing struct {
	from   *watching
	claims []secrets.Claim
}

// watchSecrets follows the Secrets of the config cluster. When its credential changes, a watch with the new
// one is started beside the one that serves, which ends with the first listing of the new one.
func (k *kubeSource) watchSecrets(ctx context.Context) error {
	var running sync.WaitGroup
	defer running.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	listings := make(chan listing)
	none := &watching{stop: func() {}}
	serving, trying := none, none
	for {
		select {
		case cfg := <-k.primary:
			trying.stop()
			own, stop := context.WithCancel(ctx)
			trying = &watching{stop: stop}
			from := trying
			if serving == none {
				k.watching.Store(trying)
			}
			running.Go(func() { k.watchSecretsWith(own, cfg, from, listings) })
		case l := <-listings:
			switch l.from {
			case serving:
			case trying:
				serving.stop()
				serving, trying = trying, none
				k.watching.Store(serving)
			default:
				continue // has been told to stop
			}
			k.tell(fromSecrets, l.claims)
		case <-ctx.Done():
			return nil
		}
	}
}

func (k *kubeSource) watchSecretsWith(ctx context.Context, cfg *rest.Config, from *watching, out chan<- listing) {
	own, release, err := remote.HTTPClient(cfg)
	if err != nil {
		k.log.Error("the Secrets of remote clusters can't be watched", "err", err)
		return
	}
	defer release()
	client, err := kubernetes.NewForConfigAndClient(cfg, own)
	if err != nil {
		k.log.Error("the Secrets of remote clusters can't be watched", "err", err)
		return
	}
	o := secrets.SecretOptions{
		Options: secrets.Options{Allow: k.opts.kube.allow, Log: k.log}, Namespace: k.opts.systemNamespace,
		OnEvent: func(event string) { k.events.WithLabelValues(event).Inc() }, OnContact: from.contact,
	}
	err = secrets.WatchSecrets(ctx, client, o, func(claims []secrets.Claim) {
		select {
		case out <- listing{from, claims}:
		case <-ctx.Done():
		}
	})
	if err != nil {
		k.log.Error("the Secrets of remote clusters can't be watched", "err", fmt.Errorf("namespace %s: %w", o.Namespace, err))
	}
}
