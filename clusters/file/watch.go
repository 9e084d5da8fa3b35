package file

import (
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"
)

// resync is how often a folder is compared without an event: a net for events that a network file
// system does not give; retry is the interval while something can't be read or watched.
const (
	resync = time.Minute
	retry  = time.Second
	glance = time.Second // how often the folder is compared with what it was, as a whole
)

// watcher tells which paths had events. It is used by one goroutine; w is nil where the system
// gives no events, and then the folder is polled.
type watcher struct {
	w    *fsnotify.Watcher
	deaf bool // some folder is not watched
	err  error
	seen map[string]fs.FileInfo // watched folders, as they were just before
	top  string                 // the one that holds the others
}

func newWatcher() *watcher {
	w, err := fsnotify.NewWatcher()
	return &watcher{w: w, deaf: err != nil, err: err}
}

// close ends the watcher's goroutine and waits for it.
func (w *watcher) close() {
	if w.w == nil {
		return
	}
	w.w.Close()
	for range w.w.Events { // drained until the goroutine has gone
	}
	for range w.w.Errors { // likewise
	}
}

// cover watches the folders and reports whether any of them was not watched before, so that it has
// to be listed again. A folder in the place of another is such a one.
func (w *watcher) cover(dirs []string) (fresh bool) {
	if w.w == nil {
		return false
	}
	known, seen := map[string]bool{}, map[string]fs.FileInfo{}
	for _, d := range w.w.WatchList() {
		known[d] = true
	}
	w.deaf, w.err = false, nil
	if len(dirs) > 0 {
		w.top = filepath.Clean(dirs[0])
	}
	for _, d := range dirs {
		d = filepath.Clean(d)
		info, err := os.Stat(d)
		if err == nil {
			err = w.w.Add(d)
		}
		if err != nil {
			w.deaf, w.err = true, err
			continue
		}
		fresh = fresh || !known[d] || !os.SameFile(w.seen[d], info)
		seen[d] = info
		delete(known, d)
	}
	for d := range known {
		_ = w.w.Remove(d) // a folder that has gone is no longer watched anyway
	}
	w.seen = seen
	return fresh
}

// replaced reports whether the folder as a whole is another one, or gone.
func (w *watcher) replaced() bool {
	was := w.seen[w.top]
	if was == nil {
		return false
	}
	info, err := os.Stat(w.top)
	return err != nil || !os.SameFile(was, info)
}

// events and errors are nil channels, which never deliver, where there is no watcher.
func (w *watcher) events() <-chan fsnotify.Event {
	if w.w == nil {
		return nil
	}
	return w.w.Events
}

func (w *watcher) errors() <-chan error {
	if w.w == nil {
		return nil
	}
	return w.w.Errors
}

// drain takes the events that have arrived and gives the paths they name.
func (w *watcher) drain(touched map[string]bool) {
	for {
		select {
		case ev, ok := <-w.events():
			if !ok {
				return
			}
			note(ev, touched)
		default:
			return
		}
	}
}

func note(ev fsnotify.Event, touched map[string]bool) {
	if ev.Has(fsnotify.Write) || ev.Has(fsnotify.Create) {
		touched[filepath.Clean(ev.Name)] = true
	}
}

// pace is how long to wait for the next turn if no event comes.
func (w *watcher) pace(now, next time.Time, trouble bool) time.Duration {
	d := resync
	if w.deaf || trouble {
		d = retry
	}
	if !next.IsZero() {
		d = min(d, max(next.Sub(now), time.Millisecond))
	}
	return d
}
