package file

import (
	"cmp"
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

	meshconfig "istio.io/api/mesh/v1alpha1"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
)

// RootOptions configure a Root.
type RootOptions struct {
	Dir  string
	Mesh model.ClusterID // member that the mesh-wide settings count for: the config cluster
	// Member are the options of each member's registry; Root, Dir, Cluster and ConfigCluster are set by the Root.
	Member Options
}

// folderGrace is how long a member's folder may be away before the member is believed to be gone:
// folders are replaced in two steps.
const folderGrace = 500 * time.Millisecond

// Root keeps one registry attached for each sub-folder of a folder, and one for the mesh-wide
// settings in the folder itself. Hidden folders are left alone; a folder whose name can't be a
// cluster id is left alone too, and is a problem of the registry of the settings.
//
// Identities of workloads are in the trust domain of the settings unless the options name one: when
// it changes, each member is attached anew, which swaps its registry.
type Root struct {
	opts     RootOptions
	life     model.Lifecycle
	attached map[model.ClusterID]*place
	settings *listing        // of the file with the settings
	tree     *tree[*setting] // follows that file
	trust    string          // the settings' trust domain
}

// place is a member's folder.
type place struct {
	info fs.FileInfo
	gone time.Time // since when it is away; zero while it is there
}

// NewRoot gives a Root that has not looked yet.
func NewRoot(o RootOptions, life model.Lifecycle) *Root {
	o.Member = o.Member.withDefaults()
	r := &Root{opts: o, life: life, attached: map[model.ClusterID]*place{}}
	r.tree = newTree(r.folder().read, parseSettings)
	return r
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
	now := time.Now()
	if err := r.recall(now); err != nil {
		return fmt.Errorf("read %s: %w", r.opts.Member.Earlier, err)
	}
	r.life.Attach(NewMesh(mesh))
	r.turn(now, l, nil)
	return nil
}

// Run follows the folder until ctx ends. While the folder can't be read nothing is detached.
func (r *Root) Run(ctx context.Context) error { return run(ctx, r) }

// Clusters are the members whose folders are attached, sorted. Not to be called while Run runs.
func (r *Root) Clusters() []model.ClusterID { return slices.Sorted(maps.Keys(r.attached)) }

func (r *Root) folder() folder {
	return folder{root: filepath.Clean(r.opts.Dir), dir: ".", limits: r.opts.Member.Limits}
}

// list lists the sub-folders as if they were files, and the file with the settings aside.
func (r *Root) list() (l *listing, err error) {
	if r.settings, err = r.folder().list(isMeshFile, false); err != nil {
		return nil, err
	}
	l = &listing{dirs: r.settings.dirs}
	l.files, l.faults, err = subfolders(r.opts.Dir)
	return l, err
}

func isMeshFile(name string) bool { return name == MeshFile }

// subfolders gives the folders in a folder that are members, and says why others are not.
func subfolders(dir string) (members map[string]fs.FileInfo, faults map[string]string, err error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, nil, err
	}
	defer root.Close()
	entries, err := fs.ReadDir(root.FS(), ".")
	if err != nil {
		return nil, nil, err
	}
	members, faults = map[string]fs.FileInfo{}, map[string]string{}
	for _, e := range entries {
		link := e.Type()&fs.ModeSymlink != 0
		if strings.HasPrefix(e.Name(), ".") || !e.IsDir() && !link {
			continue
		}
		info, err := root.Stat(e.Name())
		switch {
		case err != nil && link:
			faults[e.Name()] = "the link is not followed: " + reason(err)
		case err != nil || !info.IsDir():
		case !clusterID(e.Name()):
			faults[e.Name()] = "the folder is left alone: its name can't be a cluster id (letters, digits, '-', '_' and '.', 63 at most, no '-' at an end)"
		default:
			members[e.Name()] = info
		}
	}
	return members, faults, nil
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

func (r *Root) turn(now time.Time, l *listing, touched map[string]bool) (next time.Time) {
	moved, next := r.follow(now, touched)
	if due := r.leave(now, l); next.IsZero() || !due.IsZero() && due.Before(next) {
		next = due
	}
	for _, name := range slices.Sorted(maps.Keys(l.files)) {
		id := model.ClusterID(name)
		p := r.attached[id]
		if p == nil {
			r.log().Info("folder found; its cluster is attached", "cluster", id, "provider", model.ProviderFile)
		}
		if p == nil || moved {
			r.attach(id)
		}
		r.attached[id] = &place{info: l.files[name]}
	}
	return next
}

// follow reads the settings and reports whether the trust domain of the members has changed.
func (r *Root) follow(now time.Time, touched map[string]bool) (moved bool, next time.Time) {
	changed, next := r.tree.step(now, r.settings, r.folder().touched(touched))
	if p, ok := changed[MeshFile]; ok {
		trust := trustDomain(p)
		moved = trust != r.trust && r.opts.Member.TrustDomain == ""
		r.trust = trust
	}
	if moved && len(r.attached) > 0 {
		r.log().Info("the trust domain has changed; clusters are read anew", "trustDomain", r.trust)
	}
	return moved, next
}

func trustDomain(p *parsed[*setting]) string {
	if p == nil || p.value == nil {
		return ""
	}
	cfg, _ := p.value.Message.(*meshconfig.MeshConfig)
	return cfg.GetTrustDomain()
}

func (r *Root) attach(id model.ClusterID) {
	o := r.opts.Member
	o.Root, o.Dir, o.Cluster = r.opts.Dir, filepath.Join(r.opts.Dir, string(id)), id
	o.TrustDomain, o.ConfigCluster = cmp.Or(o.TrustDomain, r.trust), id == r.opts.Mesh
	r.life.Attach(NewCluster(o))
}

// leave detaches members whose folders have been away for long enough, or have another name now. It
// gives the time of the next that is due.
func (r *Root) leave(now time.Time, l *listing) (next time.Time) {
	for _, id := range r.Clusters() {
		p := r.attached[id]
		if l.files[string(id)] != nil {
			continue
		}
		if p.gone.IsZero() {
			p.gone = now
		}
		due := p.gone.Add(folderGrace)
		if now.Before(due) && !r.renamed(p, l) {
			if next.IsZero() || due.Before(next) {
				next = due
			}
			continue
		}
		delete(r.attached, id)
		r.life.Detach(model.ShardKey{Provider: model.ProviderFile, Cluster: id})
		r.log().Info("folder has gone; its cluster is detached", "cluster", id, "provider", model.ProviderFile)
	}
	return next
}

// renamed reports whether the folder is there under a name that no member has yet.
func (r *Root) renamed(p *place, l *listing) bool {
	for name, info := range l.files {
		if r.attached[model.ClusterID(name)] == nil && os.SameFile(info, p.info) {
			return true
		}
	}
	return false
}

// unreadable leaves everything as it is; the registry of the settings reports it.
func (r *Root) unreadable(time.Time, error) {}

func (r *Root) log() *slog.Logger { return r.opts.Member.Log }
