package aggregate

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/pushcontext"
)

// lookup is how the merge of a FederatedService reads the rows of its sources.
type lookup struct {
	services  directory // what registries say, before FederatedServices
	endpoints func(hostKey) []row[*model.Endpoints]
	join      func(rowID, *model.Service) []selected
}

// takeOver has the FederatedService of a host define what the host means to the mesh. Where settings, or a member, keep the
// host to members, it stays what it is there.
func (b *basis) takeOver(k hostKey, parts []*mergeInput, rows lookup) []*mergeInput {
	f := b.federations.of(k)
	if f != nil && parts[0].key.Cluster != "" {
		parts = slices.Insert(parts, 0, &mergeInput{key: model.ServiceKey{Namespace: k.namespace, Host: k.host}, basis: b})
	}
	for _, in := range parts {
		in.join = rows.join
	}
	if f != nil {
		parts[0].federation, parts[0].lookup = f, rows
	}
	return parts
}

// derive gives the service that a FederatedService makes of its sources.
func (f *federation) derive(in *mergeInput) (*pushcontext.ShapeView, *gathered) {
	shape := f.shape(in)
	g := &gathered{}
	var said []saying
	for i := range f.sources {
		at := len(g.leftOut)
		c := collection{in: in, f: f, source: &f.sources[i], shape: shape, into: g}
		c.collect()
		c.blame(g.leftOut[at:])
		g.sources, said = append(g.sources, c.state), append(said, c.said...)
		shape.ServiceAccounts = append(shape.ServiceAccounts, c.accounts...)
	}
	f.speak(shape, said, g.sources)
	f.notes(in, shape)
	slices.Sort(shape.ServiceAccounts)
	shape.ServiceAccounts = slices.Compact(shape.ServiceAccounts)
	f.leaveOut(in, g)
	g.settle(shape)
	return shape, g
}

// shape is the definition. Addresses are those that registries give the host, so that clients are intercepted where
// they were before; a host that had its place among others keeps it.
func (f *federation) shape(in *mergeInput) *pushcontext.ShapeView {
	alone := &mergeInput{basis: in.basis, key: in.key, services: []row[*model.Service]{f.def}}
	s := newShape(alone, []ranked{f.def})
	kin := f.kin(in.lookup.services)
	s.Federation, s.Native, s.Alias = f.published, false, ""
	s.MeshAddresses = s.AutoAddresses || !slices.ContainsFunc(kin, func(d row[*model.Service]) bool { return native(d.obj) })
	if !s.AutoAddresses {
		s.Addresses = mergeAddresses(kin)
	}
	defs := rank(in)
	if len(defs) == 0 {
		return s
	}
	win := defs[0].obj
	s.Name, s.Native = win.Name, native(win)
	if model.Older(win.Created, s.Created) < 0 {
		s.Created = win.Created
	}
	for _, d := range in.services {
		s.Contributions = append(s.Contributions, pushcontext.Contribution{Source: d.obj.Source})
	}
	return s
}

// notes records what definitions of the service's host say otherwise.
func (f *federation) notes(in *mergeInput, s *pushcontext.ShapeView) {
	defs := rank(in)
	for _, d := range defs {
		if notes := drops(s.Ports, d.obj); len(notes) > 0 {
			s.Conflicts = append(s.Conflicts, conflict("ports", f.def.obj, d.obj, strings.Join(notes, "; ")))
		}
	}
	if len(defs) > 0 {
		s.Conflicts = append(s.Conflicts, policyConflicts(append([]ranked{f.def}, defs...), in.mesh)...)
	}
}

// drops says which ports of a definition the service has otherwise, or not at all.
func drops(ports []model.Port, d *model.Service) (notes []string) {
	for _, p := range d.Ports {
		i := indexPort(ports, p)
		switch {
		case i < 0:
			notes = append(notes, portText(p)+" dropped: add it to the FederatedService's ports to keep it")
		case ports[i].Protocol != p.Protocol:
			notes = append(notes, portText(ports[i])+" kept, "+portText(p)+" dropped")
		}
	}
	return notes
}

// leaveOut says why endpoints of the service's own host are not among its own.
func (f *federation) leaveOut(in *mergeInput, g *gathered) {
	used := slices.ContainsFunc(f.sources, func(s federated) bool { return s.names(f.def.obj) })
	if used && slices.ContainsFunc(in.services, func(d row[*model.Service]) bool { return !imported(d.obj) }) {
		return
	}
	reason, detail := model.ReasonNoService, ""
	if !used {
		reason, detail = model.ReasonConflictLost, f.name()+" is what the host means, and names other sources"
	}
	for _, r := range in.endpoints {
		g.leftOut = append(g.leftOut, r.obj.LeftOut...)
		for i := range r.obj.Endpoints {
			e := &r.obj.Endpoints[i]
			g.refuse(candidate{ep: e, port: e.PortName, source: sourceOf(e, r.obj)}, reason, detail)
		}
	}
}

func (f *federation) name() string {
	return model.ConfigFederatedService + " " + f.key.namespace + "/" + f.from.Name
}

// collection is the endpoints of one source on their way into the service.
type collection struct {
	in       *mergeInput
	f        *federation
	source   *federated
	shape    *pushcontext.ShapeView
	into     *gathered
	state    pushcontext.SourceState
	accounts []string
	said     []saying // of services, by port
	kept     int
}

func (c *collection) collect() {
	if c.source.selecting != nil {
		c.workloads()
	} else {
		c.services()
	}
	slices.Sort(c.state.Unmapped)
	c.state.Unmapped = slices.Compact(c.state.Unmapped)
}

// fail says why the source gives nothing. What was said first stays.
func (c *collection) fail(why model.Reason, format string, args ...any) {
	if c.state.Reason == "" {
		c.state.Reason, c.state.Detail = why, fmt.Sprintf(format, args...)
	}
}

// blame explains a source without endpoints by the first candidate that was refused.
func (c *collection) blame(refused []model.LeftOut) {
	switch {
	case c.kept > 0:
		c.state.Reason, c.state.Detail = "", ""
	case len(refused) > 0:
		c.fail(refused[0].Reason, "%s", refused[0].Detail)
	default:
		c.fail(model.ReasonNoEndpoints, "there is no endpoint")
	}
}

// within reports whether the source takes what a registry says.
func (c *collection) within(k model.ShardKey) bool {
	return c.f.published.Sources[c.source.part-1].Takes(k)
}

// take makes a candidate one of the service's, if the source takes what is of its registry and its member.
func (c *collection) take(x candidate) {
	if !c.within(x.id.shard) || len(c.source.spec.Clusters) > 0 && !slices.Contains(c.source.spec.Clusters, string(x.ep.Addr.Cluster)) {
		return
	}
	x.part, x.priority, x.rank = c.source.part, c.source.priority, 0
	switch {
	case x.ep.Addr.Host != "" && !isSocket(x.ep.Addr):
		c.into.refuse(x, model.ReasonWrongKind, "a FederatedService takes addresses, and its source "+c.name()+" has DNS names")
	case c.source.weight == 0 && c.shape.Federation.Policy == pushcontext.FederateWeighted:
		c.into.refuse(x, model.ReasonZeroWeight, "its source "+c.name()+" has the weight 0")
	default:
		c.into.kept = append(c.into.kept, x)
		c.kept++
	}
}

func (c *collection) name() string { return c.shape.Federation.Sources[c.source.part-1].Name }

// services collects the endpoints of the services that have the source's host.
func (c *collection) services() {
	found := map[hostKey][]row[*model.Service]{}
	for _, r := range c.in.lookup.services(c.source.host) {
		if k := (hostKey{r.obj.Namespace, r.obj.Host}); c.source.names(r.obj) && c.within(r.id.shard) {
			found[k] = append(found[k], r)
		}
	}
	for _, k := range slices.SortedFunc(maps.Keys(found), compareHosts) {
		sortRows(found[k])
		c.host(k, found[k])
	}
	if c.state.Empty = len(found) == 0; c.state.Empty {
		c.fail(model.ReasonNoService, "%s", c.unknown(c.source.host))
	}
}

// unknown says that there is no service of the host, and where it was looked for.
func (c *collection) unknown(host string) string {
	text := "no service has the host " + host
	if ns := c.source.spec.Namespace; ns != "" {
		text += " in the namespace " + ns
	}
	if list := c.source.spec.Registries; len(list) > 0 {
		text += " in " + strings.Join(list, ", ")
	}
	return text
}

// host collects the endpoints of one service, as they are without any FederatedService.
func (c *collection) host(k hostKey, services []row[*model.Service]) {
	endpoints := slices.DeleteFunc(slices.Clone(c.in.lookup.endpoints(k)), func(r row[*model.Endpoints]) bool { return !c.within(r.id.shard) })
	for _, part := range partition(k, services, endpoints, c.in.basis, nil) {
		switch {
		case part.key.Cluster != "":
			c.fail(model.ReasonClusterLocal, "%s is kept to %s", k.host, part.key.Cluster)
			continue
		case !part.defined():
			c.fail(model.ReasonNoService, "%s", c.unknown(k.host))
			continue
		}
		defs := rank(part)
		if win := defs[0].obj; k.namespace != c.f.key.namespace && !exportOf(win, c.in.mesh).Includes(c.f.key.namespace) {
			c.fail(model.ReasonHidden, "%s of the namespace %s is exported to %s, and not to %s", k.host, k.namespace, exportText(win), c.f.key.namespace)
			continue
		}
		c.service(part, defs)
	}
}

func (c *collection) service(part *mergeInput, defs []ranked) {
	part.join = c.in.join
	ports, _ := mergePorts(defs)
	got := gather(part, defs, &pushcontext.ShapeView{Key: part.key, Ports: ports, Resolution: defs[0].obj.Resolution})
	c.accounts = append(c.accounts, mergeAccounts(part.services)...)
	c.into.leftOut = append(c.into.leftOut, got.leftOut...)
	for _, p := range c.shape.Ports {
		from, ok := sourcePort(c.source.spec.Ports, p, ports, c.shape.Ports)
		if !ok {
			c.state.Unmapped = append(c.state.Unmapped, p.Name)
			c.fail(model.ReasonNoPort, "%s has no port for %s: it has %s; map one in the ports of the source", part.key.Host, p.Name, portsText(ports))
			continue
		}
		c.said = append(c.said, saying{c.source.part, p.Name, from.Protocol})
		for _, x := range got.kept {
			if x.port == from.Name {
				x.port = p.Name
				c.take(x)
			}
		}
	}
}

func portsText(ports []model.Port) string {
	out := make([]string, 0, len(ports))
	for _, p := range ports {
		out = append(out, portText(p))
	}
	return strings.Join(out, ", ")
}

// workloads collects those that have the source's labels.
func (c *collection) workloads() {
	at := *c.in
	at.key.Namespace = c.source.selecting.obj.Namespace // whose PeerAuthentications hold for them
	list := c.in.join(c.source.selecting.id, c.source.selecting.obj)
	slices.SortFunc(list, func(a, b selected) int { return a.id.compare(b.id) })
	for _, s := range list {
		for _, p := range c.shape.Ports {
			number, ok := instancePort(s.obj, c.source.spec.Ports, p)
			x := candidate{ep: workloadEndpoint(s, p.Name, number), id: s.id, source: &s.obj.Source, port: p.Name, selected: true}
			got := &gathered{}
			if got.consider(&at, c.shape, x, p.Name, true); !ok && c.within(s.id.shard) {
				c.into.refuse(x, model.ReasonNoPort, "the workload has several ports, and none is called "+p.Name+": map one in the ports of the source")
				continue
			}
			c.into.leftOut = append(c.into.leftOut, got.leftOut...)
			for _, x := range got.kept {
				c.take(x)
			}
		}
	}
	if c.state.Empty = len(list) == 0; c.state.Empty {
		c.fail(model.ReasonNoEndpoints, "no workload of the namespace %s has the labels %s", at.key.Namespace, model.Labels(c.source.spec.Selector))
	}
}
