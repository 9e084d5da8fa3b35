package aggregate

import (
	"cmp"
	"iter"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/pushcontext"
)

func compareHosts(a, b hostKey) int {
	return cmp.Or(strings.Compare(a.host, b.host), strings.Compare(a.namespace, b.namespace))
}

// Rebuild derives every service from shard states alone, with no index and no history: it is what a
// snapshot must equal once nothing is pending. Services are sorted by key; revisions are not set.
func Rebuild(shards map[model.ShardKey]*model.ShardState, o Options) Rebuilt {
	o = o.withDefaults()
	r := newRebuild(nil, nil)
	for k, s := range shards {
		r.add(k, s.Rows())
		r.addWorkloads(k, s.Rows(), nil)
	}
	b := r.basis(shards, o)
	out := Rebuilt{
		Mesh: b.mesh.view, Networks: b.networks.resolved, Hosts: b.networks.hosts, Conflicts: b.conflicts,
		Gateways: b.gateways.view, VirtualServices: b.routes.all, Scopes: b.scopes.published,
	}
	for _, views := range r.merge(&b) {
		out.Services = append(out.Services, views...)
	}
	slices.SortFunc(out.Services, func(a, b *pushcontext.ServiceView) int { return a.Shape.Key.Compare(b.Shape.Key) })
	return out
}

// Rebuilt is what a snapshot must hold.
type Rebuilt struct {
	Services        []*pushcontext.ServiceView
	Mesh            *pushcontext.MeshView
	Networks        pushcontext.Networks
	Hosts           []string // names to resolve
	Conflicts       []pushcontext.Conflict
	Gateways        *pushcontext.GatewaysView
	VirtualServices []*pushcontext.VirtualService
	Scopes          *pushcontext.Scopes
}

// basis derives settings and configuration by looking at every row.
func (r *rebuild) basis(shards map[model.ShardKey]*model.ShardState, o Options) basis {
	var mesh []meshRow
	byKind := map[string][]row[*model.Config]{}
	for k, s := range shards {
		for rk, obj := range s.Rows() {
			if c, ok := obj.(*model.Config); ok {
				mesh = appendMesh(mesh, k, rk.Key, c)
				byKind[c.Kind] = append(byKind[c.Kind], row[*model.Config]{rowID{k, rk.Key}, c})
			}
		}
	}
	for _, rows := range byKind {
		sortRows(rows)
	}
	cfg, nets := effective(mesh, o.ConfigCluster)
	settings := newMesh(cfg, nets, o)
	return basis{linear: true}.update(settings, sources{
		gateways:  r.gateways(settings.gatewayHosts()),
		names:     r.names,
		askers:    r.askers,
		reserved:  r.reserved(),
		kind:      func(kind string) []row[*model.Config] { return byKind[kind] },
		changed:   func(...string) bool { return true },
		directory: r.directory,
		touched:   func(map[string]struct{}) bool { return true },
	})
}

// names gives what names of services stand for.
func (r *rebuild) names(m *mesh) map[string]alias {
	out := map[string]alias{}
	for k := range r.services {
		if n, ok := nameOf(r.directory(k.host), m); ok {
			out[k.host] = n
		}
	}
	return out
}

// askers gives the services that ask for addresses.
func (r *rebuild) askers() (out []asker) {
	for k, rows := range r.services {
		if a, ok := askerOf(k, rows); ok {
			out = append(out, a)
		}
	}
	return out
}

// reserved counts addresses among the automatic ones.
func (r *rebuild) reserved() map[netip.Prefix]int {
	out := map[netip.Prefix]int{}
	for _, rows := range r.services {
		for _, s := range rows {
			for _, p := range reserved(s.obj) {
				out[p]++
			}
		}
	}
	return out
}

// directory gives the definitions of the services of a host.
func (r *rebuild) directory(host string) (out []row[*model.Service]) {
	for k, rows := range r.services {
		if strings.EqualFold(k.host, host) {
			out = append(out, rows...)
		}
	}
	return out
}

// gateways gives the Services that may be gateways.
func (r *rebuild) gateways(named map[string]bool) (out []row[*model.Service]) {
	for _, rows := range r.services {
		for _, s := range rows {
			if isGateway(s.obj, named) {
				out = append(out, s)
			}
		}
	}
	sortRows(out)
	return out
}

// rebuild collects rows by scanning.
type rebuild struct {
	only      func(hostKey) bool // hosts to merge; nil: every one
	federated *federations       // whose sources are read, too
	shards    []model.ShardKey
	services  map[hostKey][]row[*model.Service]
	endpoints map[hostKey][]row[*model.Endpoints]
	workloads []row[*model.Workload]
}

func newRebuild(only func(hostKey) bool, federated *federations) *rebuild {
	return &rebuild{only: only, federated: federated, services: map[hostKey][]row[*model.Service]{}, endpoints: map[hostKey][]row[*model.Endpoints]{}}
}

func (r *rebuild) wants(k hostKey) bool {
	return r.only == nil || r.only(k)
}

// reads reports whether the rows of a host matter: it is wanted, or may be a source of one that is.
func (r *rebuild) reads(k hostKey) bool {
	return r.wants(k) || slices.ContainsFunc(r.federated.fed(k.host), r.wants)
}

func (r *rebuild) add(shard model.ShardKey, rows iter.Seq2[model.RowKey, model.Object]) {
	r.shards = append(r.shards, shard)
	for rk, o := range rows {
		id := rowID{shard, rk.Key}
		switch o := o.(type) {
		case *model.Service:
			if k := (hostKey{o.Namespace, o.Host}); r.reads(k) {
				r.services[k] = append(r.services[k], row[*model.Service]{id, o})
			}
		case *model.Endpoints:
			if k := (hostKey{o.Namespace, o.Host}); r.reads(k) {
				r.endpoints[k] = append(r.endpoints[k], row[*model.Endpoints]{id, o})
			}
		}
	}
}

// addWorkloads adds those that are wanted, all if wanted is nil.
func (r *rebuild) addWorkloads(shard model.ShardKey, rows iter.Seq2[model.RowKey, model.Object], wanted func(*model.Workload) bool) {
	for rk, o := range rows {
		if w, ok := o.(*model.Workload); ok && (wanted == nil || wanted(w)) {
			r.workloads = append(r.workloads, row[*model.Workload]{rowID{shard, rk.Key}, w})
		}
	}
}

// selecting tells workloads that one of the services may select.
func (r *rebuild) selecting() func(*model.Workload) bool {
	type label struct {
		namespace string
		pair
	}
	labels := map[label]struct{}{}
	note := func(_ rowID, s *model.Service) {
		if p, ok := pivot(s.Selector); ok {
			labels[label{s.Namespace, p}] = struct{}{}
		}
	}
	for _, rows := range r.services {
		for _, s := range rows {
			note(s.id, s.obj)
		}
	}
	for k := range r.federated.keys() {
		if r.wants(k) {
			r.federated.byKey[k].each(note)
		}
	}
	return func(w *model.Workload) bool {
		for k, v := range w.Labels {
			if _, ok := labels[label{w.Namespace, pair{k, v}}]; ok {
				return true
			}
		}
		return false
	}
}

// merge gives the views of every wanted host.
func (r *rebuild) merge(b *basis) map[hostKey][]*pushcontext.ServiceView {
	out := map[hostKey][]*pushcontext.ServiceView{}
	clusters := clustersOf(slices.Values(r.shards))
	keys := b.federations.keys()
	for k := range r.services {
		sortRows(r.services[k])
		keys[k] = struct{}{}
	}
	for _, rows := range r.endpoints {
		sortRows(rows)
	}
	for _, k := range slices.SortedFunc(maps.Keys(keys), compareHosts) {
		if !r.wants(k) {
			continue
		}
		for _, in := range b.takeOver(k, partition(k, r.services[k], r.endpoints[k], b, clusters), r.lookup()) {
			if !in.defined() {
				continue
			}
			if v, err := mergeContained(in); err == nil {
				out[k] = append(out[k], v)
			}
		}
	}
	return out
}

// lookup reads the rows that were collected, which are sorted.
func (r *rebuild) lookup() lookup {
	return lookup{services: r.directory, join: r.join, endpoints: func(k hostKey) []row[*model.Endpoints] { return r.endpoints[k] }}
}

func sortRows[T any](rows []row[T]) {
	slices.SortFunc(rows, func(a, b row[T]) int { return a.id.compare(b.id) })
}

// join compares a service with every workload.
func (r *rebuild) join(id rowID, svc *model.Service) []selected {
	var out []selected
	for _, w := range r.workloads {
		if selects(id.shard, svc, w.id.shard, w.obj) {
			out = append(out, selected{by: svc, id: w.id, obj: w.obj})
		}
	}
	return out
}

// SameView reports whether two views of a service have equal content. Revisions and times of sources
// do not count, nor does identity.
func SameView(a, b *pushcontext.ServiceView) bool {
	return sameShapeContent(a.Shape, b.Shape) && samePortContent(a.Endpoints, b.Endpoints) && a.Networks.Equal(b.Networks) &&
		slices.Equal(a.Demoted, b.Demoted) && slices.EqualFunc(a.LeftOut, b.LeftOut, sameLeftOut) && pushcontext.SameStates(a.Sources, b.Sources)
}
