package gen

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/pushcontext"
)

// dialled is an address as a proxy connects to it, whichever member it belongs to.
type dialled struct {
	addr netip.AddrPort
	host string
}

func dialledAt(a model.Addr) dialled { return dialled{a.AddrPort, a.Host} }

func (h *host) dialled() dialled { return dialledAt(h.addr()) }

// hasTwins reports whether an address is listed several times, by several members or on several networks, or may be as endpoints have
// alternatives, for a port of the service, so that a proxy may have to be told of one of them only.
func hasTwins(v *pushcontext.ServiceView) bool {
	return v.Derived().Do(pushcontext.MemoKey{Generator: memoTwins},
		func() any { return twinsAmong(v.Endpoints, v.Shape.Mesh) }).(bool)
}

// hasInlineTwins is hasTwins for the endpoints that are part of the definition.
func hasInlineTwins(s *pushcontext.ShapeView) bool {
	return s.Derived().Do(pushcontext.MemoKey{Generator: memoTwins},
		func() any { return twinsAmong(s.Inline, s.Mesh) }).(bool)
}

func twinsAmong(ports []pushcontext.PortEndpoints, mesh *pushcontext.MeshView) bool {
	return slices.ContainsFunc(ports, func(p pushcontext.PortEndpoints) bool {
		return severalPlaces(p.Localities) && twinsIn(p.Localities, mesh)
	})
}

// severalPlaces is a cheap test that most ports end at: a member has an address once in a network.
func severalPlaces(list []pushcontext.LocalityEndpoints) bool {
	var first *model.Endpoint
	for _, l := range list {
		for _, e := range l.Endpoints {
			if first == nil {
				first = e
			}
			if e.Addr.Cluster != first.Addr.Cluster || e.Network != first.Network || e.Alternatives != nil {
				return true
			}
		}
	}
	return false
}

// twinsIn leaves out equal addresses of different networks that are entered through gateways: no proxy
// dials both.
func twinsIn(list []pushcontext.LocalityEndpoints, mesh *pushcontext.MeshView) bool {
	type place struct {
		dialled
		network string
		any     bool
	}
	seen := map[place]bool{}
	for _, l := range list {
		for _, e := range l.Endpoints {
			if e.Alternatives != nil {
				return true
			}
			if !e.Addr.Dialable() {
				continue
			}
			here := place{dialled: dialledAt(e.Addr)}
			everywhere, anywhere := here, here
			if anywhere.any = true; mesh.HasGateway(e.Network) {
				here.network = e.Network
			}
			if seen[here] || seen[everywhere] || here.network == "" && seen[anywhere] {
				return true
			}
			seen[here], seen[anywhere] = true, true
		}
	}
	return false
}

// spot is where in a selection an address is sent.
type spot struct {
	group *group
	index int
}

func (s spot) host() *host { return &s.group.hosts[s.index] }

// unique leaves each address in one place: of several, Envoy would keep the first and drop the others
// without a word, and their weights with them. An endpoint of the proxy's own member is kept, else the
// healthiest, else that of the best priority, else the first. A gateway that stands for several localities is sent in the first of
// the best priority, with the weights of all of that priority; with several true gateways are not looked at.
func (o *selection) unique(c Class, several bool) {
	at := map[dialled]spot{}
	lost := false
	for _, g := range o.groups {
		for i := range g.hosts {
			here := spot{g, i}
			if several && here.host().endpoint == nil {
				continue
			}
			first, twice := at[here.host().dialled()]
			switch {
			case !twice:
				at[here.host().dialled()] = here
			case preferred(here, first, c):
				at[here.host().dialled()] = here
				o.drop(first, here)
				lost = true
			default:
				o.drop(here, first)
				lost = true
			}
		}
	}
	if lost && !several {
		o.tidy(at)
	}
	if lost {
		o.sweep()
	}
}

// preferred reports whether the host at a is kept rather than that at b, which comes first. An endpoint
// that is dialled itself goes before a gateway at the same address. Of equally healthy ones the better
// priority counts: a member that has been stale for long knows less than another.
func preferred(a, b spot, c Class) bool {
	x, y := a.host(), b.host()
	if x.endpoint == nil || y.endpoint == nil {
		return x.endpoint != nil
	}
	if own := x.endpoint.Addr.Cluster == c.Cluster; own != (y.endpoint.Addr.Cluster == c.Cluster) {
		return own
	}
	return cmp.Or(cmp.Compare(x.health, y.health), cmp.Compare(a.group.priority, b.group.priority),
		x.endpoint.Addr.Compare(y.endpoint.Addr)) < 0
}

// drop takes a host out in favour of another at the same address.
func (o *selection) drop(from, kept spot) {
	h, k := from.host(), kept.host()
	h.dropped = true
	if h.alternative != nil && k.alternative != nil && h.health == k.health && from.group.priority == kept.group.priority {
		k.weight += h.weight // what is there passes on to both
	}
	if h.endpoint == nil {
		if k.endpoint == nil && from.group.priority == kept.group.priority {
			k.weight += h.weight
		}
		return
	}
	v := &o.verdicts[h.verdict]
	*v = Verdict{Endpoint: v.Endpoint, Reason: model.ReasonDuplicate,
		Detail: fmt.Sprintf("cluster %q lists the same address, which can be sent once only", k.endpoint.Addr.Cluster)}
	if h.alternative != nil {
		v.Detail = fmt.Sprintf("from the proxy's network %s is dialled at the same address, %s, which can be sent once only", k.endpoint.Addr, h.alternative.Addr(""))
	}
}

// tidy takes gateways that were dropped out of the verdicts.
func (o *selection) tidy(at map[dialled]spot) {
	for i := range o.verdicts {
		v := &o.verdicts[i]
		before := uint32(len(v.Gateways))
		if before == 0 {
			continue
		}
		v.Gateways = slices.DeleteFunc(v.Gateways, func(a model.Addr) bool {
			s := at[dialledAt(a)]
			return s.host().endpoint != nil || s.group.priority != v.Priority
		})
		if v.Weight = v.Weight / before * uint32(len(v.Gateways)); len(v.Gateways) == 0 {
			*v = Verdict{Endpoint: v.Endpoint, Reason: model.ReasonDuplicate,
				Detail: "its gateways are sent for endpoints of a better priority, and can be sent once only"}
		}
	}
}

// sweep takes dropped hosts out of their groups.
func (o *selection) sweep() {
	for _, g := range o.groups {
		g.hosts = slices.DeleteFunc(g.hosts, func(h host) bool { return h.dropped })
	}
	o.groups = slices.DeleteFunc(o.groups, func(g *group) bool { return len(g.hosts) == 0 })
}

// pair sends a workload's endpoints of both address families as one, with its weight once: a proxy that
// speaks both tries one address after the other. They must agree on everything else.
func (o *selection) pair() {
	type workload struct {
		model.ObjectKey
		cluster model.ClusterID
		port    uint16
		health  model.Health
		weight  uint64
	}
	for _, g := range o.groups {
		alone := map[workload][]int{} // IPv4 ones, which come first
		for i := range g.hosts {
			h := &g.hosts[i]
			a := h.addr()
			if h.endpoint == nil || a.Host != "" || h.endpoint.Workload.Name == "" {
				continue
			}
			k := workload{h.endpoint.Workload, a.Cluster, a.AddrPort.Port(), h.health, h.weight}
			if a.AddrPort.Addr().Is4() {
				alone[k] = append(alone[k], i)
			} else if first := alone[k]; len(first) > 0 {
				o.join(&g.hosts[first[0]], h)
				alone[k] = first[1:]
			}
		}
		g.hosts = slices.DeleteFunc(g.hosts, func(h host) bool { return h.dropped })
	}
}

// join makes a host the second address of another.
func (o *selection) join(h, second *host) {
	at := second.addr()
	h.second, h.secondVerdict, second.dropped = &at, second.verdict, true
	o.verdicts[second.verdict].Detail = "sent as the second address of " + h.addr().String()
}

func mixed(list []pushcontext.LocalityEndpoints) bool {
	v4, v6 := false, false
	for _, l := range list {
		for _, e := range l.Endpoints {
			a := e.Addr.AddrPort.Addr()
			switch {
			case e.Addr.Host != "" || !a.IsValid():
			case a.Is4() || a.Is4In6():
				v4 = true
			default:
				v6 = true
			}
		}
		if v4 && v6 {
			return true
		}
	}
	return false
}
