// Package envoy_test drives real Envoys with a real hub, the isthmus binary on
// a folder of YAML clusters, and sends real requests through them.
package envoy_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"
)

// binaryVar holds the path of the hub under test; TestMain sets it.
const binaryVar = "ISTHMUS_BIN"

func TestMain(m *testing.M) {
	os.Exit(run(m))
}

// run builds the hub as the tests themselves are built, unless one is given.
func run(m *testing.M) int {
	if os.Getenv(binaryVar) == "" {
		dir, err := os.MkdirTemp("", "isthmus-bin-")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(dir)
		bin := filepath.Join(dir, "isthmus")
		if err := build(bin); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		os.Setenv(binaryVar, bin)
	}
	code := m.Run()
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	return code
}

func build(bin string) error {
	args := []string{"build", "-o", bin}
	if raceEnabled {
		args = append(args, "-race")
	}
	cmd := exec.Command("go", append(args, "../../cmd/isthmus")...)
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("build the hub: %w", err)
	}
	return nil
}
