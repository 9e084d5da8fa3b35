// Package clusters turns credentials of clusters into attached registries.
package clusters

import (
	"cmp"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync/atomic"

	"google.golang.org/protobuf/proto"
	meshconfig "istio.io/api/mesh/v1alpha1"
	"k8s.io/client-go/rest"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/secrets"
)

// Options configure a Manager.
type Options struct {
	Lifecycle model.Lifecycle
	// New makes the registry of a cluster.
	New func(Plan) Instance
	// Keep wraps every registry, if set, so that what it reports outlives the hub. First says that no other one of the
	// cluster could have synced: only then may the registry serve what was kept, for a replacement must prove that it works.
	Keep func(reg model.Registry, first bool) model.Registry
	// Forget is told of each cluster that was detached, if set: what was kept of it is not wanted any more.
	Forget func(model.ShardKey)
	// Known are clusters that something was kept of. Until all Sources have told their claims, these clusters are
	// attached even if nobody claims them: while the config cluster can't be reached, nobody can.
	Known []model.ClusterID
	// Sources are all that will call Set.
	Sources []string
	// Config is the id of the config cluster. Only the source named Primary may claim it.
	Config model.ClusterID
	Log    *slog.Logger // discards if nil
}

// Plan says what a registry is to be made with.
type Plan struct {
	Cluster model.ClusterID
	Config  *rest.Config // shared: copy it before changing it
	Settings
	// Needs are the optional kinds that the registry in force serves. A replacement that can't read them must not
	// sync.
	Needs []string
}

// Instance is a registry that was made for a plan.
type Instance struct {
	model.Registry
	Serves func() []string // the optional kinds that it serves; nil before it has synced
	UID    func() string   // tells the cluster from all others; "" while it is not known. May be nil
	Config *rest.Config    // that it uses; nil for that of the plan
}

// Settings are what the registries of all clusters are made with. When they change, every cluster is
// attached anew, which swaps its registry.
type Settings struct {
	TrustDomain        string
	DiscoverySelectors []*meshconfig.LabelSelector
}

// Equal reports whether both are the same.
func (s Settings) Equal(o Settings) bool {
	return s.TrustDomain == o.TrustDomain && slices.EqualFunc(s.DiscoverySelectors, o.DiscoverySelectors,
		func(a, b *meshconfig.LabelSelector) bool { return proto.Equal(a, b) })
}

// Primary is the source of the config cluster's own credential.
const Primary = "primary"

// Manager keeps one Kubernetes registry attached for each cluster that is claimed. Of several claims to
// a cluster the one of the primary source wins, then the oldest, then the first by source; when it
// goes, the next takes over. A changed credential is attached beside the one in force, which serves
// until the new one has synced. A refused credential never replaces one that works: it is attached too, as a
// registry that never syncs, so that its reason shows like any other's.
type Manager struct {
	opts    Options
	members atomic.Pointer[[]listed]

	queue Queue // whoever applies it owns what follows

	sources    map[string][]secrets.Claim
	settings   Settings
	configured bool
	attached   map[model.ClusterID]*attachment
}

// attachment is what was attached for a cluster.
type attachment struct {
	current made // the newest that is known to have synced, or else the first
	next    made // attached after it
	used    bool // one of them had a credential
}

// made is a registry and what it was made for.
type made struct {
	registry model.Registry // as attached; nil if there is none
	serves   func() []string
	uid      func() string // may be nil
	config   *rest.Config  // nil of a refused credential
	claim    secrets.Claim
	settings Settings
}

// isFor reports whether the registry was made for the same credential and settings.
func (x *made) isFor(c secrets.Claim, s Settings) bool {
	return x.registry != nil && x.claim.Hash == c.Hash && sameReason(x.claim.Err, c.Err) && (c.Err != nil || x.settings.Equal(s))
}

// synced reports whether it has ever read the cluster.
func (x *made) synced() bool { return x.registry != nil && x.serves() != nil }

// settle makes the newest the current one if it has synced.
func (a *attachment) settle() {
	if a.next.synced() {
		a.current, a.next = a.next, made{}
	}
}

// newest is what was attached last.
func (a *attachment) newest() *made {
	if a.next.registry != nil {
		return &a.next
	}
	return &a.current
}

// needs are the optional kinds that a replacement must be able to read.
func (a *attachment) needs() []string {
	if a.current.registry == nil {
		return nil
	}
	return a.current.serves()
}

// add notes the registry that is attached next.
func (a *attachment) add(x made) {
	if a.current.registry == nil {
		a.current = x
	} else {
		a.next = x
	}
	a.used = a.used || x.claim.Err == nil
}

// NewManager gives a manager. The clusters that something was kept of are attached at once, all others when
// they are claimed and settings are there.
func NewManager(o Options) *Manager {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	m := &Manager{opts: o, sources: map[string][]secrets.Claim{}, attached: map[model.ClusterID]*attachment{}}
	m.queue.Follow = m.reconcile
	m.members.Store(&[]listed{})
	m.queue.Apply(func() {})
	return m
}

// Set gives the whole set of claims of one source. Claims of the source named Primary come before all others. The
// slice must not be changed any more.
func (m *Manager) Set(source string, claims []secrets.Claim) {
	m.queue.Apply(func() { m.sources[source] = claims })
}

// Configure gives the settings; no credential is used before the first call.
func (m *Manager) Configure(s Settings) {
	m.queue.Apply(func() { m.settings, m.configured = s, true })
}

// reconcile attaches and detaches until what is attached is what is claimed.
func (m *Manager) reconcile() {
	all := rank(m.sources, m.opts.Config)
	wanted := owners(all)
	if !m.complete() {
		for _, id := range m.opts.Known {
			if _, ok := wanted[id]; !ok {
				wanted[id] = secrets.Claim{Cluster: string(id), Err: errWaiting}
			}
		}
	}
	for _, id := range slices.Sorted(maps.Keys(m.attached)) {
		if _, ok := wanted[id]; !ok {
			m.detach(id)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(wanted)) {
		m.attach(id, wanted[id])
	}
	m.publish(all)
}

// complete reports whether every source has told its claims.
func (m *Manager) complete() bool {
	return !slices.ContainsFunc(m.opts.Sources, func(s string) bool { _, ok := m.sources[s]; return !ok })
}

func (m *Manager) detach(id model.ClusterID) {
	key := keyOf(id)
	delete(m.attached, id)
	m.opts.Lifecycle.Detach(key)
	if m.opts.Forget != nil {
		m.opts.Forget(key)
	}
	m.opts.Log.Info("cluster is not claimed any more", "cluster", id)
}

// attach attaches a registry for the claim unless the newest one was made for the same. Back at what the one in
// force was made for, that is attached again, which ends the replacement.
func (m *Manager) attach(id model.ClusterID, c secrets.Claim) {
	if c.Err == nil && !m.configured {
		return
	}
	a := m.attached[id]
	if a == nil {
		a = &attachment{}
		m.attached[id] = a
	}
	a.settle()
	switch {
	case a.newest().isFor(c, m.settings):
		return
	case a.current.isFor(c, m.settings):
		m.opts.Log.Info("credential and settings are those in force again", "cluster", id, "source", c.Source)
		a.next = made{}
		m.opts.Lifecycle.Attach(a.current.registry)
		return
	}
	m.log(id, c, a.current.registry != nil)
	inst := m.instance(id, c, a.needs())
	reg := inst.Registry
	if m.opts.Keep != nil {
		reg = m.opts.Keep(reg, !a.used)
	}
	a.add(made{registry: reg, serves: inst.Serves, uid: inst.UID, config: cmp.Or(inst.Config, c.Config), claim: c, settings: m.settings})
	m.opts.Lifecycle.Attach(reg)
}

func (m *Manager) instance(id model.ClusterID, c secrets.Claim, needs []string) Instance {
	if c.Err == nil {
		return m.opts.New(Plan{Cluster: id, Config: c.Config, Settings: m.settings, Needs: needs})
	}
	r := &refused{key: keyOf(id), state: model.StateTimeout, why: c.Err.Error()}
	if errors.Is(c.Err, errWaiting) {
		r.state = model.StateSyncing
	}
	return Instance{Registry: r, Serves: func() []string { return nil }}
}

func (m *Manager) log(id model.ClusterID, c secrets.Claim, replacement bool) {
	switch {
	case errors.Is(c.Err, errWaiting):
		m.opts.Log.Info("cluster is known from before; its credential has not been read yet", "cluster", id)
	case c.Err != nil:
		m.opts.Log.Warn("credential refused", "cluster", id, "source", c.Source, "err", c.Err, "replacement", replacement)
	default:
		m.opts.Log.Info("credential found", "cluster", id, "source", c.Source, "replacement", replacement)
	}
}

func keyOf(id model.ClusterID) model.ShardKey {
	return model.ShardKey{Provider: model.ProviderKubernetes, Cluster: id}
}

func sameReason(a, b error) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Error() == b.Error()
}

// errWaiting is why a cluster that something was kept of can't be read yet.
var errWaiting = errors.New("its credential has not been read yet")
