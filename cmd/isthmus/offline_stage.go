package main

import (
	"cmp"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/clusters/file"
	"github.com/isthmus-mesh/isthmus/clusters/kube"
)

const (
	stdinName   = "-"
	stdinShown  = "stdin"
	maxStdin    = 64 << 20
	stdinStaged = "stdin.yaml"
	oneStaged   = "one.yaml" // of a file that is all there is: one that is compared with it is its next version
)

// staged is a folder with one folder per cluster, as a hub reads it: the one that was named, or a copy of what was.
type staged struct {
	dir     string
	one     bool              // what was named is one cluster, of this id:
	cluster string            //
	temp    bool              // dir is a copy, which is removed at the end
	shown   string            // the folder as it was named, "" of files
	names   map[string]string // by path in dir, "cluster/a.yaml": the path as it was named; nil if dir itself was

	places map[objectIn]position
	broken map[string]bool // files that are not used as they are, by the names that they have for people
}

// objectIn is an object in a cluster.
type objectIn struct {
	cluster model.ClusterID
	object  model.ObjectKey
}

// position is where something is written.
type position struct {
	file string
	line int
}

// stage makes what was named readable to a hub.
func stage(o *offlineOptions, paths []string, stdin io.Reader) (*staged, error) {
	s := &staged{cluster: cmp.Or(o.clusterID, defaultClusterID), places: map[objectIn]position{}, broken: map[string]bool{}}
	if len(paths) == 1 && paths[0] != stdinName {
		info, err := os.Stat(paths[0])
		if err != nil {
			return nil, err
		}
		if info.IsDir() && !o.oneCluster && !hasObjects(paths[0]) {
			s.dir, s.shown = paths[0], paths[0]
			return s, s.locate()
		}
	}
	dir, err := os.MkdirTemp("", "isthmus-*")
	if err != nil {
		return nil, err
	}
	s.dir, s.one, s.temp, s.names = dir, true, true, map[string]string{}
	for i, p := range paths {
		if err := s.add(i, p, len(paths) == 1, stdin); err != nil {
			s.close()
			return nil, err
		}
	}
	if err := s.locate(); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

// hasObjects reports whether a folder is that of one cluster: there are files in it other than the mesh's settings.
func hasObjects(dir string) bool {
	entries, err := os.ReadDir(dir)
	return err == nil && slices.ContainsFunc(entries, func(e fs.DirEntry) bool {
		return !e.IsDir() && isManifest(e.Name()) && !isSettings(e.Name())
	})
}

func isSettings(name string) bool { return name == file.MeshFile || name == file.NetworksFile }

// isManifest reports whether a hub reads files of the name.
func isManifest(name string) bool {
	ext := path.Ext(name)
	return !strings.HasPrefix(name, ".") && !strings.HasPrefix(name, "#") && (ext == ".yaml" || ext == ".yml" || ext == ".json")
}

// add copies one thing that was named.
func (s *staged) add(i int, name string, alone bool, stdin io.Reader) error {
	if name == stdinName {
		text, err := io.ReadAll(io.LimitReader(stdin, maxStdin+1))
		if err != nil {
			return fmt.Errorf("read standard input: %w", err)
		}
		if len(text) > maxStdin {
			return fmt.Errorf("standard input has more than %d bytes", maxStdin)
		}
		return s.put(text, time.Now(), fmt.Sprintf("%s/%03d/%s", s.cluster, i, stdinStaged), stdinShown)
	}
	info, err := os.Stat(name)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		at := withExt(filepath.Base(name))
		if alone {
			at = oneStaged
		}
		return s.copy(name, info, fmt.Sprintf("%s/%03d/%s", s.cluster, i, at))
	}
	return filepath.WalkDir(name, func(at string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && at != name && strings.HasPrefix(d.Name(), "."):
			return fs.SkipDir
		case d.IsDir() || !isManifest(d.Name()):
			return nil
		}
		rel, err := filepath.Rel(name, at)
		if err != nil {
			return err
		}
		info, err := os.Stat(at)
		if err != nil || info.IsDir() {
			return err
		}
		if isSettings(rel) {
			return s.copy(at, info, rel)
		}
		return s.copy(at, info, fmt.Sprintf("%s/%03d/%s", s.cluster, i, filepath.ToSlash(rel)))
	})
}

// withExt makes a name one that a hub reads: who names a file means it.
func withExt(name string) string {
	if !isManifest(name) {
		return strings.TrimLeft(name, ".#") + ".yaml"
	}
	return name
}

// copy refuses what is no file: a pipe may never end.
func (s *staged) copy(from string, info fs.FileInfo, to string) error {
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%s is not a regular file; '-' is standard input", from)
	}
	text, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return s.put(text, info.ModTime(), to, from)
}

func (s *staged) put(text []byte, modified time.Time, to, shown string) error {
	s.names[to] = shown
	at := filepath.Join(s.dir, filepath.FromSlash(to))
	if err := os.MkdirAll(filepath.Dir(at), 0o700); err != nil {
		return err
	}
	if err := os.WriteFile(at, text, 0o600); err != nil {
		return err
	}
	return os.Chtimes(at, modified, modified)
}

// close removes the copy.
func (s *staged) close() {
	if s.temp {
		os.RemoveAll(s.dir)
	}
}

// shownIn gives a text with the names that files have for people.
func (s *staged) shownIn(cluster model.ClusterID, text string) string {
	return stagedPath.ReplaceAllStringFunc(text, func(item string) string { return s.shownAs(cluster, item) })
}

// stagedPath is a path of a copy within its cluster's folder.
var stagedPath = regexp.MustCompile(`\b[0-9]{3}/[^\s,;]+`)

// shownAs gives the name that a file has for people; item is a path within a cluster's folder, "" for none.
func (s *staged) shownAs(cluster model.ClusterID, item string) string {
	if item == "" {
		return ""
	}
	for _, rel := range []string{path.Join(string(cluster), item), item} {
		if s.names != nil {
			if name, ok := s.names[rel]; ok {
				return name
			}
		} else if _, err := os.Stat(filepath.Join(s.dir, rel)); err == nil {
			return filepath.Join(s.shown, rel)
		}
	}
	return item
}

// locate notes where each object is written: in the first file by path, as the hub has it.
func (s *staged) locate() error {
	return filepath.WalkDir(s.dir, func(at string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return nil // told by the hub's own reader
		case d.IsDir() && at != s.dir && strings.HasPrefix(d.Name(), "."):
			return fs.SkipDir
		case d.IsDir() || !isManifest(d.Name()):
			return nil
		}
		rel, err := filepath.Rel(s.dir, at)
		if err != nil {
			return err
		}
		cluster, item, ok := strings.Cut(filepath.ToSlash(rel), "/")
		if !ok {
			s.noteSettings(rel, at)
			return nil
		}
		s.note(model.ClusterID(cluster), item, at)
		return nil
	})
}

func (s *staged) note(cluster model.ClusterID, item, at string) {
	text, ok := readRegular(at)
	if !ok {
		s.broken[s.shownAs(cluster, item)] = true
		return
	}
	c := kube.Decode(text, time.Time{})
	add := func(key model.ObjectKey, line int) {
		p := objectIn{cluster, key}
		if _, known := s.places[p]; !known {
			s.places[p] = position{s.shownAs(cluster, item), line}
		}
	}
	for _, it := range c.Items {
		add(it.Object.Ref, it.Line)
	}
	for _, f := range c.Faults {
		if f.Broken != nil {
			add(f.Broken.Ref, f.Line)
		} else {
			s.broken[s.shownAs(cluster, item)] = true
		}
	}
}

// noteSettings notes whether a file with the mesh's settings can't be used.
func (s *staged) noteSettings(name, at string) {
	kind, ok := map[string]string{file.MeshFile: model.ConfigMesh, file.NetworksFile: model.ConfigNetworks}[name]
	if !ok {
		return
	}
	text, ok := readRegular(at)
	if !ok {
		s.broken[s.shownAs("", name)] = true
	} else if _, faults, _ := kube.ParseMesh(kind, text); len(faults) > 0 {
		s.broken[s.shownAs("", name)] = true
	}
}

// readRegular gives the content of a file; what is wrong with one that can't be read is told by the hub's own reader.
func readRegular(at string) ([]byte, bool) {
	if info, err := os.Stat(at); err != nil || !info.Mode().IsRegular() {
		return nil, false
	}
	text, err := os.ReadFile(at)
	return text, err == nil
}
