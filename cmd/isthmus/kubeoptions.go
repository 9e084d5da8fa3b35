package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/spf13/pflag"

	"github.com/isthmus-mesh/isthmus/secrets"
)

// kubeOptions are the flags of serve that concern clusters with an API server.
type kubeOptions struct {
	kubeconfig   string
	inCluster    bool
	clustersDir  string
	meshConfig   string
	meshNetworks string
	configFrom   string
	revision     string
	mcs          bool
	stateDir     string
	insecure     string
	qps          float32
	burst        int

	allow secrets.Allow // what insecure says
}

// Values of --config-from.
const (
	fromPrimary = "primary"
	fromAll     = "all"
)

func (k *kubeOptions) bind(f *pflag.FlagSet) {
	f.StringVar(&k.kubeconfig, "kubeconfig", "", "kubeconfig `FILE` of the config cluster (default in a pod: its own cluster, unless --dir is given)")
	f.BoolVar(&k.inCluster, "in-cluster", false, "the config cluster is the one that this pod runs in; =false: it is not")
	f.StringVar(&k.clustersDir, "clusters-dir", "", "`DIR` of kubeconfigs, one for each remote cluster")
	f.StringVar(&k.meshConfig, "mesh-config", "", "`FILE` with the MeshConfig (default: the ConfigMap istio of the config cluster)")
	f.StringVar(&k.meshNetworks, "mesh-networks", "", "`FILE` with the MeshNetworks (default: the same ConfigMap)")
	f.StringVar(&k.configFrom, "config-from", fromPrimary, "where Istio configuration is read: primary (the config cluster) or all; WorkloadEntries are read everywhere")
	f.StringVar(&k.revision, "revision", "", "`REVISION` of Istio whose settings count: those of the ConfigMap istio-REVISION in place of istio, in every cluster")
	f.BoolVar(&k.mcs, "mcs", false, "only services with a ServiceExport cross clusters (Multi-Cluster Services API)")
	f.StringVar(&k.stateDir, "state-dir", "", "`DIR` to keep what clusters and registries said last: served after a restart while they can't be reached")
	f.StringVar(&k.insecure, "insecure-kubeconfig-options", "", "`LIST` of what kubeconfigs of remote clusters may use: "+strings.Join(secrets.AllowNames(), ","))
	f.Float32Var(&k.qps, "kubernetes-api-qps", secrets.DefaultQPS, "requests per second to each API server at most")
	f.IntVar(&k.burst, "kubernetes-api-burst", secrets.DefaultBurst, "how many of them at once")
}

// hasPrimary reports whether there is a config cluster with an API server.
func (k *kubeOptions) hasPrimary() bool { return k.kubeconfig != "" || k.inCluster }

func (k *kubeOptions) any() bool { return k.hasPrimary() || k.clustersDir != "" }

// detect makes the pod's own cluster the config cluster if no flag says another, or that there is none.
func (o *serveOptions) detect(flags *pflag.FlagSet, env func(string) string) {
	if o.dir == "" && o.kube.kubeconfig == "" && !flags.Changed("in-cluster") && env("KUBERNETES_SERVICE_HOST") != "" {
		o.kube.inCluster = true
	}
}

func (k *kubeOptions) check() (err error) {
	switch {
	case k.kubeconfig != "" && k.inCluster:
		return usageError("--kubeconfig and --in-cluster both name the config cluster: use one")
	case !(k.qps > 0) || k.burst < 1:
		return usageError("--kubernetes-api-qps and --kubernetes-api-burst must be above 0")
	}
	if err := checkConfigFrom(k.configFrom); err != nil {
		return err
	}
	if err := checkRevision(k.revision); err != nil {
		return err
	}
	if k.allow, err = secrets.ParseAllow(k.insecure); err != nil {
		return usageError("--insecure-kubeconfig-options: %w", err)
	}
	for _, f := range []struct{ flag, path string }{
		{"kubeconfig", k.kubeconfig}, {"mesh-config", k.meshConfig}, {"mesh-networks", k.meshNetworks},
	} {
		if info, err := os.Stat(f.path); f.path != "" && err != nil {
			return fmt.Errorf("--%s: %w", f.flag, err)
		} else if f.path != "" && info.IsDir() {
			return fmt.Errorf("--%s: %s is a folder; name a file", f.flag, f.path)
		}
	}
	return k.checkDirs()
}

func (k *kubeOptions) checkDirs() error {
	if k.clustersDir != "" {
		if info, err := os.Stat(k.clustersDir); err != nil {
			return fmt.Errorf("--clusters-dir: %w", err)
		} else if !info.IsDir() {
			return fmt.Errorf("--clusters-dir: %s is a file; name the folder that holds the kubeconfigs", k.clustersDir)
		}
		if _, err := os.ReadDir(k.clustersDir); err != nil {
			return fmt.Errorf("--clusters-dir: %w", err)
		}
	}
	if k.stateDir == "" {
		return nil
	}
	return writable(k.stateDir)
}

// writable makes sure that the folder exists and takes files, before it is relied on.
func writable(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("--state-dir: %w", err)
	}
	f, err := os.CreateTemp(dir, ".try-*")
	if err != nil {
		return fmt.Errorf("--state-dir: %w", err)
	}
	if err := errors.Join(f.Close(), os.Remove(f.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("--state-dir: %w", err)
	}
	return nil
}
