package main

import (
	"fmt"
	"io"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/isthmus-mesh/isthmus/cmd/isthmus/debug"
	"github.com/isthmus-mesh/isthmus/cmd/isthmus/envoydump"
	"github.com/isthmus-mesh/isthmus/cmd/isthmus/output"
)

func newProxy(now func() time.Time) *cobra.Command {
	c := &cobra.Command{Use: "proxy", Short: "The proxies that are connected to a hub"}
	c.AddCommand(newProxyList(now), newProxyConfig(now), newProxyGateways(now))
	return c
}

func newProxyList(now func() time.Time) *cobra.Command {
	v := &view{now: now}
	c := &cobra.Command{
		Use:   "list",
		Short: "List connected proxies and whether they have what they were sent",
		Long: `List connected proxies. For each type: SYNCED, STALE (sent, not acknowledged), NOT-SENT, or ERROR (the
proxy refuses a resource and keeps its last good one). -o wide lists what is refused, and why, behind the table.`,
		Example: "  isthmus proxy list\n  isthmus proxy list -o wide",
		Args:    none,
	}
	c.RunE = func(c *cobra.Command, _ []string) error {
		return v.print(c, "/debug/connections", nil, func(w io.Writer, raw []byte) error {
			proxies, err := decode[[]debug.Proxy](raw)
			if err != nil {
				return err
			}
			return writeProxies(w, proxies, v.wide(), v.now())
		})
	}
	v.bind(c)
	return c
}

// typeNames are in the order in which proxies are sent them.
func typeNames() []string { return []string{"cds", "eds", "lds", "rds", "vhds"} }

// column gives the state of a type; that of route tables is that of their virtual hosts, too.
func column(p debug.Proxy, name string) string {
	own := p.Types[name].Status
	if hosts := p.Types["vhds"].Status; name == "rds" && (hosts == "ERROR" || hosts == "STALE" && own == "SYNCED") {
		return hosts
	}
	return own
}

func writeProxies(w io.Writer, proxies []debug.Proxy, wide bool, now time.Time) error {
	t := &output.Table{Header: []string{"PROXY", "CLUSTER", "TYPE", "CDS", "EDS", "LDS", "RDS", "CONNECTED", "PROTOCOL", "ADDRESS", "NETWORK", "LOCALITY", "VERSION"}}
	for _, p := range proxies {
		cells := []string{p.Name, p.Cluster, p.Type}
		for _, name := range []string{"cds", "eds", "lds", "rds"} {
			cells = append(cells, column(p, name))
		}
		t.Add(append(cells, age(p.ConnectedAt, now), p.Protocol, p.Address, p.Network, p.Locality, p.Version)...)
	}
	if !wide {
		t.Drop(4)
		return t.Write(w)
	}
	if err := t.Write(w); err != nil {
		return err
	}
	return writeRejections(w, proxies, now)
}

func writeRejections(w io.Writer, proxies []debug.Proxy, now time.Time) error {
	t := output.Table{Header: []string{"PROXY", "TYPE", "REFUSES", "FOR", "ERROR"}}
	for _, p := range proxies {
		for _, name := range typeNames() {
			if w := p.Types[name]; w.Status == "ERROR" {
				t.Add(p.Name, name, join(w.Rejected), age(w.ErrorAt, now), w.Error)
			}
		}
	}
	if len(t.Rows) == 0 {
		return nil
	}
	fmt.Fprintln(w)
	return t.Write(w)
}

// configTypes are the words for TYPE, each with its short name and table.
func configTypes() map[string]configType {
	return map[string]configType{
		"clusters":  {"cds", (*envoydump.Dump).Clusters},
		"endpoints": {"eds,cds", (*envoydump.Dump).Endpoints}, // clusters may hold their own endpoints
		"listeners": {"lds", (*envoydump.Dump).Listeners},
		"routes":    {"rds", (*envoydump.Dump).Routes},
	}
}

type configType struct {
	types string
	table func(*envoydump.Dump) *output.Table
}

func newProxyConfig(now func() time.Time) *cobra.Command {
	v := &view{now: now}
	var cluster string
	c := &cobra.Command{
		Use:   "config TYPE PROXY",
		Short: "Show what a proxy is sent: clusters, endpoints, listeners, routes or all",
		Long: `Show what a proxy is sent, made from the hub's current state. TYPE is clusters, endpoints, listeners,
routes or all; PROXY is POD.NAMESPACE or a full node id. -o json prints it as Envoy's own admin interface
(/config_dump) would, so that the two can be compared.`,
		Example: "  isthmus proxy config endpoints web-1.shop\n  isthmus proxy config all web-1.shop -o json",
		Args:    words("TYPE", "PROXY"),
	}
	c.ValidArgs = append(slices.Sorted(maps.Keys(configTypes())), "all")
	c.RunE = func(c *cobra.Command, args []string) error {
		if !slices.Contains(c.ValidArgs, args[0]) {
			return usageError("type %q is none of %s", args[0], strings.Join(c.ValidArgs, ", "))
		}
		q := url.Values{"proxyID": {args[1]}}
		if cluster != "" {
			q.Set("cluster", cluster)
		}
		if t, ok := configTypes()[args[0]]; ok {
			q.Set("types", t.types)
		}
		return v.print(c, "/debug/config_dump", q, func(w io.Writer, raw []byte) error {
			return writeDump(w, args[0], raw)
		})
	}
	c.Flags().StringVar(&cluster, "cluster", "", "the proxy's cluster, when two have proxies of that name")
	v.bind(c)
	return c
}

func newProxyGateways(now func() time.Time) *cobra.Command {
	v := &view{now: now}
	var cluster string
	c := &cobra.Command{
		Use:   "gateways PROXY",
		Short: "Show which servers of Gateways a router serves, and why not the others",
		Long: `Show each server of the Gateways that select a router, in the order in which they claim ports and hosts: the oldest
Gateway first. PROXY is POD.NAMESPACE or a full node id.`,
		Example: "  isthmus proxy gateways gateway-1.edge\n  isthmus proxy gateways gateway-1.edge -o json",
		Args:    words("PROXY"),
	}
	c.RunE = func(c *cobra.Command, args []string) error {
		q := url.Values{"proxyID": {args[0]}}
		if cluster != "" {
			q.Set("cluster", cluster)
		}
		return v.print(c, "/debug/gateways", q, func(w io.Writer, raw []byte) error {
			servers, err := decode[[]debug.GatewayServer](raw)
			if err != nil {
				return err
			}
			return gatewaysTable(servers, v.wide()).Write(w)
		})
	}
	c.Flags().StringVar(&cluster, "cluster", "", "the proxy's `CLUSTER`, when two have proxies of that name")
	v.bind(c)
	return c
}

func gatewaysTable(servers []debug.GatewayServer, wide bool) *output.Table {
	t := &output.Table{Header: []string{"GATEWAY", "SERVER", "PORT", "PROTOCOL", "HOSTS", "LISTENER", "NOT-SERVED", "CLUSTER", "ROUTES", "ROUTE-TABLE"}}
	for _, s := range servers {
		t.Add(s.Gateway, fmt.Sprint(s.Server), fmt.Sprint(s.Port), s.Protocol, join(s.Hosts), s.Listener, s.Reason, s.Cluster, join(s.Routes), s.Table)
	}
	if !wide {
		t.Drop(3)
	}
	return t
}

func writeDump(w io.Writer, kind string, raw []byte) error {
	d, err := envoydump.Parse(raw)
	if err != nil {
		return err
	}
	if t, ok := configTypes()[kind]; ok {
		return t.table(d).Write(w)
	}
	for i, name := range slices.Sorted(maps.Keys(configTypes())) {
		if i > 0 {
			fmt.Fprintln(w)
		}
		fmt.Fprintln(w, strings.ToUpper(name))
		if err := configTypes()[name].table(d).Write(w); err != nil {
			return err
		}
	}
	return nil
}
