package secrets

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"time"

	"k8s.io/client-go/rest"
)

// KubeconfigOptions configure WatchKubeconfig.
type KubeconfigOptions struct {
	File    string // of the hub's own kubeconfig; "" = the service account of the pod that the hub runs in
	Cluster string // the id of the cluster that it leads to
	Log     *slog.Logger
}

// WatchKubeconfig follows the hub's own credential until ctx ends, and then returns nil. Its author is trusted: it
// may run programs and name files, relative to its own folder. It must be usable at the start. Later, a file that
// can't be used is a claim with an Err, and one that has gone changes nothing. The token of a service account is read
// again by the client itself.
func WatchKubeconfig(ctx context.Context, o KubeconfigOptions, out func([]Claim)) error {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.File == "" {
		c, err := inCluster(o.Cluster)
		if err != nil {
			return err
		}
		out([]Claim{c})
		<-ctx.Done()
		return nil
	}
	k := &ownKubeconfig{opts: o, file: file{path: o.File}}
	return followDir(ctx, filepath.Dir(o.File), func(now time.Time) (time.Time, error) {
		claim, changed, next, err := k.look(now)
		if changed {
			out([]Claim{claim})
		}
		return next, err
	})
}

// inCluster is the claim of a hub that runs in a pod.
func inCluster(cluster string) (Claim, error) {
	cfg, err := rest.InClusterConfig()
	if errors.Is(err, rest.ErrNotInCluster) {
		return Claim{}, errors.New("no kubeconfig is named, and the hub does not run in a pod")
	} else if err != nil {
		return Claim{}, fmt.Errorf("service account of the pod: %w", err)
	}
	cfg.QPS, cfg.Burst = DefaultQPS, DefaultBurst
	return Claim{Cluster: cluster, Source: "service account of the pod", Hash: "in-cluster", Config: cfg}, nil
}

// ownKubeconfig is the hub's own kubeconfig.
type ownKubeconfig struct {
	opts KubeconfigOptions
	file file
	last Claim
	lost bool // the file has gone
}

// look reads the file if it is new. An error means that there never was a usable one.
func (k *ownKubeconfig) look(now time.Time) (c Claim, changed bool, next time.Time, err error) {
	fresh, next := k.file.look(now)
	if k.file.away(now) {
		next = time.Time{}
		if !k.lost {
			k.opts.Log.Warn("kubeconfig has gone; its last content counts", "cluster", k.opts.Cluster)
		}
		k.lost = true
	}
	started := k.last.Source != ""
	if !fresh {
		if !started {
			err = fmt.Errorf("kubeconfig %s: no such file", k.opts.File)
		}
		return Claim{}, false, next, err
	}
	k.lost = false
	c = k.read()
	if !started && c.Err != nil {
		return Claim{}, false, next, fmt.Errorf("kubeconfig %s: %w", k.opts.File, c.Err)
	}
	changed = c.Hash != k.last.Hash || (c.Err == nil) != (k.last.Err == nil)
	k.last = c
	return c, changed, next, nil
}

func (k *ownKubeconfig) read() Claim {
	c := Claim{Cluster: k.opts.Cluster, Source: k.opts.File}
	content, err := k.file.read()
	if err != nil {
		c.Err = err
		return c
	}
	c.Hash = Hash(content)
	cfg, err := load(content)
	if err == nil {
		s := sanitiser{allow: AllowNames(), dir: filepath.Dir(k.opts.File)}
		c.Config, err = s.sanitise(cfg)
	}
	if err != nil {
		c.Config, c.Err = nil, err
		return c
	}
	c.Expires = Expiry(c.Config)
	return c
}
