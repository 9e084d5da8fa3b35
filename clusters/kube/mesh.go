package kube

import (
	"context"
	"log/slog"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/kubeapi"
)

// MeshOptions configure a Mesh.
type MeshOptions struct {
	Cluster         model.ClusterID // the config cluster
	Config          *rest.Config
	SystemNamespace string // "istio-system" if empty
	Revision        string // of Istio, whose ConfigMap is "istio-<revision>"; "istio" if empty or "default"

	QPS     float32 // requests per second, besides watches; 80 if 0
	Burst   int     // 160 if 0
	Timing  Timing
	Metrics *Metrics     // counts nothing if nil
	Log     *slog.Logger // discards if nil
}

// Mesh is the registry of the mesh-wide settings in an API server: a Config row each for MeshConfig and
// MeshNetworks. They are read from the ConfigMaps "isthmus" and "istio", or that of Revision, of the system namespace, keys
// "mesh" and "meshNetworks"; of two ConfigMaps with a key the first counts. Settings that can't be used
// are problems and leave the last good ones in force. No ConfigMap means no settings.
type Mesh struct{ opts MeshOptions }

// NewMesh gives the registry with the key mesh/<cluster>.
func NewMesh(o MeshOptions) *Mesh { return &Mesh{opts: o} }

// Key implements model.Registry.
func (m *Mesh) Key() model.ShardKey {
	return model.ShardKey{Provider: model.ProviderMesh, Cluster: m.opts.Cluster}
}

// Run implements model.Registry. It ends before ctx only if the configuration can't be used.
func (m *Mesh) Run(ctx context.Context, out model.Sink) error {
	o := Options{Cluster: m.opts.Cluster, ConfigCluster: true, Config: m.opts.Config, SystemNamespace: m.opts.SystemNamespace, Timing: m.opts.Timing,
		QPS: m.opts.QPS, Burst: m.opts.Burst, Metrics: m.opts.Metrics, Log: m.opts.Log}.withDefaults()
	s, err := newSession(o, m.Key(), out)
	if err != nil {
		return err
	}
	r := &meshRun{session: s, names: settingsNames(m.opts.Revision), settings: map[string]*meshSetting{}}
	for _, name := range r.names {
		r.tables = append(r.tables, r.read(configMap(o.SystemNamespace, name), kubeapi.Required))
	}
	return r.follow(ctx, r.turn)
}

// meshRun is the state of one Run, owned by its goroutine.
type meshRun struct {
	*session
	names    []string                // of the ConfigMaps, in their order
	tables   []*table                // of each
	settings map[string]*meshSetting // by kind
	synced   bool
}

// meshSetting is what is in force of one kind, and what is wrong with what is there.
type meshSetting struct {
	text     *string // that was parsed last; nil if there is none
	good     *MeshSettings
	row      *model.Config
	problems []model.Problem
}

// meshRows names the rows as those of the files that may hold the settings.
var meshRows = []struct{ kind, name string }{{model.ConfigMesh, "mesh"}, {model.ConfigNetworks, "networks"}}

func (r *meshRun) turn() {
	r.queue.take(batch) // all is looked at in any case
	if slices.ContainsFunc(r.tables, func(t *table) bool { return !t.ready() }) {
		r.report()
		return
	}
	var events []model.Event
	for _, at := range meshRows {
		if ev, changed := r.update(at.kind, model.ObjectKey{Kind: at.kind, Name: at.name}); changed {
			events = append(events, ev)
		}
	}
	r.tell(events)
	r.report()
}

// tell gives the rows that changed, or all of them at first.
func (r *meshRun) tell(events []model.Event) {
	switch {
	case !r.synced:
		r.synced = true
		b := model.NewShardBuilder()
		for _, at := range meshRows {
			if row := r.settings[at.kind].row; row != nil {
				b.Add(rowKey(at.kind, at.name), row)
			}
		}
		r.out.Replace(b.Build())
	case len(events) > 0:
		r.out.Put(events...)
	}
}

func rowKey(kind, name string) string { return model.ObjectKey{Kind: kind, Name: name}.String() }

// update reads the settings of a kind again if their text has changed.
func (r *meshRun) update(kind string, ref model.ObjectKey) (ev model.Event, changed bool) {
	s := r.settings[kind]
	if s == nil {
		s = &meshSetting{}
		r.settings[kind] = s
	}
	text, o := r.find(settingsKey(kind))
	if text == nil {
		s.text, s.problems = nil, nil
		changed, s.good, s.row = s.row != nil, nil, nil
		return model.Event{Row: model.RowKey{Kind: model.RowConfig, Key: ref.String()}}, changed
	}
	if s.text != nil && *s.text == *text {
		return ev, false
	}
	s.text = text
	next, faults, warnings := ParseMesh(kind, []byte(*text))
	s.problems = problemsOf(o.Ref, settingsKey(kind), faults, warnings)
	if len(faults) > 0 {
		return ev, false // the last good ones stay
	}
	if next == nil { // empty, yet there
		next, _, _ = ParseMesh(kind, []byte("{}"))
	}
	if s.good != nil && s.good.Revision == next.Revision {
		return ev, false
	}
	s.good = next
	s.row = next.Row(ref.Name, o.Time, model.Source{Shard: r.key, Object: o.Ref, Revision: o.Revision, Time: o.Time})
	return model.Event{Row: model.RowKey{Kind: model.RowConfig, Key: ref.String()}, Obj: s.row}, true
}

// find gives the text under a key in the first ConfigMap that has it.
func (r *meshRun) find(key string) (*string, Object) {
	for i, t := range r.tables {
		o, ok := t.get(model.ObjectKey{Kind: KindConfigMap, Namespace: r.opts.SystemNamespace, Name: r.names[i]})
		if !ok {
			continue
		}
		if text, ok := o.Value.(*corev1.ConfigMap).Data[key]; ok {
			return &text, o
		}
	}
	return nil, Object{}
}

// problemsOf names the key and the line in it.
func problemsOf(ref model.ObjectKey, key string, faults, warnings []Fault) []model.Problem {
	var out []model.Problem
	for _, f := range faults {
		out = append(out, model.Problem{Item: ref.String(), Line: f.Line, Reason: key + ": " + f.Reason + "; what was in force stays"})
	}
	for _, f := range warnings {
		out = append(out, model.Problem{Item: ref.String(), Line: f.Line, Reason: key + ": " + f.Reason})
	}
	return out
}

func (r *meshRun) report() {
	var problems []model.Problem
	for _, at := range meshRows {
		if s := r.settings[at.kind]; s != nil {
			problems = append(problems, s.problems...)
		}
	}
	r.session.report(r.synced, "", r.reporter.listed(time.Now(), problems))
}
