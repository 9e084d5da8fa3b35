package secrets

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
	"time"

	"github.com/fsnotify/fsnotify"
)

// How files are followed. Files are replaced in more than one step, by editors as by kubelets, and must not be
// believed in between.
const (
	settle  = 200 * time.Millisecond // how long a file must stay as it is before its new content counts
	absence = 500 * time.Millisecond // how long a file must be away before it is gone
	glance  = 5 * time.Second        // how often files are compared without an event
	retry   = time.Second            // likewise where the system gives no events
)

// file is one that is followed.
type file struct {
	path    string
	info    fs.FileInfo // as it was when it was last read; nil before
	pending fs.FileInfo // as it is since then, not read yet
	since   time.Time   // when pending was seen first
	gone    time.Time   // since when it is away; zero while it is there
}

// look compares the file with what it was. Fresh says that it is to be read; next is when to look again, zero if
// that does not matter.
func (f *file) look(now time.Time) (fresh bool, next time.Time) {
	info, err := os.Stat(f.path)
	if err != nil {
		if f.gone.IsZero() {
			f.gone = now
		}
		return false, f.gone.Add(absence)
	}
	f.gone = time.Time{}
	switch {
	case f.info == nil:
		return true, time.Time{}
	case same(f.info, info):
		f.pending = nil
		return false, time.Time{}
	case f.pending == nil || !same(f.pending, info):
		f.pending, f.since = info, now
	}
	if due := f.since.Add(settle); now.Before(due) {
		return false, due
	}
	return true, time.Time{}
}

// away reports whether the file is gone for good.
func (f *file) away(now time.Time) bool { return !f.gone.IsZero() && now.Sub(f.gone) >= absence }

// same reports whether nothing has been written in between.
func same(a, b fs.FileInfo) bool {
	return os.SameFile(a, b) && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime())
}

// read gives the content as it is now. Only a regular file has one: reading others may never end.
func (f *file) read() ([]byte, error) {
	h, err := os.OpenFile(f.path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, unreadable(err)
	}
	defer h.Close()
	info, err := h.Stat()
	if err != nil {
		return nil, unreadable(err)
	}
	f.info, f.pending = info, nil
	if !info.Mode().IsRegular() {
		return nil, errors.New("not a file that can be read")
	}
	content, err := io.ReadAll(io.LimitReader(h, MaxKubeconfig+1))
	if err != nil {
		return nil, unreadable(err)
	}
	return content, nil
}

// unreadable leaves the path out, which the claim names.
func unreadable(err error) error {
	if pe := (*fs.PathError)(nil); errors.As(err, &pe) {
		err = pe.Err
	}
	return fmt.Errorf("can't be read: %w", err)
}

// followDir calls look at once, after each event in the folder, when look asks for it, and now and then, until ctx
// ends. An error of look ends it.
func followDir(ctx context.Context, dir string, look func(now time.Time) (next time.Time, err error)) error {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		w = &fsnotify.Watcher{} // no events: it is polled
	} else {
		defer end(w)
	}
	for ctx.Err() == nil {
		pace := glance
		if err != nil || w.Add(dir) != nil { // each time: the folder may be another one
			pace = retry
		}
		now := time.Now()
		next, err := look(now)
		if err != nil {
			return err
		}
		if !next.IsZero() {
			pace = min(pace, max(next.Sub(now), time.Millisecond))
		}
		pause(ctx, w, pace)
	}
	return nil
}

// pause waits for the first of an event, the time and the end.
func pause(ctx context.Context, w *fsnotify.Watcher, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-w.Events:
	case <-w.Errors: // events were lost: look
	case <-timer.C:
	}
	for {
		select {
		case <-w.Events:
		default:
			return
		}
	}
}

// end ends the watcher's goroutine and waits for it.
func end(w *fsnotify.Watcher) {
	_ = w.Close() // there is nothing to be done about it
	for range w.Events {
	}
	for range w.Errors {
	}
}
