package aggregate

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/pushcontext"
)

// mergeInput is everything one merged service depends on. Rows are sorted by id.
type mergeInput struct {
	*basis
	key       model.ServiceKey
	services  []row[*model.Service]
	endpoints []row[*model.Endpoints]
	join      func(rowID, *model.Service) []selected
	old       *pushcontext.ServiceView
	// federation is the FederatedService that the service is, nil for others; lookup is for its sources.
	federation *federation
	lookup     lookup
}

// merge derives a service from its rows. The result is in depends only on the input's content, and is
// in.old itself if nothing differs; parts that do not differ keep their pointers.
func merge(in *mergeInput) *pushcontext.ServiceView {
	shape, e := in.derive()
	view := &pushcontext.ServiceView{
		Endpoints: e.group(in.old), Networks: used(in.networks.resolved, e.kept), LeftOut: e.leftOut, Demoted: e.demotedShards(in.demoted), Sources: e.sources,
	}
	if inlined(shape) {
		shape.Inline = view.Endpoints
	}
	if direct(shape) {
		shape.MutualPorts = mutualPorts(view.Endpoints)
	}
	if shape.Resolution.IsDNS() {
		shape.Networks = used(in.networks.named, e.kept)
	}
	view.Shape = shape
	if in.old == nil {
		return view
	}
	if sameShape(in.old.Shape, shape) {
		view.Shape = in.old.Shape
	}
	if view.Shape == in.old.Shape && sameEndpoints(in.old, view) {
		return in.old
	}
	return view
}

// derive gives the definition, and the endpoints of all rows.
func (in *mergeInput) derive() (*pushcontext.ShapeView, *gathered) {
	if in.federation != nil {
		return in.federation.derive(in)
	}
	ranked := rank(in)
	shape := newShape(in, ranked)
	return shape, gather(in, ranked, shape)
}

// ranked is a definition and its place in the order of precedence.
type ranked = row[*model.Service]

func native(s *model.Service) bool { return s.Source.Object.Kind != "ServiceEntry" }

// imported tells the row by which a member knows a service that others export: it holds the service's
// addresses there, and defines nothing.
func imported(s *model.Service) bool { return s.ClusterSet && s.Source.Object.Kind == "ServiceImport" }

// defined reports whether there is a service: what is imported only, nobody exports.
func (in *mergeInput) defined() bool {
	return in.federation != nil || slices.ContainsFunc(in.services, func(s row[*model.Service]) bool { return !imported(s.obj) })
}

// rank sorts definitions by precedence: service objects before ServiceEntries (so that nobody can
// take over a service by claiming its host), those of clusters before those of foreign registries, then the config cluster's,
// then older ones, then by shard and object. Of an exported service the oldest export decides, wherever it is (conflict resolution of the
// Multi-Cluster Services API).
func rank(in *mergeInput) []ranked {
	config := in.mesh.view.ConfigCluster
	out := slices.DeleteFunc(slices.Clone(in.services), func(s ranked) bool { return imported(s.obj) })
	first := func(r ranked) bool { return r.id.shard.Cluster == config && !r.obj.ClusterSet }
	slices.SortFunc(out, func(a, b ranked) int {
		return cmp.Or(
			compareTrue(native(a.obj), native(b.obj)),
			compareTrue(!a.id.shard.Provider.Foreign(), !b.id.shard.Provider.Foreign()),
			compareTrue(first(a), first(b)),
			model.Older(a.obj.Created, b.obj.Created),
			a.id.compare(b.id),
		)
	})
	return out
}

// compareTrue puts true first.
func compareTrue(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	}
	return 1
}

func newShape(in *mergeInput, defs []ranked) *pushcontext.ShapeView {
	win := defs[0].obj
	ports, conflicts := mergePorts(defs)
	s := &pushcontext.ShapeView{
		Key: in.key, Name: win.Name, Ports: ports, Resolution: win.Resolution, External: win.External,
		Traffic: win.Traffic, NodeLocal: win.NodeLocal, PublishNotReady: win.PublishNotReady, Persistent: win.Persistent,
		OwnPorts: ownPorts(win), Created: win.Created, Native: native(win), MeshAddresses: !native(win), AutoAddresses: in.automatic[hostKey{in.key.Namespace, in.key.Host}] != nil, Mesh: in.mesh.view,
		Addresses: in.addresses(defs[0]), ServiceAccounts: mergeAccounts(in.services),
	}
	s.Export, s.Policies, s.VirtualServices = exportOf(win, in.mesh), in.policies(in.key.Host), in.virtualServices(in.key.Host)
	s.Alias, s.Aliases = in.aliases.target[in.key.Host], in.aliases.names[in.key.Host]
	s.Conflicts = append(conflicts, policyConflicts(defs, in.mesh)...)
	for _, d := range in.services {
		s.Contributions = append(s.Contributions, pushcontext.Contribution{Source: d.obj.Source, Generation: d.obj.Generation, Won: d.obj == win})
	}
	return s
}

// ownPorts reports whether Gateways do not mean a service's ports (label experimental.istio.io/disable-gateway-port-translation).
func ownPorts(s *model.Service) bool {
	_, ok := s.Labels["experimental.istio.io/disable-gateway-port-translation"]
	return ok
}

func exportOf(s *model.Service, m *mesh) pushcontext.Export {
	return pushcontext.NewExport(s.ExportTo, m.view.Config.DefaultServiceExportTo, s.Namespace)
}

// samePort tells ports: a number may exist twice, once for UDP.
func samePort(a, b model.Port) bool {
	return a.Number == b.Number && (a.Protocol == model.ProtocolUDP) == (b.Protocol == model.ProtocolUDP)
}

func indexPort(ports []model.Port, p model.Port) int {
	return slices.IndexFunc(ports, func(q model.Port) bool { return samePort(p, q) })
}

// placePort finds the port that stands for one of a definition: that of its number. Of a foreign registry the number is that
// of instances, which clients of other definitions never dial: there it is, next to that, the one of its name and protocol.
func placePort(ports []model.Port, d ranked, p model.Port) int {
	if i := indexPort(ports, p); i >= 0 || !d.id.shard.Provider.Foreign() {
		return i
	}
	i := slices.IndexFunc(ports, func(q model.Port) bool { return q.Name == p.Name && q.Protocol == p.Protocol })
	if i >= 0 && indexPort(d.obj.Ports, ports[i]) >= 0 {
		return -1 // another port of the definition has that number
	}
	return i
}

// mergePorts is the union by number (see placePort); of several definitions of a number the first by precedence is
// kept. Names stay unique, since endpoints are matched by them.
func mergePorts(defs []ranked) ([]model.Port, []pushcontext.Conflict) {
	var ports []model.Port
	var conflicts []pushcontext.Conflict
	for i, d := range defs {
		var notes []string
		for _, p := range d.obj.Ports {
			kept := placePort(ports, d, p)
			switch {
			case kept < 0:
				p.Name = freeName(ports, p)
				ports = append(ports, p)
				if i > 0 {
					notes = append(notes, portText(p)+" added")
				}
			case ports[kept].Name != p.Name || ports[kept].Protocol != p.Protocol:
				notes = append(notes, portText(ports[kept])+" kept, "+portText(p)+" dropped")
			case ports[kept].Number != p.Number:
				notes = append(notes, portText(p)+" is "+portText(ports[kept]))
			}
		}
		if i > 0 && len(notes) > 0 {
			conflicts = append(conflicts, conflict("ports", defs[0].obj, d.obj, strings.Join(notes, "; ")))
		}
	}
	slices.SortStableFunc(ports, func(a, b model.Port) int {
		return cmp.Or(cmp.Compare(a.Number, b.Number), compareTrue(a.Protocol != model.ProtocolUDP, b.Protocol != model.ProtocolUDP))
	})
	return ports, conflicts
}

// freeName gives the port's name or, if another port has it, one made from its number.
func freeName(ports []model.Port, p model.Port) string {
	taken := func(name string) bool {
		return slices.ContainsFunc(ports, func(q model.Port) bool { return q.Name == name })
	}
	if !taken(p.Name) {
		return p.Name
	}
	name := strings.TrimPrefix(p.Name+"-"+strconv.Itoa(int(p.Number)), "-")
	for i, base := 2, name; taken(name); i++ {
		name = base + "-" + strconv.Itoa(i)
	}
	return name
}

func portText(p model.Port) string {
	return strconv.Itoa(int(p.Number)) + "/" + p.Protocol.String() + " " + strconv.Quote(p.Name)
}

func conflict(field string, win, lose *model.Service, detail string) pushcontext.Conflict {
	return pushcontext.Conflict{Field: field, Winner: win.Source, Loser: lose.Source, Detail: detail}
}

// policyConflicts records where definitions disagree in what only the winner decides.
func policyConflicts(defs []ranked, m *mesh) []pushcontext.Conflict {
	var out []pushcontext.Conflict
	win := defs[0].obj
	export := exportOf(win, m)
	for _, d := range defs[1:] {
		o := d.obj
		if o.Resolution != win.Resolution {
			out = append(out, conflict("resolution", win, o, resolutionText(win)+" kept, "+resolutionText(o)+" dropped"))
		}
		if !exportOf(o, m).Equal(export) {
			out = append(out, conflict("exportTo", win, o, exportText(win)+" kept, "+exportText(o)+" dropped"))
		}
		if o.External != win.External {
			out = append(out, conflict("location", win, o, locationText(win)+" kept, "+locationText(o)+" dropped"))
		}
	}
	return out
}

// resolutionText is the resolution as a ServiceEntry has it.
func resolutionText(s *model.Service) string {
	switch s.Resolution {
	case model.ClientSideLB:
		return "STATIC"
	case model.DNSLB:
		return "DNS"
	case model.DNSRoundRobin:
		return "DNS_ROUND_ROBIN"
	case model.Passthrough:
		return "NONE"
	case model.DynamicDNS:
		return "DYNAMIC_DNS"
	}
	return s.Resolution.String()
}

func exportText(s *model.Service) string {
	if len(s.ExportTo) == 0 {
		return "mesh default"
	}
	return strings.Join(s.ExportTo, ",")
}

func locationText(s *model.Service) string {
	if s.External {
		return "MESH_EXTERNAL"
	}
	return "MESH_INTERNAL"
}

// addresses gives the virtual addresses, automatic ones to whom they are given.
func (in *mergeInput) addresses(win ranked) map[model.ClusterID][]netip.Prefix {
	if list := in.automatic[hostKey{in.key.Namespace, in.key.Host}]; list != nil {
		return map[model.ClusterID][]netip.Prefix{win.id.shard.Cluster: list}
	}
	return mergeAddresses(in.services)
}

// mergeAddresses keeps virtual addresses apart by member. An unspecified address never becomes one:
// it would be taken for a listener on everything.
func mergeAddresses(defs []row[*model.Service]) map[model.ClusterID][]netip.Prefix {
	out := map[model.ClusterID][]netip.Prefix{}
	for _, d := range defs {
		if d.obj.AutoAddress {
			continue // what it had before is no claim
		}
		for _, p := range d.obj.Addresses {
			if p.IsValid() && !p.Addr().IsUnspecified() {
				out[d.id.shard.Cluster] = append(out[d.id.shard.Cluster], p)
			}
		}
	}
	for c, ps := range out {
		slices.SortFunc(ps, netip.Prefix.Compare)
		out[c] = slices.Compact(ps)
	}
	return out
}

func mergeAccounts(defs []row[*model.Service]) []string {
	var out []string
	for _, d := range defs {
		out = append(out, d.obj.ServiceAccounts...)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// inlined reports whether clusters or listeners of the service contain its endpoints.
func inlined(s *pushcontext.ShapeView) bool {
	if s.Resolution.IsDNS() {
		return true
	}
	return s.Resolution == model.Passthrough && slices.ContainsFunc(s.Ports, func(p model.Port) bool { return !p.Protocol.IsHTTP() })
}

// direct reports whether connections to the service go, for some proxies, where the application opened them.
func direct(s *pushcontext.ShapeView) bool {
	passes := func(t *networking.TrafficPolicy) bool {
		return t.GetLoadBalancer().GetSimple() == networking.LoadBalancerSettings_PASSTHROUGH ||
			slices.ContainsFunc(t.GetPortLevelSettings(), func(l *networking.TrafficPolicy_PortTrafficPolicy) bool {
				return l.GetLoadBalancer().GetSimple() == networking.LoadBalancerSettings_PASSTHROUGH
			})
	}
	return s.Resolution == model.Passthrough || s.Resolution == model.ClientSideLB && slices.ContainsFunc(s.Policies, func(p *pushcontext.DestinationPolicy) bool {
		return passes(p.Spec.GetTrafficPolicy()) || slices.ContainsFunc(p.Spec.GetSubsets(), func(x *networking.Subset) bool { return passes(x.GetTrafficPolicy()) })
	})
}

// mutualPorts gives the ports behind which every endpoint takes mutual TLS.
func mutualPorts(ports []pushcontext.PortEndpoints) []string {
	var out []string
	for _, p := range ports {
		if len(p.Localities) > 0 && !slices.ContainsFunc(p.Localities, func(l pushcontext.LocalityEndpoints) bool {
			return slices.ContainsFunc(l.Endpoints, func(e *model.Endpoint) bool { return e.TLSMode != model.TLSIstio || e.MTLS == model.MTLSDisabled })
		}) {
			out = append(out, p.Port)
		}
	}
	return out
}

// partition tells the services that the rows of one host stand for: one for the whole mesh, and one
// for each member that keeps the host to itself. One without definitions is no service, but a place
// for endpoints that belong to none. Where settings do that to a host everywhere, a
// definition that is not bound to a member (a ServiceEntry) counts in each of the attached clusters,
// so that their proxies find the workloads beside them.
func partition(k hostKey, services []row[*model.Service], endpoints []row[*model.Endpoints], b *basis, clusters []model.ClusterID) []*mergeInput {
	everywhere := b.mesh.clusterLocal(k.host)
	local := map[model.ClusterID]bool{}
	for _, s := range services {
		if everywhere || s.obj.ClusterLocal {
			local[s.id.shard.Cluster] = true
		}
	}
	if len(local) == 0 {
		return []*mergeInput{{key: model.ServiceKey{Namespace: k.namespace, Host: k.host}, services: services, endpoints: endpoints, basis: b}}
	}
	if everywhere {
		for _, c := range clusters {
			local[c] = true
		}
	}
	parts := map[model.ClusterID]*mergeInput{}
	for _, s := range services {
		at := []model.ClusterID{s.id.shard.Cluster}
		if everywhere && s.obj.Selector.Reach == model.AnyCluster {
			at = clusters
		}
		for _, c := range at {
			in := part(parts, k, c, local, b)
			in.services = append(in.services, s)
		}
	}
	for _, e := range endpoints {
		in := part(parts, k, e.id.shard.Cluster, local, b)
		in.endpoints = append(in.endpoints, e)
	}
	return sortedParts(parts)
}

// boundNowhere reports whether the attached clusters decide which services a host stands for.
func boundNowhere(k hostKey, services []row[*model.Service], m *mesh) bool {
	return slices.ContainsFunc(services, func(s row[*model.Service]) bool { return s.obj.Selector.Reach == model.AnyCluster }) && m.clusterLocal(k.host)
}

func part(parts map[model.ClusterID]*mergeInput, k hostKey, c model.ClusterID, local map[model.ClusterID]bool, b *basis) *mergeInput {
	if !local[c] {
		c = ""
	}
	in := parts[c]
	if in == nil {
		in = &mergeInput{key: model.ServiceKey{Cluster: c, Namespace: k.namespace, Host: k.host}, basis: b}
		parts[c] = in
	}
	return in
}

func sortedParts(parts map[model.ClusterID]*mergeInput) []*mergeInput {
	return slices.SortedFunc(maps.Values(parts), func(a, b *mergeInput) int { return a.key.Compare(b.key) })
}
