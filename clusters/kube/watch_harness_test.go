package kube_test

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/clusters/kube"
	"github.com/isthmus-mesh/isthmus/kubeapi"
)

// patience is how long a test waits before it gives up: long, for a busy machine.
const patience = 2 * time.Minute

// quick are timings at which tests need not wait.
var quick = kube.Timing{
	Timing: kubeapi.Timing{Dial: time.Second, Ping: 200 * time.Millisecond, Pong: 200 * time.Millisecond, List: 5 * time.Second,
		Retry: 5 * time.Millisecond, RetryMax: 20 * time.Millisecond},
	Discovery: 50 * time.Millisecond, Absent: 100 * time.Millisecond,
}

// watcher is a running registry and what it told.
type watcher struct {
	t    *testing.T
	reg  model.Registry
	stop func()

	mu       sync.Mutex
	changed  chan struct{}
	rows     map[model.RowKey]model.Object
	puts     [][]model.Event
	replaces int
	status   model.Status
	history  []model.State
	ended    bool
}

// watch runs a registry until the test ends.
func watch(t *testing.T, reg model.Registry) *watcher {
	t.Helper()
	w := &watcher{t: t, reg: reg, changed: make(chan struct{}), rows: map[model.RowKey]model.Object{}}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- reg.Run(ctx, w) }()
	w.stop = sync.OnceFunc(func() {
		cancel()
		select {
		case err := <-done:
			if err != nil && ctx.Err() == nil {
				t.Errorf("Run: %v", err)
			}
		case <-time.After(patience):
			t.Error("Run does not return")
		}
		w.mu.Lock()
		w.ended = true
		w.mu.Unlock()
	})
	t.Cleanup(w.stop)
	return w
}

func (w *watcher) enter() func() {
	w.mu.Lock()
	if w.ended {
		w.t.Error("the sink is used after Run returned")
	}
	return func() {
		close(w.changed)
		w.changed = make(chan struct{})
		w.mu.Unlock()
	}
}

// Replace implements model.Sink.
func (w *watcher) Replace(s *model.ShardState) {
	defer w.enter()()
	w.replaces++
	if w.replaces > 1 {
		w.t.Error("a second Replace")
	}
	w.rows = maps.Collect(s.Rows())
}

// Put implements model.Sink.
func (w *watcher) Put(evs ...model.Event) {
	defer w.enter()()
	if w.replaces == 0 {
		w.t.Error("Put before Replace")
	}
	w.puts = append(w.puts, evs)
	for _, e := range evs {
		if e.Obj == nil {
			delete(w.rows, e.Row)
		} else {
			w.rows[e.Row] = e.Obj
		}
	}
}

// Status implements model.Sink.
func (w *watcher) Status(s model.Status) {
	defer w.enter()()
	w.status = s
	if n := len(w.history); n == 0 || w.history[n-1] != s.State {
		w.history = append(w.history, s.State)
	}
}

// await waits until ok holds; the watcher is locked meanwhile.
func (w *watcher) await(what string, ok func() bool) {
	w.t.Helper()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for {
		w.mu.Lock()
		done, next := ok(), w.changed
		w.mu.Unlock()
		if done {
			return
		}
		select {
		case <-next:
		case <-timer.C:
			w.mu.Lock()
			defer w.mu.Unlock()
			w.t.Fatalf("%s: not within %v; %d replaces, status %+v, rows %v", what, patience, w.replaces, w.status, slices.Collect(maps.Keys(w.rows)))
		}
	}
}

func (w *watcher) awaitRows(keys ...string) {
	w.t.Helper()
	slices.Sort(keys)
	w.await("rows "+strings.Join(keys, " "), func() bool { return w.replaces > 0 && slices.Equal(w.keys(), keys) })
}

// keys are those of the rows, sorted, each as "kind key".
func (w *watcher) keys() []string {
	var out []string
	for k := range w.rows {
		out = append(out, k.Kind.String()+" "+k.Key)
	}
	slices.Sort(out)
	return out
}

func (w *watcher) awaitState(s model.State) {
	w.t.Helper()
	w.await("state "+string(s), func() bool { return w.status.State == s })
}

func (w *watcher) awaitErr(parts ...string) {
	w.t.Helper()
	w.await("error with "+strings.Join(parts, ", "), func() bool { return containsAll(w.status.Err, parts) })
}

func (w *watcher) awaitProblem(item string, parts ...string) {
	w.t.Helper()
	w.await("problem of "+item, func() bool {
		return slices.ContainsFunc(w.status.Problems, func(p model.Problem) bool { return p.Item == item && containsAll(p.Reason, parts) })
	})
}

func (w *watcher) awaitNoProblem() {
	w.t.Helper()
	w.await("no problem", func() bool { return w.replaces > 0 && len(w.status.Problems) == 0 })
}

func containsAll(s string, parts []string) bool {
	for _, p := range parts {
		if !strings.Contains(s, p) {
			return false
		}
	}
	return s != ""
}

// turn gives the registry and the server a moment: it ends with the next thing that is told, or soon.
func (w *watcher) turn() {
	w.mu.Lock()
	next := w.changed
	w.mu.Unlock()
	timer := time.NewTimer(5 * time.Millisecond)
	defer timer.Stop()
	select {
	case <-next:
	case <-timer.C:
	}
}

// until waits for something that the registry does not tell of.
func (w *watcher) until(what string, ok func() bool) {
	w.t.Helper()
	for deadline := time.Now().Add(patience); !ok(); w.turn() {
		if time.Now().After(deadline) {
			w.t.Fatalf("%s: not within %v", what, patience)
		}
	}
}

// deleted reports whether any row was ever deleted.
func (w *watcher) deleted() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.ContainsFunc(w.puts, func(evs []model.Event) bool {
		return slices.ContainsFunc(evs, func(e model.Event) bool { return e.Obj == nil })
	})
}

// logBook keeps what is logged.
type logBook struct {
	mu    sync.Mutex
	lines []string
}

func (b *logBook) logger() *slog.Logger { return slog.New(slog.NewTextHandler(b, nil)) }

// Write implements io.Writer.
func (b *logBook) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.lines = append(b.lines, string(p))
	return len(p), nil
}

func (b *logBook) count(part string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := 0
	for _, l := range b.lines {
		if strings.Contains(l, part) {
			n++
		}
	}
	return n
}

func (b *logBook) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return strings.Join(b.lines, "")
}
