package registries

import (
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	api "github.com/isthmus-mesh/isthmus/api/v1alpha1"
	"github.com/isthmus-mesh/isthmus/clusters"
	"github.com/isthmus-mesh/isthmus/secrets"
)

// Options configure a Manager.
type Options struct {
	Lifecycle model.Lifecycle
	Scope     Scope
	// Make makes the registry of a provider; static services are of "static" and "static-dns". An error is told in the status, and must not
	// hold a credential. What it gives has made nothing yet that must be ended: that is for Run.
	Make map[model.ProviderID]func(Plan) (model.Registry, error)
	// Keep wraps everything that is attached, if set, so that what it reports outlives the hub. First says that no other one of the key could
	// have delivered: only then may it serve what was kept, also while there is no registry for want of a Secret. Then Given tells what Make gives
	// one day. Of gives the Identity of what it is made for, which is another when it is made after all for another declaration.
	Keep func(r model.Registry, of func() string, first bool) model.Registry
	// Forget is told of each registry that was detached, if set.
	Forget func(model.ShardKey)
	// Want is told the names of all Secrets that are needed, in the system namespace, whenever they change. It must not block. Without it
	// there are no Secrets.
	Want func(names []string)
	Log  *slog.Logger // discards if nil
}

// Manager keeps one registry attached for each declaration in force.
type Manager struct {
	opts Options
	list atomic.Pointer[[]Info]

	queue clusters.Queue // whoever applies it owns what follows

	rows     map[model.ShardKey]map[string]*model.Config // that may declare registries, by the registry that they are of and their keys
	known    map[string]*known                           // Secrets by name
	wanted   []string
	attached map[model.ShardKey]*attachment
}

// grace is how long a declaration must be gone for its registry to go: tools replace an object by deleting and creating it.
const grace = 500 * time.Millisecond

// attachment is what was attached for a declaration.
type attachment struct {
	current made      // the newest that is known to have delivered, or else the first
	next    made      // attached after it
	gone    time.Time // since when nothing declares it; zero while something does
}

// made is a registry and what it was made for.
type made struct {
	*instance
	given model.Registry // as Make gave it; nil if there is none
	hash  string
	why   string // there is no registry yet; "" if there is
	place *place // that waits for the registry; nil if none had to
}

func (x *made) isFor(hash string) bool { return x.instance != nil && x.hash == hash }

// settle makes the newest the current one if it has delivered.
func (a *attachment) settle() {
	if a.next.instance != nil && a.next.delivered.Load() {
		a.current, a.next = a.next, made{}
	}
}

// newest is what was attached last.
func (a *attachment) newest() *made {
	if a.next.instance != nil {
		return &a.next
	}
	return &a.current
}

// add notes what is attached next.
func (a *attachment) add(x made) {
	if a.current.instance == nil {
		a.current = x
	} else {
		a.next = x
	}
}

// say tells what is wrong with a declaration, whichever of the two is looked at.
func (a *attachment) say(d *desired) {
	var stale time.Duration
	if d.Spec != nil && d.Spec.StaleAfter != nil {
		stale = d.Spec.StaleAfter.Duration
	}
	for _, x := range []made{a.current, a.next} {
		if x.instance != nil {
			x.say(d.told(), stale)
		}
	}
}

// NewManager gives a manager that knows no declarations.
func NewManager(o Options) *Manager {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	m := &Manager{opts: o, rows: map[model.ShardKey]map[string]*model.Config{}, known: map[string]*known{}, attached: map[model.ShardKey]*attachment{}}
	m.queue.Follow = m.reconcile
	m.list.Store(&[]Info{})
	return m
}

// Secret takes what is known of a Secret that was wanted.
func (m *Manager) Secret(name string, s secrets.Secret) {
	m.queue.Apply(func() {
		if !slices.Contains(m.wanted, name) {
			return
		}
		if m.known[name] == nil {
			m.known[name] = &known{}
		}
		m.known[name].take(s)
	})
}

// reconcile attaches and detaches until what is attached is what is declared.
func (m *Manager) reconcile() {
	var rows []*model.Config
	for _, of := range m.rows {
		rows = slices.AppendSeq(rows, maps.Values(of))
	}
	declared, _ := Read(rows, m.opts.Scope)
	m.want(declared)
	all := plan(declared, m.known)
	there := map[model.ShardKey]bool{}
	for _, d := range all {
		there[d.Key] = true
	}
	for _, k := range slices.SortedFunc(maps.Keys(m.attached), model.ShardKey.Compare) {
		if !there[k] {
			m.leave(k, time.Now())
		}
	}
	for _, d := range all {
		m.attach(d)
	}
	m.publish(all)
}

// want asks for the Secrets that are needed now, and forgets all others.
func (m *Manager) want(declared []Declared) {
	var names []string
	for _, d := range declared {
		names = append(names, d.secretNames()...)
	}
	slices.Sort(names)
	names = slices.Compact(names)
	if slices.Equal(names, m.wanted) {
		return
	}
	m.wanted = names
	maps.DeleteFunc(m.known, func(name string, _ *known) bool { return !slices.Contains(names, name) })
	if m.opts.Want != nil {
		m.opts.Want(slices.Clone(names))
		return
	}
	for _, name := range names {
		m.known[name] = &known{err: "the hub reads no Secrets: it has no config cluster with an API server, and no --registry-secrets-dir"}
	}
}

// leave detaches a registry that nothing declares, if that is so for some time.
func (m *Manager) leave(k model.ShardKey, now time.Time) {
	switch a := m.attached[k]; {
	case a.gone.IsZero():
		a.gone = now
		time.AfterFunc(grace, func() { m.queue.Apply(func() {}) })
	case now.Sub(a.gone) >= grace:
		m.detach(k)
	}
}

func (m *Manager) detach(k model.ShardKey) {
	delete(m.attached, k)
	m.opts.Lifecycle.Detach(k)
	if m.opts.Forget != nil {
		m.opts.Forget(k)
	}
	m.opts.Log.Info("registry is not declared any more", "provider", k.Provider, "cluster", k.Cluster)
}

// attach attaches a registry unless the newest one was made for the same. Back at what the one in force was made for, that is
// attached again, which ends the replacement.
func (m *Manager) attach(d desired) {
	a := m.attached[d.Key]
	if a == nil {
		a = &attachment{}
		m.attached[d.Key] = a
	}
	a.settle()
	a.gone = time.Time{}
	defer a.say(&d)
	log := m.opts.Log.With("provider", d.Key.Provider, "cluster", d.Key.Cluster)
	switch {
	case a.newest().isFor(d.hash):
		return
	case a.current.isFor(d.hash):
		log.Info("the declaration of the registry is the one in force again")
		a.next = made{}
		m.opts.Lifecycle.Attach(a.current.instance)
		return
	}
	r, status := m.make(d, a.current.given)
	given := r
	if status.Err != "" {
		log.Warn("registry can't be read as it is declared", "by", d.where(), "err", status.Err, "replacement", a.current.instance != nil)
	} else {
		log.Info("registry declared", "by", d.where(), "replacement", a.current.instance != nil)
	}
	if x := a.newest(); x.instance != nil && x.why != "" {
		x.given, x.hash, x.why = given, d.hash, status.Err
		x.place.fill(r, status, d.identity())
		return
	}
	x := made{given: given, hash: d.hash, why: status.Err}
	of := d.identity
	if r == nil {
		x.place = newPlace(d.Key, status, d.identity())
		r, of = x.place, x.place.identity
	}
	if m.opts.Keep != nil {
		r = m.opts.Keep(r, of, a.current.instance == nil)
	}
	x.instance = &instance{Registry: r}
	a.add(x)
	m.opts.Lifecycle.Attach(x.instance)
}

// make makes the registry, in place of one if it is not nil. There is none if its status has an error.
func (m *Manager) make(d desired, inForce model.Registry) (r model.Registry, status model.Status) {
	no := func(state model.State, why string) (model.Registry, model.Status) {
		return nil, model.Status{State: state, Err: why}
	}
	defer func() {
		if p := recover(); p != nil { // a fault of one provider is not to end the hub
			r, status = no(model.StateTimeout, fmt.Sprintf("it can't be made: %v", p))
		}
	}()
	if s := d.short; s != nil && s.pending {
		return no(model.StateSyncing, s.why)
	} else if s != nil {
		return no(model.StateTimeout, s.why)
	}
	build := m.opts.Make[d.Key.Provider]
	if build == nil {
		return no(model.StateTimeout, fmt.Sprintf("registries of %s are not served by this version", d.Key.Provider))
	}
	p := d.plan()
	p.InForce = inForce
	r, err := build(p)
	if err != nil {
		return no(model.StateTimeout, err.Error())
	}
	return r, model.Status{}
}

// told are the problems that its registry has besides its own.
func (d *desired) told() (out []model.Problem) {
	for _, p := range d.problems {
		out = append(out, model.Problem{Item: d.where(), Reason: p, Broad: true})
	}
	return out
}

// Info is what is known of a registry besides what it reports itself.
type Info struct {
	Key       model.ShardKey
	From      model.Source // the object that declares it
	Field     string
	Created   time.Time
	Effective *api.RegistrySpec  // nil of a static service
	Static    *api.StaticService // nil of others
	Secrets   []string           // that it names
	Refused   string             // why it can't be read as it is declared
	Problems  []string
}

// List lists the declarations in force, by key.
func (m *Manager) List() []Info {
	list := slices.Clone(*m.list.Load())
	return list
}

// publish makes them visible.
func (m *Manager) publish(all []desired) {
	out := make([]Info, 0, len(all))
	for _, d := range all {
		a := m.attached[d.Key]
		out = append(out, Info{
			Key: d.Key, From: d.From, Field: d.Field, Created: d.Created, Effective: d.Spec, Static: d.Static, Secrets: d.secretNames(),
			Refused: a.newest().why, Problems: d.problems,
		})
	}
	slices.SortFunc(out, func(a, b Info) int { return a.Key.Compare(b.Key) })
	m.list.Store(&out)
}

// Declared gives the object and field in words.
func (i *Info) Declared() string { return strings.TrimSpace(i.From.Object.String() + " " + i.Field) }
