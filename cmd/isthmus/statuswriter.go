package main

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/analysis"
	"github.com/isthmus-mesh/isthmus/clusters/status"
	"github.com/isthmus-mesh/isthmus/cmd/isthmus/debug"
	"github.com/isthmus-mesh/isthmus/kubeapi"
	"github.com/isthmus-mesh/isthmus/pushcontext"
)

// statusEvery is how often the status of objects is worked out at most: a look at the whole snapshot.
const statusEvery = 2 * time.Second

// statusWriter writes on objects what the hub makes of them (--write-status).
type statusWriter struct {
	writer    *status.Writer
	findings  *debug.Findings
	foreign   func(*pushcontext.PushContext) []debug.Registry
	statuses  registryStatuses
	namespace string
	replica   string
	log       *slog.Logger
	wake      chan struct{} // cap 1: there is a new snapshot
	config    model.ClusterID
	inForce   func() map[model.ClusterID]*rest.Config
	used      map[model.ClusterID]*rest.Config // owned by Run
	primary   chan *rest.Config                // cap 1: the newest credential in force of the config cluster
}

func newStatusWriter(o *serveOptions, f *debug.Findings, foreign func(*pushcontext.PushContext) []debug.Registry, inForce func() map[model.ClusterID]*rest.Config, replica string, log *slog.Logger) *statusWriter {
	return &statusWriter{
		config: model.ClusterID(o.clusterID), inForce: inForce,
		foreign: foreign, statuses: registryStatuses{now: time.Now},
		writer: status.New(status.Options{Log: log}), findings: f, namespace: o.systemNamespace, replica: replica, log: log,
		wake: make(chan struct{}, 1), primary: make(chan *rest.Config, 1),
	}
}

// published says that there is a new snapshot.
func (s *statusWriter) published() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// follow takes the credentials in force, where they have changed. The Lease that decides who writes is in the config cluster.
func (s *statusWriter) follow() {
	now := s.inForce()
	for cluster, cfg := range now {
		if cfg == s.used[cluster] {
			continue
		}
		kinds, err := kubeapi.NewKinds(cfg)
		if err != nil {
			s.log.Warn("the status of objects can't be written", "cluster", cluster, "err", err)
			continue
		}
		s.writer.Use(cluster, kinds)
		if cluster == s.config {
			replace(s.primary, cfg)
		}
	}
	for cluster := range s.used {
		if now[cluster] == nil {
			s.writer.Use(cluster, nil)
		}
	}
	s.used = now
}

// Run works until ctx ends.
func (s *statusWriter) Run(ctx context.Context) error {
	var running sync.WaitGroup
	defer running.Wait()
	running.Go(func() { _ = s.writer.Run(ctx) }) // it ends with ctx
	running.Go(func() { s.elect(ctx) })
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-s.wake:
		}
		s.follow()
		if pc := s.findings.Snapshot(); pc != nil && s.writer.Leads() {
			s.writer.Set(s.objects(pc))
		}
		rest := time.NewTimer(statusEvery)
		select {
		case <-ctx.Done():
			rest.Stop()
			return ctx.Err()
		case <-rest.C:
		}
	}
}

// elect takes part in the election with the newest credential.
func (s *statusWriter) elect(ctx context.Context) {
	var running sync.WaitGroup
	defer running.Wait()
	stop := func() {}
	defer func() { stop() }()
	for {
		select {
		case <-ctx.Done():
			return
		case cfg := <-s.primary:
			stop()
			running.Wait()
			client, err := kubernetes.NewForConfig(cfg)
			if err != nil {
				s.log.Warn("nobody can be elected to write the status of objects", "err", err)
				continue
			}
			term, end := context.WithCancel(ctx)
			stop = end
			e := status.Election{Client: client, Namespace: s.namespace, Identity: s.replica, Log: s.log}
			running.Go(func() { _ = e.Run(term, s.lead) }) // it ends with term
		}
	}
}

// lead begins a term of this replica.
func (s *statusWriter) lead(term context.Context) {
	s.writer.Lead(term)
	s.published()
}

// objects gives what is to be said of the objects of API servers.
func (s *statusWriter) objects(pc *pushcontext.PushContext) map[model.ClusterID][]status.Object {
	type id struct {
		cluster model.ClusterID
		key     model.ObjectKey
	}
	all := map[id]*status.Object{}
	at := func(src model.Source) *status.Object {
		if src.Shard.Provider != model.ProviderKubernetes || !status.Has(src.Object.Kind) {
			return nil
		}
		k := id{src.Shard.Cluster, src.Object}
		if all[k] == nil {
			all[k] = &status.Object{Key: src.Object}
		}
		return all[k]
	}
	said := map[model.Source][]model.Finding{}
	for _, f := range s.findings.List() {
		k := model.Source{Shard: f.Source.Shard, Object: f.Source.Object}
		said[k] = append(said[k], f.Finding)
	}
	foreign := s.foreign(pc)
	s.statuses.begin()
	for _, c := range pc.Configs {
		if o := at(c.Source); o != nil {
			o.Generation, o.Refused, o.Status = c.Generation, c.Refused, s.own(pc, c, foreign, said)
		}
	}
	for v := range pc.Services() { // ServiceEntries
		for _, c := range v.Shape.Contributions {
			if o := at(c.Source); o != nil && o.Generation == 0 { // of one that is refused, its row says it
				o.Generation = c.Generation
			}
		}
	}
	for _, f := range s.findings.List() {
		if o := at(f.Source); o != nil && f.Code != analysis.CodeRefused { // which the condition says
			o.Findings = append(o.Findings, f.Finding)
		}
	}
	out := map[model.ClusterID][]status.Object{}
	for k, o := range all {
		out[k.cluster] = append(out[k.cluster], *o)
	}
	return out
}
