package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
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

// TestProxyGateways: who is not served says why; a router without Gateways has a table without rows.
func TestProxyGateways(t *testing.T) {
	t.Parallel()
	answer, err := os.ReadFile("debug/testdata/gateways.golden")
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"proxy-gateways": string(answer), "proxy-gateways-none": "[]"} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Server", debug.ServerName)
			if r.URL.Path == "/debug/gateways" && r.URL.Query().Get("proxyID") == "gateway-1.edge" {
				io.WriteString(w, text)
			}
		}))
		got := command(t, "proxy", "gateways", "gateway-1.edge", "-o", "wide", "--hub", s.URL)
		s.Close()
		if got.code != exitOK {
			t.Errorf("exit code %d: %s", got.code, got.stderr)
		}
		compare(t, name+".golden", got.stdout)
	}
}
