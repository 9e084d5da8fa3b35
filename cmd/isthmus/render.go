package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/anypb"
	"sigs.k8s.io/yaml"

	"github.com/isthmus-mesh/isthmus/cmd/isthmus/output"
	"github.com/isthmus-mesh/isthmus/xds"
	"github.com/isthmus-mesh/isthmus/xds/gen"
)

// textFormat is how differences are printed unless told otherwise.
const textFormat = "text"

// render is one run of 'isthmus render'.
type render struct {
	offlineOptions
	proxyOptions
	types  []string
	diff   string
	format string
	errs   io.Writer
}

func newRender() *cobra.Command {
	k := &render{}
	c := &cobra.Command{
		Use:   "render (DIR | FILE... | - | --kubeconfig FILE) (--proxy PROXY | --diff DIR)",
		Short: "Show what a proxy would be sent, or what a change does to every proxy",
		Long: `Print exactly what a proxy would be sent by a hub that reads the same, without a running hub: the path is the same.
What can be read is as of 'isthmus check'.

PROXY is POD.NAMESPACE or the NAME.NAMESPACE of a WorkloadEntry, whose labels, addresses, network and locality count; or a node
id ("sidecar~10.0.0.1~POD.NAMESPACE~NAMESPACE.svc.cluster.local"). A workload that is not there is imagined if --label or a
node id says what it is like. It is a router if a Gateway selects it, else a sidecar.

With --diff, what is read is compared with what is read from another folder or file: each difference is shown field by field, with
the proxies that it reaches. All workloads count, or --proxy alone; a namespace without workloads has an imagined sidecar, and
a Gateway that selects none an imagined router. It is what happens to a running hub: where an object that is compared has an
error, or a file can't be read, what was there before stays in force.

How much of what was read has an error or can't be read is told, and makes the exit code 2; with --diff it is what is compared
that counts. Exit codes with --diff: 0 no difference, 1 some, 2 trouble; else as always: 2 also if what is named can't be read.`,
		Example: `  isthmus render examples/two-clusters --proxy client-east.demo
  isthmus render examples/two-clusters --proxy client-east.demo --type rds,vhds -o json
  isthmus render routes.yaml services.yaml --proxy any.shop --label app=web
  isthmus render old --diff new
  isthmus render old --diff new --proxy web-1.shop -o json`,
	}
	c.RunE = func(c *cobra.Command, args []string) error {
		if k.diff != "" && !c.Flags().Changed("output") {
			k.format = textFormat
		}
		k.errs = c.ErrOrStderr()
		return k.run(c.Context(), args, c.InOrStdin(), c.OutOrStdout())
	}
	f := c.Flags()
	f.SortFlags = false
	k.proxyOptions.bind(f)
	f.StringSliceVar(&k.types, "type", nil, "`TYPES` to show, of cds, eds, lds, rds, vhds and nds (default: all but nds)")
	f.StringVar(&k.diff, "diff", "", "folder or file to compare with, `DIR`")
	f.StringVarP(&k.format, "output", "o", output.YAML, "yaml or json; with --diff text or json")
	f.BoolVar(&k.vhds, "vhds", true, "the hub's flag: false puts virtual hosts into their route tables")
	k.offlineOptions.bind(f)
	return c
}

// typeURLs are the types of resources by their short names.
func typeURLs() map[string]string {
	return map[string]string{
		"cds": gen.ClusterURL, "eds": gen.EndpointURL, "lds": gen.ListenerURL, "rds": gen.RouteURL, "vhds": gen.VirtualHostURL, "nds": gen.NameTableURL,
	}
}

func (k *render) run(ctx context.Context, args []string, stdin io.Reader, out io.Writer) error {
	var urls []string
	for _, t := range k.types {
		url, ok := typeURLs()[t]
		if !ok {
			return usageError("--type %s: want cds, eds, lds, rds, vhds or nds", t)
		}
		urls = append(urls, url)
	}
	switch {
	case len(args) == 0 && k.kube.kubeconfig == "":
		return errNothing("render")
	case k.diff != "":
		return k.compare(ctx, args, urls, stdin, out)
	case k.proxy == "" && k.node == "":
		return usageError("name the proxy with --proxy, or compare for all of them with --diff")
	case k.format != output.YAML && k.format != output.JSON:
		return usageError("-o %s: want yaml or json", k.format)
	}
	read, err := k.load(ctx, args, stdin)
	if err != nil {
		return err
	}
	p, err := k.find(read)
	if err != nil {
		return err
	}
	list, err := p.render(read, urls...)
	if err != nil {
		return err
	}
	if err := writeResources(out, k.format, list); err != nil {
		return err
	}
	return read.trusted()
}

func writeResources(w io.Writer, format string, list []xds.Rendered) error {
	all := []json.RawMessage{}
	for _, r := range list {
		body, err := resourceJSON(r)
		if err != nil {
			return err
		}
		all = append(all, body)
	}
	if format == output.JSON {
		return output.Encode(w, format, all)
	}
	for i, body := range all {
		text, err := yaml.JSONToYAML(body)
		if err != nil {
			return fmt.Errorf("encode: %w", err)
		}
		if _, err := fmt.Fprintf(w, "--- # %s %s\n%s", list[i].Short, list[i].Name, text); err != nil {
			return err
		}
	}
	return nil
}

// resourceJSON is a resource as Envoy's documentation writes it, with its "@type".
func resourceJSON(r xds.Rendered) ([]byte, error) {
	if r.Body == nil {
		return nil, fmt.Errorf("%s %s could not be built: the hub's log would say why", r.Short, r.Name)
	}
	raw, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(&anypb.Any{TypeUrl: r.TypeURL, Value: r.Body})
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", r.Short, r.Name, err)
	}
	var b bytes.Buffer
	err = json.Compact(&b, raw) // protojson's own spacing varies from build to build
	return b.Bytes(), err
}

// compare is --diff.
func (k *render) compare(ctx context.Context, args, urls []string, stdin io.Reader, out io.Writer) error {
	trouble := func(err error) error { return &exitError{exitUsage, err} }
	if k.diff == stdinName {
		return usageError("--diff -: standard input is what is compared with it: name a folder or a file")
	}
	if k.format != textFormat && k.format != output.JSON {
		return usageError("-o %s: want text or json", k.format)
	}
	if _, err := os.Stat(k.diff); err != nil {
		return trouble(fmt.Errorf("--diff: %w", err))
	}
	first := k.offlineOptions
	first.keep = true
	before, err := first.load(ctx, args, stdin)
	if err != nil {
		return trouble(err)
	}
	defer before.close()
	other := k.offlineOptions
	other.kube.kubeconfig, other.earlier = "", before
	after, err := other.load(ctx, []string{k.diff}, stdin)
	if err != nil {
		return trouble(err)
	}
	list := everyProxy(before, after)
	if k.proxy != "" || k.node != "" {
		was, err := k.find(before)
		is, err2 := k.find(after)
		if err != nil && err2 != nil {
			return trouble(err)
		}
		list = []pair{{was, is}}
	}
	groups, err := diffProxies(before, after, list, urls)
	if err != nil {
		return trouble(err)
	}
	if k.format == output.JSON {
		err = output.Encode(out, output.JSON, groups)
	} else {
		err = writeDiff(out, groups)
	}
	if err != nil {
		return err
	}
	if why := before.doubtful(); why != "" {
		fmt.Fprintf(k.errs, "isthmus: before: %s\n", why)
	}
	verdict := fmt.Errorf("%d of %d proxies would be sent something else", affected(groups), len(list))
	if why := after.doubtful(); why != "" {
		return trouble(fmt.Errorf("%w; of %s, %s", verdict, k.diff, why))
	}
	if len(groups) > 0 {
		return &exitError{exitFailure, verdict}
	}
	return nil
}

func affected(groups []diffGroup) (n int) {
	for _, g := range groups {
		n += len(g.Proxies)
	}
	return n
}

// everyProxy pairs the proxies of both sides by cluster and name.
func everyProxy(before, after *offline) (out []pair) {
	was, is := imagine(before), imagine(after)
	key := func(p *proxyNode) string { return p.cluster + "/" + p.id }
	at := map[string]int{}
	for _, p := range was {
		at[key(p)] = len(out)
		out = append(out, pair{was: p})
	}
	for _, p := range is {
		if i, ok := at[key(p)]; ok {
			out[i].is = p
		} else {
			out = append(out, pair{is: p})
		}
	}
	// Who is imagined on one side only has a workload, or nothing, on the other.
	out = slices.DeleteFunc(out, func(p pair) bool {
		return p.was == nil && p.is.imagined || p.is == nil && p.was.imagined
	})
	slices.SortStableFunc(out, func(a, b pair) int { return strings.Compare(a.name(), b.name()) })
	return out
}
