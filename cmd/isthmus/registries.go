package main

import (
	"context"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/rest"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/clusters"
	"github.com/isthmus-mesh/isthmus/clusters/file"
	"github.com/isthmus-mesh/isthmus/mcp/client"
)

// source finds registries of one kind and attaches them as they come and go.
type source interface {
	// Scan attaches those that exist now, so that serving waits for them.
	Scan() error
	// Members are the credentials of the clusters, none if they need none.
	Members() []clusters.Member
	// Run follows changes until ctx ends.
	Run(ctx context.Context) error
}

// sourceDeps is what every kind of source needs.
type sourceDeps struct {
	opts       *serveOptions
	life       *settings
	log        *slog.Logger
	registerer prometheus.Registerer
	upstreams  *client.Metrics    // of all MCP servers
	held       *heldBack          // of all registries
	ready      <-chan struct{}    // closed when serving begins
	primary    func(*rest.Config) // told of each credential of the config cluster
}

// sources maps each kind to its constructor; one returns nil if its flags are not set.
func sources() map[string]func(sourceDeps) source {
	return map[string]func(sourceDeps) source{
		"dir":        folders,
		"kubernetes": newKubeSource,
		"registries": newRegistrySource,
		"mcp":        newMCPSource,
	}
}

// folders reads --dir.
func folders(d sourceDeps) source {
	if d.opts.dir == "" {
		return nil
	}
	problems := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "isthmus_file_problems_total", Help: "Items of a cluster's folder that could not be used, counted once each.",
	}, []string{"cluster"})
	d.registerer.MustRegister(problems)
	return &folder{log: d.log, dir: d.opts.dir, Root: file.NewRoot(file.RootOptions{
		Dir: d.opts.dir, Mesh: model.ClusterID(d.opts.clusterID),
		Member: file.Options{
			DomainSuffix: d.opts.domain, TrustDomain: d.opts.trustDomain, SystemNamespace: d.opts.systemNamespace,
			MCS: d.opts.kube.mcs, Log: d.log, Earlier: d.opts.earlier,
			OnProblem: func(k model.ShardKey, _ model.Problem) { problems.WithLabelValues(string(k.Cluster)).Inc() },
		},
	}, d.life)}
}

// folder is --dir.
type folder struct {
	*file.Root
	log *slog.Logger
	dir string
}

// Scan implements source.
func (f *folder) Scan() error {
	err := f.Root.Scan()
	if err == nil && len(f.Root.Clusters()) == 0 {
		f.log.Warn("there is no cluster yet: each folder in --dir is one; of the files in it only mesh.yaml and networks.yaml are read", "dir", f.dir)
	}
	return err
}

// Members implements source.
func (f *folder) Members() []clusters.Member { return nil }
