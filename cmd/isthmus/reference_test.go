package main

import (
	"fmt"
	"log/slog"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/isthmus-mesh/isthmus/cmd/isthmus/debug"
	"github.com/isthmus-mesh/isthmus/cmd/isthmus/debug/debugtest"
)

func reference(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../../docs/reference.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// section is the text from a heading to the next one of its level or above.
func section(t *testing.T, text, heading string) string {
	t.Helper()
	_, rest, ok := strings.Cut(text, "\n"+heading+"\n")
	if !ok {
		t.Fatalf("docs/reference.md has no heading %q", heading)
	}
	level := strings.Count(strings.SplitN(heading, " ", 2)[0], "#")
	if end := regexp.MustCompile(fmt.Sprintf(`(?m)^#{1,%d} `, level)).FindStringIndex(rest); end != nil {
		rest = rest[:end[0]]
	}
	return rest
}

func TestReferenceHasEveryFlag(t *testing.T) {
	t.Parallel()
	text := reference(t)
	var walk func(*cobra.Command)
	walk = func(c *cobra.Command) {
		for _, sub := range c.Commands() {
			walk(sub)
		}
		if c.HasSubCommands() {
			return
		}
		doc := section(t, text, "### "+c.CommandPath())
		c.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if f.Name == "help" || strings.Contains(doc, "`--"+f.Name+"`") {
				return
			}
			t.Errorf("docs/reference.md, %q: --%s is missing", c.CommandPath(), f.Name)
		})
		c.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if f.DefValue == "" || f.DefValue == "[]" || f.DefValue == "false" || f.Name == "hub" {
				return
			}
			row := regexp.MustCompile("(?m)^\\| `--" + f.Name + "`.*$").FindString(doc)
			if row != "" && !strings.Contains(row, "`"+f.DefValue+"`") {
				t.Errorf("docs/reference.md, %q: the row of --%s does not state its default %s: %s", c.CommandPath(), f.Name, f.DefValue, row)
			}
		})
	}
	walk(newRoot(debugtest.Now))
}

func TestReferenceHasEveryDebugEndpoint(t *testing.T) {
	t.Parallel()
	doc := section(t, reference(t), "## Debug endpoints")
	for _, p := range append(debug.Paths(), debug.Profiles()...) {
		if !strings.Contains(doc, "`"+p.Pattern+"`") {
			t.Errorf("docs/reference.md: %s is missing", p.Pattern)
		}
	}
}

var fqName = regexp.MustCompile(`fqName: "([^"]+)"`)

func TestReferenceHasEveryMetric(t *testing.T) {
	t.Parallel()
	doc := section(t, reference(t), "## Metrics")
	o := &serveOptions{}
	serveCommand(o) // for the defaults
	o.dir, o.kube.kubeconfig = t.TempDir(), "primary.yaml"
	h := newHub(o, slog.New(slog.DiscardHandler))
	registered := map[string]bool{}
	ch := make(chan *prometheus.Desc)
	go func() {
		h.metrics.Describe(ch)
		close(ch)
	}()
	for d := range ch {
		name := fqName.FindStringSubmatch(d.String())[1]
		registered[name] = true
		if !strings.Contains(doc, "`"+name+"`") && !strings.HasPrefix(name, "go_") && !strings.HasPrefix(name, "process_") {
			t.Errorf("docs/reference.md: metric %s is missing", name)
		}
	}
	for _, m := range regexp.MustCompile("(?m)^\\| `([a-z_]+)`").FindAllStringSubmatch(doc, -1) {
		if !registered[m[1]] {
			t.Errorf("docs/reference.md: there is no metric %s", m[1])
		}
	}
}
