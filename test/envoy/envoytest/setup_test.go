package envoytest_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// Tests of test/tools/setup, with a python3 that makes a wheel of its own
// instead of fetching one, and notes each call.

const fakePython = `#!/usr/bin/env bash
echo "$*" >>"$FAKE_LOG"
if [[ -n ${FAKE_FAIL:-} ]]; then echo "no route to the index" >&2; exit 1; fi
while [[ $1 != --target ]]; do shift; done
[[ -z ${FAKE_PAUSE:-} ]] || read -r _ <"$FAKE_PAUSE"
mkdir -p "$2/envoy/_bin"
printf '#!/bin/sh\necho fake\n' >"$2/envoy/_bin/envoy"
`

// workshop is a cache folder and a machine with the fake python3.
type workshop struct{ dir string }

func newWorkshop(t *testing.T) workshop {
	t.Helper()
	w := workshop{t.TempDir()}
	if err := os.MkdirAll(w.path("bin"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(w.path("bin/python3"), []byte(fakePython), 0o755); err != nil {
		t.Fatal(err)
	}
	return w
}

func (w workshop) path(name string) string { return filepath.Join(w.dir, name) }

// setup is the script with the workshop's machine and more environment.
func (w workshop) setup(t *testing.T, args []string, env ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "../../tools/setup", args...)
	cmd.Env = append(os.Environ(),
		"PATH="+w.path("bin")+":"+os.Getenv("PATH"),
		"ISTHMUS_CACHE="+w.path("cache"), "ISTHMUS_ENVOY=", "FAKE_LOG="+w.path("calls"))
	cmd.Env = append(cmd.Env, env...)
	return cmd
}

func (w workshop) calls(t *testing.T) int {
	t.Helper()
	text, err := os.ReadFile(w.path("calls"))
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return bytes.Count(text, []byte("\n"))
}

func run(cmd *exec.Cmd) (stdout, stderr string, err error) {
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err = cmd.Run()
	return out.String(), errs.String(), err
}

func TestSetupFetchesOnceAndIsThenQuiet(t *testing.T) {
	t.Parallel()
	w := newWorkshop(t)
	want := w.path("cache/envoy-1.40.0/envoy") + "\n"
	out, said, err := run(w.setup(t, []string{"envoy"}))
	if err != nil || out != want || !strings.Contains(said, "fetching Envoy 1.40.0") {
		t.Fatalf("first: %q, %q, %v", out, said, err)
	}
	out, said, err = run(w.setup(t, []string{"envoy"}))
	if err != nil || out != want || said != "" {
		t.Errorf("second: %q, %q, %v; want the path and no word", out, said, err)
	}
	if n := w.calls(t); n != 1 {
		t.Errorf("fetched %d times", n)
	}
}

// Clones that start together fetch once between them.
func TestSetupIsSafeInParallel(t *testing.T) {
	t.Parallel()
	w := newWorkshop(t)
	want := w.path("cache/envoy-1.40.0/envoy") + "\n"
	var all sync.WaitGroup
	for range 6 {
		cmd := w.setup(t, []string{"envoy"})
		all.Go(func() {
			if out, said, err := run(cmd); err != nil || out != want {
				t.Errorf("%q, %q, %v", out, said, err)
			}
		})
	}
	all.Wait()
	if n := w.calls(t); n != 1 {
		t.Errorf("fetched %d times, want once", n)
	}
}

// A failed fetch says why and what to do, and leaves nothing that looks done.
func TestSetupFailureLeavesNothing(t *testing.T) {
	t.Parallel()
	w := newWorkshop(t)
	out, said, err := run(w.setup(t, []string{"envoy"}, "FAKE_FAIL=1"))
	if err == nil || out != "" || !strings.Contains(said, "no route to the index") || !strings.Contains(said, "ISTHMUS_ENVOY") {
		t.Errorf("%q, %q, %v", out, said, err)
	}
	left, err := filepath.Glob(w.path("cache/*"))
	if lock := w.path("cache/.envoy-1.40.0.lock"); err != nil || !slices.Equal(left, []string{lock}) {
		t.Errorf("left in the cache: %v, %v; want the lock alone", left, err)
	}
	if _, said, err := run(w.setup(t, []string{"envoy"})); err != nil {
		t.Errorf("the next try fails too: %v: %s", err, said)
	}
}

func TestSetupSaysThatItWaits(t *testing.T) {
	t.Parallel()
	w := newWorkshop(t)
	pause := w.path("pause")
	if out, err := exec.CommandContext(t.Context(), "mkfifo", pause).CombinedOutput(); err != nil {
		t.Fatalf("mkfifo: %v: %s", err, out)
	}
	cmd := w.setup(t, []string{"envoy"}, "FAKE_PAUSE="+pause, "ISTHMUS_SETUP_BEAT=0.05")
	said, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	heard := &bytes.Buffer{}
	for buf := make([]byte, 256); !strings.Contains(heard.String(), "still at it"); {
		n, err := said.Read(buf)
		if err != nil {
			t.Fatalf("it ended without a sign of life: %v: %s", err, heard)
		}
		heard.Write(buf[:n])
	}
	if err := os.WriteFile(pause, []byte("go on\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := heard.ReadFrom(said); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("%v: %s", err, heard)
	}
}

func TestSetupTakesTheUsersBinaries(t *testing.T) {
	t.Parallel()
	w := newWorkshop(t)
	mine := w.path("bin/python3") // any executable file will do
	for tool, variable := range map[string]string{
		"envoy": "ISTHMUS_ENVOY", "etcd": "ISTHMUS_ETCD", "kube-apiserver": "ISTHMUS_KUBE_APISERVER",
	} {
		if out, said, err := run(w.setup(t, []string{tool}, variable+"="+mine)); err != nil || out != mine+"\n" || said != "" {
			t.Errorf("%s: %q, %q, %v", tool, out, said, err)
		}
		if _, said, err := run(w.setup(t, []string{tool}, variable+"=/no/such")); err == nil || !strings.Contains(said, "/no/such") {
			t.Errorf("%s: a wrong path gives %q, %v", tool, said, err)
		}
	}
}

// A command that waiting runs keeps its own exit status, and nothing it
// started outlives it.
func TestSetupWaiting(t *testing.T) {
	t.Parallel()
	w := newWorkshop(t)
	cmd := w.setup(t, []string{"waiting", "counting", "bash", "-c", "echo one; exit 7"}, "ISTHMUS_SETUP_BEAT=3600")
	cmd.WaitDelay = time.Minute // a child holding the pipes would keep Run waiting
	out, said, err := run(cmd)
	if out != "one\n" || said != "isthmus: counting\n" || cmd.ProcessState.ExitCode() != 7 {
		t.Errorf("%q, %q, %v", out, said, err)
	}
	if out, said, err := run(w.setup(t, []string{"everything"})); err == nil || out != "" || !strings.Contains(said, "usage") {
		t.Errorf("an unknown subcommand gives %q, %q, %v", out, said, err)
	}
}
