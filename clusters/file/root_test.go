package file_test

import (
	"context"
	"fmt"
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

// lifecycle records what is attached and detached.
type lifecycle struct {
	mu   sync.Mutex
	ops  []string
	news chan struct{}
}

func newLifecycle() *lifecycle { return &lifecycle{news: make(chan struct{}, 1)} }

func (l *lifecycle) add(op string) {
	l.mu.Lock()
	l.ops = append(l.ops, op)
	l.mu.Unlock()
	select {
	case l.news <- struct{}{}:
	default:
	}
}

func (l *lifecycle) Attach(r model.Registry) { l.add("+" + r.Key().String()) }
func (l *lifecycle) Detach(k model.ShardKey) { l.add("-" + k.String()) }

func (l *lifecycle) wait(t *testing.T, want ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	for {
		l.mu.Lock()
		got := slices.Clone(l.ops)
		l.mu.Unlock()
		if slices.Equal(got, want) {
			return
		}
		select {
		case <-l.news:
		case <-ctx.Done():
			t.Fatalf("got %v, want %v", got, want)
		}
	}
}

func startRoot(t *testing.T, dir string) *lifecycle {
	t.Helper()
	l := newLifecycle()
	run(t, file.NewRoot(file.RootOptions{Dir: dir, Mesh: "main", Member: file.Options{Log: quiet()}}, l))
	return l
}

// run runs a root until the test ends.
func run(t *testing.T, r *file.Root) {
	t.Helper()
	must(t, r.Scan())
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != context.Canceled {
			t.Errorf("Run gave %v", err)
		}
	})
}

func TestRootFollowsFolders(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	must(t, os.Mkdir(filepath.Join(dir, "west"), 0o755))
	must(t, os.Mkdir(filepath.Join(dir, "east"), 0o755))
	must(t, os.Mkdir(filepath.Join(dir, ".git"), 0o755))
	write(t, "", dir, "mesh.yaml")
	ops := []string{"+mesh/main", "+file/east", "+file/west"}
	l := startRoot(t, dir)
	l.wait(t, ops...) // known when Scan returns
	step := func(op string, err error) {
		t.Helper()
		must(t, err)
		ops = append(ops, op)
		l.wait(t, ops...)
	}
	step("+file/north", os.Mkdir(filepath.Join(dir, "north"), 0o755))
	step("-file/east", os.RemoveAll(filepath.Join(dir, "east")))
	step("+file/east", os.Mkdir(filepath.Join(dir, "east"), 0o755))
	must(t, os.Rename(filepath.Join(dir, "east"), filepath.Join(dir, "south")))
	ops = append(ops, "-file/east", "+file/south")
	l.wait(t, ops...)
}

func TestRootLeavesOddFoldersAlone(t *testing.T) {
	t.Parallel()
	dir, outside := t.TempDir(), t.TempDir()
	for _, n := range []string{"-x", "x-", "a b", "ünï", strings.Repeat("x", 64), "good_1.example"} {
		must(t, os.Mkdir(filepath.Join(dir, n), 0o755))
	}
	must(t, os.Symlink(outside, filepath.Join(dir, "escape")))
	must(t, os.Symlink("good_1.example", filepath.Join(dir, "link")))
	must(t, os.Symlink("nowhere", filepath.Join(dir, "broken")))
	l := startRoot(t, dir)
	l.wait(t, "+mesh/main", "+file/good_1.example", "+file/link")
	mesh := start(t, file.NewMesh(file.Options{Dir: dir, Cluster: "main", Log: quiet()}))
	odd := []string{"-x", "x-", "a b", "ünï", strings.Repeat("x", 64), "escape", "broken"}
	slices.Sort(odd)
	mesh.wait(t, fmt.Sprint("problems of ", odd), func(s *sink) bool {
		var items []string
		for _, p := range s.status.Problems {
			items = append(items, p.Item)
		}
		return slices.Equal(items, odd)
	})
	must(t, os.Remove(filepath.Join(dir, "escape")))
	mesh.wait(t, "six problems", func(s *sink) bool { return len(s.status.Problems) == 6 })
}

// running runs what is attached, and keeps the newest sink of each key.
type running struct {
	*lifecycle
	t     *testing.T
	sinks map[string]*sink // guarded by lifecycle.mu
}

func (r *running) Attach(reg model.Registry) {
	s := start(r.t, reg)
	r.mu.Lock()
	r.sinks[reg.Key().String()] = s
	r.mu.Unlock()
	r.lifecycle.Attach(reg)
}

func (r *running) account(t *testing.T, want string) {
	t.Helper()
	r.mu.Lock()
	s := r.sinks["file/east"]
	r.mu.Unlock()
	s.wait(t, "account "+want, func(s *sink) bool {
		w, _ := s.rows[model.RowKey{Kind: model.RowWorkload, Key: "Pod/demo/a"}].(*model.Workload)
		return w != nil && w.ServiceAccount == want
	})
}

// Identities are in the trust domain of the settings; members are attached anew when it changes.
func TestRootFollowsTrustDomain(t *testing.T) {
	t.Parallel()
	const east = "+file/east"
	withAccount := pod("a", "10.0.0.1") + "spec: {serviceAccountName: web}\n"
	setUp := func(t *testing.T, trust string) (string, *running) {
		dir := t.TempDir()
		write(t, withAccount, dir, "east", "a.yaml")
		write(t, "trustDomain: x.example", dir, "mesh.yaml")
		l := &running{lifecycle: newLifecycle(), t: t, sinks: map[string]*sink{}}
		run(t, file.NewRoot(file.RootOptions{Dir: dir, Mesh: "main", Member: file.Options{Log: quiet(), TrustDomain: trust}}, l))
		return dir, l
	}
	t.Run("of the settings", func(t *testing.T) {
		t.Parallel()
		dir, l := setUp(t, "")
		l.wait(t, "+mesh/main", east)
		l.account(t, "spiffe://x.example/ns/demo/sa/web")
		place(t, "trustDomain: y.example\naccessLogFile: /dev/stdout", dir, "mesh.yaml")
		l.wait(t, "+mesh/main", east, east)
		l.account(t, "spiffe://y.example/ns/demo/sa/web")
		place(t, "trustDomain: [", dir, "mesh.yaml") // the last good one stays
		place(t, "trustDomain: y.example", dir, "mesh.yaml")
		must(t, os.Remove(filepath.Join(dir, "mesh.yaml")))
		l.wait(t, "+mesh/main", east, east, east)
		l.account(t, "spiffe://cluster.local/ns/demo/sa/web")
	})
	t.Run("of the options", func(t *testing.T) {
		t.Parallel()
		dir, l := setUp(t, "fixed.example")
		l.account(t, "spiffe://fixed.example/ns/demo/sa/web")
		place(t, "trustDomain: y.example", dir, "mesh.yaml")
		must(t, os.Mkdir(filepath.Join(dir, "west"), 0o755))
		l.wait(t, "+mesh/main", east, "+file/west")
	})
}

func TestRootUnreadable(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "d")
	r := file.NewRoot(file.RootOptions{Dir: dir, Member: file.Options{Log: quiet()}}, newLifecycle())
	if err := r.Scan(); err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("Scan gave %v", err)
	}

	must(t, os.MkdirAll(filepath.Join(dir, "east"), 0o755))
	l := startRoot(t, dir)
	must(t, os.Rename(dir, dir+"2")) // nothing is detached while it is away
	must(t, os.Rename(dir+"2", dir))
	must(t, os.Mkdir(filepath.Join(dir, "west"), 0o755))
	l.wait(t, "+mesh/main", "+file/east", "+file/west")
}

// What a root attaches reads the files of its own folder.
func TestRootAttachesWorkingRegistries(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, pod("a", "10.0.0.1"), dir, "east", "a.yaml")
	write(t, "trustDomain: x", dir, "mesh.yaml")
	var got []string
	var mu sync.Mutex
	r := file.NewRoot(file.RootOptions{Dir: dir, Mesh: "main", Member: file.Options{Log: quiet()}}, attachFunc(func(reg model.Registry) {
		s := start(t, reg)
		s.wait(t, "rows", func(s *sink) bool { return len(s.rows) > 0 })
		mu.Lock()
		defer mu.Unlock()
		got = append(got, fmt.Sprint(reg.Key(), s.keys()))
	}))
	must(t, r.Scan())
	if want := []string{"mesh/main [MeshConfig//mesh]", "file/east [Pod/demo/a]"}; !slices.Equal(got, want) {
		t.Errorf("got %v", got)
	}
	if !slices.Equal(r.Clusters(), []model.ClusterID{"east"}) {
		t.Errorf("clusters %v", r.Clusters())
	}
}

type attachFunc func(model.Registry)

func (f attachFunc) Attach(r model.Registry) { f(r) }
func (f attachFunc) Detach(model.ShardKey)   {}
