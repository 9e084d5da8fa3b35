package lastgood_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/clusters/lastgood"
	"github.com/isthmus-mesh/isthmus/clusters/memory"
)

var east = model.ShardKey{Provider: model.ProviderKubernetes, Cluster: "east"}

// hub is a folder and what runs on it, with fake time. Its registry may be started again and again.
type hub struct {
	*testing.T
	dir   string
	store *lastgood.Store
}

func inBubble(t *testing.T, f func(h *hub)) {
	t.Helper()
	t.Parallel()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		h := &hub{T: t, dir: dir}
		h.restart()
		f(h)
	})
}

// restart opens the folder as a hub does that has just been started.
func (h *hub) restart() {
	h.Helper()
	s, err := lastgood.Open(lastgood.Options{Dir: h.dir})
	if err != nil {
		h.Fatal(err)
	}
	h.store = s
}

// instance is a registry that runs, and what it has reported.
type instance struct {
	*memory.Registry
	h       *hub
	wrapped model.Registry
	cancel  context.CancelFunc
	done    chan error

	out memory.Sink
}

// run starts a registry that says nothing yet.
func (h *hub) run(restore bool) *instance {
	r := memory.New(east)
	in := &instance{Registry: r, h: h, wrapped: h.store.Wrap(r, lastgood.Terms{Restore: restore})}
	in.start()
	return in
}

func (in *instance) start() {
	ctx, cancel := context.WithCancel(in.h.Context())
	done := make(chan error, 1)
	in.cancel, in.done = cancel, done
	go func() { done <- in.wrapped.Run(ctx, &in.out) }()
	synctest.Wait()
}

func (in *instance) stop() {
	in.h.Helper()
	in.cancel()
	if err := <-in.done; err != nil && !errors.Is(err, context.Canceled) {
		in.h.Error(err)
	}
}

// pass lets imagined time pass.
func (h *hub) pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// want compares what has been reported: names of services, and the last status.
func (in *instance) want(names string, state model.State, why string) {
	in.h.Helper()
	synctest.Wait()
	var got []string
	rows, last := in.out.Rows(), in.out.Last()
	for _, n := range []string{"a", "b", "c", "d"} {
		if _, ok := rows[service(n).key()]; ok {
			got = append(got, n)
		}
	}
	if strings.Join(got, " ") != names {
		in.h.Errorf("reports %v, want %s", got, names)
	}
	if last.State != state || !strings.Contains(last.Err, why) || why == "" && last.Err != "" {
		in.h.Errorf("status %+v, want %s because of %q", last, state, why)
	}
}

// problems gives those of the last status, and how many statuses there were.
func (in *instance) problems() (last []model.Problem, statuses int) {
	return in.out.Last().Problems, len(in.out.Statuses())
}

type row struct{ *model.Service }

func service(name string) row {
	return row{&model.Service{Name: name, Host: name, Namespace: "ns", Source: model.Source{Shard: east}}}
}

func (r row) key() model.RowKey { return model.RowKey{Kind: model.RowService, Key: r.Name} }

func state(names ...string) *model.ShardState {
	b := model.NewShardBuilder()
	for _, n := range names {
		b.Add(n, service(n).Service)
	}
	return b.Build()
}

// files lists the folder.
func (h *hub) files() (out []string) {
	h.Helper()
	entries, err := os.ReadDir(h.dir)
	if err != nil {
		h.Fatal(err)
	}
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out
}

func (h *hub) wantFiles(want ...string) {
	h.Helper()
	if got := h.files(); fmt.Sprint(got) != fmt.Sprint(want) {
		h.Errorf("files %v, want %v", got, want)
	}
}

const eastFile = "kubernetes@east.rows"

// lived runs a registry with the services until they are written, and ends the hub.
func (h *hub) lived(names ...string) {
	h.Helper()
	in := h.run(true)
	in.Registry.Replace(state(names...))
	h.pass(time.Minute)
	in.stop()
	h.wantFiles(eastFile)
	h.restart()
}

func (h *hub) stat() fs.FileInfo {
	h.Helper()
	info, err := os.Stat(filepath.Join(h.dir, eastFile))
	if err != nil {
		h.Fatal(err)
	}
	return info
}
