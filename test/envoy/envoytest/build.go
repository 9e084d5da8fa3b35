package envoytest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// HubVar names the environment variable that holds the path of the isthmus
// binary to use.
const HubVar = "ISTHMUS_BIN"

// WithHub sets HubVar, unless it is set, to an isthmus binary that it builds
// from this module as the caller is built, with the race detector or without,
// and calls run. The binary is removed at the end. It is for TestMain.
func WithHub(ctx context.Context, run func() int) int {
	if os.Getenv(HubVar) != "" {
		return run()
	}
	dir, err := os.MkdirTemp("", "isthmus-bin-")
	if err == nil {
		defer os.RemoveAll(dir)
		bin := filepath.Join(dir, "isthmus")
		if err = buildHub(ctx, bin); err == nil {
			err = os.Setenv(HubVar, bin)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "build the hub:", err)
		return 1
	}
	return run()
}

func buildHub(ctx context.Context, bin string) error {
	root, err := moduleRoot()
	if err != nil {
		return err
	}
	args := []string{"build", "-o", bin}
	if raceEnabled {
		args = append(args, "-race")
	}
	cmd := exec.CommandContext(ctx, "go", append(args, "./cmd/isthmus")...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = root, os.Stderr, os.Stderr
	return cmd.Run()
}
