package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/isthmus-mesh/isthmus/cmd/isthmus/debug"
	"github.com/isthmus-mesh/isthmus/cmd/isthmus/debug/debugtest"
	"github.com/isthmus-mesh/isthmus/cmd/isthmus/output"
	"github.com/isthmus-mesh/isthmus/pushcontext"
	"github.com/isthmus-mesh/isthmus/test/golden"
)

// result is what one command line did.
type result struct {
	code           int
	stdout, stderr string
}

func command(t *testing.T, args ...string) result {
	t.Helper()
	var stdout, stderr bytes.Buffer
	root := newRoot(debugtest.Now)
	code := execute(t.Context(), root, args, &stdout, &stderr)
	return result{code, stdout.String(), stderr.String()}
}

// fakeHub answers from a fixed mesh.
func fakeHub(t *testing.T) string {
	t.Helper()
	dump, err := os.ReadFile("testdata/dump.json")
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(debug.New(debugtest.Options(debugtest.Connected(dump))))
	t.Cleanup(s.Close)
	return s.URL
}

func TestTables(t *testing.T) {
	t.Parallel()
	hub := fakeHub(t)
	for name, args := range map[string]string{
		"cluster-list":           "cluster list",
		"cluster-list-wide":      "cluster list -o wide",
		"service-list":           "service list",
		"service-list-wide":      "service list -o wide",
		"service-list-namespace": "service list -n bank",
		"service-explain":        "service explain reviews.shop",
		"service-explain-wide":   "service explain reviews.shop -o wide",
		"service-explain-two":    "service explain ratings.example.com",
		"service-explain-orphan": "service explain legacy.shop",
		"service-explain-hidden": "service explain ratings.example.com -n bank --proxy sidecar~10.20.0.5~web-1.shop~shop.svc.cluster.local",
		"service-explain-proxy":  "service explain reviews --proxy sidecar~10.20.0.5~web-1.shop~shop.svc.cluster.local",
		"proxy-list":             "proxy list",
		"proxy-list-wide":        "proxy list -o wide",
		"proxy-config-clusters":  "proxy config clusters gateway-1.edge",
		"proxy-config-endpoints": "proxy config endpoints gateway-1.edge",
		"proxy-config-listeners": "proxy config listeners gateway-1.edge",
		"proxy-config-routes":    "proxy config routes gateway-1.edge",
		"proxy-config-all":       "proxy config all web-1.shop --cluster east",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := command(t, append(strings.Fields(args), "--hub", hub)...)
			if got.code != exitOK || got.stderr != "" {
				t.Fatalf("exit code %d, stderr %q", got.code, got.stderr)
			}
			compare(t, name+".golden", got.stdout)
		})
	}
}

func compare(t *testing.T, name, got string) {
	t.Helper()
	golden.Compare(t, filepath.Join("testdata", name), got)
	for line := range strings.Lines(got) {
		if strings.TrimRight(line, " \n") != strings.TrimSuffix(line, "\n") {
			t.Errorf("trailing space in %q", line)
		}
	}
}

func TestJSONAndYAMLAgree(t *testing.T) {
	t.Parallel()
	hub := fakeHub(t)
	for _, args := range []string{"cluster list", "service list", "service explain reviews", "proxy list", "proxy config all gateway-1.edge"} {
		decode := func(format string, unmarshal func([]byte, any) error) (v any) {
			got := command(t, append(strings.Fields(args), "--hub", hub, "-o", format)...)
			if err := unmarshal([]byte(got.stdout), &v); err != nil || got.code != exitOK {
				t.Errorf("%s -o %s: exit code %d, %v", args, format, got.code, err)
			}
			return v
		}
		fromYAML := func(b []byte, v any) error { return yaml.Unmarshal(b, v) }
		if d := cmp.Diff(decode("json", json.Unmarshal), decode("yaml", fromYAML)); d != "" {
			t.Errorf("%s: JSON and YAML differ:\n%s", args, d)
		}
	}
}

// foreignHub answers as a hub must not, or as what is none.
func foreignHub(t *testing.T) string {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/debug/clusterz":
			w.Header().Set("Server", debug.ServerName)
			http.Error(w, "who are you", http.StatusForbidden)
		case "/debug/registryz":
			http.Error(w, "404 page \x1b[31mnot found", http.StatusNotFound)
		case "/debug/connections":
			w.Header().Set("Server", debug.ServerName)
			w.Write([]byte("<html>"))
		default:
			w.Write([]byte("null"))
		}
	}))
	t.Cleanup(s.Close)
	return s.URL
}

func TestExitCodes(t *testing.T) {
	t.Parallel()
	hub := fakeHub(t)
	foreign := foreignHub(t)
	tests := []struct {
		args string
		code int
		says string // on stderr
	}{
		{"version", exitOK, ""},
		{"--version", exitOK, ""},
		{"--help", exitOK, ""},
		{"cluster", exitOK, ""},
		{"nonsense", exitUsage, "nonsense"},
		{"serve --dir . --cluster-id ../x", exitUsage, "can't be a cluster's id"},
		{"serve --dir . --system-namespace a/b", exitUsage, "can't be a namespace"},
		{"serve --dir . --system-namespace=", exitUsage, "can't be a namespace"},
		{"cluster nonsense", exitUsage, "isthmus cluster --help"},
		{"cluster list extra", exitUsage, `"extra" is not expected: 'isthmus cluster list' takes flags only, see 'isthmus cluster list --help'`},
		{"proxy config", exitUsage, `want TYPE and PROXY, as in 'isthmus proxy config endpoints web-1.shop'`},
		{"cluster list --nonsense", exitUsage, "--nonsense"},
		{"cluster list -o xml --hub " + hub, exitUsage, "json, yaml"},
		{"cluster list --hub http://", exitUsage, "is not a URL like"},
		{"cluster list --hub " + strings.TrimPrefix(hub, "http://"), exitOK, ""},
		{"cluster list --hub http://127.0.0.1:1", exitFailure, "start one with 'isthmus serve'"},
		{"cluster list --hub " + foreign, exitFailure, "where the hub runs"},
		{"service list --hub " + foreign, exitFailure, "is it the --http-addr"},
		{"proxy list --hub " + foreign, exitFailure, "is it the --http-addr"},
		{"service explain a --hub " + foreign, exitFailure, "is it the --http-addr"},
		{"version -o xml", exitUsage, "json"},
		{"service explain --hub " + hub, exitUsage, "want HOST"},
		{"proxy config clusters --hub " + hub, exitUsage, "want TYPE and PROXY"},
		{"service explain nothing.shop --hub " + hub, exitNotFound, "isthmus service list"},
		{"service explain reviews --proxy nobody.shop --hub " + hub, exitNotFound, "isthmus proxy list"},
		{"service explain reviews --proxy web-1.shop --hub " + hub, exitUsage, "ambiguous"},
		{"proxy config secrets web-1.shop --hub " + hub, exitUsage, "listeners, routes, all"},
		{"proxy config clusters nobody.shop --hub " + hub, exitNotFound, "isthmus proxy list"},
		{"bootstrap", exitUsage, "required flag"},
		{"bootstrap --id web --cluster east --hub h:1", exitUsage, "POD.NAMESPACE"},
		{"bootstrap --id web.shop --cluster east --hub h:1 --ip x", exitUsage, "--ip"},
		{"bootstrap --id web.shop --cluster east --hub h:1 -o table", exitUsage, "yaml or json"},
		{"serve", exitUsage, "there is nothing to serve: name the config cluster with --kubeconfig"},
		{"serve --dir testdata --mcp-addr :1", exitUsage, "not available in this version"},
		{"serve --dir testdata --secure-grpc-addr :1", exitUsage, "not available in this version"},
		{"serve --dir testdata --log-level loud", exitUsage, "debug, info, warn or error"},
		{"serve --dir testdata --log-format xml", exitUsage, "text or json"},
		{"serve --dir testdata --stale-after -5s", exitUsage, "--stale-after must not be negative"},
		{"serve --dir testdata --endpoint-debounce 5s --endpoint-debounce-max 1s", exitUsage, "must not be below --endpoint-debounce"},
		{"serve --dir testdata --config-debounce 5s", exitUsage, "must not be below --config-debounce"},
		{"serve --dir testdata --domain ...", exitUsage, "not the name of a domain"},
		{"serve --dir testdata --trust-domain /x", exitUsage, "not the name of a domain"},
		{"serve --dir testdata --dns-servers 192.0.2.1:53,ns.example:53", exitUsage, "--dns-servers ns.example:53: want IP:PORT"},
		{"serve --dir testdata --max-request-bytes 1000", exitUsage, "must be at least 65536"},
		{"serve --dir testdata --encoded-cache-bytes -1", exitUsage, "0 keeps nothing"},
		{"cluster list --timeout 0s --hub " + hub, exitUsage, "--timeout must be above 0"},
		{"serve --dir testdata/none", exitFailure, "--dir"},
		{"serve --dir testdata/dump.json", exitFailure, "is a file"},
	}
	for _, tt := range tests {
		t.Run(tt.args, func(t *testing.T) {
			t.Parallel()
			got := command(t, strings.Fields(tt.args)...)
			if got.code != tt.code || !strings.Contains(got.stderr, tt.says) {
				t.Errorf("exit code %d, stderr %q; want %d and %q", got.code, got.stderr, tt.code, tt.says)
			}
		})
	}
}

// full is a disk that has no room.
type full struct{}

func (full) Write([]byte) (int, error) { return 0, errors.New("no space left") }

func TestOutputThatCannotBeWritten(t *testing.T) {
	t.Parallel()
	hub := fakeHub(t)
	for _, args := range []string{"cluster list", "cluster list -o json", "service explain reviews.shop"} {
		var stderr bytes.Buffer
		code := execute(t.Context(), newRoot(debugtest.Now), append(strings.Fields(args), "--hub", hub), full{}, &stderr)
		if code != exitFailure || !strings.Contains(stderr.String(), "no space left") || strings.Contains(stderr.String(), "--http-addr") {
			t.Errorf("%s: exit code %d, stderr %q", args, code, stderr.String())
		}
	}
}

// TestOtherServersAreNotRepeated: what a server that is no hub says is not printed.
func TestOtherServersAreNotRepeated(t *testing.T) {
	t.Parallel()
	foreign := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Error(w, "page \x1b[31mlost", http.StatusInternalServerError)
	}))
	t.Cleanup(foreign.Close)
	if got := command(t, "service", "list", "--hub", foreign.URL); got.code != exitFailure || strings.Contains(got.stderr+got.stdout, "lost") {
		t.Errorf("%+v", got)
	}
}

func TestEveryCommandHasHelp(t *testing.T) {
	t.Parallel()
	for _, c := range newRoot(debugtest.Now).Commands() {
		for _, c := range append(c.Commands(), c) {
			if c.Short == "" || (!c.HasSubCommands() && c.Example == "") {
				t.Errorf("%s: has no short help or no example", c.CommandPath())
			}
		}
	}
}

func TestBootstrapCommand(t *testing.T) {
	t.Parallel()
	for format, unmarshal := range map[string]func([]byte, any) error{"json": json.Unmarshal, "yaml": func(b []byte, v any) error { return yaml.Unmarshal(b, v) }} {
		got := command(t, "bootstrap", "--id", "web-1.shop", "--cluster", "east", "--hub", "127.0.0.1:15010", "--label", "app=web", "--label", "tier=front", "-o", format)
		var b struct {
			Node struct {
				ID       string `json:"id"`
				Metadata struct {
					Labels map[string]string `json:"LABELS"`
				} `json:"metadata"`
			} `json:"node"`
		}
		if err := unmarshal([]byte(got.stdout), &b); err != nil || got.code != exitOK {
			t.Fatalf("exit code %d, %v, %s", got.code, err, got.stderr)
		}
		if !strings.HasSuffix(b.Node.ID, "~web-1.shop~shop.svc.cluster.local") || b.Node.Metadata.Labels["tier"] != "front" {
			t.Errorf("%s: node %+v", format, b.Node)
		}
	}
}

// TestServiceListTellsOwnServicesApart: services that are each a cluster's own look alike but for the cluster.
func TestServiceListTellsOwnServicesApart(t *testing.T) {
	t.Parallel()
	own := []debug.Service{{Hostname: "kubernetes", ClusterLocal: "east"}, {Hostname: "kubernetes", ClusterLocal: "west"}, {Hostname: "web"}}
	for name, test := range map[string]struct {
		table *output.Table
		want  bool
	}{
		"some": {serviceTable(own, false), true}, "none": {serviceTable(own[2:], false), false}, "none, wide": {serviceTable(own[2:], true), true},
	} {
		i := slices.Index(test.table.Header, "ONLY-IN")
		if got := i >= 0; got != test.want || got && len(test.table.Rows) == 3 && (test.table.Rows[1][i] != "west" || test.table.Rows[2][i] != "") {
			t.Errorf("%s: %v %v", name, test.table.Header, test.table.Rows)
		}
	}
}

// TestBeforeTheFirstVersion: a hub that has read nothing yet is no fault, and where to look is said.
func TestBeforeTheFirstVersion(t *testing.T) {
	t.Parallel()
	o := debugtest.Options(debugtest.Connected(nil))
	o.Snapshot = func() *pushcontext.PushContext { return nil }
	s := httptest.NewServer(debug.New(o))
	t.Cleanup(s.Close)
	got := command(t, "service", "list", "--hub", s.URL)
	if want := "isthmus: the hub has not read its clusters yet; 'isthmus cluster list -o wide' says what it waits for\n"; got.code != exitFailure || got.stderr != want {
		t.Errorf("%d: %q", got.code, got.stderr)
	}
}

// TestPrioritiesSayWhy: DETAIL is there when an endpoint is behind others.
func TestPrioritiesSayWhy(t *testing.T) {
	t.Parallel()
	first, later := uint32(0), uint32(1)
	es := []debug.Endpoint{{Address: "a", Priority: &first}, {Address: "b", Priority: &later, Detail: "another zone"}}
	for n, want := range map[int]bool{1: false, 2: true} {
		for _, wide := range []bool{false, true} {
			table := endpointTable(es[:n], true, wide, debugtest.Now())
			if i := slices.Index(table.Header, "DETAIL"); (i >= 0) != want || want && table.Rows[1][i] != "another zone" {
				t.Errorf("%v %v", table.Header, table.Rows)
			}
		}
	}
}
