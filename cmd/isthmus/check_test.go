package main

import (
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/isthmus-mesh/isthmus/cmd/isthmus/debug"
	"github.com/isthmus-mesh/isthmus/cmd/isthmus/debug/debugtest"
	"github.com/isthmus-mesh/isthmus/test/env"
)

// TestCheck compares tables and exit codes.
func TestCheck(t *testing.T) {
	t.Parallel()
	for name, x := range map[string]struct {
		args string
		code int
	}{
		"check-good":     {"testdata/offline/mesh", exitOK},
		"check-wrong":    {"testdata/offline/wrong", exitFailure},
		"check-wide":     {"testdata/offline/wrong -o wide --fail-on never", exitOK},
		"check-errors":   {"testdata/offline/wrong --severity error --fail-on warning", exitFailure},
		"check-clusters": {"testdata/offline --cluster-id mesh --fail-on never", exitOK},
		"check-sarif":    {"testdata/offline/wrong -o sarif --fail-on never", exitOK},
		"check-foreign":  {"testdata/offline-foreign", exitOK},
		"check-unread":   {"testdata/offline-foreign/config.yaml --severity warning", exitFailure}, // a host that no registry is known to have
		"check-decode":   {"testdata/offline-decode -o wide", exitFailure},
		"check-files":    {"testdata/offline/mesh/routes.yaml testdata/offline/mesh/services.yaml", exitOK},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := command(t, append([]string{"check"}, strings.Fields(x.args)...)...)
			if got.code != x.code {
				t.Errorf("exit code %d, want %d: %s", got.code, x.code, got.stderr)
			}
			compare(t, name+".golden", got.stdout+got.stderr)
		})
	}
}

// A name is one registry's, and no cluster's.
func TestCheckNamesOfRegistries(t *testing.T) {
	t.Parallel()
	object := func(name, provider, address string) string {
		return "apiVersion: isthmus.io/v1alpha1\nkind: Registry\nmetadata: {name: " + name + ", namespace: istio-system}\nspec: {provider: " + provider + ", addresses: [\"" + address + "\"]}\n"
	}
	const bridge = `apiVersion: networking.higress.io/v1
kind: McpBridge
metadata: {name: default, namespace: istio-system}
spec: {registries: [{type: nacos, name: trade, domain: a.example, port: 8848}, {type: consul, name: trade, domain: b.example, port: 8500, consulDatacenter: dc1}]}
`
	dir := t.TempDir()
	for name, text := range map[string]string{
		"east/a.yaml": object("legacy", "consul", "a:8500"), "east/b.yaml": object("legacy", "nacos", "b:8848"), "east/c.yaml": object("west", "consul", "c:8500"),
		"east/d.yaml": bridge, "west/e.yaml": object("legacy", "consul", "e:8500"),
	} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for cluster, list := range map[string][]string{
		"east": {
			"Registry/istio-system/legacy is defined in a.yaml too, and that definition counts", "it declares nothing here: registries are declared in the config cluster",
			"a cluster is called west too: the registry's instances count as if they ran in it; give the registry another name",
			"the registry nacos/trade is called trade too: the registry's instances count as if they ran in it; give the registry another name",
		},
		"": {"it is not in force: the registry consul/legacy is declared by Registry/istio-system/legacy of file/east, which was there before"},
	} {
		got := command(t, "check", dir, "--cluster-id", cluster, "-o", "json")
		for _, want := range list {
			if !strings.Contains(got.stdout, want) {
				t.Errorf("config cluster %q: no %q in %s%s", cluster, want, got.stdout, got.stderr)
			}
		}
	}
}

func TestCheckRefuses(t *testing.T) {
	t.Parallel()
	for args, says := range map[string]string{
		"":                 "name a folder",
		"testdata/nothing": "no such file",
		"testdata -o text": "want one of table, wide, json, yaml, sarif",
		"/dev/null":        "not a regular file",
		"--kubeconfig testdata/offline/wrong/routes.yaml": "kubeconfig",
		"testdata --fail-on bad":                          "--fail-on bad",
		"testdata --severity bad":                         "--severity bad",
		"--kubeconfig testdata/nothing":                   "no such file",
		"testdata --kubeconfig x.yaml":                    "two things to read",
		"testdata/offline/mesh --timeout 0s":              "--timeout",
	} {
		got := command(t, append([]string{"check"}, strings.Fields(args)...)...)
		if got.code != exitUsage || !strings.Contains(got.stderr, says) {
			t.Errorf("check %s: exit code %d: %s", args, got.code, got.stderr)
		}
	}
}

// TestCheckStandardInput: what is piped is one cluster.
func TestCheckStandardInput(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("testdata/offline/wrong/routes.yaml")
	if err != nil {
		t.Fatal(err)
	}
	root := newRoot(debugtest.Now)
	root.SetIn(strings.NewReader(string(text)))
	var stdout, stderr strings.Builder
	if code := execute(t.Context(), root, []string{"check", "-", "-o", "json"}, &stdout, &stderr); code != exitFailure {
		t.Fatalf("exit code %d: %s", code, stderr.String())
	}
	var list []debug.ObjectFinding
	if err := json.Unmarshal([]byte(stdout.String()), &list); err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(list, func(f debug.ObjectFinding) bool {
		return f.Code == "InvalidRegex" && f.File == stdinShown && f.Line == 12 && f.Cluster == defaultClusterID
	}) {
		t.Errorf("%+v", list)
	}
}

// TestCheckOfNothing: what has no objects was not checked.
func TestCheckOfNothing(t *testing.T) {
	t.Parallel()
	empty := t.TempDir()
	file := filepath.Join(empty, "zero.yaml")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, what := range []string{t.TempDir(), empty, file, "-"} {
		if got := command(t, "check", what); got.code != exitUsage || !strings.Contains(got.stderr, "no objects were read") {
			t.Errorf("check %s: exit code %d: %s", what, got.code, got.stderr)
		}
	}
}

// TestCheckOfPipes: what may never end is not waited for, wherever it is.
func TestCheckOfPipes(t *testing.T) {
	t.Parallel()
	for name, at := range map[string]string{"a cluster's": "", "one of several clusters": "east"} {
		dir := t.TempDir()
		if err := os.MkdirAll(filepath.Join(dir, at), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := syscall.Mkfifo(filepath.Join(dir, at, "pipe.yaml"), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := command(t, "check", dir); got.code == exitOK || !strings.Contains(got.stdout+got.stderr, "not a regular file") {
			t.Errorf("%s: exit code %d: %s%s", name, got.code, got.stdout, got.stderr)
		}
	}
}

// TestCheckNamesFilesAsTheUserDoes: also where one file's fault names another.
func TestCheckNamesFilesAsTheUserDoes(t *testing.T) {
	t.Parallel()
	const file = "testdata/offline/mesh/services.yaml"
	got := command(t, "check", file, file)
	if text := got.stdout + got.stderr; !strings.Contains(text, "is defined in "+file+" too") || strings.Contains(text, "000/") {
		t.Errorf("exit code %d: %s", got.code, text)
	}
}

// TestCheckOfManyClusters: objects are looked up over all clusters.
func TestCheckOfManyClusters(t *testing.T) {
	t.Parallel()
	got := command(t, "check", "../../examples/two-clusters", "--fail-on", "info")
	if got.code != exitOK || got.stdout != "" {
		t.Errorf("exit code %d: %s%s", got.code, got.stdout, got.stderr)
	}
}

// declaredCodes are the values of constants of a package whose names begin with Code or code.
func declaredCodes(t *testing.T, dir string) (out []string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil || len(files) == 0 {
		t.Fatal(dir, err)
	}
	for _, name := range files {
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(f, func(n ast.Node) bool {
			v, ok := n.(*ast.ValueSpec)
			if !ok || len(v.Names) != len(v.Values) {
				return true
			}
			for i, name := range v.Names {
				if lit, ok := v.Values[i].(*ast.BasicLit); ok && lit.Kind == token.STRING && strings.HasPrefix(strings.ToLower(name.Name), "code") {
					s, err := strconv.Unquote(lit.Value)
					if err != nil {
						t.Fatal(err)
					}
					out = append(out, s)
				}
			}
			return true
		})
	}
	return out
}

// TestCodesAreDocumented: docs/checking.md and the table have the codes that packages declare, and no others.
func TestCodesAreDocumented(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/checking.md")
	if err != nil {
		t.Fatal(err)
	}
	declared := []string{codeProblem}
	for _, dir := range []string{"../../analysis", "../../clusters/kube/validate", "../../clusters/kube", "../../api/v1alpha1", "../../clusters/registries"} {
		declared = append(declared, declaredCodes(t, dir)...)
	}
	known := map[string]bool{}
	for _, c := range findingCodes() {
		if known[c.code] {
			t.Errorf("code %s is in the table twice", c.code)
		}
		known[c.code] = true
		if !strings.Contains(string(text), "| `"+c.code+"` | "+c.means+" |\n") {
			t.Errorf("docs/checking.md: no row says of %s that %s", c.code, c.means)
		}
		if !slices.Contains(declared, c.code) {
			t.Errorf("nothing declares code %s", c.code)
		}
	}
	for _, c := range declared {
		if !known[c] {
			t.Errorf("code %s is in no table: add it to findingCodes and docs/checking.md", c)
		}
	}
}

func TestFindingsOfAHub(t *testing.T) {
	t.Parallel()
	hub := fakeHub(t)
	for name, args := range map[string]string{
		"findings": "findings", "findings-errors": "findings --severity error", "findings-rules": "findings --kind DestinationRule -n shop",
	} {
		got := command(t, append(strings.Fields(args), "--hub", hub)...)
		if got.code != exitOK || got.stderr != "" {
			t.Errorf("%s: exit code %d: %s", args, got.code, got.stderr)
		}
		compare(t, name+".golden", got.stdout)
	}
	if got := command(t, "findings", "--severity", "bad", "--hub", hub); got.code != exitUsage {
		t.Errorf("exit code %d: %s", got.code, got.stderr)
	}
}

// TestCheckReadsAPIServers: with --kubeconfig the clusters that the primary registers are read too.
func TestCheckReadsAPIServers(t *testing.T) {
	t.Parallel()
	cs := servers.Take(t, 2)
	primary, west := cs[0], cs[1]
	primary.InstallCRDs(t)
	primary.Apply(t, env.Namespace("istio-system"), env.Namespace("shop"), `
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: web, namespace: shop}
spec:
  hosts: [web]
  http: [{route: [{destination: {host: web}, weight: 1}, {destination: {host: absent}, weight: 1}]}]
`)
	west.Apply(t, shop("10.2.0.1")...)
	primary.Apply(t, registered("west", west.Kubeconfig(env.AdminToken)))
	file := filepath.Join(t.TempDir(), "primary.yaml")
	if err := os.WriteFile(file, primary.Kubeconfig(env.AdminToken), 0o600); err != nil {
		t.Fatal(err)
	}
	got := command(t, "check", "--kubeconfig", file, "-o", "json", "--timeout", patience.String())
	var list []debug.ObjectFinding
	if err := json.Unmarshal([]byte(got.stdout), &list); err != nil || got.code != exitFailure {
		t.Fatalf("exit code %d: %s", got.code, got.stderr)
	}
	var hosts []string
	for _, f := range list {
		if f.Code == "UnknownHost" {
			hosts = append(hosts, f.Message)
		}
	}
	if len(hosts) != 1 || !strings.Contains(hosts[0], "absent.shop") {
		t.Errorf("unknown hosts %q, of %s", hosts, got.stdout)
	}
}
