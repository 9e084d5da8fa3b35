package imports_test

import (
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// packageRow is a row of the table of packages in docs/architecture.md: packages, and what they import of ours.
type packageRow struct{ packages, imports []string }

var quoted = regexp.MustCompile("`([^`]+)`")

// readTable gives the rows between two headings.
func readTable(text string) (out []packageRow) {
	_, text, _ = strings.Cut(text, "## Packages\n")
	text, _, _ = strings.Cut(text, "\n## ")
	for line := range strings.Lines(text) {
		cells := strings.Split(strings.TrimSpace(line), " | ")
		names := quoted.FindAllStringSubmatch(cells[0], -1)
		if len(cells) != 3 || len(names) == 0 {
			continue
		}
		r := packageRow{imports: strings.Split(strings.TrimSuffix(cells[2], " |"), ", ")}
		for _, n := range names {
			r.packages = append(r.packages, n[1])
		}
		out = append(out, r)
	}
	return out
}

// short are the names that the table has for some packages.
var short = map[string]string{"aggregate/model": "model", "api/v1alpha1": "api"}

// imported is what the packages of a row, and those below that have no row of their own, import of ours and not of each other.
func (r packageRow) imported(all []packageRow, pkgs []pkg) []string {
	rowOf := func(dir string) (found packageRow) {
		best := ""
		for _, o := range all {
			for _, p := range o.packages {
				if within(p, dir) && len(p) > len(best) {
					best, found = p, o
				}
			}
		}
		return found
	}
	is := func(o packageRow) bool { return slices.Equal(o.packages, r.packages) }
	out := map[string]bool{}
	for _, p := range pkgs {
		dir, _ := folder(p.ImportPath)
		if !is(rowOf(dir)) {
			continue
		}
		for _, imported := range p.Imports {
			if to, ours := folder(imported); ours && !is(rowOf(to)) {
				if s := short[to]; s != "" {
					to = s
				}
				out[to] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(out))
}

// TestTableOfPackages holds the table of docs/architecture.md to what packages import.
func TestTableOfPackages(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/architecture.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := readTable(string(text))
	pkgs, err := list()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range pkgs {
		dir, _ := folder(p.ImportPath)
		if !slices.ContainsFunc(rows, func(r packageRow) bool {
			return slices.ContainsFunc(r.packages, func(root string) bool { return within(root, dir) })
		}) {
			t.Errorf("%s has no row", dir)
		}
	}
	for _, r := range rows {
		if slices.Equal(r.imports, []string{"everything"}) {
			continue
		}
		said := slices.DeleteFunc(slices.Sorted(slices.Values(r.imports)), func(s string) bool { return s == "none" })
		if got := r.imported(rows, pkgs); !slices.Equal(got, said) {
			t.Errorf("%v: the table says that they import %v, and they import %v", r.packages, said, got)
		}
	}
}
