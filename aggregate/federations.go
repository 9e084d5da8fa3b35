package aggregate

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	api "github.com/isthmus-mesh/isthmus/api/v1alpha1"
	"github.com/isthmus-mesh/isthmus/pushcontext"
)

// federations are the FederatedServices in force, one for each host of a namespace. Immutable.
type federations struct {
	byKey     map[hostKey]*federation
	feeds     map[string][]hostKey // by host of a service, in lower case: of what it may be a source, sorted
	conflicts []pushcontext.Conflict
}

// federation is a FederatedService in force: what its host means. Immutable.
type federation struct {
	published *pushcontext.Federation
	from      *model.Config
	key       hostKey
	def       row[*model.Service] // the service that it defines
	sources   []federated
	open      []string // names of ports whose protocol registries say
}

// federated is a source of a federation.
type federated struct {
	spec     *api.FederatedSource
	host     string // "" if it is workloads
	part     uint16 // from 1
	priority uint32
	weight   uint32
	// selecting is what selects workloads, nil if the source is a service.
	selecting *row[*model.Service]
}

// maxSources is how many sources a FederatedService has at most: as many priorities as Envoy knows.
const maxSources = 128

// newFederations reads FederatedServices. Of several for one host of a namespace the oldest is in force. What is made from the
// same object as in old keeps its pointer.
func newFederations(rows []row[*model.Config], config model.ClusterID, old *federations) *federations {
	objects, conflicts := inForce(rows, config)
	out := &federations{byKey: map[hostKey]*federation{}, feeds: map[string][]hostKey{}, conflicts: conflicts}
	ids := map[*model.Config]rowID{}
	for _, r := range rows {
		ids[r.obj] = r.id
	}
	for _, c := range objects {
		spec, ok := c.Spec.(*api.FederatedServiceSpec)
		if !ok || spec.Host == "" || len(spec.Ports) == 0 || len(spec.Sources) == 0 {
			continue
		}
		key := hostKey{c.Namespace, strings.TrimSuffix(spec.Host, ".")}
		if w := out.byKey[key]; w != nil {
			out.conflicts = append(out.conflicts, pushcontext.Conflict{
				Field: model.ConfigFederatedService, Winner: w.from.Source, Loser: c.Source, Detail: "both are for the host " + key.host + ": the older one, or else the first by name, is used",
			})
			continue
		}
		f := old.of(key)
		if f == nil || f.from != c {
			f = newFederation(key, c, spec, ids[c])
		}
		out.add(f)
	}
	slices.SortFunc(out.conflicts, compareConflicts)
	return out
}

// of gives what defines a host, nil if it is no FederatedService.
func (fs *federations) of(k hostKey) *federation {
	if fs == nil {
		return nil
	}
	return fs.byKey[k]
}

// keys are the hosts of FederatedServices, for the caller to keep.
func (fs *federations) keys() map[hostKey]struct{} {
	out := map[hostKey]struct{}{}
	if fs != nil {
		for k := range fs.byKey {
			out[k] = struct{}{}
		}
	}
	return out
}

// fed gives the FederatedServices of which a host may be a source.
func (fs *federations) fed(host string) []hostKey {
	if fs == nil {
		return nil
	}
	return fs.feeds[strings.ToLower(host)]
}

func (fs *federations) add(f *federation) {
	fs.byKey[f.key] = f
	hosts := map[string]struct{}{strings.ToLower(f.key.host): {}} // workloads of other namespaces are selected under it
	for _, s := range f.sources {
		if s.host != "" {
			hosts[strings.ToLower(s.host)] = struct{}{}
		}
	}
	for h := range hosts {
		list := append(fs.feeds[h], f.key)
		slices.SortFunc(list, compareHosts)
		fs.feeds[h] = list
	}
}

func newFederation(key hostKey, c *model.Config, spec *api.FederatedServiceSpec, id rowID) *federation {
	ports, open := federatedPorts(spec)
	f := &federation{key: key, from: c, open: open, published: &pushcontext.Federation{Source: c.Source, Policy: policyOf(spec.Policy)}}
	f.def = row[*model.Service]{id, &model.Service{
		Host: key.host, Namespace: key.namespace, Name: key.host, Ports: ports, Resolution: model.ClientSideLB, ExportTo: spec.ExportTo,
		Labels: c.Labels, Created: c.Created, Source: c.Source,
	}}
	for i := range spec.Sources[:min(len(spec.Sources), maxSources)] {
		s := &spec.Sources[i]
		x := federated{spec: s, host: strings.TrimSuffix(s.Host, "."), part: uint16(i + 1), priority: uint32(i), weight: 1}
		if s.Priority != nil {
			x.priority = *s.Priority
		}
		if s.Weight != nil {
			x.weight = *s.Weight
		}
		from := pushcontext.FederationSource{Name: cmp.Or(s.Name, s.Host), Host: x.host, Namespace: s.Namespace, Registries: s.Registries, Priority: x.priority, Weight: x.weight}
		if x.host == "" {
			from.Name, from.Namespace = cmp.Or(s.Name, model.Labels(s.Selector).String()), cmp.Or(s.Namespace, key.namespace)
			x.selecting = &row[*model.Service]{rowID{id.shard, fmt.Sprint(id.key, "#", i)}, &model.Service{
				Host: key.host, Namespace: from.Namespace, Source: c.Source,
				Selector: model.Selector{Labels: s.Selector, Reach: model.AnyCluster, Pods: true},
			}}
		}
		if slices.ContainsFunc(f.published.Sources, func(o pushcontext.FederationSource) bool { return o.Name == from.Name }) {
			from.Name += fmt.Sprint("#", i)
		}
		f.sources, f.published.Sources = append(f.sources, x), append(f.published.Sources, from)
	}
	if f.published.Policy != pushcontext.FederateFailover {
		for i := range f.sources {
			f.sources[i].priority, f.published.Sources[i].Priority = 0, 0
		}
	}
	return f
}

func policyOf(p api.FederationPolicy) pushcontext.FederationPolicy {
	switch p {
	case api.FederateFailover:
		return pushcontext.FederateFailover
	case api.FederateWeighted:
		return pushcontext.FederateWeighted
	}
	return pushcontext.FederateUnion
}

// federatedPorts leaves out ports of which the name or the number is there already. The protocol of one that has none is that of the first
// source that maps one; where none does, registries say it: these ports are open.
func federatedPorts(spec *api.FederatedServiceSpec) (out []model.Port, open []string) {
	for _, p := range spec.Ports {
		word := p.Protocol
		for i := range spec.Sources {
			word = cmp.Or(word, spec.Sources[i].Ports[p.Name].Protocol)
		}
		next := model.Port{Name: p.Name, Number: p.Number, Protocol: federatedProtocol(word)}
		if next.Number == 0 || slices.ContainsFunc(out, func(q model.Port) bool { return q.Name == next.Name || q.Number == next.Number }) {
			continue
		}
		if out = append(out, next); word == "" {
			open = append(open, p.Name)
		}
	}
	slices.SortFunc(out, func(a, b model.Port) int { return cmp.Compare(a.Number, b.Number) })
	return out, open
}

// federatedProtocol leaves a protocol that is not known to proxies to detect.
func federatedProtocol(word string) model.Protocol {
	p, _ := model.RegistryProtocol(strings.ToLower(word))
	return p
}

// differ gives the hosts of which the FederatedService is not as it was.
func (fs *federations) differ(old *federations) (out []hostKey) {
	for k, f := range fs.byKey {
		if old.of(k) != f {
			out = append(out, k)
		}
	}
	if old == nil {
		return out
	}
	for k := range old.byKey {
		if fs.byKey[k] == nil {
			out = append(out, k)
		}
	}
	return out
}

// federate reads FederatedServices, and gives the rows as they are with what these define.
func (b *basis) federate(config model.ClusterID, src sources, anew bool) sources {
	old := b.federations
	if anew || src.changed(model.ConfigFederatedService) || old == nil {
		b.federations = newFederations(src.kind(model.ConfigFederatedService), config, old)
	}
	changed := map[string]struct{}{}
	for _, k := range b.federations.differ(old) {
		changed[k.host] = struct{}{}
	}
	if len(b.federations.byKey) == 0 && len(changed) == 0 {
		return src
	}
	return b.federations.define(src, changed)
}

// define puts what FederatedServices define in the place of what registries say of their hosts.
func (fs *federations) define(src sources, changed map[string]struct{}) sources {
	raw := src
	src.directory = fs.directory(raw.directory)
	src.names = func(m *mesh) map[string]alias {
		out := raw.names(m)
		for k := range fs.byKey {
			delete(out, k.host)
		}
		return out
	}
	src.askers = func() []asker { return fs.askers(raw.askers(), raw.directory) }
	src.changed = func(kinds ...string) bool {
		return raw.changed(kinds...) || len(changed) > 0 && (slices.Contains(kinds, rowsAutomatic) || slices.Contains(kinds, rowsAliases))
	}
	src.touched = func(hosts map[string]struct{}) bool {
		for h := range changed {
			if _, ok := hosts[strings.ToLower(h)]; ok {
				return true
			}
		}
		return raw.touched(hosts)
	}
	return src
}

// directory gives the definitions in force.
func (fs *federations) directory(raw directory) directory {
	byHost := map[string][]*federation{}
	for _, k := range slices.SortedFunc(maps.Keys(fs.byKey), compareHosts) {
		name := strings.ToLower(k.host)
		byHost[name] = append(byHost[name], fs.byKey[k])
	}
	return func(host string) []row[*model.Service] {
		list, own := raw(host), byHost[strings.ToLower(host)]
		if len(own) == 0 {
			return list
		}
		list = slices.DeleteFunc(slices.Clone(list), func(r row[*model.Service]) bool { return fs.byKey[hostKey{r.obj.Namespace, r.obj.Host}] != nil })
		for _, f := range own {
			list = append(list, f.def)
		}
		return list
	}
}

// askers gives the services that ask for addresses: those of FederatedServices whose host has none.
func (fs *federations) askers(list []asker, raw directory) []asker {
	list = slices.DeleteFunc(list, func(a asker) bool { return fs.byKey[a.key] != nil })
	for k, f := range fs.byKey {
		a := asker{key: k, created: f.from.Created}
		rows := f.kin(raw)
		for _, r := range rows {
			if r.obj.AutoAddress {
				a.had = append(a.had, r.obj.Automatic...)
			}
		}
		if len(mergeAddresses(rows)) == 0 && slices.ContainsFunc(f.def.obj.Ports, func(p model.Port) bool { return p.Protocol != model.ProtocolUDP }) {
			list = append(list, a)
		}
	}
	return list
}

// kin gives what registries say of the service's own host: in its namespace, and where it is a source. Sorted by namespace,
// then id.
func (f *federation) kin(raw directory) []row[*model.Service] {
	rows := slices.DeleteFunc(slices.Clone(raw(f.key.host)), func(r row[*model.Service]) bool {
		return r.obj.Host != f.key.host || r.obj.Namespace != f.key.namespace && !slices.ContainsFunc(f.sources, func(s federated) bool { return s.names(r.obj) })
	})
	slices.SortFunc(rows, func(a, b row[*model.Service]) int {
		return cmp.Or(strings.Compare(a.obj.Namespace, b.obj.Namespace), a.id.compare(b.id))
	})
	return rows
}

// names reports whether a definition is of the service that the source is.
func (s *federated) names(d *model.Service) bool {
	return s.host != "" && strings.EqualFold(s.host, d.Host) && (s.spec.Namespace == "" || s.spec.Namespace == d.Namespace)
}

// selectsIn reports whether workloads of some namespaces may be among its endpoints.
func (f *federation) selectsIn(some func(namespace string) bool) bool {
	return f != nil && slices.ContainsFunc(f.sources, func(s federated) bool { return s.selecting != nil && some(s.selecting.obj.Namespace) })
}

// federate takes note of the FederatedServices in force: what changes for a source from now on changes for them.
func (s *state) federate(next *federations) {
	old := s.federations
	if old == next {
		return
	}
	s.federations = next
	changed := next.differ(old)
	for _, k := range changed { // before any comes: an object may have another host now
		if f := old.of(k); f != nil {
			f.each(s.sel.dropService)
			add(s.addresses.federated, strings.ToLower(k.host), -1)
		}
	}
	for _, k := range changed {
		if f := next.of(k); f != nil {
			f.each(s.sel.addService)
			add(s.addresses.federated, strings.ToLower(k.host), 1)
			s.host(k)
		}
		s.mark(k)
	}
}

// each calls do with what selects workloads.
func (f *federation) each(do func(rowID, *model.Service)) {
	for _, s := range f.sources {
		if s.selecting != nil {
			do(s.selecting.id, s.selecting.obj)
		}
	}
}

// lookup reads the rows of the writer.
func (s *state) lookup() lookup {
	return lookup{services: s.directory, join: s.sel.join, endpoints: func(k hostKey) []row[*model.Endpoints] {
		if h := s.hosts[k]; h != nil {
			return h.endpoints
		}
		return nil
	}}
}
