// Package imports_test holds the packages of the project to the import rule:
// the table below says which folders each folder may import, so data can only
// flow from registries through the aggregate and the snapshot to the streams.
package imports_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/isthmus-mesh/isthmus"

// everything lets a folder import any other, except the ones in private.
const everything = "*"

// rules maps a folder and all below it, unless they have a row of their own, to
// the folders it may import. "a" allows package a alone, "a/..." those below
// too. A folder without a row is a mistake: decide where it belongs first.
var rules = map[string][]string{
	"api":             {},
	"aggregate/model": {},
	"pushcontext":     {"pushcontext/...", "aggregate/model"},
	"aggregate":       {"aggregate/...", "pushcontext/...", "api/..."},
	"analysis":        {"pushcontext/...", "aggregate/model", "api/..."},
	"xds":             {"xds/...", "pushcontext/...", "aggregate/model"},
	"kubeapi":         {},
	"clusters":        {"clusters/...", "secrets", "kubeapi", "aggregate/model", "api/..."},
	"mcp":             {"mcp", "aggregate/model"},
	"mcp/client":      {"mcp", "clusters/kube", "aggregate/model"}, // an object is converted like one from an API server
	"mcp/server":      {"mcp", "pushcontext/...", "aggregate/model"},
	"mcp/mcptest":     {"mcp"},
	"secrets":         {"secrets/...", "kubeapi"},
	"deploy":          {},
	"cmd":             {everything, "cmd/..."},
	"test":            {everything, "cmd/...", "test/..."},
}

// private folders are imported only where a rule names them.
var private = []string{"cmd", "test"}

// pkg is the part of `go list -json` that the rule is about. Imports of test
// files are not in it: tests may look from any side.
type pkg struct {
	ImportPath string
	Imports    []string
}

func TestImportRule(t *testing.T) {
	t.Parallel()
	pkgs, err := list()
	if err != nil {
		t.Fatal(err)
	}
	if len(pkgs) == 0 {
		t.Fatal("go list found no packages")
	}
	for _, v := range violations(pkgs) {
		t.Error(v)
	}
}

// list asks the go command for all packages of the module.
func list() ([]pkg, error) {
	var stderr bytes.Buffer
	cmd := exec.Command("go", "list", "-e", "-json=ImportPath,Imports", module+"/...")
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w: %s", err, stderr.String())
	}
	var pkgs []pkg
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p pkg
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return pkgs, nil
		} else if err != nil {
			return nil, fmt.Errorf("go list: %w", err)
		}
		pkgs = append(pkgs, p)
	}
}

// violations lists the imports that the rules do not allow, in order.
func violations(pkgs []pkg) (out []string) {
	for _, p := range pkgs {
		from, _ := folder(p.ImportPath)
		allowed, ok := ruleOf(from)
		if !ok {
			out = append(out, fmt.Sprintf("%s has no row in the import rules", from))
			continue
		}
		for _, imported := range p.Imports {
			if to, ours := folder(imported); ours && !permits(allowed, to) {
				out = append(out, fmt.Sprintf("%s imports %s; it may import only %v", from, to, allowed))
			}
		}
	}
	slices.Sort(out)
	return out
}

// folder is the path of a package inside the module.
func folder(importPath string) (dir string, ours bool) {
	return strings.CutPrefix(importPath, module+"/")
}

// ruleOf finds the row of the folder or of its nearest parent that has one.
func ruleOf(dir string) (allowed []string, ok bool) {
	for {
		if allowed, ok = rules[dir]; ok {
			return allowed, true
		}
		cut := strings.LastIndexByte(dir, '/')
		if cut < 0 {
			return nil, false
		}
		dir = dir[:cut]
	}
}

func permits(allowed []string, dir string) bool {
	for _, a := range allowed {
		root, tree := strings.CutSuffix(a, "/...")
		switch {
		case a == everything:
			if !slices.ContainsFunc(private, func(p string) bool { return within(p, dir) }) {
				return true
			}
		case dir == root || tree && within(root, dir):
			return true
		}
	}
	return false
}

// within reports whether dir is root or below it.
func within(root, dir string) bool {
	return dir == root || strings.HasPrefix(dir, root+"/")
}

func TestViolations(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		from, to string
		allowed  bool
	}{
		{"aggregate/model", "pushcontext", false},
		{"aggregate/model", "aggregate", false},
		{"pushcontext", "aggregate/model", true},
		{"pushcontext", "aggregate", false},
		{"aggregate", "aggregate/model", true},
		{"aggregate", "pushcontext", true},
		{"aggregate", "xds", false},
		{"aggregate", "xds/gen", false},
		{"aggregate", "clusters/memory", false},
		{"xds", "xds/gen", true},
		{"xds/gen", "pushcontext", true},
		{"xds/gen", "aggregate", false},
		{"xds", "clusters/kube", false},
		{"clusters/kube", "aggregate/model", true},
		{"clusters/file", "clusters/kube", true},
		{"clusters/file", "aggregate", false},
		{"clusters/file", "pushcontext", false},
		{"mcp/client", "mcp", true},
		{"mcp/client", "pushcontext", false},
		{"mcp/server", "pushcontext", true},
		{"mcp/server", "aggregate", false},
		{"mcp/server", "xds", false},
		{"secrets", "aggregate/model", false},
		{"cmd/isthmus", "xds/gen", true},
		{"cmd/isthmus", "secrets", true},
		{"cmd/isthmus", "cmd/isthmus/bootstrap", true},
		{"test/demo", "cmd/isthmus/bootstrap", true},
		{"cmd/isthmus", "test/envoy/envoytest", false},
		{"test/demo", "test/envoy/envoytest", true},
		{"test/bench", "clusters/memory", true},
		{"xds", "test/bench", false},
		{"aggregate", "cmd/isthmus", false},
		{"unknown", "aggregate/model", false},
	} {
		got := violations([]pkg{{
			ImportPath: module + "/" + tt.from,
			Imports:    []string{"fmt", "google.golang.org/grpc", module + "/" + tt.to},
		}})
		if (len(got) == 0) != tt.allowed {
			t.Errorf("%s imports %s: %q, want allowed: %v", tt.from, tt.to, got, tt.allowed)
		}
	}
}
