package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/isthmus-mesh/isthmus/cmd/isthmus/output"
	"github.com/isthmus-mesh/isthmus/cmd/isthmus/remote"
)

// Values of --dry-run. What is for one cluster must not be applied to the other, so only one of them is printed as
// manifests.
const (
	bothSides   = "both"
	remoteSide  = "remote"
	primarySide = "primary"
)

func sides() []string { return []string{remoteSide, primarySide} }

func bindDryRun(f *pflag.FlagSet, to *string) {
	f.StringVar(to, "dry-run", "", "change nothing, and list what would be applied; =remote or =primary prints the manifests for that `SIDE`")
	f.Lookup("dry-run").NoOptDefVal = bothSides
}

func checkDryRun(side string) error {
	if side == "" || side == bothSides || slices.Contains(sides(), side) {
		return nil
	}
	return usageError("--dry-run=%s: want --dry-run, or --dry-run=%s", side, strings.Join(sides(), " or ="))
}

// placeholder stands for the token in what --dry-run prints.
const placeholder = "TOKEN"

// print shows what would be applied.
func (a *clusterAdd) print(far *access, target remote.Target) error {
	objects, err := remote.Manifests(a.namespace, a.reads.rights())
	if err != nil {
		return err
	}
	kubeconfig, err := target.Kubeconfig(placeholder)
	if err != nil {
		return err
	}
	secret := remote.Secret(a.namespace, a.name, nil)
	delete(secret.Object, "data")
	secret.Object["stringData"] = map[string]any{a.name: string(kubeconfig)} // for people
	plan := map[string][]*unstructured.Unstructured{remoteSide: objects, primarySide: {secret}}
	about := map[string]string{
		remoteSide: fmt.Sprintf("for the remote cluster: kubectl --context %s apply --server-side -f FILE", far.context),
		primarySide: fmt.Sprintf("for the primary cluster, with the output of this in place of %s:\n# kubectl --context %s -n %s create token %s --duration %s",
			placeholder, far.context, a.namespace, remote.Account, a.duration),
	}
	if a.dryRun == bothSides {
		return a.list(plan)
	}
	return a.manifests(about[a.dryRun], plan[a.dryRun])
}

// list names what would be applied, and where.
func (a *clusterAdd) list(plan map[string][]*unstructured.Unstructured) error {
	if a.format == output.JSON || a.format == output.YAML {
		return output.Encode(a.out, a.format, plan)
	}
	t := output.Table{Header: []string{"CLUSTER", "OBJECT"}}
	for _, side := range sides() {
		for _, o := range plan[side] {
			t.Add(side, remote.Name(o))
		}
	}
	return t.Write(a.out)
}

// manifests prints what kubectl can apply to one cluster.
func (a *clusterAdd) manifests(about string, objects []*unstructured.Unstructured) error {
	if a.format == output.JSON {
		return output.Encode(a.out, output.JSON, map[string]any{"apiVersion": "v1", "kind": "List", "items": objects})
	}
	fmt.Fprintln(a.out, "# "+about)
	for _, o := range objects {
		fmt.Fprintln(a.out, "---")
		if err := output.Encode(a.out, output.YAML, o.Object); err != nil {
			return err
		}
	}
	return nil
}
