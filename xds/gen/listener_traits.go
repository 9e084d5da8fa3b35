package gen

import (
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/pushcontext"
)

// Chains tell proxies apart by what the matches of TLS and TCP routes say of sources, by who may use a VirtualService or an
// alias, and by which DestinationRule is in force.

// streamSources is worked out once for a service.
func streamSources(s *pushcontext.ShapeView) *sources {
	return s.Derived().Do(pushcontext.MemoKey{Generator: memoStreams}, func() any {
		out := &sources{}
		for _, v := range s.VirtualServices {
			out.streams(v, s.Mesh)
		}
		out.rules(s.Policies, s.Mesh)
		for _, a := range s.Aliases {
			out.namespace = out.namespace || !a.Export.Public
		}
		return out
	}).(*sources)
}

// streams takes account of the rules of a VirtualService for connections.
func (s *sources) streams(v *pushcontext.VirtualService, m *pushcontext.MeshView) {
	if len(v.Spec.GetTls())+len(v.Spec.GetTcp()) == 0 {
		return
	}
	s.namespace = s.namespace || !v.Export.Public
	add := func(m streamMatch) {
		s.name(maps.Keys(m.GetSourceLabels()))
		s.namespace = s.namespace || m.GetSourceNamespace() != ""
	}
	for _, t := range v.Spec.Tls {
		for _, m := range t.GetMatch() {
			add(m)
		}
	}
	for _, t := range v.Spec.Tcp {
		for _, m := range t.GetMatch() {
			add(m)
		}
	}
	for _, d := range v.Policies {
		s.rules(d.Policies, m)
	}
}

// rules takes account of DestinationRules. If one says something of connections, it matters to which proxies another holds.
func (s *sources) rules(list []*pushcontext.DestinationPolicy, m *pushcontext.MeshView) {
	if !slices.ContainsFunc(list, func(p *pushcontext.DestinationPolicy) bool { return p.Steers(m) }) {
		return
	}
	s.namespace = true
	for _, p := range list {
		s.name(maps.Keys(p.Selector))
	}
}

// portStreams is that of all services of a port that are not plain HTTP.
func portStreams(v *pushcontext.PortView) *sources {
	return v.Derived().Do(pushcontext.MemoKey{Generator: memoStreams}, func() any {
		out := &sources{}
		for _, s := range v.Services {
			if p, ok := servedPort(s, v.Number); ok && !p.Protocol.IsHTTP() {
				one := streamSources(s)
				out.name(slices.Values(one.labels))
				out.namespace = out.namespace || one.namespace
			}
		}
		return out
	}).(*sources)
}

func (s *sources) traits() Traits {
	var t Traits
	if s.namespace {
		t |= TraitNamespace
	}
	if len(s.labels) > 0 {
		t |= TraitPolicy
	}
	return t
}

// narrow keeps of a class, beside the traits, what is told apart.
func (s *sources) narrow(c Class, t Traits) Class {
	n, labels := c.Namespace, c.Labels
	if c = c.Keep(t); s.namespace {
		c.Namespace = n
	}
	if c.Labels = ""; len(s.labels) > 0 {
		c.Labels = labels.Only(s.labels)
	}
	return c
}

// Narrow implements Narrower: a proxy's own address matters only where it would get a listener, and of its labels those
// that some route looks at.
func (g Listeners) Narrow(v pushcontext.View, c Class) Class {
	if r, ok := v.(*pushcontext.GatewaysView); ok {
		return routersOf(r).narrow(c)
	}
	p, ok := v.(*pushcontext.PortView)
	if !ok {
		c.IP, c.Labels = netip.Addr{}, ""
		return c
	}
	if _, own := planOf(p, c).endpointAddrs(c, p.Mesh)[c.IP]; !own {
		c.IP = netip.Addr{}
	}
	from := portStreams(p)
	if c.Labels = c.Labels.Only(from.labels); g.Traits(v)&TraitNamespace == 0 {
		c.Namespace = ""
	}
	return c
}

// Scope implements Narrower.
func (Listeners) Scope(v pushcontext.View) string {
	if r, ok := v.(*pushcontext.GatewaysView); ok {
		return routersOf(r).scope()
	}
	if p, ok := v.(*pushcontext.PortView); ok {
		return strings.Join(portStreams(p).labels, "\x00")
	}
	return ""
}

// silentPort reports whether nothing tells connections to a port of the service from others: they would have to be resolved
// by a name that is not sent.
func silentPort(s *pushcontext.ShapeView, p model.Port) bool {
	return s.Resolution == model.DynamicDNS && !p.Protocol.IsHTTP() && !p.Protocol.Sniffed() && !secureStream(p.Protocol)
}
