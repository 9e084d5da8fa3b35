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

// newGateways makes the view of all Gateways in force, which are given oldest first; nil if there are none. Servers
// that say the same as in old keep their pointers, and so does the view if all do.
func newGateways(objects []*model.Config, m *pushcontext.MeshView, bound []*pushcontext.VirtualService, old *pushcontext.GatewaysView) *pushcontext.GatewaysView {
	byGateway := map[string][]*pushcontext.VirtualService{}
	for _, v := range bound {
		for _, g := range v.Gateways {
			byGateway[g] = append(byGateway[g], v)
		}
	}
	known := map[serverID]*pushcontext.GatewayServer{}
	if old != nil {
		for _, s := range old.Servers {
			known[serverID{s.Name(), s.Index}] = s
		}
	}
	out := &pushcontext.GatewaysView{Mesh: m}
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
				next := newServer(c, spec, i, m, byGateway)
				out.Servers = append(out.Servers, settleServer(known[serverID{next.Name(), i}], next))
			}
		}
	}
	out.Labels = slices.Sorted(maps.Keys(labels))
	switch {
	case len(out.Servers) == 0:
		return nil
	case old != nil && old.Mesh == m && slices.Equal(old.Servers, out.Servers) && slices.Equal(old.Labels, out.Labels):
		return old
	}
	return out
}

// serverID is one server of a Gateway.
type serverID struct {
	gateway string
	index   int
}

func newServer(c *model.Config, spec *networking.Gateway, index int, m *pushcontext.MeshView, byGateway map[string][]*pushcontext.VirtualService) *pushcontext.GatewayServer {
	out := &pushcontext.GatewayServer{
		Source: c.Source, Namespace: c.Namespace, Gateway: c.Name, Created: c.Created, Index: index, Selector: spec.Selector, Spec: spec.Servers[index], Mesh: m,
	}
	for _, h := range out.Spec.Hosts {
		if host, ok := gatewayHost(h, c.Namespace); ok {
			out.Hosts = append(out.Hosts, host)
		}
	}
	for _, v := range byGateway[out.Name()] {
		if slices.ContainsFunc(out.Hosts, func(h pushcontext.GatewayHost) bool { return h.Admits(v) }) {
			out.Bound = append(out.Bound, v)
		}
	}
	return out
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
