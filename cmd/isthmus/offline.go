package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/pushcontext"
)

// offlineOptions say what a command reads that needs no running hub: the same as a hub does, with the same flags.
type offlineOptions struct {
	kube            kubeOptions
	oneCluster      bool
	clusterID       string
	domain          string
	trustDomain     string
	systemNamespace string
	vhds            bool
	timeout         time.Duration

	earlier *offline // what a hub has read before; nil for nothing
	keep    bool     // copies of files stay until close
}

func (o *offlineOptions) bind(f *pflag.FlagSet) {
	f.StringVar(&o.kube.kubeconfig, "kubeconfig", "", "read the cluster of this kubeconfig `FILE`, and the remote clusters that Secrets in it register, as a hub would")
	f.BoolVar(&o.oneCluster, "one-cluster", false, "a folder is one cluster with all its sub-folders (default if it has YAML itself, other than mesh.yaml and networks.yaml)")
	f.StringVar(&o.clusterID, "cluster-id", "", "id of the config `CLUSTER`, as the hub's flag; and of the cluster that files without a folder per cluster are of (default Kubernetes)")
	f.StringVar(&o.kube.configFrom, "config-from", fromPrimary, "where Istio configuration is read, as the hub's flag says: `primary` or all")
	f.StringVar(&o.kube.revision, "revision", "", "the hub's `REVISION`, as its flag says")
	f.BoolVar(&o.kube.mcs, "mcs", false, "the hub runs with --mcs")
	f.StringVar(&o.domain, "domain", "cluster.local", "`SUFFIX` of the names of Kubernetes services")
	f.StringVar(&o.trustDomain, "trust-domain", "", "trust `DOMAIN`, as the hub's flag")
	f.StringVar(&o.systemNamespace, "system-namespace", "istio-system", "`NAMESPACE` of the mesh's settings, as the hub's flag")
	f.DurationVar(&o.timeout, "timeout", 30*time.Second, "how long reading may take")
}

// serve gives the options of a hub that reads dir, or the cluster of the kubeconfig.
func (o *offlineOptions) serve(dir string) *serveOptions {
	s := &serveOptions{}
	serveCommand(s) // for the defaults
	k := s.kube
	k.kubeconfig, k.configFrom, k.revision, k.mcs = o.kube.kubeconfig, o.kube.configFrom, o.kube.revision, o.kube.mcs
	s.kube, s.dir, s.clusterID, s.domain, s.trustDomain, s.systemNamespace = k, dir, o.clusterID, o.domain, o.trustDomain, o.systemNamespace
	s.syncTimeout, s.vhds, s.mcp.off = 0, o.vhds, true
	s.registries.off = true
	s.endpointQuiet, s.endpointMax, s.configQuiet, s.configMax = 0, 0, 0, 0
	return s
}

// offline is what a hub would publish of what was read. Nothing is served, and nothing changes any more.
type offline struct {
	*hub
	pc       *pushcontext.PushContext
	recorder *recorder
	staged   *staged // nil of clusters with an API server
}

// errNothing is wrong usage of a command that reads.
func errNothing(command string) error {
	return usageError("name a folder or files, '-' for standard input, or --kubeconfig: see 'isthmus %s --help'", command)
}

// load reads everything once. Paths are a folder, or files; none means the kubeconfig. What can't be read is wrong usage.
func (o *offlineOptions) load(ctx context.Context, paths []string, stdin io.Reader) (*offline, error) {
	out, err := o.readAll(ctx, paths, stdin)
	if err != nil {
		return nil, &exitError{exitUsage, err}
	}
	return out, nil
}

func (o *offlineOptions) readAll(ctx context.Context, paths []string, stdin io.Reader) (*offline, error) {
	if o.timeout <= 0 {
		return nil, usageError("--timeout must be above 0")
	}
	if o.kube.kubeconfig != "" && len(paths) > 0 {
		return nil, usageError("--kubeconfig and %s are two things to read: name one", paths[0])
	}
	out := &offline{recorder: newRecorder()}
	dir := ""
	if len(paths) > 0 {
		s, err := stage(o, paths, stdin)
		if err != nil {
			return nil, err
		}
		if !o.keep {
			defer s.close()
		}
		out.staged, dir = s, s.dir
	}
	so := o.serve(dir)
	if o.earlier != nil && o.earlier.staged != nil {
		so.earlier = o.earlier.staged.dir
	}
	if out.staged != nil && out.staged.one {
		so.clusterID = out.staged.cluster
	}
	if err := so.check(); err != nil {
		return nil, err
	}
	so.watch = out.recorder.watch
	out.hub = newHub(so, slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithTimeout(ctx, o.timeout)
	defer cancel()
	if err := out.read(ctx); err != nil {
		return nil, err
	}
	out.pc = out.snapshots.Current()
	return out, nil
}

// close removes what is kept.
func (o *offline) close() {
	if o.staged != nil {
		o.staged.close()
	}
}

// doubtful says what of what was read a hub does not use as it is; "" if nothing.
func (o *offline) doubtful() string {
	var parts []string
	count := func(n int, one, more string) {
		if n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, map[bool]string{true: one, false: more}[n == 1]))
		}
	}
	refused := 0
	for _, c := range o.pc.Configs {
		if c.Refused {
			refused++
		}
	}
	count(refused, "object is refused", "objects are refused")
	if o.staged != nil {
		count(len(o.staged.broken), "file can't be read", "files can't be read")
	}
	if len(parts) == 0 {
		return ""
	}
	return strings.Join(parts, " and ") + ": see 'isthmus check'"
}

// trusted is an error if anything of what was read is doubtful.
func (o *offline) trusted() error {
	if why := o.doubtful(); why != "" {
		return &exitError{exitUsage, errors.New(why)}
	}
	return nil
}

// read runs the hub's sources until there is a snapshot of all that they have, and ends them.
func (o *offline) read(ctx context.Context) error {
	work, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	g := &parts{log: o.log, ended: ended}
	defer g.wait()
	defer cancel()
	for _, s := range o.sources {
		if err := s.Scan(); err != nil {
			return err
		}
	}
	g.run(work, o.controller.Run)
	for _, s := range o.sources {
		g.run(work, s.Run)
	}
	awaited := []<-chan struct{}{o.controller.ReadyCh()}
	if o.staged != nil { // files are all read by then, and it is about to be told what is wrong with them
		awaited = append(awaited, o.recorder.told)
	}
	for _, ready := range awaited {
		select {
		case <-ready:
		case <-ended:
			return fmt.Errorf("it can't be read: %w", cmp.Or(g.err, errEnded))
		case <-ctx.Done():
			return o.late(ctx)
		}
	}
	return nil
}

// errEnded is the reason of what gives none.
var errEnded = errors.New("reading ended early")

// late says what has not come.
func (o *offline) late(ctx context.Context) error {
	var why []string
	for _, s := range o.controller.Shards() {
		if !s.Synced {
			why = append(why, strings.TrimSuffix(fmt.Sprintf("%s: %s: %s", s.Key, s.Status.State, s.Status.Err), ": "))
		}
	}
	slices.Sort(why)
	if len(why) == 0 {
		return fmt.Errorf("not all could be read: %w", context.Cause(ctx))
	}
	return fmt.Errorf("not all could be read within --timeout: %s", strings.Join(why, "; "))
}

// located is something wrong with a file or an object, beside the findings.
type located struct {
	cluster model.ClusterID
	model.Problem
}

// problems are what could not be read, in order.
func (o *offline) problems() (out []located) {
	for _, s := range o.controller.Shards() {
		list := s.Status.Problems
		if kept, ok := o.recorder.status(s.Key); ok {
			list = kept.Problems
			if kept.State == model.StateStale {
				list = append(slices.Clip(list), model.Problem{Reason: kept.Err})
			}
		}
		for _, p := range list {
			out = append(out, located{s.Key.Cluster, p})
		}
	}
	return out
}

// several reports whether there is more than one cluster.
func (o *offline) several() bool { return len(o.clusters()) > 1 }
