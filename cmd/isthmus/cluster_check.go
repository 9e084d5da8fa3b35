package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/isthmus-mesh/isthmus/cmd/isthmus/output"
	"github.com/isthmus-mesh/isthmus/cmd/isthmus/remote"
	"github.com/isthmus-mesh/isthmus/secrets"
)

// clusterCheck is one run of 'isthmus cluster check'.
type clusterCheck struct {
	primary
	reads
	checker          remote.Checker
	remoteKubeconfig string
	all              bool
	format           string
	insecure         string
}

func newClusterCheck(now func() time.Time) *cobra.Command {
	k := &clusterCheck{checker: remote.Checker{Now: now}}
	c := &cobra.Command{
		Use:   "check (NAME | --all)",
		Short: "Find out why a remote cluster can't be read",
		Long: `Check the credentials of remote clusters, step by step: what the kubeconfig holds, the name of the API
server, the connection, its certificate, its clock, whom it takes the hub for, and each right that the hub
uses. The first failure of a cluster ends its list, with what to do.

The credentials are those in the Secrets of the primary cluster, or in --remote-kubeconfig. The checks are
made from this machine, whose network and clock may differ from the hub's. The exit code is 1 if anything
failed; warnings don't count.`,
		Example: `  isthmus cluster check west
  isthmus cluster check --all -o json
  isthmus cluster check west --remote-kubeconfig west.yaml`,
		Args: atMostOne("NAME"),
	}
	c.RunE = func(c *cobra.Command, args []string) error {
		return k.run(c.Context(), append(args, "")[0], c.OutOrStdout())
	}
	f := c.Flags()
	f.BoolVar(&k.all, "all", false, "check every cluster that a Secret registers")
	f.StringVar(&k.remoteKubeconfig, "remote-kubeconfig", "", "kubeconfig `FILE` to check in place of the one in the Secret")
	k.reads.bind(c)
	f.StringVar(&k.insecure, "insecure-kubeconfig-options", "", "`LIST` of what the hub lets kubeconfigs use; see 'isthmus serve'")
	f.DurationVar(&k.checker.Timeout, "timeout", 10*time.Second, "how long each check may take")
	f.StringVarP(&k.format, "output", "o", output.Text, "one of "+formats())
	k.primary.bind(c)
	return c
}

// errFailed is the end of a run that found something.
var errFailed = errors.New("the hub can't read every cluster: see what failed above")

func (k *clusterCheck) run(ctx context.Context, cluster string, out io.Writer) error {
	if err := k.usage(cluster); err != nil {
		return err
	}
	allow, err := secrets.ParseAllow(k.insecure)
	if err != nil {
		return usageError("--insecure-kubeconfig-options: %w", err)
	}
	regs, err := k.registrations(ctx, cluster)
	if err != nil {
		return err
	}
	k.checker.Namespace, k.checker.Reads = k.namespace, k.rights()
	var results []remote.Result
	for _, reg := range regs {
		for _, r := range k.attempt(ctx, reg, remote.InForce(regs, reg.Cluster).Secret, allow) {
			r.Secret = reg.Secret
			results = append(results, r)
		}
	}
	if err := k.print(out, results); err != nil {
		return err
	}
	for _, r := range results {
		if r.Status == remote.Failed {
			return errFailed
		}
	}
	return nil
}

func (k *clusterCheck) usage(cluster string) error {
	switch {
	case cluster == "" && !k.all:
		return usageError("name a cluster, or check --all")
	case cluster != "" && k.all:
		return usageError("%q and --all exclude each other", cluster)
	case k.all && k.remoteKubeconfig != "":
		return usageError("--remote-kubeconfig is one cluster's: name it in place of --all")
	case k.checker.Timeout <= 0:
		return usageError("--timeout must be above 0")
	}
	if err := k.reads.check(); err != nil {
		return err
	}
	return checkFormat(k.format)
}

// registrations are the credentials to check.
func (k *clusterCheck) registrations(ctx context.Context, cluster string) ([]remote.Registration, error) {
	if k.remoteKubeconfig != "" {
		text, err := os.ReadFile(k.remoteKubeconfig)
		if err != nil {
			return nil, fmt.Errorf("--remote-kubeconfig: %w", err)
		}
		return []remote.Registration{{Cluster: cluster, Kubeconfig: text}}, nil
	}
	near, err := k.cluster()
	if err != nil {
		return nil, err
	}
	defer near.close()
	all, err := remote.Registrations(ctx, near.client, k.namespace, "")
	if err != nil {
		return nil, fmt.Errorf("in the primary cluster (context %s): %w", near.context, err)
	}
	var regs []remote.Registration
	for _, r := range all {
		if cluster == "" || r.Cluster == cluster {
			regs = append(regs, r)
		}
	}
	if len(regs) == 0 {
		return nil, &exitError{exitNotFound, fmt.Errorf("no Secret of namespace %s in the primary cluster (context %s) registers %s: %s",
			k.namespace, near.context, cmp.Or(cluster, "a cluster"), instead(cluster, all))}
	}
	return regs, nil
}

// instead says what to do about a cluster that no Secret registers.
func instead(cluster string, all []remote.Registration) string {
	if cluster == defaultClusterID {
		return "that is the config cluster, which the hub reads with its own credential; what it lacks is in 'isthmus cluster list -o wide'"
	}
	if len(all) == 0 {
		return "add it with 'isthmus cluster add CONTEXT'"
	}
	names := map[string]bool{}
	for _, r := range all {
		names[r.Cluster] = true
	}
	return "there are " + strings.Join(slices.Sorted(maps.Keys(names)), ", ") + "; add others with 'isthmus cluster add CONTEXT'"
}

// attempt checks one credential, unless the one in another Secret counts.
func (k *clusterCheck) attempt(ctx context.Context, reg remote.Registration, inForce string, allow secrets.Allow) []remote.Result {
	if reg.Secret != inForce {
		return []remote.Result{{Cluster: reg.Cluster, Check: "credential", Status: remote.Warning,
			Detail: fmt.Sprintf("not used: Secret %s/%s registers %s too, and of two the older one counts", k.namespace, inForce, reg.Cluster),
			Advice: fmt.Sprintf("take it out: isthmus cluster remove %s --secret %s", reg.Cluster, reg.Secret)}}
	}
	cfg, err := secrets.Sanitise(reg.Kubeconfig, allow)
	if err != nil {
		return []remote.Result{{Cluster: reg.Cluster, Check: "credential", Status: remote.Failed, Detail: "the hub refuses the kubeconfig: " + err.Error(),
			Advice: "make one that it takes: isthmus cluster add CONTEXT --name " + reg.Cluster}}
	}
	return k.checker.Check(ctx, reg.Cluster, cfg)
}

func (k *clusterCheck) print(out io.Writer, results []remote.Result) error {
	if k.format == output.JSON || k.format == output.YAML {
		return output.Encode(out, k.format, results)
	}
	t := output.Table{Header: []string{"CLUSTER", "SECRET", "CHECK", "STATUS", "DETAIL"}}
	for _, r := range results {
		detail := r.Detail
		if r.Advice != "" {
			detail += ". " + r.Advice
		}
		t.Add(r.Cluster, r.Secret, r.Check, string(r.Status), detail)
	}
	return t.Write(out)
}
