package envoytest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// EnvoyVar names the environment variable that holds the path of the Envoy
// binary to use.
const EnvoyVar = "ISTHMUS_ENVOY"

// setupScript is the tool fetcher, relative to the root of the module.
const setupScript = "test/tools/setup"

// Binary is the path of an Envoy: $ISTHMUS_ENVOY or, when that is unset, the
// one in the user's cache folder, fetched if it is not there yet (some 37 MB).
func Binary(ctx context.Context) (string, error) { return Tool(ctx, "envoy", EnvoyVar) }

// Tool is the path of a program that test/tools/setup knows: the value of the
// environment variable or, when that is unset, the one in the user's cache
// folder, fetched or built if it is not there yet (progress goes to standard
// error). It must be called from a folder inside the module, as tests are.
func Tool(ctx context.Context, name, variable string) (string, error) {
	if path := os.Getenv(variable); path != "" {
		return path, nil
	}
	root, err := moduleRoot()
	if err != nil {
		return "", fmt.Errorf("find %s: %w; or set %s", name, err, variable)
	}
	var out bytes.Buffer
	cmd := exec.CommandContext(ctx, filepath.Join(root, setupScript), name)
	cmd.Stdout, cmd.Stderr = &out, os.Stderr
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("fetch %s: %w", name, err)
	}
	return strings.TrimSpace(out.String()), nil
}

// moduleRoot is the nearest folder, from the working folder upwards, that
// holds the tool fetcher.
func moduleRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, setupScript)); err == nil {
			return dir, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", errors.New("not inside the isthmus source tree")
		}
		dir = parent
	}
}
