package main

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"slices"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"github.com/spf13/pflag"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/structpb"
	networking "istio.io/api/networking/v1alpha3"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/cmd/isthmus/bootstrap"
	"github.com/isthmus-mesh/isthmus/xds"
)

// proxyOptions name a proxy, and say what it says of itself.
type proxyOptions struct {
	proxy    string
	cluster  string
	node     string
	router   bool
	labels   map[string]string
	metadata map[string]string
	ip       string
}

func (o *proxyOptions) bind(f *pflag.FlagSet) {
	f.StringVar(&o.proxy, "proxy", "", "`PROXY`: POD.NAMESPACE, the NAME.NAMESPACE of a WorkloadEntry, or a node id")
	f.StringVar(&o.cluster, "cluster", "", "the proxy's `CLUSTER`, when two have workloads of that name")
	f.BoolVar(&o.router, "router", false, "the proxy is a gateway's; =false: it is a sidecar (default: whether a Gateway selects it)")
	f.StringToStringVar(&o.labels, "label", nil, "`KEY=VALUE` of the workload, in place of that of the workload or of none; may be repeated")
	f.StringToStringVar(&o.metadata, "metadata", nil, "`KEY=VALUE` of the node's metadata, over what the workload gives; may be repeated")
	f.StringVar(&o.node, "node", "", "`FILE` with the node as Envoy's bootstrap has it, JSON or YAML, in place of all this")
	f.StringVar(&o.ip, "ip", "", "`ADDRESS` of a workload that is imagined (default 192.0.2.1)")
}

// imaginedIP is the address of workloads that have none: it is reserved for documentation (RFC 5737).
var imaginedIP = netip.AddrFrom4([4]byte{192, 0, 2, 1})

// proxyNode is a proxy that resources are rendered for.
type proxyNode struct {
	id       string // POD.NAMESPACE
	cluster  string
	ip       netip.Addr
	router   bool
	imagined bool // no workload that was read has it
	node     *corev3.Node
}

func (p *proxyNode) name() string { return p.id + " in " + p.cluster }

func (p *proxyNode) render(read *offline, types ...string) ([]xds.Rendered, error) {
	list, err := read.xds.Render(p.node, types...)
	if err != nil {
		return nil, fmt.Errorf("proxy %s: %w", p.name(), err)
	}
	return list, nil
}

// find gives the proxy that flags name.
func (o *proxyOptions) find(read *offline) (*proxyNode, error) {
	if o.node != "" {
		p, err := o.fromFile()
		if err != nil {
			return nil, &exitError{exitUsage, err}
		}
		return p, nil
	}
	if err := o.check(); err != nil {
		return nil, err
	}
	id, typ, ip := o.proxy, "", o.ip
	if parts := strings.Split(o.proxy, "~"); len(parts) == 4 {
		typ, ip, id = parts[0], cmp.Or(ip, parts[1]), parts[2]
	}
	var found []*model.Workload
	for _, w := range read.recorder.all() {
		if (w.Name+"."+w.Namespace == id || w.Name == id) && (o.cluster == "" || o.cluster == string(w.Source.Shard.Cluster)) {
			found = append(found, w)
		}
	}
	switch {
	case len(found) > 1:
		var where []string
		for _, w := range found {
			where = append(where, fmt.Sprintf("%s.%s in %s", w.Name, w.Namespace, w.Source.Shard.Cluster))
		}
		return nil, usageError("proxy %q is ambiguous: name its namespace, and the cluster with --cluster; there are %s", o.proxy, strings.Join(where, ", "))
	case len(found) == 1:
		return o.complete(read, found[0], typ, false)
	case typ == "" && len(o.labels) == 0:
		return nil, &exitError{exitNotFound, fmt.Errorf("no workload %q%s was read: name one, or say with --label what it is like, or give a node id", o.proxy, in(o.cluster))}
	}
	addr := imaginedIP
	if ip != "" {
		var err error
		if addr, err = netip.ParseAddr(ip); err != nil {
			return nil, usageError("%q is no address", ip)
		}
	}
	name, namespace, _ := cutLast(id, ".")
	w := &model.Workload{Kind: model.KindPod, Name: name, Namespace: cmp.Or(namespace, "default"), Address: model.Addr{AddrPort: netip.AddrPortFrom(addr, 0)}}
	if w.Source.Shard.Cluster = model.ClusterID(cmp.Or(o.cluster, read.defaultCluster())); w.Source.Shard.Cluster == "" {
		return nil, usageError("no cluster was read that %s could be in: name one with --cluster", o.proxy)
	}
	return o.complete(read, w, typ, true)
}

// check refuses what no workload and no node has.
func (o *proxyOptions) check() error {
	for _, k := range slices.Sorted(maps.Keys(o.labels)) {
		if why := append(validation.IsQualifiedName(k), validation.IsValidLabelValue(o.labels[k])...); len(why) > 0 {
			return usageError("--label %q: %s", k+"="+o.labels[k], why[0])
		}
	}
	for _, k := range slices.Sorted(maps.Keys(o.metadata)) {
		switch k {
		case "":
			return usageError("--metadata %q: it names no key", "="+o.metadata[k])
		case "LABELS", "PROXY_CONFIG":
			return usageError("--metadata %s: it is not a text: use --label, or --node with the whole node", k)
		}
	}
	return nil
}

func in(cluster string) string {
	if cluster == "" {
		return ""
	}
	return " in cluster " + cluster
}

func cutLast(s, sep string) (before, after string, ok bool) {
	if i := strings.LastIndex(s, sep); i >= 0 {
		return s[:i], s[i+len(sep):], true
	}
	return s, "", false
}

// defaultCluster is that of imagined workloads: the config cluster, or the first.
func (o *offline) defaultCluster() string {
	all := o.clusters()
	if slices.Contains(all, model.ClusterID(o.opts.clusterID)) || len(all) == 0 {
		return o.opts.clusterID
	}
	return string(all[0])
}

// complete makes the node of a workload. Type is that of a node id, or "".
func (o *proxyOptions) complete(read *offline, w *model.Workload, typ string, imagined bool) (*proxyNode, error) {
	labels := map[string]string(w.Labels)
	if len(o.labels) > 0 {
		labels = o.labels
	}
	if typ == "" {
		typ = bootstrap.Sidecar
		if o.router || read.selected(labels) {
			typ = bootstrap.Router
		}
	}
	p := &proxyNode{id: w.Name + "." + w.Namespace, cluster: string(w.Source.Shard.Cluster), ip: w.Address.AddrPort.Addr(), router: typ == bootstrap.Router, imagined: imagined}
	if !p.ip.IsValid() {
		p.ip = imaginedIP
	}
	b, err := bootstrap.Build(bootstrap.Options{
		Type: typ, ID: p.id, Namespace: w.Namespace, IP: p.ip, Cluster: p.cluster, Network: w.Network, Hub: "127.0.0.1:15010",
		DomainSuffix: read.opts.domain, Locality: strings.TrimRight(w.Locality.String(), "/"), Node: w.Node, Labels: labels,
	})
	if err != nil {
		return nil, usageError("proxy %s: %w", p.id, err)
	}
	p.node = b.Node
	for k, v := range o.metadata {
		p.node.Metadata.Fields[k] = structpb.NewStringValue(v)
	}
	return p, nil
}

// fromFile reads --node.
func (o *proxyOptions) fromFile() (*proxyNode, error) {
	text, err := os.ReadFile(o.node)
	if err != nil {
		return nil, fmt.Errorf("--node: %w", err)
	}
	raw, err := yaml.YAMLToJSON(text)
	if err != nil {
		return nil, fmt.Errorf("--node %s: %w", o.node, err)
	}
	if !strings.HasPrefix(string(raw), "{") {
		return nil, fmt.Errorf("--node %s: want a node as Envoy's bootstrap has it, with id and metadata", o.node)
	}
	n := &corev3.Node{}
	if err := (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(raw, n); err != nil {
		return nil, fmt.Errorf("--node %s: %w", o.node, err)
	}
	parts := strings.Split(n.Id, "~")
	if len(parts) != 4 {
		return nil, fmt.Errorf("--node %s: %w", o.node, errors.New(`its id is not "TYPE~IP~POD.NAMESPACE~DOMAIN"`))
	}
	ip, _ := netip.ParseAddr(parts[1]) // a bad one is refused with the node
	return &proxyNode{id: parts[2], cluster: n.Metadata.GetFields()["CLUSTER_ID"].GetStringValue(), ip: ip, router: parts[0] == bootstrap.Router, node: n}, nil
}

// selected reports whether a Gateway selects workloads with the labels. One that selects every workload is meant for
// routers, which it does not tell from others.
func (o *offline) selected(labels map[string]string) bool {
	return slices.ContainsFunc(o.pc.Configs, func(c *model.Config) bool {
		g, ok := c.Spec.(*networking.Gateway)
		return ok && len(g.Selector) > 0 && matchesLabels(g.Selector, labels)
	})
}

func matchesLabels(selector, labels map[string]string) bool {
	for k, v := range selector {
		if have, ok := labels[k]; !ok || have != v {
			return false
		}
	}
	return true
}

// imagine gives a proxy for each workload, and imagined ones for namespaces and Gateways that have none.
func imagine(read *offline) (out []*proxyNode) {
	peopled := map[string]bool{}
	var o proxyOptions
	add := func(w *model.Workload, typ string, imagined bool) {
		if p, err := o.complete(read, w, typ, imagined); err == nil { // who has no node connects to no hub
			out = append(out, p)
		}
	}
	for _, w := range read.recorder.all() {
		if w.Kind == model.KindPod && !w.Address.AddrPort.IsValid() {
			continue // it has not started
		}
		peopled[w.Namespace] = true
		add(w, "", false)
	}
	made := func(name, namespace string, labels map[string]string) *model.Workload {
		w := &model.Workload{Kind: model.KindPod, Name: name, Namespace: namespace, Labels: labels, Address: model.Addr{AddrPort: netip.AddrPortFrom(imaginedIP, 0)}}
		w.Source.Shard.Cluster = model.ClusterID(read.defaultCluster())
		return w
	}
	for _, ns := range slices.Sorted(maps.Keys(read.namespaces())) {
		if !peopled[ns] {
			add(made("any", ns, nil), bootstrap.Sidecar, true)
		}
	}
	for _, c := range read.pc.Configs {
		g, ok := c.Spec.(*networking.Gateway)
		if ok && len(g.Selector) > 0 && !slices.ContainsFunc(read.recorder.all(), func(w *model.Workload) bool { return matchesLabels(g.Selector, w.Labels) }) {
			add(made("gateway-"+c.Name, c.Namespace, g.Selector), bootstrap.Router, true)
		}
	}
	return out
}

// namespaces are those with services or configuration.
func (o *offline) namespaces() map[string]bool {
	out := map[string]bool{}
	for s := range o.pc.Services() {
		out[s.Shape.Key.Namespace] = true
	}
	for _, c := range o.pc.Configs {
		if c.Namespace != "" && c.Namespace != o.opts.systemNamespace {
			out[c.Namespace] = true
		}
	}
	return out
}
