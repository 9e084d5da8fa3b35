package aggregate

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/pushcontext"
)

// candidate is an endpoint on its way into a view.
type candidate struct {
	ep       *model.Endpoint // as in the row; never handed out, see freeze
	port     string          // name of the merged service's port
	network  string
	mtls     model.MTLS
	mtlsBy   *model.Source
	other    model.MTLS // at ports that no PeerAuthentication names
	source   *model.Source
	id       rowID
	index    int    // within the row
	rank     int    // of the definition that it belongs to
	selected bool   // by a selector, not stated by its registry
	part     uint16 // see model.Endpoint.Part
	priority uint32 // of that source
}

// gathered is the outcome of looking at every candidate of a service.
type gathered struct {
	kept    []candidate // by port, locality, address
	leftOut []model.LeftOut
	sources []pushcontext.SourceState // of a FederatedService's service
}

// gather collects the endpoints of all shards and of selected workloads, and leaves out those that
// can't be served, with reasons.
func gather(in *mergeInput, defs []ranked, shape *pushcontext.ShapeView) *gathered {
	n := 0
	for _, r := range in.endpoints {
		n += len(r.obj.Endpoints)
	}
	g := &gathered{kept: make([]candidate, 0, n)}
	names := newPortNames(defs, shape.Ports)
	for _, r := range in.endpoints {
		g.leftOut = append(g.leftOut, r.obj.LeftOut...)
		own, rank := names.ofRow(r.id), rankOf(defs, r.id)
		for i := range r.obj.Endpoints {
			e := &r.obj.Endpoints[i]
			name, known := own.of(e.PortName)
			g.consider(in, shape, candidate{ep: e, id: r.id, index: i, rank: rank, source: sourceOf(e, r.obj), port: e.PortName}, name, known)
		}
	}
	for _, d := range in.services {
		for _, s := range in.join(d.id, d.obj) {
			g.selected(in, shape, s, names.ofRow(d.id), rankOf(defs, d.id))
		}
	}
	g.settle(shape)
	return g
}

// rankOf gives the place of a row's definition; behind all others if it is of none.
func rankOf(defs []ranked, id rowID) int {
	if i := slices.IndexFunc(defs, func(d ranked) bool { return d.id == id }); i >= 0 {
		return i
	}
	return len(defs)
}

func sourceOf(e *model.Endpoint, r *model.Endpoints) *model.Source {
	if e.Source != nil {
		return e.Source
	}
	return &r.Source
}

func (g *gathered) consider(in *mergeInput, shape *pushcontext.ShapeView, c candidate, port string, known bool) {
	switch {
	case !known:
		g.refuse(c, model.ReasonNoPort, "the service has no port of this name")
		return
	case c.ep.Addr.Host != "" && !shape.Resolution.IsDNS() && !(isSocket(c.ep.Addr) && shape.Resolution == model.ClientSideLB && !c.selected):
		g.refuse(c, model.ReasonWrongKind, "resolution "+shape.Resolution.String()+" takes IP addresses only")
		return
	case in.key.Cluster != "" && c.ep.Addr.Cluster != in.key.Cluster:
		g.refuse(c, model.ReasonClusterLocal, "the service is kept to "+string(in.key.Cluster))
		return
	}
	c.port, c.network = port, c.ep.Network
	if c.network == "" {
		c.network = in.mesh.network(c.ep.Addr)
	}
	d := in.auth.demands(in.key.Namespace, c.ep.Labels, c.ep.Addr.AddrPort.Port())
	c.mtls, c.mtlsBy = d.mode, d.source()
	c.other = in.auth.demands(in.key.Namespace, c.ep.Labels, 0).mode
	g.kept = append(g.kept, c)
}

func isSocket(a model.Addr) bool { return strings.HasPrefix(a.Host, "unix://") }

func (g *gathered) refuse(c candidate, why model.Reason, detail string) {
	g.leftOut = append(g.leftOut, model.LeftOut{Addr: c.ep.Addr, Port: c.port, Reason: why, Detail: detail, Source: *c.source})
}

// selected makes one endpoint per port of the service that selects the workload.
func (g *gathered) selected(in *mergeInput, shape *pushcontext.ShapeView, s selected, names definitionNames, rank int) {
	for _, p := range s.by.Ports {
		number, ok := workloadPort(s.obj, p)
		e := workloadEndpoint(s, p.Name, number)
		c := candidate{ep: e, id: s.id, rank: rank, source: &s.obj.Source, port: p.Name, selected: true}
		if !ok {
			g.refuse(c, model.ReasonNoPort, "the workload names no port "+p.TargetName)
			continue
		}
		name, known := names.of(p.Name)
		g.consider(in, shape, c, name, known)
	}
}

// workloadPort finds the port of a workload that backs a service port: its own name for the target
// port, its name for the service port, the numeric target port, the only port of an instance of a foreign registry, then
// the service port.
func workloadPort(w *model.Workload, p model.Port) (uint16, bool) {
	if isSocket(w.Address) {
		return 0, true
	}
	if n, ok := w.Ports[p.TargetName]; ok && p.TargetName != "" {
		return n, true
	}
	if n, ok := w.Ports[p.Name]; ok && p.Name != "" {
		return n, true
	}
	if w.Kind == model.KindInstance && len(w.Ports) == 1 && p.TargetPort == 0 {
		for _, n := range w.Ports {
			return n, p.TargetName == ""
		}
	}
	return cmp.Or(p.TargetPort, p.Number), p.TargetName == ""
}

func workloadEndpoint(s selected, port string, number uint16) *model.Endpoint {
	w := s.obj
	e := &model.Endpoint{
		Addr:     model.Addr{Cluster: s.id.shard.Cluster, Host: w.Address.Host, AddrPort: netip.AddrPortFrom(w.Address.AddrPort.Addr(), number)},
		PortName: port, Health: w.Health, Weight: w.Weight, Labels: w.Labels, Locality: w.Locality, Network: w.Network,
		TLSMode: w.TLSMode, ServiceAccount: w.ServiceAccount, Node: w.Node, Source: &w.Source,
		Workload: model.ObjectKey{Kind: string(w.Kind), Namespace: w.Namespace, Name: w.Name}, Alternatives: alternativesAt(w, number),
	}
	if w.Address.Cluster != "" {
		e.Addr.Cluster = w.Address.Cluster
	}
	if e.Health == 0 {
		e.Health = model.Healthy
	}
	if e.TLSMode == "" && w.Kind == model.KindWorkloadEntry && w.ServiceAccount != "" {
		e.TLSMode = model.TLSIstio
	}
	return e
}

// alternativesAt are those of a workload at one of its ports, or at another.
func alternativesAt(w *model.Workload, number uint16) *model.Alternatives {
	if w.Alternatives == nil {
		return nil
	}
	known := slices.Contains(slices.Collect(maps.Values(w.Ports)), number)
	out := slices.Clone(*w.Alternatives)
	for i := range out {
		if a := &out[i]; a.Port == 0 || !known {
			a.Port = number
		}
	}
	return &out
}

// settle removes duplicates: of one address and port in one network, a registry's own statement beats a selected
// workload, then the first shard, the newest statement and the first object win. Networks may use the same
// addresses.
func (g *gathered) settle(shape *pushcontext.ShapeView) {
	slices.SortFunc(g.kept, compareCandidates)
	kept := g.kept[:0]
	for _, c := range g.kept {
		if len(kept) > 0 && kept[len(kept)-1].same(c) {
			w := &kept[len(kept)-1]
			w.rank = min(w.rank, c.rank)
			w.join(c)
			if w.id != c.id || w.index != c.index { // else it is selected twice
				g.refuse(c, model.ReasonDuplicate, "also known from "+w.source.Shard.String()+" "+w.source.Object.String())
			}
			continue
		}
		kept = append(kept, c)
	}
	g.kept = kept
	if shape.Resolution == model.DNSRoundRobin {
		g.single()
	}
	slices.SortStableFunc(g.kept, func(a, b candidate) int { // within these, as before
		if c := strings.Compare(a.port, b.port); c != 0 {
			return c
		}
		return a.ep.Locality.Compare(b.ep.Locality)
	})
	slices.SortFunc(g.leftOut, compareLeftOut)
}

// single keeps one endpoint per port: a LOGICAL_DNS cluster resolves exactly one name. It is the first of the first
// definition that has one.
func (g *gathered) single() {
	slices.SortStableFunc(g.kept, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(a.rank, b.rank), a.id.compare(b.id), cmp.Compare(a.index, b.index))
	})
	seen := map[string]bool{}
	kept := g.kept[:0]
	for _, c := range g.kept {
		if seen[c.port] {
			g.refuse(c, model.ReasonConflictLost, "round-robin DNS resolves one name per port")
			continue
		}
		seen[c.port] = true
		kept = append(kept, c)
	}
	g.kept = kept
	slices.SortFunc(g.kept, compareCandidates)
}

func compareCandidates(a, b candidate) int {
	if c := a.ep.Addr.Compare(b.ep.Addr); c != 0 {
		return c
	}
	if c := cmp.Or(strings.Compare(a.port, b.port), strings.Compare(a.network, b.network)); c != 0 {
		return c
	}
	if !a.ep.Addr.Dialable() { // several workloads behind one gateway are several endpoints
		if c := a.id.compare(b.id); c != 0 {
			return c
		}
	}
	return cmp.Or(
		-compareTrue(a.selected, b.selected), a.id.shard.Compare(b.id.shard),
		b.source.Time.Compare(a.source.Time), strings.Compare(a.id.key, b.id.key), cmp.Compare(a.index, b.index),
	)
}

func (c candidate) same(o candidate) bool {
	return c.ep.Addr == o.ep.Addr && c.port == o.port && c.network == o.network && (c.ep.Addr.Dialable() || c.id == o.id)
}

// join has an address that several sources have be of the first of the best priority.
func (c *candidate) join(o candidate) {
	if cmp.Or(cmp.Compare(o.priority, c.priority), cmp.Compare(o.part, c.part)) < 0 {
		c.part, c.priority = o.part, o.priority
	}
}

func compareLeftOut(a, b model.LeftOut) int {
	if c := a.Addr.Compare(b.Addr); c != 0 {
		return c
	}
	return cmp.Or(
		strings.Compare(a.Port, b.Port), strings.Compare(string(a.Reason), string(b.Reason)),
		a.Source.Shard.Compare(b.Source.Shard), strings.Compare(a.Source.Object.String(), b.Source.Object.String()),
		strings.Compare(a.Detail, b.Detail),
	)
}

// portNames translates the port names of each definition to those of the merged service.
type portNames struct {
	merged []model.Port
	byRow  map[rowID]map[string]string          // nil when all definitions agree
	first  map[model.ShardKey]map[string]string // of each shard's first definition
}

func newPortNames(defs []ranked, merged []model.Port) portNames {
	n := portNames{merged: merged}
	if len(defs) == 1 || slices.EqualFunc(defs[1:], defs[:len(defs)-1], func(a, b ranked) bool {
		return slices.EqualFunc(a.obj.Ports, b.obj.Ports, func(p, q model.Port) bool { return p.Name == q.Name && samePort(p, q) })
	}) {
		return n
	}
	n.byRow, n.first = map[rowID]map[string]string{}, map[model.ShardKey]map[string]string{}
	for _, d := range defs {
		own := make(map[string]string, len(d.obj.Ports))
		for _, p := range d.obj.Ports {
			if _, taken := own[p.Name]; !taken {
				own[p.Name] = merged[placePort(merged, d, p)].Name
			}
		}
		n.byRow[d.id] = own
		if n.first[d.id.shard] == nil {
			n.first[d.id.shard] = own
		}
	}
	return n
}

// ofRow gives the names in the definition that an endpoints row belongs to: the one of the same
// object (the inline endpoints of a ServiceEntry), or else its shard's first, which is the Service if
// there is one.
func (n portNames) ofRow(id rowID) definitionNames {
	own, ok := n.byRow[id]
	if !ok {
		own = n.first[id.shard]
	}
	return definitionNames{own, n.merged}
}

// definitionNames translates the port names of one definition.
type definitionNames struct {
	own    map[string]string // nil: as in the merged service
	merged []model.Port
}

func (n definitionNames) of(name string) (string, bool) {
	if n.own != nil {
		got, ok := n.own[name]
		return got, ok
	}
	return name, slices.ContainsFunc(n.merged, func(p model.Port) bool { return p.Name == name })
}

// group makes the view's endpoints. An endpoint whose content is that of its predecessor keeps the
// predecessor's pointer, so that its source tells the revision that brought the content.
func (g *gathered) group(old *pushcontext.ServiceView) []pushcontext.PortEndpoints {
	f := freezer{sources: map[sourceKey]*model.Source{}}
	var out []pushcontext.PortEndpoints
	for i := 0; i < len(g.kept); {
		port := g.kept[i].port
		pe := pushcontext.PortEndpoints{Port: port}
		var before []pushcontext.LocalityEndpoints
		if old != nil {
			before = old.Port(port)
		}
		for i < len(g.kept) && g.kept[i].port == port {
			j := i
			for j < len(g.kept) && g.kept[j].port == port && g.kept[j].ep.Locality == g.kept[i].ep.Locality {
				j++
			}
			pe.Localities = append(pe.Localities, f.locality(g.kept[i:j], before))
			i = j
		}
		out = append(out, pe)
	}
	return out
}

// freezer copies endpoints out of rows, so that a view never keeps a whole row alive for the sake of
// one endpoint.
type freezer struct{ sources map[sourceKey]*model.Source }

type sourceKey struct {
	id     rowID
	object model.ObjectKey
}

func (f *freezer) locality(cs []candidate, before []pushcontext.LocalityEndpoints) pushcontext.LocalityEndpoints {
	l := pushcontext.LocalityEndpoints{Locality: cs[0].ep.Locality, Endpoints: make([]*model.Endpoint, 0, len(cs))}
	var prev []*model.Endpoint
	for i := range before {
		if before[i].Locality == l.Locality {
			prev = before[i].Endpoints
		}
	}
	for _, c := range cs {
		for len(prev) > 0 && prev[0].Addr.Compare(c.ep.Addr) < 0 {
			prev = prev[1:]
		}
		l.Endpoints = append(l.Endpoints, f.endpoint(c, prev))
	}
	return l
}

func (f *freezer) endpoint(c candidate, prev []*model.Endpoint) *model.Endpoint {
	for _, p := range prev { // more than one only for address-less endpoints, and on several networks
		if p.Addr != c.ep.Addr {
			break
		}
		if c.equal(p) {
			return p
		}
	}
	e := *c.ep
	e.PortName, e.Network, e.MTLS, e.MTLSSource, e.OtherMTLS, e.Part, e.Source = c.port, c.network, c.mtls, c.mtlsBy, c.other, c.part, f.source(c)
	return &e
}

func (f *freezer) source(c candidate) *model.Source {
	key := sourceKey{c.id, c.source.Object}
	if s := f.sources[key]; s != nil && *s == *c.source {
		return s
	}
	s := *c.source
	f.sources[key] = &s
	return &s
}

// equal reports whether a published endpoint has the candidate's content; where it came from counts,
// at which revision does not.
func (c candidate) equal(p *model.Endpoint) bool {
	e := c.ep
	return p.PortName == c.port && p.Part == c.part && p.Network == c.network && p.MTLS == c.mtls && sameSourceOrNone(p.MTLSSource, c.mtlsBy) && p.OtherMTLS == c.other && p.Health == e.Health && p.Weight == e.Weight && p.Locality == e.Locality &&
		p.TLSMode == e.TLSMode && p.ServiceAccount == e.ServiceAccount && p.Workload == e.Workload && p.Node == e.Node &&
		p.Hostname == e.Hostname && sameSource(p.Source, c.source) && p.Labels.Equal(e.Labels) && p.Alternatives.Equal(e.Alternatives)
}

func sameSource(a, b *model.Source) bool { return a.Shard == b.Shard && a.Object == b.Object }

func sameSourceOrNone(a, b *model.Source) bool {
	return a == b || a != nil && b != nil && sameSource(a, b)
}

// demotedShards are the demoted shards that endpoints came from.
func (g *gathered) demotedShards(demoted map[model.ShardKey]bool) []model.ShardKey {
	if len(demoted) == 0 {
		return nil
	}
	var out []model.ShardKey
	for _, c := range g.kept {
		if demoted[c.id.shard] {
			out = append(out, c.id.shard)
		}
	}
	slices.SortFunc(out, model.ShardKey.Compare)
	return slices.Compact(out)
}
