package script

import (
	"bufio"
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"
	"golang.org/x/tools/txtar"
	"rsc.io/script"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestScripts runs every scenario in a world, and a time, of its own.
func TestScripts(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scenarios: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			t.Parallel()
			archive, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			dir := t.TempDir()
			synctest.Test(t, func(t *testing.T) { run(t, file, dir, archive) })
		})
	}
}

func run(t *testing.T, file, dir string, archive *txtar.Archive) {
	ctx, cancel := context.WithCancel(t.Context())
	w := newWorld(ctx)
	defer w.end(cancel)
	state, err := script.NewState(ctx, dir, os.Environ())
	if err != nil {
		t.Fatal(err)
	}
	if err := state.ExtractFiles(archive); err != nil {
		t.Fatal(err)
	}
	engine := &script.Engine{Cmds: verbs(w), Conds: script.DefaultConds()}
	var log bytes.Buffer
	err = engine.Execute(state, filepath.Base(file), bufio.NewReader(bytes.NewReader(archive.Comment)), &log)
	if closed := state.CloseAndWait(&log); err == nil {
		err = closed
	}
	if err != nil || testing.Verbose() {
		t.Log("\n" + log.String())
	}
	if err != nil {
		t.Errorf("%v\nthe hub's log:\n%s", err, w.log.String())
	}
}
