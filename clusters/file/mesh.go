package file

import (
	"context"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/clusters/kube"
)

// Names of the files that hold mesh-wide settings.
const (
	MeshFile     = "mesh.yaml"     // Istio's MeshConfig
	NetworksFile = "networks.yaml" // Istio's MeshNetworks
)

// Mesh is the registry of the mesh-wide settings: a Config row for each of the two files that
// exists. Each is either the settings themselves, or a ConfigMap that has them under "mesh" or
// "meshNetworks". Unknown fields are problems, but the rest takes effect. Sub-folders that can't be
// members are problems too.
type Mesh struct {
	opts  Options
	files map[string]string // paths by what their content is, MeshFile or NetworksFile
	dir   bool              // they are the files of a folder of members
}

// NewMesh gives the registry with the key mesh/<cluster>, reading the files in o.Dir.
func NewMesh(o Options) *Mesh {
	return &Mesh{opts: o.withDefaults(), dir: true, files: settingsIn(o.Dir)}
}

func settingsIn(dir string) map[string]string {
	return map[string]string{MeshFile: filepath.Join(dir, MeshFile), NetworksFile: filepath.Join(dir, NetworksFile)}
}

// NewMeshFiles gives the registry with the key mesh/<cluster>, reading two files that may be anywhere; ""
// stands for none. A file that is not there is a problem: somebody has named it. Symbolic links are
// followed within the file's folder.
func NewMeshFiles(o Options, mesh, networks string) *Mesh {
	m := &Mesh{opts: o.withDefaults(), files: map[string]string{}}
	for name, file := range map[string]string{MeshFile: mesh, NetworksFile: networks} {
		if file != "" {
			m.files[name] = filepath.Clean(file)
		}
	}
	return m
}

// Key implements model.Registry.
func (m *Mesh) Key() model.ShardKey {
	return model.ShardKey{Provider: model.ProviderMesh, Cluster: m.opts.Cluster}
}

// Run implements model.Registry.
func (m *Mesh) Run(ctx context.Context, out model.Sink) error {
	s := &settings{Mesh: m, key: m.Key(), out: out, rows: map[model.RowKey]model.Object{},
		reporter: reporter{log: m.opts.Log, onProblem: m.opts.OnProblem, key: m.Key()}}
	s.tree = newTree(s.read, parseSettings)
	s.recall(time.Now())
	return run(ctx, s)
}

// settings is the state of one run, owned by its goroutine.
type settings struct {
	*Mesh
	key       model.ShardKey
	out       model.Sink
	tree      *tree[*setting] // by MeshFile and NetworksFile
	rows      map[model.RowKey]model.Object
	reporter  reporter
	synced    bool
	recalling bool // an earlier content is being read
}

// setting is the content of one file; nil if it holds nothing.
type setting struct {
	*kube.MeshSettings
	modified time.Time
}

// at is the folder and the name of one of the files.
func (m *Mesh) at(name string) (folder, string) {
	dir, base := filepath.Split(m.files[name])
	return folder{root: filepath.Clean(dir), dir: ".", limits: m.opts.Limits}, base
}

func (m *Mesh) read(name string) ([]byte, error) {
	f, base := m.at(name)
	return f.read(base)
}

// list lists the files with settings, and what is wrong with the members' folders beside them.
func (s *settings) list() (*listing, error) {
	all := &listing{files: map[string]fs.FileInfo{}, faults: map[string]string{}}
	for name := range s.files {
		f, base := s.at(name)
		l, err := f.list(func(n string) bool { return n == base }, false)
		if err != nil {
			return nil, err
		}
		for _, d := range l.dirs {
			if !slices.Contains(all.dirs, d) {
				all.dirs = append(all.dirs, d)
			}
		}
		if info := l.files[base]; info != nil {
			all.files[name] = info
		} else if len(l.lost) > 0 {
			all.lost = append(all.lost, name)
		} else if !s.dir {
			all.faults[name] = "the file does not exist"
		}
		if why := l.faults[base]; why != "" {
			all.faults[name] = why
		}
	}
	if s.dir {
		_, faults, err := subfolders(s.opts.Dir)
		maps.Copy(all.faults, faults)
		return all, err
	}
	return all, nil
}

func (s *settings) turn(now time.Time, l *listing, touched map[string]bool) time.Time {
	changed, next := s.tree.step(now, l, func(name string) bool { return touched[s.files[name]] })
	var events []model.Event
	for name, p := range changed {
		ev := s.event(name, p)
		if ev.Obj == nil {
			delete(s.rows, ev.Row)
		} else {
			s.rows[ev.Row] = ev.Obj
		}
		events = append(events, ev)
	}
	switch {
	case s.recalling:
		return next
	case !s.synced && !s.tree.pending():
		s.synced = true
		b := model.NewShardBuilder()
		for k, o := range s.rows {
			b.Add(k.Key, o)
		}
		s.out.Replace(b.Build())
	case s.synced && len(events) > 0:
		s.out.Put(events...)
	}
	s.report(now, l)
	return next
}

func refOf(file string) model.ObjectKey {
	return model.ObjectKey{Kind: kindOf(file), Name: strings.TrimSuffix(file, filepath.Ext(file))}
}

func (s *settings) event(file string, p *parsed[*setting]) model.Event {
	ref := refOf(file)
	ev := model.Event{Row: model.RowKey{Kind: model.RowConfig, Key: ref.String()}}
	if p != nil && p.value != nil {
		ev.Obj = p.value.Row(ref.Name, time.Time{}, model.Source{Shard: s.key, Object: ref, Revision: p.value.Revision, Time: p.value.modified})
	}
	return ev
}

func (s *settings) report(now time.Time, l *listing) {
	ps := s.tree.problems()
	for name, why := range l.faults {
		ps = append(ps, model.Problem{Item: name, Reason: why})
	}
	for i, p := range ps {
		if file, ours := s.files[p.Item]; ours && !s.dir {
			ps[i].Item = filepath.Base(file)
		}
	}
	state := model.StateSyncing
	if s.synced {
		state = model.StateLive
	}
	if st, changed := s.reporter.report(now, state, "", ps); changed {
		s.out.Status(st)
	}
}

func (s *settings) unreadable(now time.Time, err error) {
	msg := "folder " + s.where() + " can't be read: " + reason(err)
	if st, changed := s.reporter.report(now, model.StateStale, msg, s.reporter.status.Problems); changed {
		s.out.Status(st)
	}
}

// where names the folder, or folders, of the files.
func (s *settings) where() string {
	dirs := map[string]struct{}{}
	for _, file := range s.files {
		dirs[filepath.Base(filepath.Dir(file))] = struct{}{}
	}
	return strings.Join(slices.Sorted(maps.Keys(dirs)), " or ")
}

func kindOf(file string) string {
	if file == NetworksFile {
		return model.ConfigNetworks
	}
	return model.ConfigMesh
}

// parseSettings reads a file by the kind of settings that it has.
func parseSettings(name string, data []byte, modified time.Time) (p parsed[*setting]) {
	kind := kindOf(name)
	m, faults, warnings := kube.ParseMesh(kind, data)
	p = parsed[*setting]{faults: faults, warnings: warnings}
	if m != nil {
		p.value, p.keys = &setting{MeshSettings: m, modified: modified}, map[string]struct{}{kind: {}}
	}
	return p
}
