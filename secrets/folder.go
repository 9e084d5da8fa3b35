package secrets

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// FolderOptions configure WatchFolder.
type FolderOptions struct {
	Options
}

// WatchFolder follows a folder of kubeconfigs until ctx ends, and then returns nil. A file's cluster is what the
// kubeconfig calls it: the cluster of its context, else the first by name. Folders, hidden files and what is no
// regular file are left alone; links are followed, as Kubernetes mounts need it. A file that can't be used claims the
// cluster that it claimed before, so that a cluster never goes because of a typing error. While the folder can't
// be read everything stays, but it must be readable at the start.
//
// A file keeps its place by age when it is written again. out is given all claims, in order, once the folder has been
// read, and each time anything has changed.
func WatchFolder(ctx context.Context, dir string, o FolderOptions, out func([]Claim)) error {
	f := newFolder(dir, o.Options)
	return followDir(ctx, dir, func(now time.Time) (time.Time, error) {
		claims, changed, next, err := f.look(now)
		switch {
		case err != nil && !f.started:
			return next, fmt.Errorf("clusters folder: %w", err)
		case changed:
			out(claims)
		}
		return next, nil
	})
}

// folder is what was found in a folder.
type folder struct {
	dir     string
	opts    Options
	files   map[string]*kubeconfigFile // by name
	started bool                       // it has been read once
	failing bool                       // it can't be read at the moment
}

func newFolder(dir string, o Options) *folder {
	return &folder{dir: dir, opts: o.withDefaults(), files: map[string]*kubeconfigFile{}}
}

// kubeconfigFile is a file that claims a cluster.
type kubeconfigFile struct {
	file
	claim Claim
}

// look reads what is new and gives all claims if any has changed.
func (f *folder) look(now time.Time) (claims []Claim, changed bool, next time.Time, err error) {
	names, err := kubeconfigNames(f.dir)
	if err != nil {
		if !f.failing && f.started {
			f.opts.Log.Warn("folder of clusters can't be read; the clusters stay as they are", "err", err)
		}
		f.failing = true
		return nil, false, time.Time{}, err
	}
	f.failing = false
	for _, n := range names {
		if f.files[n] == nil {
			f.files[n] = &kubeconfigFile{file: file{path: filepath.Join(f.dir, n)}}
		}
	}
	changed, next = f.readNew(now)
	changed = changed || !f.started
	f.started = true
	if !changed {
		return nil, false, next, nil
	}
	return f.claims(), true, next, nil
}

// kubeconfigNames lists what may be kubeconfigs.
func kubeconfigNames(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ".") || !e.Type().IsRegular() && e.Type()&fs.ModeSymlink == 0 {
			continue
		}
		if e.Type()&fs.ModeSymlink != 0 {
			if info, err := os.Stat(filepath.Join(dir, e.Name())); err == nil && !info.Mode().IsRegular() {
				continue
			}
		}
		out = append(out, e.Name())
	}
	return out, nil
}

func (f *folder) readNew(now time.Time) (changed bool, next time.Time) {
	for name, k := range f.files {
		fresh, due := k.look(now)
		switch {
		case k.away(now):
			delete(f.files, name)
			changed = changed || k.info != nil
			continue
		case fresh:
			changed = f.read(k) || changed
		}
		if !due.IsZero() && (next.IsZero() || due.Before(next)) {
			next = due
		}
	}
	return changed, next
}

// read takes the file's content as it is now, and reports whether the claim is another one.
func (f *folder) read(k *kubeconfigFile) (changed bool) {
	content, err := k.file.read()
	if errors.Is(err, fs.ErrNotExist) {
		return false // it has gone in this moment
	}
	c := Claim{Cluster: k.claim.Cluster, Source: k.path, Created: k.claim.Created}
	if c.Created.IsZero() && k.info != nil {
		c.Created = k.info.ModTime()
	}
	if err != nil {
		c.Err = err
	} else {
		c = f.claim(c, content)
	}
	changed = c.Hash != k.claim.Hash || (c.Err == nil) != (k.claim.Err == nil) || c.Err != nil && c.Err.Error() != k.claim.Err.Error() ||
		c.Cluster != k.claim.Cluster || k.claim.Source == ""
	k.claim = c
	return changed
}

// claim completes c, whose cluster is that of before.
func (f *folder) claim(c Claim, content []byte) Claim {
	c.Hash = Hash(content)
	cfg, err := load(content)
	if err != nil {
		c.Err = fmt.Errorf("kubeconfig: %w", err)
		return c
	}
	name := clusterName(cfg)
	switch {
	case name == "":
		c.Err = errors.New("kubeconfig: no cluster in it")
		return c
	case !ValidCluster(name) && c.Cluster != "":
		c.Err = errNoID
		return c
	}
	c.Cluster = name
	r := reader{allow: f.opts.Allow}
	r.begin()
	return r.claim(c, content)
}

// claims are those of all files, up to the limit.
func (f *folder) claims() []Claim {
	var out []Claim
	for _, k := range f.files {
		if k.claim.Source != "" {
			out = append(out, k.claim)
		}
	}
	slices.SortFunc(out, func(a, b Claim) int { return a.Compare(&b) })
	return limit(out, f.opts.MaxClusters)
}
