package main

import (
	"testing"

	"github.com/isthmus-mesh/isthmus/cmd/isthmus/debug"
)

// Virtual hosts that are sent on their own count as the route tables that they belong to: what is wrong with
// them shows there.
func TestRoutesColumn(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ rds, vhds, want string }{
		{"SYNCED", "", "SYNCED"}, {"SYNCED", "SYNCED", "SYNCED"}, {"SYNCED", "STALE", "STALE"}, {"SYNCED", "ERROR", "ERROR"},
		{"STALE", "SYNCED", "STALE"}, {"ERROR", "STALE", "ERROR"}, {"", "", ""},
	} {
		p := debug.Proxy{Types: map[string]debug.Watch{"cds": {Status: "SYNCED"}, "rds": {Status: c.rds}, "vhds": {Status: c.vhds}}}
		if got := column(p, "rds"); got != c.want || column(p, "cds") != "SYNCED" {
			t.Errorf("%+v shows as %q", c, got)
		}
	}
}
