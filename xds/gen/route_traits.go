package gen

import (
	"maps"
	"slices"
	"strings"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/isthmus-mesh/isthmus/pushcontext"
)

// sources is what routes tell proxies apart by.
type sources struct {
	labels    []string // of the proxy, sorted
	namespace bool     // the proxy's own
}

// sourcesOf is worked out once for a VirtualService.
func sourcesOf(v *pushcontext.VirtualService) *sources {
	return v.Derived().Do(pushcontext.MemoKey{Generator: memoSources}, func() any {
		out := &sources{namespace: len(v.Policies) > 0}
		for _, r := range v.Spec.GetHttp() {
			for _, m := range r.GetMatch() {
				out.name(maps.Keys(m.GetSourceLabels()))
				out.namespace = out.namespace || m.GetSourceNamespace() != ""
			}
		}
		for _, d := range v.Policies {
			for _, p := range d.Policies {
				out.name(maps.Keys(p.Selector))
			}
		}
		return out
	}).(*sources)
}

// name adds labels.
func (s *sources) name(keys func(func(string) bool)) {
	for k := range keys {
		if i, known := slices.BinarySearch(s.labels, k); !known {
			s.labels = slices.Insert(s.labels, i, k)
		}
	}
}

// portRouting is what decides about the routes of a port beside its services.
type portRouting struct {
	sources
	bodies bool // the proxy answers with more than Envoy lets it by default
}

func routingOf(v *pushcontext.PortView) *portRouting {
	return v.Derived().Do(pushcontext.MemoKey{Generator: memoRouting}, func() any {
		out := &portRouting{}
		for _, s := range v.Services {
			for _, vs := range s.VirtualServices {
				out.add(vs)
			}
			out.hashed(s)
		}
		for _, vs := range v.Routes {
			out.add(vs)
		}
		return out
	}).(*portRouting)
}

// add takes account of a VirtualService. Which proxies may use it is told by their namespace.
func (p *portRouting) add(v *pushcontext.VirtualService) {
	from := sourcesOf(v)
	p.name(slices.Values(from.labels))
	p.namespace = p.namespace || from.namespace || !v.Export.Public
	p.bodies = p.bodies || slices.ContainsFunc(v.Spec.GetHttp(), largeBody)
}

// hashed takes account of DestinationRules that choose endpoints of a service by a hash.
func (p *portRouting) hashed(s *pushcontext.ShapeView) {
	if len(s.Policies) == 0 || !scopeOf(s).hashes {
		return
	}
	p.namespace = true
	for _, rule := range s.Policies {
		p.name(maps.Keys(rule.Selector))
	}
}

// defaultBody is how large Envoy lets the body of an answer of its own be, in bytes.
const defaultBody = 4096

func largeBody(r *networking.HTTPRoute) bool {
	b := r.GetDirectResponse().GetBody()
	return len(b.GetString_())+len(b.GetBytes()) > defaultBody
}

// traits are those that routes depend on, beside those of the services.
func (p *portRouting) traits() Traits {
	var t Traits
	if p.namespace {
		t |= TraitNamespace
	}
	if len(p.labels) > 0 {
		t |= TraitPolicy
	}
	return t
}

// Narrow implements Narrower: of labels, those that some route looks at make a difference.
func (g Routes) Narrow(v pushcontext.View, c Class) Class {
	if r, ok := v.(*pushcontext.GatewaysView); ok {
		return routersOf(r).narrow(c)
	}
	if all, ok := v.(*pushcontext.PortsView); ok {
		c.Labels = c.Labels.Only(portsOf(all).labels)
		return narrowToHTTPProxies(all.Mesh, c)
	}
	p, ok := v.(*pushcontext.PortView)
	if !ok {
		return c
	}
	c.Labels = c.Labels.Only(routingOf(p).labels)
	if g.Traits(v)&TraitNamespace == 0 {
		c.Namespace = ""
	}
	return c
}

// Scope implements Narrower.
func (Routes) Scope(v pushcontext.View) string {
	if r, ok := v.(*pushcontext.GatewaysView); ok {
		return routersOf(r).scope()
	}
	if all, ok := v.(*pushcontext.PortsView); ok {
		return strings.Join(portsOf(all).labels, "\x00")
	}
	p, ok := v.(*pushcontext.PortView)
	if !ok {
		return ""
	}
	return strings.Join(routingOf(p).labels, "\x00")
}
