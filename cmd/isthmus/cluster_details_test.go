package main

import (
	"strings"
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/cmd/isthmus/debug"
	"github.com/isthmus-mesh/isthmus/cmd/isthmus/output"
)

// TestContactIsSaidOnce: one fault of a credential is one line, which names where the credential is from.
func TestContactIsSaidOnce(t *testing.T) {
	t.Parallel()
	cred := func(reason string, trying bool) *debug.Credential {
		return &debug.Credential{Source: "/c/w.yaml", Reason: reason, Trying: trying}
	}
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	ending := func(in time.Duration) debug.Cluster {
		return debug.Cluster{State: "degraded", Replacement: "401", Earlier: &debug.Earlier{},
			Credential: &debug.Credential{Source: "/c/w.yaml", Trying: true, Expires: at.Add(in)}}
	}
	for name, test := range map[string]struct {
		cluster debug.Cluster
		want    string
	}{
		"nothing":           {debug.Cluster{Credential: cred("", false)}, ""},
		"no contact":        {debug.Cluster{Provider: "kubernetes", Error: "refuses", Credential: cred("", false)}, "contact kubernetes refuses"},
		"refused":           {debug.Cluster{Provider: "kubernetes", Error: "exec", Credential: cred("exec", false)}, "credential /c/w.yaml exec"},
		"new one fails":     {debug.Cluster{State: "degraded", Error: "replacement: 401", Replacement: "401", Credential: cred("", true)}, "replacement /c/w.yaml 401; the old credential serves"},
		"new one refused":   {debug.Cluster{State: "degraded", Error: "replacement: exec", Replacement: "exec", Credential: cred("exec", false)}, "replacement /c/w.yaml exec; the old credential serves"},
		"new one ends":      {ending(72 * time.Hour), "replacement /c/w.yaml 401; the new credential is valid for 3d; the old credential serves"},
		"new one ended":     {ending(-time.Hour), "replacement /c/w.yaml 401; the new credential has expired; the old credential serves"},
		"neither works":     {debug.Cluster{State: "stale", Provider: "kubernetes", Error: "refuses", Replacement: "401", Credential: cred("", true)}, "contact kubernetes refuses|replacement /c/w.yaml 401"},
		"new settings":      {debug.Cluster{State: "live", Replacement: "syncing", Credential: cred("", false)}, "replacement /c/w.yaml syncing"},
		"of no credential":  {debug.Cluster{State: "live", Provider: "file", Replacement: "syncing"}, "replacement file syncing"},
		"others not in use": {debug.Cluster{NotUsed: []debug.Credential{{Source: "a", Reason: "x"}, {Source: "b", Reason: "x"}}}, "credential a x|credential b x"},
	} {
		var table output.Table
		addContact(&table, test.cluster, at)
		var lines []string
		for _, row := range table.Rows {
			lines = append(lines, strings.Join(row[1:], " "))
		}
		if got := strings.Join(lines, "|"); got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}

// TestOutagesAreToldFromTheStart: before other clusters use a shard's endpoints last too.
func TestOutagesAreToldFromTheStart(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	west := []debug.Outage{{Shard: "kubernetes/west", Since: at.Add(-98 * time.Second)}}
	for want, x := range map[string]debug.Explanation{
		"":                        {},
		"kubernetes/west for 98s": {Stale: west},
		"kubernetes/west for 98s, used last by other clusters": {Stale: west, Demoted: []string{"kubernetes/west"}},
		"kubernetes/west, used last by other clusters":         {Demoted: []string{"kubernetes/west"}},
	} {
		if got := outageText(x, at); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// TestExpiryOfWhatServes: EXPIRES is that of the credential in force, and SOURCE where a credential is from, wherever that is.
func TestExpiryOfWhatServes(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for want, c := range map[string]debug.Cluster{
		"3h /c/w.yaml":       {Credential: &debug.Credential{Source: "/c/w.yaml", Expires: at.Add(99 * time.Hour)}, Earlier: &debug.Earlier{Expires: at.Add(3 * time.Hour)}},
		" /c/w.yaml":         {Credential: &debug.Credential{Source: "/c/w.yaml", Expires: at.Add(99 * time.Hour)}, Earlier: &debug.Earlier{}},
		"expired Secret n/a": {SecretName: "n/a", Credential: &debug.Credential{Source: "Secret n/a", Expires: at}},
		" ":                  {},
	} {
		row := clusterTable([]debug.Cluster{c}, at).Rows[0]
		if got := strings.Join(row[len(row)-2:], " "); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
