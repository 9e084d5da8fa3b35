package file

import (
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
)

// growing is a follower whose folder changes right after each of the first listings.
type growing struct {
	folder
	after []func()
	lists int
	last  *listing
}

func (g *growing) list() (*listing, error) {
	l, err := g.folder.list(wanted, true)
	if g.lists < len(g.after) {
		g.after[g.lists]()
	}
	g.lists++
	return l, err
}

func (g *growing) turn(_ time.Time, l *listing, _ map[string]bool) time.Time {
	g.last = l
	return time.Time{}
}

func (g *growing) unreadable(time.Time, error) {}

func newGrowing(t *testing.T, dir string, after ...func()) (*growing, *looker) {
	t.Helper()
	g := &growing{folder: folder{root: dir, dir: ".", limits: Limits{}.withDefaults()}, after: after}
	k := &looker{follower: g, watcher: newWatcher()}
	t.Cleanup(k.close)
	if k.w == nil {
		t.Skip("the system gives no events: ", k.err)
	}
	return g, k
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// A folder made between the listing of its parent and the watch on it has no event of its own.
func TestLookWatchesWhatGrowsMeanwhile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	mkdir := func(parts ...string) func() {
		return func() { check(t, os.Mkdir(filepath.Join(append([]string{dir}, parts...)...), 0o755)) }
	}
	g, k := newGrowing(t, dir, mkdir("x"), mkdir("x", "y"), mkdir("x", "y", "z"), func() {
		check(t, os.WriteFile(filepath.Join(dir, "x", "y", "z", "p.yaml"), []byte("a: b"), 0o644))
	})
	k.look(nil)
	if got := slices.Collect(maps.Keys(g.last.files)); !slices.Equal(got, []string{"x/y/z/p.yaml"}) {
		t.Errorf("files %v after %d listings", got, g.lists)
	}
	want := []string{dir, filepath.Join(dir, "x"), filepath.Join(dir, "x", "y"), filepath.Join(dir, "x", "y", "z")}
	if d := cmp.Diff(want, slices.Sorted(slices.Values(k.w.WatchList()))); d != "" {
		t.Error("watched (-want +got):\n" + d)
	}
	if n := g.lists; n != 5 {
		t.Errorf("%d listings", n)
	}
	if k.look(nil); g.lists != 6 {
		t.Errorf("%d listings in a look at which nothing is new", g.lists-5)
	}
}

// A folder that takes the place of another of its name is listed again once it is watched.
func TestLookWatchesReplacedFolder(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	x := filepath.Join(dir, "x")
	check(t, os.Mkdir(x, 0o755))
	g, k := newGrowing(t, dir)
	k.look(nil)
	g.lists, g.after = 0, []func(){func() {
		check(t, os.Rename(x, x+".old"))
		check(t, os.Mkdir(x, 0o755))
		check(t, os.WriteFile(filepath.Join(x, "p.yaml"), []byte("a: b"), 0o644))
	}}
	k.look(nil)
	if g.last.files["x/p.yaml"] == nil {
		t.Errorf("files %v after %d listings", g.last.files, g.lists)
	}
}

// A folder that never stops growing is looked at again soon.
func TestLookIsBounded(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var after []func()
	for i := range surveys + 5 {
		after = append(after, func() { check(t, os.Mkdir(filepath.Join(dir, string(rune('a'+i))), 0o755)) })
	}
	g, k := newGrowing(t, dir, after...)
	if wait := k.look(nil); wait > retry || g.lists != surveys || g.last == nil {
		t.Errorf("%d listings, then wait for %v", g.lists, wait)
	}
}

// attachments records what a root attaches and detaches.
type attachments []string

func (a *attachments) Attach(r model.Registry) { *a = append(*a, "+"+r.Key().String()) }
func (a *attachments) Detach(k model.ShardKey) { *a = append(*a, "-"+k.String()) }

// A folder that is replaced in two steps keeps its member; one that has another name is gone at once.
func TestRootGivesFoldersTime(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	check(t, os.Mkdir(at("east"), 0o755))
	check(t, os.Mkdir(at(".new"), 0o755))
	ops := &attachments{}
	r := NewRoot(RootOptions{Dir: dir, Member: Options{Log: slog.New(slog.DiscardHandler)}}, ops)
	check(t, r.Scan())
	now := time.Now()
	turn := func(after time.Duration, want time.Duration) {
		t.Helper()
		l, err := r.list()
		check(t, err)
		now = now.Add(after)
		next := r.turn(now, l, nil)
		if want == 0 && !next.IsZero() || want != 0 && !next.Equal(now.Add(want)) {
			t.Errorf("next turn at %v, want in %v", next.Sub(now), want)
		}
	}
	check(t, os.Rename(at("east"), at(".old")))
	turn(0, folderGrace)
	turn(folderGrace/2, folderGrace/2)
	check(t, os.Rename(at(".new"), at("east")))
	turn(time.Millisecond, 0)
	turn(time.Hour, 0)
	check(t, os.Rename(at("east"), at("south")))
	turn(time.Hour, 0)
	check(t, os.RemoveAll(at("south")))
	turn(0, folderGrace)
	turn(folderGrace, 0)
	if d := cmp.Diff(attachments{"+mesh/", "+file/east", "-file/east", "+file/south", "-file/south"}, *ops); d != "" {
		t.Error(d)
	}
}
