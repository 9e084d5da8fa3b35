package env

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/isthmus-mesh/isthmus/test/envoy/envoytest"
)

// server is a server of a registry, with a data folder and a block of loopback addresses of its own.
type server struct {
	URL  string // of its HTTP API
	Host string // "host:port" of that

	name, binary, dir string
	addrs             *envoytest.Loopback
	process           *process
	http              *http.Client

	args  []string                    // of the program
	ready func(context.Context) error // gives nil once it can be used
}

// newServer finds the program, which may be named by an environment variable, and addresses, from a block on. It keeps its data in dir.
func newServer(ctx context.Context, name, variable, dir string, block byte) (server, error) {
	binary, err := envoytest.Tool(ctx, name, variable)
	if err != nil {
		return server{}, err
	}
	addrs, err := envoytest.ClaimLoopback(block)
	if err != nil {
		return server{}, err
	}
	return server{name: name, binary: binary, dir: dir, addrs: addrs, http: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}}, nil
}

// Start runs the server again after Kill, with the data that it had.
func (s *server) Start(ctx context.Context) error {
	p, err := launch(ctx, filepath.Join(s.dir, s.name+".log"), s.binary, s.args, s.ready)
	if err != nil {
		return fmt.Errorf("%s: %w", s.name, err)
	}
	s.process = p
	return nil
}

// Kill ends the server without notice; what it has on disk stays.
func (s *server) Kill() { s.process.kill() }

// Forget removes the data of a server that was killed: it starts empty.
func (s *server) Forget(t testing.TB) {
	t.Helper()
	if err := os.RemoveAll(filepath.Join(s.dir, "data")); err != nil {
		t.Fatal(err)
	}
}

// Close ends the server.
func (s *server) Close() {
	if s.process != nil {
		s.process.kill()
	}
	_ = s.addrs.Close() // the lock goes with the process at the latest
	s.http.CloseIdleConnections()
}
