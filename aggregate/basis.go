package aggregate

import (
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/pushcontext"
)

// hostWait is how long start-up waits for the addresses of gateways that are known by name.
const hostWait = 6 * time.Second

// basis is what every merge stands on beside the rows of its host: settings and configuration. Its parts
// are immutable, but for demoted, which the controller goroutine changes between commits.
type basis struct {
	mesh            *mesh
	networks        networks
	rules           *rules
	auth            *auth
	federations     *federations
	automatic       automatic
	aliases         *aliases
	routes          *routes
	servers         []*model.Config // Gateways in force
	serverConflicts []pushcontext.Conflict
	gateways        *gateways
	scopes          *scopes
	scoped          []string                // namespaces in which scopes changed since the last commit
	conflicts       []pushcontext.Conflict  // between objects of rules, auth, routes, servers and scopes
	demoted         map[model.ShardKey]bool // shards that are stale for too long
	linear          bool                    // rules and routes are found without their index
}

// policies gives the DestinationRules for a host.
func (b *basis) policies(host string) []*pushcontext.DestinationPolicy {
	if b.linear {
		return b.rules.scan(host)
	}
	return b.rules.match(host)
}

// virtualServices gives the VirtualServices of sidecars for a host.
func (b *basis) virtualServices(host string) []*pushcontext.VirtualService {
	if b.linear {
		return b.routes.byHost.scan(host)
	}
	return b.routes.match(host)
}

// sources are the rows that a basis is made from, and what of them changed.
type sources struct {
	gateways  []row[*model.Service]
	kind      func(string) []row[*model.Config]
	changed   func(kinds ...string) bool
	names     func(*mesh) map[string]alias
	askers    func() []asker
	reserved  map[netip.Prefix]int
	directory directory
	touched   func(hosts map[string]struct{}) bool // the services of some of these hosts, in lower case, changed
}

// update gives the basis for new rows. Parts of which no row changed, and which stay the same, keep their
// pointers.
func (b basis) update(settings *mesh, src sources) basis {
	next, anew := b, b.mesh == nil || settings != b.mesh
	src = next.federate(settings.view.ConfigCluster, src, anew)
	next.locate(settings, src, anew)
	next.read(settings, src, anew)
	next.mesh = settings.with(next.networks.names(), passthrough(next.servers))
	next.route(src, &b, anew || next.mesh != b.mesh)
	next.conflicts = slices.Concat(next.rules.conflicts, next.auth.conflicts, next.serverConflicts, next.federations.conflicts, next.aliases.conflicts, next.routes.conflicts, next.scopes.conflicts)
	return next
}

// locate works out gateways into networks, automatic addresses and what names stand for.
func (b *basis) locate(settings *mesh, src sources, anew bool) {
	if anew || src.changed(model.ConfigNetworkGateway, model.ConfigResolvedHost) {
		configs := slices.Concat(src.kind(model.ConfigNetworkGateway), src.kind(model.ConfigResolvedHost))
		b.networks = newNetworks(settings, gatewaySources{services: src.gateways, configs: configs}, b.networks)
	}
	if anew || src.changed(rowsAutomatic) {
		b.automatic = newAutomatic(src.askers(), src.reserved)
	}
	if anew || src.changed(rowsAliases) {
		if next := newAliases(src.names(settings), src.directory); !next.same(b.aliases) {
			b.aliases = next
		}
	}
}

// read reads the objects that hold for services, and Gateways.
func (b *basis) read(settings *mesh, src sources, anew bool) {
	if anew || src.changed(model.ConfigDestinationRule) {
		old := b.rules
		if anew {
			old = nil
		}
		b.rules = newRules(src.kind(model.ConfigDestinationRule), settings, old)
	}
	if anew || src.changed(model.ConfigPeerAuthentication) {
		b.auth = newAuth(src.kind(model.ConfigPeerAuthentication), settings)
	}
	if anew || src.changed(model.ConfigGateway) {
		b.servers, b.serverConflicts = inForce(src.kind(model.ConfigGateway), settings.view.ConfigCluster)
	}
}

// route makes VirtualServices, and what they are joined with: Gateways and scopes.
func (b *basis) route(src sources, old *basis, anew bool) {
	if anew || b.rules != old.rules || b.aliases != old.aliases || src.changed(model.ConfigVirtualService) || src.touched(old.routes.hosts) {
		b.routes = b.reroute(src, old.routes, anew)
	}
	routed := anew || b.routes != old.routes && !slices.Equal(b.routes.all, old.routes.all)
	if routed || src.changed(model.ConfigGateway) {
		b.gateways = newGateways(b.servers, b.mesh.view, b.routes.all, old.gateways, b.linear)
	}
	if read := anew || src.changed(model.ConfigSidecar, model.ConfigTelemetry); read || routed {
		b.rescope(src, old.scopes, read)
	}
}

// rescope makes the scopes, and notes whom they concern.
func (b *basis) rescope(src sources, old *scopes, read bool) {
	next := old
	if read {
		next = newScopes(scopeRows{src.kind(model.ConfigSidecar), src.kind(model.ConfigTelemetry)}, b.mesh, old)
	}
	scopes, scoped := next.bind(b.routes, old)
	b.scopes, b.scoped = scopes, slices.Concat(b.scoped, scoped)
}

// reroute makes the VirtualServices.
func (b *basis) reroute(src sources, old *routes, anew bool) *routes {
	var objects []*model.Config
	var contested []pushcontext.Conflict
	if anew || src.changed(model.ConfigVirtualService) {
		objects, contested = inForce(src.kind(model.ConfigVirtualService), b.mesh.view.ConfigCluster)
	} else {
		objects, contested = old.objects, old.contested
	}
	return newRoutes(objects, contested, routeSources{b.mesh, b.rules, b.aliases, src.directory}, old, anew)
}

// difference tells the hosts that may be merged into something else than on another basis.
type difference struct {
	patterns *patternSet
	tests    []func(hostKey, *hostRows) bool
}

// differs compares with an old basis, given equal mesh-wide settings.
func (b *basis) differs(old *basis) difference {
	d := difference{patterns: &patternSet{}}
	changed := networks{named: gone(old.networks.named, b.networks.named), resolved: gone(old.networks.resolved, b.networks.resolved)}
	if len(changed.named)+len(changed.resolved) > 0 {
		d.tests = append(d.tests, func(_ hostKey, h *hostRows) bool {
			return slices.ContainsFunc(h.views, func(v *pushcontext.ServiceView) bool { return onAny(v, changed) })
		})
	}
	if b.rules != old.rules {
		comparePatterns(d.patterns, &b.rules.byHost, &old.rules.byHost)
	}
	b.automatic.differs(d.patterns, old.automatic)
	b.aliases.differs(d.patterns, old.aliases)
	if b.routes != old.routes {
		comparePatterns(d.patterns, &b.routes.byHost, &old.routes.byHost)
	}
	if b.auth != old.auth {
		demanded := b.auth.differs(old.auth)
		d.tests = append(d.tests, func(k hostKey, _ *hostRows) bool {
			return demanded(k.namespace) || b.federations.of(k).selectsIn(demanded)
		})
	}
	return d
}

// markDifferent marks the hosts that a difference concerns. Single hosts are found without a look at all.
func (s *state) markDifferent(d difference) {
	if len(d.tests) == 0 && !d.patterns.wild() {
		for host := range d.patterns.keys {
			for _, k := range s.named[host] {
				s.mark(k)
			}
		}
		return
	}
	for k, h := range s.hosts {
		if d.patterns.has(k.host) || slices.ContainsFunc(d.tests, func(t func(hostKey, *hostRows) bool) bool { return t(k, h) }) {
			s.mark(k)
		}
	}
}

// refreshBasis derives settings and configuration anew if their rows changed, and marks what is merged into
// something else then.
func (c *Controller) refreshBasis() {
	settings := c.settings()
	if settings != c.mesh {
		c.state.gateways.name(settings.gatewayHosts(), c.state.hosts)
	} else if !c.state.reconfigured() && !c.state.touches(c.routes.hosts) {
		c.state.settled()
		return
	}
	old := c.basis
	c.basis = old.update(settings, c.state.sources())
	c.state.settled()
	c.state.federate(c.federations)
	if !slices.EqualFunc(old.conflicts, c.conflicts, sameConflict) {
		c.infoChanged = true
		c.contested(old.conflicts)
	}
	if !slices.Equal(old.networks.resolved, c.networks.resolved) {
		c.infoChanged = true
		c.reasons["networks"]++
	}
	if c.opts.OnHosts != nil && !slices.Equal(old.networks.hosts, c.networks.hosts) {
		c.opts.OnHosts(c.networks.hosts)
	}
	if c.mesh == old.mesh {
		c.state.markDifferent(c.basis.differs(&old))
		return
	}
	for k := range c.state.hosts {
		c.state.mark(k)
	}
	c.reasons["global"]++
}

// contested counts the conflicts, and logs new ones.
func (c *Controller) contested(old []pushcontext.Conflict) {
	type id struct {
		field, detail string
		shard         model.ShardKey
		object        model.ObjectKey
	}
	idOf := func(x *pushcontext.Conflict) id { return id{x.Field, x.Detail, x.Loser.Shard, x.Loser.Object} }
	known := make(map[id]bool, len(old))
	for i := range old {
		known[idOf(&old[i])] = true
	}
	for i := range c.conflicts {
		if x := &c.conflicts[i]; !known[idOf(x)] {
			c.opts.Log.Warn("configuration not used in favour of another", "kind", x.Field, "used", x.Winner.String(), "unused", x.Loser.String(), "why", x.Detail)
		}
	}
	c.metrics.configs.Set(float64(len(c.conflicts)))
}

// settings gives the mesh-wide settings: those in force unless their rows now say something else.
func (c *Controller) settings() *mesh {
	if !c.state.mesh && c.mesh != nil {
		return c.mesh
	}
	c.state.mesh = false
	var rows []meshRow
	for _, sh := range c.state.shards {
		for k, cfg := range sh.configs {
			rows = appendMesh(rows, sh.key, k, cfg)
		}
	}
	cfg, nets := effective(rows, c.opts.ConfigCluster)
	if next := newMesh(cfg, nets, c.opts); !next.same(c.mesh) {
		return next
	}
	return c.mesh
}

// reconfigured reports whether rows of the basis changed.
func (s *state) reconfigured() bool {
	for _, k := range s.kinds {
		if k.changed {
			return true
		}
	}
	return s.gateways.changed || s.addresses.changed || s.aliases.changed
}

// sources gives the rows of the basis.
func (s *state) sources() sources {
	return sources{
		names: s.names, askers: s.askers, reserved: s.addresses.reserved,
		gateways: rowsOf(s.gateways.services),
		kind:     func(kind string) []row[*model.Config] { return rowsOf(s.kinds[kind].rows) },
		changed: func(kinds ...string) bool {
			return slices.ContainsFunc(kinds, s.changed)
		},
		directory: s.directory,
		touched:   s.touches,
	}
}

// Kinds of rows of the basis that are no configuration.
const (
	rowsAutomatic = "automatic addresses"
	rowsAliases   = "aliases"
)

// changed reports whether rows of a kind changed.
func (s *state) changed(kind string) bool {
	switch kind {
	case rowsAutomatic:
		return s.addresses.changed
	case rowsAliases:
		return s.aliases.changed
	}
	return s.kinds[kind].changed || kind == model.ConfigNetworkGateway && s.gateways.changed
}

// directory gives the definitions of the services of a host.
func (s *state) directory(host string) (out []row[*model.Service]) {
	for _, k := range s.named[strings.ToLower(host)] {
		out = append(out, s.hosts[k].services...)
	}
	return out
}

// touches reports whether definitions of services of some of the hosts changed.
func (s *state) touches(hosts map[string]struct{}) bool {
	for h := range s.redefined {
		if _, ok := hosts[h]; ok {
			return true
		}
	}
	return false
}

// settled notes that the basis stands for all rows.
func (s *state) settled() {
	s.gateways.changed, s.addresses.changed, s.aliases.changed = false, false, false
	clear(s.redefined)
	for _, k := range s.kinds {
		k.changed = false
	}
}

// unresolved reports whether the first snapshot should wait for the addresses of gateways: without them,
// what lies behind would be missing from it.
func (c *Controller) unresolved(now time.Time) bool {
	if c.opts.OnHosts == nil {
		return false
	}
	c.refreshBasis()
	known := map[string]bool{}
	for _, r := range c.state.kinds[model.ConfigResolvedHost].rows {
		known[r.Name] = true
	}
	if !slices.ContainsFunc(c.networks.hosts, func(h string) bool { return !known[h] }) {
		return false
	}
	if c.asked.IsZero() {
		c.asked = now
	}
	return now.Sub(c.asked) < hostWait
}
