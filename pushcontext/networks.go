package pushcontext

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
)

// Gateway is an east-west gateway through which a network is entered.
type Gateway struct {
	Network   string
	Cluster   model.ClusterID // member that it belongs to; "" for the whole network
	Addr      netip.AddrPort  // where it is dialled; holds the port alone when Host is not resolved, and no port when HBONE alone is spoken
	Host      string          // set when the gateway is known by name
	HBONEPort uint16          // where HBONE is spoken, which proxies here do not; 0 if it is not
	Source    string          // what names it: "kubernetes/c2 Service/ns/name", or "MeshNetworks"
}

// Compare is a total order over all fields.
func (g Gateway) Compare(o Gateway) int {
	return cmp.Or(strings.Compare(g.Network, o.Network), strings.Compare(string(g.Cluster), string(o.Cluster)),
		g.Addr.Compare(o.Addr), strings.Compare(g.Host, o.Host), cmp.Compare(g.HBONEPort, o.HBONEPort), strings.Compare(g.Source, o.Source))
}

// same reports whether both are one gateway, which several sources may name.
func (g Gateway) same(o Gateway) bool {
	o.Source = g.Source
	return g == o
}

// Named reports whether a proxy that resolves names itself can dial the gateway by its name.
func (g Gateway) Named() bool { return g.Host != "" && !g.Addr.IsValid() && g.Addr.Port() != 0 }

// Usable reports whether the gateway can be dialled: by its address or, if named, by its name.
func (g Gateway) Usable(named bool) bool {
	return g.Addr.IsValid() && g.Addr.Port() != 0 || named && g.Named()
}

// HBONEOnly reports whether it is no gateway for proxies that do not speak HBONE. For these its network is as if it were not there.
func (g Gateway) HBONEOnly() bool { return g.HBONEPort != 0 && g.Addr.Port() == 0 }

// Network is a network that is entered through gateways. It is immutable, and keeps its pointer while
// the gateways stay the same.
type Network struct {
	Name     string
	Gateways []Gateway // in their order, without duplicates; unusable ones too
}

// Networks are networks that are entered through gateways, by name. A view holds those that its
// endpoints are on, so a change of gateways concerns the services behind them and no others.
type Networks []*Network

// NewNetworks sorts gateways by network. One that several sources name is that of the first. A network of old with the same gateways keeps its pointer.
func NewNetworks(gateways []Gateway, old Networks) Networks {
	sorted := slices.Clone(gateways)
	slices.SortFunc(sorted, Gateway.Compare)
	sorted = slices.CompactFunc(sorted, Gateway.same)
	var out Networks
	for start := 0; start < len(sorted); {
		name, end := sorted[start].Network, start
		for end < len(sorted) && sorted[end].Network == name {
			end++
		}
		n := &Network{Name: name, Gateways: slices.Clip(sorted[start:end])}
		if was := old.Find(name); was != nil && slices.Equal(was.Gateways, n.Gateways) {
			n = was
		}
		out = append(out, n)
		start = end
	}
	return out
}

// Find gives a network; nil if it has no gateway.
func (ns Networks) Find(name string) *Network {
	i, ok := slices.BinarySearchFunc(ns, name, func(n *Network, name string) int { return strings.Compare(n.Name, name) })
	if !ok {
		return nil
	}
	return ns[i]
}

// Equal reports whether both hold the same gateways.
func (ns Networks) Equal(o Networks) bool {
	return slices.EqualFunc(ns, o, func(a, b *Network) bool {
		return a == b || a.Name == b.Name && slices.Equal(a.Gateways, b.Gateways)
	})
}

// NetworkGateways are the gateways of a network with an address: only those of the member if it has any
// there. With named, those known by name alone are among them, for proxies that resolve it.
func (ns Networks) NetworkGateways(network string, cluster model.ClusterID, named bool) []Gateway {
	n := ns.Find(network)
	if n == nil {
		return nil
	}
	var all, own []Gateway
	for _, g := range n.Gateways {
		if !g.Usable(named) {
			continue
		}
		all = append(all, g)
		if g.Cluster != "" && g.Cluster == cluster {
			own = append(own, g)
		}
	}
	if len(own) > 0 {
		return own
	}
	return all
}
