package aggregate

import (
	"iter"
	"maps"
	"slices"
	"strings"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/pushcontext"
)

// shard is the writer's copy of what one registry contributed.
type shard struct {
	key       model.ShardKey
	rows      map[model.RowKey]model.Object
	counts    [model.RowKinds]int
	configs   map[string]*model.Config // by row key
	notServed map[string]int           // accepted configuration that nothing uses, by kind
}

// row is a row of one kind together with where it came from.
type row[T any] struct {
	id  rowID
	obj T
}

// hostRows is everything known of one host in one namespace. Rows are sorted by id.
type hostRows struct {
	services  []row[*model.Service]
	endpoints []row[*model.Endpoints]
	views     []*pushcontext.ServiceView // as last published: one, or one per member that keeps the host local
	orphans   []model.ServiceKey         // under which endpoints without a service are listed
}

func (h *hostRows) empty() bool { return len(h.services)+len(h.endpoints)+len(h.views) == 0 }

// state is all shards and the indexes over them. It belongs to the controller goroutine; merge
// workers only read it, while that goroutine waits for them.
type state struct {
	shards      map[model.ShardKey]*shard
	hosts       map[hostKey]*hostRows
	named       map[string][]hostKey // keys of hosts, by host in lower case
	sel         *selector
	dirty       map[hostKey]struct{}
	mesh        bool                // a mesh-wide configuration row changed
	configs     bool                // any other configuration row changed
	redefined   map[string]struct{} // hosts of which definitions changed, in lower case
	gateways    *gatewayIndex
	addresses   *addressIndex
	aliases     *aliasIndex
	kinds       map[string]*kindRows        // of kinds that merging depends on
	federations *federations                // as of the last basis
	places      map[placeID]*model.Workload // that came, moved or (nil) went
	touched     *touched                    // notes what changes while a scrub is under way; nil otherwise
}

func newState() *state {
	return &state{
		shards: map[model.ShardKey]*shard{},
		hosts:  map[hostKey]*hostRows{},
		named:  map[string][]hostKey{}, redefined: map[string]struct{}{},
		sel:      newSelector(),
		dirty:    map[hostKey]struct{}{},
		places:   map[placeID]*model.Workload{},
		gateways: newGatewayIndex(), addresses: newAddressIndex(), aliases: newAliasIndex(), kinds: newKinds(),
	}
}

func (s *state) shard(k model.ShardKey) *shard {
	sh := s.shards[k]
	if sh == nil {
		sh = &shard{key: k, rows: map[model.RowKey]model.Object{}, configs: map[string]*model.Config{}, notServed: map[string]int{}}
		s.shards[k] = sh
	}
	return sh
}

// put sets or, with a nil object, deletes one row, and reports whether that is a change.
func (s *state) put(sh *shard, k model.RowKey, obj model.Object) bool {
	old := sh.rows[k]
	if old == obj {
		return false
	}
	if old != nil {
		s.unindex(sh, k, old)
		delete(sh.rows, k)
	}
	if obj != nil {
		sh.rows[k] = obj
		s.index(sh, k, obj)
	}
	if k.Kind == model.RowWorkload {
		s.moved(rowID{sh.key, k.Key}, old, obj)
	}
	return true
}

// replaceOrder puts services first, so that workloads land in pools that exist.
var replaceOrder = [...]model.Kind{model.RowConfig, model.RowService, model.RowWorkload, model.RowEndpoints}

// replace makes the shard equal to the new truth and touches only rows that differ. It gives the
// number of changed rows.
func (s *state) replace(sh *shard, next *model.ShardState, valid func(model.RowKey, model.Object) bool) int {
	changed := 0
	for k := range sh.rows {
		if obj, ok := next.Row(k); !ok || !valid(k, obj) {
			s.put(sh, k, nil)
			changed++
		}
	}
	for _, kind := range replaceOrder {
		for k, obj := range next.Rows() {
			if k.Kind == kind && valid(k, obj) && s.put(sh, k, obj) {
				changed++
			}
		}
	}
	return changed
}

// drop removes the shard and all its rows.
func (s *state) drop(sh *shard) {
	for k := range sh.rows {
		s.put(sh, k, nil)
	}
	delete(s.shards, sh.key)
}

func (s *state) host(k hostKey) *hostRows {
	h := s.hosts[k]
	if h == nil {
		h = &hostRows{}
		s.hosts[k] = h
		name := strings.ToLower(k.host)
		s.named[name] = append(s.named[name], k)
	}
	return h
}

// forget removes a host of which nothing is left.
func (s *state) forget(k hostKey) {
	delete(s.hosts, k)
	name := strings.ToLower(k.host)
	rest := slices.DeleteFunc(s.named[name], func(o hostKey) bool { return o == k })
	if s.named[name] = rest; len(rest) == 0 {
		delete(s.named, name)
	}
}

func (s *state) index(sh *shard, k model.RowKey, obj model.Object) {
	id := rowID{sh.key, k.Key}
	sh.counts[k.Kind]++
	switch o := obj.(type) {
	case *model.Service:
		hk := hostKey{o.Namespace, o.Host}
		h := s.host(hk)
		h.services = insertRow(h.services, id, o)
		s.redefined[strings.ToLower(o.Host)] = struct{}{}
		s.sel.addService(id, o)
		s.gateways.addService(id, o)
		s.addresses.count(hk, o, 1)
		s.aliases.count(o, 1)
		s.mark(hk)
	case *model.Endpoints:
		hk := hostKey{o.Namespace, o.Host}
		h := s.host(hk)
		h.endpoints = insertRow(h.endpoints, id, o)
		s.mark(hk)
	case *model.Workload:
		s.sel.addWorkload(id, o)
		s.markSelecting(id, o)
	case *model.Config:
		sh.configs[k.Key] = o
		if kind := s.kinds[o.Kind]; kind != nil {
			kind.set(id, o)
		}
		s.config(sh, o, 1)
	}
}

func (s *state) unindex(sh *shard, k model.RowKey, obj model.Object) {
	id := rowID{sh.key, k.Key}
	sh.counts[k.Kind]--
	switch o := obj.(type) {
	case *model.Service:
		hk := hostKey{o.Namespace, o.Host}
		h := s.host(hk)
		h.services = removeRow(h.services, id)
		s.redefined[strings.ToLower(o.Host)] = struct{}{}
		s.sel.dropService(id, o)
		s.gateways.dropService(id)
		s.addresses.count(hk, o, -1)
		s.aliases.count(o, -1)
		s.mark(hk)
	case *model.Endpoints:
		hk := hostKey{o.Namespace, o.Host}
		h := s.host(hk)
		h.endpoints = removeRow(h.endpoints, id)
		s.mark(hk)
	case *model.Workload:
		s.markSelecting(id, o)
		s.sel.dropWorkload(id, o)
	case *model.Config:
		delete(sh.configs, k.Key)
		if kind := s.kinds[o.Kind]; kind != nil {
			kind.drop(id)
		}
		s.config(sh, o, -1)
	}
}

// mark has a host merged again, and the FederatedServices of which it may be a source.
func (s *state) mark(k hostKey) {
	s.markOne(k)
	for _, f := range s.federations.fed(k.host) {
		s.markOne(f)
	}
}

func (s *state) markOne(k hostKey) {
	s.dirty[k] = struct{}{}
	if s.touched != nil {
		s.touched.hosts[k] = struct{}{}
	}
}

func (s *state) markSelecting(id rowID, w *model.Workload) {
	if s.touched != nil {
		s.touched.spaces[w.Namespace] = struct{}{}
	}
	for svc := range s.sel.selecting(id, w) {
		s.mark(hostKey{svc.Namespace, svc.Host})
	}
}

func (s *state) config(sh *shard, c *model.Config, n int) {
	s.configs = true
	if meshWide(c) {
		s.mesh = true
		return
	}
	if !c.NotServed {
		return
	}
	if sh.notServed[c.Kind] += n; sh.notServed[c.Kind] == 0 {
		delete(sh.notServed, c.Kind)
	}
}

func insertRow[T any](rows []row[T], id rowID, obj T) []row[T] {
	i, found := findRow(rows, id)
	if found {
		rows[i].obj = obj
		return rows
	}
	return slices.Insert(rows, i, row[T]{id, obj})
}

func removeRow[T any](rows []row[T], id rowID) []row[T] {
	if i, found := findRow(rows, id); found {
		return slices.Delete(rows, i, i+1)
	}
	return rows
}

func findRow[T any](rows []row[T], id rowID) (int, bool) {
	return slices.BinarySearchFunc(rows, id, func(r row[T], id rowID) int { return r.id.compare(id) })
}

// shardKeys lists the shards.
func (s *state) shardKeys() []model.ShardKey { return slices.Collect(maps.Keys(s.shards)) }

// sortedShards gives the shards by key.
func (s *state) sortedShards() []*shard {
	return slices.SortedFunc(maps.Values(s.shards), func(a, b *shard) int { return a.key.Compare(b.key) })
}

// clusters gives the members that have a shard, sorted.
func (s *state) clusters() []model.ClusterID { return clustersOf(maps.Keys(s.shards)) }

// clustersOf gives the members that shards belong to, sorted.
func clustersOf(shards iter.Seq[model.ShardKey]) []model.ClusterID {
	var out []model.ClusterID
	for k := range shards {
		if !k.Provider.OfHub() {
			out = append(out, k.Cluster)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}
