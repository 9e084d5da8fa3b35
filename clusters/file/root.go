package file

import (
	"context"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
)

// Lifecycle attaches registries and detaches them with all that they brought.
type Lifecycle interface {
	Attach(model.Registry)
	Detach(model.ShardKey)
}

// RootOptions configure a Root.
type RootOptions struct {
	Dir  string
	Mesh model.ClusterID // member that the mesh-wide settings count for: the config cluster
	// Member are the options of each member's registry; Root, Dir and Cluster are set by the Root.
	Member Options
}

// Root keeps one registry attached for each sub-folder of a folder, and one for the mesh-wide
// settings in the folder itself. Hidden folders are left alone; a folder whose name can't be a
// cluster id is reported and left alone.
type Root struct {
	opts     RootOptions
	life     Lifecycle
	attached map[model.ClusterID]bool
	reporter reporter
}

// NewRoot gives a Root that has not looked yet.
func NewRoot(o RootOptions, life Lifecycle) *Root {
	o.Member = o.Member.withDefaults()
	key := model.ShardKey{Provider: model.ProviderMesh, Cluster: o.Mesh}
	return &Root{opts: o, life: life, attached: map[model.ClusterID]bool{},
		reporter: reporter{log: o.Member.Log, onProblem: o.Member.OnProblem, key: key}}
}

// Scan attaches the registry of the settings and those of the folders that exist, so that they are
// known before serving starts. It fails if the folder can't be read. It must be called once, before
// Run.
func (r *Root) Scan() error {
	l, err := r.list()
	if err != nil {
		return fmt.Errorf("read %s: %w", r.opts.Dir, err)
	}
	mesh := r.opts.Member
	mesh.Root, mesh.Dir, mesh.Cluster = r.opts.Dir, r.opts.Dir, r.opts.Mesh
	r.life.Attach(NewMesh(mesh))
	r.turn(time.Now(), l, nil)
	return nil
}

// Run follows the folder until ctx ends. While the folder can't be read nothing is detached.
func (r *Root) Run(ctx context.Context) error { return run(ctx, r) }

// Clusters are the members whose folders are attached, sorted. Not to be called while Run runs.
func (r *Root) Clusters() []model.ClusterID { return slices.Sorted(maps.Keys(r.attached)) }

// list lists the sub-folders as if they were files.
func (r *Root) list() (*listing, error) {
	root, err := os.OpenRoot(r.opts.Dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	entries, err := fs.ReadDir(root.FS(), ".")
	if err != nil {
		return nil, err
	}
	l := &listing{files: map[string]fs.FileInfo{}, faults: map[string]string{}, dirs: []string{filepath.Clean(r.opts.Dir)}}
	for _, e := range entries {
		link := e.Type()&fs.ModeSymlink != 0
		if strings.HasPrefix(e.Name(), ".") || !e.IsDir() && !link {
			continue
		}
		info, err := root.Stat(e.Name())
		switch {
		case err != nil && link:
			l.faults[e.Name()] = "the link is not followed: " + reason(err)
		case err != nil || !info.IsDir():
		case !clusterID(e.Name()):
			l.faults[e.Name()] = "the folder is left alone: its name can't be a cluster id (letters, digits, '-', '_' and '.', 63 at most, no '-' at an end)"
		default:
			l.files[e.Name()] = info
		}
	}
	return l, nil
}

// clusterID reports whether a folder's name can name a member.
func clusterID(s string) bool {
	if len(s) == 0 || len(s) > 63 || strings.HasPrefix(s, "-") || strings.HasSuffix(s, "-") || strings.HasSuffix(s, ".") {
		return false
	}
	return !strings.ContainsFunc(s, func(c rune) bool {
		return !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_' || c == '.')
	})
}

func (r *Root) turn(now time.Time, l *listing, _ map[string]bool) time.Time {
	for _, id := range r.Clusters() {
		if _, here := l.files[string(id)]; !here {
			delete(r.attached, id)
			r.life.Detach(model.ShardKey{Provider: model.ProviderFile, Cluster: id})
			r.log().Info("folder has gone; its cluster is detached", "cluster", id, "provider", model.ProviderFile)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(l.files)) {
		if id := model.ClusterID(name); !r.attached[id] {
			r.attached[id] = true
			o := r.opts.Member
			o.Root, o.Dir, o.Cluster = r.opts.Dir, filepath.Join(r.opts.Dir, name), id
			r.life.Attach(NewCluster(o))
			r.log().Info("folder found; its cluster is attached", "cluster", id, "provider", model.ProviderFile)
		}
	}
	var ps []model.Problem
	for name, why := range l.faults {
		ps = append(ps, model.Problem{Item: name, Reason: why})
	}
	r.reporter.report(now, model.StateLive, "", ps)
	return time.Time{}
}

func (r *Root) unreadable(now time.Time, err error) {
	r.reporter.report(now, model.StateStale, "folder "+filepath.Base(r.opts.Dir)+" can't be read: "+reason(err), r.reporter.status.Problems)
}

func (r *Root) log() *slog.Logger { return r.opts.Member.Log }
