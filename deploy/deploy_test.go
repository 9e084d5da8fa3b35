// Package deploy_test holds what is in this folder to the program that it deploys.
package deploy_test

import (
	"debug/elf"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"
)

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// build runs the Dockerfile's own build command, and gives the binary.
func build(t *testing.T) string {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("the image is built on Linux")
	}
	line := regexp.MustCompile(`(?m)^RUN (CGO_ENABLED=0 go build .*) -o /isthmus (.*)$`).FindStringSubmatch(read(t, "Dockerfile"))
	if line == nil {
		t.Fatal("the Dockerfile has no line that builds /isthmus without cgo")
	}
	bin := filepath.Join(t.TempDir(), "isthmus")
	cmd := exec.CommandContext(t.Context(), "sh", "-c", line[1]+` -o "$BIN" `+line[2])
	cmd.Dir, cmd.Env = "..", append(os.Environ(), "VERSION=v1.2.3", "BIN="+bin)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return bin
}

// TestImage: the binary is static, since the image holds nothing else, and takes the flags that it is
// started with.
func TestImage(t *testing.T) {
	t.Parallel()
	bin := build(t)
	f, err := elf.Open(bin)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP || p.Type == elf.PT_DYNAMIC {
			t.Errorf("the binary is not static: it has a segment %v", p.Type)
		}
	}
	if out, err := exec.CommandContext(t.Context(), bin, "version").CombinedOutput(); err != nil || !strings.Contains(string(out), "v1.2.3") {
		t.Errorf("version: %v: %s", err, out)
	}
	for _, line := range commands(t) {
		help := exec.CommandContext(t.Context(), bin, append(words(line), "--help")...)
		out, err := help.CombinedOutput()
		if err != nil || !strings.Contains(string(out), "isthmus "+strings.Join(words(line), " ")) {
			t.Errorf("%q: %v: %s", line, err, out)
		}
		for _, flag := range line {
			if strings.HasPrefix(flag, "--") && !strings.Contains(string(out), flag+" ") {
				t.Errorf("%q: there is no flag %s", line, flag)
			}
		}
	}
}

// commands are the isthmus command lines of this folder.
func commands(t *testing.T) [][]string {
	t.Helper()
	text := regexp.MustCompile(`(?m)^CMD (\[.*\])$`).FindStringSubmatch(read(t, "Dockerfile"))
	if text == nil {
		t.Fatal("the Dockerfile has no CMD")
	}
	var cmd []string
	if err := json.Unmarshal([]byte(text[1]), &cmd); err != nil {
		t.Fatal(err)
	}
	out := [][]string{cmd}
	doc := strings.ReplaceAll(read(t, "README.md"), "\\\n", " ")
	for _, m := range regexp.MustCompile(`(?m)^docker .*? /?isthmus +(/isthmus )?([a-z].*)$`).FindAllStringSubmatch(doc, -1) {
		out = append(out, strings.Fields(m[2]))
	}
	if len(out) != 4 {
		t.Errorf("found %q", out)
	}
	return out
}

// words are those that name the command, which come first.
func words(line []string) []string {
	for i, w := range line {
		if strings.HasPrefix(w, "-") || strings.ContainsAny(w, "./") {
			return line[:i]
		}
	}
	return line
}

func TestImageUsesTheGoOfTheModule(t *testing.T) {
	t.Parallel()
	module := regexp.MustCompile(`(?m)^go (\d+\.\d+)`).FindStringSubmatch(read(t, "../go.mod"))
	if module == nil || !strings.Contains(read(t, "Dockerfile"), "golang:"+module[1]+" AS build") {
		t.Errorf("go.mod has %q; the Dockerfile builds with another", module)
	}
}

// Ports and flags that the texts name are those of the program.
func TestPortsAreTheDefaults(t *testing.T) {
	t.Parallel()
	reference := read(t, "../docs/reference.md")
	exposed := regexp.MustCompile(`(?m)^EXPOSE (.*)$`).FindStringSubmatch(read(t, "Dockerfile"))
	if exposed == nil {
		t.Fatal("the Dockerfile exposes nothing")
	}
	for port := range strings.FieldsSeq(exposed[1]) {
		if !strings.Contains(reference, "`:"+port+"`") {
			t.Errorf("%s is no default of isthmus serve", port)
		}
		if !strings.Contains(read(t, "README.md"), "| "+port+" |") {
			t.Errorf("README.md does not say what port %s is for", port)
		}
	}
}
