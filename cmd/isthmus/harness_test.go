package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/test/env"
)

// logbook is a log that tests wait on.
type logbook struct {
	mu   sync.Mutex
	cond *sync.Cond
	text bytes.Buffer
}

// A wait looks again after lookAgain if nothing is logged: not all that tests wait for is told in the log. It is
// given up after patience.
const (
	lookAgain = 100 * time.Millisecond
	patience  = 3 * time.Minute
)

func newLogbook() *logbook {
	l := &logbook{}
	l.cond = sync.NewCond(&l.mu)
	return l
}

// nudge wakes whoever waits, also one that is just about to.
func (l *logbook) nudge() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cond.Broadcast()
}

func (l *logbook) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cond.Broadcast()
	return l.text.Write(b)
}

func (l *logbook) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// until checks now, whenever something was logged, and now and then.
func (l *logbook) until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for late := time.Now().Add(patience); !ok(); {
		l.mu.Lock()
		tick := time.AfterFunc(lookAgain, l.nudge)
		l.cond.Wait()
		tick.Stop()
		l.mu.Unlock()
		if t.Context().Err() != nil || time.Now().After(late) {
			t.Fatalf("never came: %s\n%s", what, l)
		}
	}
}

// running is a hub in this process.
type running struct {
	addresses
	url  string
	dir  string
	log  *logbook
	stop func() error
}

func startHub(t *testing.T, files map[string]string, flags ...string) *running {
	t.Helper()
	r := &running{dir: t.TempDir(), log: newLogbook()}
	for path, text := range files {
		r.write(t, path, text)
	}
	return r.start(t, append([]string{"--dir", r.dir}, flags...)...)
}

// startKubeHub runs a hub whose config cluster is c.
func startKubeHub(t *testing.T, c *env.Cluster, flags ...string) *running {
	t.Helper()
	r := &running{dir: t.TempDir(), log: newLogbook()}
	r.write(t, "primary.yaml", string(c.Kubeconfig(env.AdminToken)))
	return r.start(t, append([]string{"--kubeconfig", r.path("primary.yaml")}, flags...)...)
}

func (r *running) path(name string) string { return filepath.Join(r.dir, name) }

func (r *running) start(t *testing.T, flags ...string) *running {
	t.Helper()
	o := &serveOptions{}
	opened := make(chan addresses, 1)
	o.opened = func(a addresses) { opened <- a }
	c := serveCommand(o)
	c.SetErr(r.log)
	c.SetArgs(append([]string{"--grpc-addr", "127.0.0.1:0", "--http-addr", "127.0.0.1:0", "--monitoring-addr", "127.0.0.1:0"}, flags...))
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- c.ExecuteContext(ctx) }()
	r.stop = sync.OnceValue(func() error {
		cancel()
		return <-done
	})
	t.Cleanup(func() {
		if err := r.stop(); err != nil {
			t.Errorf("the hub ended with %v", err)
		}
	})
	select {
	case r.addresses = <-opened:
	case err := <-done:
		t.Fatalf("the hub did not start: %v", err)
	}
	r.url = "http://" + r.http
	return r
}

func (r *running) write(t *testing.T, path, text string) {
	t.Helper()
	path = filepath.Join(r.dir, path)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	next := filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+".new")
	if err := os.WriteFile(next, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(next, path); err != nil {
		t.Fatal(err)
	}
}

// ask runs a command against the hub and reads its JSON.
func ask[T any](t *testing.T, r *running, args string) T {
	t.Helper()
	var v T
	got := command(t, append(strings.Fields(args), "--hub", r.url, "-o", "json")...)
	if got.code != exitOK {
		return v
	}
	if err := json.Unmarshal([]byte(got.stdout), &v); err != nil {
		t.Fatalf("%s: %v\n%s", args, err, got.stdout)
	}
	return v
}

func get(t *testing.T, url string) (int, string) {
	t.Helper()
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	res, err := client.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(b)
}
