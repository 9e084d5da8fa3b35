package file

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"
)

// Limits bound what a folder may cost.
type Limits struct {
	FileBytes int64 // per file; 64 MiB if 0
	Files     int   // 20 000 if 0
	Bytes     int64 // of all files; 512 MiB if 0
}

func (l Limits) withDefaults() Limits {
	if l.FileBytes == 0 {
		l.FileBytes = 64 << 20
	}
	if l.Files == 0 {
		l.Files = 20_000
	}
	if l.Bytes == 0 {
		l.Bytes = 512 << 20
	}
	return l
}

// folder is a directory below a boundary that symbolic links can't leave.
type folder struct {
	root   string // the boundary
	dir    string // slash-separated, relative to root; "." for root itself
	limits Limits
}

// listing is what a folder holds at one moment. Paths are relative to the folder.
type listing struct {
	files  map[string]fs.FileInfo
	bytes  int64             // size of files
	dirs   []string          // to be watched, as paths of the operating system
	faults map[string]string // what is left out, and why
	lost   []string          // directories that can't be read
}

// wanted reports whether a name is that of a configuration file, not an editor's or hidden one.
func wanted(name string) bool {
	if name == "" || strings.HasPrefix(name, ".") || strings.HasPrefix(name, "#") {
		return false
	}
	switch path.Ext(name) {
	case ".yaml", ".yml", ".json":
		return true
	}
	return false
}

// list walks the folder. Files that only some names interest are given by pick.
func (f folder) list(pick func(name string) bool, deep bool) (*listing, error) {
	r, err := os.OpenRoot(f.root)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	l := &listing{files: map[string]fs.FileInfo{}, faults: map[string]string{}}
	if err := f.walk(r.FS(), f.dir, pick, deep, l); err != nil {
		return nil, err
	}
	return l, nil
}

func (f folder) walk(fsys fs.FS, dir string, pick func(string) bool, deep bool, l *listing) error {
	entries, err := fs.ReadDir(fsys, dir)
	if err != nil {
		return err
	}
	l.dirs = append(l.dirs, filepath.Join(f.root, filepath.FromSlash(dir)))
	for _, e := range entries {
		p := path.Join(dir, e.Name())
		switch {
		case e.IsDir():
			if !deep || strings.HasPrefix(e.Name(), ".") {
				continue
			}
			if err := f.walk(fsys, p, pick, deep, l); err != nil && !errors.Is(err, fs.ErrNotExist) {
				l.faults[f.rel(p)] = "the folder can't be read: " + reason(err) + "; what it held stays"
				l.lost = append(l.lost, f.rel(p))
			}
		case pick(e.Name()):
			f.file(fsys, p, l)
		}
	}
	return nil
}

func (f folder) rel(p string) string {
	if f.dir == "." {
		return p
	}
	return strings.TrimPrefix(p, f.dir+"/")
}

func (f folder) file(fsys fs.FS, p string, l *listing) {
	rel := f.rel(p)
	info, err := fs.Stat(fsys, p)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return
	case err != nil:
		l.faults[rel] = "the file can't be read: " + reason(err)
	case !info.Mode().IsRegular():
		l.faults[rel] = "it is not a regular file (links to folders are not followed)"
	case len(l.files) >= f.limits.Files:
		l.faults[rel] = fmt.Sprintf("it is left out: the folder has more than %d files", f.limits.Files)
	case l.bytes+info.Size() > f.limits.Bytes:
		l.faults[rel] = fmt.Sprintf("it is left out: the folder's files have more than %d bytes", f.limits.Bytes)
	default:
		l.files[rel] = info
		l.bytes += info.Size()
		return
	}
	l.lost = append(l.lost, rel)
}

// read gives a file's bytes.
func (f folder) read(rel string) ([]byte, error) {
	r, err := os.OpenRoot(f.root)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	// Not blocking, should the file have become a pipe.
	file, err := r.OpenFile(filepath.FromSlash(path.Join(f.dir, rel)), os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, f.limits.FileBytes+1))
	if err != nil {
		return nil, err
	}
	if int64(len(data)) > f.limits.FileBytes {
		return nil, fmt.Errorf("%w: the limit is %d bytes", errTooLarge, f.limits.FileBytes)
	}
	return data, nil
}

// reason is an error without the path, which problems name already.
func reason(err error) string {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		return pe.Err.Error()
	}
	return err.Error()
}
