package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/isthmus-mesh/isthmus/cmd/isthmus/remote"
)

// clusterRemove is one run of 'isthmus cluster remove'.
type clusterRemove struct {
	primary
	wait
	remoteKubeconfig string
	remoteContext    string
	secret           string
	yes              bool
	force            bool

	in       io.Reader
	progress io.Writer
}

func newClusterRemove(now func() time.Time) *cobra.Command {
	r := &clusterRemove{wait: wait{view: view{now: now}}}
	c := &cobra.Command{
		Use:   "remove NAME",
		Short: "Take a remote cluster out of the mesh",
		Long: `Take a remote cluster out of the mesh: its kubeconfig is taken out of its Secret in the primary
cluster, and the hub drops everything that the cluster brought, at once.

With --remote-context or --remote-kubeconfig the hub's account and its roles in the remote cluster are
deleted too, which makes every token of it invalid. The namespace stays. That is refused if the Secret
leads to another cluster, or if another registration uses the account too.`,
		Example: `  isthmus cluster remove west
  isthmus cluster remove west --remote-context west --yes
  isthmus cluster remove west --remote-kubeconfig west.yaml --wait=false`,
		Args: words("NAME"),
	}
	c.RunE = func(c *cobra.Command, args []string) error {
		r.in, r.progress = c.InOrStdin(), c.ErrOrStderr()
		return r.run(c.Context(), args[0])
	}
	f := c.Flags()
	f.StringVar(&r.remoteKubeconfig, "remote-kubeconfig", "", "kubeconfig `FILE` of the remote cluster: delete the hub's account there too")
	f.StringVar(&r.remoteContext, "remote-context", "", "`CONTEXT` of the remote cluster, in that file or in the primary's: likewise")
	f.StringVar(&r.secret, "secret", "", "`NAME` of the Secret, if several register the cluster")
	f.BoolVar(&r.force, "force", false, "delete the account there even if the Secret leads to another cluster, or others use it")
	f.BoolVar(&r.yes, "yes", false, "do not ask")
	r.primary.bind(c)
	r.wait.bind(c)
	return c
}

func (r *clusterRemove) run(ctx context.Context, cluster string) error {
	if err := r.wait.check(); err != nil {
		return err
	}
	near, err := r.cluster()
	if err != nil {
		return err
	}
	defer near.close()
	var far *access
	if r.remoteKubeconfig != "" || r.remoteContext != "" {
		if far, err = openRemote(r.remoteKubeconfig, r.kubeconfig, r.remoteContext); err != nil {
			return err
		}
		defer far.close()
	}
	reg, err := r.find(ctx, near, cluster)
	if err != nil {
		return err
	}
	if _, err := r.reach(ctx); err != nil {
		return err
	}
	if err := r.sameCluster(ctx, near, far, reg); err != nil {
		return err
	}
	if err := r.confirm(near, far, reg); err != nil {
		return err
	}
	return r.apply(ctx, near, far, reg)
}

// find gives the registration that is meant.
func (r *clusterRemove) find(ctx context.Context, near *access, cluster string) (remote.Registration, error) {
	all, err := remote.Registrations(ctx, near.client, r.namespace, cluster)
	if err != nil {
		return remote.Registration{}, fmt.Errorf("in the primary cluster (context %s): %w", near.context, err)
	}
	var found []remote.Registration
	var secrets []string
	for _, reg := range all {
		if secrets = append(secrets, reg.Secret); r.secret == "" || reg.Secret == r.secret {
			found = append(found, reg)
		}
	}
	switch {
	case len(all) == 0:
		return remote.Registration{}, &exitError{exitNotFound, fmt.Errorf("no Secret of namespace %s in the primary cluster (context %s) registers %q: see 'isthmus cluster list'", r.namespace, near.context, cluster)}
	case len(found) == 0:
		return remote.Registration{}, &exitError{exitNotFound, fmt.Errorf("%s is registered by %s, not by %s", cluster, strings.Join(secrets, ", "), r.secret)}
	case len(found) > 1:
		return remote.Registration{}, usageError("%s is registered by %s: choose with --secret", cluster, strings.Join(secrets, ", "))
	}
	return found[0], nil
}

// sameCluster makes sure that the account which is deleted is the one in the Secret, and no other's.
func (r *clusterRemove) sameCluster(ctx context.Context, near, far *access, reg remote.Registration) error {
	if far == nil || r.force {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, askFor)
	defer cancel()
	there, err := remote.ClusterUID(ctx, far.client)
	if err != nil {
		return fmt.Errorf("in the remote cluster (context %s): %w", far.context, err)
	}
	here, err := reg.ClusterUID(ctx)
	switch known := err == nil && here != "" && there != ""; {
	case known && here != there:
		return usageError("Secret %s/%s leads to another cluster than context %s: nothing was removed; name the right context, or none", r.namespace, reg.Secret, far.context)
	case !known && reg.Server() != far.config.Host:
		return fmt.Errorf("it can't be told whether Secret %s/%s leads to the cluster of context %s: nothing was removed; --force does not ask, and without the context its account stays",
			r.namespace, reg.Secret, far.context)
	}
	all, err := remote.Registrations(ctx, near.client, r.namespace, "")
	if err != nil {
		return fmt.Errorf("in the primary cluster (context %s): %w", near.context, err)
	}
	for _, o := range remote.Shared(all, reg.Cluster, reg.Secret, reg.Server()) {
		return usageError("%s in Secret %s/%s is read with the same account: nothing was removed; remove %s without the context, or both with --force",
			o.Cluster, r.namespace, o.Secret, reg.Cluster)
	}
	return nil
}

// askFor is how long the two clusters may take to say which they are.
const askFor = 15 * time.Second

// confirm asks the person at the keyboard.
func (r *clusterRemove) confirm(near, far *access, reg remote.Registration) error {
	if r.yes {
		return nil
	}
	fmt.Fprintf(r.progress, "%s: Secret %s/%s in the primary cluster (context %s)", reg.Cluster, r.namespace, reg.Secret, near.context)
	if far != nil {
		fmt.Fprintf(r.progress, ", and ServiceAccount %s/%s with its roles in context %s", r.namespace, remote.Account, far.context)
	}
	fmt.Fprint(r.progress, "\nRemove? [y/N] ")
	answer, err := bufio.NewReader(io.LimitReader(r.in, 100)).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("read the answer: %w", err)
	}
	switch strings.ToLower(strings.TrimSpace(answer)) {
	case "y", "yes":
		return nil
	}
	return errors.New("nothing was removed; --yes does not ask")
}

func (r *clusterRemove) apply(ctx context.Context, near, far *access, reg remote.Registration) error {
	if err := remote.Unregister(ctx, near.client, reg); err != nil {
		return fmt.Errorf("in the primary cluster (context %s): %w", near.context, err)
	}
	fmt.Fprintf(r.progress, "primary: %s is out of Secret %s/%s\n", reg.Cluster, r.namespace, reg.Secret)
	if err := r.gone(ctx, reg.Cluster, r.namespace+"/"+reg.Secret, r.progress); err != nil {
		return err
	}
	if far == nil {
		return nil
	}
	objects, err := remote.Manifests(r.namespace, remote.Reads{Config: true, MCS: true})
	if err != nil {
		return err
	}
	err = remote.Delete(ctx, far.dynamic, objects, func(what string) { fmt.Fprintf(r.progress, "remote: %s deleted\n", what) })
	if err != nil {
		return fmt.Errorf("in the remote cluster (context %s): %w", far.context, err)
	}
	return nil
}
