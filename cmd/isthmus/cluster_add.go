package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/isthmus-mesh/isthmus/cmd/isthmus/debug"
	"github.com/isthmus-mesh/isthmus/cmd/isthmus/output"
	"github.com/isthmus-mesh/isthmus/cmd/isthmus/remote"
	"github.com/isthmus-mesh/isthmus/secrets"
)

// clusterAdd is one run of 'isthmus cluster add'.
type clusterAdd struct {
	primary
	wait
	reads
	remoteKubeconfig string
	name             string
	server           string
	tlsServerName    string
	duration         time.Duration
	dryRun           string // "", bothSides, or one of sides

	out, progress io.Writer
}

func newClusterAdd(now func() time.Time) *cobra.Command {
	a := &clusterAdd{wait: wait{view: view{now: now}}}
	c := &cobra.Command{
		Use:   "add [CONTEXT]",
		Short: "Register a remote cluster with the hub, or renew its credential",
		Long: `Register a remote cluster: make an account for the hub in it that may list and watch what the hub
serves, take a token of the account, and write a Secret with it into the primary cluster.

The account gets the rights that a hub with default flags needs; if yours runs with --config-from all or
--mcs, say so here too.

CONTEXT is the remote cluster's context in your kubeconfig, or in --remote-kubeconfig, whose current
context is the default. You need to be allowed to create roles there, and Secrets in the primary.

Run it again to renew the token: the hub uses the new one once it works, and the old one until then.
The name of the cluster is what its proxies have as CLUSTER_ID.`,
		Example: `  isthmus cluster add west
  isthmus cluster add kind-west --name west --server https://172.18.0.3:6443
  isthmus cluster add --remote-kubeconfig west.yaml --name west --kubeconfig primary.yaml
  isthmus cluster add west --dry-run=remote > remote.yaml`,
		Args: atMostOne("CONTEXT"),
	}
	c.RunE = func(c *cobra.Command, args []string) error {
		a.out, a.progress = c.OutOrStdout(), c.ErrOrStderr()
		return a.run(c.Context(), append(args, "")[0])
	}
	f := c.Flags()
	f.StringVar(&a.remoteKubeconfig, "remote-kubeconfig", "", "kubeconfig `FILE` of the remote cluster (default: that of the primary)")
	f.StringVar(&a.name, "name", "", "`CLUSTER` id (default: CONTEXT)")
	f.StringVar(&a.server, "server", "", "`URL` of the remote API server as the hub sees it (default: that of CONTEXT)")
	f.StringVar(&a.tlsServerName, "tls-server-name", "", "`NAME` in the certificate of the remote API server (default: that of CONTEXT, or the host of the URL)")
	f.DurationVar(&a.duration, "token-duration", 365*24*time.Hour, "how long the token shall be valid; the API server may allow less")
	a.reads.bind(c)
	bindDryRun(f, &a.dryRun)
	a.bindFormat(c)
	a.primary.bind(c)
	a.wait.bind(c)
	return c
}

// atMostOne lets one word follow.
func atMostOne(name string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if len(args) > 1 {
			return usageError("want one %s, and no %q: see '%s --help'", name, args[1], c.CommandPath())
		}
		return nil
	}
}

func (a *clusterAdd) run(ctx context.Context, context string) error {
	if err := a.check(context); err != nil {
		return err
	}
	far, err := openRemote(a.remoteKubeconfig, a.kubeconfig, context)
	if err != nil {
		return err
	}
	defer far.close()
	if a.name == "" {
		a.name = far.context
	}
	if err := validName(a.name); err != nil {
		return err
	}
	target, err := remote.NewTarget(a.name, far.config, a.server, a.tlsServerName)
	if err != nil {
		return fmt.Errorf("context %q: %w", far.context, err)
	}
	if a.dryRun != "" {
		return a.print(far, target)
	}
	if err := a.apply(ctx, far, target); ctx.Err() != nil {
		return errors.New("interrupted: what was done is told above; running the command again does the rest, and harms nothing")
	} else if err != nil {
		return err
	}
	return nil
}

func (a *clusterAdd) check(context string) error {
	switch {
	case context == "" && a.remoteKubeconfig == "":
		return usageError("name the remote cluster: CONTEXT in your kubeconfig, or --remote-kubeconfig FILE")
	case a.duration < 10*time.Minute:
		return usageError("--token-duration must be at least 10m: API servers give no shorter tokens")
	case a.server != "" && !strings.HasPrefix(a.server, "https://"):
		return usageError("--server must be a URL like https://HOST:PORT")
	}
	for _, check := range []func() error{func() error { return checkFormat(a.format) }, func() error { return checkDryRun(a.dryRun) }, a.reads.check, a.wait.check} {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

// validName refuses names that can't be a cluster's id.
func validName(name string) error {
	if secrets.ValidCluster(name) {
		return nil
	}
	return usageError("%q can't be a cluster's name: give it one of up to 63 letters, digits, '-', '_' and '.' with --name, with no '-' at an end and no '.' at the last place", name)
}

// apply changes both clusters.
func (a *clusterAdd) apply(ctx context.Context, far *access, target remote.Target) error {
	near, err := a.cluster()
	if err != nil {
		return err
	}
	defer near.close()
	if err := a.refuse(ctx, near, far, target); err != nil {
		return err
	}
	objects, err := remote.Manifests(a.namespace, a.reads.rights())
	if err != nil {
		return err
	}
	if err := remote.Apply(ctx, far.dynamic, objects, a.did("remote")); err != nil {
		return fmt.Errorf("in the remote cluster (context %s): %w", far.context, err)
	}
	token, expires, err := remote.Token(ctx, far.client, a.namespace, a.duration)
	if err != nil {
		return fmt.Errorf("in the remote cluster (context %s): %w", far.context, err)
	}
	a.did("remote")(tokenLine(expires, a.now().Add(a.duration)))
	kubeconfig, err := target.Kubeconfig(token)
	if err != nil {
		return err
	}
	secret := remote.Secret(a.namespace, a.name, kubeconfig)
	if err := remote.Apply(ctx, near.dynamic, []*unstructured.Unstructured{secret}, a.did("primary")); err != nil {
		return fmt.Errorf("in the primary cluster (context %s): %w", near.context, err)
	}
	state, err := a.synced(ctx, a.name, secrets.Hash(kubeconfig), a.progress)
	if err != nil {
		return err
	}
	return a.report(added{Cluster: a.name, Secret: a.namespace + "/" + secret.GetName(), Server: target.Server, Expires: expires, State: state})
}

// did tells what was done in a cluster.
func (a *clusterAdd) did(where string) func(string) {
	return func(what string) { fmt.Fprintf(a.progress, "%s: %s\n", where, what) }
}

// tokenLine says when the token really ends: API servers cut long ones short.
func tokenLine(expires, asked time.Time) string {
	line := "token until " + expires.UTC().Format(time.RFC3339)
	if asked.Sub(expires) > time.Hour {
		line += ", earlier than asked for: the API server allows no longer; run this command again before that"
	}
	return line
}

// refuse finds out, before anything is changed, whether it would be of no use, or do harm.
func (a *clusterAdd) refuse(ctx context.Context, near, far *access, target remote.Target) error {
	here, err := remote.ClusterUID(ctx, near.client)
	if err != nil {
		return fmt.Errorf("in the primary cluster (context %s): %w", near.context, err)
	}
	there, err := remote.ClusterUID(ctx, far.client)
	if err != nil {
		return fmt.Errorf("in the remote cluster (context %s): %w", far.context, err)
	}
	if here != "" && here == there {
		return usageError("context %s is the primary cluster itself, which the hub reads without being told; if another is the primary, name it with --context", far.context)
	}
	registered, err := remote.Registrations(ctx, near.client, a.namespace, "")
	if err != nil {
		return fmt.Errorf("in the primary cluster (context %s): %w", near.context, err)
	}
	for _, o := range registered {
		if o.Cluster == a.name && o.Secret != remote.SecretName(a.name) {
			return fmt.Errorf("%s is registered by Secret %s/%s already, and of two the older one wins: take it out of there with 'isthmus cluster remove %s', or choose another --name",
				a.name, a.namespace, o.Secret, a.name)
		}
	}
	hub, err := a.reach(ctx)
	if err := a.ownID(hub); err != nil {
		return err
	}
	if err != nil {
		return err
	}
	if twin, where := a.twin(ctx, there, target.Server, registered, hub); twin != "" {
		return fmt.Errorf("nothing was changed: context %s is the cluster %s already, by %s, and a cluster under two names counts twice; take it out of there first, with 'isthmus cluster remove %s' if that is a Secret",
			far.context, twin, where, twin)
	}
	if why := useless(hub, a.name); a.on && why != "" {
		return fmt.Errorf("nothing was changed: %s", why)
	}
	return nil
}

// ownID refuses the primary's own id: what the hub says that is, or the default.
func (a *clusterAdd) ownID(hub []debug.Cluster) error {
	own := defaultClusterID
	for _, c := range hub {
		if c.ConfigCluster {
			own = c.ID
		}
	}
	if a.name == own {
		return usageError("%s is the primary's own id: choose another with --name", a.name)
	}
	return nil
}

// twin is another name that the cluster is read under, and what registers it; "" if none is known. The hub knows of
// all that it reads; of others their API servers are asked.
func (a *clusterAdd) twin(ctx context.Context, uid, server string, registered []remote.Registration, hub []debug.Cluster) (name, where string) {
	known := map[string]bool{a.name: true}
	for _, c := range hub {
		if c.UID == "" {
			continue
		}
		if known[c.ID] = true; c.UID == uid && c.ID != a.name {
			return c.ID, c.Credential.Source
		}
	}
	ctx, cancel := context.WithTimeout(ctx, askFor)
	defer cancel()
	for _, r := range registered {
		switch {
		case r.Cluster == a.name:
			continue
		case r.Server() == server:
		case known[r.Cluster] || uid == "":
			continue
		default:
			if other, err := r.ClusterUID(ctx); err != nil || other != uid {
				continue // one that can't be reached is the matter of 'isthmus cluster check'
			}
		}
		return r.Cluster, secretSource + a.namespace + "/" + r.Secret
	}
	return "", ""
}

// added is what came of it.
type added struct {
	Cluster string    `json:"cluster"`
	Secret  string    `json:"secret"`
	Server  string    `json:"server"`
	Expires time.Time `json:"expires"`
	State   string    `json:"state,omitempty"` // of the hub's contact; "" if it was not asked
}

func (a *clusterAdd) report(r added) error {
	if a.format != output.Text && a.format != output.Wide {
		return output.Encode(a.out, a.format, r)
	}
	t := output.Table{Header: []string{"CLUSTER", "SECRET", "SERVER", "EXPIRES", "STATE"}}
	t.Add(r.Cluster, r.Secret, r.Server, r.Expires.UTC().Format(time.RFC3339), r.State)
	return t.Write(a.out)
}
