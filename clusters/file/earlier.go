package file

import (
	"path/filepath"
	"time"
)

// An earlier content is taken in by steps of the past, which doubt nothing any more when the first look comes.
func past(now time.Time, step int) time.Time { return now.Add(time.Duration(step-3) * patience) }

// recall reads the earlier content of the folder, if there is one, as if it had been read before: what of the present
// content can't be read, or has an error, keeps it. Nothing is told of it.
func (m *objects) recall(now time.Time) {
	if m.opts.Earlier == "" {
		return
	}
	here := m.folder
	m.folder.root = filepath.Clean(m.opts.Earlier)
	m.tree.read, m.recalling = m.folder.read, true
	if l, err := m.list(); err == nil { // a folder that is not there has no member of that name
		m.turn(past(now, 0), l, nil)
		m.turn(past(now, 1), l, nil)
	}
	m.folder, m.tree.read, m.recalling = here, here.read, false
}

// recall does the same for the files with settings.
func (s *settings) recall(now time.Time) {
	if s.opts.Earlier == "" {
		return
	}
	here := s.files
	s.files, s.recalling = settingsIn(s.opts.Earlier), true
	if l, err := s.list(); err == nil {
		s.turn(past(now, 0), l, nil)
		s.turn(past(now, 1), l, nil)
	}
	s.files, s.recalling = here, false
}

// recall settles the trust domain: members are attached for it before anything is awaited.
func (r *Root) recall(now time.Time) error {
	dir := r.opts.Member.Earlier
	if dir == "" {
		return nil
	}
	here, read := r.settings, r.tree.read
	f := folder{root: filepath.Clean(dir), dir: ".", limits: r.opts.Member.Limits}
	l, err := f.list(isMeshFile, false)
	if err != nil {
		return err
	}
	r.settings, r.tree.read = l, f.read
	r.follow(past(now, 0), nil)
	r.follow(past(now, 1), nil)
	r.settings, r.tree.read = here, read
	r.follow(past(now, 2), nil)
	return nil
}
