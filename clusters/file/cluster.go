package file

import (
	"cmp"
	"context"
	"log/slog"
	"path/filepath"
	"slices"
	"time"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/clusters/kube"
)

// Options configure a registry.
type Options struct {
	Root    string // folder that symbolic links can't leave; Dir if empty
	Dir     string // the member's folder
	Cluster model.ClusterID
	// Earlier is a folder in place of Root that counts as read before, "" for none: a file that can't be read and an object
	// with an error keep what they had there.
	Earlier string

	DomainSuffix    string // "cluster.local" if empty
	TrustDomain     string // where the member names none itself; "cluster.local" if empty; below a Root that of the settings, if they have one
	SystemNamespace string // "istio-system" if empty
	MCS             bool   // follow the Multi-Cluster Services API: see kube.Converter
	ConfigCluster   bool   // the member is the config cluster; below a Root it is the one of the settings

	Limits Limits
	Log    *slog.Logger // slog.Default() if nil
	// OnProblem is told of each problem once, from the registry's goroutine. It must not block.
	OnProblem func(model.ShardKey, model.Problem)
}

func (o Options) withDefaults() Options {
	if o.Root == "" {
		o.Root = o.Dir
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	o.Limits = o.Limits.withDefaults()
	return o
}

func (o Options) folder() folder {
	f := folder{root: filepath.Clean(o.Root), dir: ".", limits: o.Limits}
	if rel, err := filepath.Rel(o.Root, o.Dir); err == nil {
		f.dir = filepath.ToSlash(rel)
	}
	return f
}

// Cluster is the registry of one member whose objects are files in a folder and its sub-folders.
type Cluster struct{ opts Options }

// NewCluster gives the registry with the key file/<cluster>.
func NewCluster(o Options) *Cluster { return &Cluster{opts: o.withDefaults()} }

// Key implements model.Registry.
func (c *Cluster) Key() model.ShardKey {
	return model.ShardKey{Provider: model.ProviderFile, Cluster: c.opts.Cluster}
}

// Run implements model.Registry. The first Replace comes when every file has been read; a folder
// that can't be read makes the registry stale until it can.
func (c *Cluster) Run(ctx context.Context, out model.Sink) error {
	f := c.opts.folder()
	m := &objects{
		opts: c.opts, folder: f, out: out, claims: newClaims(),
		store: kube.NewStore(kube.Converter{Shard: c.Key(), DomainSuffix: c.opts.DomainSuffix,
			TrustDomain: c.opts.TrustDomain, SystemNamespace: c.opts.SystemNamespace, MCS: c.opts.MCS, ConfigCluster: c.opts.ConfigCluster}),
		reporter: reporter{log: c.opts.Log, onProblem: c.opts.OnProblem, key: c.Key()},
	}
	m.tree = newTree(f.read, parseObjects)
	m.recall(time.Now())
	return run(ctx, m)
}

func parseObjects(_ string, data []byte, modified time.Time) parsed[[]kube.Item] {
	c := kube.Decode(data, modified)
	p := parsed[[]kube.Item]{value: c.Items, keys: make(map[string]struct{}, len(c.Items)), warnings: c.Warnings}
	for _, f := range c.Faults {
		if f.Broken == nil {
			p.faults = append(p.faults, f)
			continue
		}
		p.value, p.doubtful = append(p.value, kube.Item{Line: f.Line, Object: *f.Broken}), true
	}
	slices.SortStableFunc(p.value, func(a, b kube.Item) int { return cmp.Compare(a.Line, b.Line) }) // of two definitions the first counts
	for _, it := range p.value {
		p.keys[it.Object.Ref.String()] = struct{}{}
	}
	return p
}

// objects is the state of one run, owned by its goroutine.
type objects struct {
	opts      Options
	folder    folder
	out       model.Sink
	tree      *tree[[]kube.Item]
	claims    *claims
	store     *kube.Store
	reporter  reporter
	synced    bool
	recalling bool // an earlier content is being read
}

func (m *objects) list() (*listing, error) { return m.folder.list(wanted, true) }

// turn brings the rows up to date with the listing.
func (m *objects) turn(now time.Time, l *listing, touched map[string]bool) (next time.Time) {
	changed, next := m.tree.step(now, l, m.folder.touched(touched))
	var set []kube.Object
	var del []model.ObjectKey
	for name, p := range changed {
		var items []kube.Item
		if p != nil {
			items = p.value
		}
		s, d := m.claims.update(name, items)
		set, del = append(set, s...), append(del, d...)
	}
	events := m.store.Apply(m.settled(set, del))
	switch {
	case m.recalling:
		return next
	case m.synced:
		m.out.Put(events...) // of one edit: no snapshot has a part of them
	case !m.tree.pending():
		m.synced = true
		m.out.Replace(m.store.State())
	}
	m.report(now, l)
	return next
}

// settled drops what a later file of the same turn overruled: the claims decide.
func (m *objects) settled(set []kube.Object, del []model.ObjectKey) ([]kube.Object, []model.ObjectKey) {
	refs := map[model.ObjectKey]struct{}{}
	for _, o := range set {
		refs[o.Ref] = struct{}{}
	}
	for _, r := range del {
		refs[r] = struct{}{}
	}
	set, del = set[:0], del[:0]
	for ref := range refs {
		if cs := m.claims.byRef[ref]; len(cs) > 0 {
			set = append(set, cs[0].item.Object)
		} else {
			del = append(del, ref)
		}
	}
	return set, del
}

func (m *objects) report(now time.Time, l *listing) {
	var ps []model.Problem
	for name, why := range l.faults {
		ps = append(ps, model.Problem{Item: name, Reason: why})
	}
	ps = append(ps, m.tree.problems()...)
	ps = append(ps, m.claims.conflicts(m.tree.leaving)...)
	for ref, reasons := range m.store.Problems() {
		file, line := m.claims.place(ref)
		for _, r := range reasons {
			ps = append(ps, model.Problem{Item: file, Line: line, Reason: ref.String() + ": " + r})
		}
	}
	state := model.StateSyncing
	if m.synced {
		state = model.StateLive
	}
	if st, changed := m.reporter.report(now, state, "", ps); changed {
		m.out.Status(st)
	}
}

func (m *objects) unreadable(now time.Time, err error) {
	msg := "folder " + filepath.Base(m.opts.Dir) + " can't be read: " + reason(err)
	if st, changed := m.reporter.report(now, model.StateStale, msg, m.reporter.status.Problems); changed {
		m.out.Status(st)
	}
}

// touched adapts the paths of events to names relative to the folder.
func (f folder) touched(paths map[string]bool) func(string) bool {
	base := filepath.Join(f.root, filepath.FromSlash(f.dir))
	return func(name string) bool { return paths[filepath.Join(base, filepath.FromSlash(name))] }
}
