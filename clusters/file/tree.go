package file

import (
	"crypto/sha256"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/clusters/kube"
)

// How long a file must be quiet before it is read, and before it is believed to be gone, to have
// lost objects, or to be broken. One that never is quiet is read after patience all the same, but
// loses nothing then.
const (
	settle   = 10 * time.Millisecond
	grace    = 50 * time.Millisecond
	patience = time.Second
)

// parsed is the content of one file.
type parsed[T any] struct {
	value    T
	keys     map[string]struct{} // what the file defines
	faults   []kube.Fault        // it is broken
	doubtful bool                // a part of it can't be read, maybe since it is being written
	warnings []kube.Fault
}

// tree follows the files of one folder. It is a state machine: it learns of the world by step and
// asks for nothing but the bytes of files that it decided to read.
type tree[T any] struct {
	parse func(name string, data []byte, modified time.Time) parsed[T]
	read  func(name string) ([]byte, error)
	same  func(a, b fs.FileInfo) bool // os.SameFile
	files map[string]*tracked[T]
}

type tracked[T any] struct {
	info     fs.FileInfo
	sum      [sha256.Size]byte // of the content behind good
	good     *parsed[T]        // nil until there is one
	faults   []kube.Fault      // of newer content, which is not good
	pending  bool              // changed since it was read
	since    time.Time         // last sign of change
	began    time.Time         // first of the signs since it was last looked into
	doubtful bool              // was read, and is read again when its grace is over
	vanished bool
}

func newTree[T any](read func(string) ([]byte, error), parse func(string, []byte, time.Time) parsed[T]) *tree[T] {
	return &tree[T]{parse: parse, read: read, same: os.SameFile, files: map[string]*tracked[T]{}}
}

// step compares the listing with what is known. Touched names are those of which an event told, so
// that they are read even if size and time look the same. It gives the files whose good content
// changed or is gone (nil), and when to step again (zero: on the next event).
func (t *tree[T]) step(now time.Time, l *listing, touched func(string) bool) (changed map[string]*parsed[T], next time.Time) {
	changed = map[string]*parsed[T]{}
	for name, info := range l.files {
		t.see(now, name, info, touched(name))
	}
	for name, f := range t.files {
		if _, here := l.files[name]; here {
			t.advance(now, name, f, changed)
		} else if !t.lost(name, l) {
			t.vanish(now, name, f, changed)
		}
		if due := f.due(); f.pending && (next.IsZero() || due.Before(next)) {
			next = due
		}
	}
	return changed, next
}

// pending reports whether any file is yet to be read or doubted.
func (t *tree[T]) pending() bool {
	for _, f := range t.files {
		if f.pending {
			return true
		}
	}
	return false
}

// lost reports whether the file may still be there but can't be seen.
func (t *tree[T]) lost(name string, l *listing) bool {
	return slices.ContainsFunc(l.lost, func(p string) bool { return name == p || strings.HasPrefix(name, p+"/") })
}

func (t *tree[T]) see(now time.Time, name string, info fs.FileInfo, touched bool) {
	f := t.files[name]
	if f == nil {
		t.files[name] = &tracked[T]{info: info, pending: true, since: now.Add(-settle), began: now} // new: read at once
		return
	}
	if touched || f.vanished || !t.same(f.info, info) || f.info.Size() != info.Size() || !f.info.ModTime().Equal(info.ModTime()) {
		if !f.pending || f.vanished {
			f.began = now
		}
		f.pending, f.since, f.vanished, f.doubtful = true, now, false, false
	}
	f.info = info
}

// due is when a pending file is looked at next.
func (f *tracked[T]) due() time.Time {
	if f.vanished || f.doubtful {
		return f.since.Add(grace)
	}
	due := f.since.Add(settle)
	if last := f.began.Add(patience); last.Before(due) {
		return last
	}
	return due
}

func (t *tree[T]) vanish(now time.Time, name string, f *tracked[T], changed map[string]*parsed[T]) {
	if !f.vanished {
		f.vanished, f.pending, f.since = true, true, now
	}
	if now.Sub(f.since) < grace {
		return
	}
	f.pending = false
	delete(t.files, name)
	if f.good != nil {
		changed[name] = nil
	}
}

func (t *tree[T]) advance(now time.Time, name string, f *tracked[T], changed map[string]*parsed[T]) {
	if !f.pending || now.Before(f.due()) {
		return
	}
	p, sum := t.load(name, f)
	if p == nil {
		f.pending, f.doubtful, f.faults = false, false, nil
		return
	}
	broken := len(p.faults) > 0
	hopeless := f.good == nil && now.Sub(f.began) >= patience // others wait for the file to be read at all
	if (broken || p.doubtful || f.loses(p)) && now.Sub(f.since) < grace && !hopeless {
		f.doubtful = true
		if f.good != nil {
			f.began = now
		}
		return
	}
	f.pending, f.doubtful, f.faults = false, false, p.faults
	if broken && f.good != nil {
		return // the last good content stays
	}
	f.good, f.sum = p, sum
	changed[name] = p
}

// load reads and parses a file; nil if its content is that of the last good one.
func (t *tree[T]) load(name string, f *tracked[T]) (*parsed[T], [sha256.Size]byte) {
	fault := func(s string) *parsed[T] { return &parsed[T]{faults: []kube.Fault{{Reason: s}}} }
	data, err := t.read(name)
	if err != nil {
		return fault("the file can't be read: " + reason(err)), [sha256.Size]byte{}
	}
	sum := sha256.Sum256(data)
	if f.good != nil && len(f.good.faults) == 0 && sum == f.sum {
		return nil, sum
	}
	if len(data) == 0 && f.good != nil && len(f.good.keys) > 0 {
		return fault("the file is empty: delete it to remove what it held"), sum
	}
	p := t.parse(name, data, f.info.ModTime())
	return &p, sum
}

// loses reports whether the new content lacks something that the good one defines.
func (f *tracked[T]) loses(p *parsed[T]) bool {
	if f.good == nil {
		return false
	}
	for k := range f.good.keys {
		if _, ok := p.keys[k]; !ok {
			return true
		}
	}
	return false
}

// leaving reports whether the file has disappeared and its grace is not over.
func (t *tree[T]) leaving(name string) bool {
	f := t.files[name]
	return f != nil && f.vanished
}

// problems lists what is wrong with files, whose last good content stays.
func (t *tree[T]) problems() []model.Problem {
	var out []model.Problem
	add := func(name string, fs []kube.Fault) {
		for _, f := range fs {
			out = append(out, model.Problem{Item: name, Line: f.Line, Reason: f.Reason})
		}
	}
	for name, f := range t.files {
		add(name, f.faults)
		if f.good != nil {
			add(name, f.good.warnings)
		}
	}
	return out
}
