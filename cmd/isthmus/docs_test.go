package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/isthmus-mesh/isthmus/cmd/isthmus/debug/debugtest"
)

// TestArchitectureNamesRealTests: a test that the page names must be in the tree.
func TestArchitectureNamesRealTests(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/architecture.md")
	if err != nil {
		t.Fatal(err)
	}
	have := testNames(t, "../..")
	for _, name := range regexp.MustCompile("`(Test[A-Z][A-Za-z0-9]+)`").FindAllStringSubmatch(string(text), -1) {
		if !have[name[1]] {
			t.Errorf("docs/architecture.md: there is no test %s", name[1])
		}
	}
}

func testNames(t *testing.T, root string) map[string]bool {
	t.Helper()
	have := map[string]bool{}
	declared := regexp.MustCompile(`(?m)^func (Test[A-Za-z0-9]+)\(`)
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		src, err := os.ReadFile(path)
		for _, m := range declared.FindAllSubmatch(src, -1) {
			have[string(m[1])] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return have
}

// commandLines are the isthmus command lines in a text, each without what the shell does with it.
func commandLines(text string) [][]string {
	text = strings.ReplaceAll(text, "\\\n", " ")
	var out [][]string
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		rest, ok := strings.CutPrefix(strings.TrimPrefix(line, "bin/"), "isthmus ")
		if !ok {
			continue
		}
		rest, _, _ = strings.Cut(rest, "|")
		rest, _, _ = strings.Cut(rest, ">")
		rest, _, _ = strings.Cut(rest, "#")
		out = append(out, strings.Fields(strings.ReplaceAll(rest, "''", "off")))
	}
	return out
}

// TestExamplesAreValid: the command lines in the help and in the documentation name commands and
// flags that exist.
func TestExamplesAreValid(t *testing.T) {
	t.Parallel()
	texts := map[string]string{}
	var walk func(*cobra.Command)
	walk = func(c *cobra.Command) {
		texts[c.CommandPath()] = c.Example
		for _, sub := range c.Commands() {
			walk(sub)
		}
	}
	walk(newRoot(debugtest.Now))
	for _, page := range []string{"../../docs/quick-start.md", "../../docs/virtual-machines.md", "../../examples/two-clusters/README.md"} {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		texts[page] = string(text)
	}
	n := 0
	for where, text := range texts {
		for _, line := range commandLines(text) {
			n++
			c, args, err := newRoot(debugtest.Now).Find(line)
			if err == nil {
				err = c.ParseFlags(args)
			}
			if err == nil {
				err = c.ValidateArgs(c.Flags().Args())
			}
			if err == nil {
				err = c.ValidateRequiredFlags()
			}
			if err != nil || c.HasSubCommands() {
				t.Errorf("%s: isthmus %s: %v", where, strings.Join(line, " "), err)
			}
		}
	}
	if n < 20 {
		t.Errorf("only %d command lines found", n)
	}
}

// TestVirtualMachinesOfTheDocs: the commands of the page make bootstraps that say what the page says that they do.
func TestVirtualMachinesOfTheDocs(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/virtual-machines.md")
	if err != nil {
		t.Fatal(err)
	}
	lines := commandLines(string(text))
	for i, want := range []string{"WORKLOAD_ENTRY: legacy-1\n", "AUTO_REGISTER_GROUP: legacy\n"} {
		if len(lines) <= i {
			t.Fatalf("%d command lines", len(lines))
		}
		if got := command(t, lines[i]...); got.code != exitOK || !strings.Contains(got.stdout, want) {
			t.Errorf("%v: exit code %d: %s%s", lines[i], got.code, got.stdout, got.stderr)
		}
	}
}

var link = regexp.MustCompile(`\]\(([^)#]+)(#[^)]*)?\)`)

// TestDocsLinksLead: every relative link of the documentation leads to a file.
func TestDocsLinksLead(t *testing.T) {
	t.Parallel()
	pages, err := filepath.Glob("../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, page := range append(pages, "../../README.md", "../../deploy/README.md", "../../examples/two-clusters/README.md") {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range link.FindAllStringSubmatch(string(text), -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			if _, err := os.Stat(filepath.Join(filepath.Dir(page), m[1])); err != nil {
				t.Errorf("%s: %v", page, err)
			}
		}
	}
}
