package aggregate

import (
	"maps"
	"slices"
	"strings"

	networking "istio.io/api/networking/v1alpha3"

	"google.golang.org/protobuf/proto"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/pushcontext"
)

// gateways are the Gateways in force. Immutable.
type gateways struct {
	view  *pushcontext.GatewaysView                // nil if there are none
	hosts map[serverID]*serverHosts                // of the servers in view
	bound map[string][]*pushcontext.VirtualService // to a gateway, oldest first
	asked int                                      // how often it was looked up whether hosts of a server and of a VirtualService meet
}

// serverID is one server of a Gateway.
type serverID struct {
	gateway string
	index   int
}

// newGateways makes the view of all Gateways in force, which are given oldest first. Servers that say the same as in old
// keep their pointers, and so does the view if all do; hosts of VirtualServices that are not new to a server are not looked up
// again. Linear looks hosts up without an index.
func newGateways(objects []*model.Config, m *pushcontext.MeshView, routes []*pushcontext.VirtualService, old *gateways, linear bool) *gateways {
	if old == nil {
		old = &gateways{}
	}
	g := &gateways{view: &pushcontext.GatewaysView{Mesh: m}, hosts: map[serverID]*serverHosts{}, bound: map[string][]*pushcontext.VirtualService{}}
	for _, v := range routes {
		for _, name := range v.Gateways {
			g.bound[name] = append(g.bound[name], v)
		}
	}
	known := old.servers()
	labels := map[string]struct{}{}
	for _, c := range objects {
		spec, ok := c.Spec.(*networking.Gateway)
		if !ok {
			continue
		}
		for k := range spec.Selector {
			labels[k] = struct{}{}
		}
		for i, s := range spec.Servers {
			if s != nil {
				id := serverID{c.Namespace + "/" + c.Name, i}
				g.view.Servers = append(g.view.Servers, settleServer(known[id], g.server(c, spec, id, old, known[id], linear)))
			}
		}
	}
	g.view.Labels = slices.Sorted(maps.Keys(labels))
	switch was := old.view; {
	case len(g.view.Servers) == 0:
		g.view = nil
	case was != nil && was.Mesh == m && slices.Equal(was.Servers, g.view.Servers) && slices.Equal(was.Labels, g.view.Labels):
		g.view = was
	}
	return g
}

func (g *gateways) servers() map[serverID]*pushcontext.GatewayServer {
	if g.view == nil {
		return nil
	}
	out := make(map[serverID]*pushcontext.GatewayServer, len(g.view.Servers))
	for _, s := range g.view.Servers {
		out[serverID{s.Name(), s.Index}] = s
	}
	return out
}

// server makes one server; was is what the old one was made into, nil if it is new.
func (g *gateways) server(c *model.Config, spec *networking.Gateway, id serverID, old *gateways, was *pushcontext.GatewayServer, linear bool) *pushcontext.GatewayServer {
	out := &pushcontext.GatewayServer{
		Source: c.Source, Namespace: c.Namespace, Gateway: c.Name, Created: c.Created, Index: id.index, Selector: spec.Selector, Spec: spec.Servers[id.index], Mesh: g.view.Mesh,
	}
	if was != nil && (was.Spec == out.Spec || slices.Equal(was.Spec.Hosts, out.Spec.Hosts)) {
		hosts := old.hosts[id]
		g.hosts[id], out.Hosts = hosts, was.Hosts
		out.Bound = g.rebind(was.Bound, old.bound[id.gateway], g.bound[id.gateway], hosts)
		return out
	}
	for _, h := range out.Spec.Hosts {
		if host, ok := gatewayHost(h, c.Namespace); ok {
			out.Hosts = append(out.Hosts, host)
		}
	}
	g.hosts[id] = newServerHosts(out.Hosts, linear)
	out.Bound = g.rebind(nil, nil, g.bound[id.gateway], g.hosts[id])
	return out
}

// rebind gives those of the VirtualServices now bound to a Gateway that have hosts of a server; was are those that had, of all
// before.
func (g *gateways) rebind(was, before, now []*pushcontext.VirtualService, hosts *serverHosts) (out []*pushcontext.VirtualService) {
	if slices.Equal(before, now) {
		return was
	}
	have := make(map[*pushcontext.VirtualService]bool, len(before))
	for _, v := range before {
		have[v] = false
	}
	for _, v := range was {
		have[v] = true
	}
	for _, v := range now {
		admitted, known := have[v]
		if !known {
			g.asked++
			admitted = hosts.admit(v)
		}
		if admitted {
			out = append(out, v)
		}
	}
	return out
}

// serverHosts finds out whether a server has hosts of a VirtualService without a look at each of them.
type serverHosts struct {
	all    []pushcontext.GatewayHost
	covers map[string]*patternSet // what stands for hosts, by the namespace of VirtualServices
	below  map[string]*patternSet // the patterns that stand for these
	odd    []pushcontext.GatewayHost
}

func newServerHosts(all []pushcontext.GatewayHost, linear bool) *serverHosts {
	s := &serverHosts{all: all, covers: map[string]*patternSet{}, below: map[string]*patternSet{}}
	for _, h := range all {
		if linear || oddHost(h.Host) {
			s.odd = append(s.odd, h)
			continue
		}
		if s.covers[h.Namespace] == nil {
			s.covers[h.Namespace], s.below[h.Namespace] = &patternSet{}, &patternSet{}
		}
		s.covers[h.Namespace].add(h.Host)
		below, key := s.below[h.Namespace], patternKey(h.Host)
		below.addKey("*")
		for i := range key {
			if key[i] == '.' {
				below.addKey(key[i:])
			}
		}
	}
	return s
}

// oddHost tells a host for which below has no key: a star that is a part of a label, a dot in front.
func oddHost(h string) bool { return partial(patternKey(h)) || strings.HasPrefix(h, ".") }

// admit reports whether an entry admits the VirtualService.
func (s *serverHosts) admit(v *pushcontext.VirtualService) bool {
	admits := func(h pushcontext.GatewayHost) bool { return h.Admits(v) }
	if slices.ContainsFunc(v.Hosts, oddHost) {
		return slices.ContainsFunc(s.all, admits)
	}
	return slices.ContainsFunc(s.odd, admits) || slices.ContainsFunc([]string{"*", v.Namespace}, func(namespace string) bool {
		covers, below := s.covers[namespace], s.below[namespace]
		return covers != nil && slices.ContainsFunc(v.Hosts, func(host string) bool {
			_, wider := below.keys[patternKey(host)]
			return covers.has(host) || wider && strings.HasPrefix(host, "*")
		})
	})
}

// gatewayHost reads "namespace/host" or "host", which is of any namespace. False if it is of none.
func gatewayHost(s, namespace string) (pushcontext.GatewayHost, bool) {
	space, host, ok := strings.Cut(s, "/")
	if !ok {
		space, host = "*", s
	}
	if space == "." {
		space = namespace
	}
	return pushcontext.GatewayHost{Namespace: space, Host: strings.ToLower(host)}, host != "" && space != "~"
}

// settleServer gives the old one if the next says the same; revisions do not count.
func settleServer(old, next *pushcontext.GatewayServer) *pushcontext.GatewayServer {
	if old != nil && old.Mesh == next.Mesh && sameSource(&old.Source, &next.Source) && old.Created.Equal(next.Created) && old.Selector.Equal(next.Selector) &&
		slices.Equal(old.Hosts, next.Hosts) && slices.Equal(old.Bound, next.Bound) && (old.Spec == next.Spec || proto.Equal(old.Spec, next.Spec)) {
		return old
	}
	return next
}
