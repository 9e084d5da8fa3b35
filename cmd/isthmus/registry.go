package main

import (
	"cmp"
	"fmt"
	"io"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/cmd/isthmus/debug"
	"github.com/isthmus-mesh/isthmus/cmd/isthmus/output"
)

func newRegistry(now func() time.Time) *cobra.Command {
	c := &cobra.Command{Use: "registry", Short: "The foreign registries of a hub: list, explain"}
	c.AddCommand(newRegistryList(now), newRegistryExplain(now))
	return c
}

func newRegistryList(now func() time.Time) *cobra.Command {
	v := &view{now: now}
	c := &cobra.Command{
		Use:   "list",
		Short: "List foreign registries: contact, what they hold, what is held back, what is wrong",
		Long: `List the registries that are no Kubernetes API servers: Consul, Nacos, MCP servers, and services whose addresses are declared.

STATE is the contact now: a stale registry keeps serving its last good data, a degraded one serves as it was declared before, since
what is declared now does not work, and a refused one can't be read as it is declared. HELD counts services, and objects of
configuration, that are served as they were although the registry says otherwise, by its policy for what becomes empty; PROBLEMS
all that wants attention, these included: 'isthmus registry explain NAME' tells what.`,
		Example: "  isthmus registry list\n  isthmus registry list -o wide\n  isthmus registry list -o json | jq -r '.[] | select(.state != \"live\") | .name'",
		Args:    none,
	}
	c.RunE = func(c *cobra.Command, _ []string) error {
		return v.show(c, "/debug/registries", nil, func(raw []byte) (*output.Table, error) {
			list, err := decode[[]debug.Registry](raw)
			t := registryTable(list, v.now())
			if !v.wide() {
				t.Without("WORKLOADS", "DECLARED-BY")
			}
			return t, err
		})
	}
	v.bind(c)
	return c
}

func registryTable(list []debug.Registry, now time.Time) *output.Table {
	t := &output.Table{Header: []string{"NAME", "PROVIDER", "STATE", "FOR", "SERVICES", "ENDPOINTS", "WORKLOADS", "LAST-EVENT", "HELD", "PROBLEMS", "DECLARED-BY", "REASON"}}
	for _, x := range list {
		t.Add(x.Name, x.Provider, x.State, age(x.Since, now), strconv.Itoa(x.Services), strconv.Itoa(x.Endpoints), strconv.Itoa(x.Workloads), age(x.LastEvent, now),
			strconv.Itoa(x.HeldBack), strconv.Itoa(debug.CountProblems(x.Problems)), declaredBy(x), registryReason(x))
	}
	return t
}

// registryReason is why it is not well: why there is no contact, and why what is declared now has not taken over, each once.
func registryReason(x debug.Registry) string {
	if strings.TrimPrefix(x.Reason, "replacement: ") == x.Replacement {
		return x.Reason
	}
	return strings.TrimPrefix(strings.TrimSuffix(x.Reason+"; "+x.Replacement, "; "), "; ")
}

// declaredBy names what declares a registry.
func declaredBy(x debug.Registry) string {
	if x.DeclaredBy == nil {
		return "flags or settings"
	}
	return strings.TrimSpace(x.DeclaredBy.Source.Object + " " + x.DeclaredBy.Field)
}

func newRegistryExplain(now func() time.Time) *cobra.Command {
	v := &view{now: now}
	var provider string
	c := &cobra.Command{
		Use:   "explain NAME",
		Short: "Explain a registry: contact, where it is declared, settings in force, what can't be used or is held back",
		Long: `Explain a foreign registry: how the contact with it is and why, what declares it, what it holds, items that can't be used,
each whose removal is held back, and the settings in force with all defaults.`,
		Example: "  isthmus registry explain legacy\n  isthmus registry explain legacy --provider consul -o yaml",
		Args:    words("NAME"),
	}
	c.RunE = func(c *cobra.Command, args []string) error {
		q := url.Values{"name": args}
		if provider != "" {
			q.Set("provider", provider)
		}
		return v.print(c, "/debug/registries", q, func(w io.Writer, raw []byte) error {
			list, err := decode[[]debug.Registry](raw)
			for i, x := range list {
				if i > 0 {
					fmt.Fprintln(w)
				}
				if err == nil {
					err = explainRegistry(w, x, v.now())
				}
			}
			return err
		})
	}
	c.Flags().StringVar(&provider, "provider", "", "the registry's `PROVIDER`, when several have the name")
	v.bind(c)
	return c
}

func explainRegistry(w io.Writer, x debug.Registry, now time.Time) error {
	line := func(name, value string) {
		if value != "" {
			fmt.Fprintf(w, "%-14s%s\n", name+":", value)
		}
	}
	line("Registry", x.Provider+"/"+x.Name)
	state := x.State
	if !x.Since.IsZero() {
		state += " for " + age(x.Since, now)
	}
	line("State", state)
	if x.Reason != "replacement: "+x.Replacement {
		line("Reason", x.Reason)
	}
	line("Replacement", x.Replacement)
	line("Declared by", declaredBy(x))
	line("Secrets", join(x.Secrets))
	line("Holds", fmt.Sprintf("%d services, %d endpoints, %d workloads", x.Services, x.Endpoints, x.Workloads))
	if !x.LastEvent.IsZero() {
		line("Last event", age(x.LastEvent, now)+" ago")
	}
	what := " services"
	if x.Provider == string(model.ProviderMCP) {
		what += " and objects"
	}
	line("Held back", strconv.Itoa(x.HeldBack)+what)
	if len(x.Problems) > 0 {
		fmt.Fprintln(w)
		t := output.Table{Header: []string{"ITEM", "FOR", "REASON"}}
		for _, p := range x.Problems {
			t.Add(cmp.Or(place(p), "-"), age(p.Since, now), p.Reason)
		}
		if err := t.Write(w); err != nil {
			return err
		}
	}
	return explainSettings(w, x)
}

// explainSettings prints the settings in force.
func explainSettings(w io.Writer, x debug.Registry) error {
	var settings any = x.Effective
	switch {
	case x.Static != nil:
		settings = x.Static
	case x.Effective == nil:
		return nil
	}
	text, err := yaml.Marshal(settings)
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "\nSettings in force, as declared now:\n")
	for line := range strings.Lines(string(text)) {
		fmt.Fprint(w, "  "+line)
	}
	return nil
}
