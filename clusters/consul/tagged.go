package consul

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/isthmus-mesh/isthmus/clusters/foreign"
)

// alternatives are the addresses of an instance that are for proxies of other networks, of those that it has.
func (c *converter) alternatives(e *entry) (out []foreign.Alternative) {
	tags := c.spec.Consul.TaggedAddresses
	if len(tags) == 0 {
		return nil
	}
	for _, network := range slices.Sorted(maps.Keys(tags)) {
		if host, port := tagged(e, tags[network]); host != "" && network != c.spec.Network {
			a := foreign.Alternative{Network: network, Name: tags[network], Address: host, Port: port}
			if n := e.Service.TaggedAddresses[a.Name].Port; n < 0 || n > 65535 {
				a.Odd = fmt.Sprintf("its port %d is none: that of the instance is used", n)
			}
			out = append(out, a)
		}
	}
	return out
}

// tagged is the address of an instance with a name, which is the service's own, or that of its node, at the instance's port; none if it has
// none. That of the node is no address of a service with an address that is not one of the node's.
func tagged(e *entry, name string) (host string, port uint16) {
	s, n := &e.Service, &e.Node
	if t := s.TaggedAddresses[name]; t.Address != "" {
		return t.Address, cmp.Or(number(t.Port), number(s.Port))
	}
	if s.Address != "" && s.Address != n.Address && !slices.Contains(slices.Collect(maps.Values(n.TaggedAddresses)), s.Address) {
		return "", 0
	}
	return n.TaggedAddresses[name], number(s.Port)
}
