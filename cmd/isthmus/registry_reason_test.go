package main

import (
	"strings"
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/cmd/isthmus/debug"
)

// TestRegistryReason: what keeps the declaration in force from taking over is told once, in lists, in statuses and in explanations.
func TestRegistryReason(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		x       debug.Registry
		want    string
		explain []string // its lines about it
	}{
		"well":                    {debug.Registry{}, "", nil},
		"no contact":              {debug.Registry{Reason: "403"}, "403", []string{"Reason: 403"}},
		"a replacement fails":     {debug.Registry{Reason: "replacement: 403", Replacement: "403"}, "replacement: 403", []string{"Replacement: 403"}},
		"a replacement syncs":     {debug.Registry{Replacement: "syncing"}, "syncing", []string{"Replacement: syncing"}},
		"neither has contact":     {debug.Registry{Reason: "timeout", Replacement: "403"}, "timeout; 403", []string{"Reason: timeout", "Replacement: 403"}},
		"both for the same thing": {debug.Registry{Reason: "403", Replacement: "403"}, "403", []string{"Reason: 403", "Replacement: 403"}},
	} {
		if got := registryReason(c.x); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
		var out strings.Builder
		if err := explainRegistry(&out, c.x, time.Time{}); err != nil {
			t.Fatal(err)
		}
		var lines []string
		for line := range strings.Lines(out.String()) {
			if strings.HasPrefix(line, "Re") && !strings.HasPrefix(line, "Registry:") {
				lines = append(lines, strings.Join(strings.Fields(line), " "))
			}
		}
		if strings.Join(lines, "|") != strings.Join(c.explain, "|") {
			t.Errorf("%s: %q, want %q", name, lines, c.explain)
		}
	}
}
