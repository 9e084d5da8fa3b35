package file_test

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/clusters/file"
)

// sink keeps what a registry reports and lets tests wait for it.
type sink struct {
	mu       sync.Mutex
	rows     map[model.RowKey]model.Object
	log      []string // what happened, in order
	status   model.Status
	replaces int
	news     chan struct{}
}

func newSink() *sink {
	return &sink{rows: map[model.RowKey]model.Object{}, news: make(chan struct{}, 1)}
}

func (s *sink) change(f func()) {
	s.mu.Lock()
	f()
	s.mu.Unlock()
	select {
	case s.news <- struct{}{}:
	default:
	}
}

func (s *sink) Replace(st *model.ShardState) {
	s.change(func() {
		s.rows = maps.Collect(st.Rows())
		s.replaces++
		s.log = append(s.log, "replace")
	})
}

func (s *sink) Put(evs ...model.Event) {
	s.change(func() {
		for _, ev := range evs {
			if ev.Obj == nil {
				delete(s.rows, ev.Row)
				s.log = append(s.log, "delete "+ev.Row.Key)
				continue
			}
			s.rows[ev.Row] = ev.Obj
			s.log = append(s.log, "put "+ev.Row.Key)
		}
	})
}

func (s *sink) Status(st model.Status) { s.change(func() { s.status = st }) }

// wait blocks until the condition holds; it fails the test when that takes absurdly long.
func (s *sink) wait(t *testing.T, what string, cond func(s *sink) bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	for {
		s.mu.Lock()
		ok := cond(s)
		state := fmt.Sprintf("rows %v\nstatus %+v\nlog %v", s.keys(), s.status, s.log)
		s.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-s.news:
		case <-ctx.Done():
			t.Fatalf("no %s\n%s", what, state)
		}
	}
}

// now is a copy of what has been reported, to be read at leisure.
func (s *sink) now() *sink {
	s.mu.Lock()
	defer s.mu.Unlock()
	return &sink{rows: maps.Clone(s.rows), log: slices.Clone(s.log), status: s.status, replaces: s.replaces}
}

func (s *sink) config(key string) *model.Config {
	c, _ := s.now().rows[model.RowKey{Kind: model.RowConfig, Key: key}].(*model.Config)
	return c
}

// keys is to be called under the lock.
func (s *sink) keys() []string {
	var out []string
	for k := range s.rows {
		out = append(out, k.Key)
	}
	slices.Sort(out)
	return out
}

// waitRows waits until exactly these rows are there.
func (s *sink) waitRows(t *testing.T, keys ...string) {
	t.Helper()
	slices.Sort(keys)
	s.wait(t, fmt.Sprint("rows ", keys), func(s *sink) bool { return slices.Equal(s.keys(), keys) })
}

// waitProblem waits for a problem that contains the text; "" waits until there is none.
func (s *sink) waitProblem(t *testing.T, text string) (p model.Problem) {
	t.Helper()
	s.wait(t, "problem "+text, func(s *sink) bool {
		if text == "" {
			return s.status.State == model.StateLive && len(s.status.Problems) == 0
		}
		for _, q := range s.status.Problems {
			if strings.Contains(q.Reason, text) {
				p = q
				return true
			}
		}
		return false
	})
	return p
}

func (s *sink) happened(what string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, l := range s.log {
		if l == what {
			n++
		}
	}
	return n
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// start runs a registry until the test ends.
func start(t *testing.T, r model.Registry) *sink {
	t.Helper()
	s := newSink()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx, s) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != context.Canceled {
			t.Errorf("Run gave %v", err)
		}
	})
	return s
}

func cluster(t *testing.T, dir string) *sink {
	t.Helper()
	return start(t, file.NewCluster(file.Options{Dir: dir, Cluster: "c1", Log: quiet()}))
}

func pod(name, ip string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata: {name: %s, namespace: demo}\nstatus: {podIP: %s}\n", name, ip)
}

func write(t *testing.T, text string, path ...string) {
	t.Helper()
	p := filepath.Join(path...)
	if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(p, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// place replaces a file as careful programs do: written aside, then renamed.
func place(t *testing.T, text string, path ...string) {
	t.Helper()
	p := filepath.Join(path...)
	write(t, text, p+".tmp")
	must(t, os.Rename(p+".tmp", p))
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func podIP(s *sink, name string) string {
	w, _ := s.rows[model.RowKey{Kind: model.RowWorkload, Key: "Pod/demo/" + name}].(*model.Workload)
	if w == nil {
		return ""
	}
	return w.Address.AddrPort.Addr().String()
}

func (s *sink) waitIP(t *testing.T, name, ip string) {
	t.Helper()
	s.wait(t, name+" at "+ip, func(s *sink) bool { return podIP(s, name) == ip })
}
