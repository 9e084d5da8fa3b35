package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/cmd/isthmus/debug"
)

// wait is for the hub to follow what a command has changed.
type wait struct {
	view
	on      bool
	longest time.Duration
}

// pollEvery is how often the hub is asked.
const pollEvery = 300 * time.Millisecond

func (w *wait) bind(c *cobra.Command) {
	w.bindHub(c)
	c.Flags().BoolVar(&w.on, "wait", true, "wait until the hub has followed")
	c.Flags().DurationVar(&w.longest, "wait-timeout", 2*time.Minute, "how long at most")
}

func (w *wait) check() error {
	if w.longest <= 0 {
		return usageError("--wait-timeout must be above 0; --wait=false does not wait")
	}
	return nil
}

// clusters asks the hub.
func (w *wait) clusters(ctx context.Context) ([]debug.Cluster, error) {
	raw, err := w.get(ctx, "/debug/clusterz", nil)
	if err != nil {
		return nil, err
	}
	return decode[[]debug.Cluster](raw)
}

// reach makes sure, before anything is changed, that there is a hub to wait for.
func (w *wait) reach(ctx context.Context) ([]debug.Cluster, error) {
	if !w.on {
		return nil, nil
	}
	all, err := w.clusters(ctx)
	if err != nil {
		return nil, fmt.Errorf("%w; or don't wait for it: --wait=false", err)
	}
	return all, nil
}

// synced waits until the cluster is read with the credential of the hash, and gives the state of the contact.
func (w *wait) synced(ctx context.Context, cluster, hash string, progress io.Writer) (state string, err error) {
	err = w.until(ctx, progress, func(all []debug.Cluster) (string, bool) {
		for _, c := range all {
			if c.ID == cluster && c.Provider == string(model.ProviderKubernetes) {
				state = c.State
				return following(c, debug.ShortHash(hash))
			}
		}
		return cluster + " is not known yet", false
	})
	return state, err
}

// following says how far a cluster is with a new credential, and whether it has arrived.
func following(c debug.Cluster, hash string) (said string, done bool) {
	for _, l := range c.NotUsed {
		if l.Hash == hash {
			return fmt.Sprintf("the credential of %s from %s is not used: %s", c.ID, l.Source, l.Reason), false
		}
	}
	switch {
	case c.Credential == nil || c.Credential.Hash != hash:
		return "the credential of " + c.ID + " is the old one still", false
	case c.Credential.Reason != "":
		return "the credential of " + c.ID + " is not used: " + c.Credential.Reason, false
	case c.Replacement != "" || c.Credential.Trying:
		return strings.TrimSuffix(c.ID+" is read with its old credential, beside which the new one is tried: "+c.Replacement, ": "), false
	case c.SyncStatus != "synced":
		return strings.TrimSuffix(c.ID+" is "+c.SyncStatus+": "+c.Error, ": "), false
	}
	return fmt.Sprintf("%s is synced: %d services", c.ID, c.Rows[model.RowService.String()]), true
}

// gone waits until the hub does not read the cluster with the Secret any more. It fails if it reads it with something else.
func (w *wait) gone(ctx context.Context, cluster, secret string, progress io.Writer) error {
	var left string
	err := w.until(ctx, progress, func(all []debug.Cluster) (said string, done bool) {
		said, left, done = leaving(all, cluster, secret)
		return said, done
	})
	if err == nil && left != "" {
		return fmt.Errorf("%s stays in the mesh: the hub reads it with %s; remove it there too", cluster, left)
	}
	return err
}

// leaving says how far the hub is without the Secret, and what it reads the cluster with instead.
func leaving(all []debug.Cluster, cluster, secret string) (said, left string, done bool) {
	for _, c := range all {
		if c.ID != cluster || c.Provider != string(model.ProviderKubernetes) {
			continue
		}
		known := func(x debug.Credential) bool { return x.Source == secretSource+secret }
		switch {
		case c.Credential == nil || slices.ContainsFunc(credentials(c), known):
			return cluster + " is still there", "", false
		case c.ConfigCluster:
			return fmt.Sprintf("%s is the config cluster and stays", cluster), "", true
		}
		return fmt.Sprintf("%s is no longer read with Secret %s, but with %s", cluster, secret, c.Credential.Source), c.Credential.Source, true
	}
	return cluster + " is gone", "", true
}

// secretSource is how the source of a credential begins that is in a Secret: see secrets.Claim.
const secretSource = "Secret "

// useless says why a Secret for the cluster would not be used; "" if it would.
func useless(all []debug.Cluster, cluster string) string {
	secrets := func(c debug.Cluster) bool { return c.Provider == string(model.ProviderSecrets) }
	if !slices.ContainsFunc(all, secrets) {
		return "the hub reads no Secrets of a config cluster: put a kubeconfig into its --clusters-dir, or name its config cluster with --kubeconfig"
	}
	for _, c := range all {
		of := c.Credential
		if c.ID == cluster && c.Provider == string(model.ProviderKubernetes) && of != nil && !strings.HasPrefix(of.Source, secretSource) {
			return fmt.Sprintf("the hub reads %s with %s, and of two credentials the older one wins: remove it there first, or renew it there", cluster, of.Source)
		}
	}
	return ""
}

// until asks the hub again and again until the condition holds, and tells when its words change.
func (w *wait) until(ctx context.Context, progress io.Writer, holds func([]debug.Cluster) (string, bool)) error {
	if !w.on {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, w.longest)
	defer cancel()
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	last := ""
	for {
		said, done := "", false
		all, err := w.clusters(ctx)
		switch {
		case ctx.Err() != nil:
		case err != nil:
			said = err.Error()
		default:
			said, done = holds(all)
		}
		if said != "" && said != last {
			fmt.Fprintln(progress, "hub: "+said)
			last = said
		}
		if done {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			if errors.Is(ctx.Err(), context.DeadlineExceeded) {
				return fmt.Errorf("the hub has not followed within %s: %s; see 'isthmus cluster list -o wide' and 'isthmus cluster check'", w.longest, last)
			}
			return ctx.Err()
		}
	}
}
