package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/isthmus-mesh/isthmus/test/envoy/envoytest"
)

func TestMain(m *testing.M) {
	code := envoytest.WithHub(context.Background(), m.Run)
	if err := goleak.Find(); code == 0 && err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

const example = "../../examples/two-clusters"

// runDemo runs it with the example of this source tree.
func runDemo(ctx context.Context, args ...string) (status int, out, errs string) {
	var o, e bytes.Buffer
	status = run(ctx, append([]string{"--example", example}, args...), &o, &e)
	return status, o.String(), e.String()
}

func TestDemoOnce(t *testing.T) {
	t.Parallel()
	status, out, errs := runDemo(t.Context(), "--once")
	if status != 0 || errs != "" {
		t.Fatalf("exit status %d\n%s%s", status, out, errs)
	}
	wants := []string{"mixed-vm (east)", "has dropped it after", " 0 failed", "Every expected answer came."}
	for _, f := range foreigners() {
		if os.Getenv(f.variable) != "" {
			wants = append(wants, "checkout is answered by checkout-"+f.provider)
		} else {
			wants = append(wants, "'test/tools/setup "+f.provider+"' makes one")
		}
	}
	for _, want := range wants {
		if !strings.Contains(out, want) {
			t.Errorf("the output does not say %q", want)
		}
	}
	if t.Failed() {
		t.Log(out)
	}
}

// TestDemoTakesOtherPorts: a port that another program took between being found free and the hub's start
// costs a second start.
func TestDemoTakesOtherPorts(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	hub := filepath.Join(dir, "hub")
	script := fmt.Sprintf(`#!/bin/sh
[ -e %[1]s/tried ] && exec "$ISTHMUS_BIN" "$@"
: > %[1]s/tried
exec "$ISTHMUS_BIN" "$@" --grpc-addr %[2]s
`, dir, listening(t))
	if err := os.WriteFile(hub, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	s := &stage{dir: dir, clusters: example}
	defer func() {
		if err := s.close(); err != nil {
			t.Error(err)
		}
	}()
	if err := s.startHub(t.Context(), options{hub: hub}, io.Discard); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "tried")); err != nil {
		t.Error(err)
	}
}

// listening is an address that is taken.
func listening(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l.Addr().String()
}

// reader calls a function with all that was written when that holds the text.
type reader struct {
	bytes.Buffer
	text string
	call func(all string)
}

func (r *reader) Write(p []byte) (int, error) {
	n, err := r.Buffer.Write(p)
	if call := r.call; call != nil && strings.Contains(r.String(), r.text) {
		r.call = nil
		call(r.String())
	}
	return n, err
}

// Without --once all runs until it is interrupted, and is gone afterwards.
// Meanwhile the commands that it suggests work.
func TestDemoRunsUntilInterrupted(t *testing.T) {
	t.Parallel()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	tried := 0
	out := &reader{text: "ask again", call: func(all string) {
		tried = try(t, all)
		stop()
	}}
	var errs bytes.Buffer
	if status := run(ctx, []string{"--example", example}, out, &errs); status != 0 || errs.Len() > 0 {
		t.Fatalf("exit status %d\n%s%s", status, out, &errs)
	}
	if tried < 9 {
		t.Errorf("%d commands are suggested, want more:\n%s", tried, out)
	}
	_, after, _ := strings.Cut(out.String(), "log in ")
	log, _, _ := strings.Cut(after, "\n")
	if _, err := os.Stat(filepath.Dir(log)); !os.IsNotExist(err) {
		t.Errorf("the folder of %s is still there: %v", log, err)
	}
}

// try runs the suggested commands in one shell, as a reader would, with a curl
// that needs not be installed.
func try(t *testing.T, all string) int {
	t.Helper()
	_, list, _ := strings.Cut(all, "try:\n")
	var script []string
	for line := range strings.Lines(list) {
		if command, ok := strings.CutPrefix(line, "  "); ok {
			script = append(script, strings.TrimSpace(command)+" || exit 9")
		}
	}
	if _, err := exec.LookPath("curl"); err != nil {
		script = append([]string{"curl() { :; }"}, script...)
	}
	text, err := exec.CommandContext(t.Context(), "sh", "-c", strings.Join(script, "\n")).CombinedOutput()
	if err != nil {
		t.Errorf("the suggested commands fail: %v\n%s\n%s", err, strings.Join(script, "\n"), text)
	}
	for _, want := range []string{"client-east.demo", "hello-west-1"} {
		if !strings.Contains(string(text), want) {
			t.Errorf("the suggested commands do not show %s:\n%s", want, text)
		}
	}
	return len(script)
}

// An answer that is not as expected is shown, and the exit status says so.
func TestUnexpectedAnswer(t *testing.T) {
	t.Parallel()
	changed := filepath.Join(t.TempDir(), "two-clusters")
	if err := os.CopyFS(changed, os.DirFS(example)); err != nil {
		t.Fatal(err)
	}
	if _, err := dropEndpoint(filepath.Join(changed, "west"), "127.0.2.12"); err != nil {
		t.Fatal(err)
	}
	var out, errs bytes.Buffer
	status := run(t.Context(), []string{"--once", "--example", changed}, &out, &errs)
	if status != 1 || !strings.Contains(errs.String(), "client in west") || !strings.Contains(errs.String(), "expected answers of hello-west-1 (west) and hello-west-2 (west)") {
		t.Errorf("exit status %d\n%s%s", status, &out, &errs)
	}
	if !strings.Contains(out.String(), "10 x only-east-1 (east)") {
		t.Errorf("the other answers are not shown:\n%s", &out)
	}
}

func TestInterruptedWhileStarting(t *testing.T) {
	t.Parallel()
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if status, out, errs := runDemo(ctx); status != 1 || errs != "" {
		t.Errorf("exit status %d\n%s%s", status, out, errs)
	}
}

func TestFailures(t *testing.T) {
	t.Parallel()
	empty := t.TempDir()
	if err := os.Mkdir(filepath.Join(empty, "east"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		args   []string
		status int
		want   string
	}{
		"unknown flag":    {[]string{"--nope"}, 2, "-nope"},
		"no such example": {[]string{"--example", "/no/such"}, 1, "/no/such"},
		"empty example":   {[]string{"--example", empty}, 1, "no endpoints"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if status, _, errs := runDemo(t.Context(), tt.args...); status != tt.status || !strings.Contains(errs, tt.want) {
				t.Errorf("exit status %d, want %d; error %q does not say %q", status, tt.status, errs, tt.want)
			}
		})
	}
}

const slicesText = `# a comment
kind: Service
metadata: {name: a}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata:
  name: a-1
addressType: IPv4
ports:
- port: 80
endpoints:
- addresses: [127.0.1.1]
- addresses: [127.0.1.2]
---
# the end
`

func TestEdits(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		edit func(folder, ip string) (string, error)
		ip   string
		want []string // endpoints afterwards: address and readiness
	}{
		"drop one":     {dropEndpoint, "127.0.1.2", []string{"127.0.1.1 <nil>"}},
		"sicken one":   {sicken, "127.0.1.1", []string{"127.0.1.1 false", "127.0.1.2 <nil>"}},
		"unknown":      {sicken, "127.0.1.3", nil},
		"not a prefix": {dropEndpoint, "127.0.1", nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			folder := t.TempDir()
			file := filepath.Join(folder, "a.yaml")
			if err := os.WriteFile(file, []byte(slicesText), 0o644); err != nil {
				t.Fatal(err)
			}
			got, err := tt.edit(folder, tt.ip)
			if tt.want == nil {
				if err == nil {
					t.Errorf("edited %s, want an error", got)
				}
				return
			}
			if err != nil || got != file {
				t.Fatalf("edited %s, %v", got, err)
			}
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, endpoints(t, string(text))); diff != "" {
				t.Error(diff)
			}
			if !strings.HasPrefix(string(text), "# a comment\n") || !strings.HasSuffix(string(text), "---\n# the end\n") {
				t.Errorf("other documents are changed:\n%s", text)
			}
		})
	}
}

func endpoints(t *testing.T, text string) (out []string) {
	t.Helper()
	for _, doc := range splitDocuments(text) {
		s, ok := parseSlice(doc)
		if !ok {
			continue
		}
		for _, e := range s.Endpoints {
			ready := "<nil>"
			if e.Conditions.Ready != nil {
				ready = fmt.Sprint(*e.Conditions.Ready)
			}
			out = append(out, e.Addresses[0]+" "+ready)
		}
	}
	return out
}

func TestAddressesMoveToTheBlock(t *testing.T) {
	t.Parallel()
	block, err := envoytest.ClaimLoopback(1)
	if err != nil {
		t.Fatal(err)
	}
	defer block.Close()
	from, to := t.TempDir(), filepath.Join(t.TempDir(), "copy")
	if err := os.WriteFile(filepath.Join(from, "a.yaml"), []byte("address: 127.0.1.2\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := copyClusters(to, from, block.Prefix); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(to, "a.yaml"))
	if want := "address: " + block.Addr(1, 2).String() + "\n"; err != nil || string(text) != want {
		t.Errorf("got %q, %v; want %q", text, err, want)
	}
}
