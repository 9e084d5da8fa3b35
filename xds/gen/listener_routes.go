package gen

import (
	"math"
	"net/netip"
	"slices"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/pushcontext"
)

// TLS and TCP routes of VirtualServices become filter chains of the listeners of the services that they are for.

// chainRule says where a listener sends some connections.
type chainRule struct {
	ranges []netip.Prefix // of original destinations; none for all that reach the listener
	names  []string       // server names, as Envoy matches them; none for all connections
	table  string         // routes of what is recognised as HTTP; "" if nothing is
	to     target
}

// target is where a TCP proxy sends connections.
type target struct {
	name   string // in statistics and of filter chains
	shares []share
	policy tcpPolicy
	by     *pushcontext.VirtualService // that says so; nil for the service itself
	// resolve is the port at which the host of the server name is connected to; 0 for endpoints of the cluster.
	resolve uint16
}

// share is one of the clusters of a target, with its part of the connections; of one alone it does not count.
type share struct {
	cluster string
	weight  uint32
}

// clusterTarget is a cluster by its name alone.
func clusterTarget(name string) target { return target{name: name, shares: []share{{cluster: name}}} }

// secureStream reports whether connections of a protocol are told apart by server name.
func secureStream(p model.Protocol) bool {
	return p == model.ProtocolTLS || p == model.ProtocolHTTPS
}

// rulesOf are the rules for a service, the first that match counting. Shared: other services have the listener too, so that
// the address does not tell the service.
func (b *listenerBuilder) rulesOf(s *placed, ranges []netip.Prefix, shared bool) []chainRule {
	x := b.reading(s.shape)
	var out []chainRule
	if secureStream(s.port.Protocol) {
		if out = x.tlsRules(); len(out) == 0 {
			own := chainRule{to: x.service(s)}
			if shared || own.to.resolve != 0 {
				if own.names = serverNamesOf(s.shape, b.class); own.names == nil {
					return nil
				}
			}
			out = []chainRule{own}
		}
	} else if s.shape.Resolution != model.DynamicDNS {
		var all bool
		if out, all = x.tcpRules(); !all {
			out = append(out, chainRule{to: x.service(s)})
		}
		if s.port.Protocol.Sniffed() {
			out[len(out)-1].table = sniffedRoute(s.shape.Key.Host, b.port)
		}
	}
	for i := range out {
		if len(out[i].ranges) == 0 {
			out[i].ranges = ranges
		}
	}
	return out
}

// serverNamesOf are the names by which clients of a class call a service; nil if Envoy can match none of them.
func serverNamesOf(s *pushcontext.ShapeView, c Class) []string {
	var out []string
	add := func(host string) {
		if n := canonical(host); serverName(n) && !slices.Contains(out, n) {
			out = append(out, n)
		}
	}
	add(s.Key.Host)
	for _, a := range s.Aliases {
		if a.Export.Includes(c.Namespace) {
			add(a.Host)
		}
	}
	return out
}

// streamReader reads the rules for connections of VirtualServices, as they are for proxies of one class at one port.
type streamReader struct {
	routes []*pushcontext.VirtualService // in their order
	class  Class
	port   uint16
	mesh   *pushcontext.MeshView
	own    *pushcontext.ShapeView // the service that connections are for; nil if none has the host
}

func (b *listenerBuilder) reading(s *pushcontext.ShapeView) *streamReader {
	return &streamReader{routes: virtualServicesFor(s.VirtualServices, b.class, b.port), class: b.class, port: b.port, mesh: b.mesh, own: s}
}

// virtualServicesFor gives all VirtualServices of one host in force for a class at a port, in their order. Their rules for
// connections are tried one after the other.
func virtualServicesFor(list []*pushcontext.VirtualService, c Class, port uint16) (out []*pushcontext.VirtualService) {
	if c.Type != Sidecar {
		return nil
	}
	for _, v := range list {
		if len(v.Spec.GetTls())+len(v.Spec.GetTcp()) > 0 && v.Export.Includes(c.Namespace) && importsRoute(c.Scope, v, port) {
			out = append(out, v)
		}
	}
	return out
}

// streamMatch is what matches of TLS and of TCP routes have in common.
type streamMatch interface {
	GetPort() uint32
	GetGateways() []string
	GetSourceLabels() map[string]string
	GetSourceNamespace() string
	GetDestinationSubnets() []string
}

// selects reports whether a match is for the proxies and the port.
func (x *streamReader) selects(m streamMatch) bool {
	if p := m.GetPort(); p != 0 && p != uint32(x.port) {
		return false
	}
	if g := m.GetGateways(); len(g) > 0 && !slices.Contains(g, pushcontext.MeshGateway) {
		return false
	}
	if n := m.GetSourceNamespace(); n != "" && n != x.class.Namespace {
		return false
	}
	return x.class.Labels.Match(m.GetSourceLabels())
}

// tlsRules are those for server names.
func (x *streamReader) tlsRules() (out []chainRule) {
	for _, v := range x.routes {
		for _, t := range v.Spec.GetTls() {
			for _, m := range t.GetMatch() {
				if r := (chainRule{}); x.selects(m) && x.within(&r, m) && matchNames(&r, m.GetSniHosts()) {
					r.to = x.target(v, t.GetRoute())
					out = append(out, r)
				}
			}
		}
	}
	return out
}

// matchNames reports false if no connection has one of the names.
func matchNames(r *chainRule, hosts []string) bool {
	for _, h := range hosts {
		n := canonical(h)
		switch {
		case n == "*":
			r.names = nil
			return true
		case serverName(n) && !slices.Contains(r.names, n):
			r.names = append(r.names, n)
		}
	}
	return len(hosts) == 0 || len(r.names) > 0
}

// within reports false if no connection of the proxies is in the match's ranges.
func (x *streamReader) within(r *chainRule, m streamMatch) bool {
	list := m.GetDestinationSubnets()
	for _, s := range list {
		if p, ok := subnet(s); ok && x.class.speaks(p.Addr()) && !slices.Contains(r.ranges, p) {
			r.ranges = append(r.ranges, p)
		}
	}
	return len(list) == 0 || len(r.ranges) > 0
}

// subnet reads a range, or one address.
func subnet(s string) (netip.Prefix, bool) {
	if a, err := netip.ParseAddr(s); err == nil && a.Zone() == "" {
		return netip.PrefixFrom(a, a.BitLen()), true
	}
	p, err := netip.ParsePrefix(s)
	return p.Masked(), err == nil
}

// tcpRules are those for ranges, and one for the rest, if all is true; of that kind none after the first counts.
func (x *streamReader) tcpRules() (out []chainRule, all bool) {
	for _, v := range x.routes {
		for _, t := range v.Spec.GetTcp() {
			r, ok := x.tcpRule(t)
			if !ok {
				continue
			}
			r.to = x.target(v, t.GetRoute())
			if out = append(out, r); len(r.ranges) == 0 {
				return out, true
			}
		}
	}
	return out, false
}

// tcpRule has the ranges of all matches, none if one of them is for all; false if no connection matches.
func (x *streamReader) tcpRule(t *networking.TCPRoute) (chainRule, bool) {
	r := chainRule{}
	if len(t.GetMatch()) == 0 {
		return r, true
	}
	ok := false
	for _, m := range t.Match {
		switch {
		case !x.selects(m):
		case len(m.GetDestinationSubnets()) == 0:
			return chainRule{}, true
		default:
			ok = x.within(&r, m) || ok
		}
	}
	return r, ok && len(r.ranges) > 0
}

// service is the target of connections that no rule is about.
func (x *streamReader) service(s *placed) target {
	out := clusterTarget(outboundName(s.port.Number, s.shape.Key.Host))
	out.policy = streamPolicy(inForce(s.shape, x.class), s.port.Number, "", x.mesh)
	out.policy.tunnel = nil // tunnels are for routes
	if s.shape.Resolution == model.DynamicDNS {
		out.resolve = s.port.Number
	}
	return out
}

// target is where routes lead. What the DestinationRule of the first of several says counts for all.
func (x *streamReader) target(v *pushcontext.VirtualService, routes []*networking.RouteDestination) target {
	list := routes
	if len(routes) > 1 {
		list = slices.DeleteFunc(slices.Clone(routes), func(r *networking.RouteDestination) bool { return r.GetWeight() <= 0 })
	}
	if len(list) == 0 {
		out := clusterTarget(blackHoleCluster)
		out.by = v
		return out
	}
	out := target{by: v}
	for _, r := range list {
		out.shares = append(out.shares, share{x.cluster(r.GetDestination()), uint32(max(r.GetWeight(), 1))})
	}
	scaleShares(out.shares)
	if out.name = out.shares[0].cluster; len(list) > 1 {
		out.name = v.Source.Object.Name + "." + v.Namespace
	}
	to := list[0].GetDestination()
	out.policy = streamPolicy(x.rule(v, to.GetHost()), x.portOf(to), to.GetSubset(), x.mesh)
	if x.own != nil && x.own.Resolution == model.DynamicDNS && to.GetHost() == x.own.Key.Host {
		out.resolve = x.portOf(to)
	}
	return out
}

// scaleShares makes weights smaller until Envoy can add them up.
func scaleShares(list []share) {
	sum := uint64(len(list))
	for _, s := range list {
		sum += uint64(s.weight)
	}
	for ; sum > math.MaxUint32; sum >>= 1 {
		for i := range list {
			list[i].weight = max(list[i].weight>>1, 1)
		}
	}
}

func (x *streamReader) cluster(d *networking.Destination) string {
	return subsetName(x.portOf(d), d.GetSubset(), d.GetHost())
}

// portOf is that of the listener, if the destination states none.
func (x *streamReader) portOf(d *networking.Destination) uint16 {
	if n := d.GetPort().GetNumber(); n > 0 && n <= math.MaxUint16 {
		return uint16(n)
	}
	return x.port
}

// rule gives the DestinationRule in force for a destination, nil if there is none that matters to connections.
func (x *streamReader) rule(v *pushcontext.VirtualService, host string) *pushcontext.DestinationPolicy {
	if x.own != nil && host == x.own.Key.Host {
		return inForce(x.own, x.class)
	}
	if rules := v.Policies[host]; rules != nil {
		return rules.PolicyFor(x.class.Namespace, x.mesh.Config.GetRootNamespace(), x.class.Labels.Match)
	}
	return nil
}
