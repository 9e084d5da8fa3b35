package main

import (
	"context"
	"errors"
	"fmt"
	"io"
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

// gone waits until the hub does not have the cluster from Kubernetes any more.
func (w *wait) gone(ctx context.Context, cluster, secret string, progress io.Writer) error {
	return w.until(ctx, progress, func(all []debug.Cluster) (string, bool) {
		for _, c := range all {
			if c.ID == cluster && c.SecretName == secret {
				return cluster + " is still there", false
			}
		}
		return cluster + " is gone", true
	})
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
