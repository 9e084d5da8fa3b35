package main

import (
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/isthmus-mesh/isthmus/test/env"
)

// docCommand is one command line of a page.
type docCommand struct {
	line  string
	words []string
	stdin string // of a here-document
}

var hereDoc = regexp.MustCompile(` <<'([A-Z]+)'$`)

// docCommands are the command lines in the shell blocks of a page.
func docCommands(t *testing.T, page string) (out []docCommand) {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	for _, block := range regexp.MustCompile("(?ms)^```sh\n(.*?)^```$").FindAllStringSubmatch(string(text), -1) {
		lines := strings.Split(strings.ReplaceAll(block[1], "\\\n", " "), "\n")
		for i := 0; i < len(lines); i++ {
			c := docCommand{line: strings.TrimSpace(lines[i])}
			if c.line == "" {
				continue
			}
			if m := hereDoc.FindStringSubmatch(c.line); m != nil {
				end := i + 1 + slices.Index(lines[i+1:], m[1])
				c.stdin, i = strings.Join(lines[i+1:end], "\n"), end
			}
			c.words = strings.Fields(hereDoc.ReplaceAllString(strings.TrimSuffix(c.line, "&"), ""))
			out = append(out, c)
		}
	}
	return out
}

// shell runs the commands of a page: those of isthmus in this process, and of kubectl and curl as much as the
// page needs of them.
type shell struct {
	home     *running // whose folder is ~
	hub      *running
	clusters map[string]*env.Cluster
	file     string            // kubeconfig
	files    map[string]string // that commands wrote
	token    string            // the variable TOKEN
}

func (s *shell) run(t *testing.T, c docCommand) {
	t.Helper()
	switch c.words[0] {
	case "isthmus":
		said := s.isthmus(t, slices.Clone(c.words[1:slices.Index(append(c.words, ">"), ">")]))
		if n := len(c.words); c.words[n-2] == ">" {
			s.files[c.words[n-1]] = said
		}
	case "TOKEN=$(kubectl":
		s.token = s.clusters[c.words[2]].Token(t, c.words[4]+"/"+c.words[7], 3600)
	case "sed":
		edit, end := regexp.MustCompile(`^"s/(.*)/(.*)/"$`).FindStringSubmatch(c.words[1]+" "+c.words[2]+" "+c.words[3]), slices.Index(c.words, "|")
		c.stdin = strings.ReplaceAll(s.files[c.words[end-1]], edit[1], strings.ReplaceAll(edit[2], "$TOKEN", s.token))
		c.words = c.words[end+1:]
		s.kubectl(t, c)
	case "kubectl":
		s.kubectl(t, c)
	case "curl":
		path := strings.TrimPrefix(c.words[len(c.words)-1], "http://127.0.0.1:8080")
		s.hub.log.until(t, c.line, func() bool {
			code, body := get(t, s.hub.url+path)
			return code == http.StatusOK && strings.Contains(body, "net-west")
		})
	default:
		t.Fatalf("%s: the test can't run that", c.line)
	}
}

// isthmus runs a command and gives what it prints.
func (s *shell) isthmus(t *testing.T, args []string) string {
	t.Helper()
	if args[0] == "serve" {
		for i := range args {
			args[i] = strings.Replace(args[i], "~", s.home.dir, 1)
		}
		other := &running{dir: t.TempDir(), log: newLogbook()}
		other.start(t, args[1:]...)
		other.untilReady(t)
		return ""
	}
	c, _, err := newRoot(nil).Find(args)
	if err != nil {
		t.Fatal(err)
	}
	if c.Flags().Lookup("kubeconfig") != nil {
		args = append(args, "--kubeconfig", s.file)
	}
	if c.Flags().Lookup("hub") != nil {
		args = append(args, "--hub", s.hub.url)
	}
	got := now(t, "y\n", args...)
	got.want(t, exitOK)
	return got.stdout
}

// kubectl does what kubectl would.
func (s *shell) kubectl(t *testing.T, c docCommand) {
	t.Helper()
	var words, files []string
	var cluster *env.Cluster
	for i := 1; i < len(c.words); i++ {
		switch w := c.words[i]; w {
		case "--context":
			i++
			if cluster = s.clusters[c.words[i]]; cluster == nil {
				t.Fatalf("%s: there is no context %s", c.line, c.words[i])
			}
		case "-f":
			i++
			files = append(files, c.words[i])
		case "-n":
			i++
		case "--server-side":
		default:
			words = append(words, w)
		}
	}
	switch words[0] {
	case "apply":
		for _, f := range files {
			text := c.stdin
			if written, ok := s.files[f]; ok {
				text = written
			} else if f != "-" {
				text = manifest(t, strings.TrimPrefix(f, "deploy/"))
			}
			cluster.Apply(t, text)
		}
	case "label":
		key, value, _ := strings.Cut(words[3], "=")
		patch := `{"metadata":{"labels":{"` + key + `":"` + value + `"}}}`
		if _, err := cluster.Client.CoreV1().Namespaces().Patch(t.Context(), words[2], types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
			t.Fatalf("%s: %v", c.line, err)
		}
	case "port-forward":
		s.deploy(t, cluster)
	case "config":
		s.home.write(t, strings.TrimPrefix(words[len(words)-1], "~/"), string(cluster.Kubeconfig(env.AdminToken)))
	default:
		t.Fatalf("%s: the test can't run that", c.line)
	}
}

// deploy runs the hub as the Deployment does, with its ServiceAccount's token.
func (s *shell) deploy(t *testing.T, c *env.Cluster) {
	t.Helper()
	m := regexp.MustCompile(`(?m)^ +args: \[serve, --in-cluster, (.*)\]$`).FindStringSubmatch(manifest(t, "isthmus.yaml"))
	if m == nil {
		t.Fatal("isthmus.yaml runs no 'serve --in-cluster'")
	}
	args := strings.Split(strings.ReplaceAll(m[1], "/var/lib/isthmus", s.hub.path("state")), ", ")
	s.hub.write(t, "primary.yaml", string(c.Kubeconfig(c.Token(t, "istio-system/isthmus", 3600))))
	s.hub.start(t, append(args, "--kubeconfig", s.hub.path("primary.yaml"))...)
	s.hub.untilReady(t)
}

// TestMulticlusterPage runs the page from top to bottom.
func TestMulticlusterPage(t *testing.T) {
	t.Parallel()
	cs := servers.Take(t, 2)
	primary, west := cs[0], cs[1]
	primary.Apply(t, shop("10.1.0.1"))
	west.Apply(t, shop("10.2.0.1"))
	s := &shell{
		home: &running{dir: t.TempDir()}, hub: &running{dir: t.TempDir(), log: newLogbook()},
		clusters: map[string]*env.Cluster{"primary": primary, "west": west}, files: map[string]string{},
	}
	s.file = contexts(t, s.home, s.clusters, "primary")
	commands := docCommands(t, "../../docs/multicluster.md")
	for _, c := range commands {
		s.run(t, c)
		if t.Failed() {
			t.Fatalf("failed at: %s", c.line)
		}
	}
	if len(commands) < 15 {
		t.Errorf("the page has %d commands only", len(commands))
	}
	s.hub.log.until(t, "west gone", func() bool { _, there := counts(t, s.hub)["west"]; return !there })
}
