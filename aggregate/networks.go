package aggregate

import (
	"maps"
	"math"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	meshconfig "istio.io/api/mesh/v1alpha1"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/pushcontext"
)

// networks are the networks with gateways. Immutable.
type networks struct {
	named    pushcontext.Networks // as configured: gateways known by name have no address
	resolved pushcontext.Networks // those that could be resolved are there once for each address
	hosts    []string             // names to resolve, sorted
}

// gatewaySources are the rows that tell of gateways, sorted by id.
type gatewaySources struct {
	services []row[*model.Service] // that have the label, or are named by meshNetworks
	configs  []row[*model.Config]  // of kinds NetworkGateway and ResolvedHost
}

// newNetworks lists every gateway. Networks of old that stay the same keep their pointers.
func newNetworks(m *mesh, src gatewaySources, old networks) networks {
	gws := settingsGateways(m.view.Networks)
	for _, s := range src.services {
		gws = append(gws, serviceGateways(m, s)...)
	}
	addrs := map[string][]netip.Addr{}
	for _, r := range src.configs {
		switch spec := r.obj.Spec.(type) {
		case *model.NetworkGateway:
			before := len(gws)
			for _, a := range spec.Addrs {
				gws = appendGateway(gws, gatewayOf(spec.Network, r.id, &r.obj.Source), a)
			}
			if spec.Network != "" && meant(spec.Addrs) && !keepsApart(gws[before:]) {
				gws = append(gws, gatewayOf(spec.Network, r.id, &r.obj.Source))
			}
		case *model.ResolvedHost:
			if name := hostName(r.obj.Name); addrs[name] == nil {
				addrs[name] = spec.Addrs
			}
		}
	}
	return networks{
		named: pushcontext.NewNetworks(gws, old.named), resolved: pushcontext.NewNetworks(resolved(gws, addrs), old.resolved), hosts: hostsOf(gws),
	}
}

// settingsGateways lists the gateways of meshNetworks that are known by address or name.
func settingsGateways(nets *meshconfig.MeshNetworks) []pushcontext.Gateway {
	var out []pushcontext.Gateway
	for name, n := range nets.GetNetworks() {
		for _, g := range n.GetGateways() {
			if g.GetAddress() != "" {
				out = append(out, settingsGateway(name, g))
			}
		}
	}
	return out
}

// settingsGateway reads one gateway. One that can't be dialled stays, unusable: its network is still another
// one.
func settingsGateway(network string, g *meshconfig.Network_IstioNetworkGateway) pushcontext.Gateway {
	out := pushcontext.Gateway{Network: network, Source: model.ConfigNetworks}
	port := portOf(g)
	ip, err := netip.ParseAddr(g.GetAddress())
	switch {
	case err != nil:
		out.Host, out.Addr = hostName(g.GetAddress()), netip.AddrPortFrom(netip.Addr{}, port)
	case port == 0 || !dialable(ip) && !ip.Unmap().IsLoopback(): // whoever writes loopback here has all on one machine
		out.Host = g.GetAddress()
	default:
		out.Addr = netip.AddrPortFrom(ip.Unmap(), port)
	}
	return out
}

// gatewayOf is a gateway that an object of a member names, without an address.
func gatewayOf(network string, id rowID, s *model.Source) pushcontext.Gateway {
	return pushcontext.Gateway{Network: network, Cluster: id.shard.Cluster, Source: id.shard.String() + " " + s.Object.String()}
}

// dialable reports whether an address leads to another machine: one of the proxy's own, or of its link, is no gateway's.
func dialable(ip netip.Addr) bool { return ip.Unmap().IsGlobalUnicast() }

// portOf gives 0 for a port out of range.
func portOf(g *meshconfig.Network_IstioNetworkGateway) uint16 {
	if g.GetPort() > math.MaxUint16 {
		return 0
	}
	return uint16(g.GetPort())
}

// serviceGateways are the gateways that a Service stands for: by its own label, and because meshNetworks names
// it for the network of its registry. It counts where it is reached from outside its member, and only with a
// port that it has.
func serviceGateways(m *mesh, s row[*model.Service]) (out []pushcontext.Gateway) {
	if !native(s.obj) {
		return nil
	}
	cluster := s.id.shard.Cluster
	if network := s.obj.Labels[model.LabelNetwork]; network != "" {
		port, explicit := labelledPort(s.obj)
		if out = appendExposed(out, s, network, port, model.HBONEPort); explicit && !keepsApart(out) { // meant as one, with a port that it does not have
			out = append(out, gatewayOf(network, s.id, &s.obj.Source))
		}
	}
	network := m.fromRegistry[cluster]
	for _, g := range m.view.Networks.GetNetworks()[network].GetGateways() {
		if g.GetRegistryServiceName() == s.obj.Host {
			out = appendExposed(out, s, network, portOf(g), 0)
		}
	}
	return out
}

// labelledPort gives 0 if the label holds no port. Explicit tells that there is a label.
func labelledPort(s *model.Service) (port uint16, explicit bool) {
	l := s.Labels[model.LabelGatewayPort]
	if l == "" {
		return model.EastWestPort, false
	}
	n, err := strconv.ParseUint(l, 10, 16)
	if err != nil {
		return 0, true
	}
	return uint16(n), true
}

// appendExposed adds the gateways at the Service's addresses. While it has none, an unusable one keeps the
// network apart: that an address is late, or lost, does not make what is behind it reachable.
func appendExposed(out []pushcontext.Gateway, s row[*model.Service], network string, port, hbone uint16) []pushcontext.Gateway {
	has := func(n uint16) bool {
		return slices.ContainsFunc(s.obj.Ports, func(p model.Port) bool { return p.Number == n })
	}
	g, before := gatewayOf(network, s.id, &s.obj.Source), len(out)
	for _, x := range s.obj.Exposed {
		at := func(n uint16) uint16 {
			switch {
			case !has(n):
				return 0
			case x.Ports != nil:
				return x.Ports[n]
			}
			return n
		}
		out = appendGateway(out, g, model.GatewayAddr{IP: x.IP, Host: x.Host, Port: at(port), HBONEPort: at(hbone)})
	}
	if network != "" && has(port) && !keepsApart(out[before:]) {
		out = append(out, g)
	}
	return out
}

// meant reports whether a gateway with these addresses is one for mutual TLS, be they of use or not.
func meant(addrs []model.GatewayAddr) bool {
	return len(addrs) == 0 || slices.ContainsFunc(addrs, func(a model.GatewayAddr) bool { return a.Port != 0 || a.HBONEPort == 0 })
}

// keepsApart reports whether a network with these gateways is one that is not dialled directly.
func keepsApart(gws []pushcontext.Gateway) bool {
	return slices.ContainsFunc(gws, func(g pushcontext.Gateway) bool { return !g.HBONEOnly() })
}

// appendGateway adds g at an address, unless that can't be one. Some load balancers give an IP as their
// host name.
func appendGateway(out []pushcontext.Gateway, g pushcontext.Gateway, a model.GatewayAddr) []pushcontext.Gateway {
	if ip, err := netip.ParseAddr(a.Host); err == nil && !a.IP.IsValid() {
		a.IP, a.Host = ip, ""
	}
	g.Addr, g.HBONEPort = netip.AddrPortFrom(a.IP.Unmap(), a.Port), a.HBONEPort
	switch {
	case g.Network == "" || a.Port == 0 && a.HBONEPort == 0:
		return out
	case dialable(a.IP):
		return append(out, g)
	case !a.IP.IsValid() && a.Host != "":
		g.Host = hostName(a.Host)
		return append(out, g)
	}
	return out
}

// resolved puts one gateway for each address in the place of one that is known by name. One without
// address stays, so that its network stays apart.
func resolved(gws []pushcontext.Gateway, addrs map[string][]netip.Addr) []pushcontext.Gateway {
	out := make([]pushcontext.Gateway, 0, len(gws))
	for _, g := range gws {
		n := len(out)
		if g.Named() {
			for _, a := range addrs[g.Host] {
				if dialable(a) {
					at := g
					at.Addr = netip.AddrPortFrom(a.Unmap(), g.Addr.Port())
					out = append(out, at)
				}
			}
		}
		if len(out) == n {
			out = append(out, g)
		}
	}
	return out
}

// hostsOf are the names to resolve.
func hostsOf(gws []pushcontext.Gateway) []string {
	var out []string
	for _, g := range gws {
		if g.Named() {
			out = append(out, g.Host)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// hostName is the one spelling of a DNS name.
func hostName(h string) string { return strings.ToLower(strings.TrimSuffix(h, ".")) }

// names are those of the networks that are entered through gateways.
func (n networks) names() []string {
	var out []string
	for _, x := range n.named {
		if keepsApart(x.Gateways) {
			out = append(out, x.Name)
		}
	}
	return out
}

// used gives those of the networks that endpoints are on.
func used(all pushcontext.Networks, kept []candidate) pushcontext.Networks {
	if len(all) == 0 {
		return nil
	}
	var out pushcontext.Networks
	last := ""
	for _, c := range kept {
		if c.network == last {
			continue
		}
		last = c.network
		if n := all.Find(last); n != nil && !slices.Contains(out, n) {
			out = append(out, n)
		}
	}
	slices.SortFunc(out, func(a, b *pushcontext.Network) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// gone gives the networks of old that now are not, or not the same.
func gone(old, now pushcontext.Networks) pushcontext.Networks {
	var out pushcontext.Networks
	for _, n := range old {
		if now.Find(n.Name) != n {
			out = append(out, n)
		}
	}
	return out
}

// onAny reports whether a view has endpoints on one of the networks.
func onAny(v *pushcontext.ServiceView, changed networks) bool {
	on := func(ns, changed pushcontext.Networks) bool {
		return slices.ContainsFunc(ns, func(n *pushcontext.Network) bool { return slices.Contains(changed, n) })
	}
	return on(v.Networks, changed.resolved) || on(v.Shape.Networks, changed.named)
}

// gatewayIndex holds the Services that may be gateways. It belongs to the controller goroutine.
type gatewayIndex struct {
	services map[rowID]*model.Service
	named    map[string]bool // hosts of Services that meshNetworks names
	changed  bool
}

func newGatewayIndex() *gatewayIndex {
	return &gatewayIndex{services: map[rowID]*model.Service{}}
}

// isGateway reports whether a Service may be a gateway, given the hosts that meshNetworks names.
func isGateway(s *model.Service, named map[string]bool) bool {
	return native(s) && (s.Labels[model.LabelNetwork] != "" || named[s.Host])
}

func (x *gatewayIndex) addService(id rowID, s *model.Service) {
	if isGateway(s, x.named) {
		x.services[id], x.changed = s, true
	}
}

func (x *gatewayIndex) dropService(id rowID) {
	if _, known := x.services[id]; known {
		delete(x.services, id)
		x.changed = true
	}
}

// name takes the hosts that meshNetworks names, and finds their Services among all hosts.
func (x *gatewayIndex) name(named map[string]bool, hosts map[hostKey]*hostRows) {
	if maps.Equal(x.named, named) {
		return
	}
	x.named = named
	maps.DeleteFunc(x.services, func(_ rowID, s *model.Service) bool { return !isGateway(s, named) })
	for k, h := range hosts {
		if named[k.host] {
			for _, s := range h.services {
				x.addService(s.id, s.obj)
			}
		}
	}
}

// rowsOf gives the rows by id.
func rowsOf[T any](m map[rowID]T) []row[T] {
	out := make([]row[T], 0, len(m))
	for id, obj := range m {
		out = append(out, row[T]{id, obj})
	}
	sortRows(out)
	return out
}
