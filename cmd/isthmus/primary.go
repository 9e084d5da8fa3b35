package main

import (
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"

	"github.com/isthmus-mesh/isthmus/cmd/isthmus/remote"
)

// primary is the cluster with the Secrets of the others, as the commands that change them are told.
type primary struct {
	kubeconfig string
	context    string
	namespace  string
}

func (p *primary) bind(c *cobra.Command) {
	c.Flags().StringVar(&p.kubeconfig, "kubeconfig", "", "kubeconfig `FILE` of the primary cluster (default: $KUBECONFIG or ~/.kube/config)")
	c.Flags().StringVar(&p.context, "context", "", "`CONTEXT` of the primary cluster (default: the current one)")
	c.Flags().StringVar(&p.namespace, "system-namespace", remote.DefaultNamespace, "`NAMESPACE` of the Secrets in the primary cluster, and of the hub's account in remote ones")
}

// reads are the hub's flags that say what it reads in remote clusters.
type reads struct {
	configFrom string
	mcs        bool
	revision   string
}

func (r *reads) bind(c *cobra.Command) {
	c.Flags().StringVar(&r.configFrom, "config-from", fromPrimary, "where the hub reads Istio configuration, as its flag says: `primary` or all")
	c.Flags().BoolVar(&r.mcs, "mcs", false, "the hub runs with --mcs")
	c.Flags().StringVar(&r.revision, "revision", "", "the hub's `REVISION`, as its flag says")
}

func (r *reads) check() error {
	if err := checkRevision(r.revision); err != nil {
		return err
	}
	return checkConfigFrom(r.configFrom)
}

// checkRevision refuses what can't end the name of a ConfigMap.
func checkRevision(s string) error {
	if why := validation.IsDNS1123Label(s); s != "" && len(why) > 0 {
		return usageError("--revision %q: %s", s, why[0])
	}
	return nil
}

// rights are what the hub needs for it.
func (r *reads) rights() remote.Reads {
	return remote.Reads{Config: r.configFrom == fromAll, MCS: r.mcs, Revision: r.revision}
}

func checkConfigFrom(s string) error {
	if s != fromPrimary && s != fromAll {
		return usageError("--config-from %s: want %s or %s", s, fromPrimary, fromAll)
	}
	return nil
}

// cluster gives clients of the primary cluster.
func (p *primary) cluster() (*access, error) { return open("primary", p.kubeconfig, p.context) }

// access is a cluster that a command talks to.
type access struct {
	config  *rest.Config
	context string // its name in the kubeconfig
	client  kubernetes.Interface
	dynamic dynamic.Interface
	close   func() // ends the connections
}

// openRemote opens a remote cluster: a context of its own kubeconfig, or of the primary's.
func openRemote(own, primary, context string) (*access, error) {
	if own == "" {
		own = primary
	}
	return open("remote", own, context)
}

// open reads a kubeconfig and makes clients of one context, or of the current one.
func open(which, kubeconfig, context string) (*access, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = kubeconfig
	loader := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: context})
	raw, err := loader.RawConfig()
	if err != nil {
		return nil, fmt.Errorf("read the kubeconfig of the %s cluster: %w", which, err)
	}
	if context == "" {
		context = raw.CurrentContext
	}
	if raw.Contexts[context] == nil {
		return nil, noContext(which, kubeconfig, context, rules)
	}
	if kind := dangling(&raw, context); kind != "" {
		return nil, fmt.Errorf("context %q of the %s cluster names a %s that its kubeconfig does not have", context, which, kind)
	}
	cfg, err := loader.ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("context %q of the %s cluster: %w", context, which, err)
	}
	return connect(cfg, context)
}

// dangling says what a context names in vain: "cluster", "user", or "".
func dangling(raw *api.Config, context string) string {
	c := raw.Contexts[context]
	switch {
	case raw.Clusters[c.Cluster] == nil:
		return "cluster"
	case c.AuthInfo != "" && raw.AuthInfos[c.AuthInfo] == nil:
		return "user"
	}
	return ""
}

// noContext says what was looked for in vain, and where.
func noContext(which, kubeconfig, context string, rules *clientcmd.ClientConfigLoadingRules) error {
	where := kubeconfig
	if where == "" {
		where = fmt.Sprint(rules.Precedence)
	}
	if context == "" {
		return fmt.Errorf("the kubeconfig of the %s cluster, %s, has no current context: name one", which, where)
	}
	return fmt.Errorf("there is no context %q for the %s cluster in %s: 'kubectl config get-contexts' lists those that there are", context, which, where)
}

func connect(cfg *rest.Config, context string) (*access, error) {
	cfg.QPS, cfg.Burst = 50, 100
	cfg.UserAgent = "isthmus/" + build().Version
	own, release, err := remote.HTTPClient(cfg)
	if err != nil {
		return nil, fmt.Errorf("context %q: %w", context, err)
	}
	a := &access{config: cfg, context: context, close: release}
	if a.client, err = kubernetes.NewForConfigAndClient(cfg, own); err != nil {
		return nil, fmt.Errorf("context %q: %w", context, err)
	}
	if a.dynamic, err = dynamic.NewForConfigAndClient(cfg, own); err != nil {
		return nil, fmt.Errorf("context %q: %w", context, err)
	}
	return a, nil
}
