package file

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/clusters/kube"
)

// world is a folder in memory with a clock.
type world struct {
	t     *testing.T
	now   time.Time
	files map[string]string
	lost  []string
	tree  *tree[string]
	reads int
	err   error
}

type info struct {
	size int64
	mod  time.Time
}

func (i info) Name() string       { return "" }
func (i info) Size() int64        { return i.size }
func (i info) Mode() fs.FileMode  { return 0 }
func (i info) ModTime() time.Time { return i.mod }
func (i info) IsDir() bool        { return false }
func (i info) Sys() any           { return nil }

func newWorld(t *testing.T) *world {
	w := &world{t: t, now: time.Unix(1000, 0), files: map[string]string{}}
	w.tree = newTree(func(name string) ([]byte, error) {
		w.reads++
		return []byte(w.files[name]), w.err
	}, func(_ string, data []byte, _ time.Time) parsed[string] {
		p := parsed[string]{value: string(data), keys: map[string]struct{}{}}
		for _, k := range strings.Fields(string(data)) {
			if k == "bad" {
				p.faults = []kube.Fault{{Line: 1, Reason: "bad"}}
				continue
			}
			p.keys[k] = struct{}{}
		}
		return p
	})
	w.tree.same = func(fs.FileInfo, fs.FileInfo) bool { return true }
	return w
}

// step gives what changed as "name=content" or "-name", and how long until the next step.
func (w *world) step(touched ...string) (changes []string, wait time.Duration) {
	l := &listing{files: map[string]fs.FileInfo{}, lost: w.lost}
	for n, c := range w.files {
		l.files[n] = info{size: int64(len(c))}
	}
	changed, next := w.tree.step(w.now, l, func(n string) bool { return slices.Contains(touched, n) })
	for _, n := range slices.Sorted(maps.Keys(changed)) {
		if changed[n] == nil {
			changes = append(changes, "-"+n)
		} else {
			changes = append(changes, n+"="+changed[n].value)
		}
	}
	if !next.IsZero() {
		wait = next.Sub(w.now)
	}
	return changes, wait
}

func (w *world) expect(wait time.Duration, changes ...string) func(touched ...string) {
	return func(touched ...string) {
		w.t.Helper()
		got, d := w.step(touched...)
		if !slices.Equal(got, changes) || d != wait {
			w.t.Errorf("at %v: got %v and %v, want %v and %v", w.now.Sub(time.Unix(1000, 0)), got, d, changes, wait)
		}
	}
}

func (w *world) pass(d time.Duration) { w.now = w.now.Add(d) }

func TestTreeNewFileAtOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.files["f"] = "a b"
	w.expect(0, "f=a b")()
	w.expect(0)()
	if w.reads != 1 {
		t.Errorf("%d reads", w.reads)
	}
}

func TestTreeWaitsUntilQuiet(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.files["f"] = "a"
	w.expect(0, "f=a")()
	w.files["f"] = "a b"
	w.expect(settle)()
	w.pass(settle - 1)
	w.files["f"] = "a b c"
	w.expect(settle)() // changed again: the wait starts again
	w.pass(settle - 1)
	w.expect(settle)("f") // of the same size, but an event told
	w.pass(settle)
	w.expect(0, "f=a b c")()
}

// A file that is written to all the time is read now and then, but what it lacks is not believed.
func TestTreeNeverQuiet(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name          string
		before, after string
		want          []string
	}{
		{"it gains", "a", "a b", []string{"f=a b"}},
		{"it loses", "a b", "a", nil},
		{"it breaks", "a", "a bad", nil},
		{"new", "", "a", []string{"f=a"}},
		{"new and broken", "", "a bad", []string{"f=a bad"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			if w.files["f"] = tc.before; tc.before == "" {
				w.files["f"] = "bad" // nothing yet that could be kept
			}
			w.step()
			reads := w.reads
			w.files["f"] = tc.after
			var got []string
			for range int(2 * patience / (settle / 2)) {
				changes, wait := w.step("f")
				got = append(got, changes...)
				if wait > grace {
					t.Fatalf("it waits for %v", wait)
				}
				w.pass(settle / 2)
			}
			if got = slices.Compact(got); !slices.Equal(got, tc.want) {
				t.Errorf("got %v, want %v", got, tc.want)
			}
			if n := w.reads - reads; n > 4 && tc.before != "" || n > 8 {
				t.Errorf("%d reads in two seconds", n)
			}
		})
	}
}

func TestTreeSameContentIsNoChange(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.files["f"] = "a"
	w.expect(0, "f=a")()
	w.expect(settle)("f")
	w.pass(settle)
	w.expect(0)()
}

func TestTreeLossNeedsGrace(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.files["f"] = "a b"
	w.expect(0, "f=a b")()
	w.files["f"] = "a"
	w.expect(settle)()
	w.pass(settle)
	w.expect(grace - settle)()
	w.pass(grace - settle)
	w.expect(0, "f=a")()
}

func TestTreeBrokenKeepsLastGood(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.files["f"] = "a"
	w.expect(0, "f=a")()
	w.files["f"] = "a bad"
	w.expect(settle)()
	w.pass(settle)
	w.expect(grace - settle)()
	if ps := w.tree.problems(); len(ps) != 0 {
		t.Error("reported before it is certain", ps)
	}
	w.pass(grace - settle)
	w.expect(0)()
	if ps := w.tree.problems(); len(ps) != 1 || ps[0].Reason != "bad" || ps[0].Item != "f" {
		t.Error(ps)
	}
	w.files["f"] = "a" // what it was
	w.expect(settle)()
	w.pass(settle)
	w.expect(0)()
	if ps := w.tree.problems(); len(ps) != 0 {
		t.Error(ps)
	}
}

func TestTreeVanishedFile(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.files["f"] = "a"
	w.expect(0, "f=a")()
	delete(w.files, "f")
	w.expect(grace)()
	if !w.tree.leaving("f") || w.tree.leaving("other") {
		t.Error("leaving")
	}
	w.pass(grace - 1)
	w.files["f"] = "a b" // an editor's detour
	w.expect(settle)()
	w.pass(settle)
	w.expect(0, "f=a b")()
	delete(w.files, "f")
	w.expect(grace)()
	w.pass(grace)
	w.expect(0, "-f")()
	w.expect(0)()
}

func TestTreeLostFolderKeepsFiles(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.files["d/f"], w.files["dd"] = "a", "b"
	w.expect(0, "d/f=a", "dd=b")()
	w.files, w.lost = map[string]string{}, []string{"d"}
	w.expect(grace)()
	w.pass(grace)
	w.expect(0, "-dd")()
	w.files, w.lost = map[string]string{"d/f": "a"}, nil
	w.expect(0)()
}

func TestTreeUnreadableFile(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.files["f"] = "a"
	w.expect(0, "f=a")()
	w.err = &fs.PathError{Op: "open", Path: "f", Err: errors.New("no luck")}
	w.expect(settle)("f")
	w.pass(grace)
	w.expect(0)()
	if ps := w.tree.problems(); len(ps) != 1 || ps[0].Reason != "the file can't be read: no luck" {
		t.Error(ps)
	}
}

// Whatever happens in between, a quiet world is believed.
func TestTreeConverges(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	have := map[string]string{}
	apply := func() {
		changes, _ := w.step("f1", "f2")
		for _, c := range changes {
			if name, gone := strings.CutPrefix(c, "-"); gone {
				delete(have, name)
				continue
			}
			name, content, _ := strings.Cut(c, "=")
			have[name] = content
		}
	}
	for i := range 200 {
		name := fmt.Sprintf("f%d", i%3)
		switch i % 7 {
		case 3:
			delete(w.files, name)
		default:
			w.files[name] = strings.Repeat("k ", i%5) + fmt.Sprint(i)
		}
		apply()
		w.pass(time.Duration(i%13) * time.Millisecond)
	}
	apply()
	for range 10 {
		w.pass(grace)
		changes, _ := w.step()
		for _, c := range changes {
			if name, gone := strings.CutPrefix(c, "-"); gone {
				delete(have, name)
				continue
			}
			name, content, _ := strings.Cut(c, "=")
			have[name] = content
		}
	}
	if w.tree.pending() || !maps.Equal(have, w.files) {
		t.Errorf("have %v, world %v", have, w.files)
	}
}

func FuzzSettings(f *testing.F) {
	for _, s := range []string{"trustDomain: x", "kind: ConfigMap\ndata: {mesh: 'trustDomain: x'}", "networks: {}", "x: y", "[", "kind: ConfigMap\ndata: {mesh: '['}"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, file := range []string{MeshFile, NetworksFile} {
			p := parseSettings(file, data, time.Time{})
			for _, fault := range append(p.faults, p.warnings...) {
				if fault.Line < 1 || fault.Reason == "can't be read" {
					t.Fatalf("%+v", fault)
				}
			}
		}
	})
}
