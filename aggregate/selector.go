package aggregate

import (
	"cmp"
	"iter"
	"maps"
	"slices"
	"strings"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
)

// rowID names a row among all shards.
type rowID struct {
	shard model.ShardKey
	key   string // of the row; the kind is known from where the id is used
}

func (r rowID) compare(o rowID) int {
	return cmp.Or(r.shard.Compare(o.shard), strings.Compare(r.key, o.key))
}

// hostKey is a service's identity before it is known whether it is mesh-wide.
type hostKey struct{ namespace, host string }

// selector joins services to workloads of the same namespace, in both directions. A service is
// indexed under one pair of its labels (its pivot), since all of them must match; a workload is
// indexed under those of its pairs that are some service's pivot, so the many labels of pods that
// nothing selects cost nothing.
type selector struct{ spaces map[string]*space }

type pair struct{ key, value string }

// poolKey tells the workloads with a label pair; with pods, or WorkloadEntries alone.
type poolKey struct {
	pair
	pods bool
}

type space struct {
	workloads map[rowID]*model.Workload
	services  map[pair]map[rowID]*model.Service // by pivot
	pools     map[poolKey]*pool
}

type pool struct {
	users   int // services that have this pivot
	members map[rowID]*model.Workload
}

// selected is a workload that a service row selects.
type selected struct {
	by  *model.Service
	id  rowID
	obj *model.Workload
}

func newSelector() *selector { return &selector{spaces: map[string]*space{}} }

func (s *selector) space(namespace string) *space {
	sp := s.spaces[namespace]
	if sp == nil {
		sp = &space{
			workloads: map[rowID]*model.Workload{},
			services:  map[pair]map[rowID]*model.Service{},
			pools:     map[poolKey]*pool{},
		}
		s.spaces[namespace] = sp
	}
	return sp
}

// tidy forgets a namespace that holds nothing.
func (s *selector) tidy(namespace string) {
	if sp := s.spaces[namespace]; len(sp.workloads) == 0 && len(sp.services) == 0 {
		delete(s.spaces, namespace)
	}
}

// pivot gives the pair under which a service is indexed; false if it selects nothing.
func pivot(sel model.Selector) (pair, bool) {
	if len(sel.Labels) == 0 {
		return pair{}, false
	}
	k := slices.Min(slices.Collect(maps.Keys(sel.Labels)))
	return pair{k, sel.Labels[k]}, true
}

func (s *selector) addService(id rowID, svc *model.Service) {
	p, ok := pivot(svc.Selector)
	if !ok {
		return
	}
	sp := s.space(svc.Namespace)
	if sp.services[p] == nil {
		sp.services[p] = map[rowID]*model.Service{}
	}
	sp.services[p][id] = svc
	pk := poolKey{p, svc.Selector.Pods}
	if sp.pools[pk] == nil {
		sp.pools[pk] = sp.newPool(pk)
	}
	sp.pools[pk].users++
}

func (sp *space) newPool(k poolKey) *pool {
	p := &pool{members: map[rowID]*model.Workload{}}
	for id, w := range sp.workloads {
		if k.admits(w) {
			p.members[id] = w
		}
	}
	return p
}

func (k poolKey) admits(w *model.Workload) bool {
	v, ok := w.Labels[k.key]
	return ok && v == k.value && (k.pods || w.Kind == model.KindWorkloadEntry)
}

func (s *selector) dropService(id rowID, svc *model.Service) {
	p, ok := pivot(svc.Selector)
	if !ok {
		return
	}
	sp := s.spaces[svc.Namespace]
	delete(sp.services[p], id)
	if len(sp.services[p]) == 0 {
		delete(sp.services, p)
	}
	pk := poolKey{p, svc.Selector.Pods}
	if sp.pools[pk].users--; sp.pools[pk].users == 0 {
		delete(sp.pools, pk)
	}
	s.tidy(svc.Namespace)
}

func (s *selector) addWorkload(id rowID, w *model.Workload) {
	sp := s.space(w.Namespace)
	sp.workloads[id] = w
	for pk, p := range sp.poolsOf(w) {
		if pk.admits(w) {
			p.members[id] = w
		}
	}
}

func (s *selector) dropWorkload(id rowID, w *model.Workload) {
	sp := s.spaces[w.Namespace]
	delete(sp.workloads, id)
	for _, p := range sp.poolsOf(w) {
		delete(p.members, id)
	}
	s.tidy(w.Namespace)
}

func (sp *space) poolsOf(w *model.Workload) iter.Seq2[poolKey, *pool] {
	return func(yield func(poolKey, *pool) bool) {
		for k, v := range w.Labels {
			for _, pods := range [...]bool{false, true} {
				pk := poolKey{pair{k, v}, pods}
				if p := sp.pools[pk]; p != nil && !yield(pk, p) {
					return
				}
			}
		}
	}
}

// selects reports whether a service of one shard selects a workload of another.
func selects(from model.ShardKey, svc *model.Service, at model.ShardKey, w *model.Workload) bool {
	switch {
	case w.Namespace != svc.Namespace, !w.Labels.Matches(svc.Selector.Labels):
		return false
	case svc.Selector.Reach == model.SameCluster && from.Cluster != at.Cluster:
		return false
	}
	return svc.Selector.Pods || w.Kind == model.KindWorkloadEntry
}

// selecting yields the services whose selector matches the workload.
func (s *selector) selecting(id rowID, w *model.Workload) iter.Seq[*model.Service] {
	return func(yield func(*model.Service) bool) {
		sp := s.spaces[w.Namespace]
		if sp == nil {
			return
		}
		for k, v := range w.Labels {
			for from, svc := range sp.services[pair{k, v}] {
				if selects(from.shard, svc, id.shard, w) && !yield(svc) {
					return
				}
			}
		}
	}
}

// join gives the workloads that a service row selects, in no particular order.
func (s *selector) join(id rowID, svc *model.Service) []selected {
	p, ok := pivot(svc.Selector)
	if !ok {
		return nil
	}
	sp := s.spaces[svc.Namespace]
	if sp == nil {
		return nil
	}
	pl := sp.pools[poolKey{p, svc.Selector.Pods}]
	if pl == nil {
		return nil
	}
	var out []selected
	for wid, w := range pl.members {
		if selects(id.shard, svc, wid.shard, w) {
			out = append(out, selected{by: svc, id: wid, obj: w})
		}
	}
	return out
}
