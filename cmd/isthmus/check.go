package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/analysis"
	api "github.com/isthmus-mesh/isthmus/api/v1alpha1"
	"github.com/isthmus-mesh/isthmus/cmd/isthmus/debug"
	"github.com/isthmus-mesh/isthmus/cmd/isthmus/output"
)

const (
	sarifFormat = "sarif"
	failNever   = "never"
)

// check is one run of 'isthmus check'.
type check struct {
	offlineOptions
	format string
	failOn string
	least  string
	stdin  io.Reader
	out    io.Writer
	errs   io.Writer
}

func newCheck() *cobra.Command {
	k := &check{}
	c := &cobra.Command{
		Use:   "check (DIR | FILE... | - | --kubeconfig FILE)",
		Short: "Find mistakes in configuration, without a running hub",
		Long: `Check Kubernetes and Istio configuration as a hub would read it: what of it can't be read, what each object says that
can't be or has no effect, and what objects say about each other: hosts, subsets and gateways that are not there, routes
that are never reached, ports that conflict. 'isthmus findings' tells the same of a running hub.

DIR is a folder with one folder per cluster, as 'isthmus serve' reads it, or one cluster's folder: then it has YAML itself.
FILEs are of one cluster, and '-' is standard input. With --kubeconfig the cluster, and the remote clusters that it
registers, are read from their API servers.

Exit codes: 0 nothing as bad as --fail-on, 1 something was found, 2 nothing could be checked.`,
		Example: `  isthmus check examples/two-clusters
  isthmus check routes.yaml services.yaml
  kubectl get virtualservice,service -A -o yaml | isthmus check -
  isthmus check --kubeconfig primary.yaml --fail-on warning
  isthmus check manifests -o sarif`,
	}
	c.RunE = func(c *cobra.Command, args []string) error {
		k.stdin, k.out, k.errs = c.InOrStdin(), c.OutOrStdout(), c.ErrOrStderr()
		return k.run(c.Context(), args)
	}
	f := c.Flags()
	f.SortFlags = false
	k.offlineOptions.bind(f)
	f.StringVar(&k.failOn, "fail-on", "error", "the least `SEVERITY` that makes the exit code 1: error, warning, info or never")
	f.StringVar(&k.least, "severity", "info", "the least `SEVERITY` that is shown: error, warning or info")
	f.StringVarP(&k.format, "output", "o", output.Text, "one of "+formats()+", "+sarifFormat)
	return c
}

func (k *check) run(ctx context.Context, args []string) error {
	if len(args) == 0 && k.kube.kubeconfig == "" {
		return errNothing("check")
	}
	least, known := debug.ParseSeverity(k.least)
	fail, fails := debug.ParseSeverity(k.failOn)
	switch {
	case !known:
		return usageError("--severity %s: want error, warning or info", k.least)
	case !fails && k.failOn != failNever:
		return usageError("--fail-on %s: want error, warning, info or never", k.failOn)
	case k.format != sarifFormat && checkFormat(k.format) != nil:
		return usageError("-o %s: want one of %s, %s", k.format, formats(), sarifFormat)
	}
	read, err := k.load(ctx, args, k.stdin)
	if err != nil {
		return err
	}
	all := read.findings()
	if len(all) == 0 && read.empty() {
		return usageError("no objects were read: nothing could be checked")
	}
	shown := slices.DeleteFunc(slices.Clone(all), func(f debug.ObjectFinding) bool { return severityOf(f) < least })
	if err := k.print(read, shown); err != nil {
		return err
	}
	if n := count(all, fail); fails && n > 0 {
		return &exitError{exitFailure, fmt.Errorf("%s found", tally(all, fail))}
	}
	if len(all) == 0 {
		fmt.Fprintln(k.errs, "nothing found")
	}
	return nil
}

func severityOf(f debug.ObjectFinding) model.Severity {
	s, _ := debug.ParseSeverity(f.Severity)
	return s
}

// count gives how many are as bad as a severity.
func count(list []debug.ObjectFinding, least model.Severity) (n int) {
	for _, f := range list {
		if severityOf(f) >= least {
			n++
		}
	}
	return n
}

// tally says how many there are of each severity from a least one on.
func tally(list []debug.ObjectFinding, least model.Severity) string {
	var parts []string
	for s := model.SeverityError; ; s-- {
		n := 0
		for _, f := range list {
			if severityOf(f) == s {
				n++
			}
		}
		switch {
		case n == 1:
			parts = append(parts, "1 "+s.String())
		case n > 1:
			parts = append(parts, fmt.Sprintf("%d %ss", n, s))
		}
		if s == least {
			return strings.Join(parts, ", ")
		}
	}
}

func (k *check) print(read *offline, list []debug.ObjectFinding) error {
	switch k.format {
	case output.JSON, output.YAML:
		return output.Encode(k.out, k.format, list)
	case sarifFormat:
		return output.Encode(k.out, output.JSON, sarif(list))
	}
	if len(list) == 0 {
		return nil
	}
	return findingsTable(list, read.several(), k.format == output.Wide).Write(k.out)
}

// findingsTable has a row for each finding.
func findingsTable(list []debug.ObjectFinding, several, wide bool) *output.Table {
	t := &output.Table{Header: []string{"SEVERITY", "CLUSTER", "OBJECT", "FIELD", "MESSAGE", "CODE", "FILE"}}
	for _, f := range list {
		at := filePlace(f)
		t.Add(f.Severity, f.Cluster, cmp.Or(objectText(f), at), f.Field, f.Message, f.Code, at)
	}
	if !several {
		t.Without("CLUSTER")
	}
	if !wide {
		t.Without("FILE")
	}
	return t
}

func objectText(f debug.ObjectFinding) string {
	if f.Kind == "" {
		return ""
	}
	return model.ObjectKey{Kind: f.Kind, Namespace: f.Namespace, Name: f.Name}.String()
}

func filePlace(f debug.ObjectFinding) string {
	if f.File == "" || f.Line == 0 {
		return f.File
	}
	return fmt.Sprintf("%s:%d", f.File, f.Line)
}

// empty reports whether nothing at all was read.
func (o *offline) empty() bool {
	for range o.pc.Services() {
		return false
	}
	return len(o.pc.Configs) == 0 && len(o.recorder.all()) == 0 && (o.staged == nil || len(o.staged.places) == 0)
}

// codeProblem is the code of what could not be read or used, which no object says better.
const codeProblem = "Problem"

// findings are those of the snapshot and what could not be read, the worst first within a cluster and object.
func (o *offline) findings() []debug.ObjectFinding {
	out := []debug.ObjectFinding{}
	said := map[string][]string{} // messages by object
	for _, f := range debug.Merge(analysis.Offline(o.pc), o.opts.declarationFindings(o.pc)) {
		if f.Code == analysis.CodeRefused {
			continue // what is read once has no earlier version, and the object's errors say the rest
		}
		x := debug.FindingOf(f)
		if o.staged != nil {
			at := o.staged.places[objectIn{f.Source.Shard.Cluster, f.Object}]
			x.File, x.Line = at.file, at.line
		}
		said[x.Cluster+" "+f.Object.String()] = append(said[x.Cluster+" "+f.Object.String()], f.Message)
		out = append(out, x)
	}
	for _, p := range o.problems() {
		if object, reason, ok := strings.Cut(p.Reason, ": "); ok && slices.ContainsFunc(said[string(p.cluster)+" "+object], func(m string) bool { return strings.Contains(reason, m) }) {
			continue // the object's own finding says it
		}
		out = append(out, o.problem(p))
	}
	slices.SortStableFunc(out, func(a, b debug.ObjectFinding) int {
		return cmp.Or(cmp.Compare(severityOf(b), severityOf(a)), cmp.Compare(a.Cluster, b.Cluster), cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line))
	})
	return out
}

func (o *offline) problem(p located) debug.ObjectFinding {
	f := debug.ObjectFinding{Severity: model.SeverityError.String(), Cluster: string(p.cluster), Message: p.Reason, Code: codeProblem, File: p.Item, Line: p.Line}
	if o.staged != nil {
		f.File, p.Reason = o.staged.shownAs(p.cluster, p.Item), o.staged.shownIn(p.cluster, p.Reason)
		f.Message = p.Reason
	}
	if object, reason, ok := strings.Cut(p.Reason, ": "); ok && !strings.Contains(object, " ") {
		if parts := strings.Split(object, "/"); len(parts) == 3 {
			f.Kind, f.Namespace, f.Name, f.Message = parts[0], parts[1], parts[2], reason
		}
	}
	if m := unknownField.FindStringSubmatch(f.Message); m != nil {
		f.Field, f.Message, f.Code = cmp.Or(m[1], m[2]), strings.TrimPrefix(f.Message, m[1]+": "), api.CodeUnknownField
	} else if m := ofField.FindStringSubmatch(f.Message); m != nil && f.Kind != "" {
		f.Field, f.Message = m[1], f.Message[len(m[0]):]
	}
	return f
}

// Problems that are about one field: one that is unknown, of an object or of the mesh's settings, and one of an object.
var (
	unknownField = regexp.MustCompile(`^(?:(\S+): )?unknown field "([^"]+)" has no effect`)
	ofField      = regexp.MustCompile(`^((?:spec|metadata)(?:\.\w+(?:\[\w*\])?)+): `)
)
