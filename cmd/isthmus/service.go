package main

import (
	"fmt"
	"io"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/isthmus-mesh/isthmus/cmd/isthmus/debug"
	"github.com/isthmus-mesh/isthmus/cmd/isthmus/output"
)

func newService(now func() time.Time) *cobra.Command {
	c := &cobra.Command{Use: "service", Short: "The services that a hub has merged"}
	c.AddCommand(newServiceList(now), newServiceExplain(now))
	return c
}

func newServiceList(now func() time.Time) *cobra.Command {
	v := &view{now: now}
	var namespace string
	c := &cobra.Command{
		Use:   "list",
		Short: "List services: ports, and healthy and all endpoints by cluster",
		Long: `List services. ENDPOINTS shows healthy/all for each cluster that has any; LEFT-OUT counts candidates
that nobody is sent and CONFLICTS disagreements between clusters: 'isthmus service explain HOST' names them.
ONLY-IN, if any service has it, is the cluster whose own service that is: others don't know it.`,
		Example: "  isthmus service list\n  isthmus service list -n shop -o wide\n  isthmus service list -o json | jq -r '.[].hostname'",
		Args:    none,
	}
	c.RunE = func(c *cobra.Command, _ []string) error {
		return v.show(c, "/debug/registryz", namespaceQuery(namespace), func(raw []byte) (*output.Table, error) {
			services, err := decode[[]debug.Service](raw)
			return serviceTable(services, v.wide()), err
		})
	}
	c.Flags().StringVarP(&namespace, "namespace", "n", "", "only services of this namespace")
	v.bind(c)
	return c
}

func namespaceQuery(ns string) url.Values {
	if ns == "" {
		return nil
	}
	return url.Values{"namespace": {ns}}
}

func serviceTable(services []debug.Service, wide bool) *output.Table {
	t := &output.Table{Header: []string{"HOST", "NAMESPACE", "PORTS", "RESOLUTION", "ENDPOINTS", "LEFT-OUT", "CONFLICTS", "ONLY-IN", "SOURCES", "EXPORT-TO", "ADDRESSES"}}
	local := false // some are in one cluster only, and may look alike without it
	for _, s := range services {
		ports := make([]string, 0, len(s.Ports))
		for _, p := range s.Ports {
			ports = append(ports, fmt.Sprintf("%d/%s", p.Port, p.Protocol))
		}
		t.Add(s.Hostname, s.Namespace, join(ports), s.Resolution, endpointCounts(s.Endpoints), strconv.Itoa(s.LeftOut),
			strconv.Itoa(s.Conflicts), s.ClusterLocal, join(s.Sources), join(s.ExportTo), addressList(s.Addresses))
		local = local || s.ClusterLocal != ""
	}
	if !wide {
		t.Drop(3)
	}
	if !wide && !local {
		t.Without("ONLY-IN")
	}
	return t
}

func endpointCounts(counts map[string]debug.Count) string {
	out := make([]string, 0, len(counts))
	for _, c := range slices.Sorted(maps.Keys(counts)) {
		out = append(out, fmt.Sprintf("%s=%d/%d", c, counts[c].Healthy, counts[c].Total))
	}
	return join(out)
}

func addressList(byCluster map[string][]string) string {
	out := []string{}
	for _, c := range slices.Sorted(maps.Keys(byCluster)) {
		out = append(out, c+"="+strings.Join(byCluster[c], "+"))
	}
	return join(out)
}

func newServiceExplain(now func() time.Time) *cobra.Command {
	v := &view{now: now}
	var namespace, proxy, cluster string
	c := &cobra.Command{
		Use:   "explain HOST",
		Short: "Explain where a service's endpoints come from, and why others are left out",
		Long: `Explain a service: who defines it and whose definition is in force, what they disagree on, and for
each endpoint its source, health, locality and network, or the reason why it is left out. With --proxy it
answers for one connected proxy: priorities and weights as that proxy is sent them, and why a priority is not 0.

HOST may be short: "reviews" or "reviews.shop" stands for "reviews.shop.svc.cluster.local" while that is
the only one. PROXY is POD.NAMESPACE or a full node id.`,
		Example: "  isthmus service explain reviews.shop\n  isthmus service explain reviews.shop --proxy web-1.shop -o wide",
		Args:    words("HOST"),
	}
	c.RunE = func(c *cobra.Command, args []string) error {
		q := url.Values{"host": args}
		if namespace != "" {
			q.Set("namespace", namespace)
		}
		if proxy != "" {
			q.Set("proxyID", proxy)
		}
		if cluster != "" {
			q.Set("cluster", cluster)
		}
		return explain(c, v, q)
	}
	c.Flags().StringVarP(&namespace, "namespace", "n", "", "the service's namespace, when several claim the host")
	c.Flags().StringVar(&proxy, "proxy", "", "explain for this connected proxy")
	c.Flags().StringVar(&cluster, "cluster", "", "the proxy's cluster, when two have proxies of that name")
	v.bind(c)
	return c
}

func explain(c *cobra.Command, v *view, q url.Values) error {
	return v.print(c, "/debug/servicez", q, func(w io.Writer, raw []byte) error {
		xs, err := decode[[]debug.Explanation](raw)
		if err != nil {
			return err
		}
		for i, x := range xs {
			if i > 0 {
				fmt.Fprintln(w)
			}
			if err := writeExplanation(w, x, v.wide(), v.now()); err != nil {
				return err
			}
		}
		return nil
	})
}

func writeExplanation(w io.Writer, x debug.Explanation, wide bool, now time.Time) error {
	s := x.Service
	facts := [][2]string{
		{"Service", s.Hostname}, {"Namespace", s.Namespace}, {"Only in cluster", s.ClusterLocal}, {"Ports", portList(s.Ports)},
		{"Resolution", s.Resolution}, {"Addresses", addressList(s.Addresses)}, {"Exported to", join(s.ExportTo)},
		{"Federated by", federationText(x.Federation)}, {"Prefers", preference(s)}, {"Rule in force", ruleText(x.Rule)}, {"Not served of it", notServedOf(x.Rule)}, {"Out of contact", outageText(x, now)},
		{"Changed at version", versionText(s.Version)}, {"Proxy", x.Proxy}, {"Not sent, because", x.Reason},
	}
	for _, f := range facts {
		if f[1] != "" {
			fmt.Fprintf(w, "%-19s %s\n", f[0]+":", f[1])
		}
	}
	for _, section := range []struct {
		title string
		table *output.Table
	}{
		{"Defined by", contributionTable(x.Contributions, now)},
		{"Sources", sourceTable(x.Federation)},
		{"Conflicts", conflictTable(x.Conflicts)},
		{"Problems", problemTable(x.Problems, now)},
		{"Endpoints", endpointTable(x.Endpoints, x.Proxy != "", wide, now)},
		{"Left out", leftOutTable(x.Endpoints, now)},
	} {
		if len(section.table.Rows) == 0 {
			continue
		}
		fmt.Fprintf(w, "\n%s:\n", section.title)
		if err := section.table.Write(w); err != nil {
			return err
		}
	}
	return nil
}

// ruleText names a rule and those that are one with it.
func ruleText(r *debug.Rule) string {
	if r == nil {
		return ""
	}
	var names []string
	for _, s := range append([]debug.Source{r.Source}, r.Merged...) {
		names = append(names, s.Object+" of "+s.Shard)
	}
	return strings.Join(names, ", ")
}

func notServedOf(r *debug.Rule) string {
	if r == nil {
		return ""
	}
	return strings.Join(r.NotServedFields, ", ")
}

// outageText says which shards are out of contact, for how long, and what follows for their endpoints.
func outageText(x debug.Explanation, now time.Time) string {
	var out []string
	for _, o := range x.Stale {
		text := o.Shard + " for " + age(o.Since, now)
		if slices.Contains(x.Demoted, o.Shard) {
			text += ", used last by other clusters"
		}
		out = append(out, text)
	}
	for _, shard := range x.Demoted {
		if !slices.ContainsFunc(x.Stale, func(o debug.Outage) bool { return o.Shard == shard }) {
			out = append(out, shard+", used last by other clusters")
		}
	}
	return strings.Join(out, "; ")
}

// versionText is "" for what was never in a version.
func versionText(v uint64) string {
	if v == 0 {
		return ""
	}
	return strconv.FormatUint(v, 10)
}

// preference says which endpoints the service asks proxies to prefer.
func preference(s debug.Service) string {
	if s.NodeLocal {
		return "endpoints of the proxy's own node, and no others"
	}
	return map[string]string{"PreferSameZone": "endpoints of the proxy's zone", "PreferSameNode": "endpoints of the proxy's node, then of its zone"}[s.Traffic]
}

func portList(ports []debug.Port) string {
	out := []string{}
	for _, p := range ports {
		out = append(out, strings.TrimSuffix(fmt.Sprintf("%d/%s %s", p.Port, p.Protocol, p.Name), " "))
	}
	return strings.Join(out, ", ")
}

func contributionTable(cs []debug.Contribution, now time.Time) *output.Table {
	t := &output.Table{Header: []string{"SHARD", "OBJECT", "REVISION", "AGE", "IN-FORCE"}}
	for _, c := range cs {
		t.Add(c.Source.Shard, c.Source.Object, c.Source.Revision, age(c.Source.Time, now), yesNo(c.Won))
	}
	return t
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

// federationText names a FederatedService, and its policy.
func federationText(f *debug.Federation) string {
	if f == nil {
		return ""
	}
	return f.Source.Object + " of " + f.Source.Shard + ", " + f.Policy
}

// sourceTable says what came of each source of a FederatedService.
func sourceTable(f *debug.Federation) *output.Table {
	t := &output.Table{Header: []string{"SOURCE", "HOST", "NAMESPACE", "PRIORITY", "WEIGHT", "ENDPOINTS", "NO-PORT-FOR", "REASON"}}
	if f == nil {
		return t
	}
	for _, s := range f.Sources {
		t.Add(s.Name, s.Host, s.Namespace, strconv.FormatUint(uint64(s.Priority), 10), strconv.FormatUint(uint64(s.Weight), 10),
			fmt.Sprintf("%d/%d", s.Healthy, s.Endpoints), join(s.Unmapped), s.Reason)
	}
	if f.Policy != "failover" {
		t.Without("PRIORITY")
	}
	if f.Policy != "weighted" {
		t.Without("WEIGHT")
	}
	if !slices.ContainsFunc(f.Sources, func(s debug.FederatedSource) bool { return len(s.Unmapped) > 0 }) {
		t.Without("NO-PORT-FOR")
	}
	return t
}

func problemTable(ps []debug.ItemProblem, now time.Time) *output.Table {
	t := &output.Table{Header: []string{"SHARD", "OBJECT", "SINCE", "PROBLEM"}}
	for _, p := range ps {
		t.Add(p.Shard, p.Item, age(p.Since, now), p.Reason)
	}
	return t
}

func conflictTable(cs []debug.Conflict) *output.Table {
	t := &output.Table{Header: []string{"FIELD", "WINNER", "LOSER", "DETAIL"}}
	for _, c := range cs {
		t.Add(c.Field, c.Winner.Shard, c.Loser.Shard, c.Detail)
	}
	return t
}

func endpointTable(es []debug.Endpoint, forProxy, wide bool, now time.Time) *output.Table {
	t := &output.Table{Header: []string{"ADDRESS", "CLUSTER", "PORT", "HEALTH", "PRIORITY", "WEIGHT", "VIA", "LOCALITY", "NETWORK", "SHARD", "OBJECT", "REVISION", "AGE", "DETAIL", "SOURCE", "SUBSETS", "ELSEWHERE", "WORKLOAD", "TLS"}}
	// Some have not the best priority, or are dialled elsewhere; some are in subsets; some are of a source; some have other addresses for others.
	behind, divided, parted, several := false, false, false, false
	for _, e := range es {
		if e.Reason != "" {
			continue
		}
		priority := ""
		if e.Priority != nil {
			priority = strconv.FormatUint(uint64(*e.Priority), 10)
		}
		t.Add(e.Address, e.Cluster, e.Port, e.Health, priority, strconv.FormatFloat(e.Weight, 'f', -1, 64), e.Via, e.Locality, e.Network,
			e.Source.Shard, e.Source.Object, e.Source.Revision, age(e.Source.Time, now), e.Detail, e.Part, strings.Join(e.Subsets, ","), elsewhere(e), e.Workload, e.TLSMode)
		behind, divided, parted, several = behind || e.Detail != "", divided || len(e.Subsets) > 0, parted || e.Part != "", several || len(e.Alternatives) > 0
	}
	if !wide {
		t.Drop(2)
	}
	if !forProxy {
		t.Without("PRIORITY", "VIA")
	}
	if !behind {
		t.Without("DETAIL")
	}
	if !divided {
		t.Without("SUBSETS")
	}
	if !parted {
		t.Without("SOURCE")
	}
	if !several || forProxy {
		t.Without("ELSEWHERE")
	}
	return t
}

// elsewhere is where proxies of other networks dial an endpoint: "dmz=192.0.2.1:80,*=198.51.100.1:80".
func elsewhere(e debug.Endpoint) string {
	var out []string
	for _, network := range slices.Sorted(maps.Keys(e.Alternatives)) {
		out = append(out, network+"="+e.Alternatives[network])
	}
	return strings.Join(out, ",")
}

func leftOutTable(es []debug.Endpoint, now time.Time) *output.Table {
	t := &output.Table{Header: []string{"ADDRESS", "CLUSTER", "PORT", "REASON", "SHARD", "OBJECT", "REVISION", "AGE", "DETAIL"}}
	for _, e := range es {
		if e.Reason != "" {
			t.Add(e.Address, e.Cluster, e.Port, e.Reason, e.Source.Shard, e.Source.Object, e.Source.Revision, age(e.Source.Time, now), e.Detail)
		}
	}
	return t
}
