package main

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/cmd/isthmus/debug"
	"github.com/isthmus-mesh/isthmus/cmd/isthmus/output"
)

func newCluster(now func() time.Time) *cobra.Command {
	c := &cobra.Command{Use: "cluster", Short: "The clusters of a hub: list, add, remove, check"}
	c.AddCommand(newClusterList(now), newClusterAdd(now), newClusterRemove(now), newClusterCheck(now))
	return c
}

func newClusterList(now func() time.Time) *cobra.Command {
	v := &view{now: now}
	c := &cobra.Command{
		Use:   "list",
		Short: "List registries: contact with the source, what they hold, what is wrong with it",
		Long: `List registries: one line for each kind of source in each cluster. Those that are no cluster's are in 'isthmus registry list'.

SYNC is syncing, timeout or synced: whether it has ever delivered everything. STATE is the contact now:
a stale registry keeps serving its last good data. SLICES counts objects that list endpoints, PROBLEMS
items that can't be read and keep their last good content, NOT-SERVED objects of kinds that this version
accepts but does not use; -o wide lists the last two behind the table, endpoints of services that nothing
defines, and credentials that are not used. It has two columns more: EXPIRES is how long the credential that
the cluster is read with is valid still, SOURCE where the newest one is from.`,
		Example: "  isthmus cluster list\n  isthmus cluster list -o wide\n  isthmus cluster list -o json | jq -r '.[] | select(.state != \"live\") | .id'",
		Args:    none,
	}
	c.RunE = func(c *cobra.Command, _ []string) error {
		var clusters []debug.Cluster
		err := v.show(c, "/debug/clusterz", nil, func(raw []byte) (*output.Table, error) {
			var err error
			clusters, err = decode[[]debug.Cluster](raw)
			t := clusterTable(clusters, v.now())
			if !v.wide() {
				t.Without("EXPIRES", "SOURCE")
			}
			return t, err
		})
		if err != nil || !v.wide() {
			return err
		}
		return clusterDetails(c, clusters, v.now())
	}
	v.bind(c)
	return c
}

func clusterTable(clusters []debug.Cluster, now time.Time) *output.Table {
	t := &output.Table{Header: []string{"CLUSTER", "PROVIDER", "SYNC", "STATE", "FOR", "SERVICES", "SLICES", "WORKLOADS", "PROBLEMS", "NOT-SERVED", "EXPIRES", "SOURCE"}}
	for _, c := range clusters {
		rows := func(k model.Kind) string { return strconv.Itoa(c.Rows[k.String()]) }
		notServed := 0
		for _, n := range c.NotServed {
			notServed += n
		}
		t.Add(c.ID, c.Provider, c.SyncStatus, c.State, age(c.Since, now), rows(model.RowService), rows(model.RowEndpoints),
			rows(model.RowWorkload), strconv.Itoa(debug.CountProblems(c.Problems)), strconv.Itoa(notServed), expiry(c.Expires(), now), cmp.Or(c.Credential, &debug.Credential{}).Source)
	}
	return t
}

// expiry is how long a credential is valid still that ends at a time; "" if it says of none.
func expiry(end, now time.Time) string {
	switch {
	case end.IsZero():
		return ""
	case !end.After(now):
		return "expired"
	}
	return age(now, end)
}

// validity says it in words.
func validity(left string) string {
	if left == "expired" {
		return "has expired"
	}
	return "is valid for " + left
}

// clusterDetails prints one line per thing that wants attention.
func clusterDetails(c *cobra.Command, clusters []debug.Cluster, now time.Time) error {
	t := output.Table{Header: []string{"CLUSTER", "ABOUT", "WHERE", "DETAIL"}}
	for _, x := range clusters {
		addContact(&t, x, now)
		for _, p := range x.Problems {
			t.Add(x.ID, "problem", place(p), p.Reason)
		}
		for _, name := range slices.Sorted(maps.Keys(x.NoService)) {
			t.Add(x.ID, "no-service", name, "nothing defines the service of "+strconv.Itoa(x.NoService[name])+" endpoints")
		}
		for _, kind := range slices.Sorted(maps.Keys(x.NotServed)) {
			t.Add(x.ID, "not-served", kind, strconv.Itoa(x.NotServed[kind])+" accepted, not used by this version")
		}
		for _, field := range slices.Sorted(maps.Keys(x.NotServedIn)) {
			t.Add(x.ID, "not-served", field, "set in "+strconv.Itoa(x.NotServedIn[field])+" accepted, not used by this version")
		}
	}
	if len(t.Rows) == 0 {
		return nil
	}
	fmt.Fprintln(c.OutOrStdout())
	return t.Write(c.OutOrStdout())
}

// addContact says what is wrong with the contact and the credentials, each thing once and under the most telling name.
func addContact(t *output.Table, x debug.Cluster, now time.Time) {
	own := cmp.Or(x.Credential, &debug.Credential{})
	if x.Error != "" && x.Error != own.Reason && x.Error != "replacement: "+x.Replacement {
		t.Add(x.ID, "contact", x.Provider, x.Error)
	}
	if x.Replacement != "" {
		detail := x.Replacement
		if left := expiry(own.Expires, now); left != "" && x.Earlier != nil {
			detail += "; the new credential " + validity(left)
		}
		if works := x.State == string(model.StateLive) || x.State == string(model.StateDegraded); works && (own.Trying || own.Reason != "") {
			detail += "; the old credential serves"
		}
		t.Add(x.ID, "replacement", cmp.Or(own.Source, x.Provider), detail)
	}
	for i, c := range credentials(x) {
		if told := i == 0 && c.Reason == x.Replacement; c.Reason != "" && !told {
			t.Add(x.ID, "credential", c.Source, c.Reason)
		}
		if c.Warning != "" {
			t.Add(x.ID, "credential", c.Source, c.Warning)
		}
	}
}

// credentials are all of a cluster, the one in force first.
func credentials(c debug.Cluster) []debug.Credential {
	if c.Credential == nil {
		return c.NotUsed
	}
	return append([]debug.Credential{*c.Credential}, c.NotUsed...)
}

func place(p debug.Problem) string {
	if p.Line == 0 {
		return p.Item
	}
	return p.Item + ":" + strconv.Itoa(p.Line)
}

// age is a duration in its largest unit, as kubectl prints it.
func age(since, now time.Time) string {
	if since.IsZero() {
		return ""
	}
	d := max(now.Sub(since), 0)
	switch {
	case d < 2*time.Minute:
		return strconv.Itoa(int(d.Seconds())) + "s"
	case d < 2*time.Hour:
		return strconv.Itoa(int(d.Minutes())) + "m"
	case d < 48*time.Hour:
		return strconv.Itoa(int(d.Hours())) + "h"
	}
	return strconv.Itoa(int(d.Hours()/24)) + "d"
}

func join(xs []string) string { return strings.Join(xs, ",") }
